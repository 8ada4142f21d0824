//! The interface of a baseline, and its implementation of the library's traits.

use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use bristlecone::lab::{Batch, Inline, Inspect, Read, Scan, Swapped, Write, WriteMode};
use bristlecone::parts::counter::Counter;
use bristlecone::parts::optimistic_lock::{Version, pause};
use bristlecone::parts::volatile_index::{Step, VolatileIndex};
use bristlecone::{Issue, Medium, Result, TreeStats};
use bristlecone_pm::{HeapStats, PoolFile, TreeEntry};

/// The target of a search: the leaf whose range holds a key, the one before it, or the last one.
#[derive(Clone, Copy)]
pub enum Aim {
    At(u64),
    Before(u64),
    End,
}

impl Aim {
    /// Returns whether the aim lies in a range that begins at `low`.
    #[inline(always)]
    pub fn is_at_or_after(self, low: u64) -> bool {
        match self {
            Self::At(key) => low <= key,
            Self::Before(key) => low < key,
            Self::End => true,
        }
    }
}

/// The range of keys of a leaf: from the first on, below the second. `None`: no bound.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    pub low: Option<u64>,
    pub high: Option<u64>,
}

impl Span {
    /// Returns whether a key is in the span.
    pub fn holds(self, key: u64) -> bool {
        self.low.is_none_or(|low| low <= key) && self.high.is_none_or(|high| key < high)
    }
}

/// Bytes of a node of an index in DRAM: the size that is compiled as a constant.
pub const INDEX_NODE_BYTES: usize = 512;

/// Finds the leaf of an aim through an index in DRAM; returns it with its version, and its span
/// while that version is valid.
pub fn seek(
    index: &VolatileIndex<Inline>,
    aim: Aim,
    version_of: impl Fn(u32) -> Option<Version> + Copy,
) -> (u32, Version, Span) {
    for round in 0_u32.. {
        let from = match aim {
            Aim::At(key) => key,
            Aim::Before(key) => index.find_before(Some(key), &(), version_of).2.unwrap_or(0),
            Aim::End => index.find_before(None, &(), version_of).2.unwrap_or(0),
        };
        let (leaf, version, cursor) = index.seek(Some(from), &(), version_of, |_| {});
        let high = match index.next(cursor, version_of) {
            Step::Leaf(_, _, next) => index.begins(next, &()),
            Step::End => Some(None),
            Step::Lost => None,
        };
        if let (Some(low), Some(high)) = (index.begins(cursor, &()), high)
            // It may have split since.
            && match aim {
                Aim::At(_) => true,
                Aim::Before(key) => high.is_none_or(|high| key <= high),
                Aim::End => high.is_none(),
            }
        {
            return (leaf, version, Span { low, high });
        }
        pause(round);
    }
    unreachable!("rounds are not counted out")
}

/// The decision about a key, whose value was read under its leaf's lock.
#[derive(Clone, Copy)]
pub enum Fate {
    Stays,
    Gets(u64),
    Goes,
}

/// Numbers of items and leaves, counted in DRAM.
#[derive(Default)]
pub struct Census {
    pub items: Counter,
    pub leaves: Counter,
}

/// A baseline.
pub trait Core<M: Medium>: Sized + Send + Sync + 'static {
    /// Opens and recovers the tree of an entry.
    fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, node_lines: u64) -> Result<Self>;

    fn census(&self) -> &Census;

    /// Returns the number of leaves.
    fn leaves(&self) -> u64 {
        self.census().leaves.sum()
    }

    /// Returns the space usage of nodes on the medium.
    fn nodes(&self) -> HeapStats;

    /// Returns the bytes of the pool besides nodes.
    fn log_bytes(&self) -> u64 {
        0
    }

    fn dram_bytes(&self) -> u64;

    fn get(&self, key: u64) -> Option<u64>;

    /// Changes a key as `decide` returns for its value; returns the previous value.
    fn change(&self, key: u64, decide: impl Fn(Option<u64>) -> Fate) -> Result<Option<u64>>;

    /// Returns the items of a leaf, ascending, and its span.
    fn leaf(&self, aim: Aim, into: &mut Vec<(u64, u64)>) -> Result<Span>;

    /// Reads every node; returns the numbers of items and nodes. `Err` describes an inconsistency.
    fn survey(&self) -> Result<(u64, u64)>;
}

/// A baseline as an index.
pub struct BaselineIndex<C, M> {
    core: C,
    medium: PhantomData<fn() -> M>,
}

type Bounds = (Bound<u64>, Bound<u64>);

fn within((from, to): Bounds, key: u64) -> bool {
    let above = match from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    };
    above
        && match to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        }
}

