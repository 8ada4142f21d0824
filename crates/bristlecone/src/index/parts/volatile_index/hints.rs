//! Hints where a descent begins: for word keys, the node of the lowest level that holds those with the same leading
//! bits. Correctness does not depend on hints: a thread that follows one verifies that the key is in the node's
//! range, as if it had come from a sibling. Any thread that descends may write hints. They are never removed, and
//! may refer to nodes that have left the index or were reused elsewhere.
//!
//! A hint replaces all levels but the last, and their instructions, which otherwise separate the cache misses of
//! consecutive operations.

use std::cell::Cell;
use std::sync::OnceLock;

use bristlecone_pm::sync::wait::reached;
use bristlecone_pm::sync::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use crossbeam_utils::CachePadded;

use super::node::{AnyLayout, Layout, NodeRef, Nodes};
use super::{KeyCodec, Side, VolatileIndex};
use crate::index::parts::optimistic_lock::{LockState, Version};
use crate::index::parts::prefetch;

/// Minimum number of nodes for hints.
const NODES_MIN: u32 = 32;
/// Number of buckets per node: most buckets lie within one node, and a key in the next node costs one miss.
const BUCKETS_A_NODE: u64 = 8;
const BUCKETS_MAX: u64 = 1 << 20;
/// Number of useless hints per bucket after which hints are disabled until there are twice as many nodes.
const VAIN_MAX: u64 = 4;
/// A thread counts one useless hint in this many, for all of them: otherwise the count's line would move between
/// processors with every descent.
const VAIN_EACH: u32 = 16;

thread_local! {
    /// Number of useless hints of the calling thread, in any tree.
    static VAIN: Cell<u32> = const { Cell::new(0) };
}

/// Hints by the bits of keys above the smallest one of the tree.
#[derive(Debug)]
pub struct Hints {
    table: OnceLock<Box<[AtomicU32]>>,
    scale: CachePadded<Scale>,
    /// Number of descents from the root since the scale was set, to within `VAIN_EACH` for each thread.
    vain: CachePadded<AtomicU64>,
}

/// The mapping of keys to buckets. Its words change one by one, because buckets of an old scale are harmless.
#[derive(Debug)]
struct Scale {
    first: AtomicU64,
    shift: AtomicU32,
    /// The last bucket; none if there are no hints.
    last: AtomicU32,
    /// Number of nodes from which on the scale is outdated.
    outgrown: AtomicU32,
}

impl Default for Hints {
    fn default() -> Self {
        let scale = Scale {
            first: AtomicU64::new(0),
            shift: AtomicU32::new(0),
            last: AtomicU32::new(0),
            outgrown: AtomicU32::new(NODES_MIN),
        };
        Self { table: OnceLock::new(), scale: CachePadded::new(scale), vain: CachePadded::default() }
    }
}

impl Hints {
    /// Returns the hint for a key, if hints are in use: a node's number plus one, or 0; and the first key of its
    /// bucket.
    #[inline(always)]
    fn of(&self, rank: u64) -> Option<(&AtomicU32, u64)> {
        let scale = &*self.scale;
        let last = scale.last.load(Relaxed);
        if last == 0 {
            return None;
        }
        let (first, shift) = (scale.first.load(Relaxed), scale.shift.load(Relaxed) & 63);
        let bucket = (rank.saturating_sub(first) >> shift).min(last.into());
        Some((self.table.get()?.get(bucket as usize)?, first.wrapping_add(bucket << shift)))
    }

    #[inline(always)]
    pub fn is_outgrown(&self, nodes: &Nodes) -> bool {
        nodes.begun() >= self.scale.outgrown.load(Relaxed)
    }

    /// Spreads the keys from `first` to `last` over the number of buckets for `nodes` nodes.
    fn scale(&self, nodes: u32, first: u64, last: u64) {
        self.scale.outgrown.store(nodes.saturating_mul(2), Relaxed);
        self.table.get_or_init(no_hints);
        let buckets = (u64::from(nodes) * BUCKETS_A_NODE).next_power_of_two().min(BUCKETS_MAX);
        let span = last.saturating_sub(first);
        let shift = (u64::BITS - span.leading_zeros()).saturating_sub(buckets.ilog2());
        self.scale.first.store(first, Relaxed);
        self.scale.shift.store(shift, Relaxed);
        self.scale.last.store((span >> shift) as u32, Relaxed);
        self.vain.store(0, Relaxed);
    }

    /// Counts useless hints, and disables hints after too many of them.
    #[cold]
    fn note_vain(&self) {
        let vain = self.vain.load(Relaxed) + u64::from(VAIN_EACH);
        self.vain.store(vain, Relaxed);
        if vain > (u64::from(self.scale.last.load(Relaxed)) + 1) * VAIN_MAX {
            self.scale.last.store(0, Relaxed);
        }
    }

