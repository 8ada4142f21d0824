//! µTree (Chen et al., *uTree: a Persistent B+-Tree with Low Tail Latency*, VLDB 2020): a B+-tree in DRAM, and a
//! list of the items in key order on the medium, a node each. Splits only affect DRAM.
//!
//! ```text
//! list node, 32 bytes    word 0  key      1  value      2  next
//! ```
//!
//! The anchor names a node before all others, which has no key. **The commit word** is the next pointer of the
//! previous node. A thread changes it while it holds the lock of the leaf in DRAM that has this node's key, where
//! the paper uses compare-and-swap: another thread's node is never linked to one that a crash may undo.
//!
//! # Insert
//! 1. The node, with its successor; flush, fence. *Nothing names it.*
//! 2. The next pointer of the previous node; flush, fence. *It exists.*
//!
//! # Update, delete
//! 1. The value, or the next pointer of the previous node; flush, fence. Then the node's slot is free.
//!
//! # Recover
//! The list is traversed, and the tree in DRAM built over it.

use std::sync::Arc;

use bristlecone::{Medium, Result};
use bristlecone_pm::{Alone, Heap, HeapSpec, HeapStats, Persist, PoolFile, SlotKind, TreeEntry, Word};

use crate::dram::{DramTree, Leaf};
use crate::index::{Aim, Census, Core, Fate, Span};
use crate::store::{Locked, damaged};

/// The slots of list nodes.
pub const ITEMS: SlotKind = SlotKind::new(34);
const NODE_BYTES: u32 = 32;
const VALUE: usize = 1;
const NEXT: usize = 2;
/// Number of used words of a node.
const WORDS: usize = 3;

/// See the module.
pub struct UTree<M: Medium> {
    pool: Arc<PoolFile<M>>,
    items: Heap<M>,
    /// The node before all others.
    head: u64,
    tree: DramTree,
    census: Census,
}

impl<M: Medium> UTree<M> {
    fn words(&self, node: u64) -> &[Word] {
        self.pool.words(node, WORDS)
    }

    fn load(&self, node: u64, at: usize) -> u64 {
        self.words(node)[at].load(self.pool.medium())
    }

    /// Returns the list node before an index of a locked leaf, with the locks taken for it.
    fn before<'t>(&self, leaf: Leaf<'t>, at: usize) -> (u64, Vec<Locked<'t>>) {
        if at > 0 {
            return (leaf.word(at - 1), Vec::new());
        }
        let mut held = Vec::new();
        let mut from = leaf;
        while let Some((left, locked)) = from.lock_left() {
            held.push(locked);
            if left.count() > 0 {
                return (left.word(left.count() - 1), held);
            }
            from = left;
        }
        (self.head, held)
    }

    /// Writes a node that no other one references yet, and then links it to the previous one.
    fn link(&self, before: u64, [key, value]: [u64; 2]) -> Result<u64> {
        let medium = self.pool.medium();
        let node = self.items.alloc()?;
        let words = self.words(node);
        let item = [key, value, self.load(before, NEXT)];
        words.iter().zip(item).for_each(|(cell, word)| cell.store(medium, word));
        let durable = medium.persist_proof(words, "utree insert.1");
        let next = &self.words(before)[NEXT];
        next.publish(medium, node, &durable, "utree insert.2");
        medium.persist(next, "utree insert.2");
        Ok(node)
    }

    fn unlink(&self, before: u64, node: u64) {
        let medium = self.pool.medium();
        let next = &self.words(before)[NEXT];
        next.publish(medium, self.load(node, NEXT), &Alone, "utree delete");
        medium.persist(next, "utree delete");
        self.items.free(node);
    }

    /// Creates the node before all others, durably.
    fn create(&self) -> Result<u64> {
        let (medium, head) = (self.pool.medium(), self.items.alloc()?);
        self.words(head).iter().for_each(|word| word.store(medium, 0));
        Ok(head)
    }

    /// Returns the items of the list, as keys with their nodes.
    fn list(&self, visit: impl Fn(u64) -> Result<()>) -> Result<Vec<(u64, u64)>> {
        let mut items: Vec<(u64, u64)> = Vec::new();
        visit(self.head)?;
        let mut node = self.load(self.head, NEXT);
        while node != 0 {
            visit(node)?;
            let key = self.load(node, 0);
            if items.last().is_some_and(|(last, _)| *last >= key) {
                return Err(damaged("keys out of order", node));
            }
            items.push((key, node));
            node = self.load(node, NEXT);
        }
        Ok(items)
    }
}

