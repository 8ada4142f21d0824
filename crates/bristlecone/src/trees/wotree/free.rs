//! Empty nodes leave the tree. One at a time, and not while anybody splits.

use bristlecone_pm::{Durable, Flushed, Medium, Persist, Result};
use crossbeam_epoch::Guard;

use super::inner::Aim;
use super::layout::State;
use super::log::{FREED_MAX, Freed, Record};
use super::read::Path;
use super::{Pins, WoTree};
use crate::shared::form::{KeyForm, ValueForm};

/// Nodes that leave the tree together: an empty leaf, and the inner nodes above it that have no
/// other child.
#[derive(Clone, Debug)]
pub(super) struct Removal {
    /// The lowest node that stays and loses an entry.
    pub parent: u64,
    /// The separator between the two ranges that become one.
    pub separator: u64,
    /// Whether the range falls to the right neighbour, which then begins earlier, or to the left
    /// one, whose high key rises.
    pub to_right: bool,
    pub nodes: Vec<Freed>,
}

impl<K: KeyForm, V: ValueForm, M: Medium> WoTree<K, V, M> {
    /// Frees the leaf of `key` if it is empty and not the first one.
    pub(super) fn free_if_empty(&self, key: K::Ref<'_>, pins: &Pins<K, V>) -> Result<()> {
        let _shape = bristlecone_pm::wait::write(&self.shape_lock);
        // The nodes of the path stay.
        let pinned = crossbeam_epoch::pin();
        let mut path = Path::default();
        let leaf = self.descend(Aim::At(key), &pins.keys, &mut path)?.leaf;
        let Some(removal) = self.plan(leaf, &path, &pins.keys)? else { return Ok(()) };
        // Left before right, as everybody locks.
        let (left, lock) = (self.nodes.lock(removal.nodes[0].left)?, self.nodes.lock(leaf)?);
        if !left.lock() {
            return Ok(());
        }
        if !lock.lock() {
            left.unlock();
            return Ok(());
        }
        let empty = self.bitmap(leaf).is_some_and(|(bitmap, _)| bitmap == 0);
        if empty {
            self.carry_out(&removal, pins, &pinned)?;
            lock.unlock_obsolete();
        } else {
            lock.unlock();
        }
        left.unlock();
        self.shrink(&pinned)
    }

