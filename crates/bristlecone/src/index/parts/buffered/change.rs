//! A change of one key, about to be applied to a tree that buffers and logs.

use bristlecone_pm::{Flushed, LogEntry, Medium, Result, Step};

use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::parts::items::{Items, Values};

/// A change of one key, as words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Item {
    pub key: u64,
    pub value: u64,
    pub removed: bool,
}

impl Item {
    /// Returns the log entry for this change.
    #[inline(always)]
    pub fn entry(self, sequence: u64) -> LogEntry {
        LogEntry { sequence, removed: self.removed, key: self.key, value: self.value }
    }
}

/// A pending change, and the part of it that is not durable yet.
pub struct Change {
    pub item: Item,
    /// Records that were written for the item and that it refers to.
    records: Option<Flushed>,
    new_key: bool,
}

impl Change {
    /// Writes the out-of-line data: the key, unless it has a word already, and the value, unless
    /// the change removes the key.
    #[inline(always)]
    pub fn write<K: KeyCodec, V: Storage, M: Medium>(
        (keys, values): (&Items<K, M>, &Values<M>),
        (leaf, known): (u64, Option<u64>),
        key: K::Ref<'_>,
        value: Option<V::Ref<'_>>,
        [key_step, value_step]: [Step; 2],
    ) -> Result<Self> {
        let mut flushed = Flushed::none();
        let key = match known {
            Some(word) => word,
            None => {
                let (word, under_way) = keys.write_near(key, leaf, key_step)?;
                flushed = flushed.and(under_way);
                word
            }
        };
        let new_key = known.is_none();
        let item = Item { key, value: 0, removed: true };
        let mut change = Self { item, records: None, new_key };
        if let Some(value) = value {
            match values.of::<V>().write_near(value, leaf, value_step) {
                Ok((word, under_way)) => {
                    flushed = flushed.and(under_way);
                    change.item = Item { value: word, removed: false, ..item };
                }
                Err(error) => {
                    change.discard(keys, values);
                    return Err(error);
                }
            }
        }
        let written = !K::INLINE && new_key || !V::INLINE && !change.item.removed;
        change.records = written.then_some(flushed);
        Ok(change)
    }

    /// Returns the pending records, which must be durable before anything refers to them. Returns
    /// them only once.
    #[inline(always)]
    pub fn take_records(&mut self) -> Option<Flushed> {
        self.records.take()
    }

    /// Puts the pending records back: nothing referred to them.
    pub fn keep_records(&mut self, records: Option<Flushed>) {
        self.records = records;
    }

    /// Frees the records of a change that was not applied.
    pub fn discard<K: KeyCodec, M: Medium>(&self, keys: &Items<K, M>, values: &Values<M>) {
        if self.new_key {
            keys.free(self.item.key);
        }
        if !self.item.removed {
            values.free(self.item.value);
        }
    }
}
