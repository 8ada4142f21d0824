//! What is saved of a damaged tree, and where it goes.

use bristlecone_pm::{Finding, Medium, Native, Result};

use super::{AnyTree, WriteMode};
use crate::shared::form::{KeyForm, ValueForm};

/// Takes what a design can still read of a tree, and counts what it cannot.
pub struct Rescue<'a, K: KeyForm, V: ValueForm, M: Medium = Native> {
    to: &'a AnyTree<K, V, M>,
    /// Items that are in the new tree.
    pub kept: u64,
    /// Items that were there and are lost, at most.
    pub lost: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl<'a, K: KeyForm, V: ValueForm, M: Medium> Rescue<'a, K, V, M> {
    /// Saves into `to`, an empty tree.
    pub fn new(to: &'a AnyTree<K, V, M>) -> Self {
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

    /// Whether an item was saved.
    pub fn holds(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> bool {
        let found = self.to.get(key, |found| V::owned(found));
        found.is_some_and(|found| V::borrow(&found) == V::shorten(value))
    }

    /// Notes what is wrong.
    pub fn find(&mut self, location: String, what: impl Into<String>) {
        self.findings.push(Finding::new(location, what));
    }
}
