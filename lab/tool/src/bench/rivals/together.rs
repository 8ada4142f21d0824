//! Atomic changes of several keys. Keys and values are words.

use super::{ByteStore, Refused};

/// Operations of a store of bytes besides single writes, for the presets `bank` and `batch`.
pub trait Together: ByteStore {
    /// Writes entries atomically. This default is for stores that load in one transaction.
    fn write_together(&self, entries: &[(u64, u64)]) -> Refused<()> {
        self.load(&mut entries.iter().copied().map(bytes))
    }
    /// Moves at most an amount from one key's value to another's atomically; returns `false` after
    /// too many conflicts.
    fn transfer(&self, from: u64, to: u64, amount: u64) -> Refused<bool>;
    /// Returns the number of keys and the sum of their values, at one instant.
    fn sum(&self) -> Refused<(u64, u64)>;
}

/// Returns an entry of words in stored form.
pub fn bytes((key, value): (u64, u64)) -> (Vec<u8>, Vec<u8>) {
    (key.to_be_bytes().into(), value.to_be_bytes().into())
}

/// Returns the values of two keys after a transfer.
pub fn moved([from, to]: [u64; 2], amount: u64) -> [u64; 2] {
    let amount = amount.min(from);
    [from - amount, to + amount]
}

/// Returns the word of a stored key or value.
///
/// # Errors
///
/// If the length is wrong.
#[cfg(any(feature = "rivals", feature = "lmdb", feature = "rocksdb"))]
pub fn word(bytes: &[u8]) -> Refused<u64> {
    Ok(u64::from_be_bytes(bytes.try_into()?))
}
