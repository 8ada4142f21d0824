//! The names of a pool's trees in DRAM: finding or creating a tree does not read every directory entry.

use std::collections::HashMap;

use crate::{Error, Result};

/// The index of the directory entry of each name. The entry's name must be verified before it is used.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// `None` until the directory has been read.
    indices: Option<HashMap<String, u32>>,
    /// No entry before this one is free.
    pub first_free: u32,
}

impl Names {
    /// Returns whether the names have been read.
    pub fn is_known(&self) -> bool {
        self.indices.is_some()
    }

    /// Sets the names of all trees.
    ///
    /// # Errors
    ///
    /// `Corrupted` if two trees have the same name.
    pub fn learn(&mut self, trees: impl Iterator<Item = (String, u32)>) -> Result<()> {
        let mut indices = HashMap::new();
        for (name, index) in trees {
            if indices.contains_key(&name) {
                return Err(Error::corrupted("two trees of one name", format!("tree {name:?}")));
            }
            indices.insert(name, index);
        }
        self.indices = Some(indices);
        Ok(())
    }

    /// Forgets all names. A failed change of the directory may or may not have happened.
    pub fn unlearn(&mut self) {
        *self = Self::default();
    }

    /// Returns the index of the entry with a name, unless the entry has changed since.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.indices.as_ref()?.get(name).copied()
    }

    /// Records the entry of a name.
    pub fn insert(&mut self, name: String, index: u32) {
        self.indices.as_mut().map(|indices| indices.insert(name, index));
    }

    /// Records that no entry has the name.
    pub fn forget(&mut self, name: &str) {
        self.indices.as_mut().map(|indices| indices.remove(name));
    }
}
