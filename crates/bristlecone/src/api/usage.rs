//! Space usage of a tree.

use std::collections::BTreeMap;
use std::ops::Bound;

use bristlecone_pm::{Part, Result};

use crate::index::{Batch, part_of};
use crate::{Error, Key, Pool, Tree, Value};

/// Space usage of a tree by purpose, in bytes of whole chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeUsage {
    /// Nodes of the tree.
    pub leaf_bytes: u64,
    /// Logs of the tree.
    pub log_bytes: u64,
    /// Keys and values stored out of line.
    pub record_bytes: u64,
}

impl Pool {
    /// Returns the space usage of a tree by purpose. The tree need not be open.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTree`]; [`Error::Corrupted`] if the directory cannot be read.
    ///
    /// # Examples
    ///
    /// ```
    /// let pool = bristlecone::Pool::temporary()?;
    /// let tree = pool.tree::<u64, u64>("numbers")?;
    /// assert!(pool.usage("numbers")?.leaf_bytes > 0);
    /// assert_eq!(pool.usage("numbers")?.record_bytes, 0);
    /// # drop((tree, pool));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn usage(&self, tree: &str) -> Result<TreeUsage> {
        let file = &self.0.file;
        file.here()?;
        let entry = file.find_tree(tree)?.ok_or_else(|| Error::NoSuchTree { name: tree.to_owned() })?;
        let chunk_bytes = file.chunk_bytes();
        let mut usage = TreeUsage::default();
        for chunk in file.chunks_of(entry.id) {
            *match part_of(chunk.kind) {
                Some(Part::Leaf) => &mut usage.leaf_bytes,
                Some(Part::Log) => &mut usage.log_bytes,
                Some(Part::Other) | None => &mut usage.record_bytes,
            } += chunk_bytes;
        }
        Ok(usage)
    }
}

impl<K: Key, V: Value> Tree<K, V> {
    /// Returns a histogram of leaves by number of items, without empty leaves. Reads every item. The result is exact
    /// while no thread writes.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    ///
    /// # Examples
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let tree = pool.tree::<u64, u64>("numbers")?;
    /// for number in 0..1_000 {
    ///     tree.insert(number, number)?;
    /// }
    /// let leaves = tree.leaves_by_items()?;
    /// assert_eq!(leaves.iter().map(|(items, leaves)| items * leaves).sum::<u64>(), 1_000);
    /// # drop((tree, pool));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn leaves_by_items(&self) -> Result<BTreeMap<u64, u64>> {
        let tree = self.here()?;
        let (mut leaves, mut batch) = (BTreeMap::new(), Batch::default());
        while tree.scan_forward((Bound::Unbounded, Bound::Unbounded), &mut batch) {
            *leaves.entry(batch.entries.len() as u64).or_default() += 1;
            batch.entries.clear();
        }
        batch.damage.map_or(Ok(leaves), Err)
    }
}
