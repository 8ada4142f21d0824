//! Traversal of all nodes, level by level, for recovery and checks.

use std::collections::HashMap;

use bristlecone_pm::sync::Ordering::Acquire;

use bristlecone::{Medium, Result};

use super::{FastFair, LEFTMOST, LOW, NEXT};
use crate::store::damaged;

impl<M: Medium> FastFair<M> {
    /// Returns the lower bound of the right sibling.
    pub(super) fn high(&self, node: u64) -> Option<u64> {
        let next = self.store.load(node, NEXT);
        self.store.lock(next).ok().filter(|_| next != 0).map(|_| self.store.load(next, LOW))
    }

    /// Repairs a node after a crash: removes entries that moved to the right sibling, and a
    /// duplicate.
    pub(super) fn repair(&self, node: u64, level: u64) {
        if let Some(high) = self.high(node) {
            let kept = self.entries(node).partition_point(|(key, _)| *key < high);
            if kept < self.count(node) {
                self.set_word(node, kept, 0);
                self.persist(node, kept, "fastfair repair.1");
            }
        }
        let mut at = 0;
        while at < self.count(node) {
            let twice = if level == 0 {
                at + 1 < self.count(node) && self.key(node, at) == self.key(node, at + 1)
            } else {
                let left = if at == 0 { self.store.load(node, LEFTMOST) } else { self.word(node, at - 1) };
                self.word(node, at) == left
            };
            if twice { self.take_out(node, at) } else { at += 1 }
        }
    }

    /// Traverses the nodes, level by level from the root. Returns items, nodes, and the nodes
    /// without a parent entry, with the level where it is missing and their lower bounds.
    pub(super) fn walk(
        &self,
        visit: &mut impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<(u64, u64, Vec<[u64; 3]>)> {
        let mut first = self.root.load(Acquire);
        self.store.lock(first)?;
        let mut level = self.level(first)?;
        let (mut items, mut leaves, mut strays) = (0, 0, Vec::new());
        let mut expected: HashMap<u64, u64> = HashMap::new();
        loop {
            let (mut node, mut below) = (first, 0);
            let mut children = HashMap::new();
            while node != 0 {
                self.store.lock(node)?;
                visit(node, level)?;
                if self.level(node)? != level {
                    return Err(damaged("a node of another level", node));
                }
                let low = self.store.load(node, LOW);
                if (node == first) != (low == 0) || low < below {
                    return Err(damaged("siblings out of order", node));
                }
                match expected.remove(&node) {
                    None if node != first => strays.push([level + 1, low, node]),
                    Some(found) if found != low => return Err(damaged("a child in the wrong place", node)),
                    _ => {}
                }
                let (entries, high) = (self.entries(node), self.high(node));
                let inside = |key: u64| low <= key && high.is_none_or(|high| key < high);
                if !entries.is_sorted_by(|left, right| left.0 < right.0)
                    || !entries.iter().all(|entry| inside(entry.0))
                {
                    return Err(damaged("keys out of order", node));
                }
                if level == 0 {
                    (items, leaves) = (items + entries.len() as u64, leaves + 1);
                }
                if level > 0 && node != first {
                    children.insert(self.store.load(node, LEFTMOST), low);
                }
                children.extend(entries.into_iter().map(|(key, child)| (child, key)));
                (node, below) = (self.store.load(node, NEXT), low);
            }
            if let Some(stray) = expected.keys().next() {
                return Err(damaged("a child beside its level", *stray));
            }
            if level == 0 {
                return Ok((items, leaves, strays));
            }
            (first, level, expected) = (self.store.load(first, LEFTMOST), level - 1, children);
        }
    }
}
