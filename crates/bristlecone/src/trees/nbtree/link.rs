//! What follows when a leaf was replaced or emptied: the index learns of it, sooner or later, and
//! what nobody can reach any more is used again.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use bristlecone_pm::{Medium, Persist, Result};

use super::NbTree;
use super::layout::{EMPTY, SEALED_EMPTY};
use super::leaf::{FROZEN, Leaf, Succession};
use super::read::Pins;
use crate::shared::form::{KeyForm, ValueForm};
use crate::shared::slot::bits;

impl<K: KeyForm, V: ValueForm, M: Medium> NbTree<K, V, M> {
    /// Link 3: puts the heirs of a leaf into the index in its place. If somebody is busy there,
    /// another one does it who comes by: until then the leaf forwards to them.
    pub(super) fn install(&self, id: u32, key: K::Ref<'_>, pins: &Pins<K, V>) {
        let leaf = self.leaves.get(id);
        let succession = leaf.succession();
        if succession.is_removed() {
            return;
        }
        let right =
            succession.right().map(|right| (K::separator_at(self.leaves.get(right).low(), &pins.key), right));
        if self.inner.replace(key, id, succession.left(), right, &pins.key) {
            self.release_dead_keys(leaf, pins);
            self.retire(id);
        }
    }

    /// The heir of a leaf that is in charge of `key`.
    pub(super) fn heir(&self, leaf: &Leaf, key: K::Ref<'_>, pins: &Pins<K, V>) -> u32 {
        let succession = leaf.succession();
        match succession.right() {
            Some(right) if K::separator_at(self.leaves.get(right).low(), &pins.key) <= K::shorten(key) => {
                right
            }
            _ => succession.left(),
        }
    }

    /// Free: a leaf without items leaves the index, unless it is the only one, or somebody
    /// writes to it after all.
    #[cold]
    pub(super) fn shed(&self, id: u32, key: K::Ref<'_>, pins: &Pins<K, V>) {
        let leaf = self.leaves.get(id);
        if self.items(leaf) > 0 {
            return;
        }
        if self.inner.is_single() {
            // Nobody will need the blocks of the leaves that were: the heap may give them back.
            if self.outstanding.load(Relaxed) > 0 {
                pins.epoch.flush();
                self.reclaim();
            }
            return;
        }
        let seen = self.freeze(leaf);
        self.medium().reached("nbtree free.1");
        for slot in bits(seen) {
            let cell = &self.slot(leaf, slot).value;
            let ordered = self.medium().ordered_within_line();
            match cell.publish_if(self.medium(), EMPTY, SEALED_EMPTY, &ordered) {
                Ok(_) | Err(SEALED_EMPTY) => {}
                Err(_) => {
                    // An item came back. Where the pool is full, others will try again.
                    let _ = self.replace(id, key, pins);
                    return;
                }
            }
        }
        self.medium().reached("nbtree free.2");
        if self.inner.remove(key, id, &pins.key, |_| leaf.decide(Succession::removed())) {
            // By nobody: a stamp that no draft has, so that none counts that another thread makes.
            self.mark_replaced(leaf, self.stamp(), "nbtree free.2");
            self.release_dead_keys(leaf, pins);
            self.retire(id);
            pins.epoch.flush();
        }
        self.reclaim();
    }

    /// Keys of slots without an item were needed as long as the leaf was searched.
    fn release_dead_keys(&self, leaf: &Leaf, pins: &Pins<K, V>) {
        if K::INLINE {
            return;
        }
        for slot in bits(self.bitmap(leaf) & !FROZEN) {
            let cell = self.slot(leaf, slot);
            if cell.value.load(self.medium()) == SEALED_EMPTY {
                K::retire(&self.keys, cell.key.load(self.medium()), &pins.key);
            }
        }
    }

    /// Nobody who comes from now on reaches the leaf; its block and its descriptor are free once
    /// those who came before are gone.
    pub(super) fn retire(&self, id: u32) {
        self.outstanding.fetch_add(1, Relaxed);
        let queue = Arc::clone(&self.retired);
        // SAFETY: the closure owns what it uses, and may run on any thread.
        unsafe { crossbeam_epoch::pin().defer_unchecked(move || queue.push(id)) };
    }

    /// A block for a new leaf: that of a leaf that everybody has let go of, which caches may still hold,
    /// or one from the heap.
    pub(super) fn fresh_block(&self) -> Result<u64> {
        self.take_back().map_or_else(|| self.blocks.alloc(), Ok)
    }

    /// Gives the blocks of leaves back that everybody has let go of.
    pub(super) fn reclaim(&self) {
        while let Some(block) = self.take_back() {
            self.blocks.free(block);
        }
    }

    fn take_back(&self) -> Option<u64> {
        let leaf = self.leaves.get(self.retired.pop()?);
        // Those who read unpinned notice before anything is used again.
        leaf.incarnation.expire();
        Self::release_low(leaf);
        self.outstanding.fetch_sub(1, Relaxed);
        Some(leaf.block())
    }

    /// Frees the separator at which a leaf begins.
    fn release_low(leaf: &Leaf) {
        let low = leaf.take_low();
        if low != 0 {
            K::retire_separator(low, &K::pin());
        }
    }

    /// Leaves that are retired and not yet taken back.
    pub(super) fn outstanding(&self) -> u64 {
        for _ in 0..4 {
            crossbeam_epoch::pin().flush();
        }
        self.reclaim();
        self.outstanding.load(Acquire) as u64
    }
}

impl<K: KeyForm, V: ValueForm, M: Medium> Drop for NbTree<K, V, M> {
    fn drop(&mut self) {
        if !K::INLINE {
            self.leaves.all().for_each(Self::release_low);
        }
    }
}
