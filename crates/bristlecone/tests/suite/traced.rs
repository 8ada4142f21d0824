//! Events reported to the crate `tracing`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use bristlecone::{BackupOptions, Design, Pool};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::common::Scratch;

/// The fields of an event, with its message.
#[derive(Clone, Debug, Default)]
struct Told(BTreeMap<&'static str, String>);

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

/// Collects the events of a thread.
#[derive(Clone, Debug, Default)]
struct Ear(Arc<Mutex<Vec<Told>>>);

impl Ear {
    /// Returns the fields of all events with a message, and removes them.
    fn take(&self, message: &str) -> Vec<Told> {
        let mut told = self.0.lock().unwrap();
        let (taken, left) = told.drain(..).partition(|event| event.0["message"] == message);
        *told = left;
        taken
    }
}

impl Subscriber for Ear {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("bristlecone")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut told = Told::default();
        event.record(&mut told);
        self.0.lock().unwrap().push(told);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Runs `work` and collects the events of this thread in `ear`.
///
/// With a single subscriber in the process, `tracing` asks only the first thread that reaches an event whether a
/// subscriber is interested, and caches the answer for all threads: a thread of another test has none. With two it
/// asks all subscribers.
fn listen(ear: &Ear, work: impl FnOnce()) {
    static OTHERS: LazyLock<[Dispatch; 2]> =
        LazyLock::new(|| [Ear::default(), Ear::default()].map(Dispatch::new));
    LazyLock::force(&OTHERS);
    tracing::subscriber::with_default(ear.clone(), work);
}

/// Expects one event with a message and a name, which includes its duration.
#[track_caller]
fn expect(ear: &Ear, message: &str, name: &str) {
    let told = ear.take(message);
    assert_eq!(told.len(), 1, "{message}: {ear:?}");
    assert!(told[0].0.get("name").is_some_and(|found| found.contains(name)), "{told:?}");
    assert!(!told[0].0["took"].is_empty());
}

#[test]
fn what_happens_to_a_pool_is_told() {
    for &design in Design::ALL {
        let (scratch, copy) = (Scratch::new(), Scratch::new());
        let ear = Ear::default();
        listen(&ear, || {
            let path = scratch.0.to_str().unwrap();
            let pool = scratch.open();
            expect(&ear, "a pool is opened", path);
            let tree = pool.tree_options("t").design(design).create::<u64, u64>().unwrap();
            expect(&ear, "a tree is created", "\"t\"");
            let before = ear.take("a tree gets a chunk").len();
            (0..200_000).for_each(|key| tree.upsert(key, key).unwrap());
            let chunks = ear.take("a tree gets a chunk");
            assert!(before >= 1 && !chunks.is_empty(), "{design}: {before}, {chunks:?}");
            assert!(chunks.iter().all(|chunk| chunk.0.contains_key("took")));
            pool.backup(&copy.0, BackupOptions::new()).unwrap();
            assert_eq!(ear.take("a pool is copied").len(), 1, "{design}");
            // The copy.
            assert_eq!(ear.take("a pool is closed").len(), 1, "{design}");
            drop(tree);
            pool.close().unwrap();
            assert_eq!(ear.take("a pool is closed").len(), 1, "{design}");

            let pool = Pool::open(&scratch.0).unwrap();
            let tree = pool.tree::<u64, u64>("t").unwrap();
            expect(&ear, "a tree is recovered", "\"t\"");
            drop(tree);
            pool.clear_tree("t").unwrap();
            expect(&ear, "a tree is cleared", "\"t\"");
            pool.drop_tree("t").unwrap();
            expect(&ear, "a tree is dropped", "\"t\"");
        });
    }
}

#[test]
fn a_wait_is_told_if_it_is_long() {
    let ear = Ear::default();
    listen(&ear, || {
        assert_eq!(bristlecone_pm::trace_slow("short", || 1), 1);
        bristlecone_pm::trace_slow("long", || std::thread::sleep(Duration::from_millis(2)));
    });
    assert_eq!(ear.take("long").len(), 1, "{ear:?}");
}
