//! The B+-tree used as a baseline in all papers: sorted nodes whose entries shift, and a write-ahead
//! log for all stores ("native B+-tree" in the WO-tree paper, sections 2.3 and 5).
//!
//! A node: a word with level and count, the leftmost child, then the entries in order.
//!
//! The log covers whole operations, so each line that a shift touches is written twice and flushed
//! twice. The paper's text has a flush for each entry that moves; its insert figure does not.

use bristlecone::{Medium, Result};
use bristlecone_pm::{Flushed, Persist};

use crate::coupled::{Coupled, Layout};
use crate::log::Change;
use crate::store::Store;

/// The layout of a node.
#[derive(Clone, Copy)]
pub struct Native {
    capacity: usize,
}

/// Words before the entries.
const HEADER: usize = 2;
const LEVEL_SHIFT: u32 = 32;

fn place(at: usize) -> usize {
    HEADER + at * 2
}

impl Native {
    fn header(level: u64, count: usize) -> u64 {
        level << LEVEL_SHIFT | count as u64
    }

    fn set_count<M: Medium>(self, store: &Store<M>, node: u64, count: usize, change: &mut Change) {
        change.set(store, node, 0, Self::header(self.level(store, node), count));
    }
}

impl Layout for Native {
    fn new(node_lines: u64) -> Self {
        Self { capacity: node_lines as usize * 4 - HEADER / 2 }
    }

    fn capacity(self) -> usize {
        self.capacity
    }

    #[inline(always)]
    fn level<M: Medium>(self, store: &Store<M>, node: u64) -> u64 {
        store.load(node, 0) >> LEVEL_SHIFT
    }

    #[inline(always)]
    fn count<M: Medium>(self, store: &Store<M>, node: u64) -> usize {
        (store.load(node, 0) as u32 as usize).min(self.capacity)
    }

    #[inline(always)]
    fn key<M: Medium>(self, store: &Store<M>, node: u64, at: usize) -> u64 {
        store.load(node, place(at))
    }

    #[inline(always)]
    fn value<M: Medium>(self, store: &Store<M>, node: u64, at: usize) -> u64 {
        store.load(node, place(at) + 1)
    }

    #[inline(always)]
    fn leftmost<M: Medium>(self, store: &Store<M>, node: u64) -> u64 {
        store.load(node, 1)
    }

    fn fill<M: Medium>(
        self,
        store: &Store<M>,
        node: u64,
        level: u64,
        leftmost: u64,
        entries: &[(u64, u64)],
    ) -> Flushed {
        let medium = store.medium();
        let words = [Self::header(level, entries.len()), leftmost];
        let entries = entries.iter().flat_map(|(key, word)| [*key, *word]);
        let words: Vec<u64> = words.into_iter().chain(entries).collect();
        let cells = store.words(node, 0, words.len());
        cells.iter().zip(words).for_each(|(cell, word)| cell.store(medium, word));
        medium.flush(cells, "native split.1")
    }

    fn rewrite<M: Medium>(self, store: &Store<M>, node: u64, entries: &[(u64, u64)], change: &mut Change) {
        self.set_count(store, node, entries.len(), change);
        for (at, (key, word)) in entries.iter().enumerate() {
            change.set(store, node, place(at), *key);
            change.set(store, node, place(at) + 1, *word);
        }
    }

    fn insert<M: Medium>(
        self,
        tree: &Coupled<Self, M>,
        leaf: u64,
        at: usize,
        (key, value): (u64, u64),
    ) -> Result<()> {
        let (store, count) = (&tree.store, self.count(&tree.store, leaf));
        let mut change = Change::default();
        self.set_count(store, leaf, count + 1, &mut change);
        change.set(store, leaf, place(at), key);
        change.set(store, leaf, place(at) + 1, value);
        for word in place(at)..place(count) {
            change.set(store, leaf, word + 2, store.load(leaf, word));
        }
        tree.log.write(change)
    }

    fn replace<M: Medium>(self, tree: &Coupled<Self, M>, leaf: u64, at: usize, value: u64) -> Result<()> {
        let mut change = Change::default();
        change.set(&tree.store, leaf, place(at) + 1, value);
        tree.log.write(change)
    }

    fn erase<M: Medium>(self, tree: &Coupled<Self, M>, leaf: u64, at: usize) -> Result<()> {
        let (store, count) = (&tree.store, self.count(&tree.store, leaf));
        let mut change = Change::default();
        self.set_count(store, leaf, count - 1, &mut change);
        for word in place(at + 1)..place(count) {
            change.set(store, leaf, word - 2, store.load(leaf, word));
        }
        tree.log.write(change)
    }
}
