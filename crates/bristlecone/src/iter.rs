//! Iterating over a tree, leaf by leaf, from both ends.

use std::ops::Bound;

use bristlecone_pm::{Medium, Native};

use crate::shared::form::{KeyForm, ValueForm};
use crate::trees::Batch;
use crate::trees::sstree::SsTree;
use crate::{Key, Value};

/// An iterator over the items of a tree. See [`Tree::range`](crate::Tree::range).
pub struct Range<'t, K: Key, V: Value, M: Medium = Native> {
    tree: &'t SsTree<K::Form, V::Form, M>,
    /// What the front still has in hand, and where it goes on after that.
    front: Batch<K::Form, V::Form>,
    from: Bound<<K::Form as KeyForm>::Owned>,
    back: Batch<K::Form, V::Form>,
    to: Bound<<K::Form as KeyForm>::Owned>,
    done: bool,
}

fn borrow<K: KeyForm>(bound: &Bound<K::Owned>) -> Bound<K::Ref<'_>> {
    bound.as_ref().map(|key| K::borrow(key))
}

impl<'t, K: Key, V: Value, M: Medium> Range<'t, K, V, M> {
    pub(crate) fn new(
        tree: &'t SsTree<K::Form, V::Form, M>,
        from: Bound<<K::Form as KeyForm>::Owned>,
        to: Bound<<K::Form as KeyForm>::Owned>,
    ) -> Self {
        Self { tree, front: Batch::default(), from, back: Batch::default(), to, done: false }
    }

    /// Whether the back has not given out `key` yet, nor anything below it.
    fn before_back(&self, key: &<K::Form as KeyForm>::Owned) -> bool {
        match (self.back.entries.back(), &self.to) {
            (Some((last, _)), _) | (None, Bound::Included(last)) => key <= last,
            (None, Bound::Excluded(end)) => key < end,
            (None, Bound::Unbounded) => true,
        }
    }

    /// Whether the front has not given out `key` yet, nor anything above it.
    fn after_front(&self, key: &<K::Form as KeyForm>::Owned) -> bool {
        match (self.front.entries.front(), &self.from) {
            (Some((first, _)), _) | (None, Bound::Included(first)) => key >= first,
            (None, Bound::Excluded(end)) => key > end,
            (None, Bound::Unbounded) => true,
        }
    }

    fn give(
        (key, value): (<K::Form as KeyForm>::Owned, <V::Form as ValueForm>::Owned),
    ) -> (K::Owned, V::Owned) {
        (K::decode(&key), V::decode(V::Form::borrow(&value)))
    }
}

impl<K: Key, V: Value, M: Medium> Iterator for Range<'_, K, V, M> {
    type Item = (K::Owned, V::Owned);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            if let Some(entry) = self.front.entries.pop_front() {
                if self.before_back(&entry.0) {
                    if self.front.entries.is_empty() {
                        self.from = Bound::Excluded(entry.0.clone());
                    }
                    return Some(Self::give(entry));
                }
                self.done = true;
            } else if !self.tree.scan_forward(borrow::<K::Form>(&self.from), &mut self.front) {
                self.done = true;
            }
        }
        None
    }
}

impl<K: Key, V: Value, M: Medium> DoubleEndedIterator for Range<'_, K, V, M> {
    fn next_back(&mut self) -> Option<Self::Item> {
        while !self.done {
            if let Some(entry) = self.back.entries.pop_back() {
                if self.after_front(&entry.0) {
                    if self.back.entries.is_empty() {
                        self.to = Bound::Excluded(entry.0.clone());
                    }
                    return Some(Self::give(entry));
                }
                self.done = true;
            } else if !self.tree.scan_backward(borrow::<K::Form>(&self.to), &mut self.back) {
                self.done = true;
            }
        }
        None
    }
}

impl<K: Key, V: Value, M: Medium> std::iter::FusedIterator for Range<'_, K, V, M> {}

impl<K: Key, V: Value, M: Medium> std::fmt::Debug for Range<'_, K, V, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}
