//! Handles that a forked child must not tear down: pools and trees that belong to the process that
//! opened the pool.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use bristlecone_pm::Opener;

/// A value held by a [`Handle`].
pub(crate) trait Inherited {
    /// Releases only the system resources that a forked child holds.
    fn abandon(&self) {}
}

/// A shared value of the process that opened a pool.
///
/// In a forked child, a drop leaves the value unchanged. Another thread may have been changing it at
/// the fork, or may have held its locks, which then stay locked forever. Only the parent may close the
/// pool.
#[derive(Debug)]
pub(crate) struct Handle<T: Inherited + ?Sized> {
    value: ManuallyDrop<Arc<T>>,
    opener: Opener,
}

impl<T: Inherited + ?Sized> Handle<T> {
    pub fn new(value: Arc<T>, opener: Opener) -> Self {
        Self { value: ManuallyDrop::new(value), opener }
    }

    /// Returns whether this process may use the value.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        self.opener.is_here()
    }

    /// Returns the value with its count of handles.
    pub fn shared(&self) -> &Arc<T> {
        &self.value
    }

    /// Returns the process that may use the value.
    pub fn opener(&self) -> &Opener {
        &self.opener
    }

    /// Returns the number of other handles. After it returns 0, no other thread can create one.
    pub fn others(&mut self) -> usize {
        match Arc::get_mut(&mut self.value) {
            Some(_) => 0,
            None => (Arc::strong_count(&self.value) - 1).max(1),
        }
    }
}

impl<T: Inherited + ?Sized> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.value), self.opener)
    }
}

impl<T: Inherited + ?Sized> Deref for Handle<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Inherited + ?Sized> Drop for Handle<T> {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: dropped only here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        } else {
            self.value.abandon();
        }
    }
}
