//! Insert, update and remove within one leaf. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Error, Medium, Persist, Result, Step};

use super::NbTree;
use super::join::{CompletionMode, FastPath, Joined, NewItem};
use super::layout::{EMPTY, Stored};
use super::leaf::Leaf;
use super::lookup::{Pins, Target};
use super::pending::DirtyToken;
use super::value::{NewValue, Outcome};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::slot::Slot;
use crate::index::{Removed, Swapped, Tell, Write, WriteMode};

/// Number of retries of a write that finds no space: one leaf may have to be replaced to free its keys, and another
/// one for the block.
const ROOM_ROUNDS: u32 = 3;

/// How a new key joins its leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joining {
    /// Together with its value.
    WithValue,
    /// Alone: its value replaces EMPTY later, as in an update.
    KeyFirst,
}

/// How the slot of a changed key was obtained.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    Found,
    /// Just assigned: it counts as an item already.
    Joined,
}

/// A completed change, apart from what its leaf needs if it lost its last item.
pub(super) struct Done {
    pub outcome: Outcome,
    pub emptied: Option<u32>,
}

impl<K: KeyCodec, V: Storage, M: Medium> Write<K, V> for NbTree<K, M> {
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        let (mut target, pins) = self.begin(key);
        match self.put_fast::<V>(key, &mut target, value, mode, &mut FastPath(self), &pins) {
            Some(outcome) => self.conclude::<V>(None, Ok(outcome), &pins),
            None => self.put_slow::<V>(key, target, pins, value, mode),
        }
    }

    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        let (mut target, pins) = self.begin(key);
        match self.delete_fast::<V>(&mut target, &mut FastPath(self), &pins) {
            Some(Done { outcome, emptied }) => {
                if let Some(leaf) = emptied {
                    self.free_if_empty(leaf, key, &pins);
                }
                self.conclude::<V>(None, Ok(outcome), &pins)
            }
            None => self.delete::<V>(key, (target, pins), None).map(Removed::<V>::ok),
        }
    }

    fn write_many(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], tell: &mut Tell<'_, V>) -> Result<()> {
        self.put_many::<V>(items, tell)
    }

    fn remove_many(&self, keys: &[K::Ref<'_>], tell: &mut Tell<'_, V>) -> Result<()> {
        self.delete_many::<V>(keys, tell)
    }

    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Swapped<V>> {
        self.delete::<V>(key, self.begin(key), Some(expected)).map(|done| done.map(drop))
    }

    fn append(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], last: bool) -> Result<usize> {
        self.append_leaves::<V>(items, last)
    }

    fn compare_and_swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        self.with_room(key, self.begin(key), |target, pins| {
            let mut new = NewValue::<V>::new(new, self.near(&target));
            let mut swapped = false;
            let outcome = self.alter(key, target, Joining::WithValue, pins, |old| {
                swapped = self.is_value::<V>(old, expected, pins);
                if swapped { self.word_of(&mut new).map(Some) } else { Ok(None) }
            });
            let old = self.conclude::<V>(new.word, outcome, pins)?;
            Ok(if swapped { Ok(()) } else { Err(old) })
        })
    }
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Inserts or overwrites a value on the fast path: key and value are words, and the leaf is unchanged since the
    /// probe and has space. Returns `None` if the fast path does not apply; nothing has been modified.
    #[inline(always)]
    pub(super) fn put_fast<'t, V: Storage>(
        &'t self,
        key: K::Ref<'_>,
        target: &mut Target,
        value: V::Ref<'_>,
        mode: WriteMode,
        complete: &mut impl CompletionMode<'t>,
        pins: &Pins<K>,
    ) -> Option<Outcome> {
        if !K::INLINE || !V::INLINE || mode == WriteMode::New || self.locking() != 0 {
            return None;
        }
        let (value, _) = self.values.of::<V>().write(value, "nbtree update.1").ok()?;
        let value = Stored::plain(value)?;
        let at = self.confirm(target.probe.take()?, pins)?;
        if let Some(slot) = at.slot {
            if at.is_to_be_replaced() {
                return None;
            }
            let mut decide = |old| Ok((mode == WriteMode::Upsert || old != EMPTY).then_some(value));
            let altered = self.alter_slot(at.leaf, slot, Origin::Found, &mut decide, complete);
            return altered.ok()?.map(|(outcome, _)| outcome);
        }
        if mode == WriteMode::Update {
            return Some(Outcome { old: EMPTY, changed: false });
        }
        if at.is_frozen() {
            return None;
        }
        let (word, _) = self.keys.write(key, "nbtree insert.1").ok()?;
        let item = NewItem { key, word, tag: target.tag, value: Some(value) };
        match self.join(at.leaf, at.seen, item, complete, pins) {
            Joined::Item => Some(Outcome { old: EMPTY, changed: true }),
            Joined::Slot(_) | Joined::Duplicate(_) | Joined::Full => None,
        }
    }

    /// Inserts or overwrites a value on the general path.
    #[inline(never)]
    fn put_slow<V: Storage>(
        &self,
        key: K::Ref<'_>,
        target: Target,
        pins: Pins<K>,
        value: V::Ref<'_>,
        mode: WriteMode,
    ) -> Result<Option<V::Owned>> {
        let joining = if mode == WriteMode::New { Joining::KeyFirst } else { Joining::WithValue };
        self.with_room(key, (target, pins), |target, pins| {
            let mut new = NewValue::<V>::new(value, self.near(&target));
            let outcome = self.alter(key, target, joining, pins, |old| match mode {
                WriteMode::New if old != EMPTY => Ok(None),
                WriteMode::Update if old == EMPTY => Ok(None),
                _ => self.word_of(&mut new).map(Some),
            });
            self.conclude::<V>(new.word, outcome, pins)
        })
    }

    /// Removes the item of a key on the fast path: the key is a word, and the leaf is unchanged since the probe.
    /// Returns `None` if the fast path does not apply; nothing has been modified. If the leaf lost its last item, the
    /// caller must free it after the flush.
    #[inline(always)]
    pub(super) fn delete_fast<'t, V: Storage>(
        &'t self,
        target: &mut Target,
        complete: &mut impl CompletionMode<'t>,
        pins: &Pins<K>,
    ) -> Option<Done> {
        if !K::INLINE || !V::INLINE || self.locking() != 0 {
            return None;
        }
        let at = self.confirm(target.probe.take()?, pins)?;
        let Some(slot) = at.slot else {
            return Some(Done { outcome: Outcome { old: EMPTY, changed: false }, emptied: None });
        };
        if at.is_to_be_replaced() {
            return None;
        }
        let mut decide = |old| Ok((old != EMPTY).then_some(EMPTY));
        let altered = self.alter_slot(at.leaf, slot, Origin::Found, &mut decide, complete);
        let (outcome, emptied) = altered.ok()??;
        Some(Done { outcome, emptied: emptied.then_some(at.id) })
    }

    /// Removes the item of `key`, if its value is `expected` where one is given, on the general path.
    #[inline(never)]
    fn delete<V: Storage>(
        &self,
        key: K::Ref<'_>,
        begun: (Target, Pins<K>),
        expected: Option<V::Ref<'_>>,
    ) -> Result<Removed<V>> {
        self.with_room(key, begun, |target, pins| {
            let outcome = self.alter(key, target, Joining::WithValue, pins, |old| {
                let goes = match expected {
                    None => old != EMPTY,
                    Some(expected) => self.is_value::<V>(old, expected, pins),
                };
                Ok(goes.then_some(EMPTY))
            });
            let changed = matches!(outcome, Ok(Outcome { changed: true, .. }));
            let old = self.conclude::<V>(None, outcome, pins)?;
            Ok(if changed { old.ok_or(None) } else { Err(old) })
        })
    }

    /// Runs a write. If it finds no space, memory released by threads may become free, but not while this thread is
    /// pinned: the write then unpins and runs again, a few times.
    #[inline(always)]
    fn with_room<R>(
        &self,
        key: K::Ref<'_>,
        begun: (Target, Pins<K>),
        mut write: impl FnMut(Target, &Pins<K>) -> Result<R>,
    ) -> Result<R> {
        let mut begun = Some(begun);
        for round in 0.. {
            let (target, pins) = begun.take().unwrap_or_else(|| self.begin(key));
            let done = write(target, &pins);
            drop(pins);
            let is_over = round == ROOM_ROUNDS || !done.as_ref().is_err_and(Error::is_no_room);
            if is_over || !self.make_room(key, round) {
                return done;
            }
        }
        unreachable!("rounds do not end")
    }

    /// Replaces the value word of `key` by the result of `decide`, if any.
    #[inline(always)]
    fn alter(
        &self,
        key: K::Ref<'_>,
        Target { tag, mut probe }: Target,
        joining: Joining,
        pins: &Pins<K>,
        mut decide: impl FnMut(u64) -> Result<Option<u64>>,
    ) -> Result<Outcome> {
        let mut tidied = false;
        loop {
            let Some((at, _lock)) = self.enter(key, tag, probe.take(), pins) else { continue };
            let (slot, origin) = match at.slot {
                Some(slot) => (slot, Origin::Found),
                None => {
                    let Some(value) = decide(EMPTY)? else {
                        return Ok(Outcome { old: EMPTY, changed: false });
                    };
                    let value = (joining == Joining::WithValue).then_some(value);
                    match self.bring(&at, (key, tag), value, &mut tidied, pins)? {
                        Joined::Item => return Ok(Outcome { old: EMPTY, changed: true }),
                        Joined::Slot(slot) => (slot, Origin::Joined),
                        Joined::Duplicate(slot) => (slot, Origin::Found),
                        Joined::Full => {
                            self.replace(at.id, key, pins)?;
                            continue;
                        }
                    }
                }
            };
            // If there is no space for a replacement of the leaf, the value still changes in place.
            if at.is_to_be_replaced() && origin == Origin::Found && self.replace(at.id, key, pins).is_ok() {
                continue;
            }
            match self.alter_slot(at.leaf, slot, origin, &mut decide, &mut FastPath(self))? {
                Some((outcome, emptied)) => {
                    if emptied {
                        self.free_if_empty(at.id, key, pins);
                    }
                    return Ok(outcome);
                }
                // Change the value in the leaf that it is carried to.
                None => self.replace(at.id, key, pins)?,
            }
        }
    }

    /// Announces a flush of the slot, where stores need one.
    #[inline(always)]
    pub(super) fn announce(&self, leaf: &Leaf, slot: usize) -> Option<DirtyToken> {
        (!self.visible_is_durable).then(|| leaf.enter(self.shape, slot))
    }

    /// Executes the announced flush.
    #[inline(always)]
    pub(super) fn complete(&self, leaf: &Leaf, cell: &Slot, token: Option<DirtyToken>, step: Step) {
        if let Some(token) = token {
            self.medium().persist(cell, step);
            leaf.pending.leave(token);
        }
    }

    /// Insert 4, update 2, delete 1: changes one word by compare-and-swap, with one flush. Returns `None` if the slot
    /// is sealed, or if no value of the leaf may change any more. The result also says whether the leaf lost its last
    /// item. `complete` executes the flush.
    #[inline(always)]
    pub(super) fn alter_slot<'t>(
        &'t self,
        leaf: &'t Leaf,
        slot: usize,
        origin: Origin,
        decide: &mut impl FnMut(u64) -> Result<Option<u64>>,
        complete: &mut impl CompletionMode<'t>,
    ) -> Result<Option<(Outcome, bool)>> {
        let medium = self.medium();
        let cell = self.slot(leaf, slot);
        let counted = i32::from(origin == Origin::Joined);
        loop {
            let old = cell.value.load(medium);
            if Stored::is_sealed(old) {
                return Ok(None);
            }
            let Some(new) = decide(old)? else {
                self.make_durable(leaf, slot);
                let emptied = self.note_removed(leaf, counted);
                return Ok(Some((Outcome { old, changed: false }, emptied)));
            };
            // Must precede this thread's own mark, which would look like that of another thread.
            self.hold_key(leaf, slot, old);
            let token = match self.announce(leaf, slot) {
                Some(token) if leaf.is_still() => {
                    leaf.pending.leave(token);
                    return Ok(None);
                }
                token => token,
            };
            if counted != 0 || (new == EMPTY) != (old == EMPTY) {
                self.uncounted.note(leaf.block());
            }
            medium.reached("nbtree update.2");
            // The key precedes the value within the line: relies on line order.
            let ordered = medium.ordered_within_line();
            let changed = cell.value.publish_if(medium, old, new, &ordered).is_ok();
            medium.reached("nbtree update.3");
            let mut emptied = false;
            if changed {
                let lost = i32::from(new == EMPTY) - i32::from(old == EMPTY);
                // Must precede the flush: a locked instruction after it would wait for it.
                emptied = self.note_removed(leaf, lost + counted);
                if lost != 0 {
                    self.len.add(-i64::from(lost));
                }
            }
            if changed {
                complete.complete(leaf, cell, token, "nbtree update.3");
                return Ok(Some((Outcome { old, changed }, emptied)));
            }
            if let Some(token) = token {
                leaf.pending.leave(token);
            }
        }
    }

    /// Stores the key of a slot again if the slot has no value (`old`) and is about to get one. Another thread may
    /// have stored the key without a flush so far, and a line preserves the store order of one thread only. A key
    /// that was stored together with its value is on the medium wherever a later value of that word is.
    #[inline(always)]
    fn hold_key(&self, leaf: &Leaf, slot: usize, old: u64) {
        if !self.visible_is_durable && old == EMPTY {
            let (medium, key) = (self.medium(), &self.slot(leaf, slot).key);
            key.store(medium, key.load(medium));
        }
    }

    /// Adds to the number of slots of the leaf without an item; returns whether no slot has one any more.
    #[inline(always)]
    fn note_removed(&self, leaf: &Leaf, slots: i32) -> bool {
        if slots == 0 {
            return false;
        }
        leaf.pending.note_removed(slots);
        slots > 0 && self.items(leaf) <= 0
    }
}
