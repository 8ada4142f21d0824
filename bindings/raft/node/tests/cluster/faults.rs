//! Kills, partitions and changes of members, while clients use the map.

use std::time::{Duration, Instant};

use bristlecone_raft_node::Failed;
use bristlecone_random::Generator;

use crate::hosts::Hosts;
use crate::nodes::Nodes;

/// Nodes of the cluster; a further one joins and leaves.
pub const MEMBERS: u64 = 3;
pub const SPARE: u64 = MEMBERS + 1;

/// How often each fault happened.
#[derive(Debug, Default)]
pub struct Faults {
    pub kills: u64,
    pub partitions: u64,
    pub changes: u64,
    pub refused_changes: u64,
    /// Whether the spare node is a member, as far as is known.
    is_spare_member: bool,
}

impl Faults {
    /// Disturbs a cluster for a time; then all nodes run and reach each other.
    pub async fn disturb(&mut self, nodes: &mut Nodes, time: Duration, random: &mut Generator) {
        let end = Instant::now() + time;
        // Each kind happens, however short the time is.
        for round in 0_u64.. {
            if Instant::now() >= end && round >= 3 {
                break;
            }
            match if round < 3 { round } else { random.below(8) } {
                0 | 3 | 4 => self.kill(nodes, random).await,
                1 | 5 | 6 => self.partition(nodes, random).await,
                _ => self.change(nodes).await,
            }
            nodes.expect_running();
            // The cluster may go on for a while.
            pause(random, 200, 1200).await;
        }
    }

    /// Kills one node, at times two, and starts them again.
    async fn kill(&mut self, nodes: &mut Nodes, random: &mut Generator) {
        let count = if random.below(4) == 0 { 2 } else { 1 };
        let first = victim(nodes, random).await;
        let killed: Vec<_> = (0..count).map(|n| (first - 1 + n) % SPARE + 1).collect();
        for node in killed.iter().filter(|node| nodes.is_running(**node)).copied().collect::<Vec<_>>() {
            nodes.kill(node);
            self.kills += 1;
        }
        pause(random, 0, 1500).await;
        for node in killed.into_iter().filter(|node| !nodes.is_running(*node)).collect::<Vec<_>>() {
            nodes.start(node);
        }
    }

    /// Separates one node from all others, or two from each other, and connects them again. At times a node is killed
    /// meanwhile.
    async fn partition(&mut self, nodes: &mut Nodes, random: &mut Generator) {
        if matches!(nodes.hosts, Hosts::Loopback { .. }) {
            return;
        }
        let one = victim(nodes, random).await;
        let others: Vec<_> = (1..=SPARE).filter(|node| *node != one).collect();
        let separated = match random.below(3) {
            0 => vec![others[random.index(others.len())]],
            _ => others,
        };
        separated.iter().for_each(|other| nodes.hosts.cut(one, *other, true));
        self.partitions += 1;
        if random.below(3) == 0 {
            self.kill(nodes, random).await;
        }
        // Longer than an election takes.
        pause(random, 500, 4000).await;
        separated.iter().for_each(|other| nodes.hosts.cut(one, *other, false));
    }

    /// Adds the spare node to the cluster, or removes it.
    async fn change(&mut self, nodes: &mut Nodes) {
        let client = nodes.client(1..=SPARE, Duration::from_secs(5));
        let changed = match self.is_spare_member {
            true => client.remove(SPARE).await,
            false => client.add(SPARE, nodes.address(SPARE)).await,
        };
        match changed {
            Ok(()) => {
                self.changes += 1;
                self.is_spare_member = !self.is_spare_member;
            }
            // It may have happened, or another change is in progress: the other direction comes next, or the same again.
            Err(Failed::Unknown(_)) => self.is_spare_member = !self.is_spare_member,
            Err(Failed::Refused(_)) => self.refused_changes += 1,
        }
    }
}

/// Returns the leader, if there is one, or any node.
async fn victim(nodes: &Nodes, random: &mut Generator) -> u64 {
    let any = random.below(SPARE) + 1;
    let client = nodes.client([any], Duration::from_millis(500));
    match client.status(&nodes.address(any)).await {
        Ok(status) if random.below(2) == 0 => status.leader.unwrap_or(any),
        _ => any,
    }
}

async fn pause(random: &mut Generator, least: u64, most: u64) {
    tokio::time::sleep(Duration::from_millis(least + random.below(most - least))).await;
}
