//! Insert, update and remove within one leaf. Step numbers are those of the story in `mod.rs`.

use bristlecone_pm::{Durable, Medium, Persist, Result, Step};

use super::layout::{EMPTY, Stored};
use super::leaf::{FROZEN, Leaf};
use super::meta::Tag;
use super::pending::Note;
use super::read::{Pins, Sight};
use super::{LOCK_WRITES, NbTree};
use crate::shared::form::{KeyForm, ValueForm};
use crate::shared::slot::Slot;
use crate::trees::WriteMode;

/// What became of a change: the value word that was there, and whether it was replaced.
struct Outcome {
    old: u64,
    changed: bool,
}

/// What became of a key that its leaf did not hold.
enum Joined {
    /// The item is there, durably.
    Item,
    /// The slot is the key's from now on, without a value; it counts as an item.
    Slot(usize),
    /// Another thread brought the key.
    Twin(usize),
    /// The leaf has no slot left, or is being replaced.
    Full,
}

/// A key that is about to change, and where it was seen.
struct Target {
    tag: Tag,
    sight: Option<Sight>,
}

/// A value on its way into the tree, written once however often the change is tried.
struct Fresh<'a, V: ValueForm> {
    value: V::Ref<'a>,
    word: Option<u64>,
}

impl<K: KeyForm, V: ValueForm, M: Medium> NbTree<K, V, M> {
    pub(super) fn put(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        mode: WriteMode,
    ) -> Result<Option<V::Owned>> {
        let (target, pins) = self.aim(key);
        let mut fresh = Fresh { value, word: None };
        let together = mode != WriteMode::New;
        let outcome = self.alter(key, target, together, &pins, |old| match mode {
            WriteMode::New if old != EMPTY => Ok(None),
            WriteMode::Update if old == EMPTY => Ok(None),
            _ => self.fresh_word(&mut fresh).map(Some),
        });
        self.conclude(fresh.word, outcome, &pins)
    }

    /// Replaces the value of `key` by `new` if it is `expected`; gives what was there.
    pub(super) fn swap(
        &self,
        key: K::Ref<'_>,
        expected: V::Ref<'_>,
        new: V::Ref<'_>,
    ) -> Result<std::result::Result<(), Option<V::Owned>>> {
        let (target, pins) = self.aim(key);
        let mut fresh = Fresh { value: new, word: None };
        let mut swapped = false;
        let outcome = self.alter(key, target, true, &pins, |old| {
            let equal =
                self.with_value(old, &pins, |old| V::shorten(old) == V::shorten(expected)).unwrap_or(false);
            swapped = equal;
            if equal { self.fresh_word(&mut fresh).map(Some) } else { Ok(None) }
        });
        let old = self.conclude(fresh.word, outcome, &pins)?;
        Ok(if swapped { Ok(()) } else { Err(old) })
    }

    pub(super) fn delete(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        let (target, pins) = self.aim(key);
        let outcome = self.alter(key, target, true, &pins, |old| Ok((old != EMPTY).then_some(EMPTY)));
        self.conclude(None, outcome, &pins)
    }

    /// Takes the old value over and lets go of what nobody refers to.
    fn conclude(
        &self,
        fresh: Option<u64>,
        outcome: Result<Outcome>,
        pins: &Pins<K, V>,
    ) -> Result<Option<V::Owned>> {
        let unused = fresh.filter(|_| !matches!(outcome, Ok(Outcome { changed: true, .. })));
        if let Some(Stored::Record(record)) = unused.map(Stored::decode) {
            self.values.free(record);
        }
        let Outcome { old, changed } = outcome?;
        let value = self.with_value(old, pins, V::owned);
        if let (true, Stored::Record(record)) = (changed, Stored::decode(old)) {
            self.values.retire(record, &pins.epoch);
        }
        self.pool.health()?;
        Ok(value)
    }

