//! Values that are created when they are needed, without waiting.

use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// A value that any thread may create. If several do so together, one of their values stays, and none waits for another
/// thread. So a child that is forked meanwhile does not wait for a thread that it does not have.
#[derive(Debug)]
pub(crate) struct Raced<T>(AtomicPtr<T>);

impl<T: Send + Sync> Raced<T> {
    /// Returns a place without a value.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value, if there is one.
    #[inline(always)]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: null, or a box that stays until `self` is dropped; its contents were written before it was published.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// Returns the value, which is made if there is none.
    #[inline(always)]
    pub fn get_or_make(&self, make: impl FnOnce() -> Box<T>) -> &T {
        self.get().unwrap_or_else(|| self.publish(make()))
    }

    #[cold]
    fn publish(&self, made: Box<T>) -> &T {
        let made = Box::into_raw(made);
        let stays = match self.0.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: nothing else has the pointer.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        };
        // SAFETY: as in `get`.
        unsafe { &*stays }
    }
}

impl<T> Drop for Raced<T> {
    fn drop(&mut self) {
        if let Some(value) = NonNull::new(*self.0.get_mut()) {
            // SAFETY: it was a box, and nothing borrows it any more.
            drop(unsafe { Box::from_raw(value.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn one_value_stays_and_each_is_dropped_once() {
        let counted = Arc::new(());
        let raced = Raced::new();
        assert!(raced.get().is_none());
        std::thread::scope(|scope| {
            let found: Vec<_> = (0..4)
                .map(|number| {
                    let (raced, counted) = (&raced, &counted);
                    scope.spawn(move || raced.get_or_make(|| Box::new((number, Arc::clone(counted)))).0)
                })
                .collect();
            let found: Vec<_> = found.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert_eq!(found, [raced.get().unwrap().0; 4]);
        });
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(raced);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
