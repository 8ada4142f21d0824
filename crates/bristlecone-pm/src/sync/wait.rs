//! Waiting for other threads, all of it in one place: a simulator that runs several threads by turns
//! has to know when one can do nothing but wait.

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult};

use crate::Step;
use crate::sync::HAS_TURNS;

/// Rounds after which a waiting thread yields its processor.
const SPINS: u32 = 64;

thread_local! {
    static TURN: Cell<Option<fn()>> = const { Cell::new(None) };
    static STEP: Cell<Option<fn(Turn)>> = const { Cell::new(None) };
    static PARALLEL: Cell<Option<Parallel>> = const { Cell::new(None) };
}

/// Runs work on so many threads and returns when all are through.
pub type Parallel = fn(usize, &(dyn Fn() + Sync));

/// Whether any thread ever was simulated: most processes have none, and look no further.
static EVER: AtomicBool = AtomicBool::new(false);

/// Where a simulated thread may let another one go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Before an access to DRAM that threads share.
    Access,
    /// Where a lock is taken or released: between two of these most of what can go wrong has its place.
    Crossing,
    /// At a named step of an algorithm in DRAM.
    Named(Step),
}

/// Sets what the simulated threads that the calling thread stands for do at each such place, in a build with the
/// feature `turns`. `None` ends this.
pub fn simulate_steps(step: Option<fn(Turn)>) {
    EVER.fetch_or(step.is_some(), Relaxed);
    STEP.set(step);
}

/// Lets another simulated thread go on, before an access to DRAM that they share.
#[cfg(feature = "turns")]
#[inline(always)]
pub(crate) fn step() {
    at(Turn::Access);
}

/// Lets another simulated thread go on, where a lock is taken or released.
#[inline(always)]
pub fn cross() {
    at(Turn::Crossing);
}

/// Names a step of an algorithm in DRAM, at which another simulated thread may go on, and which schedules count.
#[inline(always)]
pub fn reached(step: Step) {
    at(Turn::Named(step));
}

#[inline(always)]
fn at(turn: Turn) {
    if HAS_TURNS
        && EVER.load(Relaxed)
        && let Ok(Some(step)) = STEP.try_with(Cell::get)
    {
        step(turn);
    }
}

/// Sets how [`in_parallel`] runs work for the simulated threads that the calling thread stands for. `None` ends
/// this.
pub fn simulate_parallel(run: Option<Parallel>) {
    PARALLEL.set(run);
}

/// Runs `work` on `threads` threads, the calling one among them, and returns when all are through. Without a
/// thread that cannot be had the others have more to do.
pub fn in_parallel(threads: usize, work: &(dyn Fn() + Sync)) {
    if let Some(run) = PARALLEL.get() {
        return run(threads, work);
    }
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

/// Makes the calling thread stand for several simulated ones: where one of them waits, `turn` runs
/// another. `None` ends this.
pub fn simulate_waiting(turn: Option<fn()>) {
    TURN.set(turn);
}

/// Returns whether the calling thread stands for several simulated ones, for which no time passes.
pub fn is_simulated() -> bool {
    TURN.get().is_some()
}

/// Waits a little, and lets a descheduled thread run when it takes longer.
#[cold]
pub fn pause(round: u32) {
    match TURN.get() {
        Some(turn) => turn(),
        None if round < SPINS => spin_loop(),
        None => {
            std::thread::yield_now();
            crate::segment::waits(round);
        }
    }
}

/// Begins another round of a loop in which a thread tries again at once, since no other one has to run for that. A
/// follower leaves it that goes round in what a writer left halfway.
#[inline(always)]
pub fn again(round: &mut u32) {
    if *round > 0 {
        spin_loop();
    }
    *round = round.wrapping_add(1);
    if *round > SPINS {
        crate::segment::waits(*round);
    }
}

/// Locks a mutex. A panic of another holder is its own; what is guarded is sound at any moment.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    cross();
    ready(mutex.try_lock()).unwrap_or_else(|| {
        wait(|| mutex.try_lock(), || mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    })
}

/// Locks for reading, as [`lock`] does.
#[inline]
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    cross();
    ready(lock.try_read()).unwrap_or_else(|| {
        wait(|| lock.try_read(), || lock.read().unwrap_or_else(|poisoned| poisoned.into_inner()))
    })
}

/// Locks for writing, as [`lock`] does.
#[inline]
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    cross();
    ready(lock.try_write()).unwrap_or_else(|| {
        wait(|| lock.try_write(), || lock.write().unwrap_or_else(|poisoned| poisoned.into_inner()))
    })
}

fn ready<G>(tried: TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cold]
fn wait<G>(attempt: impl Fn() -> TryLockResult<G>, block: impl FnOnce() -> G) -> G {
    if TURN.get().is_none() {
        return block();
    }
    loop {
        pause(0);
        if let Some(guard) = ready(attempt()) {
            return guard;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_thread_never_blocks() {
        thread_local!(static HELD: Cell<Option<MutexGuard<'static, u32>>> = const { Cell::new(None) });
        let mutex: &'static Mutex<u32> = Box::leak(Box::new(Mutex::new(7)));
        HELD.set(Some(lock(mutex)));
        simulate_waiting(Some(|| drop(HELD.take())));
        assert_eq!(*lock(mutex), 7);
        simulate_waiting(None);
    }

    #[test]
    fn a_panic_elsewhere_does_not_spread() {
        let (mutex, rw) = (Mutex::new(1), RwLock::new(2));
        std::thread::scope(|scope| {
            let panicking = scope.spawn(|| {
                let _both = (lock(&mutex), write(&rw));
                panic!("on purpose");
            });
            assert!(panicking.join().is_err());
        });
        assert_eq!(*lock(&mutex), 1);
        assert_eq!(*read(&rw), 2);
        assert_eq!(*write(&rw), 2);
    }
}
