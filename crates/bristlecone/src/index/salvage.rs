//! What is saved of a damaged tree, where it is written to, and for which keys something may be missing.

use std::ops::Bound;
use std::sync::Arc;

use bristlecone_pm::{Finding, Result};

use super::{Index, WriteMode};
use crate::index::parts::codec::{Codec, KeyCodec};

/// A range of keys.
pub type Span<K> = (Bound<<K as Codec>::Owned>, Bound<<K as Codec>::Owned>);

/// Stores what is saved of a tree.
pub trait SaveTo<K: KeyCodec, V: Codec> {
    /// Adds an item unless its key is present; returns the value that was there.
    fn add(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>>;
    /// Inserts, overwrites or removes an item; returns whether the key was present.
    fn set(&self, key: K::Ref<'_>, value: Option<V::Ref<'_>>) -> Result<bool>;
    /// Returns whether an item was added.
    fn holds(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> bool;
}

impl<K: KeyCodec, V: Codec> SaveTo<K, V> for Arc<dyn Index<K, V>> {
    fn add(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<Option<V::Owned>> {
        self.write(key, value, WriteMode::New)
    }

    fn set(&self, key: K::Ref<'_>, value: Option<V::Ref<'_>>) -> Result<bool> {
        let before = match value {
            Some(value) => self.write(key, value, WriteMode::Upsert)?,
            None => self.remove(key)?,
        };
        Ok(before.is_some())
    }

    fn holds(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> bool {
        let mut is_same = false;
        self.get(key, &mut |found| is_same = V::shorten(found) == V::shorten(value));
        is_same
    }
}

/// Takes what a design can still read of a tree, and counts what it cannot.
pub struct SalvageSink<'a, K: KeyCodec, V: Codec> {
    to: &'a dyn SaveTo<K, V>,
    /// Items that are in the new tree.
    pub kept: u64,
    /// Items that were there and are lost, at most.
    pub lost: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Keys that may have another value than the one that was saved, or none: a span for each finding at least.
    pub doubts: Vec<Span<K>>,
}

impl<'a, K: KeyCodec, V: Codec> SalvageSink<'a, K, V> {
    /// Saves into `to`, which is empty.
    pub fn new(to: &'a dyn SaveTo<K, V>) -> Self {
        Self { to, kept: 0, lost: 0, findings: Vec::new(), doubts: Vec::new() }
    }

    /// Saves an item. The first to come with a key stays; another value of it is told.
    pub fn keep(&mut self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        match self.to.add(key, value)? {
            None => self.kept += 1,
            Some(old) if V::borrow(&old) == V::shorten(value) => {}
            Some(_) => {
                let what = "it stands there twice, with two values";
                self.find_of_key(key, "a key".to_owned(), what);
            }
        }
        Ok(())
    }

    /// Returns whether an item was saved.
    pub fn holds(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> bool {
        self.to.holds(key, value)
    }

    /// Notes what is wrong, and may concern any key.
    pub fn find(&mut self, location: String, what: impl Into<String>) {
        self.find_in((Bound::Unbounded, Bound::Unbounded), location, what);
    }

    /// Notes what is wrong with the item of one key.
    pub fn find_of_key(&mut self, key: K::Ref<'_>, location: String, what: impl Into<String>) {
        let span = (Bound::Included(K::owned(key)), Bound::Included(K::owned(key)));
        self.find_in(span, location, what);
    }

    /// Notes what is wrong, and concerns only keys of this span.
    pub fn find_in(&mut self, span: Span<K>, location: String, what: impl Into<String>) {
        self.findings.push(Finding::new(location, what));
        self.doubts.push(span);
    }
}
