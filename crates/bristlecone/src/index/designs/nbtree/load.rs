//! Load: dense leaves from ascending items. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Durable, Flushed, Medium, Persist, Result};

use super::NbTree;
use super::copy::{Half, NO_ITEMS};
use super::layout::Stored;
use super::meta::Tag;
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::{Write, WriteMode};

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Load 1: appends items to a tree that no other thread can access; returns their number. Items
    /// that do not fill a leaf are left out, unless they are the `last` ones.
    pub(super) fn append_leaves<V: Storage>(
        &self,
        items: &[(K::Ref<'_>, V::Ref<'_>)],
        last: bool,
    ) -> Result<usize> {
        let slots = self.shape.slots;
        let mut done = 0;
        if self.len.sum() == 0 {
            // The existing leaf.
            done = items.len().min(slots);
            for (key, value) in &items[..done] {
                Write::<K, V>::write(self, *key, *value, WriteMode::Upsert)?;
            }
        }
        let guard = K::pin();
        let mut flushed = Flushed::none();
        while done < items.len() && (last || items.len() - done >= slots) {
            let leaf = &items[done..(done + slots).min(items.len())];
            let first = leaf[0].0;
            let separator = match done.checked_sub(1) {
                Some(before) => K::separator(K::shorten(items[before].0), K::shorten(first)),
                None => K::shorten(first),
            };
            let _room = self.inner.reserve(1)?;
            let block = self.fresh_block()?;
            flushed = flushed.and(self.write_leaf::<V>(block, leaf)?);
            self.inner.insert(separator, self.leaves.of(block), &guard);
            done += leaf.len();
        }
        let Durable { .. } = self.medium().fence(flushed, "nbtree load.1 fence");
        self.pool.health()?;
        Ok(done)
    }

    /// Writes a leaf with these items.
    fn write_leaf<V: Storage>(&self, block: u64, items: &[(K::Ref<'_>, V::Ref<'_>)]) -> Result<Flushed> {
        let mut half = Half::new(block);
        let mut image = NO_ITEMS;
        let mut flushed = Flushed::none();
        for (key, value) in items {
            let (word, of_key) = self.keys.write(*key, "nbtree load.1 key")?;
            let (value, of_value) = self.values.of::<V>().write(*value, "nbtree load.1 value")?;
            flushed = flushed.and(of_key).and(of_value);
            let value = match Stored::plain(value) {
                Some(plain) if V::INLINE => plain,
                None if V::INLINE => {
                    let (boxed, of_box) =
                        self.values.records.write(&value.to_le_bytes(), "nbtree load.1 box")?;
                    flushed = flushed.and(of_box);
                    boxed
                }
                _ => value,
            };
            let slot = half.place(self.shape, Tag::of::<K>(*key));
            image[2 * slot..2 * slot + 2].copy_from_slice(&[word, value]);
        }
        flushed = flushed.and(self.write_block(block, &image, 0, self.stamp(), "nbtree load.1"));
        let leaf = self.leaves.get(self.leaves.of(block));
        self.set_meta(leaf, block, half.taken, &half.tags);
        leaf.begin(block, None);
        self.len.add(items.len() as i64);
        Ok(flushed)
    }
}