    /// A root with one child gives way to it (shrink 1 to 3). Nobody splits or frees meanwhile.
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
            self.anchor().publish(medium, child, &medium.ordered_within_line(), "wotree shrink.2");
            let Durable { .. } = medium.persist(self.anchor(), "wotree shrink.2");
            self.set_root(child);
            let state = self.nodes.state_word(root);
            state.store(medium, State::Free.encode());
            let Durable { .. } = medium.persist(state, "wotree shrink.3");
            lock.unlock_obsolete();
            lane.wipe();
            self.nodes.retire(root, pinned);
        }
    }

    /// What has to go with an empty leaf. `None`: it stays, being the first one of the tree, or
    /// because an entry is missing above it.
    fn plan(&self, leaf: u64, path: &Path, guard: &K::Guard) -> Result<Option<Removal>> {
        let Some(low) = path.low.filter(|_| !path.detour) else { return Ok(None) };
        let before = Aim::Before(self.separator(low, guard));
        let mut way = Path::default();
        let left = self.descend(before, guard, &mut way)?.leaf;
        let mut nodes = vec![Freed { node: leaf, left }];
        for (&parent, level) in path.inner.iter().rev().zip(1_u8..) {
            let top = nodes[nodes.len() - 1];
            if self.nodes.link(top.left, level - 1).next.load(self.medium()) != top.node {
                return Ok(None);
            }
            let lock = self.nodes.lock(parent)?;
            if !lock.lock() {
                return Ok(None);
            }
            self.compact(parent);
            lock.unlock();
            let count = self.count(parent);
            let Some(at) = self.place_of(parent, top.node) else { return Ok(None) };
            if count > 1 {
                let to_right = at + 1 < count;
                let entry = self.nodes.entry(parent, if to_right { at + 1 } else { at });
                let separator = entry.key.load(self.medium());
                return Ok(Some(Removal { parent, separator, to_right, nodes }));
            }
            let Some(left) = way.at_level(level) else { return Ok(None) };
            nodes.push(Freed { node: parent, left });
            if nodes.len() > FREED_MAX {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Takes nodes out of the tree (free 1 to 5). The leaf and its left neighbour are locked, and
    /// nobody splits.
    fn carry_out(&self, removal: &Removal, pins: &Pins<K, V>, pinned: &Guard) -> Result<()> {
        removal.nodes.iter().for_each(|freed| self.nodes.keep(freed.node));
        K::keep(&self.separators, removal.separator);
        let lane = self.log.free_lane();
        // Free 1.
        lane.write(&Record::Free {
            parent: removal.parent,
            separator: removal.separator,
            to_right: removal.to_right,
            nodes: removal.nodes.clone(),
        });
        let inner = &removal.nodes[1..];
        let changed = inner.iter().map(|freed| freed.left).chain([removal.parent]);
        let locks: Vec<_> = changed.map(|node| self.nodes.lock(node)).collect::<Result<_>>()?;
        let gone: Vec<_> = inner.iter().map(|freed| self.nodes.lock(freed.node)).collect::<Result<_>>()?;
        locks.iter().chain(&gone).for_each(|lock| _ = lock.lock());
        let flushed = self.unlink(removal);
        self.erase(removal, flushed);
        gone.iter().for_each(|lock| lock.unlock_obsolete());
        locks.iter().for_each(|lock| lock.unlock());
        lane.wipe();
        K::retire(&self.separators, removal.separator, &pins.keys);
        removal.nodes.iter().for_each(|freed| self.nodes.retire(freed.node, pinned));
        self.freed.add(1);
        Ok(())
    }

    /// Free 2 and 3; what was done already is not done again.
    pub(super) fn unlink(&self, removal: &Removal) -> Flushed {
        let medium = self.medium();
        let top = removal.nodes[removal.nodes.len() - 1].node;
        if let Some(at) = self.place_of(removal.parent, top) {
            let heir = if removal.to_right { at + 1 } else { at.saturating_sub(1) };
            let heir = self.nodes.entry(removal.parent, heir).word.load(medium);
            let entry = self.nodes.entry(removal.parent, at);
            // Free 2: a twin of its neighbour, until it is taken out.
            entry.word.publish(medium, heir, &medium.ordered_within_line(), "wotree free.2");
            let Durable { .. } = medium.persist(entry, "wotree free.2");
        }
        self.compact(removal.parent);
        let mut flushed = Flushed::none();
        for (freed, level) in removal.nodes.iter().zip(0_u8..) {
            let (left, gone) = (self.nodes.link(freed.left, level), self.nodes.link(freed.node, level));
            if left.next.load(medium) != freed.node {
                continue;
            }
            // Free 3: `next` is last, so that a crash before it does both again.
            self.relink(freed.left, || {
                // At the right end it means nothing: what it names may be gone while readers are about.
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

    /// Free 4: the nodes and the separator can be found free.
    pub(super) fn erase(&self, removal: &Removal, mut flushed: Flushed) {
        let medium = self.medium();
        for freed in &removal.nodes {
            let state = self.nodes.state_word(freed.node);
            state.store(medium, State::Free.encode());
            flushed = flushed.and(medium.flush(state, "wotree free.4"));
        }
        if !K::INLINE && self.separators.is_plausible(removal.separator) {
            flushed = flushed.and(self.separators.set_owner(removal.separator, 0, "wotree free.4 separator"));
        }
        let Durable { .. } = medium.fence(flushed, "wotree free.4");
    }
}
