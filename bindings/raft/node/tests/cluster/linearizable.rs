//! Clients, faults, and then: is the history linearizable, and are the stores equal?

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bristlecone_raft::bristlecone::Pool;
use bristlecone_raft::openraft::storage::RaftStateMachine;
use bristlecone_raft::{Items, Options};
use bristlecone_raft_node::Types;
use bristlecone_random::Generator;

use crate::clients::{Run, all, mix, pair, word};
use crate::faults::{Faults, MEMBERS, SPARE};
use crate::hosts::{Hosts, enter};
use crate::nodes::{Nodes, folder};

/// Clients that share keys.
const CLIENTS: u64 = 6;
/// A call takes no longer, so that a client continues after a fault.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Entries between snapshots, few enough that nodes that were away receive one.
const SNAPSHOT_EVERY: &str = "200";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text:?}")))
}

/// Runs clients and faults for the seconds of `BRISTLECONE_RAFT_SECONDS`, by default a few.
async fn run(hosts: Hosts, is_memory: bool, design: &str) {
    let seed = number("BRISTLECONE_SEED", u64::from(std::process::id()));
    let time = Duration::from_secs(number("BRISTLECONE_RAFT_SECONDS", 12));
    println!("seed {seed}, {design}, {time:?}");
    let arguments = ["--design", design, "--max-bytes", "1G", "--snapshot-every", SNAPSHOT_EVERY];
    let mut nodes = Nodes::new(hosts, folder(is_memory), &arguments);
    nodes.begin(MEMBERS).await;
    nodes.start(SPARE);

    let (run, mut random) = (Arc::new(Run::default()), Generator::new(seed));
    let client = || nodes.client(1..=SPARE, TIMEOUT);
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| tokio::spawn(mix(Arc::clone(&run), client(), Generator::new(random.word()))))
        .collect();
    clients.push(tokio::spawn(pair(Arc::clone(&run), client())));
    let mut faults = Faults::default();
    faults.disturb(&mut nodes, time, &mut random).await;
    run.is_over.store(true, Relaxed);
    for client in clients {
        client.await.expect("a client without a contradiction");
    }

    let last =
        all(&nodes.client(1..=SPARE, Duration::from_secs(60))).await.expect("a healed cluster answers");
    let (done, unknown) = run.history.counts();
    println!("{done} operations, {unknown} with an unknown result; {faults:?}");
    assert!(done > 200, "only {done} operations returned");
    let values: BTreeMap<u64, u64> = last.iter().map(|(key, value)| (word(key), word(value))).collect();
    run.history.verify(&values);
    expect_equal_stores(nodes, &last).await;
}

/// Waits until the voters have applied the same entries, kills all nodes, and compares and checks what they stored.
async fn expect_equal_stores(mut nodes: Nodes, expected: &Items) {
    let leader = nodes.wait_for(1, "leader", |status| status.leader.is_some()).await.leader.unwrap_or(1);
    let of_leader = nodes.wait_for(leader, "applied log", |status| status.applied == status.last).await;
    let voters: Vec<u64> = of_leader.voters.into_keys().collect();
    let mut snapshots = 0;
    for voter in &voters {
        let status = nodes.wait_for(*voter, "whole log", |status| status.applied >= of_leader.last).await;
        snapshots += u64::from(status.purged.is_some());
    }
    println!("voters {voters:?}, {snapshots} of which purged entries");
    (1..=SPARE)
        .filter(|node| nodes.is_running(*node))
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|node| nodes.kill(node));
    for voter in voters {
        let store = nodes.store(voter);
        let (log, mut state) = bristlecone_raft::open::<Types>(&store, &Options::new()).expect("a store");
        assert!(state.map().range(.., usize::MAX).unwrap() == *expected, "node {voter} has another map");
        assert!(state.applied_state().await.unwrap().0.is_some());
        drop((log, state));
        for pool in std::fs::read_dir(&store).unwrap().map(|item| item.unwrap().path()) {
            let pool = if pool.is_dir() { pool.join("pool") } else { pool };
            if pool.is_file() {
                let issues = Pool::options().read_only(true).open(&pool).unwrap().check();
                assert!(issues.is_empty(), "node {voter}: {}: {issues:?}", pool.display());
            }
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}

/// Runs a test in namespaces, or without partitions where they are not permitted.
fn run_apart(test: &str, port: u16, is_memory: bool, design: &str) {
    match enter(test) {
        Ok(true) => runtime().block_on(run(Hosts::namespaces(SPARE).expect("namespaces"), is_memory, design)),
        Ok(false) => {}
        Err(why) => {
            println!("no partitions: {why}");
            runtime().block_on(run(Hosts::Loopback { port }, is_memory, design));
        }
    }
}

#[test]
fn history_is_linearizable_on_a_disk() {
    run_apart("linearizable::history_is_linearizable_on_a_disk", 23_100, false, "sstree");
}

#[test]
fn history_is_linearizable_in_shared_memory() {
    run_apart("linearizable::history_is_linearizable_in_shared_memory", 23_200, true, "nbtree");
}
