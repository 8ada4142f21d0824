//! Removal of a leaf from the index. Its range passes to a neighbour; nodes left without entries
//! are removed as well.

use bristlecone_pm::sync::Ordering::Acquire;
use bristlecone_pm::sync::wait::{lock, reached};

use super::{AnyLayout, KeyCodec, NodeRef, Side, VolatileIndex};
use crate::index::parts::optimistic_lock::pause;

impl<K: KeyCodec> VolatileIndex<K> {
    /// Removes a leaf whose range holds `key`; its range passes to a neighbour. Returns `false` if
    /// it is the only leaf, if it was removed already, or if `agreed` returned false. `agreed` is
    /// called at most once, with the index locked and after all other conditions hold. Its argument
    /// is the preceding leaf if that one gets the range.
    pub fn remove(
        &self,
        key: K::Ref<'_>,
        leaf: u32,
        guard: &K::Guard,
        mut agreed: impl FnMut(Option<u32>) -> bool,
    ) -> bool {
        self.remove_if(key, leaf, guard, &mut agreed)
    }

    /// Compiled once per kind of key, instead of once per caller of [`remove`](Self::remove).
    fn remove_if(
        &self,
        key: K::Ref<'_>,
        leaf: u32,
        guard: &K::Guard,
        agreed: &mut dyn FnMut(Option<u32>) -> bool,
    ) -> bool {
        for round in 0_u32.. {
            if let Ok((node, seen)) = self.descend::<AnyLayout>(Some(key), Side::From, 1, guard)
                && node.lock.upgrade(seen)
            {
                let at = node.position(leaf);
                let many = node.count() > 1;
                let removed = at.is_some_and(|at| {
                    let removed = many && agreed(at.checked_sub(1).map(|left| node.child(left)));
                    if removed {
                        let _change = self.changes.begin(&self.nodes, node);
                        self.drop_entry(node, at, guard);
                    }
                    removed
                });
                node.lock.unlock();
                if many || at.is_none() {
                    return removed;
                }
                if let Some(removed) = self.remove_chain(key, leaf, guard, agreed) {
                    return removed;
                }
            }
            pause(round);
        }
        unreachable!("rounds are not counted out")
    }

    /// Removes one of several entries. The first one's range passes to the second, any other's to
    /// the one before it.
    fn drop_entry(&self, node: NodeRef<'_>, at: usize, guard: &K::Guard) {
        let dead = node.key(at.max(1));
        if at == 0 {
            node.set_child(0, node.child(1));
        }
        node.remove(at.max(1));
        node.rank_fewer::<K>(&self.separators, guard);
        K::retire_separator(&self.separators, dead, guard);
    }

