//! The chunks of a heap by offset, for threads that have a slot and look for its chunk: they lock nothing.
//!
//! A list is never changed. A thread that adds or removes a chunk publishes a new one, and an epoch later frees the old
//! one together with the removed chunk's slots. A thread that is pinned therefore may use what it found.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::slots::Slots;
use crate::sync::epoch::{self, Guard};
use crate::sync::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// Offsets of chunks in ascending order, and their slots.
type List = Vec<(u64, *const Slots)>;

/// The published list.
#[derive(Debug)]
pub(super) struct Index(AtomicPtr<List>);

// SAFETY: the slots are shared by threads in any case, and a list is only read.
unsafe impl Send for Index {}
// SAFETY: as above.
unsafe impl Sync for Index {}

impl Index {
    pub fn new(all: &BTreeMap<u64, Arc<Slots>>) -> Self {
        Self(AtomicPtr::new(listed(all)))
    }

    /// Publishes the chunks, which lack `removed` from now on. The caller must hold the lock on the chunks, and they own
    /// the slots of all others.
    pub fn publish(&self, all: &BTreeMap<u64, Arc<Slots>>, removed: Option<Arc<Slots>>) {
        let guard = epoch::pin();
        let old = self.0.swap(listed(all), AcqRel);
        // SAFETY: a thread that can still see the old list is pinned since before this, and the list was made by `listed`.
        unsafe {
            guard.defer_unchecked(move || {
                drop(Box::from_raw(old));
                drop(removed);
            });
        }
    }

    /// Returns the slots of the last chunk that begins at or before an offset.
    #[inline]
    pub fn find<'g>(&self, offset: u64, _pinned: &'g Guard) -> Option<&'g Slots> {
        // SAFETY: the guard keeps the list, and the slots in it, from being freed.
        let list = unsafe { &*self.0.load(Acquire) };
        let (_, slots) = list[..list.partition_point(|(begin, _)| *begin <= offset)].last()?;
        // SAFETY: as above.
        Some(unsafe { &**slots })
    }
}

fn listed(all: &BTreeMap<u64, Arc<Slots>>) -> *mut List {
    let list = all.iter().map(|(offset, slots)| (*offset, Arc::as_ptr(slots))).collect();
    Box::into_raw(Box::new(list))
}

impl Drop for Index {
    fn drop(&mut self) {
        // SAFETY: no other thread has the heap any more, and the list was made by `listed`.
        drop(unsafe { Box::from_raw(self.0.load(Relaxed)) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_use_slots_of_a_removed_chunk() {
        let slots = |id: u32| (u64::from(id) * 4096, Arc::new(Slots::new(id, u64::from(id) * 4096, 64)));
        let mut all: BTreeMap<_, _> = [slots(1), slots(3)].into();
        let index = Index::new(&all);
        let guard = epoch::pin();
        let id = |offset| index.find(offset, &guard).map(|slots| slots.id);
        assert_eq!([id(4095), id(4096), id(3 * 4096 - 1), id(9 * 4096)], [None, Some(1), Some(1), Some(3)]);
        let found = index.find(4096, &guard).unwrap();
        let removed = all.remove(&4096).unwrap();
        let alive = Arc::downgrade(&removed);
        index.publish(&all, Some(removed));
        assert_eq!((id(4096), found.id, alive.strong_count()), (None, 1, 1));
        drop(guard);
        assert!(epoch::settle(|| alive.strong_count() == 0), "the slots of a removed chunk are freed");
    }
}
