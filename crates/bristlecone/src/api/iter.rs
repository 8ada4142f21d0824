//! Iteration over a tree, leaf by leaf, from both ends.

use std::ops::Bound;

use bristlecone_pm::{Error, Result};

use crate::api::metrics::Operation;
use crate::index::parts::codec::Codec;
use crate::index::{Batch, is_empty};
use crate::{Key, Tree, Value};

/// An iterator over the items of a tree. After an error it is finished. See [`Tree::range`](crate::Tree::range).
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

pub(crate) fn borrow<K: Codec>(bound: &Bound<K::Owned>) -> Bound<K::Ref<'_>> {
    bound.as_ref().map(|key| K::borrow(key))
}

/// Ends a scan at an item that does not decode as the tree's types; a lenient one skips it.
#[cold]
fn refuse<K: Codec, V: Codec, T>(batch: &mut Batch<K, V>, error: impl FnOnce() -> Error) -> Option<T> {
    if !batch.lenient {
        batch.fail(error());
    }
    None
}

impl<'t, K: Key, V: Value> Range<'t, K, V> {
    pub(crate) fn new(tree: &'t Tree<K, V>, from: Limit<K>, to: Limit<K>) -> Self {
        tree.count_one(Operation::Scan);
        let done = is_empty(&from, &to);
        Self { tree, front: Batch::default(), from, back: Batch::default(), to, begun: (false, false), done }
    }

    /// Returns a range that yields only an error.
    pub(crate) fn refused(tree: &'t Tree<K, V>, error: Error) -> Self {
        let mut range = Self::new(tree, Bound::Unbounded, Bound::Unbounded);
        range.done = true;
        range.front.fail(error);
        range
    }

    /// Also returns items that damage may affect.
    pub(crate) fn lenient(mut self) -> Self {
        (self.front.lenient, self.back.lenient) = (true, true);
        self
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

    /// Decodes an entry of a batch. Returns `None` if it does not decode as the tree's types.
    #[inline(always)]
    fn give(
        tree: &Tree<K, V>,
        (key, value): (<K::Codec as Codec>::Owned, <V::Codec as Codec>::Owned),
        batch: &mut Batch<K::Codec, V::Codec>,
    ) -> Option<(K::Owned, V::Owned)> {
        let Some(key) = K::decode(&tree.keys, key) else { return refuse(batch, || tree.undecodable_key()) };
        let Some(value) = V::take(&tree.values, value) else {
            return refuse(batch, || tree.undecodable_value());
        };
        Some((key, value))
    }
}

impl<K: Key, V: Value> Range<'_, K, V> {
    /// Returns the next item, reading more leaves if necessary.
    #[inline(never)]
    fn look_forward(&mut self) -> Option<Result<(K::Owned, V::Owned)>> {
        while !self.done {
            if let Some(entry) = self.front.entries.pop() {
                if !self.begun.1 || self.before_back(&entry.0) {
                    if self.front.entries.is_empty() {
                        self.from = Bound::Excluded(entry.0.clone());
                    }
                    match Self::give(self.tree, entry, &mut self.front) {
                        None => continue,
                        Some(item) => return Some(Ok(item)),
                    }
                }
                self.done = true;
            } else if self.front.damage.is_some() {
                self.done = true;
            } else {
                self.begun.0 = true;
                let bounds = (borrow::<K::Codec>(&self.from), borrow::<K::Codec>(&self.to));
                self.done = !match self.tree.here() {
                    Ok(tree) => tree.scan_forward(bounds, &mut self.front),
                    Err(error) => self.front.fail(error),
                };
            }
        }
        self.front.damage.take().map(Err)
    }

    /// Returns the last remaining item, reading more leaves if necessary.
    #[inline(never)]
    fn look_backward(&mut self) -> Option<Result<(K::Owned, V::Owned)>> {
        while !self.done {
            if let Some(entry) = self.back.entries.pop() {
                if !self.begun.0 || self.after_front(&entry.0) {
                    if self.back.entries.is_empty() {
                        self.to = Bound::Excluded(entry.0.clone());
                    }
                    match Self::give(self.tree, entry, &mut self.back) {
                        None => continue,
                        Some(item) => return Some(Ok(item)),
                    }
                }
                self.done = true;
            } else if self.back.damage.is_some() {
                self.done = true;
            } else {
                self.begun.1 = true;
                let bounds = (borrow::<K::Codec>(&self.from), borrow::<K::Codec>(&self.to));
                self.done = !match self.tree.here() {
                    Ok(tree) => tree.scan_backward(bounds, &mut self.back),
                    Err(error) => self.back.fail(error),
                };
            }
        }
        // The error of bounds that were refused is in the front.
        self.back.damage.take().or_else(|| self.front.damage.take()).map(Err)
    }
}

impl<K: Key, V: Value> Iterator for Range<'_, K, V> {
    type Item = Result<(K::Owned, V::Owned)>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        // Use buffered items while more than one is left and the other end has not been used.
        if self.front.entries.len() > 1
            && !self.begun.1
            && let Some(entry) = self.front.entries.pop()
            && let Some(item) = Self::give(self.tree, entry, &mut self.front)
        {
            return Some(Ok(item));
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
            && let Some(item) = Self::give(self.tree, entry, &mut self.back)
        {
            return Some(Ok(item));
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
