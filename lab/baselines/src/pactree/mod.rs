//! PACTree (Kim et al., *PACTree: A High Performance Persistent Range Index Using PAC Guidelines*, SOSP 2021): a data
//! layer of leaves on the medium, each of which knows its range and its right sibling, and a search layer that is
//! updated after a split. So a search may find a leaf too far left, and continues from there to the right.
//!
//! The anchor names the first leaf. **The commit word** is a leaf's bitmap. The search layer is the library's index in
//! DRAM; a split posts the new leaf, and the next thread that changes anything adds it there.
//!
//! # Insert
//! 1. The item in a free slot, and its fingerprint; flushes, one fence. *Its bit is clear.*
//! 2. The bitmap; flush, fence. *It exists.*
//!
//! # Update, delete
//! 1. The value, or the bitmap; flush, fence.
//!
//! # Split
//! 1. The upper half, with the new item if it belongs there, is written to a new leaf; flushes, one fence. *Nothing names
//!    the leaf.*
//! 2. The old one's sibling, and then its upper bound and its bitmap, in one line; flush, fence. *Where these are the
//!    old ones, recovery drops the sibling's items (repair 1).*
//!
//! # Mend (in recovery)
//! 1. The upper bound of a leaf, and its bitmap; flush, fence.

mod leaf;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bristlecone::lab::Inline;
use bristlecone::parts::optimistic_lock::{OptimisticLock, Version, pause};
use bristlecone::parts::volatile_index::VolatileIndex;
use bristlecone::{Error, Medium, Result};
use bristlecone_pm::sync::Ordering::{Acquire, Release};
use bristlecone_pm::sync::{AtomicUsize, wait};
use bristlecone_pm::{Flushed, HeapStats, Memory, Persist, PoolFile, TreeEntry};

use self::leaf::Layout;
use crate::index::{Aim, Census, Core, Fate, INDEX_NODE_BYTES, Span};
use crate::store::{Locked, Store, damaged};

/// See the module.
pub struct PacTree<M: Medium> {
    store: Store<M>,
    layout: Layout,
    index: VolatileIndex<Inline>,
    /// Leaves missing in the index, with their lower bounds.
    posted: Mutex<VecDeque<(u64, u64)>>,
    /// Their number.
    posts: AtomicUsize,
    census: Census,
}

/// A leaf found by a search.
struct Found<'t> {
    leaf: u64,
    lock: &'t OptimisticLock,
    version: Version,
}

impl<M: Medium> PacTree<M> {
    /// Returns the number of a leaf in the index.
    fn number(&self, leaf: u64) -> u32 {
        (leaf / self.store.node_bytes) as u32
    }

    #[inline(always)]
    fn leaf_of(&self, number: u32) -> u64 {
        u64::from(number) * self.store.node_bytes
    }

    #[inline(always)]
    fn version_of(&self, number: u32) -> Option<Version> {
        self.store.lock(self.leaf_of(number)).ok()?.read()
    }

    /// Returns the leaf of a key: that of the search layer, or one to the right of it.
    #[inline(always)]
    fn find(&self, key: u64) -> Result<Found<'_>> {
        let (store, layout) = (&self.store, self.layout);
        'index: loop {
            let (number, version) = self.index.find(key, &(), |number| self.version_of(number));
            let leaf = self.leaf_of(number);
            let mut found = Found { leaf, lock: store.lock(leaf)?, version };
            while layout.high(store, found.leaf).is_some_and(|high| high <= key) {
                let right = layout.next(store, found.leaf);
                if !found.lock.validate(found.version) {
                    continue 'index;
                }
                let lock = store.lock(right)?;
                let Some(version) = lock.read() else { return Err(damaged("an obsolete leaf", right)) };
                found = Found { leaf: right, lock, version };
            }
            return Ok(found);
        }
    }

    /// Splits a locked full leaf; returns whether the new item, if any, was inserted.
    fn split(&self, leaf: u64, new: (u64, u64)) -> Result<bool> {
        let right = self.store.alloc()?;
        let mut items = self.layout.items(&self.store, leaf);
        items.sort_unstable();
        let mut moved = items.split_off(items.len().div_ceil(2));
        let low = moved[0].0;
        let goes_right = new.0 >= low;
        moved.extend(goes_right.then_some(new));
        self.layout.split(&self.store, leaf, right, &moved, low);
        let mut posted = wait::lock(&self.posted);
        posted.push_back((low, right));
        self.posts.store(posted.len(), Release);
        self.census.leaves.add(1);
        Ok(goes_right)
    }

    /// Adds one posted leaf to the search layer, if any.
    fn catch_up(&self) -> Result<()> {
        if self.posts.load(Acquire) == 0 {
            return Ok(());
        }
        let mut posted = wait::lock(&self.posted);
        if let Some(&(low, leaf)) = posted.front() {
            let _room = self.index.reserve(1)?;
            self.index.insert(low, self.number(leaf), &());
            posted.pop_front();
            self.posts.store(posted.len(), Release);
        }
        Ok(())
    }

    /// Makes an empty leaf the first one, durably.
    fn create(&mut self) -> Result<()> {
        let medium = self.store.medium();
        let first = self.store.alloc()?;
        let flushed: Flushed = self.layout.fill(&self.store, first, &[], [0; 3]);
        let durable = medium.fence(flushed, "pactree create.1");
        let anchor = self.store.pool.anchor(self.store.id);
        anchor.publish(medium, first, &durable, "pactree create.2");
        medium.persist(anchor, "pactree create.2");
        self.census.leaves.add(1);
        self.index = VolatileIndex::new(INDEX_NODE_BYTES, self.number(first), &Memory::private())?;
        Ok(())
    }

    /// Finds the leaves from the first one on, repairs them, and builds the search layer.
    fn recover(&mut self, first: u64) -> Result<()> {
        let (store, layout) = (&self.store, self.layout);
        let mut found: Vec<(u64, u32)> = Vec::new();
        let mut leaf = first;
        while leaf != 0 {
            store.lock(leaf)?;
            store.mark_live(leaf)?;
            let low = layout.low(store, leaf);
            if found.last().is_some_and(|(left, _)| *left >= low) {
                return Err(damaged("leaves out of order", leaf));
            }
            layout.repair(store, leaf);
            self.census.items.add(layout.items(store, leaf).len() as i64);
            found.push((low, self.number(leaf)));
            leaf = layout.next(store, leaf);
        }
        store.finish_recovery();
        self.census.leaves.add(found.len() as i64);
        self.index = VolatileIndex::build(INDEX_NODE_BYTES, found, &Memory::private())?;
        Ok(())
    }
}

