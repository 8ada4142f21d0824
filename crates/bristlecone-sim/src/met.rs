//! What was explored already.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lines::Lines;

/// What is known of something that was met before.
#[derive(Debug, Clone)]
struct Known {
    /// The fewest crashes in a row that led to it.
    depth: u32,
    /// The lines that its exploration read, once it is over.
    reads: Option<Arc<Lines>>,
}

/// How something stands that is about to be explored.
pub(crate) enum Standing {
    /// It was not explored yet with so few crashes.
    New,
    /// It is being explored just now, elsewhere.
    UnderWay,
    /// It was explored, and these lines were all that it read.
    Done(Arc<Lines>),
}

/// Everything that was met, by hash.
pub(crate) struct Met<K>([Mutex<HashMap<(u64, K), Known>>; 16]);

impl<K> Default for Met<K> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<K: Eq + std::hash::Hash> Met<K> {
    /// Meets something; if it is new the caller explores it.
    pub(crate) fn meet(&self, hash: u64, key: K, depth: u32) -> Standing {
        let mut shard = self.0[hash as usize % 16].lock().expect("nothing panics here");
        let known = shard.entry((hash, key)).or_insert(Known { depth: u32::MAX, reads: None });
        if depth < known.depth {
            *known = Known { depth, reads: None };
            return Standing::New;
        }
        known.reads.clone().map_or(Standing::UnderWay, Standing::Done)
    }

    /// Its exploration is over.
    pub(crate) fn finish(&self, hash: u64, key: K, reads: &Arc<Lines>) {
        let mut shard = self.0[hash as usize % 16].lock().expect("nothing panics here");
        if let Some(known) = shard.get_mut(&(hash, key)) {
            known.reads = Some(Arc::clone(reads));
        }
    }
}
