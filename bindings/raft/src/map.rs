//! Reading the replicated map.

use std::ops::RangeBounds;
use std::sync::{Arc, PoisonError, RwLock};

use bristlecone::Result;

use crate::generation::Generation;

/// The current generation of a state machine.
#[derive(Debug)]
pub struct Current(RwLock<Arc<Generation>>);

impl Current {
    pub fn new(generation: Generation) -> Self {
        Self(RwLock::new(Arc::new(generation)))
    }

    pub fn get(&self) -> Arc<Generation> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the generation; returns the old one.
    pub fn replace(&self, generation: Generation) -> Arc<Generation> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, Arc::new(generation))
    }
}

/// A handle for reading the map of a [`StateMachine`](crate::StateMachine). Clones are cheap.
///
/// A read is of this node's state machine, which may be behind the cluster. It is linearizable after
/// [`Raft::ensure_linearizable`](openraft::Raft::ensure_linearizable) has returned on the same node. Reads may wait for
/// memory, not for other nodes.
#[derive(Clone, Debug)]
pub struct Map(pub(crate) Arc<Current>);

/// Keys with their values.
pub type Items = Vec<(Vec<u8>, Vec<u8>)>;

impl Map {
    /// Returns the value of a key.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`](bristlecone::Error) if the value, or a key that might be this one, is damaged.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get().map.get(key)
    }

    /// Returns the first items within bounds, at most `limit`, in the order of their keys and as of one point in time.
    /// Reversed bounds have no items.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    pub fn range<'a>(&self, bounds: impl RangeBounds<&'a [u8]>, limit: usize) -> Result<Items> {
        let current = self.0.get();
        let view = current.pool.snapshot()?;
        view.tree(&current.map).range(bounds).take(limit).collect()
    }

    /// Returns the number of keys.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    pub fn len(&self) -> Result<u64> {
        self.0.get().map.len()
    }

    /// Returns whether there is no key.
    ///
    /// # Errors
    ///
    /// Same as [`get`](Self::get).
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}
