//! What was explored already.

use std::collections::HashMap;
use std::sync::Mutex;

/// Hashes that were met already, and how many crashes in a row it took at least.
pub(crate) struct Met<K>([Mutex<HashMap<(u64, K), u32>>; 16]);

impl<K> Default for Met<K> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<K: Eq + std::hash::Hash> Met<K> {
    /// Whether it was not met yet with so few crashes.
    pub(crate) fn insert(&self, hash: u64, key: K, depth: u32) -> bool {
        let mut shard = self.0[hash as usize % 16].lock().expect("nothing panics here");
        let met = shard.entry((hash, key)).or_insert(u32::MAX);
        let first = depth < *met;
        *met = depth.min(*met);
        first
    }
}
