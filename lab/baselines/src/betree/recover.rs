//! Creating, recovering and checking a tree.

use bristlecone::{Error, Medium, Result};
use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::{LogChunk, Persist};

use super::node::{Node, merge};
use super::{BeTree, FIRST, NEWEST, ROOT, STAMP};
use crate::index::{Core, Span};
use crate::shadow::{Change, find_leaves, overlay};
use crate::store::damaged;

impl<M: Medium> BeTree<M> {
    /// Creates the root and an empty leaf, durably.
    pub(super) fn create(&mut self) -> Result<()> {
        let medium = self.store.medium();
        let (root, first) = (self.store.alloc()?, self.store.alloc()?);
        let flushed = self.shape.fill(&self.store, first, &[], 0, 0);
        [0, first].iter().enumerate().for_each(|(at, word)| self.store.word(root, at).store(medium, *word));
        let flushed = flushed.and(medium.flush(self.store.words(root, 0, 2), "betree create.1"));
        let durable = medium.fence(flushed, "betree create.1");
        let anchor = self.store.pool.anchor(self.store.id);
        anchor.publish(medium, root, &durable, "betree create.2");
        medium.persist(anchor, "betree create.2");
        self.root = root;
        self.census.leaves.add(1);
        self.build(vec![(0, first)]);
        Ok(())
    }

    /// Creates the inner nodes over leaves in order, each with its first key.
    fn build(&self, mut below: Vec<(u64, u64)>) {
        self.nodes.add(Node::default());
        // As full as nodes are on average after splits.
        let part = (self.fanout * 3).div_ceil(4);
        for level in 0.. {
            let node = |children: &[(u64, u64)]| Node {
                level,
                pivots: children[1..].iter().map(|(low, _)| *low).collect(),
                children: children.iter().map(|(_, child)| *child).collect(),
                buffer: Vec::new(),
            };
            if below.len() <= part {
                *self.nodes.write(ROOT) = node(&below);
                return;
            }
            below =
                below.chunks(part).map(|children| (children[0].0, self.nodes.add(node(children)))).collect();
        }
    }

    /// Finds the leaves, removes those without items, rebuilds the inner nodes, and redoes the
    /// changes in the log.
    pub(super) fn recover(&mut self, logged: Vec<LogChunk>) -> Result<()> {
        let store = &self.store;
        store.mark_live(self.root)?;
        let stamp = store.load(self.root, STAMP);
        let mut found = find_leaves(store, self.shape, store.load(self.root, FIRST), NEWEST, &self.census)?;
        store.finish_recovery();
        found.reverse();
        self.build(found);
        let mut entries = Vec::new();
        for chunk in &logged {
            for entry in self.log.entries(chunk) {
                entries.push(entry?);
            }
        }
        self.log.seal(logged);
        entries.retain(|entry| entry.sequence > stamp);
        entries.sort_unstable_by_key(|entry| entry.sequence);
        self.sequence.store(entries.last().map_or(stamp, |entry| entry.sequence), Relaxed);
        for entry in entries {
            if self.nodes.read(ROOT).buffer.len() >= self.room {
                match self.hand_down_all() {
                    // The buffer grows meanwhile.
                    Err(error) if error.is_no_room() => {}
                    done => done?,
                }
            }
            let old = self.get(entry.key);
            self.put((entry.key, (!entry.removed).then_some(entry.value)), old);
        }
        Ok(())
    }

    /// Verifies nodes and leaves; returns the number of items, and of slots.
    pub(super) fn look_through(&self) -> Result<(u64, u64)> {
        let mut sum = Sum { items: 0, leaves: 0, due: self.store.load(self.root, FIRST) };
        self.look_below(ROOT, None, Span::default(), &[], &mut sum)?;
        if sum.due != 0 {
            return Err(damaged("a leaf behind the last", sum.due));
        }
        Ok((sum.items, sum.leaves + 1))
    }

    /// Checks the subtree of a node at a level, with the changes buffered above it.
    fn look_below(
        &self,
        number: u64,
        level: Option<u32>,
        span: Span,
        above: &[Change],
        sum: &mut Sum,
    ) -> Result<()> {
        let node = self.nodes.read(number);
        let wrong = |what: &str| Err(Error::corrupted(what.to_owned(), format!("node {number} in DRAM")));
        if level.is_some_and(|level| level != node.level) || node.children.len() != node.pivots.len() + 1 {
            return wrong("a node of another level, or without a child");
        }
        if !node.pivots.is_sorted_by(|left, right| left < right)
            || !node.buffer.is_sorted_by(|left, right| left.0 < right.0)
            || !node.pivots.iter().chain(node.buffer.iter().map(|(key, _)| key)).all(|key| span.holds(*key))
        {
            return wrong("keys out of order");
        }
        let mut buffered = node.buffer.clone();
        merge(&mut buffered, above);
        for (at, &child) in node.children.iter().enumerate() {
            let low = at.checked_sub(1).map(|left| node.pivots[left]).or(span.low);
            let span = Span { low, high: node.pivots.get(at).copied().or(span.high) };
            let own: Vec<_> = buffered.iter().copied().filter(|(key, _)| span.holds(*key)).collect();
            if node.level > 0 {
                self.look_below(child, Some(node.level - 1), span, &own, sum)?;
                continue;
            }
            let held = self.shape.items(&self.store, child, NEWEST);
            if child != sum.due || !held.iter().all(|(key, _)| span.holds(*key)) {
                return Err(damaged("a leaf in the wrong place, or a key", child));
            }
            sum.due = self.shape.next(&self.store, child, NEWEST);
            sum.items += overlay(held, &own).len() as u64;
            sum.leaves += 1;
        }
        Ok(())
    }
}

/// Totals.
struct Sum {
    items: u64,
    leaves: u64,
    /// The expected next leaf of the chain.
    due: u64,
}
