//! Volatile concurrent ordered maps, through their crates: the alternative for data that need not survive. A missing
//! operation is emulated as a user would; an impossible one is skipped, and reported.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock};

use bristlecone::Error;
use crossbeam_skiplist::SkipMap;
use scc::{Guard, TreeIndex};

use super::data::{BenchKey, BenchValue, Shape};
use super::subject::Subject;

/// The maps available to `--against`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum VolatileMap {
    /// ferntree: a B+-tree with optimistic lock coupling
    Ferntree,
    /// congee: an adaptive radix tree; u64 keys and values only
    Congee,
    /// scc: TreeIndex, a B+-tree for readers
    Scc,
    /// crossbeam-skiplist: a lock-free skip list
    Skiplist,
    /// The standard library's B-tree under one lock
    Btreemap,
    /// masstree: a trie of B+-trees; keys of up to 256 bytes
    #[cfg(feature = "rivals")]
    Masstree,
}

impl VolatileMap {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ferntree => "ferntree",
            Self::Congee => "congee",
            Self::Scc => "scc",
            Self::Skiplist => "skiplist",
            Self::Btreemap => "btreemap",
            #[cfg(feature = "rivals")]
            Self::Masstree => "masstree",
        }
    }
}

impl VolatileMap {
    /// Returns the reason why it cannot keep data of these shapes, if so.
    pub fn refuses(self, key: Shape, value: Shape) -> Option<&'static str> {
        match self {
            Self::Congee if (key, value) != (Shape::U64, Shape::U64) => Some("its keys and values are words"),
            #[cfg(feature = "rivals")]
            Self::Masstree if key.most_bytes() > masstree::MAX_KEY_LENGTH => {
                Some("its keys have at most 256 bytes")
            }
            _ => None,
        }
    }
}

/// `ferntree::Tree`. Replaces by `insert`, because it has no update.
pub struct Ferntree<K: BenchKey, V: BenchValue>(ferntree::Tree<K::Own, V::Own>);

impl<K: BenchKey, V: BenchValue> Default for Ferntree<K, V> {
    fn default() -> Self {
        Self(ferntree::Tree::new())
    }
}

impl<K: BenchKey, V: BenchValue> Subject<K, V> for Ferntree<K, V>
where
    K::Part: Ord,
{
    #[inline]
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error> {
        black_box(self.0.insert_defer(K::own(key), V::own(value)));
        Ok(())
    }

    #[inline]
    fn insert_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        let mut is_new = false;
        black_box(self.0.get_or_insert_with(K::own(key), || {
            is_new = true;
            V::own(value)
        }));
        Ok(is_new)
    }

    #[inline]
    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        Ok(self.0.insert_defer(K::own(key), V::own(value)))
    }

    #[inline]
    fn get<R>(&self, key: K::Ref<'_>, look: impl Fn(V::Ref<'_>) -> R) -> Result<Option<R>, Error> {
        Ok(self.0.lookup_optimistic(K::part(&key), |value| look(V::show(value))))
    }

    #[inline]
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.0.remove_defer(K::part(&key)))
    }

    #[inline]
    fn scan(
        &self,
        from: K::Ref<'_>,
        length: usize,
        mut each: impl FnMut(K::Ref<'_>, V::Ref<'_>),
    ) -> Result<usize, Error> {
        let mut range = self.0.range::<K::Part>(Bound::Included(K::part(&from)), Bound::Unbounded);
        let mut seen = 0;
        while seen < length
            && let Some((key, value)) = range.next()
        {
            each(<K as BenchKey>::show(key), V::show(value));
            seen += 1;
        }
        Ok(seen)
    }
}

/// `scc::TreeIndex`. Reads, then replaces by `upsert`, because it has no update.
pub struct Scc<K: BenchKey, V: BenchValue>(TreeIndex<K::Own, V::Own>);

impl<K: BenchKey, V: BenchValue> Default for Scc<K, V> {
    fn default() -> Self {
        Self(TreeIndex::new())
    }
}

impl<K: BenchKey, V: BenchValue> Subject<K, V> for Scc<K, V> {
    #[inline]
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error> {
        self.0.upsert_sync(K::own(key), V::own(value));
        Ok(())
    }

