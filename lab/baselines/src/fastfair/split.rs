//! Splits (FAIR), and the levels above them.

use bristlecone::{Medium, Result};
use bristlecone_pm::sync::Ordering::{Acquire, Release};
use bristlecone_pm::sync::wait;
use bristlecone_pm::{Durable, Persist};

use super::{FastFair, NEXT};
use crate::index::Aim;
use crate::store::Locked;

impl<M: Medium> FastFair<M> {
    /// Splits a locked full node and unlocks it; then adds the new node to the level above (FAIR).
    pub(super) fn split(&self, node: u64, level: u64, held: Locked<'_>) -> Result<()> {
        let medium = self.medium();
        let right = self.store.alloc()?;
        let entries = self.entries(node);
        let kept = entries.len() / 2;
        let (separator, middle) = entries[kept];
        let moved = if level == 0 { &entries[kept..] } else { &entries[kept + 1..] };
        let leftmost = if level == 0 { 0 } else { middle };
        let header = [level + 1, self.store.load(node, NEXT), separator, leftmost];
        let durable = medium.fence(self.fill(right, header, moved), "fastfair split.1");
        self.store.word(node, NEXT).publish(medium, right, &durable, "fastfair split.2");
        medium.persist(self.store.word(node, NEXT), "fastfair split.2");
        // As published. Recovery would truncate the node at its sibling's lower bound without it.
        self.set_word(node, kept, 0);
        self.persist(node, kept, "fastfair split.3");
        drop(held);
        if level == 0 {
            self.census.leaves.add(1);
        }
        self.add_above(level + 1, separator, right)
    }

    /// Adds a new node to the level above it.
    pub(super) fn add_above(&self, level: u64, separator: u64, child: u64) -> Result<()> {
        loop {
            let Some(mut node) = self.descend_inner(Aim::At(separator), level)? else {
                if self.grow(level, separator, child)? {
                    return Ok(());
                }
                continue;
            };
            let held = loop {
                let held = Locked::wait(self.store.lock(node)?);
                match self.right_of(node, Aim::At(separator))? {
                    Some(next) => node = next,
                    None => break held,
                }
            };
            if self.count(node) < self.capacity {
                self.add(node, separator, child, false);
                return Ok(());
            }
            self.split(node, level, held)?;
        }
    }

    /// Creates a root for a missing level; returns `false` if it exists meanwhile.
    pub(super) fn grow(&self, level: u64, separator: u64, child: u64) -> Result<bool> {
        let _rooting = wait::lock(&self.rooting);
        let (medium, old) = (self.medium(), self.root.load(Acquire));
        if self.level(old)? >= level {
            return Ok(false);
        }
        let root = self.store.alloc()?;
        let flushed = self.fill(root, [level + 1, 0, 0, old], &[(separator, child)]);
        let durable = medium.fence(flushed, "fastfair grow.1");
        self.name(root, &durable);
        Ok(true)
    }

    pub(super) fn name(&self, root: u64, durable: &Durable) {
        let (medium, anchor) = (self.medium(), self.store.pool.anchor(self.store.id));
        anchor.publish(medium, root, durable, "fastfair grow.2");
        medium.persist(anchor, "fastfair grow.2");
        // Pairs with the loads of searches that descend.
        self.root.store(root, Release);
    }
}
