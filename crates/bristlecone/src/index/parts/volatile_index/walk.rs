//! Walking from leaf to leaf in key order, and checking the whole quiescent index.

use bristlecone_pm::Issue;
use bristlecone_pm::sync::Ordering::Acquire;
use bristlecone_pm::sync::wait::reached;

use super::{AnyLayout, KeyCodec, NodeRef, Side, VolatileIndex};
use crate::index::parts::locked::{Guarded, Locked};
use crate::index::parts::optimistic_lock::{LockState, Stale, Version, pause};

/// A position in the lowest level of the index.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    pub(super) node: u32,
    pub(super) seen: Version,
    pub(super) at: usize,
}

/// The step behind a leaf.
pub enum Step {
    /// The next leaf, and its version.
    Leaf(u32, Version, Cursor),
    /// End: the leaf was the last one.
    End,
    /// The index changed: seek again.
    Lost,
}

impl<K: KeyCodec> VolatileIndex<K> {
    /// Finds a leaf and its position, to continue from there; `None` means the first leaf. `near` is called with the
    /// position before the thread accesses the leaf.
    pub fn seek(
        &self,
        key: Option<K::Ref<'_>>,
        guard: &K::Guard,
        version_of: impl Fn(u32) -> Option<Version>,
        near: impl Fn(Cursor),
    ) -> (u32, Version, Cursor) {
        let key = key.map_or_else(K::least, K::shorten);
        for round in 0_u32.. {
            if let Some(cursor) = self.cursor_at(key, guard) {
                near(cursor);
                if let Step::Leaf(leaf, version, cursor) = self.look(cursor, &version_of) {
                    return (leaf, version, cursor);
                }
            }
            pause(round);
        }
        unreachable!("rounds are not counted out")
    }

    /// Returns the position of a key's leaf, unless the index changed meanwhile. Compiled once per kind of key,
    /// instead of once per caller of [`seek`](Self::seek).
    #[inline(never)]
    fn cursor_at(&self, key: K::Ref<'_>, guard: &K::Guard) -> Option<Cursor> {
        let (node, seen) = self.descend::<AnyLayout>(Some(key), Side::From, 1, guard).ok()?;
        let at = self.choose(node, seen, Some(key), Side::From, guard).ok()?;
        self.prefetch_right(node);
        Some(Cursor { node: node.id, seen, at })
    }

    /// Returns the leaf at a cursor, if its node is unchanged.
    #[inline(always)]
    pub fn look(&self, cursor: Cursor, version_of: impl Fn(u32) -> Option<Version>) -> Step {
        let node = self.nodes.get(cursor.node);
        let leaf = node.child(cursor.at);
        if node.lock.validate(cursor.seen)
            && let Some(version) = version_of(leaf)
            && node.lock.validate(cursor.seen)
        {
            return Step::Leaf(leaf, version, cursor);
        }
        Step::Lost
    }

    /// Returns the leaf to the right of a cursor's leaf.
    pub fn next(&self, cursor: Cursor, version_of: impl Fn(u32) -> Option<Version>) -> Step {
        let node = self.nodes.get(cursor.node);
        if cursor.at + 1 < node.count() {
            return self.look(Cursor { at: cursor.at + 1, ..cursor }, version_of);
        }
        let right = node.right();
        if !node.lock.validate(cursor.seen) {
            return Step::Lost;
        }
        let Some((next, _)) = right else { return Step::End };
        let right = self.nodes.get(next);
        reached("index step right");
        let Some(seen) = right.lock.read() else { return Step::Lost };
        if !node.lock.validate(cursor.seen) {
            return Step::Lost;
        }
        self.prefetch_right(right);
        self.look(Cursor { node: next, seen, at: 0 }, version_of)
    }

    /// Prefetches the node behind one.
    #[inline(always)]
    fn prefetch_right(&self, node: NodeRef<'_>) {
        if let Some((right, _)) = node.right() {
            self.nodes.prefetch_header_and_children(right);
        }
    }

    /// Returns a leaf a few places to the right, if it is in this node or the next one: for prefetching.
    pub fn ahead(&self, cursor: Cursor, places: usize) -> Option<u32> {
        let node = self.nodes.get(cursor.node);
        let (at, count) = (cursor.at + places, node.count());
        if at < count {
            let leaf = node.child(at);
            return node.lock.validate(cursor.seen).then_some(leaf);
        }
        let (right, _) = node.right().filter(|_| node.lock.validate(cursor.seen))?;
        let right = self.nodes.get(right);
        let LockState::Free(seen) = right.lock.try_read() else { return None };
        let leaf = (at - count < right.count()).then(|| right.child(at - count));
        leaf.filter(|_| node.lock.validate(cursor.seen) && right.lock.validate(seen))
    }

    /// Returns the last leaf that begins before `key` (of all, for `None`), and its low fence: `None` for the first
    /// leaf.
    pub fn find_before(
        &self,
        key: Option<K::Ref<'_>>,
        guard: &K::Guard,
        version_of: impl Fn(u32) -> Option<Version>,
    ) -> (u32, Version, Option<K::Owned>) {
        for round in 0_u32.. {
            if let Some((cursor, fence)) = self.cursor_before(key, guard)
                && let Step::Leaf(leaf, version, _) = self.look(cursor, &version_of)
            {
                return (leaf, version, fence);
            }
            pause(round);
        }
        unreachable!("rounds are not counted out")
    }

