//! Insert, update and remove within one leaf. Step numbers are those of the story in `mod.rs`.

use bristlecone_pm::{Durable, Error, Medium, Persist, Result, Step};

use super::layout::{EMPTY, Stored};
use super::leaf::{FROZEN, Leaf};
use super::meta::Tag;
use super::pending::Note;
use super::read::{Pins, Sight};
use super::{LOCK_WRITES, NbTree};
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::slot::Slot;
use crate::trees::{Removed, Swapped, Write, WriteMode};

/// How often a write that finds no room is tried again: a leaf may have to be replaced for the keys that it
/// gives back, and another one for the block.
const ROOM_ROUNDS: u32 = 3;

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

/// A key on its way into a leaf, with its value if there is one by now.
struct Newcomer<'k, K: KeyCodec> {
    key: K::Ref<'k>,
    word: u64,
    tag: Tag,
    value: Option<u64>,
}

/// A value on its way into the tree, written once however often the change is tried.
struct Fresh<'a, V: Codec> {
    value: V::Ref<'a>,
    word: Option<u64>,
}

impl<K: KeyCodec, V: Codec, M: Medium> Write<K, V> for NbTree<K, V, M> {
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        let (mut target, pins) = self.aim(key);
        match self.put_at_once(key, &mut target, value, mode, &pins) {
            Some(outcome) => self.conclude(None, Ok(outcome), &pins),
            None => self.put_anyhow(key, target, pins, value, mode),
        }
    }

    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.delete(key, None).map(Removed::<V>::ok)
    }

    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Swapped<V>> {
        self.delete(key, Some(expected)).map(|done| done.map(drop))
    }

    fn compare_and_swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        self.with_room(key, self.aim(key), |target, pins| {
            let mut fresh = Fresh { value: new, word: None };
            let mut swapped = false;
            let outcome = self.alter(key, target, true, pins, |old| {
                swapped = self.is_value(old, expected, pins);
                if swapped { self.fresh_word(&mut fresh).map(Some) } else { Ok(None) }
            });
            let old = self.conclude(fresh.word, outcome, pins)?;
            Ok(if swapped { Ok(()) } else { Err(old) })
        })
    }
}

impl<K: KeyCodec, V: Codec, M: Medium> NbTree<K, V, M> {
    /// As most writes go: key and value are words, and the leaf is as it was seen and has room. `None`:
    /// not so, and nothing was changed.
    #[inline(always)]
    fn put_at_once(
        &self,
        key: K::Ref<'_>,
        target: &mut Target,
        value: V::Ref<'_>,
        mode: WriteMode,
        pins: &Pins<K, V>,
    ) -> Option<Outcome> {
        if !K::INLINE || !V::INLINE || mode == WriteMode::New || self.locking != 0 {
            return None;
        }
        let (value, _) = V::write(&self.values, value, "nbtree update.1").ok()?;
        let value = Stored::plain(value)?;
        let sight = target.sight.take()?;
        let (_, leaf) = self.confirm(&sight, pins)?;
        if let Some(slot) = sight.slot {
            if sight.seen & FROZEN != 0 && leaf.is_still() {
                return None;
            }
            let mut decide = |old| Ok((mode == WriteMode::Upsert || old != EMPTY).then_some(value));
            return self.alter_slot(leaf, slot, false, &mut decide).ok()?.map(|(outcome, _)| outcome);
        }
        if mode == WriteMode::Update {
            return Some(Outcome { old: EMPTY, changed: false });
        }
        if sight.seen & FROZEN != 0 {
            return None;
        }
        let (word, _) = K::write(&self.keys, key, "nbtree insert.1").ok()?;
        let newcomer = Newcomer { key, word, tag: target.tag, value: Some(value) };
        match self.join(leaf, sight.seen, newcomer, pins) {
            Joined::Item => Some(Outcome { old: EMPTY, changed: true }),
            Joined::Slot(_) | Joined::Twin(_) | Joined::Full => None,
        }
    }

    /// As any write may go.
    #[inline(never)]
    fn put_anyhow(
        &self,
        key: K::Ref<'_>,
        target: Target,
        pins: Pins<K, V>,
        value: V::Ref<'_>,
        mode: WriteMode,
    ) -> Result<Option<V::Owned>> {
        let together = mode != WriteMode::New;
        self.with_room(key, (target, pins), |target, pins| {
            let mut fresh = Fresh { value, word: None };
            let outcome = self.alter(key, target, together, pins, |old| match mode {
                WriteMode::New if old != EMPTY => Ok(None),
                WriteMode::Update if old == EMPTY => Ok(None),
                _ => self.fresh_word(&mut fresh).map(Some),
            });
            self.conclude(fresh.word, outcome, pins)
        })
    }

    /// Runs a write. If it finds no room, what threads have let go of may be room, but not while this one is
    /// pinned: then the write runs again, a few times.
    #[inline(always)]
    fn with_room<R>(
        &self,
        key: K::Ref<'_>,
        aimed: (Target, Pins<K, V>),
        mut write: impl FnMut(Target, &Pins<K, V>) -> Result<R>,
    ) -> Result<R> {
        let mut aimed = Some(aimed);
        for round in 0.. {
            let (target, pins) = aimed.take().unwrap_or_else(|| self.aim(key));
            let done = write(target, &pins);
            drop(pins);
            let is_over = round == ROOM_ROUNDS || !done.as_ref().is_err_and(Error::is_no_room);
            if is_over || !self.gain_room(key, round) {
                return done;
            }
        }
        unreachable!("rounds do not end")
    }

