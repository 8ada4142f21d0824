//! The write loop: finds the place of a key, decides there, and retries.

use std::ops::Deref;
use std::sync::RwLockReadGuard;

use bristlecone_pm::{Medium, Result};

use super::{Backoff, Change, Guards, LeafLayout, Store, TreeLog};
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::{Removed, Swapped, WriteMode};

/// The expected result of a lookup, which determines where it searches first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    Present,
    Absent,
    /// No expectation: leaves are not searched unless necessary.
    Blind,
}

/// Whether a leaf has a slot for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InLeaf {
    #[default]
    No,
    Yes,
    /// Unknown: the item was written without searching the leaf. It is not a removal, and the leaf does not contain
    /// its value.
    Unseen,
}

impl From<bool> for InLeaf {
    fn from(seen: bool) -> Self {
        if seen { Self::Yes } else { Self::No }
    }
}

/// State of a key in a leaf and its buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Index of the leaf among those under the same lock.
    pub at: usize,
    /// The buffered item of the key, if there is one.
    pub item: Option<usize>,
    /// The leaf's slot for the key, if it was searched; not if an item is buffered.
    pub slot: Option<usize>,
    /// The key's word, if the tree has one for it.
    pub key: Option<u64>,
    /// The value's word, if the key is present.
    pub value: Option<u64>,
    /// Whether the leaf has a slot for the key, if no item is buffered.
    pub in_leaf: InLeaf,
}

impl Found {
    /// Returns the state of a key in a leaf without buffered item: slot, key and value.
    #[inline(always)]
    pub fn of_leaf(at: usize, slot: Option<(usize, u64, u64)>) -> Self {
        let Some((slot, key, value)) = slot else { return Self { at, ..Self::default() } };
        let (slot, key, value) = (Some(slot), Some(key), Some(value));
        Self { at, item: None, slot, key, value, in_leaf: InLeaf::Yes }
    }
}

/// Outcome of a change.
pub enum Outcome {
    Done,
    /// The place had to change first: look up the key again.
    Again,
}

impl<L: LeafLayout, K: KeyCodec, M: Medium> Store<L, K, M> {
    /// Writes out-of-line data before anything else: write 1. For the leaf at an offset, and the key's word if it has
    /// one.
    #[inline(always)]
    pub fn write_records<V: Storage>(
        &self,
        (leaf, known): (u64, Option<u64>),
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
    ) -> Result<Change> {
        Change::write::<K, V, M>((&self.keys, &self.values), (leaf, known), key, value, L::RECORD_STEPS)
    }

    /// Frees the records of a change that was not applied.
    pub fn discard(&self, change: &Change) {
        change.discard(&self.keys, &self.values);
    }
}

/// A tree that is written place by place, where a place is a leaf with its buffer, or a node with its leaves, under
/// one lock.
pub trait Writer<L: LeafLayout, K: KeyCodec, M: Medium>: Deref<Target = Store<L, K, M>> {
    /// Maximum number of log reclaims by a write without space, as long as they free something.
    const RECLAIMS: usize;
    /// The locked object of a writer.
    type Place<'a>
    where
        Self: 'a;

    fn log(&self) -> &TreeLog<M>;

    /// Blocks a writer while all writers are stopped.
    #[inline(always)]
    fn pass(&self) -> Option<RwLockReadGuard<'_, ()>> {
        None
    }

    /// Returns the locked place of a key, and the state of the key in it.
    fn enter(&self, key: K::Ref<'_>, hint: Hint, guard: &K::Guard) -> (Self::Place<'_>, Found);

    /// Sets or removes the value of a key. The caller knows that this changes something.
    fn change<V: Storage>(
        &self,
        place: Self::Place<'_>,
        found: Found,
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        guard: &K::Guard,
    ) -> Result<Outcome>;

    /// Returns whether there may be space now, after a failure when the log's reclaim counter was `reclaims`.
    fn make_room(&self, backoff: &mut Backoff, reclaims: u64) -> bool;

    /// Does the work that follows a write.
    fn after_write(&self) -> Result<()>;

    /// Calls `write` at the locked place of a key, with the state of the key, until it returns a result. Retries
    /// without space if some can be reclaimed.
    #[inline(always)]
    fn write_at<V: Storage, R>(
        &self,
        key: K::Ref<'_>,
        hint: Hint,
        mut write: impl FnMut(Self::Place<'_>, Found, &Guards<K, V>) -> Result<Option<R>>,
    ) -> Result<R> {
        let mut backoff = Backoff::new(Self::RECLAIMS);
        loop {
            let reclaims = self.log().reclaims();
            let done = {
                let _passed = self.pass();
                let guards = (K::pin(), V::pin());
                let (place, found) = self.enter(key, hint, &guards.0);
                write(place, found, &guards)
            };
            // Matched field by field: moving the value whole reads it in other pieces than it was written in, which
            // stalls the processor until the fence.
            match done {
                Ok(Some(done)) => {
                    self.after_write()?;
                    return Ok(done);
                }
                Ok(None) => {}
                Err(error) if error.is_no_room() && self.make_room(&mut backoff, reclaims) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes an item subject to `mode`; returns the previous value.
    #[inline(always)]
    fn put<V: Storage>(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        mode: WriteMode,
    ) -> Result<Option<V::Owned>> {
        let hint = if mode == WriteMode::Update { Hint::Present } else { Hint::Absent };
        self.write_at::<V, _>(key, hint, |place, found, guards| {
            let old = found.value.map(|word| V::owned(self.values.of::<V>().read(word, &guards.1)));
            if old.is_some() && mode == WriteMode::New || old.is_none() && mode == WriteMode::Update {
                return Ok(Some(old));
            }
            let done = self.change::<V>(place, found, key, Some(value), &guards.0)?;
            Ok(matches!(done, Outcome::Done).then_some(old))
        })
    }

    /// Replaces the value of a key by `new` if it is `expected`; otherwise returns the value found instead.
    #[inline(always)]
    fn swap<V: Storage>(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        self.write_at::<V, _>(key, Hint::Present, |place, found, guards| {
            let Some(word) = found.value else { return Ok(Some(Err(None))) };
            let old = self.values.of::<V>().read(word, &guards.1);
            if old != V::shorten(expected) {
                return Ok(Some(Err(Some(V::owned(old)))));
            }
            let done = self.change::<V>(place, found, key, Some(new), &guards.0)?;
            Ok(matches!(done, Outcome::Done).then_some(Ok(())))
        })
    }

    /// Removes the item of a key, if its value is `expected` where one is given.
    #[inline(always)]
    fn delete<V: Storage>(&self, key: K::Ref<'_>, expected: Option<V::Ref<'_>>) -> Result<Removed<V>> {
        self.write_at::<V, _>(key, Hint::Present, |place, found, guards| {
            let Some(word) = found.value else { return Ok(Some(Err(None))) };
            let old = V::owned(self.values.of::<V>().read(word, &guards.1));
            if expected.is_some_and(|expected| V::borrow(&old) != V::shorten(expected)) {
                return Ok(Some(Err(Some(old))));
            }
            let done = self.change::<V>(place, found, key, None, &guards.0)?;
            Ok(matches!(done, Outcome::Done).then_some(Ok(old)))
        })
    }
}
