//! Several keys on their way to their leaves at once: whatever one of them has to wait for is asked for by all before
//! any of them looks.

use bristlecone_pm::sync::Ordering::Acquire;

use super::walk::Cursor;
use super::{AnyLayout, DefaultLayout, KeyCodec, Layout, NodeRef, Side, VolatileIndex};
use crate::index::parts::codec::GROUP;
use crate::index::parts::optimistic_lock::{LockState, Stale, Version};

/// Where the leaves of a group's keys stand. `None`: the index changed there meanwhile, and the key is looked for by
/// itself.
pub type Cursors = [Option<Cursor>; GROUP];

/// Nodes that a key passes at most. One that has to go round by many siblings is looked for by itself.
const STEPS_MAX: usize = 24;

/// Where a key is on its way.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// In this node, where the next one is not known yet.
    In(NodeRef<'a>, Version),
    /// Before a child or sibling of this node, which is asked for.
    Before(NodeRef<'a>, Version, u32),
    /// In the node of the lowest level whose range holds the key.
    Arrived(NodeRef<'a>, Version),
    Lost,
}

impl<K: KeyCodec> VolatileIndex<K> {
    /// Finds the leaves of up to [`GROUP`] keys, and waits for no thread. `near` is told which leaf each key's is, to ask
    /// for what will be read of it; [`look`](Self::look) then makes sure.
    #[inline]
    pub fn seek_many(&self, keys: &[K::Ref<'_>], guard: &K::Guard, near: impl Fn(usize, u32)) -> Cursors {
        if self.by_default {
            self.seek_many_among::<DefaultLayout>(keys, guard, near)
        } else {
            self.seek_many_among::<AnyLayout>(keys, guard, near)
        }
    }

    #[inline(always)]
    fn seek_many_among<L: Layout>(
        &self,
        keys: &[K::Ref<'_>],
        guard: &K::Guard,
        near: impl Fn(usize, u32),
    ) -> Cursors {
        if K::INLINE {
            keys.iter().for_each(|key| self.prefetch_hint(*key));
            keys.iter().for_each(|key| self.prefetch_hinted(*key));
        }
        let mut ways = [Way::Lost; GROUP];
        let mut under_way = false;
        for (way, key) in ways.iter_mut().zip(keys) {
            *way = self.set_out::<L>(*key);
            under_way |= matches!(way, Way::In(..));
        }
        for _ in 0..STEPS_MAX {
            if !under_way {
                break;
            }
            under_way = false;
            for (way, key) in ways.iter_mut().zip(keys) {
                *way = self.go_on::<L>(*way, *key, guard).unwrap_or(Way::Lost);
                under_way |= matches!(way, Way::In(..) | Way::Before(..));
            }
        }
        let mut cursors = [None; GROUP];
        for (at, (way, key)) in ways.into_iter().zip(keys).enumerate() {
            let Way::Arrived(node, seen) = way else { continue };
            let Ok(entry) = self.choose(node, seen, Some(*key), Side::From, guard) else { continue };
            let leaf = node.child(entry);
            if node.lock.validate(seen) {
                near(at, leaf);
                cursors[at] = Some(Cursor { node: node.id, seen, at: entry });
            }
        }
        cursors
    }

    /// Begins where a hint leads, or at the root.
    #[inline(always)]
    fn set_out<L: Layout>(&self, key: K::Ref<'_>) -> Way<'_> {
        if K::INLINE
            && let Some((node, seen)) = self.hinted::<L>(key)
        {
            return Way::Arrived(node, seen);
        }
        // Pairs with the release in `grow`.
        let root = L::get(&self.nodes, self.root.load(Acquire));
        match root.lock.try_read() {
            LockState::Free(seen) => Way::In(root, seen),
            LockState::Locked | LockState::Obsolete => Way::Lost,
        }
    }

    /// Takes a key one node further, as `descend` does, and asks for the next one.
    #[inline(always)]
    fn go_on<'a, L: Layout>(
        &'a self,
        way: Way<'a>,
        key: K::Ref<'_>,
        guard: &K::Guard,
    ) -> Result<Way<'a>, Stale> {
        let (node, seen) = match way {
            Way::In(node, seen) => (node, seen),
            Way::Before(node, seen, next) => {
                let child = L::get(&self.nodes, next);
                let LockState::Free(version) = child.lock.try_read() else { return Err(Stale) };
                if !node.lock.validate(seen) {
                    return Err(Stale);
                }
                (child, version)
            }
            Way::Arrived(..) | Way::Lost => return Ok(way),
        };
        let among = self.among(node, seen, Some(key), guard)?;
        let next = match self.right_of(node, seen, (Some(key), among), Side::From, guard)? {
            Some(right) => right,
            None if node.level() == 1 => {
                if K::INLINE {
                    self.learn(key, node.id);
                }
                return Ok(Way::Arrived(node, seen));
            }
            None => node.child(self.entry_of(node, seen, (Some(key), among), Side::From, guard)?),
        };
        // An index is followed only once it is validated.
        if !node.lock.validate(seen) {
            return Err(Stale);
        }
        self.nodes.prefetch_whole(next);
        Ok(Way::Before(node, seen, next))
    }
}