impl<M: Medium, C: Core<M>> BaselineIndex<C, M> {
    /// Opens the tree of an entry, with nodes of this number of lines.
    pub fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, node_lines: u64) -> Result<Self> {
        Ok(Self { core: C::open(pool, entry, node_lines)?, medium: PhantomData })
    }
}

impl<M: Medium, C: Core<M>> Read<Inline, Inline> for BaselineIndex<C, M> {
    fn get(&self, key: u64, show: &mut dyn FnMut(u64)) -> Result<bool> {
        Ok(self.core.get(key).map(show).is_some())
    }
}

impl<M: Medium, C: Core<M>> Write<Inline, Inline> for BaselineIndex<C, M> {
    fn write(&self, key: u64, value: u64, mode: WriteMode) -> Result<Option<u64>> {
        self.core.change(key, |old| match (old, mode) {
            (Some(_), WriteMode::New) | (None, WriteMode::Update) => Fate::Stays,
            _ => Fate::Gets(value),
        })
    }

    fn remove(&self, key: u64) -> Result<Option<u64>> {
        self.core.change(key, |old| if old.is_some() { Fate::Goes } else { Fate::Stays })
    }

    fn remove_if(&self, key: u64, expected: u64) -> Result<Swapped<Inline>> {
        let as_expected = |old| old == Some(expected);
        let old = self.core.change(key, |old| if as_expected(old) { Fate::Goes } else { Fate::Stays })?;
        Ok(if as_expected(old) { Ok(()) } else { Err(old) })
    }

    fn compare_and_swap(&self, key: u64, expected: u64, new: u64) -> Result<Swapped<Inline>> {
        let as_expected = |old| old == Some(expected);
        let fate = |old| if as_expected(old) { Fate::Gets(new) } else { Fate::Stays };
        let old = self.core.change(key, fate)?;
        Ok(if as_expected(old) { Ok(()) } else { Err(old) })
    }
}

impl<M: Medium, C: Core<M>> Scan<Inline, Inline> for BaselineIndex<C, M> {
    fn scan_forward(&self, bounds: Bounds, into: &mut Batch<Inline, Inline>) -> bool {
        let mut items = Vec::new();
        loop {
            let from = match (into.fence.take(), bounds.0) {
                (Some(None), _) => return false,
                (Some(Some(fence)), _) => fence,
                (None, Bound::Included(key) | Bound::Excluded(key)) => key,
                (None, Bound::Unbounded) => 0,
            };
            let Ok(span) = self.core.leaf(Aim::At(from), &mut items) else { return false };
            into.fence = Some(span.high.filter(|high| within((Bound::Unbounded, bounds.1), *high)));
            into.entries.clear();
            into.entries.extend(items.drain(..).rev().filter(|(key, _)| within(bounds, *key)));
            if !into.entries.is_empty() {
                return true;
            }
        }
    }

    fn scan_backward(&self, bounds: Bounds, into: &mut Batch<Inline, Inline>) -> bool {
        let mut items = Vec::new();
        loop {
            let aim = match (into.fence.take(), bounds.1) {
                (Some(None), _) => return false,
                (Some(Some(fence)), _) => Aim::Before(fence),
                (None, Bound::Included(key)) => Aim::At(key),
                (None, Bound::Excluded(key)) => Aim::Before(key),
                (None, Bound::Unbounded) => Aim::End,
            };
            let Ok(span) = self.core.leaf(aim, &mut items) else { return false };
            into.fence = Some(span.low);
            into.entries.clear();
            into.entries.extend(items.drain(..).filter(|(key, _)| within(bounds, *key)));
            if !into.entries.is_empty() {
                return true;
            }
        }
    }
}

impl<M: Medium, C: Core<M>> Inspect for BaselineIndex<C, M> {
    fn len(&self) -> Result<u64> {
        Ok(self.core.census().items.sum())
    }

    fn stats(&self) -> Result<TreeStats> {
        let nodes = self.core.nodes();
        let mut stats = TreeStats::default();
        stats.items = self.len()?;
        stats.leaves = self.core.leaves();
        stats.pm_bytes = nodes.chunks * nodes.chunk_bytes + self.core.log_bytes();
        stats.dram_bytes = self.core.dram_bytes();
        stats.log_bytes = self.core.log_bytes();
        Ok(stats)
    }

    fn check(&self) -> Vec<Issue> {
        let (items, nodes) = match self.core.survey() {
            Ok(found) => found,
            Err(error) => return vec![Issue::new("tree", error.to_string())],
        };
        let live = self.core.nodes().live_slots;
        let counts = [("items", items, self.core.census().items.sum()), ("nodes", nodes, live)];
        let wrong = counts.into_iter().filter(|(_, there, due)| there != due);
        wrong.map(|(what, there, due)| Issue::new(what, format!("{there}, where {due} are due"))).collect()
    }
}
