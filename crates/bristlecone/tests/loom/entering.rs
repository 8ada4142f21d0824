//! The write barrier, and the active-writer registry that it uses.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use loom::thread;

use crate::active_threads::{ActiveThreads, full_barrier};
use crate::expect_failure;
use crate::index::parts::sync::{AsymmetricFence, take_line};
use crate::write_barrier::WriteBarrier;

/// A thread that enables tracking mode must find no active writer in fast mode.
pub fn a_writer_that_is_not_tracking_is_waited_for() {
    let shared = Arc::new((WriteBarrier::new(AsymmetricFence::OfBoth), AtomicU64::new(0)));
    let writer = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            take_line(1);
            let (barrier, inside) = &*shared;
            let entered = barrier.enter();
            if !entered.is_tracking() {
                inside.store(1, Relaxed);
                inside.store(0, Relaxed);
            }
        })
    };
    let (barrier, inside) = &*shared;
    let _watched = barrier.watch();
    assert_eq!([inside.load(Relaxed), inside.load(Relaxed)], [0, 0]);
    writer.join().expect("the writer does not panic");
}

/// After writers have returned to fast mode, the next user must wait for all of them.
pub fn a_user_after_a_rest_waits_for_writers() {
    let shared = Arc::new((WriteBarrier::new(AsymmetricFence::OfBoth), AtomicU64::new(0)));
    drop(shared.0.watch());
    let writer = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            take_line(1);
            let (barrier, inside) = &*shared;
            barrier.rest();
            let entered = barrier.enter();
            if !entered.is_tracking() {
                inside.store(1, Relaxed);
                inside.store(0, Relaxed);
            }
        })
    };
    let (barrier, inside) = &*shared;
    let _watched = barrier.watch();
    assert_eq!([inside.load(Relaxed), inside.load(Relaxed)], [0, 0]);
    writer.join().expect("the writer does not panic");
}

/// Replaced objects are freed once no reader that has seen them is left.
fn replace_beside_a_reader(fence: AsymmetricFence) {
    let cells = [UnsafeCell::new(1), UnsafeCell::new(2)];
    let shared = Arc::new((ActiveThreads::new(fence), AtomicU64::new(0), cells));
    let reader = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            take_line(1);
            let (active, current, cells) = &*shared;
            let _entered = active.enter();
            let at = current.load(Acquire) as usize;
            // SAFETY: loom's cell, which finds out if this is not so.
            assert_eq!(cells[at].with(|cell| unsafe { *cell }), at + 1);
        })
    };
    let (active, current, cells) = &*shared;
    current.store(1, Release);
    active.wait();
    // SAFETY: as above.
    cells[0].with_mut(|cell| unsafe { *cell = 0 });
    reader.join().expect("the reader does not panic");
}

pub fn what_a_reader_has_seen_stays() {
    replace_beside_a_reader(AsymmetricFence::OfBoth);
}

/// The fences are needed: without them the model finds a reader of a freed object.
pub fn without_fences_a_reader_is_missed() {
    expect_failure(|| replace_beside_a_reader(AsymmetricFence::OfNone));
}

/// A key, its lock, and the value saved by the epoch.
struct Key {
    barrier: WriteBarrier,
    locked: AtomicBool,
    epoch: AtomicU64,
    /// `NONE` if nothing is saved.
    saved: AtomicU64,
    value: AtomicU64,
}

impl Key {
    const NONE: u64 = u64::MAX;

    fn write(&self, value: u64, barrier: fn()) {
        let entered = self.barrier.enter();
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

    /// Returns the value in the snapshot's epoch.
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
        barrier: WriteBarrier::new(AsymmetricFence::OfNone),
        locked: AtomicBool::new(false),
        epoch: AtomicU64::new(0),
        saved: AtomicU64::new(Key::NONE),
        value: AtomicU64::new(0),
    });
    let _watched = key.barrier.watch();
    let writer = {
        let key = Arc::clone(&key);
        thread::spawn(move || {
            take_line(1);
            key.write(7, barrier);
        })
    };
    key.epoch.store(1, Release);
    key.barrier.wait_for_tracked_writers();
    assert_eq!(key.then(), key.then());
    writer.join().expect("the writer does not panic");
}

pub fn a_snapshot_shows_one_value_whenever_it_is_asked() {
    snapshot_beside_a_write(full_barrier);
}

/// The barrier behind a key's lock is needed: without it the model finds a snapshot that changes.
pub fn without_its_barrier_a_write_is_missed() {
    expect_failure(|| snapshot_beside_a_write(|| {}));
}
