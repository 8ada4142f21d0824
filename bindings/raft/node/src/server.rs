//! A node: its Raft, its store, and its HTTP server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use bristlecone_raft::{Command, Map, Options, Reply};
use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use openraft::{BasicNode, ChangeMembers, Config, ServerState, SnapshotPolicy};
use serde::{Deserialize, Serialize};

use crate::network::Network;
use crate::wire::{Change, Query, Refusal, Seen, Status, decode, encode};
use crate::{Raft, Types};

/// Bytes of the longest message: a chunk of a snapshot, or entries.
const MESSAGE_BYTES: usize = 64 << 20;
/// Time in which a node must accept a connection.
const CONNECT: Duration = Duration::from_millis(500);

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its id, unique in the cluster and forever.
    pub id: u64,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Folder of its store.
    pub folder: PathBuf,
    /// Options of the store.
    pub options: Options,
    /// Entries between two snapshots.
    pub snapshot_every: u64,
    /// Time between two heartbeats. An election begins after 5 to 10 of them without one.
    pub heartbeat: Duration,
}

#[derive(Clone)]
struct Node {
    id: u64,
    raft: Raft,
    map: Map,
}

type Answer<T> = Result<T, Refusal>;

/// Runs a node until `stop` is ready.
///
/// # Errors
///
/// Errors of the store, of the address, and of Raft, as text.
pub async fn serve(
    settings: Settings,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<(), String> {
    let heartbeat = u64::try_from(settings.heartbeat.as_millis()).map_err(|error| error.to_string())?;
    let config = Config {
        heartbeat_interval: heartbeat,
        election_timeout_min: heartbeat * 5,
        election_timeout_max: heartbeat * 10,
        install_snapshot_timeout: heartbeat * 100,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(settings.snapshot_every),
        max_in_snapshot_log_to_keep: settings.snapshot_every / 5,
        replication_lag_threshold: settings.snapshot_every * 2,
        ..Config::default()
    };
    let config = config.validate().map_err(|error| error.to_string())?;
    let (log, state) = bristlecone_raft::open::<Types>(&settings.folder, &settings.options)
        .map_err(|error| format!("{}: {error}", settings.folder.display()))?;
    let map = state.map();
    let http = reqwest::Client::builder().connect_timeout(CONNECT).no_proxy().build();
    let network = Network(http.map_err(|error| error.to_string())?);
    let raft = Raft::new(settings.id, Arc::new(config), network, log, state).await;
    let raft = raft.map_err(|error| error.to_string())?;
    let routes = routes(Node { id: settings.id, raft: raft.clone(), map });
    let listener = tokio::net::TcpListener::bind(settings.listen).await;
    let listener = listener.map_err(|error| format!("listening on {}: {error}", settings.listen))?;
    let stopped = stopped(raft.clone());
    let server = axum::serve(listener, routes).with_graceful_shutdown(stop);
    let served = tokio::select! {
        served = server => served.map_err(|error| error.to_string()),
        why = stopped => Err(why),
    };
    raft.shutdown().await.map_err(|error| error.to_string())?;
    served
}

/// Waits until Raft stops by itself, as it does at any error of the store; returns the reason.
async fn stopped(raft: Raft) -> String {
    let mut metrics = raft.metrics();
    loop {
        if let Err(why) = &metrics.borrow().running_state {
            return why.to_string();
        }
        if metrics.changed().await.is_err() {
            return "Raft has ended".to_owned();
        }
    }
}

fn routes(node: Node) -> Router {
    Router::new()
        .route("/raft/append/{to}", post(append))
        .route("/raft/vote/{to}", post(vote))
        .route("/raft/snapshot/{to}", post(snapshot))
        .route("/map/write", post(write))
        .route("/map/read", post(read))
        .route("/admin/change", post(change))
        .route("/admin/status", post(status))
        .layer(DefaultBodyLimit::max(MESSAGE_BYTES))
        .with_state(node)
}

type Replied = Result<Vec<u8>, (StatusCode, String)>;

fn taken<'a, T: Deserialize<'a>>(body: &'a Bytes) -> Result<T, (StatusCode, String)> {
    decode(body).map_err(|error| (StatusCode::BAD_REQUEST, error))
}

fn replied<T: Serialize>(answer: &T) -> Replied {
    encode(answer).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error))
}

/// Refuses a message to another node, which has moved to another address.
fn expect_receiver(node: &Node, to: u64) -> Result<(), (StatusCode, String)> {
    match to == node.id {
        true => Ok(()),
        false => Err((StatusCode::MISDIRECTED_REQUEST, format!("this is node {}, not {to}", node.id))),
    }
}

/// Finishes work also if the sender hangs up: a chunk of a snapshot that is written in part would be written again at the
/// wrong place.
async fn finished<T: Serialize + Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Replied {
    let done = tokio::spawn(work).await;
    replied(&done.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?)
}

