//! The orders of leaves whose keys are byte strings, remembered from scan to scan: a scan that finds one sorts nothing,
//! and reads only the records that it returns.

use bristlecone_pm::Sparse;

use super::optimistic_lock::{LockState, OptimisticLock, Version};
use super::prefetch;
use super::sync::{AtomicU32, AtomicU64, Ordering::Relaxed};
use super::words::{Order, WORDS_MAX};

/// The orders of a tree's leaves, in DRAM of this process.
#[derive(Debug, Default)]
pub struct Orders(Sparse<Remembered>);

/// The order of one leaf, in two lines.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Remembered {
    lock: OptimisticLock,
    /// The leaf, and its version when it was sorted.
    version: AtomicU64,
    leaf: AtomicU32,
    /// The positions of the sorted items.
    taken: AtomicU64,
    /// The positions in the order of the keys, a byte each.
    places: [AtomicU64; WORDS_MAX / 8],
}

impl Orders {
    /// Returns the order of a leaf's items at the positions `taken`, if it is remembered. While the version of a leaf is
    /// the same, each of its positions must have the same key, or none.
    #[inline]
    pub fn find(&self, leaf: u32, version: Version, taken: u64) -> Option<Order> {
        let found = self.0.get(leaf as usize)?;
        let LockState::Free(seen) = found.lock.try_read() else { return None };
        let is_of_leaf = found.leaf.load(Relaxed) == leaf && found.version.load(Relaxed) == version.number();
        let sorted = found.taken.load(Relaxed);
        if !is_of_leaf || taken & !sorted != 0 {
            return None;
        }
        let mut places = [0; WORDS_MAX];
        for (bytes, word) in places.as_chunks_mut().0.iter_mut().zip(&found.places) {
            *bytes = word.load(Relaxed).to_le_bytes();
        }
        found.lock.validate(seen).then(|| Order::among(places, sorted, taken))
    }

    /// Prefetches the order of a leaf.
    #[inline]
    pub fn prefetch(&self, leaf: u32) {
        if let Some(found) = self.0.get(leaf as usize) {
            prefetch(&raw const found.lock);
            prefetch(&raw const found.places[WORDS_MAX / 8 - 1]);
        }
    }

    /// Returns the first positions of the order that is remembered of a leaf, which may be out of date.
    #[inline]
    pub fn first(&self, leaf: u32) -> Option<[u8; 8]> {
        let found = self.0.get(leaf as usize)?;
        let is_of_leaf = found.leaf.load(Relaxed) == leaf && found.taken.load(Relaxed) != 0;
        is_of_leaf.then(|| found.places[0].load(Relaxed).to_le_bytes())
    }

    /// Remembers the order of a leaf's items at the positions `taken`, unless another thread is about to.
    pub fn remember(&self, leaf: u32, version: Version, taken: u64, order: &Order) {
        let cell = self.0.of(leaf as usize);
        let LockState::Free(seen) = cell.lock.try_read() else { return };
        if !cell.lock.upgrade(seen) {
            return;
        }
        cell.leaf.store(leaf, Relaxed);
        cell.version.store(version.number(), Relaxed);
        cell.taken.store(taken, Relaxed);
        for (word, bytes) in cell.places.iter().zip(order.places().as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
        cell.lock.unlock();
    }

    /// Returns the bytes of DRAM.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_of(places: &[u8]) -> (Order, u64) {
        let mut all = [0; WORDS_MAX];
        all[..places.len()].copy_from_slice(places);
        let taken = places.iter().fold(0, |taken, at| taken | 1 << at);
        (Order::among(all, taken, taken), taken)
    }

    fn positions(order: &Order) -> Vec<usize> {
        order.range(0..order.count()).collect()
    }

    #[test]
    fn an_order_holds_for_its_leaf_version_and_items() {
        let (orders, lock) = (Orders::default(), OptimisticLock::default());
        let version = lock.read().unwrap();
        let (order, taken) = order_of(&[9, 0, 63, 4]);
        assert!(orders.find(3, version, taken).is_none() && orders.first(3).is_none());
        orders.remember(3, version, taken, &order);
        assert_eq!(positions(&orders.find(3, version, taken).unwrap()), [9, 0, 63, 4]);
        assert_eq!(orders.first(3).unwrap()[..4], [9, 0, 63, 4]);
        // Removed items are left out. Added ones have no place yet.
        assert_eq!(positions(&orders.find(3, version, taken & !1).unwrap()), [9, 63, 4]);
        assert_eq!(positions(&orders.find(3, version, 1 << 63).unwrap()), [63]);
        assert!(orders.find(3, version, taken | 2).is_none());
        // Leaves whose numbers are far apart share a place.
        assert!(
            orders.find(4, version, taken).is_none() && orders.find(3 + (1 << 20), version, taken).is_none()
        );
        assert!(lock.lock());
        lock.unlock();
        let later = lock.read().unwrap();
        assert!(orders.find(3, later, taken).is_none());
        let (other, both) = order_of(&[4, 0]);
        orders.remember(3 + (1 << 20), later, both, &other);
        assert!(orders.find(3, version, taken).is_none());
        assert_eq!(positions(&orders.find(3 + (1 << 20), later, both).unwrap()), [4, 0]);
    }
}
