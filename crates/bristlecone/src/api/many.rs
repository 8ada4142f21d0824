//! Multi-key calls: each item is an independent operation, but their memory accesses overlap.

use std::cell::Cell;
use std::error::Error as StdError;
use std::fmt;

use bristlecone_pm::{Error, Result};
use smallvec::SmallVec;

use super::{key, value};
use crate::api::metrics::Operation;
use crate::index::parts::codec::{Codec, GROUP};
use crate::index::{Index, Tell};
use crate::journal::Done;
use crate::journal::entry::push_change;
use crate::{Key, Tree, Value};

/// Error of a multi-key call: the reason, and the number of completed items.
///
/// In a function that returns [`bristlecone::Result`](crate::Result), `?` converts it to [`Error`].
#[derive(Debug)]
#[non_exhaustive]
pub struct ManyError {
    /// Number of completed and durable items, counted from the first. The items behind them are unchanged. After
    /// [`Error::DurabilityLost`], the outcome of up to sixteen of them is undetermined; in a pool with a journal that of
    /// all.
    pub done: usize,
    /// Error of the next item.
    pub error: Error,
}

impl fmt::Display for ManyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} items were done before)", self.error, self.done)
    }
}

impl StdError for ManyError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

impl From<ManyError> for Error {
    fn from(stopped: ManyError) -> Self {
        stopped.error
    }
}

/// The borrowed form of a key or value codec.
type CodecRef<'a, C> = <C as Codec>::Ref<'a>;

/// Function that changes the items of a group.
type Change<K, V> = for<'a> fn(
    &dyn Index<<K as Key>::Codec, <V as Value>::Codec>,
    &[(CodecRef<'a, <K as Key>::Codec>, CodecRef<'a, <V as Value>::Codec>)],
    &mut Tell<'_, <V as Value>::Codec>,
) -> Result<()>;

