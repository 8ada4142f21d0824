//! What the space of a tree is for.

use bristlecone_pm::{Part, Result};

use crate::index::part_of;
use crate::{Error, Pool};

/// What the chunks of a tree are for, in bytes of whole chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeUsage {
    /// Nodes of the tree.
    pub leaf_bytes: u64,
    /// Its logs.
    pub log_bytes: u64,
    /// Keys and values out of line.
    pub record_bytes: u64,
}

impl Pool {
    /// Returns what the chunks of a tree are for. The tree need not be open.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTree`]; [`Error::Corrupted`] if the directory cannot be read.
    ///
    /// # Examples
    ///
    /// ```
    /// # let path = format!("/dev/shm/bristlecone-doc-usage-{}.pool", std::process::id());
    /// let pool = bristlecone::Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let tree = pool.tree::<u64, u64>("numbers")?;
    /// assert!(pool.usage("numbers")?.leaf_bytes > 0);
    /// assert_eq!(pool.usage("numbers")?.record_bytes, 0);
    /// # drop((tree, pool));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn usage(&self, tree: &str) -> Result<TreeUsage> {
        let file = &self.0.file;
        file.here()?;
        let entry = file.find_tree(tree)?.ok_or_else(|| Error::NoSuchTree { name: tree.to_owned() })?;
        let chunk_bytes = file.info().chunk_bytes;
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
