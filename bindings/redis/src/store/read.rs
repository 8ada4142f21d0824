//! How maps are read. Every record is compared with its checksum: damage is an error, never absence.

use std::ops::Bound;

use bristlecone::{Error, Result};

use super::{Store, all_of, borrowed, item_key};

/// Bounds of keys of items.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A field of a map with its value; the field is preceded by the map's id.
pub type Item = (Vec<u8>, Vec<u8>);

impl Store {
    /// Returns the value of a field.
    pub fn value(&self, id: u64, field: &[u8]) -> Result<Option<Vec<u8>>> {
        self.items.get(&item_key(id, field))
    }

    /// Returns which of the fields a map has.
    pub fn has(&self, id: u64, fields: &[&[u8]]) -> Result<Vec<bool>> {
        fields.iter().map(|field| Ok(self.value(id, field)?.is_some())).collect()
    }

    /// Returns the items within bounds, in order, from both ends.
    pub fn range(&self, bounds: &Bounds) -> impl DoubleEndedIterator<Item = Result<Item>> + use<'_> {
        self.items.range(borrowed(bounds))
    }

    /// Returns whether a map has a field.
    pub fn has_fields(&self, id: u64) -> Result<bool> {
        self.range(&all_of(id)).next().transpose().map(|item| item.is_some())
    }

    /// Returns how many fields a map has.
    pub fn count(&self, id: u64) -> Result<u64> {
        self.range(&all_of(id)).try_fold(0, |count, item| item.map(|_| count + 1))
    }
}

/// Returns whether an error tells of damage, as opposed to a refusal that leaves the pool in order.
pub fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupted { .. })
}
