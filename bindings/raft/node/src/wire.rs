//! What clients and nodes send each other.

use std::collections::BTreeMap;
use std::ops::Bound;

use bristlecone_raft::Items;
use serde::{Deserialize, Serialize};

/// A linearizable read of the map.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Query {
    /// The value of a key.
    Get(Vec<u8>),
    /// Items in order of their keys.
    Range {
        /// The first key.
        from: Bound<Vec<u8>>,
        /// The last key.
        to: Bound<Vec<u8>>,
        /// Most items to return.
        limit: usize,
    },
}

/// The answer to a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen {
    /// The value of the key.
    Value(Option<Vec<u8>>),
    /// The items.
    Items(Items),
}

/// A change of the cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Makes the members, by id and address, a cluster. Once, on one node.
    Initialize(BTreeMap<u64, String>),
    /// Adds a member: it receives the log, and then votes.
    Add(u64, String),
    /// Removes a member.
    Remove(u64),
}

/// The state of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its id.
    pub id: u64,
    /// Its state: leader, follower, candidate, learner.
    pub state: String,
    /// The leader that it knows.
    pub leader: Option<u64>,
    /// Its term.
    pub term: u64,
    /// Index of the last entry of its log.
    pub last: Option<u64>,
    /// Index of the last entry that it applied.
    pub applied: Option<u64>,
    /// Index of the last entry of its snapshot.
    pub snapshot: Option<u64>,
    /// Index of the last entry that it purged.
    pub purged: Option<u64>,
    /// Members that vote, by id and address.
    pub voters: BTreeMap<u64, String>,
}

/// Why a node did not do what a client asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Refusal {
    /// Nothing was done: the node is not the leader. The address of the leader, if it knows it.
    NotLeader(Option<String>),
    /// Nothing was done.
    Rejected(String),
    /// The write may take effect, or not.
    Unknown(String),
}

/// Encodes a message.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, String> {
    postcard::to_allocvec(message).map_err(|error| format!("a message cannot be encoded: {error}"))
}

/// Decodes a message.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    postcard::from_bytes(bytes).map_err(|error| format!("a message cannot be decoded: {error}"))
}