    /// Returns the number of descents from the root since the scale was set; `None` if hints are not in use.
    #[cfg(test)]
    pub fn vain(&self) -> Option<u64> {
        (self.scale.last.load(Relaxed) > 0).then(|| self.vain.load(Relaxed))
    }

    /// Returns the bytes of DRAM.
    pub fn bytes(&self) -> u64 {
        let buckets = u64::from(self.scale.last.load(Relaxed)) + 1;
        if self.table.get().is_some() { buckets * size_of::<AtomicU32>() as u64 } else { 0 }
    }
}

/// Returns untouched memory, so that trees occupy only as much of it as they use.
fn no_hints() -> Box<[AtomicU32]> {
    let zeros = Box::into_raw(vec![0_u32; BUCKETS_MAX as usize].into_boxed_slice());
    // SAFETY: an atomic is what it is atomic of, in memory, and no other thread has the box.
    unsafe { Box::from_raw(zeros as *mut [AtomicU32]) }
}

impl<K: KeyCodec> VolatileIndex<K> {
    /// Prefetches the hint of a key.
    #[inline(always)]
    pub(super) fn prefetch_hint(&self, key: K::Ref<'_>) {
        if let Some((hint, _)) = self.hints.of(K::rank(key)) {
            prefetch(hint);
        }
    }

    /// Prefetches the whole node that a key's hint refers to.
    #[inline(always)]
    pub(super) fn prefetch_hinted(&self, key: K::Ref<'_>) {
        if let Some((hint, _)) = self.hints.of(K::rank(key))
            && let Some(id) = hint.load(Acquire).checked_sub(1)
        {
            self.nodes.prefetch_whole(id);
        }
    }

    /// Returns the node of the lowest level whose range holds a key, if a hint leads there or next to it.
    #[inline(always)]
    pub(super) fn hinted<L: Layout>(&self, key: K::Ref<'_>) -> Option<(NodeRef<'_>, Version)> {
        let rank = K::rank(key);
        let (hint, begins) = self.hints.of(rank)?;
        // Pairs with the releases below: a thread that knows the number sees the node at that time or later.
        let id = hint.load(Acquire).checked_sub(1)?;
        let node = L::get(&self.nodes, id);
        node.prefetch_children();
        let LockState::Free(seen) = node.lock.try_read() else { return None };
        if node.level() != 1 || node.key(0) > rank && !node.is_leftmost() {
            return None;
        }
        if rank < node.high_rank(true) {
            return Some((node, seen));
        }
        let Some((next, _)) = node.right() else { return Some((node, seen)) };
        if !node.lock.validate(seen) {
            return None;
        }
        let right = L::get(&self.nodes, next);
        right.prefetch_children();
        reached("index step from a hint");
        let LockState::Free(version) = right.lock.try_read() else { return None };
        let holds = rank < right.high_rank(true) || right.right().is_none();
        let low = right.key(0);
        if !holds || !right.lock.validate(version) || !node.lock.validate(seen) {
            return None;
        }
        if low <= begins {
            // The node was split, and the whole bucket belongs to the new one.
            hint.store(next + 1, Release);
        }
        Some((right, version))
    }

    /// Records the node that a descent from the root reached.
    #[inline(always)]
    pub(super) fn learn(&self, key: K::Ref<'_>, node: u32) {
        // A follower does not insert nodes, so it must update outdated hints here.
        self.tend_hints();
        let Some((hint, _)) = self.hints.of(K::rank(key)) else { return };
        if hint.load(Relaxed) != node + 1 {
            hint.store(node + 1, Release);
        }
        let own = VAIN.get().wrapping_add(1);
        VAIN.set(own);
        if own.is_multiple_of(VAIN_EACH) {
            self.hints.note_vain();
        }
    }

    /// Resets the scale of hints if the tree has outgrown it. No lock is held.
    #[inline(always)]
    pub(super) fn tend_hints(&self) {
        if K::INLINE && self.hints.is_outgrown(&self.nodes) {
            self.scale_hints();
        }
    }

    #[cold]
    fn scale_hints(&self) {
        let (nodes, guard) = (self.nodes.begun(), K::pin());
        // The node is read without validation: a wrong scale is harmless.
        if let Ok((first, _)) = self.descend::<AnyLayout>(Some(K::least()), Side::Before, 1, &guard)
            && let Ok((last, _)) = self.descend::<AnyLayout>(None, Side::From, 1, &guard)
        {
            self.hints.scale(nodes, first.high_rank(true), last.key(0));
        }
    }
}
