//! Receiver of the items salvaged from a damaged tree, and the key ranges that the damage may affect.

use std::ops::Bound;

use bristlecone_pm::{Issue, Result};

use super::of_keys::Shared;
use super::{WriteMode, remove_range};
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::encoded::Item;

/// A range of keys.
pub type Span<K> = (Bound<<K as Codec>::Owned>, Bound<<K as Codec>::Owned>);

/// Returns the span of one key.
pub fn only<K: KeyCodec>(key: K::Ref<'_>) -> Span<K> {
    (Bound::Included(K::owned(key)), Bound::Included(K::owned(key)))
}

/// The destination of salvaged items.
pub trait SaveTo<K: KeyCodec> {
    /// Adds an item unless its key is present.
    fn add(&self, key: K::Ref<'_>, value: Item<'_>) -> Result<Added>;

    /// Inserts, overwrites or removes an item; returns whether the key was present.
    fn set(&self, key: K::Ref<'_>, value: Option<Item<'_>>) -> Result<bool>;

    /// Removes the items from one key to another, both included; returns their number.
    fn remove_range(&self, first: K::Ref<'_>, last: K::Ref<'_>) -> Result<u64>;

    /// Returns whether an item was added.
    fn holds(&self, key: K::Ref<'_>, value: Item<'_>) -> bool;
}

/// Outcome of adding an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It was added.
    New,
    /// The key was present, with this value.
    Same,
    /// The key was present, with another value.
    Other,
}

impl<K: KeyCodec, V: Codec> SaveTo<K> for Shared<K, V> {
    fn add(&self, key: K::Ref<'_>, value: Item<'_>) -> Result<Added> {
        let value = expect_form::<V>(value);
        Ok(match self.write(key, value, WriteMode::New)? {
            None => Added::New,
            Some(old) if V::borrow(&old) == V::shorten(value) => Added::Same,
            Some(_) => Added::Other,
        })
    }

    fn set(&self, key: K::Ref<'_>, value: Option<Item<'_>>) -> Result<bool> {
        let before = match value {
            Some(value) => self.write(key, expect_form::<V>(value), WriteMode::Upsert)?,
            None => self.remove(key)?,
        };
        Ok(before.is_some())
    }

    fn remove_range(&self, first: K::Ref<'_>, last: K::Ref<'_>) -> Result<u64> {
        let bounds = (Bound::Included(K::shorten(first)), Bound::Included(K::shorten(last)));
        remove_range(&**self, bounds, &mut |_, _| {})
    }

    fn holds(&self, key: K::Ref<'_>, value: Item<'_>) -> bool {
        let mut is_same = false;
        self.get(key, &mut |found| is_same = V::item(found) == value).is_ok() && is_same
    }
}

/// Returns a value of a tree with this codec.
pub fn expect_form<V: Codec>(value: Item<'_>) -> V::Ref<'_> {
    V::of_item(value).expect("a tree has values of one form")
}

/// Receives the items that a design can still read, and counts those that it cannot.
pub struct SalvageSink<'a, K: KeyCodec> {
    to: &'a dyn SaveTo<K>,
    /// Number of items saved.
    pub kept: u64,
    /// Maximum number of lost items.
    pub lost: u64,
    /// Problems found.
    pub issues: Vec<Issue>,
    /// Keys whose items may be wrong, missing or superfluous: at least one span for each recorded problem.
    pub doubts: Vec<Span<K>>,
}

impl<'a, K: KeyCodec> SalvageSink<'a, K> {
    /// Creates a sink that saves into the empty destination `to`.
    pub fn new(to: &'a dyn SaveTo<K>) -> Self {
        Self { to, kept: 0, lost: 0, issues: Vec::new(), doubts: Vec::new() }
    }

    /// Saves an item. The first value of a key is kept; a different later value is reported.
    pub fn keep(&mut self, key: K::Ref<'_>, value: Item<'_>) -> Result<()> {
        match self.to.add(key, value)? {
            Added::New => self.kept += 1,
            Added::Same => {}
            Added::Other => {
                let what = "it stands there twice, with two values";
                self.find_of_key(key, "a key".to_owned(), what);
            }
        }
        Ok(())
    }

    /// Returns whether an item was saved.
    pub fn holds(&self, key: K::Ref<'_>, value: Item<'_>) -> bool {
        self.to.holds(key, value)
    }

    /// Records a problem that may affect any key.
    pub fn find(&mut self, location: String, what: impl Into<String>) {
        self.find_in((Bound::Unbounded, Bound::Unbounded), location, what);
    }

    /// Records the problems that `check` found, of which any may affect any key.
    pub fn find_all(&mut self, issues: Vec<Issue>) {
        issues.into_iter().for_each(|Issue { location, what, .. }| self.find(location, what));
    }

    /// Records a problem that affects only the item of one key.
    pub fn find_of_key(&mut self, key: K::Ref<'_>, location: String, what: impl Into<String>) {
        self.find_in(only::<K>(key), location, what);
    }

    /// Doubts a key that a recorded problem may affect, too.
    pub fn doubt(&mut self, key: K::Ref<'_>) {
        self.doubts.push(only::<K>(key));
    }

    /// Records a problem that affects only keys of this span.
    pub fn find_in(&mut self, span: Span<K>, location: String, what: impl Into<String>) {
        self.issues.push(Issue::new(location, what));
        self.doubts.push(span);
    }
}
