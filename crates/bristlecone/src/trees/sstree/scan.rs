//! What a scan sees of a leaf: the slots of all its subnodes.

use bristlecone_pm::{LINE_BYTES, Medium, Word};

use super::SsTree;
use super::layout::{Slot, slot_offset};
use super::leaf::bits;
use crate::shared::form::{KeyForm, ValueForm};
use crate::shared::inner::Inner;
use crate::shared::prefetch;
use crate::shared::search::Level;
use crate::shared::version_lock::Version;
use crate::trees::scan::{Leafwise, Words};

impl<K: KeyForm, V: ValueForm, M: Medium> Leafwise<K, V> for SsTree<K, V, M> {
    #[inline(always)]
    fn inner(&self) -> &Inner<K> {
        &self.inner
    }

    #[inline(always)]
    fn level(&self) -> Level {
        self.leaves.level
    }

    #[inline(always)]
    fn version(&self, leaf: u32) -> Option<Version> {
        self.version_of(leaf)
    }

    #[inline(always)]
    fn prefetch_descriptor(&self, leaf: u32) {
        self.leaves.prefetch(leaf);
    }

    #[inline(always)]
    fn prefetch_items(&self, leaf: u32) {
        let view = self.leaves.get(leaf).view();
        for &subnode in view.subnodes.iter().take(view.count) {
            let words: &[Word] = self.pool.words(subnode, self.shape.subnode_bytes / 8);
            for line in words.chunks_exact(LINE_BYTES / 8) {
                prefetch(line.as_ptr());
            }
        }
    }

    #[inline(always)]
    fn snapshot(&self, leaf: u32, version: Version, words: &mut Words) -> Option<()> {
        let leaf = self.leaves.get(leaf);
        let view = leaf.view();
        leaf.lock.validate(version).then_some(())?;
        for (at, &subnode) in view.subnodes.iter().enumerate().take(view.count) {
            let slots: &[Slot] = self.pool.slice(slot_offset(subnode, 0), self.shape.slots);
            for slot in bits(view.taken(self.shape, at)) {
                let item = &slots[slot];
                words.push(item.key.load(self.medium()), item.value.load(self.medium()));
            }
        }
        leaf.lock.validate(version).then_some(())
    }

    #[inline(always)]
    fn key_at<'a>(&'a self, word: u64, guard: &'a K::Guard) -> K::Ref<'a> {
        K::read(&self.keys, word, guard)
    }

    #[inline(always)]
    fn value_at<'a>(&'a self, word: u64, guard: &'a V::Guard) -> V::Ref<'a> {
        V::read(&self.values, word, guard)
    }
}
