//! Removal of empty nodes from the tree: one at a time, and not while a thread splits.

use bristlecone_pm::sync::epoch::Guard;
use bristlecone_pm::{Alone, Durable, Flushed, Medium, Persist, Result};

use super::WoTree;
use super::inner::Aim;
use super::layout::State;
use super::log::{FREED_MAX, Freed, Record};
use super::nodes::{Locked, NodeLock};
use super::read::Path;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::optimistic_lock::OptimisticLock;

/// Nodes that are removed together: an empty leaf, and the inner nodes above it that have no other child.
#[derive(Clone, Debug)]
pub(super) struct Removal {
    /// The lowest remaining node, which loses an entry.
    pub parent: u64,
    /// The separator between the two ranges that are merged.
    pub separator: u64,
    /// Whether the range passes to the right neighbour, which then begins earlier, or to the left one, whose
    /// high key rises.
    pub to_right: bool,
    pub nodes: Vec<Freed>,
}

/// The plan for a leaf that may be empty.
enum Plan {
    Free(Removal),
    Stay,
    /// An entry is missing: on the path to the leaf, or to the range that begins at a word.
    Missing(Option<u64>),
}

/// Outcome of an attempt to free.
enum Outcome {
    Done,
    /// As in [`Plan`]; nothing changed.
    Missing(Option<u64>),
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Frees the leaf of `key` if it is empty and not the first one.
    pub(super) fn free_if_empty(&self, key: K::Ref<'_>, guard: &K::Guard) -> Result<()> {
        let Outcome::Missing(low) = self.try_free(key, guard)? else { return Ok(()) };
        // Add the missing entry first: on the leaf's own path, or on that of its right neighbour.
        let lacking = match low {
            Some(low) => self.separator(low, guard),
            None => K::shorten(key),
        };
        if self.complete(lacking, guard)? {
            self.try_free(key, guard)?;
        }
        Ok(())
    }

    fn try_free(&self, key: K::Ref<'_>, guard: &K::Guard) -> Result<Outcome> {
        let _shape = bristlecone_pm::sync::wait::write(&self.shape_lock);
        // Pinned, so that the nodes of the path remain valid.
        let pinned = bristlecone_pm::sync::epoch::pin();
        let mut path = Path::default();
        let leaf = self.descend(Aim::At(key), guard, &mut path)?.leaf;
        let removal = match self.plan(leaf, &path, guard)? {
            Plan::Free(removal) => removal,
            Plan::Stay => return Ok(Outcome::Done),
            Plan::Missing(low) => return Ok(Outcome::Missing(low)),
        };
        let others = self.locks_of(&removal)?;
        // Left before right, the lock order of every thread.
        let Some(left) = self.locked(removal.nodes[0].left)? else { return Ok(Outcome::Done) };
        let Some(leaf) = self.locked(leaf)? else { return Ok(Outcome::Done) };
        if self.bitmap(leaf.node).is_none_or(|(bitmap, _)| bitmap != 0) {
            return Ok(Outcome::Done);
        }
        self.carry_out(&removal, &others, guard, &pinned);
        leaf.retire();
        drop(left);
        self.shrink(&pinned)?;
        Ok(Outcome::Done)
    }

