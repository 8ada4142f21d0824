//! The designs, and what they share of their face.

pub mod sstree;

use crate::shared::form::{KeyForm, ValueForm};
use crate::shared::inner::Cursor;

/// What a write does with a key that is there, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Writes in any case.
    Upsert,
    /// Writes only if the key is absent.
    New,
    /// Writes only if the key is present.
    Update,
}

/// What a tree occupies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Items.
    pub items: u64,
    /// Leaves.
    pub leaves: u64,
    /// Bytes of the pool: whole chunks.
    pub pm_bytes: u64,
    /// Bytes of DRAM of the index and the leaves' descriptors.
    pub dram_bytes: u64,
}

/// The items of one leaf in key order, on their way through an iterator.
pub struct Batch<K: KeyForm, V: ValueForm> {
    /// Ascending.
    pub entries: std::collections::VecDeque<(K::Owned, V::Owned)>,
    /// Forward: where the next leaf is.
    cursor: Option<Cursor>,
    /// Backward: where this leaf begins (`Some(None)`: at the very beginning).
    fence: Option<Option<K::Owned>>,
}

impl<K: KeyForm, V: ValueForm> Default for Batch<K, V> {
    fn default() -> Self {
        Self { entries: std::collections::VecDeque::new(), cursor: None, fence: None }
    }
}
