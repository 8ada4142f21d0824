//! The key that a command changes.

use std::collections::BTreeMap;

use super::{Done, FIELDS, Refusal, refuse};
use crate::kind;
use crate::map::{Large, Map, Owned};
use crate::server::Key;
use crate::store::{Change, NO_TIME, Store, Time};

/// The key that a command changes.
pub struct Target<'a> {
    pub(super) key: Key,
    /// Its map, if it is there.
    pub map: Option<Map<'a>>,
    pub(super) db: i32,
    pub(super) name: &'a [u8],
    /// Fields with earlier times have expired: see [`Call::now_of`].
    pub now: u64,
}

impl Target<'_> {
    /// Changes fields, which lose their times, and writes times, all of it atomically. Creates the map if it does not exist. `more`:
    /// how many fields a large map has more then. Returns how many fields there are more.
    pub fn change(
        &self,
        store: &Store,
        changes: &[Change<'_>],
        times: &[Time<'_>],
        more: i64,
    ) -> Result<i64, Refusal> {
        match self.map {
            None | Some(Map::Placeholder) => {
                hold(&self.key, store, store.create(self.db, self.name, changes, times)?)?;
                Ok(changes.len() as i64)
            }
            Some(Map::Large(large)) => {
                let over = self.over_among(store, large, changes)?;
                store.apply(large, changes, times)?;
                large.grow(more - over);
                Ok(more)
            }
            Some(Map::Small(small)) => {
                let (more, large) = store.change_small(small, changes, times)?;
                if let Some(large) = large {
                    self.key.replace(kind::of_maps(), Owned::Large(Box::new(large)));
                }
                Ok(more)
            }
        }
    }

    /// Returns how many of the fields that are written have expired: they are new, and are stored already.
    fn over_among(&self, store: &Store, large: &Large, changes: &[Change<'_>]) -> Result<i64, Refusal> {
        let mut over = 0;
        if self.now != NO_TIME {
            for (field, _) in changes.iter().filter(|(_, value)| value.is_some()) {
                over += i64::from(store.time_of(large, field)?.is_some_and(|time| time <= self.now));
            }
        }
        Ok(over)
    }

    /// Writes a field of the map. Returns whether it is new.
    pub fn put(&self, store: &Store, map: Map<'_>, field: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let Map::Large(large) = map else {
            return self.change(store, &[(field, Some(value))], &[], 0).map(|more| more > 0);
        };
        let was_over = self.over_among(store, large, &[(field, Some(value))])? > 0;
        let new = store.put(large, field, value)?;
        large.grow(i64::from(new));
        Ok(new || was_over)
    }

    /// Writes fields atomically, of which `new` are new, with times of some, and creates the map if it does not exist.
    pub fn set(&self, store: &Store, fields: &BTreeMap<&[u8], &[u8]>, times: &[Time<'_>], new: u64) -> Done {
        let changes: Vec<_> = fields.iter().map(|(field, value)| (*field, Some(*value))).collect();
        self.change(store, &changes, times, new as i64).map(drop)
    }

    /// Removes fields in one step, all of which are there.
    pub fn remove(&self, store: &Store, fields: &[&[u8]]) -> Done {
        let changes: Vec<_> = fields.iter().map(|field| (*field, None)).collect();
        self.change(store, &changes, &[], -(changes.len() as i64)).map(drop)
    }

    /// Removes fields in one step, between which the map has no other.
    pub fn remove_row(&self, store: &Store, fields: &[&[u8]]) -> Done {
        let Some(Map::Large(large)) = self.map else { return self.remove(store, fields) };
        store.take_row(large, fields)?;
        large.grow(-(fields.len() as i64));
        Ok(())
    }
}

/// Calls `give` with the arguments of `OM.PEXPIREAT` behind the key, for all times.
pub fn each_expiry(times: &[Time<'_>], mut give: impl FnMut(&[&[u8]])) {
    for times in times.chunk_by(|(_, one), (_, other)| one == other).flat_map(|alike| alike.chunks(FIELDS)) {
        let (time, count) = (times[0].1.to_string(), times.len().to_string());
        let fields = times.iter().map(|(field, _)| *field);
        let words: Vec<&[u8]> =
            [time.as_bytes(), b"FIELDS", count.as_bytes()].into_iter().chain(fields).collect();
        give(&words);
    }
}

/// Makes a key hold a map.
pub(super) fn hold(key: &Key, store: &Store, map: Owned) -> Done {
    let value = map.into_raw();
    if key.set(kind::of_maps(), value) {
        return Ok(());
    }
    // SAFETY: the server refused it, so that nothing else has it.
    store.detach(&unsafe { Owned::take(value) });
    refuse("the server refused the key")
}
