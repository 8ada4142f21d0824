//! The processes of a cluster.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bristlecone_raft_node::{Client, Status};
use tempfile::TempDir;

use crate::hosts::Hosts;

/// Time in which a cluster must have a leader, and a node the log.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nodes, of which some run.
#[derive(Debug)]
pub struct Nodes {
    pub hosts: Hosts,
    folder: TempDir,
    running: BTreeMap<u64, Child>,
    arguments: Vec<String>,
}

impl Nodes {
    /// Prepares nodes with stores in a folder.
    pub fn new(hosts: Hosts, folder: TempDir, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { hosts, folder, running: BTreeMap::new(), arguments }
    }

    pub fn store(&self, node: u64) -> PathBuf {
        self.folder.path().join(format!("node-{node}"))
    }

    fn log(&self, node: u64) -> PathBuf {
        self.folder.path().join(format!("node-{node}.log"))
    }

    pub fn address(&self, node: u64) -> String {
        self.hosts.address(node)
    }

    /// Returns a client of nodes.
    pub fn client(&self, nodes: impl IntoIterator<Item = u64>, timeout: Duration) -> Client {
        Client::new(nodes.into_iter().map(|node| self.address(node)).collect(), timeout).expect("a client")
    }

    /// Starts a node, which may have run before.
    pub fn start(&mut self, node: u64) {
        let log = File::options().create(true).append(true).open(self.log(node)).expect("a file");
        let child = self
            .hosts
            .command(node, env!("CARGO_BIN_EXE_raftmap"))
            .args(["start", "--id", &node.to_string(), "--listen", &self.address(node), "--folder"])
            .arg(self.store(node))
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn();
        assert!(self.running.insert(node, child.expect("a node")).is_none(), "node {node} runs already");
    }

    pub fn is_running(&self, node: u64) -> bool {
        self.running.contains_key(&node)
    }

    /// Kills a node by SIGKILL.
    pub fn kill(&mut self, node: u64) {
        let mut child = self.running.remove(&node).expect("a running node");
        child.kill().and_then(|()| child.wait()).expect("the node is killed");
    }

    /// Fails if a node has ended by itself.
    pub fn expect_running(&mut self) {
        for (node, child) in &mut self.running {
            let ended = child.try_wait().expect("a process");
            let log = std::fs::read_to_string(self.folder.path().join(format!("node-{node}.log")));
            assert!(ended.is_none(), "node {node} ended ({ended:?}): {}", log.unwrap_or_default());
        }
    }

    /// Waits until the status of a node is as expected.
    pub async fn wait_for(&self, node: u64, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        let (client, end) = (self.client([node], Duration::from_secs(1)), Instant::now() + PATIENCE);
        loop {
            let status = client.status(&self.address(node)).await;
            match status {
                Ok(status) if is_so(&status) => return status,
                _ => assert!(Instant::now() < end, "node {node}: no {what} in {PATIENCE:?}: {status:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Starts nodes and makes them a cluster.
    pub async fn begin(&mut self, nodes: u64) {
        (1..=nodes).for_each(|node| self.start(node));
        for node in 1..=nodes {
            self.wait_for(node, "answer", |_| true).await;
        }
        let members = (1..=nodes).map(|node| (node, self.address(node))).collect();
        self.client([1], PATIENCE).initialize(members).await.expect("a new cluster");
        self.wait_for(1, "leader", |status| status.leader.is_some()).await;
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for (node, child) in &mut self.running {
            let _ = child.kill().and_then(|()| child.wait().map(drop));
            if std::thread::panicking() {
                let log = std::fs::read_to_string(self.folder.path().join(format!("node-{node}.log")));
                eprintln!("node {node}: {}", log.unwrap_or_default());
            }
        }
    }
}

/// Returns a folder for stores, on the disk of the build or in shared memory.
pub fn folder(is_memory: bool) -> TempDir {
    let place = if is_memory { Path::new("/dev/shm") } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
    tempfile::tempdir_in(place).expect("a temporary folder")
}
