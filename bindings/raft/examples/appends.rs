//! Times the log in a folder: appends that wait for the disk, one entry and 64 at a time, and reading it again.
//!
//! `cargo run --release --example appends -- FOLDER [CALLS]` prints the rate of bare syncs of the same disk beside it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use bristlecone_raft::{Command, LogStore, Options, Reply, SnapshotFile, openraft};
use openraft::storage::RaftLogStorageExt;
use openraft::{BasicNode, CommittedLeaderId, Entry, EntryPayload, LogId, RaftLogReader};

openraft::declare_raft_types!(
    /// The types of the log.
    pub Types: D = Command, R = Reply, NodeId = u64, Node = BasicNode, SnapshotData = SnapshotFile
);

/// Entries of one read.
const READ: u64 = 256;

type Failure = Box<dyn std::error::Error>;

/// Returns an entry that puts 100 bytes.
fn entry(index: u64) -> Entry<Types> {
    let command = Command::Put { key: format!("{index:016}").into(), value: vec![b'v'; 100] };
    Entry { log_id: LogId::new(CommittedLeaderId::new(1, 0), index), payload: EntryPayload::Normal(command) }
}

fn a_second(count: u64, begun: Instant) -> f64 {
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Overwrites and syncs one page again and again.
fn syncs(folder: &Path, count: u64) -> Result<(), Failure> {
    let path = folder.join("bare");
    let file = File::create(&path)?;
    let begun = Instant::now();
    for n in 0..count {
        file.write_all_at(&[n as u8; 4096], 0)?;
        file.sync_data()?;
    }
    println!("bare syncs of a page    {:10.0} a second", a_second(count, begun));
    Ok(std::fs::remove_file(path)?)
}

/// Appends entries, `each` at a time, and reads all of them.
async fn log(folder: &Path, each: u64, calls: u64) -> Result<(), Failure> {
    let mut log = LogStore::<Types>::open(folder.join(format!("log-{each}")), &Options::new())?;
    let begun = Instant::now();
    for call in 0..calls {
        let first = call * each + 1;
        log.blocking_append((first..first + each).map(entry).collect::<Vec<_>>()).await?;
    }
    println!("appended, {each:2} at a time {:10.0} entries a second", a_second(calls * each, begun));

    let (mut next, end) = (1, calls * each + 1);
    let begun = Instant::now();
    while next < end {
        next += log.try_get_log_entries(next..end.min(next + READ)).await?.len() as u64;
    }
    println!("read                    {:10.0} entries a second", a_second(calls * each, begun));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: appends FOLDER [CALLS]")?;
    let calls = arguments.next().map_or(Ok(4000), |calls| calls.parse())?;
    // On the medium of FOLDER, and gone at the end.
    let folder = tempfile::tempdir_in(folder)?;
    syncs(folder.path(), calls)?;
    for each in [1, 64] {
        std::fs::create_dir(folder.path().join(format!("log-{each}")))?;
        log(folder.path(), each, calls).await?;
    }
    Ok(())
}
