//! Messages from this node to others.

use std::time::Duration;

use openraft::error::{InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{AnyError, BasicNode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Types;
use crate::wire::{decode, encode};

/// Time between two attempts to reach a node.
const RETRY: Duration = Duration::from_millis(100);

/// Creates connections to other nodes.
pub struct Network(pub reqwest::Client);

/// Messages to one node.
pub struct Peer {
    http: reqwest::Client,
    id: u64,
    address: String,
}

type Sent<T, E> = Result<T, RPCError<u64, BasicNode, RaftError<u64, E>>>;

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, id: u64, node: &BasicNode) -> Peer {
        Peer { http: self.0.clone(), id, address: node.addr.clone() }
    }
}

impl Peer {
    async fn send<Q, A, E>(&self, path: &str, message: &Q, option: &RPCOption) -> Sent<A, E>
    where
        Q: Serialize,
        A: DeserializeOwned,
        E: std::error::Error + DeserializeOwned,
    {
        let broken = |what: String| RPCError::Network(NetworkError::new(&AnyError::error(what)));
        // The message names its receiver: another node may have the address.
        let url = format!("http://{}/raft/{path}/{}", self.address, self.id);
        let sent = self.http.post(url).timeout(option.hard_ttl()).body(encode(message).map_err(broken)?);
        let answer = match sent.send().await.and_then(reqwest::Response::error_for_status) {
            Ok(answer) => answer.bytes().await.map_err(|error| broken(error.to_string()))?,
            Err(error) => return Err(RPCError::Unreachable(Unreachable::new(&error))),
        };
        let answer: Result<A, RaftError<u64, E>> = decode(&answer).map_err(broken)?;
        answer.map_err(|error| RPCError::RemoteError(RemoteError::new(self.id, error)))
    }
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        message: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        self.send("append", &message, &option).await
    }

    async fn install_snapshot(
        &mut self,
        message: InstallSnapshotRequest<Types>,
        option: RPCOption,
    ) -> Sent<InstallSnapshotResponse<u64>, InstallSnapshotError> {
        self.send("snapshot", &message, &option).await
    }

    async fn vote(
        &mut self,
        message: VoteRequest<u64>,
        option: RPCOption,
    ) -> Result<VoteResponse<u64>, RPCError<u64, BasicNode, RaftError<u64>>> {
        self.send("vote", &message, &option).await
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(RETRY))
    }
}
