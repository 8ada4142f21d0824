//! Leaves take another leaf's place: for trees whose leaves forward threads that come too late, so
//! that the index may lag behind them.

use bristlecone_pm::sync::Ordering::Acquire;

use super::{AnyLayout, KeyCodec, NodeRef, Side, VolatileIndex};
use crate::index::parts::optimistic_lock::Version;

impl<K: KeyCodec> VolatileIndex<K> {
    /// Puts `left`, and from a separator on `right`, in the place of the leaf `old`, in whose
    /// range `key` lies. `false`: another thread did, or the node is being changed just now; ask
    /// again later. Only one caller is ever told `true` for a leaf.
    pub fn replace(
        &self,
        key: K::Ref<'_>,
        old: u32,
        left: u32,
        right: Option<(K::Ref<'_>, u32)>,
        guard: &K::Guard,
    ) -> bool {
        // Without memory for what a right leaf may bring, the index goes on lagging behind.
        let Ok(_room) = self.reserve(usize::from(right.is_some())) else { return false };
        let Some((node, at)) = self.lock_entry(key, old, guard) else { return false };
        node.set_child(at, left);
        let promoted = right.and_then(|(separator, right)| {
            let word = K::make_separator(&self.separators, separator);
            self.add_entry(node, K::separator_at(&self.separators, word, guard), word, right, guard)
        });
        node.lock.unlock();
        if let Some((separator, node)) = promoted {
            self.tend_hints();
            self.insert_above(2, separator, node, guard);
        }
        true
    }

    /// Locks the node in which `leaf` stands as the entry whose range holds `key`.
    fn lock_entry(&self, key: K::Ref<'_>, leaf: u32, guard: &K::Guard) -> Option<(NodeRef<'_>, usize)> {
        let (node, seen): (NodeRef<'_>, Version) =
            self.descend::<AnyLayout>(Some(key), Side::From, 1, guard).ok()?;
        let at = self.choose(node, seen, Some(key), Side::From, guard).ok()?;
        (node.child(at) == leaf && node.lock.upgrade(seen)).then_some((node, at))
    }

    /// Returns whether the index has one leaf only. A guess while others change it.
    pub fn is_single(&self) -> bool {
        let mut node = self.nodes.get(self.root.load(Acquire));
        loop {
            let Some(seen) = node.lock.read() else { return false };
            // The root stays as high as it once was.
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