impl<M: Medium> Core<M> for UTree<M> {
    fn open(pool: &Arc<PoolFile<M>>, entry: &TreeEntry, node_lines: u64) -> Result<Self> {
        let medium = pool.medium();
        let items = Heap::open(pool, HeapSpec::new(entry.id, ITEMS, NODE_BYTES));
        let anchor = pool.anchor(entry.id);
        let head = anchor.load(medium);
        let (tree, census) = (DramTree::build(node_lines, &[])?, Census::default());
        let mut utree = Self { pool: Arc::clone(pool), items, head, tree, census };
        if head == 0 {
            utree.head = utree.create()?;
            let durable = medium.persist_proof(utree.words(utree.head), "utree create.1");
            anchor.publish(medium, utree.head, &durable, "utree create.2");
            medium.persist(anchor, "utree create.2");
            return Ok(utree);
        }
        let items = utree.list(|node| match utree.items.mark_live(node)? {
            true => Ok(()),
            false => Err(damaged("a node that two others name", node)),
        })?;
        utree.items.finish_recovery();
        utree.tree = DramTree::build(node_lines, &items)?;
        utree.census.items.add(items.len() as i64);
        Ok(utree)
    }

    fn census(&self) -> &Census {
        &self.census
    }

    fn leaves(&self) -> u64 {
        self.tree.leaves()
    }

    fn nodes(&self) -> HeapStats {
        self.items.stats()
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
            let value = found.ok().map(|node| self.load(node, VALUE));
            // The node belonged to the key if the leaf is unchanged.
            if leaf.validate(version) {
                return value;
            }
        }
    }

    fn change(&self, key: u64, decide: impl Fn(Option<u64>) -> Fate) -> Result<Option<u64>> {
        loop {
            let (leaf, held) = self.tree.lock(key);
            let found = leaf.find(key);
            let old = found.ok().map(|at| self.load(leaf.word(at), VALUE));
            match (decide(old), found) {
                (Fate::Gets(value), Ok(at)) => {
                    let cell = &self.words(leaf.word(at))[VALUE];
                    cell.store(self.pool.medium(), value);
                    self.pool.medium().persist(cell, "utree update");
                }
                (Fate::Goes, Ok(at)) => {
                    let (before, _held) = self.before(leaf, at);
                    self.unlink(before, leaf.word(at));
                    leaf.remove(at);
                    self.census.items.add(-1);
                }
                (Fate::Gets(_), Err(_)) if !leaf.has_room() => {
                    leaf.split()?;
                    continue;
                }
                (Fate::Gets(value), Err(at)) => {
                    let (before, _held) = self.before(leaf, at);
                    leaf.insert(at, (key, self.link(before, [key, value])?));
                    self.census.items.add(1);
                }
                (Fate::Stays, _) | (Fate::Goes, Err(_)) => {}
            }
            drop(held);
            self.pool.health()?;
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
            into.extend(entries.iter().map(|(key, node)| (*key, self.load(*node, VALUE))));
            if leaf.validate(version) {
                return Ok(span);
            }
        }
    }

    fn survey(&self) -> Result<(u64, u64)> {
        let listed = self.list(|_| Ok(()))?;
        if self.tree.entries()? != listed {
            return Err(damaged("a list that the tree in DRAM does not have", self.head));
        }
        Ok((listed.len() as u64, listed.len() as u64 + 1))
    }
}