    /// Removes the item of `key`, if its value is `expected` where one is.
    #[inline(always)]
    fn delete(&self, key: K::Ref<'_>, expected: Option<V::Ref<'_>>) -> Result<Removed<V>> {
        self.with_room(key, self.aim(key), |target, pins| {
            let outcome = self.alter(key, target, true, pins, |old| {
                let goes = match expected {
                    None => old != EMPTY,
                    Some(expected) => self.is_value(old, expected, pins),
                };
                Ok(goes.then_some(EMPTY))
            });
            let changed = matches!(outcome, Ok(Outcome { changed: true, .. }));
            let old = self.conclude(None, outcome, pins)?;
            Ok(if changed { old.ok_or(None) } else { Err(old) })
        })
    }

    /// Whether a value word stands for `value`.
    fn is_value(&self, word: u64, value: V::Ref<'_>, pins: &Pins<K, V>) -> bool {
        self.with_value(word, pins, |found| V::shorten(found) == V::shorten(value)).unwrap_or(false)
    }

    /// Takes the old value over and lets go of what nobody refers to.
    #[inline(always)]
    fn conclude(
        &self,
        fresh: Option<u64>,
        outcome: Result<Outcome>,
        pins: &Pins<K, V>,
    ) -> Result<Option<V::Owned>> {
        if let Ok(Outcome { old, changed: true }) = outcome
            && V::INLINE
        {
            // Most often nothing stands out of line.
            match Stored::decode(old) {
                Stored::Empty => return self.pool.health().map(|()| None),
                Stored::Plain(old) => {
                    let old = V::owned(V::read(&self.values, old, &pins.value));
                    return self.pool.health().map(|()| Some(old));
                }
                Stored::Record(_) | Stored::Sealed(_) => {}
            }
        }
        self.conclude_out_of_line(fresh, outcome, pins)
    }

    fn conclude_out_of_line(
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
        let mut tidied = false;
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
                    let value = together.then_some(value);
                    let joined = if seen & FROZEN == 0 {
                        match self.key_word(key) {
                            Ok(word) => self.join(leaf, seen, Newcomer { key, word, tag, value }, pins),
                            // Keys of removed items are given back when their leaf is replaced.
                            Err(error) if !tidied && error.is_no_room() && leaf.pending.lost() > 0 => {
                                tidied = true;
                                Joined::Full
                            }
                            Err(error) => return Err(error),
                        }
                    } else {
                        Joined::Full
                    };
                    match joined {
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
            // Where no room is for a replacement of its own, the value changes in place all the same.
            if seen & FROZEN != 0 && leaf.is_still() && !joined && self.replace(id, key, pins).is_ok() {
                continue;
            }
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

    /// Insert 1: the word for a new key. What stands out of line is durable.
    #[inline(always)]
    fn key_word(&self, key: K::Ref<'_>) -> Result<u64> {
        let (word, flushed) = K::write(&self.keys, key, "nbtree insert.1")?;
        if !K::INLINE {
            let Durable { .. } = self.medium().fence(flushed, "nbtree insert.1 fence");
        }
        Ok(word)
    }

    /// Insert 2 to 4: makes a slot the key's own, together with its value if there is one by now.
    #[inline(always)]
    fn join(
        &self,
        leaf: &Leaf,
        seen: u64,
        Newcomer { key, word, tag, value }: Newcomer<'_, K>,
        pins: &Pins<K, V>,
    ) -> Joined {
        let medium = self.medium();
        let Some(slot) = self.claim(leaf, seen, tag) else {
            K::free(&self.keys, word);
            return Joined::Full;
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
        if let Err(found) = self.swap_bitmap(leaf, seen, seen | 1 << slot)
            && let Err(instead) = self.join_late(leaf, seen, found, slot, key, pins)
        {
            if let Some(note) = note {
                cell.value.store(medium, EMPTY);
                self.complete(leaf, cell, note, "nbtree insert.3");
            }
            K::free(&self.keys, word);
            return instead;
        }
        let Some(note) = note else { return Joined::Slot(slot) };
        self.len.add(1);
        self.complete(leaf, cell, note, "nbtree insert.4");
        Joined::Item
    }

    /// Insert 3 where the bitmap is not what was `seen` any more. `Err`: the slot is not the key's.
    #[cold]
    fn join_late(
        &self,
        leaf: &Leaf,
        mut seen: u64,
        mut found: u64,
        slot: usize,
        key: K::Ref<'_>,
        pins: &Pins<K, V>,
    ) -> std::result::Result<(), Joined> {
        let tag = Tag::of::<K>(key);
        loop {
            // Another thread may have brought the same key meanwhile.
            if let Some(twin) = self.locate(leaf, found & !seen, key, tag, pins) {
                return Err(Joined::Twin(twin));
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

    /// A flush of the slot is to come, where stores need one.
    #[inline(always)]
    fn announce(&self, leaf: &Leaf, slot: usize) -> Option<Note> {
        (!self.visible_is_durable).then(|| leaf.enter(self.shape, slot))
    }

    /// The flush that was announced.
    #[inline(always)]
    fn complete(&self, leaf: &Leaf, cell: &Slot, note: Option<Note>, step: Step) {
        if let Some(note) = note {
            self.medium().persist(cell, step);
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
            // Before the own mark, which would look like another thread's.
            self.hold_key(leaf, slot, old);
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

    /// Stores the key of a slot again, whose value was `old` and is about to be replaced, if another thread may
    /// have brought the key and it may not be durable yet: the order of stores to a line is that of one thread.
    /// With a value the key came under a mark; without one there is none.
    #[inline(always)]
    pub(super) fn hold_key(&self, leaf: &Leaf, slot: usize, old: u64) {
        if !self.visible_is_durable && (old == EMPTY || leaf.is_flushing(self.shape, slot)) {
            let (medium, key) = (self.medium(), &self.slot(leaf, slot).key);
            key.store(medium, key.load(medium));
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