/// Multi-key operations.
impl<K: Key, V: Value> Tree<K, V> {
    /// Looks up keys and sets `found` to their values, in the order of the keys. Each key is looked up independently,
    /// as in [`get`](Self::get), but memory is prefetched for several keys together. In NBTree and SSTree this takes a
    /// fraction of the time if the tree exceeds the caches.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert_many(&[("Methuselah", 4857), ("Prometheus", 4900)], &mut Vec::new())?;
    /// let mut found = Vec::new();
    /// ages.get_many(&["Prometheus", "Pando", "Methuselah"], &mut found)?;
    /// assert_eq!(found, [Some(4900), None, Some(4857)]);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn get_many(&self, keys: &[K::Ref<'_>], found: &mut Vec<Option<V::Owned>>) -> Result<()> {
        found.clear();
        found.resize(keys.len(), None);
        let mut decoded = true;
        self.look_up_many(keys, &mut |at, value| {
            found[at] = V::decode(&self.values, value);
            decoded &= found[at].is_some();
        })?;
        if decoded { Ok(()) } else { Err(self.undecodable_value()) }
    }

    /// Calls `show` with the position and the value of each present key, in the order of the keys, without copying
    /// values: see [`get_many`](Self::get_many) and [`get_with`](Self::get_with).
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let texts = pool.tree::<u64, &str>("texts")?;
    /// texts.upsert_many(&[(7, "one two three"), (8, "four")])?;
    /// let mut words = 0;
    /// texts.get_many_with(&[8, 9, 7], |_, text| words += text.split(' ').count())?;
    /// assert_eq!(words, 4);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn get_many_with(&self, keys: &[K::Ref<'_>], mut show: impl FnMut(usize, V::Ref<'_>)) -> Result<()> {
        let mut decoded = true;
        self.look_up_many(keys, &mut |at, value| {
            decoded &= V::view(&self.values, value, |value| show(at, value)).is_some()
        })?;
        if decoded { Ok(()) } else { Err(self.undecodable_value()) }
    }

    /// Sets `found` to whether each key is present, in the order of the keys: see [`get_many`](Self::get_many).
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let primes = pool.tree::<u64, ()>("primes")?;
    /// primes.upsert_many(&[(2, ()), (3, ()), (5, ())])?;
    /// let mut found = Vec::new();
    /// primes.contains_many(&[3, 4, 5], &mut found)?;
    /// assert_eq!(found, [true, false, true]);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn contains_many(&self, keys: &[K::Ref<'_>], found: &mut Vec<bool>) -> Result<()> {
        found.clear();
        found.resize(keys.len(), false);
        self.look_up_many(keys, &mut |at, _| found[at] = true)
    }

    /// Calls `show` with the position and the stored word of the value of each present key.
    pub(crate) fn look_up_many(
        &self,
        keys: &[K::Ref<'_>],
        show: &mut dyn FnMut(usize, <V::Codec as Codec>::Ref<'_>),
    ) -> Result<()> {
        let tree = self.here()?;
        self.count_many(Operation::Get, keys.len());
        let mut pack = <K::Codec as Codec>::Pack::default();
        for (number, group) in keys.chunks(GROUP).enumerate() {
            K::Codec::unpack(&mut pack);
            self.pack_keys(group, &mut pack).1?;
            let keys: SmallVec<[_; GROUP]> = (0..group.len()).map(|at| K::Codec::packed(&pack, at)).collect();
            tree.get_many(&keys, &mut |at, value| show(number * GROUP + at, value))?;
        }
        Ok(())
    }

    /// Inserts or overwrites items one after the other, each as in [`insert`](Self::insert); sets `old` to the previous
    /// values, in the order of the items. The call is not atomic: after a crash, any subset of its unacknowledged items
    /// may be present. Memory accesses and persistence of up to sixteen items overlap. In NBTree and SSTree this takes
    /// a fraction of the time if keys and values are words. If a key occurs twice, the later value wins.
    ///
    /// # Errors
    ///
    /// Same as [`insert`](Self::insert), with the number of completed items; `old` has their previous values.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// let mut old = Vec::new();
    /// ages.insert_many(&[("Pando", 14_000), ("Prometheus", 4900), ("Pando", 16_000)], &mut old)?;
    /// assert_eq!(old, [None, None, Some(14_000)]);
    /// let long = "x".repeat(20_000);
    /// let stopped = ages.insert_many(&[("Methuselah", 4857), (long.as_str(), 1)], &mut old).unwrap_err();
    /// assert_eq!((stopped.done, old.len(), ages.len()?), (1, 1, 3));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn insert_many(
        &self,
        items: &[(K::Ref<'_>, V::Ref<'_>)],
        old: &mut Vec<Option<V::Owned>>,
    ) -> std::result::Result<(), ManyError> {
        self.count_many(Operation::Insert, items.len());
        old.clear();
        old.reserve(items.len());
        self.change_many(items, true, |tree, items, tell| tree.write_many(items, tell), &mut |value| {
            old.push(self.replaced(value));
        })
    }

    /// Inserts or overwrites items as [`insert_many`](Self::insert_many) does, without returning previous values: see
    /// [`upsert`](Self::upsert).
    ///
    /// # Errors
    ///
    /// Same as [`upsert`](Self::upsert), with the number of completed items.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let squares = pool.tree::<u64, u64>("squares")?;
    /// let items: Vec<_> = (0..1000).map(|number| (number, number * number)).collect();
    /// squares.upsert_many(&items)?;
    /// assert_eq!((squares.len()?, squares.get(12)?), (1000, Some(144)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn upsert_many(&self, items: &[(K::Ref<'_>, V::Ref<'_>)]) -> std::result::Result<(), ManyError> {
        self.count_many(Operation::Upsert, items.len());
        self.change_many(items, false, |tree, items, tell| tree.upsert_many(items, tell), &mut |_| {})
    }

    /// Removes keys one after the other, each as in [`remove`](Self::remove); sets `old` to the previous values, in the
    /// order of the keys: see [`insert_many`](Self::insert_many).
    ///
    /// # Errors
    ///
    /// Same as [`remove`](Self::remove), with the number of completed keys; `old` has their previous values.
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let squares = pool.tree::<u64, u64>("squares")?;
    /// squares.upsert_many(&[(1, 1), (2, 4), (3, 9)])?;
    /// let mut old = Vec::new();
    /// squares.remove_many(&[3, 1, 1], &mut old)?;
    /// assert_eq!(old, [Some(9), Some(1), None]);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn remove_many(
        &self,
        keys: &[K::Ref<'_>],
        old: &mut Vec<Option<V::Owned>>,
    ) -> std::result::Result<(), ManyError> {
        self.count_many(Operation::Remove, keys.len());
        old.clear();
        old.reserve(keys.len());
        self.remove_groups(keys, &mut |value| old.push(self.replaced(value)))
    }

    fn remove_groups(
        &self,
        keys: &[K::Ref<'_>],
        tell: &mut Tell<'_, V::Codec>,
    ) -> std::result::Result<(), ManyError> {
        let done = Cell::new(0);
        let mut pack = <K::Codec as Codec>::Pack::default();
        let mut remove_group = |group: &[K::Ref<'_>]| {
            K::Codec::unpack(&mut pack);
            // A key that cannot be one of the tree ends the call after the keys before it.
            let (count, packed) = self.pack_keys(group, &mut pack);
            let keys: SmallVec<[_; GROUP]> = (0..count).map(|at| K::Codec::packed(&pack, at)).collect();
            let of_group = Cell::new(Done::NONE);
            let mut told = |old: Option<_>| {
                done.set(done.get() + 1);
                of_group.set(of_group.get().and(Some(old.is_some())));
                tell(old);
            };
            let describe = |body: &mut Vec<u8>| {
                keys.iter().for_each(|key| push_change(body, self.link.id, K::Codec::item(*key), None));
            };
            let remove = |tree: &dyn Index<_, _>| tree.remove_many(&keys, &mut told);
            self.change_group(|| keys.clone(), describe, |_| of_group.get(), remove).and(packed)
        };
        self.in_groups(keys, &done, &mut remove_group)
    }

    /// Calls `change` with the items, a group at a time; in a pool with a journal all of them wait for one sync. `done` is
    /// the number of items that were changed so far.
    fn in_groups<T>(
        &self,
        items: &[T],
        done: &Cell<usize>,
        change: impl FnMut(&[T]) -> Result<()>,
    ) -> std::result::Result<(), ManyError> {
        self.writable().map_err(|error| ManyError { done: 0, error })?;
        let (changed, waited) = self.pool.defer(|| items.chunks(GROUP).try_for_each(change));
        // Without the sync, none of them is known to be durable.
        waited.map_err(|error| ManyError { done: 0, error })?;
        changed.map_err(|error| ManyError { done: done.get(), error })
    }

    /// `looks` is whether `change` passes previous values to `tell`.
    fn change_many(
        &self,
        items: &[(K::Ref<'_>, V::Ref<'_>)],
        looks: bool,
        change: Change<K, V>,
        tell: &mut Tell<'_, V::Codec>,
    ) -> std::result::Result<(), ManyError> {
        let done = Cell::new(0);
        let mut packs = (<K::Codec as Codec>::Pack::default(), <V::Codec as Codec>::Pack::default());
        let mut change_group = |group: &[(K::Ref<'_>, V::Ref<'_>)]| {
            K::Codec::unpack(&mut packs.0);
            V::Codec::unpack(&mut packs.1);
            let mut count = 0;
            // An item that cannot be stored ends the call after the items before it.
            let packed = group.iter().try_for_each(|(key, value)| {
                self.pack_item(*key, *value, &mut packs)?;
                count += 1;
                Ok(())
            });
            let items: SmallVec<[_; GROUP]> = (0..count)
                .map(|at| (K::Codec::packed(&packs.0, at), V::Codec::packed(&packs.1, at)))
                .collect();
            let of_group = Cell::new(Done::NONE);
            let mut told = |old: Option<_>| {
                done.set(done.get() + 1);
                of_group.set(of_group.get().and(looks.then_some(old.is_some())));
                tell(old);
            };
            let keys = || items.iter().map(|(key, _)| *key).collect();
            let describe = |body: &mut Vec<u8>| {
                for (key, value) in &items {
                    push_change(body, self.link.id, K::Codec::item(*key), Some(V::Codec::item(*value)));
                }
            };
            let change = |tree: &dyn Index<_, _>| change(tree, &items, &mut told);
            let changed = self.change_group(keys, describe, |_| of_group.get(), change);
            changed.and(packed)
        };
        self.in_groups(items, &done, &mut change_group)
    }

    /// Appends copies of keys up to the first that cannot be one of the tree; returns their number.
    fn pack_keys(&self, keys: &[K::Ref<'_>], pack: &mut <K::Codec as Codec>::Pack) -> (usize, Result<()>) {
        let mut count = 0;
        let packed = keys.iter().try_for_each(|key| {
            K::with(&self.keys, *key, |key| {
                K::Codec::pack(pack, key);
                count += 1;
                Ok(())
            })
        });
        (count, packed)
    }

    /// Appends the encoding of an item, or fails if it cannot be stored.
    fn pack_item(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        (keys, values): &mut (<K::Codec as Codec>::Pack, <V::Codec as Codec>::Pack),
    ) -> Result<()> {
        V::with(&self.values, value, |value| {
            value::check_len(V::Codec::bytes(value))?;
            K::with(&self.keys, key, |key| {
                key::check_len(K::Codec::bytes(key))?;
                K::Codec::pack(keys, key);
                Ok(())
            })?;
            V::Codec::pack(values, value);
            Ok(())
        })
    }
}
