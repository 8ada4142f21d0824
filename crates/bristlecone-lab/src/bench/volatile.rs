//! What a user would hold the data in if it did not have to survive: volatile concurrent ordered
//! maps, through their crates. Where one has no operation of its own, it does
//! what its user would do; what it cannot do at all is skipped, and reported.

use std::hint::black_box;
use std::ops::Bound;

use bristlecone::Error;
use congee::{Congee, epoch};
use crossbeam_skiplist::SkipMap;
use scc::{Guard, TreeIndex};

use super::data::{BenchKey, BenchValue};
use super::subject::Subject;

/// The maps that `--against` can name.
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
}

impl VolatileMap {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ferntree => "ferntree",
            Self::Congee => "congee",
            Self::Scc => "scc",
            Self::Skiplist => "skiplist",
        }
    }
}

/// `ferntree::Tree`. Replaces by `insert`: it has no update of its own.
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
        black_box(self.0.get_or_insert(K::own(key), V::own(value)));
        Ok(true)
    }

    #[inline]
    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        Ok(self.0.insert_defer(K::own(key), V::own(value)))
    }

    #[inline]
    fn get(&self, key: K::Ref<'_>) -> bool {
        self.0.lookup_optimistic(K::part(&key), |value| black_box(V::touch_own(value))).is_some()
    }

    #[inline]
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.0.remove_defer(K::part(&key)))
    }

    #[inline]
    fn scan(&self, from: K::Ref<'_>, length: usize) -> usize {
        let mut range = self.0.range::<K::Part>(Bound::Included(K::part(&from)), Bound::Unbounded);
        let mut seen = 0;
        while seen < length
            && let Some((key, value)) = range.next()
        {
            black_box((K::touch(key), V::touch_own(value)));
            seen += 1;
        }
        seen
    }
}

/// `congee::Congee`, of words only.
#[derive(Default)]
pub struct Art(Congee<usize, usize>);

/// It panics inside the crate if an allocation fails, as in every volatile map.
const MEMORY: &str = "memory for congee";

impl Subject<u64, u64> for Art {
    #[inline]
    fn upsert(&self, key: u64, value: u64) -> Result<(), Error> {
        black_box(self.0.insert(key as usize, value as usize, &epoch::pin()).expect(MEMORY));
        Ok(())
    }

    #[inline]
    fn insert_new(&self, key: u64, value: u64) -> Result<bool, Error> {
        let found =
            self.0.compute_or_insert(key as usize, |found| found.unwrap_or(value as usize), &epoch::pin());
        Ok(found.expect(MEMORY).is_none())
    }

    #[inline]
    fn update(&self, key: u64, value: u64) -> Result<bool, Error> {
        Ok(self.0.compute_if_present(&(key as usize), |_| Some(value as usize), &epoch::pin()).is_some())
    }

    #[inline]
    fn get(&self, key: u64) -> bool {
        self.0.get(&(key as usize), &epoch::pin()).map(black_box).is_some()
    }

    #[inline]
    fn remove(&self, key: u64) -> Result<bool, Error> {
        Ok(self.0.remove(&(key as usize), &epoch::pin()).is_some())
    }

    #[inline]
    fn scan(&self, from: u64, length: usize) -> usize {
        let mut found = [(0, 0); 128];
        let length = length.min(found.len());
        let seen = self.0.range(&(from as usize), &usize::MAX, &mut found[..length], &epoch::pin());
        black_box(&found);
        seen
    }
}

/// `scc::TreeIndex`. Replaces by `upsert`: it has no update of its own.
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
        self.upsert(key, value).map(|()| true)
    }

    #[inline]
    fn get(&self, key: K::Ref<'_>) -> bool {
        self.0.peek_with::<K::Part, _, _>(K::part(&key), |_, value| black_box(V::touch_own(value))).is_some()
    }

    #[inline]
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.0.remove_sync::<K::Part>(K::part(&key)))
    }

    #[inline]
    fn scan(&self, from: K::Ref<'_>, length: usize) -> usize {
        let guard = Guard::new();
        let range = self.0.range::<K::Own, _>(K::own(from).., &guard);
        let mut seen = 0;
        for (key, value) in range.take(length) {
            black_box((K::touch(key), V::touch_own(value)));
            seen += 1;
        }
        seen
    }
}

/// `crossbeam_skiplist::SkipMap`. Replaces by `insert`: it has no update of its own.
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
        black_box(self.0.get_or_insert(K::own(key), V::own(value)).value());
        Ok(true)
    }

    #[inline]
    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        self.upsert(key, value).map(|()| true)
    }

    #[inline]
    fn get(&self, key: K::Ref<'_>) -> bool {
        self.0.get::<K::Part>(K::part(&key)).map(|entry| black_box(V::touch_own(entry.value()))).is_some()
    }

    #[inline]
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.0.remove::<K::Part>(K::part(&key)).is_some())
    }

    #[inline]
    fn scan(&self, from: K::Ref<'_>, length: usize) -> usize {
        let from = (Bound::Included(K::part(&from)), Bound::Unbounded);
        let range = self.0.range::<K::Part, _>(from);
        let mut seen = 0;
        for entry in range.take(length) {
            black_box((K::touch(entry.key()), V::touch_own(entry.value())));
            seen += 1;
        }
        seen
    }
}
