//! The version lock, NBTree's mark of pending flushes, the gate of writes, and the counts of stripes, in every order of their steps, as far
//! as threads preempt each other twice.
//!
//! Their own files are compiled here once more, over loom's atomics. There is no harness, because
//! under one the files' unit tests would be part of this program.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use loom::thread;

mod index {
    pub mod parts {
        /// In the place of `index/parts/sync.rs`.
        pub mod sync {
            use std::cell::Cell;

            pub use loom::hint::spin_loop;
            pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
            pub use loom::sync::{Mutex, RwLock, RwLockReadGuard};

            pub use self::wait::pause;

            pub const LINES: usize = 2;

            loom::thread_local!(static LINE: Cell<usize> = Cell::new(0));

            /// Gives the calling thread a line.
            pub fn take_line(line: usize) {
                LINE.with(|own| own.set(line));
            }

            pub fn own_thread_index() -> Option<usize> {
                Some(LINE.with(Cell::get))
            }

            /// As on a processor where the compiler's fence is none.
            pub fn compiler_fence(order: Ordering) {
                fence(order);
            }

            pub fn cross() {}

            /// One side alone does nothing for the other, unless both are fences.
            #[derive(Debug)]
            pub enum AsymmetricFence {
                OfBoth,
                OfNone,
            }

            impl AsymmetricFence {
                pub fn light(&self) {
                    if let Self::OfBoth = self {
                        fence(Ordering::SeqCst);
                    }
                }

                pub fn heavy(&self) {
                    self.light();
                }
            }

            pub mod wait {
                use std::sync::PoisonError;

                use loom::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

                pub fn pause(_round: u32) {
                    loom::thread::yield_now();
                }

                pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
                    mutex.lock().unwrap_or_else(PoisonError::into_inner)
                }

                pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
                    lock.read().unwrap_or_else(PoisonError::into_inner)
                }

                pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
                    lock.write().unwrap_or_else(PoisonError::into_inner)
                }
            }
        }

        pub(crate) use crate::passage;
    }
}
use index::parts::sync::{self, AsymmetricFence, take_line};

#[allow(dead_code, missing_docs, unused_imports, reason = "the file serves the whole crate")]
#[path = "../src/index/parts/optimistic_lock.rs"]
mod optimistic_lock;

#[allow(dead_code, missing_docs, unused_imports, reason = "the file serves the whole crate")]
#[path = "../src/index/parts/passage.rs"]
mod passage;

#[allow(dead_code, reason = "the file serves the whole design")]
#[path = "../src/index/designs/nbtree/pending.rs"]
mod pending;

#[allow(dead_code, unused_imports, reason = "the file serves the whole crate")]
#[path = "../src/transaction/gate.rs"]
mod gate;

#[allow(dead_code, reason = "the file serves the whole crate")]
#[path = "../src/transaction/stripe.rs"]
mod stripe;

use gate::Gate;
use optimistic_lock::OptimisticLock;
use passage::{Passage, full_barrier};
use pending::Pending;
use stripe::{Count, Stripe};

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
    // A reader that still gets in sees what was there before.
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

/// A thread that makes writers watchful finds none under way that is not.
fn a_writer_that_is_not_watchful_is_waited_for() {
    let shared = Arc::new((Gate::new(AsymmetricFence::OfBoth), AtomicU64::new(0)));
    let writer = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            take_line(1);
            let (gate, inside) = &*shared;
            let entered = gate.enter();
            if !entered.is_watchful() {
                inside.store(1, Relaxed);
                inside.store(0, Relaxed);
            }
        })
    };
    let (gate, inside) = &*shared;
    gate.watch();
    assert_eq!([inside.load(Relaxed), inside.load(Relaxed)], [0, 0]);
    writer.join().expect("the writer does not panic");
}

/// What was replaced goes once no reader is left that has seen it.
fn replace_beside_a_reader(fence: AsymmetricFence) {
    let cells = [UnsafeCell::new(1), UnsafeCell::new(2)];
    let shared = Arc::new((Passage::new(fence), AtomicU64::new(0), cells));
    let reader = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            take_line(1);
            let (passage, current, cells) = &*shared;
            let _entered = passage.enter();
            let at = current.load(Acquire) as usize;
            // SAFETY: loom's cell, which finds out if this is not so.
            assert_eq!(cells[at].with(|cell| unsafe { *cell }), at + 1);
        })
    };
    let (passage, current, cells) = &*shared;
    current.store(1, Release);
    passage.wait();
    // SAFETY: as above.
    cells[0].with_mut(|cell| unsafe { *cell = 0 });
    reader.join().expect("the reader does not panic");
}

fn what_a_reader_has_seen_stays() {
    replace_beside_a_reader(AsymmetricFence::OfBoth);
}

/// The fences are needed: without them the model finds a reader of what has gone.
fn without_fences_a_reader_is_missed() {
    expect_failure(|| replace_beside_a_reader(AsymmetricFence::OfNone));
}

/// A key, its lock, and what the epoch keeps of it.
struct Key {
    gate: Gate,
    locked: AtomicBool,
    epoch: AtomicU64,
    /// `NONE`: nothing.
    saved: AtomicU64,
    value: AtomicU64,
}

impl Key {
    const NONE: u64 = u64::MAX;

    fn write(&self, value: u64, barrier: fn()) {
        let entered = self.gate.enter();
        while self.locked.swap(true, Acquire) {
            thread::yield_now();
        }
        barrier();
        if self.epoch.load(Acquire) == 1 {
            self.saved.store(self.value.load(Relaxed), Release);
        }
        self.value.store(value, Release);
        self.locked.store(false, Release);
        drop(entered);
    }

