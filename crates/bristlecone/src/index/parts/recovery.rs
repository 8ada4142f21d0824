//! Common parts of trees that are recovered leaf by leaf.

use std::cmp::Ordering;
use std::sync::{Mutex, PoisonError};

use bristlecone_pm::sync::wait::{in_parallel, lock};
use bristlecone_pm::sync::{AtomicUsize, Ordering::Relaxed};
use bristlecone_pm::{Memory, Result};

use super::codec::KeyCodec;
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

/// The smallest and the largest of a leaf's keys, with their ranks, which distinguish most keys.
pub struct KeyEnds<'k, K: KeyCodec>(Option<[(u64, K::Ref<'k>); 2]>);

impl<K: KeyCodec> Default for KeyEnds<'_, K> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'k, K: KeyCodec> KeyEnds<'k, K> {
    /// Adds a key.
    #[inline(always)]
    pub fn add(&mut self, key: K::Ref<'k>) {
        let key = (if K::INLINE { 0 } else { K::rank(key) }, key);
        match &mut self.0 {
            None => self.0 = Some([key; 2]),
            Some([low, _]) if key < *low => *low = key,
            Some([_, high]) if key > *high => *high = key,
            Some(_) => {}
        }
    }

    /// Returns both ends, if there was a key.
    pub fn ends(&self) -> Option<(K::Ref<'k>, K::Ref<'k>)> {
        self.0.map(|[(_, low), (_, high)]| (low, high))
    }
}

/// A leaf found on the medium, with the smallest and the largest of its keys.
pub struct Survivor<K: KeyCodec> {
    pub low: K::Owned,
    pub high: K::Owned,
    pub leaf: u32,
    pub items: usize,
}

impl<K: KeyCodec> Survivor<K> {
    /// Compares the smallest keys.
    pub fn by_low(&self, other: &Self) -> Ordering {
        self.low.cmp(&other.low)
    }
}

/// Returns the index over at least one leaf, in ascending order: each leaf begins as early as the
/// previous one allows.
pub fn index_over<K: KeyCodec>(
    node_bytes: usize,
    survivors: &[Survivor<K>],
    memory: &Memory,
) -> Result<VolatileIndex<K>> {
    let before = std::iter::once(None).chain(survivors.iter().map(Some));
    let fences = before.zip(survivors).map(|(before, leaf)| {
        let low = K::borrow(&leaf.low);
        let fence = before.map_or(low, |left| K::separator(K::borrow(&left.high), low));
        (K::owned(fence), leaf.leaf)
    });
    VolatileIndex::build(node_bytes, fences, memory)
}
