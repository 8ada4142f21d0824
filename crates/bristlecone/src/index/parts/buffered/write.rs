//! How a write finds the place of its key, decides there, and tries again.

use std::ops::Deref;
use std::sync::RwLockReadGuard;

use bristlecone_pm::{Medium, Result, Step};

use super::{Change, Guards, LeafLayout, Relief, Store, TreeLog};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::{Removed, Swapped, WriteMode};

/// What a lookup expects, which decides where it looks first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    Present,
    Absent,
    /// Nothing: it does not look into leaves, unless it has to.
    Blind,
}

/// Whether a leaf has a slot for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InLeaf {
    #[default]
    No,
    Yes,
    /// No thread has looked: the item was written without asking. It is none that goes, and its value is none
    /// that the leaf holds.
    Unseen,
}

impl From<bool> for InLeaf {
    fn from(seen: bool) -> Self {
        if seen { Self::Yes } else { Self::No }
    }
}

/// What a leaf and what is buffered for it say about a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Number of the leaf, of those under the same lock.
    pub at: usize,
    /// The buffered item of the key, if there is one.
    pub item: Option<usize>,
    /// The leaf's slot for the key, if that was looked for: not if an item is buffered.
    pub slot: Option<usize>,
    /// The key's word, if the tree has one for it.
    pub key: Option<u64>,
    /// The value's word, if the key is there.
    pub value: Option<u64>,
    /// Whether the leaf has a slot for the key, if no item is buffered.
    pub in_leaf: InLeaf,
}

impl Found {
    /// Returns what a leaf says, if nothing is buffered: slot, key and value.
    #[inline(always)]
    pub fn of_leaf(at: usize, slot: Option<(usize, u64, u64)>) -> Self {
        let Some((slot, key, value)) = slot else { return Self { at, ..Self::default() } };
        let (slot, key, value) = (Some(slot), Some(key), Some(value));
        Self { at, item: None, slot, key, value, in_leaf: InLeaf::Yes }
    }
}

/// What became of a change.
pub enum Outcome {
    Done,
    /// The place had to change first: the key is to be looked up again.
    Again,
}

/// A tree that is written place by place: a leaf with its buffer, or a node with its leaves, under one lock.
pub trait Writer<L: LeafLayout, K: KeyCodec, V: Codec, M: Medium>: Deref<Target = Store<L, K, V, M>> {
    /// How often a write without room reclaims the log, while that gives something.
    const RECLAIMS: usize;
    /// The names of write 1, for keys and for values.
    const RECORD_STEPS: [Step; 2];
    /// What a writer holds locked.
    type Place<'a>
    where
        Self: 'a;

    fn log(&self) -> &TreeLog<M>;

    /// Stops a writer where something stops all of them.
    #[inline(always)]
    fn pass(&self) -> Option<RwLockReadGuard<'_, ()>> {
        None
    }

    /// Returns the locked place of a key, and what that says about the key.
    fn enter(&self, key: K::Ref<'_>, hint: Hint, guards: &Guards<K, V>) -> (Self::Place<'_>, Found);

    /// Gives the key a value, or removes it: it is known to change something.
    fn change(
        &self,
        place: Self::Place<'_>,
        found: Found,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        guards: &Guards<K, V>,
    ) -> Result<Outcome>;

    /// Returns whether there may be room by now, where there was none when the log had given `gifts`.
    fn gain_room(&self, relief: &mut Relief, gifts: u64) -> bool;

    /// Does what comes after a write.
    fn after_write(&self) -> Result<()>;

    /// Writes what stands out of line, first of all: write 1.
    #[inline(always)]
    fn write_records(&self, found: &Found, key: K::Ref<'_>, value: Option<V::Ref<'_>>) -> Result<Change> {
        Change::write::<K, V, M>((&self.keys, &self.values), found.key, key, value, Self::RECORD_STEPS)
    }

    /// Runs `write` at the locked place of a key, with what that says about the key, until it gives a result; again
    /// if there is no room but some to gain.
    #[inline(always)]
    fn write_at<R>(
        &self,
        key: K::Ref<'_>,
        hint: Hint,
        mut write: impl FnMut(Self::Place<'_>, Found, &Guards<K, V>) -> Result<Option<R>>,
    ) -> Result<R> {
        let mut relief = Relief::new(Self::RECLAIMS);
        loop {
            let gifts = self.log().gifts();
            let done = {
                let _passed = self.pass();
                let guards = (K::pin(), V::pin());
                let (place, found) = self.enter(key, hint, &guards);
                write(place, found, &guards)
            };
            // Taken apart, because what moves as a whole is read in other pieces than it was written in,
            // and then the processor waits for the fence.
            match done {
                Ok(Some(done)) => {
                    self.after_write()?;
                    return Ok(done);
                }
                Ok(None) => {}
                Err(error) if error.is_no_room() && self.gain_room(&mut relief, gifts) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes an item as `mode` says; returns the value that was there.
    #[inline(always)]
    fn put(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        let hint = if mode == WriteMode::Update { Hint::Present } else { Hint::Absent };
        self.write_at(key, hint, |place, found, guards| {
            let old = found.value.map(|word| V::owned(V::read(&self.values, word, &guards.1)));
            if old.is_some() && mode == WriteMode::New || old.is_none() && mode == WriteMode::Update {
                return Ok(Some(old));
            }
            let done = self.change(place, found, key, Some(value), guards)?;
            Ok(matches!(done, Outcome::Done).then_some(old))
        })
    }

    /// Replaces the value of a key by `new` if it is `expected`; returns what was there instead.
    #[inline(always)]
    fn swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        self.write_at(key, Hint::Present, |place, found, guards| {
            let Some(word) = found.value else { return Ok(Some(Err(None))) };
            let old = V::read(&self.values, word, &guards.1);
            if old != V::shorten(expected) {
                return Ok(Some(Err(Some(V::owned(old)))));
            }
            let done = self.change(place, found, key, Some(new), guards)?;
            Ok(matches!(done, Outcome::Done).then_some(Ok(())))
        })
    }

    /// Removes the item of a key, if its value is `expected` where one is.
    #[inline(always)]
    fn delete(&self, key: K::Ref<'_>, expected: Option<V::Ref<'_>>) -> Result<Removed<V>> {
        self.write_at(key, Hint::Present, |place, found, guards| {
            let Some(word) = found.value else { return Ok(Some(Err(None))) };
            let old = V::owned(V::read(&self.values, word, &guards.1));
            if expected.is_some_and(|expected| V::borrow(&old) != V::shorten(expected)) {
                return Ok(Some(Err(Some(old))));
            }
            let done = self.change(place, found, key, None, guards)?;
            Ok(matches!(done, Outcome::Done).then_some(Ok(old)))
        })
    }
}
