//! Locks of keys.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::together::{Together, moved, word};
use super::{ByteStore, Refused};

/// Locks of keys, for stores whose batches are atomic but read nothing.
pub struct KeyLocks(Box<[Mutex<()>]>);

impl KeyLocks {
    /// Creates more locks than threads can hold.
    pub fn new() -> Self {
        Self((0..4096).map(|_| Mutex::new(())).collect())
    }

    /// Locks two keys, in the same order in all threads.
    fn hold(&self, one: u64, other: u64) -> [Option<MutexGuard<'_, ()>>; 2] {
        let of = |key: u64| (bristlecone_random::mix(key) % self.0.len() as u64) as usize;
        let (low, high) = (of(one).min(of(other)), of(one).max(of(other)));
        let lock = |at: usize| Some(self.0[at].lock().unwrap_or_else(PoisonError::into_inner));
        [lock(low), if low == high { None } else { lock(high) }]
    }

    /// Moves an amount from one key to another, like [`Together::transfer`].
    pub fn transfer<S: ByteStore + Together>(
        &self,
        store: &S,
        from: u64,
        to: u64,
        amount: u64,
    ) -> Refused<bool> {
        let _locked = self.hold(from, to);
        let mut held = [0; 2];
        for (held, key) in held.iter_mut().zip([from, to]) {
            let mut read = Ok(0);
            store.get(&key.to_be_bytes(), &mut |value| read = word(value))?;
            *held = read?;
        }
        let [from_after, to_after] = moved(held, amount);
        store.write_together(&[(from, from_after), (to, to_after)])?;
        Ok(true)
    }
}
