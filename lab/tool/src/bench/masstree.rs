//! `masstree`: a trie of B+-trees whose keys are bytes.

use std::hint::black_box;

use bristlecone::Error;
use masstree::{LeafPolicy, MassTreeGeneric, RangeBound, SeizeAllocator, ValuePtr};

use super::data::{BenchKey, BenchValue};
use super::subject::Subject;

/// `masstree::MassTree`, which keeps words in its leaves, or `masstree::MassTree15`, which keeps other values by
/// reference. Looks first, then writes, because it has neither an update nor an insertion that fails.
pub struct Masstree<P: LeafPolicy>(pub MassTreeGeneric<P, SeizeAllocator<P>>);

/// A value as the map returns it.
pub trait Returned<V> {
    fn value(&self) -> &V;
}

impl Returned<u64> for u64 {
    #[inline]
    fn value(&self) -> &u64 {
        self
    }
}

impl<V> Returned<V> for ValuePtr<V> {
    #[inline]
    fn value(&self) -> &V {
        self
    }
}

impl<K: BenchKey, V: BenchValue, P: LeafPolicy<Value = V::Own>> Subject<K, V> for Masstree<P>
where
    P::Output: Returned<V::Own>,
{
    #[inline]
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error> {
        let guard = self.0.guard();
        K::bytes(key, |key| black_box(self.0.insert_with_guard(key, V::own(value), &guard)));
        Ok(())
    }

    #[inline]
    fn insert_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        let guard = self.0.guard();
        Ok(K::bytes(key, |key| {
            let is_new = !self.0.contains_key_with_guard(key, &guard);
            if is_new {
                black_box(self.0.insert_with_guard(key, V::own(value), &guard));
            }
            is_new
        }))
    }

    #[inline]
    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        let guard = self.0.guard();
        Ok(K::bytes(key, |key| {
            let found = self.0.contains_key_with_guard(key, &guard);
            if found {
                black_box(self.0.insert_with_guard(key, V::own(value), &guard));
            }
            found
        }))
    }

    #[inline]
    fn get<R>(&self, key: K::Ref<'_>, look: impl Fn(V::Ref<'_>) -> R) -> Result<Option<R>, Error> {
        let guard = self.0.guard();
        let found = K::bytes(key, |key| self.0.get_with_guard(key, &guard));
        Ok(found.map(|value| look(V::show(value.value()))))
    }

    #[inline]
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        let guard = self.0.guard();
        let removed = K::bytes(key, |key| self.0.remove_with_guard(key, &guard).map(|old| old.is_some()));
        removed.map_err(|error| Error::io("masstree", std::io::Error::other(error.to_string())))
    }

    #[inline]
    fn scan(
        &self,
        from: K::Ref<'_>,
        length: usize,
        mut each: impl FnMut(K::Ref<'_>, V::Ref<'_>),
    ) -> Result<usize, Error> {
        let guard = self.0.guard();
        let mut seen = 0;
        let look = |key: &[u8], value: P::Output| {
            if let Some(key) = K::from_bytes(key) {
                each(key, V::show(value.value()));
                seen += 1;
            }
            seen < length
        };
        K::bytes(from, |from| {
            self.0.scan_intra_leaf_batch(RangeBound::Included(from), RangeBound::Unbounded, look, &guard)
        });
        Ok(seen)
    }
}
