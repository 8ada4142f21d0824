//! Stores for tests: every design, on a disk with a journal and in shared memory.

use bristlecone_raft::bristlecone::{Design, Domain};
use bristlecone_raft::{Command, LogStore, Options, Reply, SnapshotFile, StateMachine, openraft};
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, RaftLogReader};
use tempfile::TempDir;

openraft::declare_raft_types!(
    /// The types of the tests.
    pub Types: D = Command, R = Reply, NodeId = u64, Node = openraft::BasicNode, SnapshotData = SnapshotFile
);

pub type Log = LogStore<Types>;
pub type State = StateMachine<Types>;

/// A design and a medium.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub design: Design,
    pub domain: Domain,
}

impl Cell {
    /// Returns every design on both media.
    pub fn all() -> Vec<Self> {
        let domains = [Domain::Journal, Domain::Process];
        let of_design = |design: &Design| domains.map(|domain| Self { design: *design, domain });
        let all = Design::ALL.iter().flat_map(of_design);
        match std::env::var("BRISTLECONE_RAFT_ONLY") {
            Ok(only) => all.filter(|cell| format!("{cell:?}").contains(&only)).collect(),
            Err(_) => all.collect(),
        }
    }

    /// Returns an empty folder on the medium. The build's folder is on a disk.
    pub fn folder(self) -> TempDir {
        match self.domain {
            Domain::Process => tempfile::tempdir_in("/dev/shm"),
            _ => tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")),
        }
        .expect("a temporary folder")
    }

    pub fn options(self) -> Options {
        Options::new().design(self.design).max_bytes(1 << 30)
    }

    /// Opens a log without a state machine.
    pub fn open_log(self, folder: &TempDir) -> Log {
        Log::open(folder, &self.options()).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Opens the store of a folder, which must have the domain that its medium suggests.
    pub fn open(self, folder: &TempDir) -> (Log, State) {
        bristlecone_raft::open(folder, &self.options()).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

pub fn id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(1, 0), index)
}

pub fn blank(index: u64) -> Entry<Types> {
    Entry { log_id: id(index), payload: EntryPayload::Blank }
}

pub fn entry(index: u64, command: Command) -> Entry<Types> {
    Entry { log_id: id(index), payload: EntryPayload::Normal(command) }
}

pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Command {
    Command::Put { key: key.into(), value: value.into() }
}

/// Returns the indexes of all entries.
pub async fn indexes(log: &mut Log) -> Vec<u64> {
    let entries = log.try_get_log_entries(..).await.expect("the log is readable");
    entries.into_iter().map(|entry| entry.log_id.index).collect()
}

/// Runs a test in every cell, each in a runtime of its own.
pub fn in_every_cell<F: Future<Output = ()>>(test: impl Fn(Cell) -> F + Sync) {
    std::thread::scope(|scope| {
        for cell in Cell::all() {
            let test = &test;
            let run = move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(test(cell));
            };
            let name = format!("{cell:?}");
            std::thread::Builder::new().name(name).spawn_scoped(scope, run).expect("a thread");
        }
    });
}
