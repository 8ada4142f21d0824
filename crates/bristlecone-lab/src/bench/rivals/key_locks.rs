//! Locks of keys.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks of keys, for stores whose batches are atomic but read nothing.
pub struct KeyLocks(Box<[Mutex<()>]>);

impl KeyLocks {
    /// Creates more locks than threads can hold.
    pub fn new() -> Self {
        Self((0..4096).map(|_| Mutex::new(())).collect())
    }

    /// Holds the locks of two keys, taken in one order by all threads.
    pub fn hold(&self, one: u64, other: u64) -> [Option<MutexGuard<'_, ()>>; 2] {
        let of = |key: u64| (bristlecone_random::mix(key) % self.0.len() as u64) as usize;
        let (low, high) = (of(one).min(of(other)), of(one).max(of(other)));
        let lock = |at: usize| Some(self.0[at].lock().unwrap_or_else(PoisonError::into_inner));
        [lock(low), if low == high { None } else { lock(high) }]
    }
}
