//! Common code of FPTree and LB+-Tree: leaves on the medium, each of which leads to its right sibling, and the index
//! over them in DRAM, which also has their locks. Each defines its own leaf layout and durable changes.
//!
//! The anchor names the first leaf. Leaves are not merged. One without items stays, and is reused; recovery, which
//! cannot know its range, removes it from the chain:
//!
//! 1. The sibling pointer to it is replaced by its own; flush, fence. *It is linked, or its slot is free.*

use std::sync::Arc;

use bristlecone::lab::Inline;
use bristlecone::parts::optimistic_lock::{Version, pause};
use bristlecone::parts::volatile_index::VolatileIndex;
use bristlecone::{Error, Medium, Result};
use bristlecone_pm::{Flushed, HeapStats, Memory, Persist, PoolFile, TreeEntry, TreeId};

use crate::index::{Aim, Census, Core, Fate, INDEX_NODE_BYTES, Span, seek};
use crate::store::{Locked, Store, damaged};

/// Layout of a leaf. Slots are unordered.
pub trait Leaves<M: Medium>: Sized + Send + Sync + 'static {
    /// Whether an update takes a free slot.
    const UPDATES_MOVE: bool;

    /// Prepares the structures of a tree besides its leaves. `fresh`: it is being created.
    fn open(pool: &Arc<PoolFile<M>>, id: TreeId, node_lines: u64, fresh: bool) -> Result<(Self, Flushed)>;
    /// Completes or undoes interrupted changes.
    fn replay(&self, _store: &Store<M>) -> Result<()> {
        Ok(())
    }
    /// Returns the bytes of the pool besides leaves.
    fn log_bytes(&self) -> u64 {
        0
    }

    /// Returns the number of slots of a leaf.
    fn capacity(&self) -> usize;
    /// Returns the number of taken slots.
    fn count(&self, store: &Store<M>, leaf: u64) -> usize;
    /// Returns the slot of a key, and its value.
    fn find(&self, store: &Store<M>, leaf: u64, key: u64) -> Option<(usize, u64)>;
    fn items(&self, store: &Store<M>, leaf: u64) -> Vec<(u64, u64)>;
    /// Returns the right sibling; zero if there is none.
    fn next(&self, store: &Store<M>, leaf: u64) -> u64;

    /// Writes a leaf that no other one references yet.
    fn fill(&self, store: &Store<M>, leaf: u64, items: &[(u64, u64)], next: u64) -> Flushed;
    /// Changes a locked leaf, durably.
    fn insert(&self, store: &Store<M>, leaf: u64, item: (u64, u64));
    fn update(&self, store: &Store<M>, leaf: u64, slot: usize, value: u64);
    fn remove(&self, store: &Store<M>, leaf: u64, slot: usize);
    /// Moves items from a locked full leaf to a new one, durably. `new`: an item to insert if it belongs there;
    /// returns whether it was inserted.
    fn split(
        &self,
        store: &Store<M>,
        leaf: u64,
        right: u64,
        moved: &[(u64, u64)],
        new: Option<(u64, u64)>,
    ) -> bool;

    /// Removes remains of an interrupted split from a leaf, durably: items that belong further right.
    fn repair(&self, _store: &Store<M>, _leaf: u64, _from: u64) {}
    /// Sets the right sibling, durably.
    fn link(&self, store: &Store<M>, leaf: u64, next: u64);
}

/// See the module.
pub struct Hybrid<L, M: Medium> {
    store: Store<M>,
    leaves: L,
    index: VolatileIndex<Inline>,
    census: Census,
}

impl<L: Leaves<M>, M: Medium> Hybrid<L, M> {
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

    /// Splits a locked full leaf; returns whether the new item, if any, was inserted.
    fn split(&self, leaf: u64, new: Option<(u64, u64)>) -> Result<bool> {
        let _room = self.index.reserve(1)?;
        let right = self.store.alloc()?;
        let mut items = self.leaves.items(&self.store, leaf);
        items.sort_unstable();
        let moved = items.split_off(items.len().div_ceil(2));
        let separator = moved[0].0;
        let new = new.filter(|(key, _)| *key >= separator);
        let is_in = self.leaves.split(&self.store, leaf, right, &moved, new);
        self.index.insert(separator, self.number(right), &());
        self.census.leaves.add(1);
        Ok(is_in)
    }

    /// Makes an empty leaf the first one, durably.
    fn create(&self, flushed: Flushed) -> Result<u64> {
        let medium = self.store.medium();
        let first = self.store.alloc()?;
        let flushed = flushed.and(self.leaves.fill(&self.store, first, &[], 0));
        let durable = medium.fence(flushed, "create.1");
        let anchor = self.store.pool.anchor(self.store.id);
        anchor.publish(medium, first, &durable, "create.2");
        medium.persist(anchor, "create.2");
        self.census.leaves.add(1);
        Ok(first)
    }

    /// Finds the leaves from the first one on, repairs them, and builds the index.
    fn recover(&mut self, first: u64) -> Result<()> {
        let (store, leaves) = (&self.store, &self.leaves);
        let mut chain = Vec::new();
        let mut leaf = first;
        while leaf != 0 {
            store.lock(leaf)?;
            store.mark_live(leaf)?;
            chain.push(leaf);
            leaf = leaves.next(store, leaf);
        }
        let mut found = Vec::new();
        let mut high = None;
        for (at, &leaf) in chain.iter().enumerate().rev() {
            if let Some(high) = high {
                leaves.repair(store, leaf, high);
            }
            let items = leaves.items(store, leaf);
            let low = items.iter().map(|(key, _)| *key).min();
            match low {
                None if at > 0 => {
                    leaves.link(store, chain[at - 1], leaves.next(store, leaf));
                    store.unalloc(leaf);
                    continue;
                }
                None => {}
                Some(low) => high = Some(low),
            }
            self.census.items.add(items.len() as i64);
            found.push((low.unwrap_or(0), self.number(leaf)));
        }
        store.finish_recovery();
        self.census.leaves.add(found.len() as i64);
        if !found.is_sorted_by(|right, left| left.0 < right.0 || left.0 == 0) {
            return Err(damaged("leaves out of order", first));
        }
        self.index = VolatileIndex::build(INDEX_NODE_BYTES, found.into_iter().rev(), &Memory::private())?;
        Ok(())
    }

