//! `bristlecone restore`: creates a pool from an archive.

use std::path::PathBuf;
use std::time::SystemTime;

use bristlecone::{Pool, RestoreTo};
use bristlecone_cli::arguments::FolderArg;
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::{Output, grouped};
use clap::Args;
use serde_json::json;

use crate::open::explain;
use crate::time::{parse_utc, utc};

/// Create a pool as it was at any commit of an archive
///
/// Reads an archive that `bristlecone journal archive` has written, and may still be writing. The new pool has an identity
/// and a journal of its own. It gets its name when it is complete.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone restore again.pool --from /mnt/backup/trees
  bristlecone restore again.pool --from /mnt/backup/trees --to-lsn 81920
  bristlecone restore again.pool --from /mnt/backup/trees --to-time 2026-11-27T19:27:14.250Z")]
pub struct Restore {
    /// Path of the new pool (must not exist).
    #[arg(value_name = "NEW")]
    path: PathBuf,
    /// Folder of the archive.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// State before the entry with this LSN [default: the last one]
    #[arg(long, value_name = "LSN", conflicts_with = "to_time")]
    to_lsn: Option<u64>,
    /// State with all entries of this time or before, in UTC, for example 2026-11-27T19:27:14.250Z.
    #[arg(long, value_name = "TIME", value_parser = parse_utc)]
    to_time: Option<SystemTime>,
    #[command(flatten)]
    folder: FolderArg,
}

impl Restore {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let to = match (self.to_lsn, self.to_time) {
            (Some(lsn), _) => RestoreTo::Lsn(lsn),
            (_, Some(time)) => RestoreTo::Time(time),
            _ => RestoreTo::End,
        };
        let restored = self.folder.apply(Pool::options()).restore(&self.path, &self.from, to);
        let restored = restored.map_err(|error| explain(&self.path, error))?;
        let (path, lsn) = (self.path.display(), grouped(restored.lsn));
        let time = restored.time.map(utc);
        let of = time.as_ref().map(|time| format!(", written {time}")).unwrap_or_default();
        output.either(
            &json!({ "pool": self.path, "archive": self.from, "lsn": restored.lsn, "time": time }),
            format_args!("{path}: the state at LSN {lsn}{of}"),
        )
    }
}
