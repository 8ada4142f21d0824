//! Waiting for other threads, all of it in one place: a simulator that runs several threads by turns
//! has to know when one can do nothing but wait.

use std::cell::Cell;
use std::hint::spin_loop;
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult};

/// Rounds after which a waiting thread gives up its processor.
const SPINS: u32 = 64;

thread_local! {
    static TURN: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// From now on the calling thread stands for several simulated ones: where one of them waits, `turn`
/// runs another. `None` ends this.
pub fn simulate_waiting(turn: Option<fn()>) {
    TURN.set(turn);
}

/// Waits a little, and lets a descheduled thread run when it takes longer.
#[cold]
pub fn pause(round: u32) {
    match TURN.get() {
        Some(turn) => turn(),
        None if round < SPINS => spin_loop(),
        None => std::thread::yield_now(),
    }
}

/// Locks. A panic of another holder is its own; what is guarded is sound at any moment.
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    ready(mutex.try_lock()).unwrap_or_else(|| {
        wait(|| mutex.try_lock(), || mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    })
}

/// The same for reading.
#[inline]
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    ready(lock.try_read()).unwrap_or_else(|| {
        wait(|| lock.try_read(), || lock.read().unwrap_or_else(|poisoned| poisoned.into_inner()))
    })
}

/// The same for writing.
#[inline]
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
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
