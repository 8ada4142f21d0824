//! The journal of a pool, for the commands that describe it.

use std::path::{Path, PathBuf};

use bristlecone::{
    Domain, Durability, Error, JournalCursor, JournalFiles, JournalStatus, Pool, Standby, SyncTimes,
};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::grouped;
use bristlecone_cli::size;
use serde_json::{Value, json};

use crate::time::{shown, utc};

/// Returns the folder of the journal of the pool at a path, unless another one was given.
pub fn folder_of(pool: &Path, given: Option<&Path>) -> PathBuf {
    given.map_or_else(|| JournalFiles::folder_of(pool), Path::to_owned)
}

/// Opens the files of a journal.
pub fn open(folder: &Path) -> Outcome<JournalFiles> {
    JournalFiles::open(folder).map_err(|error| explain(folder, error))
}

/// Returns the failure to read a journal.
pub fn explain(folder: &Path, error: Error) -> Failure {
    match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::new(Exit::Absent, format!("no journal in {}: name its folder", folder.display()))
        }
        // The advice of other commands is about pools.
        Error::Corrupted { .. } => Failure::new(Exit::Corrupted, error.to_string()),
        error => error.into(),
    }
}

/// Returns the files of the journal of an open pool; `None` for a pool without a journal.
pub fn files(pool: &Pool, path: &Path, folder: Option<&Path>) -> Outcome<Option<JournalFiles>> {
    let own = folder_of(path, folder);
    // A standby gets one when it takes over.
    let is_standby = !own.is_dir() && Standby::status_of(path)?.is_some();
    let has_journal = pool.info().domain == Domain::Journal && !is_standby;
    has_journal.then(|| open(&own).map_err(|failure| failure.within("--journal"))).transpose()
}

/// Removes the files of a journal, and its folder if that is empty then. Other files stay.
pub fn remove(folder: &Path) {
    let is_own = |name: &str| {
        let is_cursor = ["cursor-", "dropped-"].iter().any(|kind| name.starts_with(kind));
        let numbered = ["segment-", "checkpoint-", "entry-"].iter().find_map(|kind| name.strip_prefix(kind));
        let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
        matches!(name, "manifest" | "manifest.new" | "ring") || is_cursor || numbered.is_some_and(is_number)
    };
    // What cannot be removed stays: the caller reports the failure that came before.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_own) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    let _ = std::fs::remove_dir(folder);
}

/// Returns the state of the journal of an open pool; `None` for a pool without a journal.
pub fn status(pool: &Pool, path: &Path, folder: Option<&Path>) -> Outcome<Option<JournalStatus>> {
    if let Some(own) = pool.journal_status()? {
        return Ok(Some(own));
    }
    let Some(files) = files(pool, path, folder)? else { return Ok(None) };
    let mut status = files.status().map_err(|error| explain(&folder_of(path, folder), error))?;
    if !pool.info().following {
        // A killed process may have left its own.
        (status.durability, status.syncs) = (None, SyncTimes::default());
    }
    Ok(Some(status))
}

/// Describes a journal as JSON.
pub fn json(status: Option<&JournalStatus>) -> Value {
    let Some(status) = status else { return Value::Null };
    let SyncTimes { count, mean, p50, p99, max, .. } = status.syncs;
    let nanos = |time: std::time::Duration| time.as_nanos() as u64;
    json!({
        "folder": status.folder,
        "durability": status.durability.map(|durability| durability.to_string()),
        "lsn": status.lsn,
        "durable_lsn": status.durable_lsn,
        "oldest_lsn": status.oldest_lsn,
        "checkpoint_lsn": status.checkpoint_lsn,
        "bytes_since_checkpoint": status.bytes_since_checkpoint,
        "segment_bytes": status.segment_bytes,
        "failed": status.failed,
        "syncs": {
            "count": count,
            "mean_ns": nanos(mean),
            "p50_ns": nanos(p50),
            "p99_ns": nanos(p99),
            "max_ns": nanos(max),
        },
        "cursors": status.cursors.iter().map(cursor_json).collect::<Vec<_>>(),
    })
}

/// Describes a cursor as JSON.
pub fn cursor_json(cursor: &JournalCursor) -> Value {
    let JournalCursor { name, lsn, pinned_bytes, time, dropped, .. } = cursor;
    json!({
        "name": name,
        "lsn": lsn,
        "pinned_bytes": pinned_bytes,
        "time": utc(*time),
        "dropped": dropped,
    })
}

/// Describes a cursor in a line.
pub fn cursor_line(cursor: &JournalCursor) -> String {
    let JournalCursor { name, lsn, pinned_bytes, time, dropped, .. } = cursor;
    let (lsn, time) = (grouped(*lsn), utc(*time));
    if *dropped {
        return format!("cursor     {name}: dropped at LSN {lsn}, because it held back too much");
    }
    format!("cursor     {name}: LSN {lsn}, holds back {}; moved {time}", size::show(*pinned_bytes))
}

/// Describes where a journal is, and its durability.
pub fn place(status: &JournalStatus) -> String {
    let folder = status.folder.display();
    let Some(durability) = status.durability else { return format!("journal    {folder}") };
    let lost = match durability {
        Durability::Commit => "",
        Durability::Memory => "; a power failure may undo changes since the last sync",
        _ => "; a power failure may undo the last changes",
    };
    format!("journal    {folder}, durability {durability}{lost}")
}

/// Describes a journal, a line each.
pub fn lines(status: &JournalStatus) -> Vec<String> {
    let since = match status.checkpoint_lsn {
        Some(lsn) => format!("the checkpoint at LSN {}", grouped(lsn)),
        None => "the creation of the pool".to_owned(),
    };
    let (lsn, durable) = (grouped(status.lsn), grouped(status.durable_lsn));
    let bytes = size::show(status.bytes_since_checkpoint);
    let mut lines =
        vec![place(status), format!("lsn        {lsn}, durable up to {durable}; {bytes} since {since}")];
    let SyncTimes { count, mean, p50, p99, max, .. } = status.syncs;
    if count > 0 {
        let [mean, p50, p99, max] = [mean, p50, p99, max].map(shown);
        lines.push(format!("syncs      {}: mean {mean}, p50 {p50}, p99 {p99}, max {max}", grouped(count)));
    }
    lines.extend(status.cursors.iter().map(cursor_line));
    if status.failed {
        lines.push("failed     a write or sync of the journal has failed: reopen the pool".to_owned());
    }
    lines
}
