//! Flushing buffered changes down the tree, and trimming the log.

use std::sync::RwLockWriteGuard;

use bristlecone::{Medium, Result};
use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::sync::wait;
use bristlecone_pm::{Alone, LogChunk, Persist};

use super::node::{Node, merge};
use super::{BeTree, NEWEST, ROOT, STAMP};
use crate::index::Aim;
use crate::shadow::{Meta, Plan};

/// Maximum number of log entries, as a multiple of the capacity of the buffers.
const LOG_ROOM: u64 = 2;

/// Progress of trimming the log.
#[derive(Default)]
pub struct Trim {
    /// Chunks to recycle once all buffers on the path to each leaf were emptied; `None`: trimming has not begun.
    old: Option<Vec<LogChunk>>,
    /// The number of the last change in these chunks.
    upto: u64,
    /// Leaves below this key are done.
    from: u64,
}

impl<M: Medium> BeTree<M> {
    /// Empties the root's buffer until it has space for a change, and all buffers that overflow in the process.
    pub(super) fn hand_down_all(&self) -> Result<()> {
        let mut full = vec![(ROOT, self.room - 1)];
        while let Some((number, most)) = full.pop() {
            let mut node = self.nodes.write(number);
            if number == ROOT {
                self.grow(&mut node);
            }
            while node.buffer.len() > most {
                let at = self.narrow(&mut node, Node::fullest);
                if node.level == 0 {
                    self.write_leaf(&mut node, at)?;
                } else {
                    let (child, held) = self.hand_down(&mut node, at);
                    full.extend((held.buffer.len() > self.room).then_some((child, self.room)));
                }
            }
        }
        Ok(())
    }

    /// Splits the root if it has too many children; it stays the root.
    fn grow(&self, root: &mut Node) {
        if root.children.len() <= self.fanout {
            return;
        }
        let (low, upper) = root.split();
        let level = root.level + 1;
        let children = vec![self.nodes.add(std::mem::take(root)), self.nodes.add(upper)];
        *root = Node { level, pivots: vec![low], children, buffer: Vec::new() };
    }

    /// Splits the child selected by `choose` while it has too many children; returns its new index.
    fn narrow(&self, node: &mut Node, choose: impl Fn(&Node) -> usize) -> usize {
        loop {
            let at = choose(node);
            if node.level == 0 {
                return at;
            }
            let mut child = self.nodes.write(node.children[at]);
            if child.children.len() <= self.fanout {
                return at;
            }
            let (low, upper) = child.split();
            node.add(at, low, self.nodes.add(upper));
        }
    }

    /// Moves the buffered changes of a child to it; returns its number, and the child, locked.
    fn hand_down(&self, node: &mut Node, at: usize) -> (u64, RwLockWriteGuard<'_, Node>) {
        let number = node.children[at];
        let mut child = self.nodes.write(number);
        let own = node.own(at);
        merge(&mut child.buffer, &node.buffer[own.clone()]);
        node.buffer.drain(own);
        (number, child)
    }

    /// Writes a leaf, by leaf 1 and 2. Has no effect if there is no space.
    fn write_leaf(&self, parent: &mut Node, at: usize) -> Result<()> {
        let (store, shape, medium) = (&self.store, self.shape, self.store.medium());
        let own = parent.own(at);
        let plan = Plan::new(store, shape, parent.children[at], NEWEST, &parent.buffer[own.clone()])?;
        let stamp = shape.now(store, plan.leaf, NEWEST).stamp + 1;
        let (written, meta) = plan.write(store, shape, 1);
        let meta = Meta { stamp, ..meta };
        let flushed = if plan.is_of_metadata() {
            shape.commit(store, plan.leaf, meta, &Alone)
        } else {
            let durable = medium.fence(written, "betree leaf.1");
            shape.commit(store, plan.leaf, meta, &durable)
        };
        let _durable = medium.fence(flushed, "betree leaf.2");
        parent.buffer.drain(own);
        for (left, (leaf, items)) in (at..).zip(&plan.fresh) {
            parent.add(left, items[0].0, *leaf);
        }
        self.census.leaves.add(plan.fresh.len() as i64);
        Ok(())
    }

    /// Empties all buffers on the path to the leaves of the node above the leaf of a key; returns the key at which the
    /// next such node begins.
    fn drain(&self, from: u64) -> Result<Option<u64>> {
        let mut node = self.nodes.write(ROOT);
        self.grow(&mut node);
        let mut high = None;
        while node.level > 0 {
            let at = self.narrow(&mut node, |node| node.child(Aim::At(from)));
            high = node.pivots.get(at).copied().or(high);
            node = self.hand_down(&mut node, at).1;
        }
        while !node.buffer.is_empty() {
            let at = node.fullest();
            self.write_leaf(&mut node, at)?;
        }
        Ok(high)
    }

    /// Trims the log by a part, if it has more entries than buffers have space for.
    pub(super) fn trim_if_due(&self) -> Result<()> {
        let most = LOG_ROOM * self.nodes.count() * self.room as u64;
        let mut trim = wait::lock(&self.trim);
        if trim.old.is_none() && self.logged.load(Relaxed) < most {
            return Ok(());
        }
        match self.trim_on(&mut trim) {
            // The log grows meanwhile.
            Err(error) if error.is_no_room() => Ok(()),
            done => done,
        }
    }

    /// Trims the log completely.
    pub(super) fn trim_now(&self) -> Result<()> {
        let mut trim = wait::lock(&self.trim);
        if trim.old.is_none() && self.logged.load(Relaxed) == 0 {
            return Err(self.store.pool.no_room());
        }
        loop {
            self.trim_on(&mut trim)?;
            if trim.old.is_none() {
                return Ok(());
            }
        }
    }

    fn trim_on(&self, trim: &mut Trim) -> Result<()> {
        if trim.old.is_none() {
            let _gate = wait::write(&self.gate);
            let upto = self.sequence.load(Relaxed);
            let (_, old) = self.log.rotate();
            self.logged.store(0, Relaxed);
            *trim = Trim { old: Some(old), upto, from: 0 };
        }
        match self.drain(trim.from)? {
            Some(next) => trim.from = next,
            None => {
                let (cell, medium) = (self.store.word(self.root, STAMP), self.store.medium());
                // The threads that wrote the leaves have fenced them.
                cell.publish(medium, trim.upto, &Alone, "betree trim.2");
                medium.persist(cell, "betree trim.2");
                self.log.recycle(trim.old.take().unwrap_or_default());
            }
        }
        Ok(())
    }
}
