//! Replacement of a leaf, for trees whose old leaves forward late threads, so that the index may
//! lag behind.

use bristlecone_pm::sync::Ordering::Acquire;

use super::{AnyLayout, KeyCodec, NodeRef, Side, VolatileIndex};
use crate::index::parts::optimistic_lock::Version;

impl<K: KeyCodec> VolatileIndex<K> {
    /// Replaces the leaf `old`, whose range holds `key`, by `left` and, from a separator on,
    /// `right`. Returns `false` if another thread did so, or if the node is being changed: retry
    /// later. Only one caller gets `true` for a leaf.
    pub fn replace(
        &self,
        key: K::Ref<'_>,
        old: u32,
        left: u32,
        right: Option<(K::Ref<'_>, u32)>,
        guard: &K::Guard,
    ) -> bool {
        // Without memory for a right leaf, the index lags behind for longer.
        let Ok(_room) = self.reserve(usize::from(right.is_some())) else { return false };
        let Some((node, at)) = self.lock_entry(key, old, guard) else { return false };
        let change = self.changes.begin(&self.nodes, node);
        node.set_child(at, left);
        let promoted = right.and_then(|(separator, right)| {
            let word = K::make_separator(&self.separators, separator);
            self.add_entry(node, K::separator_at(&self.separators, word, guard), word, right, guard)
        });
        drop(change);
        node.lock.unlock();
        if let Some((separator, node)) = promoted {
            self.tend_hints();
            self.insert_above(2, separator, node, guard);
        }
        true
    }

    /// Locks the node with `leaf` as the entry whose range holds `key`.
    fn lock_entry(&self, key: K::Ref<'_>, leaf: u32, guard: &K::Guard) -> Option<(NodeRef<'_>, usize)> {
        let (node, seen): (NodeRef<'_>, Version) =
            self.descend::<AnyLayout>(Some(key), Side::From, 1, guard).ok()?;
        let at = self.choose(node, seen, Some(key), Side::From, guard).ok()?;
        (node.child(at) == leaf && node.lock.upgrade(seen)).then_some((node, at))
    }

    /// Returns whether the index has one leaf only. The result is approximate while other threads
    /// change it.
    pub fn is_single(&self) -> bool {
        let mut node = self.nodes.get(self.root.load(Acquire));
        loop {
            let Some(seen) = node.lock.read() else { return false };
            // The height of the root never decreases.
            if node.count() > 1 || node.right().is_some() {
                return false;
            }
            let (level, below) = (node.level(), node.child(0));
            if level == 1 || !node.lock.validate(seen) {
                return level == 1;
            }
            node = self.nodes.get(below);
        }
    }
}
