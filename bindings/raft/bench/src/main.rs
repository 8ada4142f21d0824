//! Appends and replay of the log, beside RocksDB.
//!
//! `raft-bench FOLDER [SECONDS]` writes stores to a folder, on the disk that is to be measured, and prints a table.

use std::path::{Path, PathBuf};
use std::process::{Command as Process, exit};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bristlecone_raft::bristlecone::Design;
use bristlecone_raft::{Command, LogStore, Options, Reply, SnapshotFile};
use openraft::storage::RaftLogStorageExt;
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, RaftLogReader, RaftTypeConfig};
use openraft_rocksstore::{RocksRequest, RocksStore};
use rocksdb::{DB, WriteOptions};

openraft::declare_raft_types!(
    /// The types of the log.
    pub Types: D = Command, R = Reply, NodeId = u64, Node = openraft::BasicNode, SnapshotData = SnapshotFile
);
type RocksTypes = openraft_rocksstore::TypeConfig;

/// Bytes of a value.
const VALUE: usize = 100;
/// Entries of the log that is replayed.
const REPLAYED: u64 = 100_000;
/// Rounds of each measurement, interleaved; the table has medians.
const ROUNDS: usize = 3;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Store {
    Bristlecone(Design),
    /// RocksDB with the calls of openraft's store, and a sync of its log with each append.
    RocksSynced,
    /// openraft's store, which does not sync: no entry is sure to survive a power failure.
    RocksPublished,
}

impl Store {
    fn all() -> Vec<Self> {
        let own = Design::ALL.iter().map(|design| Self::Bristlecone(*design));
        own.chain([Self::RocksSynced, Self::RocksPublished]).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Bristlecone(design) => design.name().to_owned(),
            Self::RocksSynced => "RocksDB, synced".to_owned(),
            Self::RocksPublished => "openraft-rocksstore, not synced".to_owned(),
        }
    }
}

fn entry<C: RaftTypeConfig<NodeId = u64>>(index: u64, data: C::D) -> Entry<C> {
    Entry { log_id: LogId::new(CommittedLeaderId::new(1, 1), index), payload: EntryPayload::Normal(data) }
}

fn own_entry(index: u64) -> Entry<Types> {
    entry(index, Command::Put { key: index.to_be_bytes().to_vec(), value: vec![7; VALUE] })
}

fn rocks_entry(index: u64) -> Entry<RocksTypes> {
    entry(index, RocksRequest::Set { key: format!("{index:08}"), value: "7".repeat(VALUE) })
}

/// An open log.
#[derive(Clone)]
enum Open {
    Bristlecone(LogStore<Types>),
    Synced(Arc<DB>),
    Published(Arc<RocksStore>),
}

impl Open {
    async fn new(store: Store, folder: &Path) -> Self {
        match store {
            Store::Bristlecone(design) => {
                std::fs::create_dir_all(folder).expect("a folder");
                Self::Bristlecone(LogStore::open(folder, &Options::new().design(design)).expect("a log"))
            }
            Store::RocksSynced => Self::Synced(Arc::new(DB::open_default(folder).expect("a log"))),
            Store::RocksPublished => Self::Published(RocksStore::new(folder).await),
        }
    }

    /// Appends entries; returns once the store says that they are durable.
    #[allow(deprecated, reason = "openraft's store has the older interface")]
    async fn append(&mut self, indexes: std::ops::Range<u64>) {
        match self {
            Self::Bristlecone(log) => {
                log.blocking_append(indexes.map(own_entry).collect::<Vec<_>>()).await.expect("appended");
            }
            Self::Synced(db) => {
                let db = Arc::clone(db);
                let write = move || {
                    let mut batch = rocksdb::WriteBatch::default();
                    for index in indexes {
                        let bytes = serde_json::to_vec(&rocks_entry(index)).expect("encoded");
                        batch.put(index.to_be_bytes(), bytes);
                    }
                    let mut options = WriteOptions::default();
                    options.set_sync(true);
                    db.write_opt(batch, &options).expect("appended");
                };
                tokio::task::spawn_blocking(write).await.expect("a thread");
            }
            Self::Published(store) => {
                use openraft::RaftStorage;
                store.append_to_log(indexes.map(rocks_entry)).await.expect("appended");
            }
        }
    }

