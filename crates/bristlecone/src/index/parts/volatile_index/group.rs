//! Group lookup: several keys descend together, and each node is prefetched for all of them before any thread
//! accesses it.

use bristlecone_pm::sync::Ordering::Acquire;

use super::walk::Cursor;
use super::{AnyLayout, DefaultLayout, KeyCodec, Layout, NodeRef, Side, VolatileIndex};
use crate::index::parts::codec::GROUP;
use crate::index::parts::optimistic_lock::{LockState, Stale, Version};

/// The positions of the leaves of a group's keys. `None` if the index changed there meanwhile; the key is then looked
/// up individually.
pub type Cursors = [Option<Cursor>; GROUP];

/// Maximum number of nodes that a key passes. A key that would pass many siblings is looked up individually.
const STEPS_MAX: usize = 24;

/// Progress of a key's descent.
#[derive(Clone, Copy)]
enum Way<'a> {
    /// In this node, whose successor on the path is not known yet.
    In(NodeRef<'a>, Version),
    /// Before a child or sibling of this node, which is being prefetched.
    Before(NodeRef<'a>, Version, u32),
    /// In the node of the lowest level whose range holds the key.
    Arrived(NodeRef<'a>, Version),
    Lost,
}

impl<K: KeyCodec> VolatileIndex<K> {
    /// Finds the leaves of at most [`GROUP`] keys, without waiting for any thread. `near` is called with the leaf of
    /// each key, to prefetch the data to be read; [`look`](Self::look) then validates it.
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

    /// Begins at the hinted node, or at the root.
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

    /// Advances a key by one node, as `descend` does, and prefetches the next one.
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
        // An index must be validated before it is followed.
        if !node.lock.validate(seen) {
            return Err(Stale);
        }
        self.nodes.prefetch_whole(next);
        Ok(Way::Before(node, seen, next))
    }
}
