//! How maps are read. Every record is compared with its checksum: damage is an error, never absence.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use bristlecone::{Error, Range, Result};

use super::expiries::Entry;
use super::{Live, NO_TIME, Place, Store, all_of, borrowed, with_item_key};
use crate::map::{Map, Owned};

/// Bounds of keys of items.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A field of a map with its value; the field is preceded by the map's id.
pub type Item = (Vec<u8>, Vec<u8>);

/// Times of fields, in order, from both ends.
type Times<'t> = Box<dyn DoubleEndedIterator<Item = Result<Entry>> + 't>;

/// Items without those whose times have passed.
type LiveItems<'t> = Live<Range<'t, Vec<u8>, Vec<u8>>, Times<'t>>;

/// Items of a map, in order, from both ends.
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for a command, and the larger one is the usual one"
)]
pub enum Items<'t> {
    /// Those of a small map, or of none.
    Read(std::vec::IntoIter<Item>),
    /// Those of a large one, which are read as they are asked for.
    Tree(Range<'t, Vec<u8>, Vec<u8>>),
    /// Those of a large one without those that have expired.
    Live(Box<LiveItems<'t>>),
    /// They cannot be read.
    Failed(Option<Error>),
}

impl Iterator for Items<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Read(items) => items.next().map(Ok),
            Self::Tree(range) => range.next(),
            Self::Live(items) => items.next(),
            Self::Failed(error) => error.take().map(Err),
        }
    }
}

impl DoubleEndedIterator for Items<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Read(items) => items.next_back().map(Ok),
            Self::Tree(range) => range.next_back(),
            Self::Live(items) => items.next_back(),
            Self::Failed(error) => error.take().map(Err),
        }
    }
}

impl Store {
    /// Calls `show` with the value of a field, unless it has expired, without copying it. `None`: there is none.
    pub fn show_value<R>(
        &self,
        map: Map<'_>,
        field: &[u8],
        now: u64,
        show: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        let Map::Large(large) = map else {
            return Ok(match map {
                Map::Small(small) => self.with_small(small, |entry| show(entry.value(field)))?,
                _ => show(None),
            });
        };
        with_item_key(large.id(), field, |key| {
            if now != NO_TIME && self.time_at(key)?.is_some_and(|time| time <= now) {
                return Ok(show(None));
            }
            let mut show = Some(show);
            let mut show = |value: Option<&[u8]>| show.take().map(|show| show(value));
            let shown = self.items.get_with(key, |value| show(Some(value)))?.flatten();
            Ok(shown.or_else(|| show(None)).expect("it is shown once"))
        })
    }

    /// Returns the value of a field, unless it has expired.
    pub fn value(&self, map: Map<'_>, field: &[u8], now: u64) -> Result<Option<Vec<u8>>> {
        self.show_value(map, field, now, |value| value.map(<[u8]>::to_vec))
    }

    /// Returns the values of fields, unless they have expired.
    pub fn values(&self, map: Map<'_>, fields: &[&[u8]], now: u64) -> Result<Vec<Option<Vec<u8>>>> {
        match map {
            Map::Small(small) => self.with_small(small, |entry| {
                fields.iter().map(|field| entry.value(field).map(<[u8]>::to_vec)).collect()
            }),
            map => fields.iter().map(|field| self.value(map, field, now)).collect(),
        }
    }

    /// Returns whether a map has a field.
    pub fn has_field(&self, map: Map<'_>, field: &[u8], now: u64) -> Result<bool> {
        self.show_value(map, field, now, |value| value.is_some())
    }

    /// Returns which of the fields a map has.
    pub fn has(&self, map: Map<'_>, fields: &[&[u8]], now: u64) -> Result<Vec<bool>> {
        match map {
            Map::Small(small) => self
                .with_small(small, |entry| fields.iter().map(|field| entry.value(field).is_some()).collect()),
            map => fields.iter().map(|field| self.has_field(map, field, now)).collect(),
        }
    }

    /// Returns the items of a map within bounds that have not expired, in order, from both ends.
    pub fn range(&self, map: Map<'_>, bounds: &Bounds, now: u64) -> Items<'_> {
        match map {
            Map::Placeholder => Items::Read(Vec::new().into_iter()),
            Map::Small(small) => match self.small_items(small, bounds) {
                Ok(items) => Items::Read(items.into_iter()),
                Err(error) => Items::Failed(Some(error)),
            },
            Map::Large(_) => self.large_range(bounds, now),
        }
    }

    /// Returns the items of large maps within bounds that have not expired.
    pub fn large_range(&self, bounds: &Bounds, now: u64) -> Items<'_> {
        let items = self.items.range(borrowed(bounds));
        if now == NO_TIME {
            return Items::Tree(items);
        }
        let times = Box::new(self.times_within(bounds));
        Items::Live(Box::new(Live::new(items, times, now)))
    }

    /// Returns the items of a map that an entry names.
    pub fn items_at(&self, place: Place) -> Result<Vec<Item>> {
        match Owned::from(place) {
            Owned::Small(small) => self.small_items(small, &all_of(place.id)),
            _ => self.items_of(place.id).collect(),
        }
    }

    /// Returns how many fields there are, those of maps that no key has any more included.
    pub fn fields(&self) -> Result<u64> {
        Ok(self.items.len()?.saturating_add_signed(self.small_fields.load(Ordering::Relaxed)))
    }

    /// Returns all items of a map as they are stored, expired or not.
    pub fn all(&self, map: Map<'_>) -> Items<'_> {
        self.range(map, &all_of(map.id()), NO_TIME)
    }

    /// Returns the items of a map that can be read, and whose records are whole.
    pub fn readable(&self, map: Map<'_>) -> Result<Vec<Item>> {
        let Map::Large(large) = map else { return Ok(Vec::new()) };
        let bounds = all_of(large.id());
        let keys: Vec<Vec<u8>> =
            self.items.readable(borrowed(&bounds)).flatten().map(|(key, _)| key).collect();
        // Each is read again, and compared with its checksum.
        let whole = keys.into_iter().filter_map(|key| Some((self.items.get(&key).ok()??, key)));
        Ok(whole.map(|(value, key)| (key, value)).collect())
    }

    /// Returns the first items of a large map, whether a key has it or not.
    pub fn items_of(&self, id: u64) -> Range<'_, Vec<u8>, Vec<u8>> {
        self.items.range(borrowed(&all_of(id)))
    }

    /// Returns whether a large map has a field.
    pub fn has_fields(&self, id: u64) -> Result<bool> {
        self.items_of(id).next().transpose().map(|item| item.is_some())
    }

    /// Returns how many fields a large map has, those that have expired included.
    pub fn count(&self, id: u64) -> Result<u64> {
        self.items.count(borrowed(&all_of(id)))
    }
}

/// Returns whether an error tells of damage, as opposed to a refusal that leaves the pool in order.
pub fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupted { .. })
}