    /// Removes a leaf that is alone in its node, with that node and all ancestors that become
    /// empty. Returns `None` if the index changed meanwhile.
    fn remove_chain(
        &self,
        key: K::Ref<'_>,
        leaf: u32,
        guard: &K::Guard,
        agreed: &mut dyn FnMut(Option<u32>) -> bool,
    ) -> Option<bool> {
        let _only = lock(&self.structure);
        let mut locked = Locked(Vec::new());
        // Descend from the root, and keep the last node with several entries and all below it
        // locked.
        let mut id = self.root.load(Acquire);
        loop {
            let node = self.nodes.get(id);
            if !node.lock.lock() {
                return None;
            }
            if node.count() > 1 {
                locked.release();
            }
            locked.0.push((id, node));
            // A key beyond the node: a split has not reached the parent yet.
            if let Some((_, high)) = node.right()
                && K::separator_at(&self.separators, high.word, guard) <= K::shorten(key)
            {
                return None;
            }
            let at = self.position(node, key, guard) - 1;
            if node.level() == 1 {
                if node.child(at) != leaf || node.count() > 1 {
                    return None;
                }
                break;
            }
            id = node.child(at);
        }
        let (ancestor_id, ancestor) = locked.0[0];
        if ancestor.count() < 2 {
            // The index is only this chain: the leaf is the only one. (The root is the chain's
            // head.)
            debug_assert_eq!(ancestor_id, self.root.load(Acquire));
            return Some(false);
        }
        let chain: Vec<(u32, NodeRef<'_>)> = locked.0[1..].to_vec();
        let at = ancestor.position(chain[0].0)?;
        let neighbours = self.lock_neighbours(ancestor, at, &chain)?;
        let left = neighbours.0.last().map(|(_, node)| node.child(node.count() - 1));
        if !agreed(left.filter(|_| at > 0)) {
            return Some(false);
        }
        // Of the lowest level, the node that stays changes; the other one only leaves.
        let stays = if at > 0 { neighbours.0.last() } else { chain.last() };
        let change = stays.map(|&(_, node)| self.changes.begin(&self.nodes, node));
        let dead = if at > 0 {
            self.leave_to_left(&chain, &neighbours, guard)
        } else {
            self.take_from_right(&chain, &neighbours, guard)
        };
        self.drop_separator_of(ancestor, at, guard);
        drop(change);
        // From here on other threads may reuse and lock the nodes.
        drop((neighbours, locked));
        dead.into_iter().for_each(|id| self.nodes.free(id));
        reached("index node.freed");
        Some(true)
    }

    /// Locks, level by level, the nodes next to the chain: to its left, or to its right if it is
    /// the first of its ancestor.
    fn lock_neighbours(
        &self,
        ancestor: NodeRef<'_>,
        at: usize,
        chain: &[(u32, NodeRef<'_>)],
    ) -> Option<Locked<'_>> {
        let mut neighbours = Locked(Vec::new());
        let mut id = ancestor.child(if at > 0 { at - 1 } else { 1 });
        for &(own_id, own) in chain {
            let node = self.nodes.get(id);
            if !node.lock.lock() {
                return None;
            }
            neighbours.0.push((id, node));
            let adjacent = if at > 0 { node.right() } else { own.right() };
            if adjacent.map(|(next, _)| next) != Some(if at > 0 { own_id } else { id }) {
                return None;
            }
            id = node.child(if at > 0 { node.count() - 1 } else { 0 });
        }
        Some(neighbours)
    }

    /// Extends the left neighbours' ranges over the chain, which is removed.
    fn leave_to_left(&self, chain: &[(u32, NodeRef<'_>)], left: &Locked<'_>, guard: &K::Guard) -> Vec<u32> {
        let mut dead = Vec::new();
        for (&(id, node), &(_, left)) in chain.iter().zip(&left.0) {
            let (_, high) = left.right().expect("a left neighbour has a right one");
            K::retire_separator(&self.separators, high.word, guard);
            left.set_right(node.right());
            left.rank_all::<K>(&self.separators, guard);
            K::retire_separator(&self.separators, node.key(0), guard);
            node.lock.unlock_obsolete();
            dead.push(id);
        }
        dead
    }

    /// Moves the right neighbours' entries into the chain's nodes, and removes the neighbours.
    fn take_from_right(
        &self,
        chain: &[(u32, NodeRef<'_>)],
        right: &Locked<'_>,
        guard: &K::Guard,
    ) -> Vec<u32> {
        let mut dead = Vec::new();
        for (&(_, node), &(id, right)) in chain.iter().zip(&right.0) {
            let (_, high) = node.right().expect("a right neighbour was found by it");
            K::retire_separator(&self.separators, high.word, guard);
            if node.level() == 1 {
                node.set_child(0, right.child(0));
            }
            for at in 1..right.count() {
                node.insert(at, right.separator(at), right.child(at));
            }
            node.set_right(right.right());
            node.rank_all::<K>(&self.separators, guard);
            K::retire_separator(&self.separators, right.key(0), guard);
            right.lock.unlock_obsolete();
            dead.push(id);
        }
        dead
    }

    /// Removes the ancestor's entry for the removed node.
    fn drop_separator_of(&self, ancestor: NodeRef<'_>, at: usize, guard: &K::Guard) {
        let gone = at.max(1);
        let dead = ancestor.key(gone);
        ancestor.remove(gone);
        ancestor.rank_fewer::<K>(&self.separators, guard);
        K::retire_separator(&self.separators, dead, guard);
    }
}

/// Locked nodes, unlocked together, except those that became obsolete.
struct Locked<'a>(Vec<(u32, NodeRef<'a>)>);

impl Locked<'_> {
    fn release(&mut self) {
        for (_, node) in self.0.drain(..) {
            if node.lock.is_locked() {
                node.lock.unlock();
            }
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.release();
    }
}