    /// Verifies that the index names the leaves of the chain, in order, and that the keys of each are in its range;
    /// returns the number of items.
    fn look_through(&self, first: u64) -> Result<u64> {
        let mut named = Vec::new();
        self.index.for_each_leaf(|low, number| named.push((low, self.leaf_of(number))));
        let mut items = 0;
        for (at, &(low, leaf)) in named.iter().enumerate() {
            let next = named.get(at + 1);
            let of_chain = if at == 0 { first } else { self.leaves.next(&self.store, named[at - 1].1) };
            if of_chain != leaf || next.is_none() && self.leaves.next(&self.store, leaf) != 0 {
                return Err(damaged("a chain that the index does not have", leaf));
            }
            let high = next.and_then(|(low, _)| *low);
            let mut held = self.leaves.items(&self.store, leaf);
            held.sort_unstable();
            let inside = |key: u64| low.is_none_or(|low| low <= key) && high.is_none_or(|high| key < high);
            if !held.is_sorted_by(|left, right| left.0 < right.0) || !held.iter().all(|item| inside(item.0)) {
                return Err(damaged("a key twice, or in the wrong leaf", leaf));
            }
            items += held.len() as u64;
        }
        Ok(items)
    }
}

impl<L: Leaves<M>, M: Medium> Core<M> for Hybrid<L, M> {
    fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, node_lines: u64) -> Result<Self> {
        let store = Store::open(pool, entry.id, node_lines)?;
        if pool.max_bytes() / store.node_bytes > u64::from(u32::MAX) {
            return Err(Error::invalid("the pool may grow larger than a baseline counts leaves"));
        }
        let first = pool.anchor(entry.id).load(pool.medium());
        let (leaves, flushed) = L::open(pool, entry.id, node_lines, first == 0)?;
        let index = VolatileIndex::new(INDEX_NODE_BYTES, 0, &Memory::private())?;
        let mut tree = Self { store, leaves, index, census: Census::default() };
        if first == 0 {
            let first = tree.create(flushed)?;
            tree.index = VolatileIndex::new(INDEX_NODE_BYTES, tree.number(first), &Memory::private())?;
        } else {
            tree.leaves.replay(&tree.store)?;
            tree.recover(first)?;
        }
        Ok(tree)
    }

    fn census(&self) -> &Census {
        &self.census
    }

    fn nodes(&self) -> HeapStats {
        self.store.stats()
    }

    fn log_bytes(&self) -> u64 {
        self.leaves.log_bytes()
    }

    fn dram_bytes(&self) -> u64 {
        self.store.dram_bytes() + self.index.dram_bytes()
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        loop {
            let (number, version) = self.index.find(key, &(), |number| self.version_of(number));
            let leaf = self.leaf_of(number);
            let found = self.leaves.find(&self.store, leaf, key);
            if self.store.lock(leaf).ok()?.validate(version) {
                return found.map(|(_, value)| value);
            }
        }
    }

    fn change(&self, key: u64, decide: impl Fn(Option<u64>) -> Fate) -> Result<Option<u64>> {
        let (store, leaves) = (&self.store, &self.leaves);
        for round in 0_u32.. {
            let (number, version) = self.index.find(key, &(), |number| self.version_of(number));
            let leaf = self.leaf_of(number);
            let lock = store.lock(leaf)?;
            if !lock.upgrade(version) {
                pause(round);
                continue;
            }
            let held = Locked::held(lock);
            let found = leaves.find(store, leaf, key);
            let old = found.map(|(_, value)| value);
            let has_room = || leaves.count(store, leaf) < leaves.capacity();
            match (decide(old), found) {
                (Fate::Gets(value), Some((slot, _))) if !L::UPDATES_MOVE || has_room() => {
                    leaves.update(store, leaf, slot, value);
                }
                (Fate::Goes, Some((slot, _))) => {
                    leaves.remove(store, leaf, slot);
                    self.census.items.add(-1);
                }
                (Fate::Gets(value), None) if has_room() => {
                    leaves.insert(store, leaf, (key, value));
                    self.census.items.add(1);
                }
                (Fate::Gets(value), found) => {
                    let new = found.is_none().then_some((key, value));
                    if !self.split(leaf, new)? {
                        continue;
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
        loop {
            let (number, version, span) = seek(&self.index, aim, |number| self.version_of(number));
            let leaf = self.leaf_of(number);
            *into = self.leaves.items(&self.store, leaf);
            if self.store.lock(leaf)?.validate(version) {
                into.sort_unstable();
                return Ok(span);
            }
        }
    }

    fn survey(&self) -> Result<(u64, u64)> {
        let first = self.store.pool.anchor(self.store.id).load(self.store.medium());
        if let Some(issue) = self.index.check().pop() {
            return Err(Error::corrupted(issue.what, "index"));
        }
        Ok((self.look_through(first)?, self.census.leaves.sum()))
    }
}
