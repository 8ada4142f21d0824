//! Conversion of new values to words, and release of replaced ones.

use bristlecone_pm::{Durable, Medium, Persist, Result};

use super::NbTree;
use super::layout::Stored;
use super::lookup::{Pins, Target};
use crate::index::parts::codec::{KeyCodec, Storage};

/// Outcome of a change: the previous value word, and whether it was replaced.
pub(super) struct Outcome {
    pub old: u64,
    pub changed: bool,
}

/// A new value, written once even if the change is retried.
pub(super) struct NewValue<'a, V: Storage> {
    value: V::Ref<'a>,
    /// The block of the leaf that had the key, or zero.
    leaf: u64,
    pub word: Option<u64>,
}

impl<'a, V: Storage> NewValue<'a, V> {
    pub fn new(value: V::Ref<'a>, leaf: u64) -> Self {
        Self { value, leaf, word: None }
    }
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Returns the block of the leaf that was found to have a key, or zero.
    pub(super) fn near(&self, target: &Target) -> u64 {
        target.probe.as_ref().map_or(0, |probe| self.leaves.get(probe.leaf).block())
    }

    /// Insert 1, update 1: returns the word of a new value. Its out-of-line record is durable.
    pub(super) fn word_of<V: Storage>(&self, new: &mut NewValue<'_, V>) -> Result<u64> {
        if let Some(word) = new.word {
            return Ok(word);
        }
        let (mut word, mut flushed) =
            self.values.of::<V>().write_near(new.value, new.leaf, "nbtree update.1")?;
        if V::INLINE {
            match Stored::plain(word) {
                Some(plain) => {
                    new.word = Some(plain);
                    return Ok(plain);
                }
                None => {
                    (word, flushed) = self.values.records.write(&word.to_le_bytes(), "nbtree update.1 box")?
                }
            }
        }
        let Durable { .. } = self.medium().fence(flushed, "nbtree update.1 fence");
        new.word = Some(word);
        Ok(word)
    }

    /// Returns whether a value word represents `value`.
    pub(super) fn is_value<V: Storage>(&self, word: u64, value: V::Ref<'_>, pins: &Pins<K>) -> bool {
        self.with_value::<V, _>(word, pins, |found| V::shorten(found) == V::shorten(value)).unwrap_or(false)
    }

    /// Returns the previous value, and releases the record that nothing refers to: that of the old value, or that of
    /// the `new` one if nothing was changed.
    #[inline(always)]
    pub(super) fn conclude<V: Storage>(
        &self,
        new: Option<u64>,
        outcome: Result<Outcome>,
        pins: &Pins<K>,
    ) -> Result<Option<V::Owned>> {
        if let Ok(Outcome { old, changed }) = outcome
            && V::INLINE
            && (changed || new.is_none())
        {
            // In most cases nothing is stored out of line.
            match Stored::decode(old) {
                Stored::Empty => return self.pool.health().map(|()| None),
                Stored::Plain(old) => {
                    let old = V::owned(self.values.of::<V>().read(old, V::guard(&pins.epoch)));
                    return self.pool.health().map(|()| Some(old));
                }
                Stored::Record(_) | Stored::Sealed(_) => {}
            }
        }
        self.conclude_out_of_line::<V>(new, outcome, pins)
    }

    fn conclude_out_of_line<V: Storage>(
        &self,
        new: Option<u64>,
        outcome: Result<Outcome>,
        pins: &Pins<K>,
    ) -> Result<Option<V::Owned>> {
        let unused = new.filter(|_| !matches!(outcome, Ok(Outcome { changed: true, .. })));
        if let Some(Stored::Record(record)) = unused.map(Stored::decode) {
            self.values.records.free(record);
        }
        let Outcome { old, changed } = outcome?;
        let value = self.with_value::<V, _>(old, pins, V::owned);
        if let (true, Stored::Record(record)) = (changed, Stored::decode(old)) {
            self.values.records.retire(record, &pins.epoch);
        }
        self.pool.health()?;
        Ok(value)
    }
}
