//! Iteration over a tree whose kinds are known at run time, from both ends.

use std::fmt;

use bristlecone_pm::Result;

use super::encode::{Role, Stored};
use super::{Datum, Kind};
use crate::api::value::undecodable;

/// An item of a tree: its key and its value.
pub type Item = (Datum<'static>, Datum<'static>);

/// An item; a key or value that does not decode as its kind is `None`.
type Decoded = (Option<Datum<'static>>, Option<Datum<'static>>);

type Items<'t, T> = Box<dyn DoubleEndedIterator<Item = T> + Send + 't>;

fn decode<K: Stored, V: Stored>(kinds: (&Kind, &Kind), (key, value): (K::Owned, V::Owned)) -> Decoded {
    (K::take(kinds.0, Role::Key, key), V::take(kinds.1, Role::Value, value))
}

/// An iterator over the items of a tree. See [`Tree::range`](super::Tree::range).
///
/// Items that do not decode as the tree's kinds are skipped: [`Tree::try_range`](super::Tree::try_range)
/// reports them.
pub struct Range<'t> {
    items: Items<'t, Decoded>,
}

impl<'t> Range<'t> {
    pub(super) fn new<K: Stored, V: Stored>(
        items: impl DoubleEndedIterator<Item = (K::Owned, V::Owned)> + Send + 't,
        kinds: (&'t Kind, &'t Kind),
    ) -> Self {
        Self { items: Box::new(items.map(move |item| decode::<K, V>(kinds, item))) }
    }
}

impl Iterator for Range<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        self.items.find_map(|(key, value)| key.zip(value))
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Item> {
        loop {
            let (key, value) = self.items.next_back()?;
            if let Some(item) = key.zip(value) {
                return Some(item);
            }
        }
    }
}

impl std::iter::FusedIterator for Range<'_> {}

impl fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

/// An iterator over the items of a tree that verifies checksums of records, reports damage, and ends
/// there. See [`Tree::try_range`](super::Tree::try_range).
pub struct CheckedRange<'t> {
    items: Items<'t, Result<Decoded>>,
    kinds: (&'t Kind, &'t Kind),
    ended: bool,
}

impl<'t> CheckedRange<'t> {
    pub(super) fn new<K: Stored, V: Stored>(
        items: impl DoubleEndedIterator<Item = Result<(K::Owned, V::Owned)>> + Send + 't,
        kinds: (&'t Kind, &'t Kind),
    ) -> Self {
        let items = items.map(move |item| item.map(|item| decode::<K, V>(kinds, item)));
        Self { items: Box::new(items), kinds, ended: false }
    }

    /// Returns the next item, or an error if it does not decode as the tree's kinds.
    fn give(&mut self, next: Option<Result<Decoded>>) -> Option<Result<Item>> {
        let given = next.map(|next| match next? {
            (Some(key), Some(value)) => Ok((key, value)),
            (None, _) => Err(undecodable("key", self.kinds.0)),
            (_, None) => Err(undecodable("value", self.kinds.1)),
        });
        self.ended = !matches!(given, Some(Ok(_)));
        given
    }
}

impl Iterator for CheckedRange<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Result<Item>> {
        let next = if self.ended { None } else { self.items.next() };
        self.give(next)
    }
}

impl DoubleEndedIterator for CheckedRange<'_> {
    fn next_back(&mut self) -> Option<Result<Item>> {
        let next = if self.ended { None } else { self.items.next_back() };
        self.give(next)
    }
}

impl std::iter::FusedIterator for CheckedRange<'_> {}

impl fmt::Debug for CheckedRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedRange").finish_non_exhaustive()
    }
}
