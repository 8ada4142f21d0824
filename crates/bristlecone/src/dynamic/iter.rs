//! Iteration over a tree whose kinds are known at run time, from both ends.

use std::fmt;

use bristlecone_pm::{Error, Result};

use super::encode::{Role, Stored};
use super::{Datum, Kind};
use crate::api::value::undecodable;

/// An item of a tree: its key and its value.
pub type Item = (Datum<'static>, Datum<'static>);

type Items<'t> = Box<dyn DoubleEndedIterator<Item = Result<Item>> + Send + 't>;

/// An iterator over the items of a tree. After an error it is finished. See [`Tree::range`](super::Tree::range).
pub struct Range<'t> {
    items: Items<'t>,
    lenient: bool,
    ended: bool,
}

impl<'t> Range<'t> {
    pub(super) fn new<K: Stored, V: Stored>(
        items: impl DoubleEndedIterator<Item = Result<(K::Owned, V::Owned)>> + Send + 't,
        (keys, values): (&'t Kind, &'t Kind),
    ) -> Self {
        let items = items.map(move |item| {
            let (key, value) = item?;
            let key = K::take(keys, Role::Key, key).ok_or_else(|| undecodable("key", keys))?;
            let value = V::take(values, Role::Value, value).ok_or_else(|| undecodable("value", values))?;
            Ok((key, value))
        });
        Self { items: Box::new(items), lenient: false, ended: false }
    }

    /// Skips items that do not decode as the tree's kinds.
    pub(super) fn lenient(self) -> Self {
        Self { lenient: true, ..self }
    }

    fn give(&mut self, mut next: impl FnMut(&mut Items<'t>) -> Option<Result<Item>>) -> Option<Result<Item>> {
        if self.ended {
            return None;
        }
        let mut given = next(&mut self.items);
        while self.lenient && matches!(given, Some(Err(Error::Corrupted { .. }))) {
            given = next(&mut self.items);
        }
        self.ended = !matches!(given, Some(Ok(_)));
        given
    }
}

impl Iterator for Range<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Result<Item>> {
        self.give(|items| items.next())
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Result<Item>> {
        self.give(|items| items.next_back())
    }
}

impl std::iter::FusedIterator for Range<'_> {}

impl fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}
