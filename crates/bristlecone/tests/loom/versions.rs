//! The version lock.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;

use crate::optimistic_lock::OptimisticLock;

fn new_lock() -> OptimisticLock {
    OptimisticLock::default()
}

/// The protected data: two words that must be equal, written without ordering.
struct Pair {
    lock: OptimisticLock,
    halves: [AtomicU64; 2],
}

impl Pair {
    fn new() -> Arc<Self> {
        Arc::new(Self { lock: new_lock(), halves: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    fn write(&self, value: u64) {
        self.halves.iter().for_each(|half| half.store(value, Relaxed));
    }

    /// Returns the validated data, if any.
    fn read(&self) -> Option<[u64; 2]> {
        let version = self.lock.read()?;
        let halves = self.halves.each_ref().map(|half| half.load(Relaxed));
        self.lock.validate(version).then_some(halves)
    }
}

pub fn readers_never_see_half_a_change() {
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

pub fn writers_exclude_each_other() {
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

pub fn an_upgrade_takes_what_was_read() {
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

pub fn what_is_obsolete_sends_every_thread_away() {
    let pair = Pair::new();
    let other = {
        let pair = Arc::clone(&pair);
        thread::spawn(move || {
            assert!(pair.lock.lock());
            pair.write(1);
            pair.lock.unlock_obsolete();
        })
    };
    // A reader that is still admitted sees the previous state.
    assert!(matches!(pair.read(), None | Some([0, 0])));
    if pair.lock.lock() {
        assert_eq!(pair.halves[0].load(Relaxed), 0);
        pair.lock.unlock();
    }
    other.join().expect("the writer does not panic");
    assert!(pair.lock.read().is_none() && !pair.lock.lock());
}
