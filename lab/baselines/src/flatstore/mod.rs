//! FlatStore (Chen et al., *FlatStore: An Efficient Log-Structured Key-Value Storage Engine for Persistent Memory*,
//! ASPLOS 2020): every change is appended to a log on the medium, and a tree in DRAM maps each key to its last
//! entry in the log. A change locks the key's leaf in DRAM until its entry is durable.
//!
//! See `log` for the entries: how threads append them together, and how space is reclaimed.

mod log;

use std::sync::Arc;

use bristlecone::{Medium, Result};
use bristlecone_pm::{HeapStats, PoolFile, TreeEntry};

pub use self::log::SEGMENTS;
use self::log::{Log, Op};
use crate::dram::DramTree;
use crate::index::{Aim, Census, Core, Fate, Span};
use crate::store::damaged;

/// See the module.
pub struct FlatStore<M: Medium> {
    pool: Arc<PoolFile<M>>,
    log: Log<M>,
    tree: DramTree,
    census: Census,
}

impl<M: Medium> FlatStore<M> {
    /// Cleans the oldest segment of the log, if enough entries are dead: `least` plus a part of the live ones.
    /// Returns whether it did. The caller must not hold a leaf.
    fn clean(&self, least: u64, of_live: u64) -> Result<bool> {
        let live = self.census.items.sum();
        self.log.clean(live, least + live * of_live, |entry, key| {
            let (leaf, _held) = self.tree.lock(key);
            if let Ok(at) = leaf.find(key)
                && leaf.word(at) == entry
            {
                leaf.set(at, self.log.copy(entry)?);
            }
            Ok(())
        })
    }
}

impl<M: Medium> Core<M> for FlatStore<M> {
    fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, node_lines: u64) -> Result<Self> {
        let (log, items) = Log::open(pool, entry.id)?;
        let store = Self {
            pool: Arc::clone(pool),
            log,
            tree: DramTree::build(node_lines, &items)?,
            census: Census::default(),
        };
        store.census.items.add(items.len() as i64);
        Ok(store)
    }

    fn census(&self) -> &Census {
        &self.census
    }

    fn leaves(&self) -> u64 {
        self.tree.leaves()
    }

    fn nodes(&self) -> HeapStats {
        self.log.stats()
    }

    fn dram_bytes(&self) -> u64 {
        self.tree.bytes()
    }

    #[inline]
    fn get(&self, key: u64) -> Option<u64> {
        loop {
            let (leaf, version) = self.tree.find(key);
            let found = leaf.find(key).map(|at| leaf.word(at));
            if !leaf.validate(version) {
                continue;
            }
            let value = found.ok().map(|entry| self.log.value(entry));
            // The entry belonged to the key if the leaf is unchanged.
            if leaf.validate(version) {
                return value;
            }
        }
    }

    fn change(&self, key: u64, decide: impl Fn(Option<u64>) -> Fate) -> Result<Option<u64>> {
        loop {
            let (leaf, held) = self.tree.lock(key);
            let found = leaf.find(key);
            let old = found.ok().map(|at| self.log.value(leaf.word(at)));
            let op = match (decide(old), found) {
                (Fate::Gets(_), Err(_)) if !leaf.has_room() => {
                    leaf.split()?;
                    continue;
                }
                (Fate::Stays, _) | (Fate::Goes, Err(_)) => None,
                (Fate::Gets(value), _) => Some(Op::Put(value)),
                (Fate::Goes, Ok(_)) => Some(Op::Delete),
            };
            let Some(op) = op else { return Ok(old) };
            let entry = match self.log.append(key, op) {
                Ok(entry) => entry,
                Err(error) => {
                    drop(held);
                    if error.is_no_room() && self.clean(self.log.capacity(), 0)? {
                        continue;
                    }
                    return Err(error);
                }
            };
            match (op, found) {
                (Op::Delete, Ok(at)) => {
                    leaf.remove(at);
                    self.census.items.add(-1);
                }
                (_, Ok(at)) => leaf.set(at, entry),
                (_, Err(at)) => {
                    leaf.insert(at, (key, entry));
                    self.census.items.add(1);
                }
            }
            drop(held);
            self.pool.health()?;
            if self.log.begins_segment(entry) {
                // The change is made: cleaning that finds no space now continues when there is another segment.
                while let Ok(true) = self.clean(2 * self.log.capacity(), 1) {}
            }
            return Ok(old);
        }
    }

    fn leaf(&self, aim: Aim, into: &mut Vec<(u64, u64)>) -> Result<Span> {
        loop {
            let (leaf, version, span) = self.tree.seek(aim);
            let entries = leaf.entries();
            if !leaf.validate(version) {
                continue;
            }
            into.clear();
            into.extend(entries.iter().map(|(key, entry)| (*key, self.log.value(*entry))));
            if leaf.validate(version) {
                return Ok(span);
            }
        }
    }

    fn survey(&self) -> Result<(u64, u64)> {
        let (live, segments) = self.log.read()?;
        if self.tree.entries()? != live {
            return Err(damaged("a log that the tree in DRAM does not have", 0));
        }
        Ok((live.len() as u64, segments))
    }
}