    /// Insert 1, update 1: the word for a new value. What stands out of line is durable.
    fn fresh_word(&self, fresh: &mut Fresh<'_, V>) -> Result<u64> {
        if let Some(word) = fresh.word {
            return Ok(word);
        }
        let (mut word, mut flushed) = V::write(&self.values, fresh.value, "nbtree update.1")?;
        if V::INLINE {
            match Stored::plain(word) {
                Some(plain) => {
                    fresh.word = Some(plain);
                    return Ok(plain);
                }
                None => (word, flushed) = self.values.write(&word.to_le_bytes(), "nbtree update.1 box")?,
            }
        }
        let Durable { .. } = self.medium().fence(flushed, "nbtree update.1 fence");
        fresh.word = Some(word);
        Ok(word)
    }

    /// Looks for the key, and then pins.
    #[inline(always)]
    fn aim(&self, key: K::Ref<'_>) -> (Target, Pins<K, V>) {
        let tag = Tag::of::<K>(key);
        let guard = K::pin();
        let sight = self.sight(key, tag, &guard);
        (Target { tag, sight }, Pins::beside(guard))
    }

    /// Replaces the value word of `key` by what `decide` makes of it, if anything. `together`: a new key
    /// may join with its value.
    #[inline(always)]
    fn alter(
        &self,
        key: K::Ref<'_>,
        Target { tag, mut sight }: Target,
        together: bool,
        pins: &Pins<K, V>,
        mut decide: impl FnMut(u64) -> Result<Option<u64>>,
    ) -> Result<Outcome> {
        loop {
            let first = sight.take();
            let confirmed = first.as_ref().and_then(|sight| self.confirm(sight, pins));
            let (id, leaf) = confirmed.unwrap_or_else(|| self.reach(key, tag, pins));
            let _lock = (self.locking >= LOCK_WRITES).then(|| leaf.lock());
            if self.locking >= LOCK_WRITES && leaf.succession().is_open() {
                continue;
            }
            let (seen, found) = match (confirmed, first) {
                (Some(_), Some(sight)) => (sight.seen, sight.slot),
                _ => {
                    let seen = self.bitmap(leaf);
                    (seen, self.locate(leaf, seen, key, tag, pins))
                }
            };
            let (slot, joined) = match found {
                Some(slot) => (slot, false),
                None => {
                    let Some(value) = decide(EMPTY)? else {
                        return Ok(Outcome { old: EMPTY, changed: false });
                    };
                    match self.join(leaf, seen, key, tag, together.then_some(value), pins)? {
                        Joined::Item => return Ok(Outcome { old: EMPTY, changed: true }),
                        Joined::Slot(slot) => (slot, true),
                        Joined::Twin(slot) => (slot, false),
                        Joined::Full => {
                            self.replace(id, key, pins)?;
                            continue;
                        }
                    }
                }
            };
            match self.alter_slot(leaf, slot, joined, &mut decide)? {
                Some((outcome, emptied)) => {
                    if emptied {
                        self.shed(id, key, pins);
                    }
                    return Ok(outcome);
                }
                // Sealed: the value is changed where it is carried to.
                None => self.replace(id, key, pins)?,
            }
        }
    }

