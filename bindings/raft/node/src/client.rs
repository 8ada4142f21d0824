//! A client of the cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bristlecone_raft::{Command, Reply};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::wire::{Change, Query, Refusal, Seen, Status, decode, encode};

/// Time in which a node must accept a connection.
const CONNECT: Duration = Duration::from_millis(500);
/// Time in which a node must answer a read, before another one is asked.
const READ: Duration = Duration::from_secs(1);
/// Time between two attempts.
const RETRY: Duration = Duration::from_millis(50);

/// A client that knows addresses of nodes, and finds the leader.
#[derive(Debug)]
pub struct Client {
    http: reqwest::Client,
    nodes: Vec<String>,
    /// Where the leader was seen last.
    leader: Mutex<String>,
    timeout: Duration,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The call had no effect.
    Refused(String),
    /// A write may have taken effect, or take effect later.
    Unknown(String),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Unknown(why) => write!(f, "{why}; the write may take effect"),
        }
    }
}

impl Client {
    /// Creates a client; each call takes at most about `timeout`.
    ///
    /// # Errors
    ///
    /// Without addresses.
    pub fn new(nodes: Vec<String>, timeout: Duration) -> Result<Self, String> {
        let leader = nodes.first().cloned().ok_or("no address of a node is given")?;
        let http = reqwest::Client::builder().connect_timeout(CONNECT).no_proxy().build();
        let http = http.map_err(|error| error.to_string())?;
        Ok(Self { http, nodes, leader: Mutex::new(leader), timeout })
    }

    /// Executes a command. It is sent again only if it cannot have had an effect.
    ///
    /// # Errors
    ///
    /// [`Failed::Refused`] if no leader was found, or for a key or value that is too long; [`Failed::Unknown`].
    pub async fn write(&self, command: &Command) -> Result<Reply, Failed> {
        self.call("map/write", command, false).await
    }

    /// Reads the map; the read is linearizable. It is repeated until it succeeds.
    ///
    /// # Errors
    ///
    /// [`Failed::Refused`] if no leader answered.
    pub async fn read(&self, query: &Query) -> Result<Seen, Failed> {
        self.call("map/read", query, true).await
    }

    /// Makes nodes that have no log a cluster: their ids and addresses.
    ///
    /// # Errors
    ///
    /// [`Failed::Refused`] if the first node has a log already.
    pub async fn initialize(&self, members: BTreeMap<u64, String>) -> Result<(), Failed> {
        self.call("admin/change", &Change::Initialize(members), false).await
    }

    /// Adds a member, once it has received the log.
    ///
    /// # Errors
    ///
    /// Same as [`write`](Self::write).
    pub async fn add(&self, id: u64, address: String) -> Result<(), Failed> {
        self.call("admin/change", &Change::Add(id, address), false).await
    }

    /// Removes a member.
    ///
    /// # Errors
    ///
    /// Same as [`write`](Self::write).
    pub async fn remove(&self, id: u64) -> Result<(), Failed> {
        self.call("admin/change", &Change::Remove(id), false).await
    }

    /// Returns the state of the node at an address.
    ///
    /// # Errors
    ///
    /// If the node does not answer.
    pub async fn status(&self, address: &str) -> Result<Status, String> {
        let answer = self.post(address, "admin/status", Vec::new(), self.timeout).await;
        decode(&answer.map_err(|error| format!("{address}: {error}"))?)
    }

    async fn post(
        &self,
        address: &str,
        path: &str,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<Vec<u8>, reqwest::Error> {
        let sent = self.http.post(format!("http://{address}/{path}")).timeout(timeout).body(body);
        let answer = sent.send().await?.error_for_status()?;
        answer.bytes().await.map(|bytes| bytes.to_vec())
    }

    async fn call<Q: Serialize, A: DeserializeOwned>(
        &self,
        path: &str,
        message: &Q,
        is_read: bool,
    ) -> Result<A, Failed> {
        let (body, end) = (encode(message).map_err(Failed::Refused)?, Instant::now() + self.timeout);
        let mut why = "no time was left".to_owned();
        for attempt in 0.. {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let address = self.lock().clone();
            // A leader without its followers does not answer a read.
            let patience = if is_read { READ.min(left) } else { left };
            let next = match self.post(&address, path, body.clone(), patience).await {
                Ok(answer) => match decode::<Result<A, Refusal>>(&answer).map_err(Failed::Unknown)? {
                    Ok(done) => return Ok(done),
                    Err(Refusal::NotLeader(leader)) => {
                        why = format!("{address} is not the leader");
                        leader
                    }
                    Err(Refusal::Rejected(refused)) if !is_read => return Err(Failed::Refused(refused)),
                    Err(Refusal::Unknown(unknown)) => return Err(Failed::Unknown(unknown)),
                    Err(Refusal::Rejected(refused)) => {
                        why = refused;
                        None
                    }
                },
                Err(error) if is_read || error.is_connect() => {
                    why = format!("{address}: {error}");
                    None
                }
                Err(error) => return Err(Failed::Unknown(format!("{address}: {error}"))),
            };
            *self.lock() = next.unwrap_or_else(|| self.nodes[attempt % self.nodes.len()].clone());
            tokio::time::sleep(RETRY.min(left)).await;
        }
        Err(Failed::Refused(format!("no leader answered in {:?}: {why}", self.timeout)))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, String> {
        self.leader.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