    /// Reads all entries, as a node does that applies them again; returns their number.
    async fn replay(&mut self) -> usize {
        match self {
            Self::Bristlecone(log) => log.try_get_log_entries(..).await.expect("entries").len(),
            Self::Synced(db) => {
                let entries = db.iterator(rocksdb::IteratorMode::Start).map(|item| {
                    let (_, bytes) = item.expect("an entry");
                    serde_json::from_slice::<Entry<RocksTypes>>(&bytes).expect("an entry")
                });
                entries.collect::<Vec<_>>().len()
            }
            Self::Published(store) => store.try_get_log_entries(..).await.expect("entries").len(),
        }
    }
}

/// Returns appends a second of some clients, each of which waits for its entry before it appends the next.
async fn appends(store: Store, folder: &Path, clients: usize, time: Duration) -> f64 {
    let (open, next) = (Open::new(store, folder).await, Arc::new(AtomicU64::new(1)));
    let begin = Instant::now();
    let run = |mut open: Open, next: Arc<AtomicU64>| async move {
        while begin.elapsed() < time {
            let index = next.fetch_add(1, Relaxed);
            open.append(index..index + 1).await;
        }
    };
    let tasks: Vec<_> = (0..clients).map(|_| tokio::spawn(run(open.clone(), Arc::clone(&next)))).collect();
    for task in tasks {
        task.await.expect("a client");
    }
    (next.load(Relaxed) - 1) as f64 / begin.elapsed().as_secs_f64()
}

/// Fills a log in a process that then ends without closing it.
async fn fill(store: Store, folder: &Path) -> ! {
    let mut open = Open::new(store, folder).await;
    for first in (1..=REPLAYED).step_by(100) {
        open.append(first..first + 100).await;
    }
    exit_like_a_kill()
}

fn exit_like_a_kill() -> ! {
    let own = std::process::id().to_string();
    let _ = Process::new("kill").args(["-KILL", &own]).status();
    exit(1)
}

/// Returns the time in which a killed log is opened and read.
async fn replay(number: usize, store: Store, folder: &Path) -> Duration {
    let program = std::env::current_exe().expect("this program");
    let filled = Process::new(program).args(["fill", &number.to_string()]).arg(folder).status();
    assert_eq!(filled.expect("a process").code(), None, "killed by a signal");
    let begin = Instant::now();
    let count = Open::new(store, folder).await.replay().await;
    assert_eq!(count as u64, REPLAYED);
    begin.elapsed()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn measure(folder: &Path, time: Duration) {
    let stores = Store::all();
    let mut figures = vec![[const { Vec::new() }; 3]; stores.len()];
    for round in 0..ROUNDS {
        for (number, store) in stores.iter().enumerate() {
            let own = |what: &str| -> PathBuf { folder.join(format!("{number}-{round}-{what}")) };
            figures[number][0].push(appends(*store, &own("one"), 1, time).await);
            figures[number][1].push(appends(*store, &own("many"), 64, time).await);
            figures[number][2].push(replay(number, *store, &own("replay")).await.as_secs_f64() * 1000.0);
            ["one", "many", "replay"].iter().for_each(|what| {
                let _ = std::fs::remove_dir_all(own(what));
            });
            eprintln!("{round} {}: {:?}", store.name(), figures[number].each_ref().map(|some| some.last()));
        }
    }
    println!("| store | appends/s, 1 client | appends/s, 64 clients | replay of {REPLAYED} entries after a kill, ms |");
    println!("|---|---|---|---|");
    for (store, figures) in stores.iter().zip(figures) {
        let [one, many, replay] = figures.map(median);
        println!("| {} | {one:.0} | {many:.0} | {replay:.0} |", store.name());
    }
}

#[tokio::main]
async fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fill", number, folder] => {
            let number: usize = number.parse().expect("a number");
            fill(Store::all()[number], Path::new(folder)).await
        }
        [folder] => measure(Path::new(folder), Duration::from_secs(3)).await,
        [folder, seconds] => {
            let seconds = seconds.parse().expect("a number of seconds");
            measure(Path::new(folder), Duration::from_secs(seconds)).await;
        }
        _ => {
            eprintln!("raft-bench FOLDER [SECONDS]: measures stores in a folder, which should be on a disk");
            exit(2);
        }
    }
}
