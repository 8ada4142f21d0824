//! What a child must not tear down: handles to pools and trees that belong to the process that opened
//! the pool.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use bristlecone_pm::Opener;

/// What a [`Handle`] holds.
pub(crate) trait Inherited {
    /// Gives up what a child of the opener holds of the system's, and touches nothing else.
    fn abandon(&self) {}
}

/// A shared value of the process that opened a pool.
///
/// In a child a drop leaves the value as it is: another thread may have been changing it when the child
/// was forked, may have held its locks for ever then, and the pool is not the child's to close.
#[derive(Debug)]
pub(crate) struct Handle<T: Inherited + ?Sized> {
    value: ManuallyDrop<Arc<T>>,
    opener: Opener,
}

impl<T: Inherited + ?Sized> Handle<T> {
    pub fn new(value: Arc<T>, opener: Opener) -> Self {
        Self { value: ManuallyDrop::new(value), opener }
    }

    /// Reports whether this process may use the value.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        self.opener.is_here()
    }

    /// Returns how many other handles there are. After 0, no other thread can make one.
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
            // SAFETY: dropped here only, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        } else {
            self.value.abandon();
        }
    }
}