    #[inline]
    fn insert_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        Ok(self.0.insert_sync(K::own(key), V::own(value)).is_ok())
    }

    #[inline]
    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        let found = self.0.contains::<K::Part>(K::part(&key));
        if found {
            self.upsert(key, value)?;
        }
        Ok(found)
    }

    #[inline]
    fn get<R>(&self, key: K::Ref<'_>, look: impl Fn(V::Ref<'_>) -> R) -> Result<Option<R>, Error> {
        Ok(self.0.peek_with::<K::Part, _, _>(K::part(&key), |_, value| look(V::show(value))))
    }

    #[inline]
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.0.remove_sync::<K::Part>(K::part(&key)))
    }

    #[inline]
    fn scan(
        &self,
        from: K::Ref<'_>,
        length: usize,
        mut each: impl FnMut(K::Ref<'_>, V::Ref<'_>),
    ) -> Result<usize, Error> {
        let guard = Guard::new();
        let range = self.0.range::<K::Own, _>(K::own(from).., &guard);
        Ok(range.take(length).map(|(key, value)| each(<K as BenchKey>::show(key), V::show(value))).count())
    }
}

/// `crossbeam_skiplist::SkipMap`. Replaces by removing and inserting, which is not atomic: between the two the key is
/// absent.
pub struct Skiplist<K: BenchKey, V: BenchValue>(SkipMap<K::Own, V::Own>);

impl<K: BenchKey, V: BenchValue> Default for Skiplist<K, V> {
    fn default() -> Self {
        Self(SkipMap::new())
    }
}

impl<K: BenchKey, V: BenchValue> Subject<K, V> for Skiplist<K, V> {
    #[inline]
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error> {
        black_box(self.0.insert(K::own(key), V::own(value)).value());
        Ok(())
    }

    #[inline]
    fn insert_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        let found = Cell::new(false);
        black_box(self.0.compare_insert(K::own(key), V::own(value), |_| {
            found.set(true);
            false
        }));
        Ok(!found.get())
    }

    #[inline]
    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        let found = self.0.contains_key::<K::Part>(K::part(&key));
        if found {
            self.upsert(key, value)?;
        }
        Ok(found)
    }

    #[inline]
    fn get<R>(&self, key: K::Ref<'_>, look: impl Fn(V::Ref<'_>) -> R) -> Result<Option<R>, Error> {
        Ok(self.0.get::<K::Part>(K::part(&key)).map(|entry| look(V::show(entry.value()))))
    }

    #[inline]
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.0.remove::<K::Part>(K::part(&key)).is_some())
    }

    #[inline]
    fn scan(
        &self,
        from: K::Ref<'_>,
        length: usize,
        mut each: impl FnMut(K::Ref<'_>, V::Ref<'_>),
    ) -> Result<usize, Error> {
        let from = (Bound::Included(K::part(&from)), Bound::Unbounded);
        let entries = self.0.range::<K::Part, _>(from).take(length);
        Ok(entries.map(|entry| each(<K as BenchKey>::show(entry.key()), V::show(entry.value()))).count())
    }
}

/// `RwLock<BTreeMap>`: the simplest solution.
pub struct Locked<K: BenchKey, V: BenchValue>(RwLock<BTreeMap<K::Own, V::Own>>);

impl<K: BenchKey, V: BenchValue> Default for Locked<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: BenchKey, V: BenchValue> Locked<K, V> {
    /// Calls `change` with the map. A thread that panicked leaves no partial change.
    #[inline]
    fn change<R>(&self, change: impl FnOnce(&mut BTreeMap<K::Own, V::Own>) -> R) -> R {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<K: BenchKey, V: BenchValue> Subject<K, V> for Locked<K, V> {
    #[inline]
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error> {
        let (key, value) = (K::own(key), V::own(value));
        self.change(|map| drop(map.insert(key, value)));
        Ok(())
    }

    #[inline]
    fn insert_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        let (key, value) = (K::own(key), V::own(value));
        Ok(self.change(|map| match map.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(value);
                true
            }
            Entry::Occupied(_) => false,
        }))
    }

    #[inline]
    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        let value = V::own(value);
        Ok(self.change(|map| map.get_mut(K::part(&key)).map(|found| *found = value).is_some()))
    }

    #[inline]
    fn get<R>(&self, key: K::Ref<'_>, look: impl Fn(V::Ref<'_>) -> R) -> Result<Option<R>, Error> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Ok(map.get(K::part(&key)).map(|value| look(V::show(value))))
    }

    #[inline]
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.change(|map| map.remove(K::part(&key)).is_some()))
    }

    #[inline]
    fn scan(
        &self,
        from: K::Ref<'_>,
        length: usize,
        mut each: impl FnMut(K::Ref<'_>, V::Ref<'_>),
    ) -> Result<usize, Error> {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let range = map.range::<K::Part, _>((Bound::Included(K::part(&from)), Bound::Unbounded));
        Ok(range.take(length).map(|(key, value)| each(<K as BenchKey>::show(key), V::show(value))).count())
    }
}