    /// The value as of the snapshot's epoch.
    fn then(&self) -> u64 {
        let held = self.value.load(Acquire);
        match self.saved.load(Acquire) {
            Self::NONE => held,
            saved => saved,
        }
    }
}

fn snapshot_beside_a_write(barrier: fn()) {
    let key = Arc::new(Key {
        gate: Gate::new(AsymmetricFence::OfNone),
        locked: AtomicBool::new(false),
        epoch: AtomicU64::new(0),
        saved: AtomicU64::new(Key::NONE),
        value: AtomicU64::new(0),
    });
    key.gate.watch();
    let writer = {
        let key = Arc::clone(&key);
        thread::spawn(move || {
            take_line(1);
            key.write(7, barrier);
        })
    };
    key.epoch.store(1, Release);
    key.gate.wait_for_watchful_writers();
    assert_eq!(key.then(), key.then());
    writer.join().expect("the writer does not panic");
}

fn a_snapshot_shows_one_value_whenever_it_is_asked() {
    snapshot_beside_a_write(full_barrier);
}

/// The barrier behind a key's lock is needed: without it the model finds a snapshot that changes.
fn without_its_barrier_a_write_is_missed() {
    expect_failure(|| snapshot_beside_a_write(|| {}));
}

/// Two keys of two stripes, each with a value of two words that must agree.
struct Keys([(Stripe, [AtomicU64; 2]); 2]);

impl Keys {
    fn new() -> Arc<Self> {
        let key = || (Stripe::new(), [AtomicU64::new(1), AtomicU64::new(1)]);
        Arc::new(Self([key(), key()]))
    }

    /// A lookup by the stripe's count; `None`: the key was changed meanwhile.
    fn get(&self, key: usize) -> Option<(Count, u64)> {
        let (stripe, halves) = &self.0[key];
        let count = stripe.count();
        let [one, other] = halves.each_ref().map(|half| half.load(Relaxed));
        if !stripe.is_unchanged(count, false) {
            return None;
        }
        assert_eq!(one, other, "half a change was read");
        Some((count, one))
    }

    fn write(&self, key: usize, value: u64) {
        self.0[key].1.iter().for_each(|half| half.store(value, Relaxed));
    }

    /// Clears a key if the other one is not cleared, which `looks` at its count once more with the lock.
    fn clear_unless_other(&self, key: usize, looks: bool) {
        let Some((count, 1)) = self.get(1 - key) else { return };
        self.0[key].0.take();
        if !looks || self.0[1 - key].0.is_unchanged(count, false) {
            self.write(key, 0);
        }
        self.0[key].0.give_back();
    }
}

fn a_lookup_by_count_sees_no_half_of_a_change() {
    let keys = Keys::new();
    let writer = {
        let keys = Arc::clone(&keys);
        thread::spawn(move || {
            keys.0[0].0.take();
            keys.write(0, 2);
            keys.0[0].0.give_back();
        })
    };
    let first = keys.get(0);
    if let (Some((_, 2)), Some((_, second))) = (first, keys.get(0)) {
        assert_eq!(second, 2, "a change was taken back");
    }
    writer.join().expect("the writer does not panic");
}

fn cross_each_other(looks: bool) {
    let keys = Keys::new();
    let other = {
        let keys = Arc::clone(&keys);
        thread::spawn(move || keys.clear_unless_other(1, looks))
    };
    keys.clear_unless_other(0, looks);
    other.join().expect("the writer does not panic");
    let left = [0, 1].map(|key| keys.0[key].1[0].load(Relaxed));
    assert_ne!(left, [0, 0], "both have read what the other one changed");
}

fn transactions_that_cross_do_not_skew() {
    cross_each_other(true);
}

/// The second look is needed: without it the model finds both to pass.
fn without_a_second_look_transactions_skew() {
    expect_failure(|| cross_each_other(false));
}

fn expect_failure(model: fn()) {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = std::panic::catch_unwind(|| check(model));
    std::panic::set_hook(told);
    assert!(found.is_err(), "a barrier is not needed, or the model does not see why");
}

fn check(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

fn main() {
    let models: [(&str, fn()); 10] = [
        ("what_is_shown_is_durable", what_is_shown_is_durable),
        ("readers_never_see_half_a_change", readers_never_see_half_a_change),
        ("writers_exclude_each_other", writers_exclude_each_other),
        ("an_upgrade_takes_what_was_read", an_upgrade_takes_what_was_read),
        ("what_is_obsolete_sends_everybody_away", what_is_obsolete_sends_everybody_away),
        ("what_a_reader_has_seen_stays", what_a_reader_has_seen_stays),
        ("a_writer_that_is_not_watchful_is_waited_for", a_writer_that_is_not_watchful_is_waited_for),
        ("a_snapshot_shows_one_value_whenever_it_is_asked", a_snapshot_shows_one_value_whenever_it_is_asked),
        ("a_lookup_by_count_sees_no_half_of_a_change", a_lookup_by_count_sees_no_half_of_a_change),
        ("transactions_that_cross_do_not_skew", transactions_that_cross_do_not_skew),
    ];
    for (name, model) in models {
        check(model);
        println!("model {name} ... ok");
    }
    let needed: [(&str, fn()); 3] = [
        ("without_fences_a_reader_is_missed", without_fences_a_reader_is_missed),
        ("without_its_barrier_a_write_is_missed", without_its_barrier_a_write_is_missed),
        ("without_a_second_look_transactions_skew", without_a_second_look_transactions_skew),
    ];
    for (name, fails) in needed {
        fails();
        println!("model {name} ... ok");
    }
}
