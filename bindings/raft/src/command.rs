//! Commands of the replicated map, and their replies.

use bristlecone::{Error, KEY_BYTES_MAX, Result, Transaction, Tree, VALUE_BYTES_MAX};
use serde::{Deserialize, Serialize};

/// The tree of a map.
pub type MapTree = Tree<&'static [u8], &'static [u8]>;

/// A write to the replicated map: openraft's `D`.
///
/// Keys have at most [`KEY_BYTES_MAX`] bytes, values [`VALUE_BYTES_MAX`]; any bytes are allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Inserts or overwrites the value of a key.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its new value.
        value: Vec<u8>,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
    /// Changes a key if it has a value, or is absent.
    CompareAndSet {
        /// The key.
        key: Vec<u8>,
        /// The value that the key must have. `None`: it must be absent.
        expected: Option<Vec<u8>>,
        /// The new value. `None`: the key is removed.
        new: Option<Vec<u8>>,
    },
}

/// The reply to a [`Command`]: openraft's `R`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The entry had no command.
    None,
    /// The key has the value.
    Written,
    /// The key is absent; the value that it had.
    Removed(Option<Vec<u8>>),
    /// The key had the expected value, and was changed.
    Exchanged,
    /// The key has another value, or is absent, and is unchanged.
    Differs(Option<Vec<u8>>),
    /// The key or value is too long; nothing has changed.
    TooLong(String),
}

impl Command {
    /// Verifies the lengths of keys and values. [`Reply::TooLong`] is the same, after replication.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`].
    ///
    /// ```
    /// use bristlecone_raft::Command;
    ///
    /// let key = b"Methuselah".to_vec();
    /// assert!(Command::Put { key: key.clone(), value: vec![0; 128 << 10] }.verify().is_ok());
    /// assert!(Command::Put { key, value: vec![0; (128 << 10) + 1] }.verify().is_err());
    /// ```
    pub fn verify(&self) -> Result<()> {
        let (key, values) = match self {
            Self::Put { key, value } => (key, [Some(value), None]),
            Self::Delete { key } => (key, [None, None]),
            Self::CompareAndSet { key, expected, new } => (key, [expected.as_ref(), new.as_ref()]),
        };
        expect_length("key", key, KEY_BYTES_MAX)?;
        values.into_iter().flatten().try_for_each(|value| expect_length("value", value, VALUE_BYTES_MAX))
    }

    /// Executes the command in a transaction.
    pub(crate) fn execute(&self, map: &MapTree, changes: &Transaction) -> Result<Reply> {
        if let Err(refused) = self.verify() {
            return Ok(Reply::TooLong(refused.to_string()));
        }
        match self {
            Self::Put { key, value } => changes.insert(map, key, value).map(|()| Reply::Written),
            Self::Delete { key } => {
                let removed = changes.get(map, key)?;
                changes.remove(map, key).map(|()| Reply::Removed(removed))
            }
            Self::CompareAndSet { key, expected, new } => {
                let found = changes.get(map, key)?;
                if found != *expected {
                    return Ok(Reply::Differs(found));
                }
                match new {
                    Some(value) => changes.insert(map, key, value),
                    None => changes.remove(map, key),
                }
                .map(|()| Reply::Exchanged)
            }
        }
    }
}

fn expect_length(what: &'static str, bytes: &[u8], max_bytes: usize) -> Result<()> {
    match bytes.len() {
        bytes if bytes > max_bytes => Err(Error::TooLong { what, bytes, max_bytes }),
        _ => Ok(()),
    }
}
