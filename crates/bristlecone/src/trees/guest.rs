//! A tree of a design from outside, behind one pointer. See [`crate::lab`].

use std::any::Any;
use std::ops::Bound;

use bristlecone_pm::{Finding, Medium, Result};

use super::{Batch, Index, TreeStats, WriteMode};
use crate::shared::form::{Inline, KeyForm, ValueForm};

/// What [`Index::compare_and_swap`] gives.
type Swapped<V> = std::result::Result<(), Option<<V as ValueForm>::Owned>>;

/// An [`Index`] that can be pointed at.
trait Erased<K: KeyForm, V: ValueForm, M: Medium>: Send + Sync {
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>));
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>>;
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()>;
    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>>;
    fn swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>>;
    fn ascend(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool;
    fn descend(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool;
    fn len(&self) -> u64;
    fn stats(&self) -> TreeStats;
    fn check(&self) -> Vec<Finding>;
    fn damage(&self) -> Vec<Finding>;
}

impl<K: KeyForm, V: ValueForm, M: Medium, T: Index<K, V, M>> Erased<K, V, M> for T {
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) {
        Index::get(self, key, show);
    }

    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        Index::write(self, key, value, mode)
    }

    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        Index::upsert(self, key, value)
    }

    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        Index::remove(self, key)
    }

    fn swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        self.compare_and_swap(key, expected, new)
    }

    fn ascend(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        self.scan_forward(bounds, into)
    }

    fn descend(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        self.scan_backward(bounds, into)
    }

    fn len(&self) -> u64 {
        Index::len(self)
    }

    fn stats(&self) -> TreeStats {
        Index::stats(self)
    }

    fn check(&self) -> Vec<Finding> {
        Index::check(self)
    }

    fn damage(&self) -> Vec<Finding> {
        Index::damage(self)
    }
}

/// A tree of a design from outside.
pub struct Guest<K: KeyForm, V: ValueForm, M: Medium>(Box<dyn Erased<K, V, M>>);

impl<K: KeyForm, V: ValueForm, M: Medium> Guest<K, V, M> {
    /// Takes a tree in.
    pub fn new(tree: impl Index<K, V, M> + 'static) -> Self {
        Self(Box::new(tree))
    }

    #[inline]
    pub(super) fn get<R>(&self, key: K::Ref<'_>, show: impl FnOnce(V::Ref<'_>) -> R) -> Option<R> {
        let (mut show, mut shown) = (Some(show), None);
        self.0.get(key, &mut |value| shown = show.take().map(|show| show(value)));
        shown
    }

    #[inline]
    pub(super) fn write(
        &self,
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        mode: WriteMode,
    ) -> Result<Option<V::Owned>> {
        self.0.write(key, value, mode)
    }

    #[inline]
    pub(super) fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.0.upsert(key, value)
    }

    #[inline]
    pub(super) fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.0.remove(key)
    }

    pub(super) fn compare_and_swap(
        &self,
        key: K::Ref<'_>,
        expected: V::Ref<'_>,
        new: V::Ref<'_>,
    ) -> Result<Swapped<V>> {
        self.0.swap(key, expected, new)
    }

    pub(super) fn scan_forward(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        into: &mut Batch<K, V>,
    ) -> bool {
        self.0.ascend(bounds, into)
    }

    pub(super) fn scan_backward(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        into: &mut Batch<K, V>,
    ) -> bool {
        self.0.descend(bounds, into)
    }

    pub(super) fn len(&self) -> u64 {
        self.0.len()
    }

    pub(super) fn stats(&self) -> TreeStats {
        self.0.stats()
    }

    pub(super) fn check(&self) -> Vec<Finding> {
        self.0.check()
    }

    pub(super) fn damage(&self) -> Vec<Finding> {
        self.0.damage()
    }
}

impl<M: Medium> Guest<Inline, Inline, M> {
    /// The same tree where forms are parameters. `None`: they are not those of words.
    pub fn with_forms<K: KeyForm, V: ValueForm>(self) -> Option<Guest<K, V, M>> {
        let tree: Box<dyn Any> = Box::new(self);
        tree.downcast::<Guest<K, V, M>>().ok().map(|tree| *tree)
    }
}
