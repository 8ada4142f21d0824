//! Receiver of the items salvaged from a damaged tree.

use bristlecone_pm::{Finding, Result};

use super::{Index, WriteMode};
use crate::index::parts::codec::{Codec, KeyCodec};

/// Receives the items that a design can still read, and counts those that it cannot.
pub struct SalvageSink<'a, K: KeyCodec, V: Codec> {
    to: &'a dyn Index<K, V>,
    /// Number of items in the new tree.
    pub kept: u64,
    /// Maximum number of lost items.
    pub lost: u64,
    /// Problems found.
    pub findings: Vec<Finding>,
}

impl<'a, K: KeyCodec, V: Codec> SalvageSink<'a, K, V> {
    /// Creates a sink that saves into the empty tree `to`.
    pub fn new(to: &'a dyn Index<K, V>) -> Self {
        Self { to, kept: 0, lost: 0, findings: Vec::new() }
    }

    /// Saves an item. The first value of a key is kept; a different later value is reported.
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

    /// Records a problem.
    pub fn find(&mut self, location: String, what: impl Into<String>) {
        self.findings.push(Finding::new(location, what));
    }
}
