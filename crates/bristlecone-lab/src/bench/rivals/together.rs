//! Several keys in one step. Keys and values are words.

use super::{ByteStore, Refused};

/// What a store of bytes does for that beside single writes, for the presets `bank` and `batch`.
pub trait Together: ByteStore {
    /// Writes entries in one step: as it is here, for stores that load in one transaction.
    fn write_together(&self, entries: &[(u64, u64)]) -> Refused<()> {
        self.load(&mut entries.iter().copied().map(bytes))
    }
    /// Moves up to an amount from one key's value to another's in one step; `false`: others were faster each time.
    fn transfer(&self, from: u64, to: u64, amount: u64) -> Refused<bool>;
    /// Returns how many keys there are, and the sum of their values, at one moment.
    fn sum(&self) -> Refused<(u64, u64)>;
}

/// Returns an entry of words as it is stored.
pub fn bytes((key, value): (u64, u64)) -> (Vec<u8>, Vec<u8>) {
    (key.to_be_bytes().into(), value.to_be_bytes().into())
}

/// Returns what two keys have after a transfer.
pub fn moved([from, to]: [u64; 2], amount: u64) -> [u64; 2] {
    let amount = amount.min(from);
    [from - amount, to + amount]
}

/// Returns the word of a stored key or value.
///
/// # Errors
///
/// If it is none.
#[cfg(any(feature = "rivals", feature = "lmdb", feature = "rocksdb"))]
pub fn word(bytes: &[u8]) -> Refused<u64> {
    Ok(u64::from_be_bytes(bytes.try_into()?))
}
