//! Readers whose validation fails at every load: they must still find their keys, in a bounded number of rounds,
//! and a closure that receives a value may write.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::common::{CONFIGURATIONS, Configuration, Scratch, share};
use crate::crash_at_every_store::{AT_LOAD, Ending};
use bristlecone::lab::pool_on_any;
use bristlecone::{Design, Native, Tree};
use bristlecone_pm::{CreateOptions, PoolFile};

const KEYS: u64 = 600;
/// One of this many keys is read.
const STRIDE: usize = 31;
/// A writer that has not written by then waits for the reader.
const PATIENCE: Duration = Duration::from_millis(30);
/// A writer that has not written by then is deadlocked.
const FOR_EVER: Duration = Duration::from_secs(20);

/// A thread that writes requested keys.
struct Writer {
    keys: Sender<u64>,
    written: Receiver<()>,
    /// Whether it waits for a lock.
    waits: Cell<bool>,
    writes: Cell<u64>,
}

impl Writer {
    fn disturb(&self, key: u64) {
        if !self.waits.get() {
            self.keys.send(key).unwrap();
            self.waits.set(self.written.recv_timeout(PATIENCE).is_err());
            self.writes.set(self.writes.get() + 1);
            assert!(self.writes.get() < 10_000, "a reader does not come to an end");
        }
    }

    /// No lock held by the caller may block the write.
    fn write(&self, key: u64) {
        if self.waits.take() {
            self.written.recv_timeout(FOR_EVER).expect("a reader keeps its lock while a value is looked at");
        }
        self.keys.send(key).unwrap();
        self.written.recv_timeout(FOR_EVER).expect("a reader keeps its lock while a value is looked at");
    }
}

/// Reads keys while their neighbours are written at every load; returns how often a reader made a writer wait.
fn read(tree: &Tree<u64, u64>, writer: &Rc<Writer>) -> usize {
    let mut waited = 0;
    for key in (0..KEYS).step_by(STRIDE) {
        writer.writes.set(0);
        let disturbing = Rc::clone(writer);
        AT_LOAD.set(Some(Box::new(move || disturbing.disturb(key ^ 1))));
        let found = tree
            .get_with(key, |value| {
                AT_LOAD.take();
                waited += usize::from(writer.waits.get());
                writer.write(key ^ 1);
                value
            })
            .unwrap();
        assert_eq!(found, Some(key));
    }
    waited
}

fn disturb(shape: &Configuration) -> usize {
    let scratch = Scratch::new();
    let options = CreateOptions { max_bytes: 64 << 20, domain: None, chunk_bytes: None };
    let medium = |domain| Ending::never(Native::new(domain), &Arc::default()).boxed();
    let pool = pool_on_any(PoolFile::create(&scratch.0, &options, medium).unwrap()).unwrap();
    let tree = shape.tree(&pool, "t").create::<u64, u64>().unwrap();
    (0..KEYS).for_each(|key| assert_eq!(tree.insert(key, key).unwrap(), None));
    std::thread::scope(|scope| {
        let ((keys, asked), (done, written)) = (channel(), channel());
        let tree = &tree;
        scope.spawn(move || {
            asked.iter().for_each(|key| {
                tree.upsert(key, key).unwrap();
                // No thread waits for the last one.
                let _ = done.send(());
            });
        });
        let writer = Rc::new(Writer { keys, written, waits: Cell::new(false), writes: Cell::new(0) });
        read(tree, &writer)
    })
}

#[test]
fn readers_come_to_an_end_and_may_write() {
    let locking = [Design::CclBTree, Design::LodgeTree];
    for shape in share(CONFIGURATIONS.iter().filter(|shape| locking.contains(&shape.design))) {
        let waited = disturb(shape);
        println!("{shape:?}: a reader locked {waited} times");
        assert!(waited > 0, "{shape:?}: no reader ran out of patience");
    }
}
