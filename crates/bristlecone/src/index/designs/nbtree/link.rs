//! After a leaf was replaced or emptied: updates the index, now or later, and reclaims memory that no thread can
//! reach any more.

use bristlecone_pm::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use bristlecone_pm::sync::wait;
use bristlecone_pm::{Alone, Medium, Result};

use super::NbTree;
use super::layout::{EMPTY, SEALED_EMPTY};
use super::leaf::{FROZEN, Leaf, Succession};
use super::lookup::Pins;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::lost_records;
use crate::index::parts::optimistic_lock::pause;
use crate::index::parts::slot::bits;
use crate::index::parts::volatile_index::Step;

/// Number of attempts to obtain the right to decide about a leaf. A thread that is deciding about another leaf may
/// be suspended, so it is not waited for: the empty leaf stays until a key of its range is accessed.
const CONDEMN_ROUNDS: u32 = 64;
/// Number of epochs that must end before all previously released memory is free, if no thread is pinned.
const EPOCHS: u32 = 4;
/// Maximum number of leaves that a write without space replaces to free their keys.
const GIVEN_BACK: usize = 8;

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Link 3, free 3: replaces a leaf by its successors in the index, or removes it if it has none. If another
    /// thread holds the lock there, a later thread repeats this: until then the leaf forwards to its successors.
    pub(super) fn install(&self, id: u32, key: K::Ref<'_>, pins: &Pins<K>) {
        let leaf = self.leaves.get(id);
        let succession = leaf.succession();
        if succession.is_removed() {
            return self.remove_from_index(id, key, pins);
        }
        let right = succession.right().map(|right| {
            (K::separator_at(self.inner.separators(), self.leaves.get(right).low(), &pins.key), right)
        });
        if self.inner.replace(key, id, succession.left(), right, &pins.key) {
            self.release_dead_keys(leaf, pins);
            self.retire(id);
        }
    }

    /// Returns the successor of a leaf that covers `key`.
    pub(super) fn successor(&self, leaf: &Leaf, key: K::Ref<'_>, pins: &Pins<K>) -> u32 {
        let succession = leaf.succession();
        match succession.right() {
            Some(right)
                if K::separator_at(self.inner.separators(), self.leaves.get(right).low(), &pins.key)
                    <= K::shorten(key) =>
            {
                right
            }
            _ => succession.left(),
        }
    }

    /// Free: removes a leaf without items from the index, unless it is the only one, or another thread still writes
    /// to it.
    #[cold]
    pub(super) fn free_if_empty(&self, id: u32, key: K::Ref<'_>, pins: &Pins<K>) {
        let leaf = self.leaves.get(id);
        if self.items(leaf) > 0 {
            return;
        }
        if self.inner.is_single() {
            // No thread needs the blocks of the previous leaves: the heap may reuse them.
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
            match cell.publish_if(self.medium(), EMPTY, SEALED_EMPTY, &Alone) {
                Ok(_) | Err(SEALED_EMPTY) => {}
                Err(_) => {
                    // An item was inserted again. If the pool is full, other threads will retry.
                    let _ = self.replace(id, key, pins);
                    return;
                }
            }
        }
        self.medium().reached("nbtree free.2");
        if self.condemn(id, key, pins) {
            self.open(leaf);
            self.medium().reached("nbtree free.3");
            self.remove_from_index(id, key, pins);
            pins.epoch.flush();
        }
        self.reclaim();
    }

    /// Decides to remove an empty leaf, all of whose slots are sealed, without a successor. At most one leaf of the
    /// tree is being removed at any time, so the last two cannot both be removed. Returns `false` if the leaf
    /// stays: it is the only one, or another thread has decided, or is deciding about another leaf.
    fn condemn(&self, id: u32, key: K::Ref<'_>, pins: &Pins<K>) -> bool {
        for round in 0..CONDEMN_ROUNDS {
            let Err(other) = self.leaving.compare_exchange(0, id + 1, AcqRel, Acquire) else {
                // While this leaf holds the right, no other one can leave the index.
                let is_there = self.inner.find(key, &pins.key, |leaf| self.version_of(leaf)).0 == id;
                let leaf = self.leaves.get(id);
                let decided = is_there && !self.inner.is_single() && leaf.decide(Succession::removed());
                if !decided {
                    self.leaving.store(0, Release);
                }
                return decided;
            };
            if other == id + 1 {
                return false;
            }
            self.help_out(other - 1, pins);
            pause(round);
        }
        false
    }

    /// Completes the removal of a leaf that was being removed while the caller was pinned.
    fn help_out(&self, id: u32, pins: &Pins<K>) {
        let leaf = self.leaves.get(id);
        if !leaf.succession().is_removed() {
            return;
        }
        self.open(leaf);
        // A leaf that lost its items had some: their keys lie in its range, and remain until it is removed.
        if let Some(slot) = bits(self.bitmap(leaf) & !FROZEN).next() {
            let word = self.slot(leaf, slot).key.load(self.medium());
            self.remove_from_index(id, self.keys.read(word, &pins.key), pins);
        }
    }

    /// Free 3: removes a leaf from the index whose block durably belongs to no leaf. From here on a neighbour
    /// covers its range.
    fn remove_from_index(&self, id: u32, key: K::Ref<'_>, pins: &Pins<K>) {
        // Only one caller gets `true` for a leaf.
        let removed = self.inner.remove(key, id, &pins.key, |_| true);
        // Must precede the reuse of the leaf, also if a second thread is late: that thread is pinned.
        let _ = self.leaving.compare_exchange(id + 1, 0, AcqRel, Relaxed);
        if removed {
            self.release_dead_keys(self.leaves.get(id), pins);
            self.retire(id);
        }
    }

    /// Releases the keys of slots without an item, which were needed while the leaf was searched.
    fn release_dead_keys(&self, leaf: &Leaf, pins: &Pins<K>) {
        if K::INLINE {
            return;
        }
        for slot in bits(self.bitmap(leaf) & !FROZEN) {
            let cell = self.slot(leaf, slot);
            if cell.value.load(self.medium()) == SEALED_EMPTY {
                self.keys.retire(cell.key.load(self.medium()), &pins.key);
            }
        }
    }

    /// Retires a leaf that no thread can newly reach. Its block and its descriptor become free when the threads
    /// that reached it before have unpinned.
    pub(super) fn retire(&self, id: u32) {
        self.outstanding.fetch_add(1, Relaxed);
        let queue = self.retired.queue();
        // SAFETY: the closure owns what it uses, and may run on any thread.
        unsafe { bristlecone_pm::sync::epoch::pin().defer_unchecked(move || queue.push(id)) };
    }

    /// Returns a numbered block for a new leaf: a reclaimed one, which caches may still hold, or one from the heap.
    pub(super) fn fresh_block(&self) -> Result<u64> {
        if let Some(block) = self.take_back() {
            return Ok(block);
        }
        let block = self.blocks.alloc()?;
        match self.leaves.add(block) {
            Ok(_) => Ok(block),
            Err(error) => {
                self.blocks.free(block);
                Err(error)
            }
        }
    }

    /// Frees the blocks of leaves that every thread has released.
    pub(super) fn reclaim(&self) {
        while let Some(block) = self.take_back() {
            self.blocks.free(block);
        }
    }

    fn take_back(&self) -> Option<u64> {
        let leaf = self.leaves.get(self.retired.pop()?);
        // Threads that read unpinned must notice before anything is reused.
        leaf.incarnation.expire();
        self.release_low(leaf);
        self.outstanding.fetch_sub(1, Relaxed);
        Some(leaf.block())
    }

    /// Frees the separator of a leaf's low fence.
    fn release_low(&self, leaf: &Leaf) {
        let low = leaf.take_low();
        if low != 0 {
            K::retire_separator(self.inner.separators(), low, &K::pin());
        }
    }

    /// Returns the number of blocks, keys and values that only readers keep from being reused.
    fn held(&self) -> u64 {
        let blocks = (self.outstanding.load(Relaxed) as u64).saturating_sub(self.retired.len() as u64);
        blocks + self.keys.records.held() + self.values.records.held()
    }

    /// Tries to make space after the `round`th failed write for `key`, by ending epochs or by replacing leaves that
    /// keep keys without items. Returns whether there may be space now. The caller must not be pinned.
    #[cold]
    pub(super) fn make_room(&self, key: K::Ref<'_>, round: u32) -> bool {
        let freed = self.epochs.end(&|| self.held());
        match round {
            // Memory may have become free just before this check.
            0 => true,
            // Records that a killed process left behind.
            1 if self.has_freed_lost_records() => true,
            1 if self.give_back(key) => {
                self.epochs.end(&|| self.held());
                true
            }
            _ => freed,
        }
    }

    fn has_freed_lost_records(&self) -> bool {
        lost_records::may_exist([&self.keys.records, &self.values.records]) && self.free_lost_records()
    }

    /// Replaces some leaves that keep keys without items, from that of `key` on, to free these keys' records;
    /// returns whether there were any.
    fn give_back(&self, key: K::Ref<'_>) -> bool {
        if K::INLINE {
            return false;
        }
        let mut futile = wait::lock(&self.futile);
        let state = self.len.sum();
        if !futile.is_past(state) {
            return false;
        }
        let mut replaced = 0;
        // From the key to the right end first, then from the beginning.
        for from in [Some(key), None] {
            replaced += self.give_back_from(from, GIVEN_BACK - replaced);
        }
        futile.remember((replaced == 0).then_some(state));
        replaced > 0
    }

    /// Replaces such leaves from that of `from` on, at most `at_most`; returns their number.
    fn give_back_from(&self, from: Option<K::Ref<'_>>, at_most: usize) -> usize {
        let pins = Pins::<K>::new();
        let version_of = |leaf| self.version_of(leaf);
        let (mut id, _, mut cursor) = self.inner.seek(from, &pins.key, version_of, |_| {});
        let mut replaced = 0;
        while replaced < at_most {
            let leaf = self.leaves.get(id);
            let mut last = None;
            if leaf.pending.removed() > 0
                && let Some(slot) = bits(self.bitmap(leaf) & !FROZEN).next()
            {
                let key = self.keys.read(self.slot(leaf, slot).key.load(self.medium()), &pins.key);
                if self.replace(id, key, &pins).is_err() {
                    break;
                }
                replaced += 1;
                last = Some(key);
            }
            (id, cursor) = match self.inner.next(cursor, version_of) {
                Step::Leaf(id, _, cursor) => (id, cursor),
                Step::End => break,
                Step::Lost => match last {
                    Some(key) => {
                        let (id, _, cursor) = self.inner.seek(Some(key), &pins.key, version_of, |_| {});
                        (id, cursor)
                    }
                    // Other threads are working here.
                    None => break,
                },
            };
        }
        replaced
    }

    /// Returns the number of leaves that are retired and not yet reclaimed.
    pub(super) fn outstanding(&self) -> u64 {
        for _ in 0..EPOCHS {
            bristlecone_pm::sync::epoch::pin().flush();
        }
        self.reclaim();
        self.outstanding.load(Acquire) as u64
    }
}