impl<M: Medium> Core<M> for PacTree<M> {
    fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, node_lines: u64) -> Result<Self> {
        let store = Store::open(pool, entry.id, node_lines)?;
        if pool.max_bytes() / store.node_bytes > u64::from(u32::MAX) {
            return Err(Error::invalid("the pool may grow larger than a baseline counts leaves"));
        }
        let mut tree = Self {
            store,
            layout: Layout::new(node_lines),
            index: VolatileIndex::new(INDEX_NODE_BYTES, 0, &Memory::private())?,
            posted: Mutex::default(),
            posts: AtomicUsize::new(0),
            census: Census::default(),
        };
        match pool.anchor(entry.id).load(pool.medium()) {
            0 => tree.create()?,
            first => tree.recover(first)?,
        }
        Ok(tree)
    }

    fn census(&self) -> &Census {
        &self.census
    }

    fn nodes(&self) -> HeapStats {
        self.store.stats()
    }

    fn dram_bytes(&self) -> u64 {
        self.store.dram_bytes() + self.index.dram_bytes()
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        loop {
            let Found { leaf, lock, version } = self.find(key).ok()?;
            let found = self.layout.find(&self.store, leaf, key);
            if lock.validate(version) {
                return found.map(|(_, value)| value);
            }
        }
    }

    fn change(&self, key: u64, decide: impl Fn(Option<u64>) -> Fate) -> Result<Option<u64>> {
        let (store, layout) = (&self.store, self.layout);
        self.catch_up()?;
        for round in 0_u32.. {
            let Found { leaf, lock, version } = self.find(key)?;
            if !lock.upgrade(version) {
                pause(round);
                continue;
            }
            let held = Locked::held(lock);
            let found = layout.find(store, leaf, key);
            let old = found.map(|(_, value)| value);
            match (decide(old), found) {
                (Fate::Gets(value), Some((slot, _))) => layout.update(store, leaf, slot, value),
                (Fate::Goes, Some((slot, _))) => {
                    layout.remove(store, leaf, slot);
                    self.census.items.add(-1);
                }
                (Fate::Gets(value), None) => {
                    if layout.has_room(store, leaf) || !self.split(leaf, (key, value))? {
                        layout.insert(store, leaf, (key, value));
                    }
                    self.census.items.add(1);
                }
                (Fate::Stays, _) | (Fate::Goes, None) => {}
            }
            drop(held);
            store.pool.health()?;
            return Ok(old);
        }
        unreachable!("rounds are not counted out")
    }

    fn leaf(&self, aim: Aim, into: &mut Vec<(u64, u64)>) -> Result<Span> {
        let key = match aim {
            Aim::At(key) => key,
            Aim::Before(key) => key.saturating_sub(1),
            Aim::End => u64::MAX,
        };
        loop {
            let Found { leaf, lock, version } = self.find(key)?;
            *into = self.layout.items(&self.store, leaf);
            let low = Some(self.layout.low(&self.store, leaf)).filter(|low| *low != 0);
            let span = Span { low, high: self.layout.high(&self.store, leaf) };
            if lock.validate(version) {
                into.sort_unstable();
                return Ok(span);
            }
        }
    }

    fn survey(&self) -> Result<(u64, u64)> {
        let (store, layout) = (&self.store, self.layout);
        if let Some(issue) = self.index.check().pop() {
            return Err(Error::corrupted(issue.what, "index"));
        }
        let mut named: Vec<_> = wait::lock(&self.posted).iter().copied().collect();
        self.index.for_each_leaf(|low, number| named.push((low.unwrap_or(0), self.leaf_of(number))));
        named.sort_unstable();
        let (mut items, mut due) = (0, store.pool.anchor(store.id).load(store.medium()));
        for (at, &(low, leaf)) in named.iter().enumerate() {
            let span = Span { low: Some(low), high: named.get(at + 1).map(|(low, _)| *low) };
            if leaf != due || layout.low(store, leaf) != low || layout.high(store, leaf) != span.high {
                return Err(damaged(
                    "a leaf that the search layer does not have, or with another range",
                    leaf,
                ));
            }
            let mut held = layout.items(store, leaf);
            held.sort_unstable();
            if !held.is_sorted_by(|left, right| left.0 < right.0)
                || !held.iter().all(|(key, _)| span.holds(*key))
            {
                return Err(damaged("a key twice, or in the wrong leaf", leaf));
            }
            items += held.len() as u64;
            due = layout.next(store, leaf);
        }
        if due != 0 {
            return Err(damaged("a leaf behind the last", due));
        }
        Ok((items, named.len() as u64))
    }
}
