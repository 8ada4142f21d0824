//! Storage for [openraft] in Bristlecone pools: a log store, and a replicated ordered map.
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! use bristlecone_raft::{Command, Options, Reply, SnapshotFile, openraft};
//! use openraft::{BasicNode, Config, Raft};
//!
//! openraft::declare_raft_types!(
//!     pub Types: D = Command, R = Reply, NodeId = u64, Node = BasicNode, SnapshotData = SnapshotFile
//! );
//! # use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError};
//! # use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
//! # use openraft::raft::*;
//! # struct Alone;
//! # type Sent<T, E = openraft::error::Infallible> = Result<T, RPCError<u64, BasicNode, RaftError<u64, E>>>;
//! # fn alone<T, E: std::error::Error>() -> Sent<T, E> {
//! #     Err(RPCError::Network(NetworkError::new(&openraft::AnyError::error("a cluster of one node"))))
//! # }
//! # impl RaftNetworkFactory<Types> for Alone {
//! #     type Network = Self;
//! #     async fn new_client(&mut self, _: u64, _: &BasicNode) -> Self { Self }
//! # }
//! # impl RaftNetwork<Types> for Alone {
//! #     async fn append_entries(
//! #         &mut self, _: AppendEntriesRequest<Types>, _: RPCOption,
//! #     ) -> Sent<AppendEntriesResponse<u64>> { alone() }
//! #     async fn install_snapshot(
//! #         &mut self, _: InstallSnapshotRequest<Types>, _: RPCOption,
//! #     ) -> Sent<InstallSnapshotResponse<u64>, InstallSnapshotError> { alone() }
//! #     async fn vote(&mut self, _: VoteRequest<u64>, _: RPCOption) -> Sent<VoteResponse<u64>> { alone() }
//! # }
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = format!("/dev/shm/bristlecone-doc-raft-{}", std::process::id());
//! # let network = Alone;
//! let (log, state) = bristlecone_raft::open::<Types>(&folder, &Options::new())?;
//! let map = state.map();
//! let raft = Raft::new(1, Arc::new(Config::default()), network, log, state).await?;
//! raft.initialize(BTreeMap::from([(1, BasicNode::new("127.0.0.1:21001"))])).await?;
//! # raft.wait(None).current_leader(1, "elected").await?;
//!
//! raft.client_write(Command::Put { key: b"Methuselah".into(), value: b"4857".into() }).await?;
//! raft.ensure_linearizable().await?;
//! assert_eq!(map.get(b"Methuselah")?, Some(b"4857".into()));
//! # raft.shutdown().await?;
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! [`open`] returns both halves of a node's storage: [`LogStore`] and [`StateMachine`]. [`Map`] reads the map. A program
//! with a state machine of its own uses [`LogStore::open`].
//!
//! # Two pools
//!
//! ```text
//! FOLDER/log.pool             entries, vote, committed and purged ids, number of the current state machine
//! FOLDER/state-N/pool         the map, id of the last applied entry, members
//! FOLDER/state-N/snapshot     a copy of such a pool
//! FOLDER/receiving-N          a snapshot that is being received
//! ```
//!
//! Installing a snapshot replaces the state machine, while log and vote stay: hence two pools. The switch is one write
//! to `log.pool`. With two pools, the log can wait for the disk and the state machine need not: the log keeps what the
//! state machine may lose. See [`Options::state_durability`].
//!
//! # Errors
//!
//! openraft stops a node at any error of its storage, such as a full disk. Nothing that was acknowledged is lost: start
//! the node again once there is space.

mod codec;
mod command;
mod generation;
mod log;
mod log_store;
mod map;
mod options;
mod snapshot_file;
mod state_machine;

use std::path::Path;
use std::sync::Arc;

use openraft::RaftTypeConfig;

pub use bristlecone;
pub use command::{Command, Reply};
pub use log_store::LogStore;
pub use map::{Items, Map};
pub use openraft;
pub use options::Options;
pub use snapshot_file::SnapshotFile;
pub use state_machine::{MapConfig, StateMachine};

/// Opens the store of a node in a folder, or creates it with missing folders.
///
/// The two halves belong to one [`Raft`](openraft::Raft). The folder is locked until both are dropped.
///
/// # Errors
///
/// [`Error::InUse`](bristlecone::Error::InUse) while another process or handle has it open;
/// [`Error::Corrupted`](bristlecone::Error::Corrupted) for damage; otherwise same as
/// [`PoolOptions::open`](bristlecone::PoolOptions::open). After an error nothing that was stored has changed.
pub fn open<C: RaftTypeConfig>(
    folder: impl AsRef<Path>,
    options: &Options,
) -> bristlecone::Result<(LogStore<C>, StateMachine<C>)> {
    let folder = folder.as_ref();
    let created = std::fs::create_dir_all(folder);
    created.map_err(|error| bristlecone::Error::io(format!("creating {}", folder.display()), error))?;
    let log = LogStore::open(folder, options)?;
    let state = StateMachine::open(Arc::clone(log.log()), folder, options)?;
    Ok((log, state))
}
