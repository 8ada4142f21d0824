//! The version lock in every order of its steps, as far as threads preempt each other twice.
//!
//! The lock's own file is compiled here once more, over loom's atomics. There is no harness, because
//! under one the file's unit tests would be part of this program.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;

/// In the place of `shared/sync.rs`.
mod sync {
    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic::{AtomicU64, fence};

    pub fn pause(_round: u32) {
        loom::thread::yield_now();
    }
}

#[allow(dead_code, missing_docs, unused_imports, reason = "the file serves the whole crate")]
#[path = "../src/shared/version_lock.rs"]
mod version_lock;

use version_lock::VersionLock;

fn new_lock() -> VersionLock {
    VersionLock::default()
}

/// What a lock guards: two words that must agree, written without order.
struct Pair {
    lock: VersionLock,
    halves: [AtomicU64; 2],
}

impl Pair {
    fn new() -> Arc<Self> {
        Arc::new(Self { lock: new_lock(), halves: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    fn write(&self, value: u64) {
        self.halves.iter().for_each(|half| half.store(value, Relaxed));
    }

    /// What a reader may believe, if anything.
    fn read(&self) -> Option<[u64; 2]> {
        let version = self.lock.read()?;
        let halves = self.halves.each_ref().map(|half| half.load(Relaxed));
        self.lock.validate(version).then_some(halves)
    }
}

fn readers_never_see_half_a_change() {
    let pair = Pair::new();
    let writer = {
        let pair = Arc::clone(&pair);
        thread::spawn(move || {
            for value in 1..=2 {
                assert!(pair.lock.lock());
                pair.write(value);
                pair.lock.unlock();
            }
        })
    };
    let halves: Vec<_> = (0..2).filter_map(|_| pair.read()).collect();
    assert!(halves.iter().all(|[first, second]| first == second), "{halves:?}");
    assert!(halves.is_sorted(), "{halves:?}");
    writer.join().expect("the writer does not panic");
}

fn writers_exclude_each_other() {
    let pair = Pair::new();
    let add = |pair: &Pair| {
        assert!(pair.lock.lock());
        let value = pair.halves[0].load(Relaxed);
        pair.write(value + 1);
        pair.lock.unlock();
    };
    let other = {
        let pair = Arc::clone(&pair);
        thread::spawn(move || add(&pair))
    };
    add(&pair);
    other.join().expect("the writer does not panic");
    assert_eq!((pair.read(), pair.lock.count()), (Some([2, 2]), 2));
}

fn an_upgrade_takes_what_was_read() {
    let pair = Pair::new();
    let add = |pair: &Pair| loop {
        let Some(version) = pair.lock.read() else { return };
        let value = pair.halves[0].load(Relaxed);
        if pair.lock.upgrade(version) {
            pair.write(value + 1);
            pair.lock.unlock();
            return;
        }
        thread::yield_now();
    };
    let other = {
        let pair = Arc::clone(&pair);
        thread::spawn(move || add(&pair))
    };
    add(&pair);
    other.join().expect("the writer does not panic");
    assert_eq!(pair.read(), Some([2, 2]));
}

fn what_is_obsolete_sends_everybody_away() {
    let pair = Pair::new();
    let other = {
        let pair = Arc::clone(&pair);
        thread::spawn(move || {
            assert!(pair.lock.lock());
            pair.write(1);
            pair.lock.unlock_obsolete();
        })
    };
    // Whoever still gets in sees what was there before.
    assert!(matches!(pair.read(), None | Some([0, 0])));
    if pair.lock.lock() {
        assert_eq!(pair.halves[0].load(Relaxed), 0);
        pair.lock.unlock();
    }
    other.join().expect("the writer does not panic");
    assert!(pair.lock.read().is_none() && !pair.lock.lock());
}

fn main() {
    let models: [(&str, fn()); 4] = [
        ("readers_never_see_half_a_change", readers_never_see_half_a_change),
        ("writers_exclude_each_other", writers_exclude_each_other),
        ("an_upgrade_takes_what_was_read", an_upgrade_takes_what_was_read),
        ("what_is_obsolete_sends_everybody_away", what_is_obsolete_sends_everybody_away),
    ];
    for (name, model) in models {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(model);
        println!("model {name} ... ok");
    }
}
