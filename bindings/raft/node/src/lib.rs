//! A replicated ordered map over HTTP: the example of `bristlecone-raft`.
//!
//! ```text
//! client -- POST /map, /admin --> leader -- POST /raft --> followers
//! ```
//!
//! Bodies are encoded with postcard. [`serve`] is a node, [`Client`] talks to all of them.

mod client;
mod network;
mod server;
mod wire;

pub use client::{Client, Failed};
pub use server::{Settings, serve};
pub use wire::{Query, Seen, Status};

use bristlecone_raft::{Command, Reply, SnapshotFile};

bristlecone_raft::openraft::declare_raft_types!(
    /// The types of the cluster.
    pub Types: D = Command, R = Reply, NodeId = u64, Node = openraft::BasicNode, SnapshotData = SnapshotFile
);

/// A node's Raft.
pub type Raft = openraft::Raft<Types>;