    /// Insert 2 to 4: makes a slot the key's own, together with its value if there is one by now.
    fn join(
        &self,
        leaf: &Leaf,
        mut seen: u64,
        key: K::Ref<'_>,
        tag: Tag,
        value: Option<u64>,
        pins: &Pins<K, V>,
    ) -> Result<Joined> {
        if seen & FROZEN != 0 {
            return Ok(Joined::Full);
        }
        let medium = self.medium();
        let (word, flushed) = K::write(&self.keys, key, "nbtree insert.1")?;
        if !K::INLINE {
            let Durable { .. } = medium.fence(flushed, "nbtree insert.1 fence");
        }
        let Some(slot) = self.claim(leaf, tag) else {
            K::free(&self.keys, word);
            return Ok(Joined::Full);
        };
        medium.reached("nbtree insert.2");
        let cell = self.slot(leaf, slot);
        cell.key.store(medium, word);
        let note = value.map(|value| {
            let note = self.announce(leaf, slot);
            // Relies on line order.
            let ordered = medium.ordered_within_line();
            cell.value.publish(medium, value, &ordered, "nbtree insert.2");
            note
        });
        medium.reached("nbtree insert.3");
        let twin = loop {
            let Err(found) = self.swap_bitmap(leaf, seen, seen | 1 << slot) else {
                let Some(note) = note else { return Ok(Joined::Slot(slot)) };
                self.len.add(1);
                self.complete(leaf, cell, note, "nbtree insert.4");
                return Ok(Joined::Item);
            };
            // Another thread may have brought the same key meanwhile.
            let twin = self.locate(leaf, found & !seen, key, tag, pins);
            seen = found;
            if twin.is_some() || found & FROZEN != 0 {
                break twin;
            }
        };
        if let Some(note) = note {
            cell.value.store(medium, EMPTY);
            self.complete(leaf, cell, note, "nbtree insert.3");
        }
        K::free(&self.keys, word);
        Ok(twin.map_or(Joined::Full, Joined::Twin))
    }

    /// A flush of the slot is to come, where stores need one.
    #[inline(always)]
    fn announce(&self, leaf: &Leaf, slot: usize) -> Option<Note> {
        (!self.visible_is_durable).then(|| leaf.enter(self.shape, slot))
    }

    /// The flush that was announced.
    #[inline(always)]
    fn complete(&self, leaf: &Leaf, cell: &Slot, note: Option<Note>, step: Step) {
        if let Some(note) = note {
            let Durable { .. } = self.medium().persist(cell, step);
            leaf.pending.leave(note);
        }
    }

    /// Insert 4, update 2, delete 1: one word, by compare-and-swap; and one flush. `None`: the slot
    /// is sealed. With the outcome comes whether the leaf has no item any more. `joined`: the key got
    /// the slot just now, which counts as an item already.
    #[inline(always)]
    fn alter_slot(
        &self,
        leaf: &Leaf,
        slot: usize,
        joined: bool,
        decide: &mut impl FnMut(u64) -> Result<Option<u64>>,
    ) -> Result<Option<(Outcome, bool)>> {
        let medium = self.medium();
        let cell = self.slot(leaf, slot);
        loop {
            let old = cell.value.load(medium);
            if Stored::is_sealed(old) {
                return Ok(None);
            }
            let Some(new) = decide(old)? else {
                self.settle(leaf, slot);
                let emptied = self.lose(leaf, i32::from(joined));
                return Ok(Some((Outcome { old, changed: false }, emptied)));
            };
            let note = self.announce(leaf, slot);
            medium.reached("nbtree update.2");
            // The key precedes the value within the line: relies on line order.
            let ordered = medium.ordered_within_line();
            let changed = cell.value.publish_if(medium, old, new, &ordered).is_ok();
            medium.reached("nbtree update.3");
            let mut emptied = false;
            if changed {
                let lost = i32::from(new == EMPTY) - i32::from(old == EMPTY);
                // Before the flush: a locked instruction after it would wait for it.
                emptied = self.lose(leaf, lost + i32::from(joined));
                if lost != 0 {
                    self.len.add(-i64::from(lost));
                }
            }
            if changed {
                self.complete(leaf, cell, note, "nbtree update.3");
                return Ok(Some((Outcome { old, changed }, emptied)));
            }
            if let Some(note) = note {
                leaf.pending.leave(note);
            }
        }
    }

    /// So many more slots of the leaf have no item; whether none has one any more.
    #[inline(always)]
    fn lose(&self, leaf: &Leaf, slots: i32) -> bool {
        if slots == 0 {
            return false;
        }
        leaf.pending.lose(slots);
        slots > 0 && self.items(leaf) <= 0
    }
}
