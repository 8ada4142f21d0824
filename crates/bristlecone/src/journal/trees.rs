//! The trees of a pool at an LSN: what entries call them, and how their keys and values are stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use bristlecone_pm::{Result, Storage, TreeEntry, TreeId, TreeSpec};

use super::aside;
use super::entry::{self, Aside, Directory, Entry, Kind as EntryKind, broken, push_spec, take_spec};
use crate::dynamic::Kind;

/// The trees at an LSN, by number. A copy costs little.
#[derive(Clone, Debug, Default)]
pub struct Trees(Arc<BTreeMap<TreeId, Arc<Known>>>);

/// A tree, and the kinds of its keys and values.
#[derive(Debug)]
pub struct Known {
    pub entry: Arc<TreeEntry>,
    kinds: Option<(Kind, Kind)>,
}

impl Known {
    fn new(id: TreeId, spec: TreeSpec) -> Arc<Self> {
        let kinds = Kind::of_directory(&spec.key_kind).ok().zip(Kind::of_directory(&spec.value_kind).ok());
        Arc::new(Self { entry: Arc::new(TreeEntry::new(id, spec)), kinds })
    }

    /// Returns the kinds of keys and values.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`](bristlecone_pm::Error) for kinds that this version does not know.
    pub fn kinds(&self) -> Result<(&Kind, &Kind)> {
        let (key, value) = self.kinds.as_ref().ok_or_else(broken)?;
        Ok((key, value))
    }
}

/// What a segment says about the journal before it.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// The trees.
    pub trees: Trees,
    /// The time of the last block, in milliseconds since 1970.
    pub time: u64,
}

impl FromIterator<(TreeId, TreeSpec)> for Trees {
    fn from_iter<T: IntoIterator<Item = (TreeId, TreeSpec)>>(trees: T) -> Self {
        let known = |(id, spec)| (id, Known::new(id, spec));
        Self(Arc::new(trees.into_iter().map(known).collect()))
    }
}

impl Trees {
    /// Returns a tree.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`](bristlecone_pm::Error) if no tree has this number.
    pub fn get(&self, id: TreeId) -> Result<&Known> {
        self.0.get(&id).map(|known| &**known).ok_or_else(broken)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for Known { entry: tree, .. } in self.0.values().map(|known| &**known) {
            bytes.extend_from_slice(&tree.id.0.to_le_bytes());
            push_spec(&mut bytes, &tree.spec);
        }
        bytes
    }

    /// Returns `None` for bytes that are none.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut trees = Vec::new();
        while !bytes.is_empty() {
            let (id, rest) = bytes.split_first_chunk()?;
            bytes = rest;
            trees.push((TreeId(u32::from_le_bytes(*id)), take_spec(&mut bytes)?));
        }
        Some(trees.into_iter().collect())
    }

    /// Applies a change of the directory; returns the tree as it was before, or for a new tree as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`](bristlecone_pm::Error) if the tree does not exist.
    pub fn apply(&mut self, change: Directory) -> Result<Arc<TreeEntry>> {
        let trees = Arc::make_mut(&mut self.0);
        Ok(match change {
            Directory::Create(id, spec) => {
                let tree = Known::new(id, spec);
                trees.insert(id, Arc::clone(&tree));
                Arc::clone(&tree.entry)
            }
            Directory::Drop(id) => Arc::clone(&trees.remove(&id).ok_or_else(broken)?.entry),
            Directory::Rename(id, name) => {
                let tree = trees.get_mut(&id).ok_or_else(broken)?;
                let mut spec = tree.entry.spec.clone();
                spec.name = name;
                Arc::clone(&std::mem::replace(tree, Known::new(id, spec)).entry)
            }
            Directory::Clear(old, id, _) => {
                let tree = trees.remove(&old).ok_or_else(broken)?;
                trees.insert(id, Known::new(id, tree.entry.spec.clone()));
                Arc::clone(&tree.entry)
            }
        })
    }

    /// Applies an entry, if it changes the directory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`](bristlecone_pm::Error), and errors of the system.
    pub fn follow(&mut self, storage: &dyn Storage, entry: &Entry<'_>) -> Result<()> {
        let Entry { head, body, .. } = *entry;
        if head.counts == 0 || matches!(head.kind, EntryKind::Each | EntryKind::All) {
            return Ok(());
        }
        let long;
        let body = match head.aside {
            true => {
                long = aside::read(storage, &Aside::decode(body).ok_or_else(broken)?)?;
                &long
            }
            false => body,
        };
        let (change, _) = Directory::of(head.kind, body).ok_or_else(broken)?;
        self.apply(change).map(drop)
    }

    /// Applies all entries of a block.
    ///
    /// # Errors
    ///
    /// Same as [`follow`](Self::follow).
    pub fn follow_all(&mut self, storage: &dyn Storage, mut entries: &[u8]) -> Result<()> {
        while !entries.is_empty() {
            self.follow(storage, &entry::take(&mut entries).ok_or_else(broken)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_round_trip_and_follow_the_directory() {
        let spec = |name: &str| TreeSpec::new(name, 2, "u64", "str").with_params([1, 2, 3, 4, 5, 6, 7, 8]);
        let mut trees: Trees = [(TreeId(0), spec("a")), (TreeId(7), spec("b"))].into_iter().collect();
        let bytes = trees.encode();
        assert_eq!(Trees::decode(&bytes).unwrap().encode(), bytes);
        (1..bytes.len()).for_each(|len| {
            assert!(Trees::decode(&bytes[..len]).is_none_or(|some| some.encode() == bytes[..len]));
        });
        let name = |trees: &Trees, id| trees.get(TreeId(id)).ok().map(|tree| tree.entry.spec.name.clone());
        let before = trees.clone();
        assert_eq!(trees.apply(Directory::Rename(TreeId(0), "c".to_owned())).unwrap().spec.name, "a");
        assert_eq!(trees.apply(Directory::Clear(TreeId(7), TreeId(9), "b".to_owned())).unwrap().id.0, 7);
        assert_eq!(trees.apply(Directory::Create(TreeId(3), spec("d"))).unwrap().spec.name, "d");
        assert_eq!(trees.apply(Directory::Drop(TreeId(3))).unwrap().spec.name, "d");
        assert!(trees.apply(Directory::Drop(TreeId(3))).is_err());
        let names = |trees: &Trees| [0, 3, 7, 9].map(|id| name(trees, id));
        assert_eq!(names(&trees), [Some("c".to_owned()), None, None, Some("b".to_owned())]);
        assert_eq!(names(&before), [Some("a".to_owned()), None, Some("b".to_owned()), None]);
    }
}
