//! What is saved of a damaged tree, and where it goes.

use bristlecone_pm::{Finding, Result};

use super::{Index, WriteMode};
use crate::index::parts::codec::{Codec, KeyCodec};

/// Takes what a design can still read of a tree, and counts what it cannot.
pub struct SalvageSink<'a, K: KeyCodec, V: Codec> {
    to: &'a dyn Index<K, V>,
    /// Items that are in the new tree.
    pub kept: u64,
    /// Items that were there and are lost, at most.
    pub lost: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl<'a, K: KeyCodec, V: Codec> SalvageSink<'a, K, V> {
    /// Saves into `to`, an empty tree.
    pub fn new(to: &'a dyn Index<K, V>) -> Self {
        Self { to, kept: 0, lost: 0, findings: Vec::new() }
    }

    /// Saves an item. The first to come with a key stays; another value of it is told.
    pub fn keep(&mut self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        match self.to.write(key, value, WriteMode::New)? {
            None => self.kept += 1,
            Some(old) if V::borrow(&old) == V::shorten(value) => {}
            Some(_) => self.find("a key".to_owned(), "it stands there twice, with two values"),
        }
        Ok(())
    }

    /// Returns whether an item was saved.
    pub fn holds(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> bool {
        let mut is_same = false;
        self.to.get(key, &mut |found| is_same = V::shorten(found) == V::shorten(value));
        is_same
    }

    /// Notes what is wrong.
    pub fn find(&mut self, location: String, what: impl Into<String>) {
        self.findings.push(Finding::new(location, what));
    }
}
