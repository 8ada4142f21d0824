//! Common parts of trees that are recovered leaf by leaf.

use std::cmp::Ordering;
use std::sync::{Mutex, PoisonError};

use bristlecone_pm::sync::wait::{in_parallel, lock};
use bristlecone_pm::sync::{AtomicUsize, Ordering::Relaxed};
use bristlecone_pm::{Medium, Memory, Result};

use super::codec::KeyCodec;
use super::items::Items;
use super::volatile_index::VolatileIndex;

/// Runs `work` for every number below `count`, on up to `threads` threads; returns the results in
/// order, or the first error.
pub fn each<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let mut parts = Vec::new();
    parts.resize_with(count, || None);
    let parts = Mutex::new(parts);
    for_each(count, threads, &|at| {
        let part = work(at)?;
        lock(&parts)[at] = Some(part);
        Ok(())
    })?;
    Ok(parts.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect())
}

/// Runs `work` for every number below `count`, on up to `threads` threads; returns the first error. Compiled once,
/// instead of once for each kind of work.
fn for_each(count: usize, threads: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let worker = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            if at >= count {
                return;
            }
            if let Err(error) = work(at) {
                next.store(count, Relaxed);
                lock(&failure).get_or_insert(error);
            }
        }
    };
    match threads.min(count) {
        0 | 1 => worker(),
        threads => in_parallel(threads, &worker),
    }
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// The smallest and the largest of a leaf's keys.
pub struct KeyEnds<'k, K: KeyCodec> {
    ends: Option<[End<'k, K>; 2]>,
    /// Length of the prefix that all keys have in common.
    common: usize,
}

/// A key, its word, and its rank behind the common prefix, which distinguishes most keys.
struct End<'k, K: KeyCodec> {
    rank: u64,
    word: u64,
    key: K::Ref<'k>,
}

impl<K: KeyCodec> Clone for End<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: KeyCodec> Copy for End<'_, K> {}

impl<K: KeyCodec> Default for KeyEnds<'_, K> {
    fn default() -> Self {
        Self { ends: None, common: 0 }
    }
}

impl<'k, K: KeyCodec> KeyEnds<'k, K> {
    /// Adds a key and its word.
    #[inline(always)]
    pub fn add(&mut self, word: u64, key: K::Ref<'k>) {
        let Some([low, high]) = &mut self.ends else {
            self.common = usize::MAX;
            self.ends = Some([End { rank: 0, word, key }; 2]);
            return;
        };
        if K::INLINE {
            // No branches: which key is smaller is random.
            (low.word, high.word) = (low.word.min(word), high.word.max(word));
            return;
        }
        let common = K::common(low.key, key);
        if common < self.common {
            self.common = common;
            low.rank = K::rank_behind(low.key, common);
            high.rank = K::rank_behind(high.key, common);
        }
        let end = End { rank: K::rank_behind(key, self.common), word, key };
        if end.is_below(low) {
            *low = end;
        } else if high.is_below(&end) {
            *high = end;
        }
    }

    /// Returns the words of both ends, if there was a key.
    pub fn ends(&self) -> Option<(u64, u64)> {
        self.ends.map(|[low, high]| (low.word, high.word))
    }
}

impl<K: KeyCodec> End<'_, K> {
    #[inline(always)]
    fn is_below(&self, other: &Self) -> bool {
        self.rank < other.rank || self.rank == other.rank && K::shorten(self.key) < K::shorten(other.key)
    }
}

/// A leaf found on the medium, with the words of the smallest and the largest of its keys.
#[derive(Clone, Copy)]
pub struct Survivor {
    pub low: u64,
    pub high: u64,
    pub leaf: u32,
    pub items: u32,
}

/// Number of records that are prefetched together while as many of the leaf before are verified. The translations of their
/// addresses are found at the same time. Larger bursts exceed the requests that a core may have, and are dropped.
pub const PREFETCHES: usize = 4;

/// Number of leaves ahead of the one at hand whose ends are prefetched: their records lie anywhere.
const LEAVES_AHEAD: usize = 16;

/// Calls `act` for each leaf, while the records of its ends are in the cache.
fn for_each_leaf<K: KeyCodec, M: Medium>(
    keys: &Items<K, M>,
    leaves: &[Survivor],
    mut act: impl FnMut(usize, &Survivor),
) {
    for (at, leaf) in leaves.iter().enumerate() {
        prefetch_ahead(keys, leaves, at);
        act(at, leaf);
    }
}

#[inline(always)]
fn prefetch_ahead<K: KeyCodec, M: Medium>(keys: &Items<K, M>, leaves: &[Survivor], at: usize) {
    if let Some(leaf) = leaves.get(at + LEAVES_AHEAD) {
        keys.prefetch(leaf.low);
        keys.prefetch(leaf.high);
    }
}

/// Sorts leaves by their smallest keys.
pub fn sort<K: KeyCodec, M: Medium>(keys: &Items<K, M>, leaves: &mut Vec<Survivor>) {
    let Some(first) = leaves.first() else { return };
    if K::INLINE {
        return leaves.sort_unstable_by_key(|leaf| leaf.low);
    }
    let guard = K::pin();
    let first = keys.read(first.low, &guard);
    let mut common = usize::MAX;
    for_each_leaf(keys, leaves, |_, leaf| common = common.min(K::common(first, keys.read(leaf.low, &guard))));
    let mut ranked = Vec::with_capacity(leaves.len());
    for_each_leaf(keys, leaves, |at, leaf| {
        ranked.push((K::rank_behind(keys.read(leaf.low, &guard), common), at as u32));
    });
    let by_key = |&(rank, at): &(u64, u32), &(other_rank, other): &(u64, u32)| -> Ordering {
        let key = |at: u32| keys.read(leaves[at as usize].low, &guard);
        rank.cmp(&other_rank).then_with(|| key(at).cmp(&key(other)))
    };
    ranked.sort_unstable_by(by_key);
    *leaves = ranked.into_iter().map(|(_, at)| leaves[at as usize]).collect();
}

/// Returns the first leaf whose smallest key is not above all keys of the leaf before it: its number.
pub fn overlap<K: KeyCodec, M: Medium>(keys: &Items<K, M>, leaves: &[Survivor]) -> Option<usize> {
    let guard = K::pin();
    (1..leaves.len()).find(|&at| {
        prefetch_ahead(keys, leaves, at);
        keys.read(leaves[at - 1].high, &guard) >= keys.read(leaves[at].low, &guard)
    })
}

/// Returns the index over at least one leaf, in ascending order: each leaf begins as early as the
/// previous one allows.
pub fn index_over<K: KeyCodec, M: Medium>(
    node_bytes: usize,
    keys: &Items<K, M>,
    leaves: &[Survivor],
    memory: &Memory,
) -> Result<VolatileIndex<K>> {
    let guard = K::pin();
    let fences = leaves.iter().enumerate().map(|(at, leaf)| {
        prefetch_ahead(keys, leaves, at);
        let low = keys.read(leaf.low, &guard);
        let before = at.checked_sub(1).map(|before| keys.read(leaves[before].high, &guard));
        (before.map_or(low, |high| K::separator(high, low)), leaf.leaf)
    });
    VolatileIndex::build(node_bytes, fences, memory)
}