    /// Locks the leaf before `held`, which begins with `fence` and which the caller has locked. Returns `None` if a damaged
    /// fence leads to `held` itself. Writers wait for a second leaf only from right to left, so they never deadlock.
    pub fn lock_before<G: Guarded>(
        &self,
        fence: K::Ref<'_>,
        (held, seen): (u32, Version),
        guard: &K::Guard,
        version_of: impl Fn(u32) -> Option<Version>,
        leaf: impl Fn(u32) -> G,
    ) -> Option<Locked<G>> {
        // The caller's own lock would be waited for forever.
        let version_of = |id| if id == held { Some(seen) } else { version_of(id) };
        loop {
            let (id, version, _) = self.find_before(Some(fence), guard, version_of);
            if id == held {
                return None;
            }
            if let Some(left) = Locked::at(leaf(id), version) {
                return Some(left);
            }
        }
    }

    /// Returns the position of the last leaf that begins before a key, and its low fence, unless the index changed
    /// meanwhile. Compiled once per kind of key, instead of once per caller of [`find_before`](Self::find_before).
    #[inline(never)]
    fn cursor_before(&self, key: Option<K::Ref<'_>>, guard: &K::Guard) -> Option<(Cursor, Option<K::Owned>)> {
        let (node, seen) = self.descend::<AnyLayout>(key, Side::Before, 1, guard).ok()?;
        let at = self.choose(node, seen, key, Side::Before, guard).ok()?;
        let fence = self.fence(node, seen, at, guard).ok()?;
        Some((Cursor { node: node.id, seen, at }, fence))
    }

    /// Returns the low fence of the leaf at a cursor: `Some(None)` for the first leaf, `None` if the index changed.
    /// For external designs.
    #[cfg(feature = "lab")]
    pub fn begins(&self, cursor: Cursor, guard: &K::Guard) -> Option<Option<K::Owned>> {
        let node = self.nodes.get(cursor.node);
        let fence = self.fence(node, cursor.seen, cursor.at, guard).ok()?;
        node.lock.validate(cursor.seen).then_some(fence)
    }

    fn fence(
        &self,
        node: NodeRef<'_>,
        seen: Version,
        at: usize,
        guard: &K::Guard,
    ) -> Result<Option<K::Owned>, Stale> {
        if at == 0 && node.is_leftmost() {
            return Ok(None);
        }
        Ok(Some(K::owned(self.separator(node, seen, node.key(at), guard)?)))
    }

    /// Calls `visit` with every leaf and its low fence, in order. No thread may write meanwhile.
    pub fn for_each_leaf(&self, mut visit: impl FnMut(Option<K::Ref<'_>>, u32)) {
        self.each_node(|node| {
            // Pin again for each node, so that memory retired by others is not held for the whole walk.
            let guard = K::pin();
            for at in (0..node.count()).take_while(|_| node.level() == 1) {
                let first = at == 0 && node.is_leftmost();
                visit(
                    (!first).then(|| K::separator_at(&self.separators, node.key(at), &guard)),
                    node.child(at),
                );
            }
        });
    }

    /// Calls `visit` with every node, level by level from the root, each level from the left. The number of calls is
    /// bounded by the number of nodes, even if their links are damaged.
    fn each_node(&self, mut visit: impl FnMut(NodeRef<'_>)) {
        let mut first = self.root.load(Acquire);
        let mut left = self.nodes.begun();
        loop {
            let mut node = self.nodes.get(first);
            let (level, below) = (node.level(), node.child(0));
            loop {
                visit(node);
                left = left.saturating_sub(1);
                match node.right() {
                    Some((next, _)) if left > 0 => node = self.nodes.get(next),
                    _ => break,
                }
            }
            if level == 1 || left == 0 {
                return;
            }
            first = below;
        }
    }

    /// Verifies that keys ascend within and across the nodes of every level. No thread may write meanwhile.
    pub fn check(&self) -> Vec<Issue> {
        let guard = K::pin();
        let mut issues = Vec::new();
        let mut report = |what: &str| issues.push(Issue::new("index", what));
        let mut last: Option<(u32, K::Owned)> = None;
        self.each_node(|node| {
            if node.count() == 0 {
                report("a node without entries");
            }
            for at in usize::from(node.is_leftmost())..node.count() {
                let key = K::owned(K::separator_at(&self.separators, node.key(at), &guard));
                let first = K::separator_at(&self.separators, node.key(at.min(1)), &guard);
                if at > 0 && node.separator(at).rank != K::rank_behind(K::borrow(&key), node.common()) {
                    report("a rank that is not the separator's");
                }
                if at > 0 && !K::INLINE && K::common(first, K::borrow(&key)) < node.common() {
                    report("a separator without what is common to all");
                }
                if at > 0
                    && let Some(order) = node.compare_prefix::<K>(K::borrow(&key), node.common())
                    && order.is_ne()
                {
                    report("a prefix that is not the separator's");
                }
                if last.as_ref().is_some_and(|(level, last)| *level == node.level() && *last >= key) {
                    report("separators out of order");
                }
                if node.right().is_some_and(|(_, high)| {
                    K::owned(K::separator_at(&self.separators, high.word, &guard)) <= key
                }) {
                    report("a separator beyond the high key");
                }
                last = Some((node.level(), key));
            }
        });
        issues
    }
}
