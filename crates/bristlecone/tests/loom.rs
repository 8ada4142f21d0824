//! The version lock, and NBTree's mark of pending flushes, in every order of their steps, as far as
//! threads preempt each other twice.
//!
//! Their own files are compiled here once more, over loom's atomics. There is no harness, because
//! under one the files' unit tests would be part of this program.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use loom::thread;

mod index {
    pub mod parts {
        /// In the place of `index/parts/sync.rs`.
        pub mod sync {
            pub use loom::hint::spin_loop;
            pub use loom::sync::atomic::{AtomicU32, AtomicU64, fence};

            pub fn cross() {}

            pub fn pause(_round: u32) {
                loom::thread::yield_now();
            }
        }
    }
}
use index::parts::sync;

#[allow(dead_code, missing_docs, unused_imports, reason = "the file serves the whole crate")]
#[path = "../src/index/parts/optimistic_lock.rs"]
mod optimistic_lock;

#[allow(dead_code, reason = "the file serves the whole design")]
#[path = "../src/index/designs/nbtree/pending.rs"]
mod pending;

use optimistic_lock::OptimisticLock;
use pending::Pending;

fn new_lock() -> OptimisticLock {
    OptimisticLock::default()
}

/// What a lock guards: two words that must agree, written without order.
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

/// A line of a leaf: what its value is, and which value is durable.
struct Line {
    pending: Pending,
    value: AtomicU64,
    durable: AtomicU64,
}

impl Line {
    const NUMBER: usize = 4;

    fn new() -> Arc<Self> {
        let pending = Pending::default();
        Arc::new(Self { pending, value: AtomicU64::new(0), durable: AtomicU64::new(0) })
    }

    /// What a flush and its fence do, for what is visible to the thread that flushes.
    fn flush(&self) {
        self.durable.fetch_max(self.value.load(Relaxed), Relaxed);
    }

    fn write(&self, value: u64) {
        let note = self.pending.enter(Self::NUMBER);
        self.value.fetch_max(value, AcqRel);
        self.pending.note_removed(-1);
        self.flush();
        self.pending.leave(note);
    }

    /// As every reader: it helps if a flush is to come.
    fn read(&self) -> u64 {
        let value = self.value.load(Acquire);
        if self.pending.is_flushing(Self::NUMBER) {
            self.flush();
        }
        value
    }
}

fn what_is_shown_is_durable() {
    let line = Line::new();
    let writers: Vec<_> = (1..=2)
        .map(|value| {
            let line = Arc::clone(&line);
            thread::spawn(move || line.write(value))
        })
        .collect();
    let shown = line.read();
    let durable = line.durable.load(Relaxed);
    assert!(durable >= shown, "{shown} was shown, {durable} is durable");
    for writer in writers {
        writer.join().expect("the writer does not panic");
    }
    assert!(!line.pending.is_flushing_anywhere());
    assert_eq!((line.pending.removed(), line.durable.load(Relaxed)), (-2, 2));
}

fn main() {
    let models: [(&str, fn()); 5] = [
        ("what_is_shown_is_durable", what_is_shown_is_durable),
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
