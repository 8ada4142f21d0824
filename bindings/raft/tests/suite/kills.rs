//! Kills of a process that uses a store, at any point, and what the next one finds.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use bristlecone_raft::Command;
use bristlecone_raft::openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use bristlecone_raft::openraft::{LogState, RaftSnapshotBuilder};

use crate::stores::{Cell, State, Types, entry, id, indexes, put};

/// The child's folder and cell.
const FOLDER: &str = "BRISTLECONE_RAFT_CHILD";
const CELL: &str = "BRISTLECONE_RAFT_CELL";
const SEED: &str = "BRISTLECONE_RAFT_SEED";
/// Keys that entries write beside the counter.
const KEYS: u64 = 50;

/// Draws numbers below a limit.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What a store has, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Has {
    last: u64,
    purged: u64,
    applied: u64,
    snapshot: u64,
}

/// A call of the child.
#[derive(Clone, Copy, Debug)]
enum Call {
    AppendTo(u64),
    TruncateFrom(u64),
    PurgeTo(u64),
    ApplyTo(u64),
    Snapshot,
    Install,
}

impl Has {
    fn after(self, call: Call) -> Self {
        match call {
            Call::AppendTo(last) => Self { last, ..self },
            Call::TruncateFrom(from) => Self { last: from - 1, ..self },
            Call::PurgeTo(purged) => Self { purged, ..self },
            Call::ApplyTo(applied) => Self { applied, ..self },
            Call::Snapshot => Self { snapshot: self.applied, ..self },
            Call::Install => Self { applied: self.snapshot, ..self },
        }
    }

    /// Returns whether a kill within a call may leave a state.
    fn may_become(self, call: Call, found: Self) -> bool {
        let after = self.after(call);
        let between = |found: u64, one: u64, other: u64| (one.min(other)..=one.max(other)).contains(&found);
        match call {
            // A part of the entries.
            Call::AppendTo(_) | Call::TruncateFrom(_) => {
                between(found.last, self.last, after.last) && Self { last: self.last, ..found } == self
            }
            // A part of the transactions.
            Call::ApplyTo(_) => {
                between(found.applied, self.applied, after.applied)
                    && Self { applied: self.applied, ..found } == self
            }
            Call::PurgeTo(_) | Call::Snapshot | Call::Install => found == self || found == after,
        }
    }

    fn draw(self, draw: &mut Draw) -> Call {
        loop {
            let call = match draw.below(8) {
                0..=2 => Call::AppendTo(self.last + 1 + draw.below(40)),
                3 => Call::TruncateFrom(self.last.saturating_sub(draw.below(20)) + 1),
                4 => Call::PurgeTo(self.purged + 1 + draw.below(30)),
                5 => Call::ApplyTo(self.applied + 1 + draw.below(600)),
                6 => Call::Snapshot,
                _ => Call::Install,
            };
            let is_possible = match call {
                // Neither what is applied is truncated, nor what is in no snapshot purged.
                Call::TruncateFrom(from) => from > self.purged.max(self.applied) && from <= self.last,
                Call::PurgeTo(purged) => purged <= self.snapshot.min(self.applied),
                Call::ApplyTo(applied) => applied <= self.last,
                Call::Snapshot => self.applied > 0,
                Call::Install => self.snapshot > 0 && self.purged <= self.snapshot,
                Call::AppendTo(_) => self.last < self.applied + 1000,
            };
            if is_possible {
                return call;
            }
        }
    }
}

/// Returns entry `n`: it counts, so that one that is applied twice or not at all is noticed.
fn counted(n: u64) -> Command {
    let value = |n: u64| Some(n.to_be_bytes().to_vec());
    match n % 2 {
        0 => Command::CompareAndSet { key: b"counter".to_vec(), expected: value(n - 2), new: value(n) },
        _ if n == 1 => put("counter", 0_u64.to_be_bytes()),
        _ => put((n % KEYS).to_be_bytes(), n.to_be_bytes()),
    }
}

/// Returns the items after entry `n`.
fn items_after(n: u64) -> bristlecone_raft::Items {
    let mut items = std::collections::BTreeMap::new();
    for n in (3..=n).step_by(2) {
        items.insert((n % KEYS).to_be_bytes().to_vec(), n.to_be_bytes().to_vec());
    }
    if n > 0 {
        items.insert(b"counter".to_vec(), (n - n % 2).to_be_bytes().to_vec());
    }
    items.into_iter().collect()
}

fn index(id: Option<bristlecone_raft::openraft::LogId<u64>>) -> u64 {
    id.map_or(0, |id| id.index)
}

/// Opens a store, verifies it, and returns what it has.
async fn found(cell: Cell, folder: &Path) -> (crate::stores::Log, State, Has) {
    let (mut log, mut state) = bristlecone_raft::open::<Types>(folder, &cell.options())
        .unwrap_or_else(|error| panic!("{cell:?}: {error}"));
    let LogState { last_purged_log_id, last_log_id } = log.get_log_state().await.unwrap();
    let applied = index(state.applied_state().await.unwrap().0);
    let snapshot = state.get_current_snapshot().await.unwrap();
    let has = Has {
        last: index(last_log_id),
        purged: index(last_purged_log_id),
        applied,
        snapshot: snapshot.map_or(0, |snapshot| index(snapshot.meta.last_log_id)),
    };
    assert_eq!(indexes(&mut log).await, (has.purged + 1..=has.last).collect::<Vec<_>>(), "{cell:?} {has:?}");
    assert!(state.map().range(.., usize::MAX).unwrap() == items_after(applied), "{cell:?} {has:?}");
    (log, state, has)
}

