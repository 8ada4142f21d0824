//! Dense leaves from ascending items, for a tree that no thread can access yet. Each is written like the new leaf of a
//! split (split 1 and 2). The tree is not in the directory yet, so a crash discards all of it.

use bristlecone_pm::{Flushed, Medium, Result};
use smallvec::SmallVec;

use super::SsTree;
use super::layout::LEAF_SLOTS_MAX;
use super::split::Part;
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::{Write, WriteMode};

impl<K: KeyCodec, M: Medium> SsTree<K, M> {
    /// Appends items to a tree that no other thread can access; returns their number. Items that do not fill a leaf are
    /// left out, unless they are the `last` ones.
    pub(super) fn append_leaves<V: Storage>(
        &self,
        items: &[(K::Ref<'_>, V::Ref<'_>)],
        last: bool,
    ) -> Result<usize> {
        let slots = self.shape.slots * self.shape.subnodes_max;
        let mut done = 0;
        if self.len.sum() == 0 {
            // The existing leaf.
            done = items.len().min(slots);
            for (key, value) in &items[..done] {
                Write::<K, V>::write(self, *key, *value, WriteMode::Upsert)?;
            }
        }
        let guard = K::pin();
        while done < items.len() && (last || items.len() - done >= slots) {
            let leaf = &items[done..(done + slots).min(items.len())];
            let first = K::shorten(leaf[0].0);
            let separator = match done.checked_sub(1) {
                Some(before) => K::separator(K::shorten(items[before].0), first),
                None => first,
            };
            let mut flushed = Flushed::none();
            let mut parts: SmallVec<[_; LEAF_SLOTS_MAX.next_power_of_two()]> = SmallVec::new();
            for (key, value) in leaf {
                // Records that are written in order are neighbours without a leaf's nest.
                let (item, of_item) = self.write_records::<V>(0, *key, *value)?;
                flushed = flushed.and(of_item);
                parts.push(Part { key: K::shorten(*key), words: (item.key, item.value), bit: 0 });
            }
            self.fence_records::<V>(flushed);
            let _room = self.inner.reserve(1)?;
            let (id, _durable) = self.new_leaf(&parts)?;
            self.inner.insert(separator, id, &guard);
            self.len.add(leaf.len() as i64);
            done += leaf.len();
        }
        self.pool.health()?;
        Ok(done)
    }
}
