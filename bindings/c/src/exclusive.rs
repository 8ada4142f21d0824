//! Values that one thread uses at a time.

use std::cell::UnsafeCell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::status::{BRISTLECONE_IN_USE, Failure, Outcome};

/// A value for one thread at a time: a second one is refused, and so is a callback of the first.
pub struct Exclusive<T> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is used by the thread that set `busy`, one at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

/// Guard that releases the value, however the work ends.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Pairs with the swap in `alone`: the next thread sees all changes.
        self.0.store(false, Release);
    }
}

impl<T> Exclusive<T> {
    pub fn new(value: T) -> Self {
        Self { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Calls `work` with the value, unless that is in use.
    #[inline(always)]
    pub fn alone<R>(&self, work: impl FnOnce(&mut T) -> Outcome<R>) -> Outcome<R> {
        if self.busy.swap(true, Acquire) {
            return Err(in_use());
        }
        let _busy = Busy(&self.busy);
        // SAFETY: no other thread is here.
        work(unsafe { &mut *self.value.get() })
    }

    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

#[cold]
fn in_use() -> Failure {
    let what = "the handle is in use by another thread, or by the call that this callback is of";
    Failure::Said(BRISTLECONE_IN_USE, what.to_owned())
}