async fn make(call: Call, has: Has, log: &mut crate::stores::Log, state: &mut State) {
    let entries = |from: u64, to: u64| (from + 1..=to).map(|n| entry(n, counted(n))).collect::<Vec<_>>();
    match call {
        Call::AppendTo(to) => log.blocking_append(entries(has.last, to)).await.unwrap(),
        Call::TruncateFrom(from) => log.truncate(id(from)).await.unwrap(),
        Call::PurgeTo(to) => log.purge(id(to)).await.unwrap(),
        Call::ApplyTo(to) => drop(state.apply(entries(has.applied, to)).await.unwrap()),
        Call::Snapshot => drop(state.get_snapshot_builder().await.build_snapshot().await.unwrap()),
        Call::Install => {
            let snapshot = state.get_current_snapshot().await.unwrap().unwrap();
            state.install_snapshot(&snapshot.meta, snapshot.snapshot).await.unwrap();
        }
    }
}

/// Runs in a process of its own, until it is killed.
#[test]
fn child_uses_a_store_until_it_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (cell, mut draw) = (Cell::all()[number(CELL) as usize], Draw(number(SEED)));
    let say = |word: &str, has: Has, call: Call| {
        let (has, call) = (encode_has(has), encode_call(call));
        writeln!(std::io::stdout(), "\n@ {word} {has} {call}").unwrap();
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (mut log, mut state, mut has) = found(cell, Path::new(&folder)).await;
        loop {
            let call = has.draw(&mut draw);
            say("begins", has, call);
            make(call, has, &mut log, &mut state).await;
            has = has.after(call);
        }
    });
}

fn encode_has(has: Has) -> String {
    format!("{} {} {} {}", has.last, has.purged, has.applied, has.snapshot)
}

fn encode_call(call: Call) -> String {
    match call {
        Call::AppendTo(to) => format!("0 {to}"),
        Call::TruncateFrom(from) => format!("1 {from}"),
        Call::PurgeTo(to) => format!("2 {to}"),
        Call::ApplyTo(to) => format!("3 {to}"),
        Call::Snapshot => "4 0".to_owned(),
        Call::Install => "5 0".to_owned(),
    }
}

fn decode(line: &str) -> Option<(Has, Call)> {
    let words = line.strip_prefix("@ begins ")?.split(' ').map(|word| word.parse().ok());
    let &[last, purged, applied, snapshot, kind, at] = &words.collect::<Option<Vec<u64>>>()?[..] else {
        return None;
    };
    let call = match kind {
        0 => Call::AppendTo(at),
        1 => Call::TruncateFrom(at),
        2 => Call::PurgeTo(at),
        3 => Call::ApplyTo(at),
        4 => Call::Snapshot,
        _ => Call::Install,
    };
    Some((Has { last, purged, applied, snapshot }, call))
}

/// Runs a child, kills it after some calls, and returns the last one that began, and how many did.
fn killed(cell: usize, folder: &Path, draw: &mut Draw) -> (Option<(Has, Call)>, u64) {
    let mut child = Process::new(std::env::current_exe().unwrap())
        .args(["kills::child_uses_a_store_until_it_is_killed", "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .env(CELL, cell.to_string())
        .env(SEED, draw.below(1 << 30).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let (after, delay) = (1 + draw.below(40), Duration::from_micros(draw.below(3000)));
    let (mut last, mut calls) = (None, 0);
    while calls < after {
        let Some(line) = lines.next() else { panic!("cell {cell}: the child ended by itself") };
        last = decode(&line).inspect(|_| calls += 1).or(last);
    }
    std::thread::sleep(delay);
    child.kill().unwrap();
    child.wait().unwrap();
    for line in lines {
        last = decode(&line).inspect(|_| calls += 1).or(last);
    }
    (last, calls)
}

#[test]
fn killed_process_leaves_what_its_calls_allow() {
    let rounds: u64 = std::env::var("BRISTLECONE_RAFT_ROUNDS").map_or(12, |rounds| rounds.parse().unwrap());
    let seed = std::env::var(SEED).map_or(1, |seed| seed.parse().unwrap());
    std::thread::scope(|scope| {
        for (number, cell) in Cell::all().into_iter().enumerate() {
            scope.spawn(move || {
                let (folder, mut draw) = (cell.folder(), Draw(seed + number as u64));
                let runtime = tokio::runtime::Runtime::new().unwrap();
                for round in 0..rounds {
                    let (last, calls) = killed(number, folder.path(), &mut draw);
                    let (before, call) = last.expect("a call began");
                    let (_, _, has) = runtime.block_on(found(cell, folder.path()));
                    let what = format!("{cell:?} round {round} of seed {seed}, call {calls}");
                    assert!(before.may_become(call, has), "{what}: {before:?} {call:?} left {has:?}");
                }
            });
        }
    });
}
