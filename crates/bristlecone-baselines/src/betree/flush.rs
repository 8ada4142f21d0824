//! Changes on their way down, and how the log is kept short.

use std::sync::RwLockWriteGuard;

use bristlecone::{Medium, Result};
use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::sync::wait;
use bristlecone_pm::{Alone, LogChunk, Persist};

use super::node::{Node, merge};
use super::{BeTree, NEWEST, ROOT, STAMP};
use crate::index::Aim;
use crate::shadow::{Meta, Plan};

/// The log may have so many times as many entries as buffers have room for.
const LOG_ROOM: u64 = 2;

/// How far the log is trimmed.
#[derive(Default)]
pub struct Trim {
    /// What is emptied once all buffers on the way to each leaf were; none: it has not begun.
    old: Option<Vec<LogChunk>>,
    /// The number of the last change in there.
    upto: u64,
    /// Leaves below this key are done.
    from: u64,
}

impl<M: Medium> BeTree<M> {
    /// Empties the root's buffer so far that there is room for a change, and whatever becomes too full by that.
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

    /// Splits the root, if it has too many children: it stays the root.
    fn grow(&self, root: &mut Node) {
        if root.children.len() <= self.fanout {
            return;
        }
        let (low, upper) = root.split();
        let level = root.level + 1;
        let children = vec![self.nodes.add(std::mem::take(root)), self.nodes.add(upper)];
        *root = Node { level, pivots: vec![low], children, buffer: Vec::new() };
    }

    /// Splits the child that `choose` names until it has not too many children; returns which it is then.
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

    /// Hands a child what is buffered for it; returns its number, and the child, locked.
    fn hand_down(&self, node: &mut Node, at: usize) -> (u64, RwLockWriteGuard<'_, Node>) {
        let number = node.children[at];
        let mut child = self.nodes.write(number);
        let own = node.own(at);
        merge(&mut child.buffer, &node.buffer[own.clone()]);
        node.buffer.drain(own);
        (number, child)
    }

    /// Writes a leaf, by leaf 1 and 2. Nothing happened if there is no room.
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

    /// Empties all buffers on the way to the leaves of the node above the leaf of a key; returns the key at which the next
    /// such node begins.
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

    /// Trims the log by a part, if there is more in it than buffers have room for.
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

    /// Trims the log for as long as that takes.
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
                // The threads that wrote the leaves fenced that.
                cell.publish(medium, trim.upto, &Alone, "betree trim.2");
                medium.persist(cell, "betree trim.2");
                self.log.recycle(trim.old.take().unwrap_or_default());
            }
        }
        Ok(())
    }
}
