//! The names of a pool's trees in DRAM, so that a tree is found, or created, without a look at every other one.

use std::collections::HashMap;

use super::directory::{TreeEntry, TreeId};
use crate::{Error, Result};

/// Which entry each name has. An entry is compared with its name before it is used.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// `None`: not read from the directory yet.
    ids: Option<HashMap<String, TreeId>>,
    /// No entry before this one is free.
    pub first_free: u32,
}

impl Names {
    /// Returns whether the names were read.
    pub fn is_known(&self) -> bool {
        self.ids.is_some()
    }

    /// Takes the names of all trees.
    ///
    /// # Errors
    ///
    /// `Corrupted` if two have one.
    pub fn learn(&mut self, trees: Vec<TreeEntry>) -> Result<()> {
        let mut ids = HashMap::with_capacity(trees.len());
        for TreeEntry { id, spec } in trees {
            if ids.contains_key(&spec.name) {
                return Err(Error::corrupted("two trees of one name", format!("tree {:?}", spec.name)));
            }
            ids.insert(spec.name, id);
        }
        self.ids = Some(ids);
        Ok(())
    }

    /// Forgets everything, as after a change of the directory that may have happened or not.
    pub fn unlearn(&mut self) {
        *self = Self::default();
    }

    /// Returns the entry that has a name, unless the entry has changed.
    pub fn get(&self, name: &str) -> Option<TreeId> {
        self.ids.as_ref()?.get(name).copied()
    }

    /// Notes that an entry has a name.
    pub fn insert(&mut self, name: String, id: TreeId) {
        self.ids.as_mut().map(|ids| ids.insert(name, id));
    }

    /// Notes that a name is free.
    pub fn forget(&mut self, name: &str) {
        self.ids.as_mut().map(|ids| ids.remove(name));
    }
}