    /// Locks a node. Returns `None` if it has left the tree.
    pub(super) fn locked(&self, node: u64) -> Result<Option<Locked<'_>>> {
        let lock = self.nodes.lock(node)?;
        Ok(Locked::wait(NodeLock { node, lock }))
    }

    /// Replaces a root by its only child (shrink 1 to 3). No thread may split or free concurrently.
    fn shrink(&self, pinned: &Guard) -> Result<()> {
        let medium = self.medium();
        loop {
            let root = self.root();
            let Some(State::Inner { level }) = self.nodes.state(root) else { return Ok(()) };
            let lock = self.nodes.lock(root)?;
            if !lock.lock() {
                return Ok(());
            }
            self.compact(root);
            if self.count(root) != 1 || self.nodes.link(root, level).next.load(medium) != 0 {
                lock.unlock();
                return Ok(());
            }
            self.nodes.keep(root);
            let lane = self.log.root_lane();
            lane.write(&Record::Root { node: root });
            let child = self.nodes.entry(root, 0).word.load(medium);
            self.anchor().publish(medium, child, &Alone, "wotree shrink.2");
            medium.persist(self.anchor(), "wotree shrink.2");
            self.set_root(child);
            let state = self.nodes.state_word(root);
            state.store(medium, State::Free.encode());
            medium.persist(state, "wotree shrink.3");
            lock.unlock_obsolete();
            lane.wipe();
            self.nodes.retire(root, pinned);
        }
    }

    /// Returns the nodes to be removed with an empty leaf. The first leaf of the tree stays.
    fn plan(&self, leaf: u64, path: &Path, guard: &K::Guard) -> Result<Plan> {
        if path.missing.is_some() {
            return Ok(Plan::Missing(None));
        }
        let Some(low) = path.low else { return Ok(Plan::Stay) };
        let before = Aim::Before(self.separator(low, guard));
        let mut way = Path::default();
        let left = self.descend(before, guard, &mut way)?.leaf;
        let mut nodes = vec![Freed { node: leaf, left }];
        for (&parent, level) in path.inner.iter().rev().zip(1_u8..) {
            let top = nodes[nodes.len() - 1];
            if self.nodes.link(top.left, level - 1).next.load(self.medium()) != top.node {
                return Ok(Plan::Stay);
            }
            let Some(locked) = self.locked(parent)? else { return Ok(Plan::Stay) };
            self.compact(parent);
            drop(locked);
            let count = self.count(parent);
            let Some(at) = self.place_of(parent, top.node) else { return Ok(Plan::Stay) };
            if count > 1 {
                let to_right = at + 1 < count;
                let entry = self.nodes.entry(parent, if to_right { at + 1 } else { at });
                let separator = entry.key.load(self.medium());
                if to_right && let Some(low) = self.stranger(entry.word.load(self.medium()), &nodes) {
                    return Ok(Plan::Missing(Some(low)));
                }
                return Ok(Plan::Free(Removal { parent, separator, to_right, nodes }));
            }
            let Some(left) = way.at_level(level) else { return Ok(Plan::Stay) };
            nodes.push(Freed { node: parent, left });
            if nodes.len() > FREED_MAX {
                return Ok(Plan::Stay);
            }
        }
        Ok(Plan::Stay)
    }

    /// Returns the low fence of a right neighbour of the removed nodes that is not the next child of their
    /// heir: it would lie to the left of the parent's next child, and its items would be lost.
    fn stranger(&self, mut heir: u64, nodes: &[Freed]) -> Option<u64> {
        for (level, freed) in nodes.iter().enumerate().rev() {
            let link = self.nodes.link(freed.node, level as u8);
            if link.next.load(self.medium()) != heir || self.nodes.lock(heir).is_err() {
                return Some(link.high.load(self.medium()));
            }
            if level > 0 {
                heir = self.nodes.entry(heir, 0).word.load(self.medium());
            }
        }
        None
    }

    /// Returns the locks of the inner nodes that change, and of those that are removed.
    fn locks_of(&self, removal: &Removal) -> Result<[Vec<(u64, &OptimisticLock)>; 2]> {
        let inner = &removal.nodes[1..];
        let lock = |node: u64| Ok((node, self.nodes.lock(node)?));
        let changed = inner.iter().map(|freed| freed.left).chain([removal.parent]);
        let gone = inner.iter().map(|freed| freed.node);
        Ok([changed.map(lock).collect::<Result<_>>()?, gone.map(lock).collect::<Result<_>>()?])
    }

    /// Removes nodes from the tree (free 1 to 5). The leaf and its left neighbour must be locked, and no thread
    /// may split.
    fn carry_out(
        &self,
        removal: &Removal,
        [changed, gone]: &[Vec<(u64, &OptimisticLock)>; 2],
        guard: &K::Guard,
        pinned: &Guard,
    ) {
        removal.nodes.iter().for_each(|freed| self.nodes.keep(freed.node));
        self.separators.keep(removal.separator);
        let lane = self.log.free_lane();
        // Free 1.
        lane.write(&Record::Free {
            parent: removal.parent,
            separator: removal.separator,
            to_right: removal.to_right,
            nodes: removal.nodes.clone(),
        });
        changed.iter().chain(gone).for_each(|(_, lock)| _ = lock.lock());
        let flushed = self.unlink(removal);
        self.erase(removal, flushed);
        gone.iter().for_each(|(_, lock)| lock.unlock_obsolete());
        changed.iter().for_each(|(_, lock)| lock.unlock());
        lane.wipe();
        self.separators.retire(removal.separator, guard);
        removal.nodes.iter().for_each(|freed| self.nodes.retire(freed.node, pinned));
        self.freed.add(1);
    }

    /// Unlinks the nodes (free 2 and 3); skips the steps that were done already.
    pub(super) fn unlink(&self, removal: &Removal) -> Flushed {
        let medium = self.medium();
        let top = removal.nodes[removal.nodes.len() - 1].node;
        if let Some(at) = self.place_of(removal.parent, top) {
            let heir = if removal.to_right { at + 1 } else { at.saturating_sub(1) };
            let heir = self.nodes.entry(removal.parent, heir).word.load(medium);
            let entry = self.nodes.entry(removal.parent, at);
            // Free 2: a duplicate of its neighbour, until it is removed.
            entry.word.publish(medium, heir, &Alone, "wotree free.2");
            medium.persist(entry, "wotree free.2");
        }
        self.compact(removal.parent);
        let mut flushed = Flushed::none();
        for (freed, level) in removal.nodes.iter().zip(0_u8..) {
            let (left, gone) = (self.nodes.link(freed.left, level), self.nodes.link(freed.node, level));
            if left.next.load(medium) != freed.node {
                continue;
            }
            // Free 3: `next` is last, so that a crash before it repeats both.
            self.relink(freed.left, || {
                // At the right end it is ignored: its target may be freed while readers are active.
                if !removal.to_right && gone.next.load(medium) != 0 {
                    left.high.store(medium, gone.high.load(medium));
                }
                let ordered = medium.ordered_within_line();
                left.next.publish(medium, gone.next.load(medium), &ordered, "wotree free.3");
            });
            flushed = flushed.and(medium.flush(left, "wotree free.3"));
        }
        flushed
    }

    /// Free 4: marks the nodes and the separator as free.
    pub(super) fn erase(&self, removal: &Removal, mut flushed: Flushed) {
        let medium = self.medium();
        for freed in &removal.nodes {
            let state = self.nodes.state_word(freed.node);
            state.store(medium, State::Free.encode());
            flushed = flushed.and(medium.flush(state, "wotree free.4"));
        }
        if !K::INLINE && self.separators.records.is_plausible(removal.separator) {
            flushed = flushed.and(self.separators.records.set_owner(
                removal.separator,
                0,
                "wotree free.4 separator",
            ));
        }
        let Durable { .. } = medium.fence(flushed, "wotree free.4");
    }
}
