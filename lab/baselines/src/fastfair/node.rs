//! A node: words, and entries that shift (FAST).

use bristlecone::Medium;
use bristlecone_pm::{Flushed, Persist};

use super::{FastFair, HEADER, LEFTMOST};
use crate::store::LINE_WORDS;

impl<M: Medium> FastFair<M> {
    pub(super) fn medium(&self) -> &M {
        self.store.medium()
    }

    #[inline(always)]
    pub(super) fn key(&self, node: u64, at: usize) -> u64 {
        self.store.load(node, HEADER + at * 2)
    }

    #[inline(always)]
    pub(super) fn word(&self, node: u64, at: usize) -> u64 {
        self.store.load(node, HEADER + at * 2 + 1)
    }

    pub(super) fn set_key(&self, node: u64, at: usize, key: u64) {
        self.store.word(node, HEADER + at * 2).store(self.medium(), key);
        let _ordered = self.medium().ordered_within_line();
    }

    pub(super) fn set_word(&self, node: u64, at: usize, word: u64) {
        self.store.word(node, HEADER + at * 2 + 1).store(self.medium(), word);
        let _ordered = self.medium().ordered_within_line();
    }

    /// Makes the line of an entry durable.
    pub(super) fn persist(&self, node: u64, at: usize, step: &'static str) {
        self.medium().persist(self.store.word(node, HEADER + at * 2), step);
    }

    pub(super) fn begins_line(at: usize) -> bool {
        (HEADER + at * 2).is_multiple_of(LINE_WORDS)
    }

    /// Returns the number of entries before the terminating zero.
    pub(super) fn count(&self, node: u64) -> usize {
        (0..self.capacity).take_while(|at| self.word(node, *at) != 0).count()
    }

    pub(super) fn entries(&self, node: u64) -> Vec<(u64, u64)> {
        (0..self.count(node)).map(|at| (self.key(node, at), self.word(node, at))).collect()
    }

    /// Writes a node that no other one references yet.
    pub(super) fn fill(&self, node: u64, header: [u64; HEADER], entries: &[(u64, u64)]) -> Flushed {
        let entries = entries.iter().flat_map(|(key, word)| [*key, *word]);
        let end = (entries.clone().count() < self.capacity * 2).then_some([0, 0]);
        let words: Vec<u64> = header.into_iter().chain(entries).chain(end.into_iter().flatten()).collect();
        let cells = self.store.words(node, 0, words.len());
        cells.iter().zip(words).for_each(|(cell, word)| cell.store(self.medium(), word));
        self.medium().flush(cells, "fastfair split.1")
    }

    /// Adds an entry to a locked node with free space, durably (FAST).
    pub(super) fn add(&self, node: u64, key: u64, word: u64, is_leaf: bool) {
        let count = self.count(node);
        let at = (0..count).position(|at| self.key(node, at) > key).unwrap_or(count);
        if count + 1 < self.capacity && self.word(node, count + 1) != 0 {
            // Behind the zero to be overwritten there are truncated entries, or those of a former
            // node.
            self.set_word(node, count + 1, 0);
            if Self::begins_line(count + 1) {
                self.persist(node, count + 1, "fastfair insert.1");
            }
        }
        for from in (at..count).rev() {
            if from + 1 == count {
                self.set_key(node, from + 1, self.key(node, from));
                self.set_word(node, from + 1, self.word(node, from));
            } else {
                self.set_word(node, from + 1, self.word(node, from));
                self.set_key(node, from + 1, self.key(node, from));
            }
            if Self::begins_line(from + 1) {
                self.persist(node, from + 1, "fastfair insert.2");
            }
        }
        if at == count {
            // Entries behind the zero are invisible.
            self.set_key(node, at, key);
            self.set_word(node, at, word);
        } else if is_leaf {
            // The entry has its right neighbour's key, so it does not count until it gets its own.
            self.set_word(node, at, word);
            self.set_key(node, at, key);
        } else {
            // It leads to its left neighbour's child until it gets its own.
            let left = if at == 0 { self.store.load(node, LEFTMOST) } else { self.word(node, at - 1) };
            self.set_word(node, at, left);
            self.set_key(node, at, key);
            self.set_word(node, at, word);
        }
        self.persist(node, at, "fastfair insert.3");
    }

    /// Removes an entry of a locked node whose right neighbour, if any, may have its key.
    pub(super) fn take_out(&self, node: u64, at: usize) {
        let count = self.count(node);
        for to in at..count - 1 {
            self.set_key(node, to, self.key(node, to + 1));
            self.set_word(node, to, self.word(node, to + 1));
            if Self::begins_line(to + 1) {
                self.persist(node, to, "fastfair delete.1");
            }
        }
        self.set_word(node, count - 1, 0);
        self.persist(node, count - 1, "fastfair delete.2");
    }
}
