//! Waiting for other threads, all of it in one place: a simulator that interleaves several threads must know when
//! one can only wait.

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{
    Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};

use crate::Step;
use crate::sync::HAS_TURNS;

/// Rounds after which a waiting thread yields its processor.
const SPINS: u32 = 64;

thread_local! {
    static TURN: Cell<Option<fn()>> = const { Cell::new(None) };
    static STEP: Cell<Option<fn(Turn)>> = const { Cell::new(None) };
    static PARALLEL: Cell<Option<Parallel>> = const { Cell::new(None) };
}

/// Runs work on a number of threads and returns when all have finished.
pub type Parallel = fn(usize, &(dyn Fn() + Sync));

/// Called by a thread that waits for long.
static WATCH: OnceLock<fn(u32)> = OnceLock::new();

/// Whether any thread ever was simulated. In most processes none is, and nothing else is checked.
static EVER: AtomicBool = AtomicBool::new(false);

/// How a thread uses the memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A load.
    Load,
    /// A store.
    Store,
    /// A locked instruction, which loads and stores.
    Locked,
    /// A prefetch, which does not wait.
    Prefetch,
    /// The acquisition of a lock of the standard library; its release is charged with it.
    Lock,
    /// Another attempt to acquire such a lock.
    LockAgain,
    /// A full fence; the address has no meaning.
    Fence,
}

/// An access to shared DRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The address.
    pub address: usize,
    /// The use of the memory there.
    pub by: Use,
}

impl Access {
    /// Returns an access to a value that lies in one line.
    #[inline(always)]
    pub fn of<T: ?Sized>(value: &T, by: Use) -> Self {
        Self { address: std::ptr::from_ref(value).addr(), by }
    }

    /// Returns a full fence.
    #[inline(always)]
    pub fn fence() -> Self {
        Self { address: 0, by: Use::Fence }
    }
}

/// A point at which a simulator may switch threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Before an access to shared DRAM.
    Access(Access),
    /// Before an access that has a cost, but no effect that other threads could see.
    Cost(Access),
    /// Where a lock is taken or released: most races lie between two of these.
    Crossing,
    /// At a named step of an algorithm in DRAM.
    Named(Step),
}

/// Sets the function that the simulated threads of the calling thread call at each such point, in a build with the
/// feature `turns`. `None` ends this.
pub fn simulate_steps(step: Option<fn(Turn)>) {
    EVER.fetch_or(step.is_some(), Relaxed);
    STEP.set(step);
}

/// Lets a simulator switch threads before an access to shared DRAM.
#[cfg(feature = "turns")]
#[inline(always)]
pub(crate) fn step(access: Access) {
    at(Turn::Access(access));
}

/// Passes an access to a cost model.
#[inline(always)]
pub(crate) fn charge(access: Access) {
    at(Turn::Cost(access));
}

/// Lets a simulator switch threads where a lock is taken or released.
#[inline(always)]
pub fn cross() {
    at(Turn::Crossing);
}

/// Names a step of an algorithm in DRAM, at which a simulator may switch threads. Schedules count these steps.
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

/// Sets how [`in_parallel`] runs work for the simulated threads of the calling thread. `None` ends this.
pub fn simulate_parallel(run: Option<Parallel>) {
    PARALLEL.set(run);
}

/// Runs `work` on `threads` threads, including the calling one, and returns when all have finished. If a thread
/// cannot be started, the others do its share.
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

/// Makes the calling thread run several simulated threads: when one of them waits, `turn` runs another. `None`
/// ends this.
pub fn simulate_waiting(turn: Option<fn()>) {
    TURN.set(turn);
}

/// Returns whether the calling thread runs simulated threads, for which no time passes.
pub fn is_simulated() -> bool {
    TURN.get().is_some()
}

/// Sets the function that threads call when they wait for long, with the number of rounds so far. It may abort the wait by
/// a panic. Only the first call counts.
pub(crate) fn watch(watch: fn(u32)) {
    let _ = WATCH.set(watch);
}

fn waits_long(round: u32) {
    if let Some(watch) = WATCH.get() {
        watch(round);
    }
}

/// Waits briefly, and yields to descheduled threads when it takes longer.
#[cold]
pub fn pause(round: u32) {
    match TURN.get() {
        Some(turn) => turn(),
        None if round < SPINS => spin_loop(),
        None => {
            std::thread::yield_now();
            waits_long(round);
        }
    }
}

/// Begins another round of a loop that retries immediately, because no other thread must run first. A follower
/// aborts a loop that cycles in the unfinished state of a dead writer.
#[inline(always)]
pub fn again(round: &mut u32) {
    if *round > 0 {
        spin_loop();
    }
    *round = round.wrapping_add(1);
    if *round > SPINS {
        waits_long(*round);
    }
}

/// Locks a mutex and ignores poisoning: guarded data is consistent at every point where a holder may panic.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    cross();
    charge(Access::of(mutex, Use::Lock));
    ready(mutex.try_lock()).unwrap_or_else(|| {
        wait(
            Access::of(mutex, Use::LockAgain),
            || mutex.try_lock(),
            || mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    })
}

/// Locks for reading, like [`lock`].
#[inline]
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    cross();
    charge(Access::of(lock, Use::Lock));
    ready(lock.try_read()).unwrap_or_else(|| {
        wait(
            Access::of(lock, Use::LockAgain),
            || lock.try_read(),
            || lock.read().unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    })
}

/// Locks for writing, like [`lock`].
#[inline]
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    cross();
    charge(Access::of(lock, Use::Lock));
    ready(lock.try_write()).unwrap_or_else(|| {
        wait(
            Access::of(lock, Use::LockAgain),
            || lock.try_write(),
            || lock.write().unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
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
fn wait<G>(again: Access, attempt: impl Fn() -> TryLockResult<G>, block: impl FnOnce() -> G) -> G {
    if TURN.get().is_none() {
        return block();
    }
    loop {
        charge(again);
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
