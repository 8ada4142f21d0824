//! FAST & FAIR (Hwang et al., *Endurable Transient Inconsistency in Byte-Addressable Persistent B+-Tree*,
//! FAST 2018): sorted nodes whose entries shift in such an order that a crash, or a reader without a lock,
//! finds at worst a duplicate entry; nodes that split in place, with siblings; no log.
//!
//! ```text
//! word 0  level + 1      1  right sibling      2  low key      3  leftmost child
//!      4  entries in order: key, value + 1 or child; a zero ends them
//! ```
//!
//! Insert (FAST): entries shift right from the end, a line is flushed before the shift leaves it. The last
//! store makes the entry valid. Delete: they shift left. Split (FAIR): the right node is written and
//! flushed, then linked; then one store truncates the left one; then the parent gets the entry.
//!
//! Gaps in the paper, and their solutions here:
//! - Two entries of a leaf with equal values look like one entry that moves. Here duplicates in leaves are
//!   recognized by their keys: of two equal ones the right one counts, so inserts end with the key. A zero
//!   value would end the leaf: values are stored plus one, and the largest is rejected.
//! - A search that reaches a new sibling without its parent compares with the sibling's first key, which
//!   changes when that is deleted: keys get lost after a crash, or when an insert races a split. Here a node
//!   stores its lower bound, which never changes.
//! - Readers without locks see values that a crash undoes. Leaves are read under versions, as in the paper's
//!   own variant with leaf locks; inner nodes are searched without locks.
//! - Recovery, which traverses the nodes anyway, repairs the remains of a crash, instead of the writers that
//!   find them. Nodes are not merged, so entries of inner nodes only ever shift right.

mod node;
mod recover;
mod search;
mod split;

use std::sync::{Arc, Mutex};

use bristlecone::{Error, Medium, Result};
use bristlecone_pm::sync::AtomicU64;
use bristlecone_pm::{HeapStats, Persist, PoolFile, TreeEntry};

use self::search::Found;
use crate::index::{Aim, Census, Core, Fate, Span};
use crate::store::{Locked, Store};

const NEXT: usize = 1;
/// The least key that a node may hold; 0 in the first of a level, because separators are greater than some
/// key.
const LOW: usize = 2;
const LEFTMOST: usize = 3;
const HEADER: usize = 4;
const LEVELS_MAX: u64 = 24;

/// See the module.
pub struct FastFair<M: Medium> {
    store: Store<M>,
    capacity: usize,
    root: AtomicU64,
    rooting: Mutex<()>,
    census: Census,
}

impl<M: Medium> Core<M> for FastFair<M> {
    fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, node_lines: u64) -> Result<Self> {
        let store = Store::open(pool, entry.id, node_lines)?;
        let capacity = (store.node_words() - HEADER) / 2;
        let root = pool.anchor(entry.id).load(pool.medium());
        let tree = Self {
            store,
            capacity,
            root: AtomicU64::new(root),
            rooting: Mutex::default(),
            census: Census::default(),
        };
        if root == 0 {
            let root = tree.store.alloc()?;
            let flushed = tree.fill(root, [1, 0, 0, 0], &[]);
            let durable = tree.medium().fence(flushed, "fastfair create.1");
            tree.name(root, &durable);
            tree.census.leaves.add(1);
            return Ok(tree);
        }
        let (items, leaves, strays) = tree.walk(&mut |node, level| {
            tree.repair(node, level);
            tree.store.mark_live(node)
        })?;
        tree.store.finish_recovery();
        tree.census.items.add(items as i64);
        tree.census.leaves.add(leaves as i64);
        for [level, low, node] in strays.into_iter().rev() {
            match tree.add_above(level, low, node) {
                // Siblings lead to it as well.
                Err(error) if !error.is_no_room() => return Err(error),
                Ok(()) | Err(_) => {}
            }
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
        self.store.dram_bytes()
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        loop {
            let Found { leaf, lock, version, place } = self.descend(Aim::At(key)).ok()?;
            let found = self.find(leaf, place, key);
            if lock.validate(version) {
                return found.ok().map(|(_, value)| value);
            }
        }
    }

    fn change(&self, key: u64, decide: impl Fn(Option<u64>) -> Fate) -> Result<Option<u64>> {
        loop {
            let Found { leaf, lock, version, place } = self.descend(Aim::At(key))?;
            if !lock.upgrade(version) {
                continue;
            }
            let held = Locked::held(lock);
            let found = self.find(leaf, place, key);
            let old = found.ok().map(|(_, value)| value);
            match (decide(old), found) {
                (Fate::Gets(u64::MAX), _) => {
                    return Err(Error::invalid(format!("fastfair cannot keep the value {}", u64::MAX)));
                }
                (Fate::Gets(value), Ok((at, _))) => {
                    self.set_word(leaf, at, value + 1);
                    self.persist(leaf, at, "fastfair update");
                }
                (Fate::Goes, Ok((at, _))) => {
                    self.take_out(leaf, at);
                    self.census.items.add(-1);
                }
                (Fate::Gets(_), Err(_)) if self.count(leaf) == self.capacity => {
                    self.split(leaf, 0, held)?;
                    continue;
                }
                (Fate::Gets(value), Err(_)) => {
                    self.add(leaf, key, value + 1, true);
                    self.census.items.add(1);
                }
                (Fate::Stays, _) | (Fate::Goes, Err(_)) => {}
            }
            drop(held);
            self.store.pool.health()?;
            return Ok(old);
        }
    }

    fn leaf(&self, aim: Aim, into: &mut Vec<(u64, u64)>) -> Result<Span> {
        loop {
            let Found { leaf, lock, version, .. } = self.descend(aim)?;
            into.clear();
            into.extend(self.entries(leaf).into_iter().map(|(key, word)| (key, word.wrapping_sub(1))));
            let low = self.store.load(leaf, LOW);
            let span = Span { low: (low != 0).then_some(low), high: self.high(leaf) };
            if lock.validate(version) {
                return Ok(span);
            }
        }
    }

    fn survey(&self) -> Result<(u64, u64)> {
        let mut nodes = 0;
        let (items, ..) = self.walk(&mut |_, _| {
            nodes += 1;
            Ok(())
        })?;
        Ok((items, nodes))
    }
}
