//! Single values of a tree that followers read: counters, the number of a root.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ops::Deref;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::Segment;
use crate::sync::{AtomicI64, AtomicPtr, AtomicU32, AtomicU64};

/// A type for which all-zero bytes are valid and which may be shared without being moved.
///
/// # Safety
///
/// All-zero bytes must be a valid value of the type, and it must need no drop.
pub unsafe trait Zeroed: Sync {}

// SAFETY: an atomic consists of its value, for which all-zero bytes are valid.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for AtomicU64 {}
// SAFETY: as above.
unsafe impl Zeroed for AtomicI64 {}
// SAFETY: as above: a null pointer.
unsafe impl<T> Zeroed for AtomicPtr<T> {}
#[cfg(feature = "turns")]
// SAFETY: as above.
unsafe impl Zeroed for std::sync::atomic::AtomicU64 {}
// SAFETY: a value, and padding.
unsafe impl<T: Zeroed> Zeroed for CachePadded<T> {}
// SAFETY: `LEN` values, side by side.
unsafe impl<T: Zeroed, const LEN: usize> Zeroed for [T; LEN] {}

/// A value that is initially zero: in the pool's segment, where followers read it, or in memory of this process.
#[derive(Debug)]
pub struct SharedCell<T: Zeroed> {
    at: *const T,
    place: Option<(Arc<Segment>, u64)>,
}

// SAFETY: a reference to a `Sync` value that it owns.
unsafe impl<T: Zeroed> Send for SharedCell<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroed> Sync for SharedCell<T> {}

impl<T: Zeroed> Default for SharedCell<T> {
    fn default() -> Self {
        Self::private()
    }
}

impl<T: Zeroed> SharedCell<T> {
    /// Returns a value in memory of this process.
    pub fn private() -> Self {
        let layout = Layout::new::<T>();
        assert!(layout.size() > 0);
        // SAFETY: the layout is not empty (asserted).
        let at = unsafe { alloc_zeroed(layout) }.cast::<T>();
        if at.is_null() {
            handle_alloc_error(layout);
        }
        Self { at, place: None }
    }

    /// Returns a new value in a segment; `None` if it has no space.
    pub(super) fn fresh(segment: &Arc<Segment>) -> Option<Self> {
        let offset = segment.take_cell(Layout::new::<T>())?;
        Self::at(segment, offset)
    }

    /// Sets the value, which no thread has seen yet.
    pub(super) fn beginning(self, value: T) -> Self {
        // SAFETY: memory for a `T` that this thread alone knows; what it held needs no drop.
        unsafe { self.at.cast_mut().write(value) };
        self
    }

    /// Returns the value at an offset that was allocated to a tree.
    pub(super) fn at(segment: &Arc<Segment>, offset: u64) -> Option<Self> {
        let at = segment.cell_at(offset, Layout::new::<T>())?;
        Some(Self { at: at.cast(), place: Some((Arc::clone(segment), offset)) })
    }

    /// Returns the offset at which followers find it; `None` if they do not.
    pub(super) fn place(&self) -> Option<u64> {
        self.place.as_ref().map(|(_, offset)| *offset)
    }
}

impl<T: Zeroed> Deref for SharedCell<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: memory for a `T` that begins as zeros, which are a value, and stays as long as `self`; it changes through
        // shared references alone.
        unsafe { &*self.at }
    }
}

impl<T: Zeroed> Drop for SharedCell<T> {
    fn drop(&mut self) {
        match &self.place {
            Some((segment, offset)) => segment.free_cell(*offset, Layout::new::<T>()),
            // SAFETY: allocated by `private` with this layout; the type needs no drop.
            None => unsafe { std::alloc::dealloc(self.at.cast_mut().cast(), Layout::new::<T>()) },
        }
    }
}
