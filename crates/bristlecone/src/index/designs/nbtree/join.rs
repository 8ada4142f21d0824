//! Insert: a key joins its leaf. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Durable, Medium, Persist, Result, Step};

use super::NbTree;
use super::layout::EMPTY;
use super::leaf::{FROZEN, Leaf};
use super::lookup::{Pins, Position};
use super::meta::Tag;
use super::pending::DirtyToken;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::slot::Slot;

/// Executes the announced flush of an item's line.
pub(super) trait CompletionMode<'t> {
    fn complete(&mut self, leaf: &'t Leaf, cell: &'t Slot, token: Option<DirtyToken>, step: Step);
}

/// Executes the flush immediately.
pub(super) struct FastPath<'t, K: KeyCodec, M: Medium>(pub &'t NbTree<K, M>);

impl<'t, K: KeyCodec, M: Medium> CompletionMode<'t> for FastPath<'t, K, M> {
    #[inline(always)]
    fn complete(&mut self, leaf: &'t Leaf, cell: &'t Slot, token: Option<DirtyToken>, step: Step) {
        self.0.complete(leaf, cell, token, step);
    }
}

/// Outcome of inserting a key that its leaf did not contain.
pub(super) enum Joined {
    /// The item is present and durable.
    Item,
    /// The slot belongs to the key, without a value; it counts as an item.
    Slot(usize),
    /// Another thread inserted the key.
    Duplicate(usize),
    /// The leaf has no free slot, or is being replaced.
    Full,
}

/// A key to be inserted into a leaf, with its value if it is known already.
pub(super) struct NewItem<'k, K: KeyCodec> {
    pub key: K::Ref<'k>,
    pub word: u64,
    pub tag: Tag,
    pub value: Option<u64>,
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Insert 1 to 4 for a key that is not in its leaf. `tidied` is set once the leaf has been replaced to free
    /// records.
    #[inline(always)]
    pub(super) fn bring<'t>(
        &'t self,
        at: &Position<'t>,
        (key, tag): (K::Ref<'_>, Tag),
        value: Option<u64>,
        tidied: &mut bool,
        pins: &Pins<K>,
    ) -> Result<Joined> {
        if at.is_frozen() {
            return Ok(Joined::Full);
        }
        match self.key_word(key, at.leaf.block()) {
            Ok(word) => {
                let item = NewItem { key, word, tag, value };
                Ok(self.join(at.leaf, at.seen, item, &mut FastPath(self), pins))
            }
            // Replacing a leaf frees the keys of removed items.
            Err(error) if !*tidied && error.is_no_room() && at.leaf.pending.removed() > 0 => {
                *tidied = true;
                Ok(Joined::Full)
            }
            Err(error) => Err(error),
        }
    }

    /// Insert 1: returns the word of a new key. Its out-of-line record is durable.
    #[inline(always)]
    fn key_word(&self, key: K::Ref<'_>, leaf: u64) -> Result<u64> {
        let (word, flushed) = self.keys.write_near(key, leaf, "nbtree insert.1")?;
        if !K::INLINE {
            let Durable { .. } = self.medium().fence(flushed, "nbtree insert.1 fence");
        }
        Ok(word)
    }

    /// Insert 2 to 4: assigns a slot to the key, with its value if it is known already. `complete` executes the flush
    /// of insert 4.
    #[inline(always)]
    pub(super) fn join<'t>(
        &'t self,
        leaf: &'t Leaf,
        seen: u64,
        NewItem { key, word, tag, value }: NewItem<'_, K>,
        complete: &mut impl CompletionMode<'t>,
        pins: &Pins<K>,
    ) -> Joined {
        let medium = self.medium();
        let Some(slot) = self.claim(leaf, seen, tag) else {
            self.keys.free(word);
            return Joined::Full;
        };
        medium.reached("nbtree insert.2");
        let cell = self.slot(leaf, slot);
        cell.key.store(medium, word);
        let token = value.map(|value| {
            let token = self.announce(leaf, slot);
            // Relies on line order.
            let ordered = medium.ordered_within_line();
            cell.value.publish(medium, value, &ordered, "nbtree insert.2");
            token
        });
        if token.is_none() {
            // The slot counts as an item until its value is there.
            self.uncounted.note(leaf.block());
        }
        medium.reached("nbtree insert.3");
        if let Err(found) = self.swap_bitmap(leaf, seen, seen | 1 << slot)
            && let Err(instead) = self.join_late(leaf, seen, found, slot, key, pins)
        {
            if let Some(token) = token {
                cell.value.store(medium, EMPTY);
                self.complete(leaf, cell, token, "nbtree insert.3");
            }
            self.keys.free(word);
            return instead;
        }
        let Some(token) = token else { return Joined::Slot(slot) };
        self.len.add(1);
        complete.complete(leaf, cell, token, "nbtree insert.4");
        Joined::Item
    }

    /// Insert 3 if the bitmap has changed since it was `seen`. Returns `Err` if the slot was not assigned to the key.
    #[cold]
    fn join_late(
        &self,
        leaf: &Leaf,
        mut seen: u64,
        mut found: u64,
        slot: usize,
        key: K::Ref<'_>,
        pins: &Pins<K>,
    ) -> std::result::Result<(), Joined> {
        let tag = Tag::of::<K>(key);
        loop {
            // Another thread may have inserted the same key concurrently.
            if let Some(duplicate) = self.find_slot(leaf, found & !seen, key, tag, pins) {
                return Err(Joined::Duplicate(duplicate));
            }
            if found & FROZEN != 0 {
                return Err(Joined::Full);
            }
            seen = found;
            match self.swap_bitmap(leaf, seen, seen | 1 << slot) {
                Ok(_) => return Ok(()),
                Err(other) => found = other,
            }
        }
    }
}
