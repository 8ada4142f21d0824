//! Iteration over a tree, leaf by leaf, from both ends.

use std::ops::Bound;

use bristlecone_pm::{Error, Result};

use crate::api::metrics::Operation;
use crate::api::value::undecodable;
use crate::index::Batch;
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::{Key, Tree, Value};

/// An iterator over the items of a tree. See [`Tree::range`](crate::Tree::range).
pub struct Range<'t, K: Key, V: Value> {
    tree: &'t Tree<K, V>,
    /// Buffered items of the front, and the position where it continues.
    front: Batch<K::Codec, V::Codec>,
    from: Limit<K>,
    back: Batch<K::Codec, V::Codec>,
    to: Limit<K>,
    /// Whether the front and the back have been used. If both have, they may meet within buffered
    /// items.
    begun: (bool, bool),
    done: bool,
}

pub(crate) type Limit<K> = Bound<<<K as Key>::Codec as Codec>::Owned>;

pub(crate) fn borrow<K: KeyCodec>(bound: &Bound<K::Owned>) -> Bound<K::Ref<'_>> {
    bound.as_ref().map(|key| K::borrow(key))
}

/// Ends a checked scan at an item that does not decode as the tree's types.
#[cold]
fn refuse<K: KeyCodec, V: Codec, T>(batch: &mut Batch<K, V>, what: &str, kind: String) -> Option<T> {
    if batch.checked {
        batch.fail(undecodable(what, kind));
    }
    None
}

/// Returns whether the range between two bounds is empty.
pub(crate) fn is_empty<T: Ord>(from: &Bound<T>, to: &Bound<T>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
        _ => false,
    }
}

impl<'t, K: Key, V: Value> Range<'t, K, V> {
    pub(crate) fn new(tree: &'t Tree<K, V>, from: Limit<K>, to: Limit<K>) -> Self {
        tree.count_one(Operation::Scan);
        let done = is_empty(&from, &to);
        Self { tree, front: Batch::default(), from, back: Batch::default(), to, begun: (false, false), done }
    }

    /// Verifies the checksums of all following records.
    pub(crate) fn checked(mut self) -> CheckedRange<'t, K, V> {
        self.front.checked = true;
        self.back.checked = true;
        CheckedRange(self)
    }

    /// Ends the iteration in a child of the process that opened the pool; returns the error to report.
    fn refused(&mut self) -> Option<Error> {
        let error = if self.done { None } else { self.tree.opened_here().err() };
        self.done |= error.is_some();
        error
    }

    /// Returns whether the back has returned neither `key` nor a key below it.
    fn before_back(&self, key: &<K::Codec as Codec>::Owned) -> bool {
        match (self.back.entries.last(), &self.to) {
            (Some((last, _)), _) | (None, Bound::Included(last)) => key <= last,
            (None, Bound::Excluded(end)) => key < end,
            (None, Bound::Unbounded) => true,
        }
    }

    /// Returns whether the front has returned neither `key` nor a key above it.
    fn after_front(&self, key: &<K::Codec as Codec>::Owned) -> bool {
        match (self.front.entries.last(), &self.from) {
            (Some((first, _)), _) | (None, Bound::Included(first)) => key >= first,
            (None, Bound::Excluded(end)) => key > end,
            (None, Bound::Unbounded) => true,
        }
    }

    /// Decodes an entry of a batch. Returns `None` if it does not decode as the tree's types: a checked
    /// scan ends there, others skip it.
    #[inline(always)]
    fn give(
        (key, value): (<K::Codec as Codec>::Owned, <V::Codec as Codec>::Owned),
        batch: &mut Batch<K::Codec, V::Codec>,
    ) -> Option<(K::Owned, V::Owned)> {
        let Some(key) = K::decode(key) else { return refuse(batch, "key", K::kind()) };
        let Some(value) = V::take(value) else { return refuse(batch, "value", V::kind()) };
        Some((key, value))
    }
}

impl<K: Key, V: Value> Range<'_, K, V> {
    /// Returns the next item, reading more leaves if necessary.
    #[inline(never)]
    fn look_forward(&mut self) -> Option<(K::Owned, V::Owned)> {
        while !self.done {
            if let Some(entry) = self.front.entries.pop() {
                if !self.begun.1 || self.before_back(&entry.0) {
                    if self.front.entries.is_empty() {
                        self.from = Bound::Excluded(entry.0.clone());
                    }
                    match Self::give(entry, &mut self.front) {
                        None => continue,
                        item => return item,
                    }
                }
                self.done = true;
            } else if self.front.damage.is_some() {
                self.done = true;
            } else {
                self.begun.0 = true;
                let bounds = (borrow::<K::Codec>(&self.from), borrow::<K::Codec>(&self.to));
                self.done = !self.tree.here().scan_forward(bounds, &mut self.front);
            }
        }
        None
    }

    /// Returns the last remaining item, reading more leaves if necessary.
    #[inline(never)]
    fn look_backward(&mut self) -> Option<(K::Owned, V::Owned)> {
        while !self.done {
            if let Some(entry) = self.back.entries.pop() {
                if !self.begun.0 || self.after_front(&entry.0) {
                    if self.back.entries.is_empty() {
                        self.to = Bound::Excluded(entry.0.clone());
                    }
                    match Self::give(entry, &mut self.back) {
                        None => continue,
                        item => return item,
                    }
                }
                self.done = true;
            } else if self.back.damage.is_some() {
                self.done = true;
            } else {
                self.begun.1 = true;
                let bounds = (borrow::<K::Codec>(&self.from), borrow::<K::Codec>(&self.to));
                self.done = !self.tree.here().scan_backward(bounds, &mut self.back);
            }
        }
        None
    }
}

impl<K: Key, V: Value> Iterator for Range<'_, K, V> {
    type Item = (K::Owned, V::Owned);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        // Use buffered items while more than one is left and the other end has not been used.
        if self.front.entries.len() > 1
            && !self.begun.1
            && let Some(entry) = self.front.entries.pop()
            && let Some(item) = Self::give(entry, &mut self.front)
        {
            return Some(item);
        }
        self.look_forward()
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for Range<'_, K, V> {
    #[inline(always)]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.back.entries.len() > 1
            && !self.begun.0
            && let Some(entry) = self.back.entries.pop()
            && let Some(item) = Self::give(entry, &mut self.back)
        {
            return Some(item);
        }
        self.look_backward()
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for Range<'_, K, V> {}

impl<K: Key, V: Value> std::fmt::Debug for Range<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

/// An iterator over the items of a tree that verifies the checksums of records. See
/// [`Tree::try_range`](crate::Tree::try_range).
#[derive(Debug)]
pub struct CheckedRange<'t, K: Key, V: Value>(Range<'t, K, V>);

impl<K: Key, V: Value> Iterator for CheckedRange<'_, K, V> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(refused) = self.0.refused() {
            return Some(Err(refused));
        }
        let next = self.0.next().map(Ok);
        next.or_else(|| self.0.front.damage.take().map(Err))
    }
}

impl<K: Key, V: Value> DoubleEndedIterator for CheckedRange<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if let Some(refused) = self.0.refused() {
            return Some(Err(refused));
        }
        let next = self.0.next_back().map(Ok);
        next.or_else(|| self.0.back.damage.take().map(Err))
    }
}

impl<K: Key, V: Value> std::iter::FusedIterator for CheckedRange<'_, K, V> {}
