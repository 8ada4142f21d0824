//! Replacement of a full leaf by one or two leaves with its contents, while all threads continue to use it: copy, sync,
//! link. Any number of threads may replace the same leaf; each makes its own copy of the new leaves, and one copy is
//! used.

use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::{Alone, Durable, Flushed, Medium, Persist, Result, Step};

use super::NbTree;
use super::copy::{Half, LeafCopy};
use super::layout::{EMPTY, Header, SEALED_EMPTY, State, Stored};
use super::leaf::{Leaf, Succession};
use super::lookup::Pins;
use super::meta::Tag;
use crate::index::parts::arena::Room;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::slot::bits;

/// Number of times that a thread copies the value of a slot before it asks the threads that change it to replace the
/// leaf as well. From then on each of them changes it at most once more.
const STILL_ROUNDS: u32 = 4;

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Replaces a leaf. After `Ok` some thread has replaced or freed it, durably. `key` is the key that the caller
    /// needs: [`Cut`](crate::index::parts::split::Cut) says what goes to the right for it.
    #[cold]
    pub(super) fn replace(&self, id: u32, key: K::Ref<'_>, pins: &Pins<K>) -> Result<()> {
        let leaf = self.leaves.get(id);
        self.prefetch_block(leaf.block());
        if !leaf.succession().is_decided() {
            // Space is reserved first: a full pool leaves the leaf unchanged.
            let (blocks, _room) = self.blocks_for(leaf)?;
            for block in blocks.into_iter().filter(|block| *block != 0) {
                self.prefetch_block(block);
                self.leaves.prefetch(self.leaves.of(block));
            }
            let seen = self.freeze(leaf);
            self.medium().reached("nbtree copy.1");
            let mut copy = self.copy(leaf, seen, blocks, K::shorten(key), pins);
            self.sync(leaf, seen, &mut copy, pins);
            self.decide(leaf, &copy);
        }
        self.open(leaf);
        self.medium().reached("nbtree link.3");
        self.install(id, key, pins);
        Ok(())
    }

    /// Returns one block if the items are few, two if they are many. The second is zero if a full pool has only one
    /// block and one is enough. The index has space reserved for the second one.
    fn blocks_for(&self, leaf: &Leaf) -> Result<([u64; 2], Option<Room<'_>>)> {
        let first = self.fresh_block()?;
        let (items, slots) = (self.items(leaf), self.shape.slots as i32);
        if items <= slots / 2 {
            return Ok(([first, 0], None));
        }
        match self.inner.reserve(1).and_then(|room| Ok((self.fresh_block()?, room))) {
            Ok((second, room)) => Ok(([first, second], Some(room))),
            Err(_) if items < slots => Ok(([first, 0], None)),
            Err(error) => {
                self.blocks.free(first);
                Err(error)
            }
        }
    }

    /// Sync: ensures that no value of the old leaf changes any more, and that the copy has all of them, durably.
    fn sync(&self, leaf: &Leaf, seen: u64, copy: &mut LeafCopy<K::Ref<'_>>, pins: &Pins<K>) {
        let flushed = std::mem::replace(&mut copy.flushed, Flushed::none());
        let durable = self.medium().fence(flushed, "nbtree copy.2");
        if self.visible_is_durable {
            return self.seal(leaf, seen, copy, durable, pins);
        }
        self.medium().reached("nbtree sync.1");
        leaf.still();
        if leaf.pending.is_flushing_anywhere() {
            return self.seal(leaf, seen, copy, durable, pins);
        }
        // A writer announces a change, and then checks whether it is allowed: no writer that passed the check is left,
        // and their changes are durable.
        let old = self.slots_of(leaf.block());
        let mut late = false;
        for slot in bits(seen) {
            let word = old[slot].value.load(self.medium());
            if word != copy.items.value(slot) {
                let value = self.resolve(word);
                if value != copy.items.value(slot) {
                    self.copy_again(leaf, slot, value, copy, pins);
                    late = true;
                }
            }
        }
        if late {
            let flushed = std::mem::replace(&mut copy.flushed, Flushed::none());
            let Durable { .. } = self.medium().fence(flushed, "nbtree sync.2");
        }
    }

    /// Sync 3: seals slot after slot of the old leaf, each by one compare-and-swap that fails if the value differs from
    /// that in the copy, durably. A sealed slot never changes again.
    #[cold]
    fn seal(
        &self,
        leaf: &Leaf,
        seen: u64,
        copy: &mut LeafCopy<K::Ref<'_>>,
        mut durable: Durable,
        pins: &Pins<K>,
    ) {
        let medium = self.medium();
        let mut late = false;
        let old = self.slots_of(leaf.block());
        // No more keys join, and those that did are durable if no flush is pending.
        let keys_durable = self.visible_is_durable || !leaf.pending.is_flushing_anywhere();
        for slot in bits(seen) {
            medium.reached("nbtree sync.3");
            let cell = &old[slot].value;
            if keys_durable {
                let value = copy.items.value(slot);
                let seal = self.seal_of(value, copy, slot);
                if cell.publish_if(medium, value, seal, &durable).is_ok() {
                    continue;
                }
            }
            for round in 0_u32.. {
                if round == STILL_ROUNDS {
                    leaf.still();
                }
                let word = cell.load(medium);
                let sealed = Stored::is_sealed(word);
                let value = self.resolve(word);
                if value != copy.items.value(slot) {
                    self.copy_again(leaf, slot, value, copy, pins);
                    late = true;
                    if !sealed && value != EMPTY {
                        // The target of a seal must be durable before.
                        let flushed = std::mem::replace(&mut copy.flushed, Flushed::none());
                        durable = medium.fence(flushed, "nbtree sync.2");
                        late = false;
                    }
                }
                if sealed {
                    break;
                }
                let seal = self.seal_of(value, copy, slot);
                if cell.publish_if(medium, word, seal, &durable).is_ok() {
                    break;
                }
            }
        }
        if late {
            let flushed = std::mem::replace(&mut copy.flushed, Flushed::none());
            let Durable { .. } = medium.fence(flushed, "nbtree sync.2");
        }
    }

    /// Returns the seal for a slot with this value, which the copy has as well.
    #[inline(always)]
    fn seal_of(&self, value: u64, copy: &LeafCopy<K::Ref<'_>>, slot: usize) -> u64 {
        match copy.place(slot) {
            Some((half, at)) if value != EMPTY => {
                Stored::sealed(self.shape.cell(copy.halves[half].block, at))
            }
            _ => SEALED_EMPTY,
        }
    }

    /// Carries over changes since the copy; their flush is pending.
    fn copy_again(
        &self,
        leaf: &Leaf,
        slot: usize,
        value: u64,
        copy: &mut LeafCopy<K::Ref<'_>>,
        pins: &Pins<K>,
    ) {
        let medium = self.medium();
        let (right, at) = copy.place(slot).unwrap_or_else(|| {
            let word = self.slot(leaf, slot).key.load(medium);
            let key = self.keys.read(word, &pins.key);
            let right = copy.separator.is_some_and(|separator| K::shorten(separator) <= K::shorten(key));
            let right = usize::from(right);
            // The old leaf has as many slots as each of the halves, so there is space.
            let at = copy.give(slot, right, self.shape, Tag::of::<K>(key));
            self.slots_of(copy.halves[right].block)[at].key.store(medium, word);
            (right, at)
        });
        let half = &mut copy.halves[right];
        half.items = half.items & !(1 << at) | u64::from(value != EMPTY) << at;
        copy.items.set_value(slot, value);
        let target = &self.slots_of(half.block)[at];
        target.value.store(medium, value);
        let flushed = medium.flush(target, "nbtree sync.2");
        copy.flushed = std::mem::replace(&mut copy.flushed, Flushed::none()).and(flushed);
    }

    /// Link 1: decides that this copy is used, or finds that another one was chosen.
    fn decide(&self, leaf: &Leaf, copy: &LeafCopy<K::Ref<'_>>) {
        let make = |half: &Half, low: Option<u64>| {
            let id = self.leaves.of(half.block);
            let new = self.leaves.get(id);
            self.set_meta(new, half.block, half.items, &half.tags);
            new.begin(half.block, low);
            id
        };
        let left = make(&copy.halves[0], None);
        let low = copy.separator.map(|key| K::make_separator(self.inner.separators(), key));
        let right = low.map(|low| make(&copy.halves[1], Some(low)));
        self.medium().reached("nbtree link.1");
        if leaf.decide(Succession::successors(left, right)) {
            right.iter().for_each(|_| self.pool.events().note_split());
            return;
        }
        // Seals of the old leaf may refer to cells of this copy: they must stay until the decision is durable, and no
        // thread reads the old leaf.
        self.open(leaf);
        for id in [Some(left), right].into_iter().flatten() {
            self.discard(self.leaves.get(id).block());
            self.retire(id);
        }
    }

    /// Link 2, free 2: makes the decision durable, which is valid from then on.
    pub(super) fn open(&self, leaf: &Leaf) {
        let succession = leaf.succession();
        if succession.is_open() {
            return;
        }
        if succession.is_removed() {
            // With no copy's stamp, so that no copy of another thread is valid.
            self.mark_replaced(leaf, self.stamp(), "nbtree free.2");
            leaf.open();
            return;
        }
        self.medium().reached("nbtree link.2");
        let successor: &Header = self.pool.at(self.leaves.get(succession.left()).block());
        self.mark_replaced(leaf, successor.birth.load(self.medium()), "nbtree link.2");
        leaf.open();
    }

    /// Marks the leaf's block as replaced by blocks created with this stamp, which are durable.
    fn mark_replaced(&self, leaf: &Leaf, by: u64, step: Step) {
        let medium = self.medium();
        let header: &Header = self.pool.at(leaf.block());
        header.state.publish(medium, State::Replaced { by }.encode(), &Alone, step);
        medium.persist(header, step);
    }

    /// Returns a stamp that is greater than all earlier ones.
    pub(super) fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Relaxed)
    }

    /// Durably marks a copy that was not chosen, before the old leaf's block is reused.
    pub(super) fn discard(&self, block: u64) {
        let state = &self.pool.at::<Header>(block).state;
        // Replaced by no leaf.
        state.store(self.medium(), State::Replaced { by: self.stamp() }.encode());
        self.medium().persist(state, "nbtree link.1 discard");
    }
}
