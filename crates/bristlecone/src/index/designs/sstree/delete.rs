//! Removal of items, and of subnodes and leaves that become empty. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Alone, Durable, Flushed, Medium, Persist, Result, Word};

use super::SsTree;
use super::layout::{END, FREE};
use super::leaf::{Locked, View};
use super::read::Found;
use crate::index::Removed;
use crate::index::parts::codec::{KeyCodec, Storage};

impl<K: KeyCodec, M: Medium> SsTree<K, M> {
    /// Removes the item of `key`, if its value is `expected` where one is given.
    #[inline(always)]
    pub(super) fn delete<V: Storage>(
        &self,
        key: K::Ref<'_>,
        expected: Option<V::Ref<'_>>,
    ) -> Result<Removed<V>> {
        let guards = (K::pin(), V::pin());
        let (id, leaf, found) = self.lock_leaf(key, &guards.0, |found| found.is_some());
        let Some(found) = found else { return Ok(Err(None)) };
        let old = self.value_of::<V>(found, &guards.1);
        if expected.is_some_and(|expected| V::borrow(&old) != V::shorten(expected)) {
            return Ok(Err(Some(old)));
        }
        match self.clear_one(&leaf, found) {
            Some(word) => {
                self.medium().persist(word, "sstree delete.1");
                drop(leaf);
            }
            None => self.clear_last(id, leaf, found, key, &guards.0),
        }
        self.keys.retire(found.key, &guards.0);
        self.values.of::<V>().retire(found.value, &guards.1);
        self.len.add(-1);
        self.pool.health()?;
        Ok(Ok(old))
    }

    /// Delete 1 for an item of a leaf whose tail keeps other items: clears its bit, and returns the word to flush.
    /// Returns `None` if it is the last item of the tail; nothing has been modified.
    #[inline(always)]
    pub(super) fn clear_one<'t>(&'t self, leaf: &Locked<'t>, found: Found) -> Option<&'t Word> {
        let bitmap = leaf.bitmap() & !(1 << (found.at * self.shape.slots + found.slot));
        if bitmap & self.shape.bits(leaf.count() - 1) == 0 {
            return None;
        }
        let word = &self.header(leaf.subnode(0)).bitmap;
        word.publish(self.medium(), bitmap, &Alone, "sstree delete.1");
        leaf.set_bitmap(bitmap);
        Some(word)
    }

    /// Removes the last item of a leaf's tail together with the tail, and the leaf if it becomes empty.
    #[inline(never)]
    fn clear_last(&self, id: u32, leaf: Locked<'_>, found: Found, key: K::Ref<'_>, guard: &K::Guard) {
        let cleared = 1 << (found.at * self.shape.slots + found.slot);
        self.commit(&leaf, &leaf.view(), 0, cleared, Flushed::none());
        self.free_if_empty(id, leaf, key, guard);
    }

    /// Publishes one bitmap word that sets some bits and clears others, after `flushed` is durable; a tail that this
    /// empties is reclaimed in the same steps (reclaim 1-3).
    pub(super) fn commit(&self, leaf: &Locked<'_>, view: &View, set: u64, clear: u64, flushed: Flushed) {
        let medium = self.medium();
        let head = self.header(view.subnodes[0]);
        debug_assert!(
            set & view.bitmap == 0 && clear & !view.bitmap == 0,
            "{set:#x} and {clear:#x} of {view:?}"
        );
        let mut next = View { bitmap: view.bitmap & !clear | set, ..*view };
        let emptied = view.count > 1 && next.taken(self.shape, view.count - 1) == 0;
        if set == 0 && !emptied {
            head.bitmap.publish(medium, next.bitmap, &Alone, "sstree delete.1");
            medium.persist(&head.bitmap, "sstree delete.1");
            leaf.set_bitmap(next.bitmap);
            return;
        }
        let flushed = if emptied {
            let tag = &self.header(view.tail()).next;
            tag.store(medium, FREE);
            flushed.and(medium.flush(tag, "sstree reclaim.1"))
        } else {
            flushed
        };
        let durable = medium.fence(flushed, "sstree reclaim.1 move.1");
        head.bitmap.publish(medium, next.bitmap, &durable, "sstree reclaim.2 move.2");
        if emptied && view.count == 2 {
            // The bitmap and the link share the head's line: relies on line order.
            let ordered = medium.ordered_within_line();
            head.next.publish(medium, END, &ordered, "sstree reclaim.3 head");
            medium.persist(head, "sstree reclaim.3 head");
        } else {
            let durable = medium.persist_proof(&head.bitmap, "sstree reclaim.2 move.2");
            if emptied {
                self.unlink_tail(view, &durable);
            }
        }
        if emptied {
            next.count -= 1;
        }
        leaf.set_view(&next);
        if emptied {
            self.subnodes.free(view.tail());
            self.reclaim_tails(leaf, next);
        }
    }

    /// Reclaim 3: unlinks the tail from its predecessor.
    fn unlink_tail(&self, view: &View, durable: &Durable) {
        let link = &self.header(view.subnodes[view.count - 2]).next;
        link.publish(self.medium(), END, durable, "sstree reclaim.3");
        self.medium().persist(link, "sstree reclaim.3");
    }

    /// Reclaims subnodes that had become empty in the middle and are now tails.
    fn reclaim_tails(&self, leaf: &Locked<'_>, mut view: View) {
        while view.count > 1 && view.taken(self.shape, view.count - 1) == 0 {
            let tag = &self.header(view.tail()).next;
            tag.store(self.medium(), FREE);
            let durable = self.medium().persist_proof(tag, "sstree reclaim.1 middle");
            self.unlink_tail(&view, &durable);
            let tail = view.tail();
            view.count -= 1;
            leaf.set_view(&view);
            self.subnodes.free(tail);
        }
    }
}