async fn append(State(node): State<Node>, Path(to): Path<u64>, body: Bytes) -> Replied {
    expect_receiver(&node, to)?;
    let message = taken(&body)?;
    finished(async move { node.raft.append_entries(message).await }).await
}

async fn vote(State(node): State<Node>, Path(to): Path<u64>, body: Bytes) -> Replied {
    expect_receiver(&node, to)?;
    let message = taken(&body)?;
    finished(async move { node.raft.vote(message).await }).await
}

async fn snapshot(State(node): State<Node>, Path(to): Path<u64>, body: Bytes) -> Replied {
    expect_receiver(&node, to)?;
    let message = taken(&body)?;
    finished(async move { node.raft.install_snapshot(message).await }).await
}

async fn write(State(node): State<Node>, body: Bytes) -> Replied {
    replied(&node.write(taken(&body)?).await)
}

async fn read(State(node): State<Node>, body: Bytes) -> Replied {
    replied(&node.read(taken(&body)?).await)
}

async fn change(State(node): State<Node>, body: Bytes) -> Replied {
    replied(&node.change(taken(&body)?).await)
}

async fn status(State(node): State<Node>) -> Replied {
    replied(&node.status())
}

impl Node {
    /// Refuses if another node leads. Later refusals by openraft may come after the entry was sent to others.
    fn expect_leader(&self) -> Answer<()> {
        let metrics = self.raft.metrics().borrow().clone();
        if metrics.state == ServerState::Leader {
            return Ok(());
        }
        let members = metrics.membership_config.membership();
        let leader = metrics.current_leader.filter(|leader| *leader != self.id);
        let address = leader.and_then(|leader| members.get_node(&leader)).map(|node| node.addr.clone());
        Err(Refusal::NotLeader(address))
    }

    async fn write(&self, command: Command) -> Answer<Reply> {
        command.verify().map_err(|error| Refusal::Rejected(error.to_string()))?;
        self.expect_leader()?;
        let written = self.raft.client_write(command).await;
        written.map(|written| written.data).map_err(|error| Refusal::Unknown(error.to_string()))
    }

    async fn read(&self, query: Query) -> Answer<Seen> {
        self.raft.ensure_linearizable().await.map_err(|error| match error {
            RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward)) => {
                Refusal::NotLeader(forward.leader_node.map(|node| node.addr))
            }
            other => Refusal::Rejected(other.to_string()),
        })?;
        let map = self.map.clone();
        let done = tokio::task::spawn_blocking(move || match query {
            Query::Get(key) => map.get(&key).map(Seen::Value),
            Query::Range { from, to, limit } => {
                let bounds = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
                map.range(bounds, limit).map(Seen::Items)
            }
        });
        let seen = done.await.map_err(|error| Refusal::Rejected(error.to_string()))?;
        seen.map_err(|error| Refusal::Rejected(error.to_string()))
    }

    async fn change(&self, change: Change) -> Answer<()> {
        match change {
            Change::Initialize(members) => {
                let members: BTreeMap<_, _> =
                    members.into_iter().map(|(id, address)| (id, BasicNode::new(address))).collect();
                let done = self.raft.initialize(members).await;
                done.map_err(|error| Refusal::Rejected(error.to_string()))
            }
            Change::Add(id, address) => {
                self.expect_leader()?;
                let learned = self.raft.add_learner(id, BasicNode::new(address), true).await;
                learned.map_err(refused)?;
                self.change_voters(ChangeMembers::AddVoterIds(BTreeSet::from([id]))).await
            }
            Change::Remove(id) => {
                self.expect_leader()?;
                self.change_voters(ChangeMembers::RemoveVoters(BTreeSet::from([id]))).await
            }
        }
    }

    async fn change_voters(&self, change: ChangeMembers<u64, BasicNode>) -> Answer<()> {
        // `false`: a removed member is not kept as a learner.
        self.raft.change_membership(change, false).await.map(drop).map_err(refused)
    }

    fn status(&self) -> Status {
        let metrics = self.raft.metrics().borrow().clone();
        let members = metrics.membership_config.membership();
        let address = |id: u64| members.get_node(&id).map(|node| node.addr.clone()).unwrap_or_default();
        Status {
            id: self.id,
            state: format!("{:?}", metrics.state).to_lowercase(),
            leader: metrics.current_leader,
            term: metrics.current_term,
            last: metrics.last_log_index,
            applied: metrics.last_applied.map(|id| id.index),
            snapshot: metrics.snapshot.map(|id| id.index),
            purged: metrics.purged.map(|id| id.index),
            voters: members.voter_ids().map(|id| (id, address(id))).collect(),
        }
    }
}

/// A change of members that was refused may be in the log already.
fn refused(error: RaftError<u64, ClientWriteError<u64, BasicNode>>) -> Refusal {
    match error {
        RaftError::APIError(ClientWriteError::ChangeMembershipError(error)) => {
            Refusal::Rejected(error.to_string())
        }
        other => Refusal::Unknown(other.to_string()),
    }
}
