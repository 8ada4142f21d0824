//! `bristlecone journal`: the files of a pool's journal.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bristlecone::{ArchiveStatus, JournalFile, JournalFiles, Keep, Pool};
use bristlecone_cli::arguments::{FolderArg, LimitArg};
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use bristlecone_cli::size;
use clap::{Args, Subcommand};
use serde_json::json;

use super::top::interval;
use crate::journal::{cursor_json, cursor_line, explain, folder_of, open};
use crate::open::PoolPath;
use crate::table::{Align, Table};
use crate::time::utc;

/// Maximum delay until a request to stop is noticed.
const NAP: Duration = Duration::from_millis(20);

/// Look at the journal of a pool, copy it to an archive, or prune it
///
/// A pool with the domain `journal` has a folder of files beside it. After a power failure the pool is restored from
/// them. For all commands but `prune`, the pool may be in use.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone journal list trees.pool
  bristlecone journal cursor create trees.pool audit
  bristlecone journal verify /var/lib/trees.journal
  bristlecone journal archive trees.pool /mnt/backup/trees --follow
  bristlecone journal prune trees.pool")]
pub struct Journal {
    #[command(subcommand)]
    action: Action,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum Action {
    /// List the files that count, with the LSNs of their entries
    #[command(after_help = "Examples:
  bristlecone journal list trees.pool")]
    List(Place),
    /// Read the whole journal, and compare all checksums
    #[command(after_help = "Examples:
  bristlecone journal verify trees.pool")]
    Verify(Place),
    /// Copy the journal to an archive, from which pools are restored
    ///
    /// DEST is a folder on any mounted disk; its parent must exist. The archive has a checkpoint, and everything that is
    /// durable behind it. Ends when it has all, or with --follow continues until Ctrl-C. A cursor makes the journal keep what
    /// the archive lacks. The pool may be in use. Exits with 10 if a copy of the pool has taken over the archive.
    #[command(after_help = "Examples:
  bristlecone journal archive trees.pool /mnt/backup/trees
  bristlecone journal archive trees.pool /mnt/backup/trees --follow --keep-days 30
  bristlecone journal archive trees.pool /mnt/backup/trees --follow --interval 100ms --keep-bytes 50G")]
    Archive(Archive),
    /// Create, move or drop a cursor: the journal keeps the changes that its consumer has not seen
    #[command(subcommand)]
    Cursor(Cursor),
    /// Write a checkpoint, and remove files that are not needed any more
    ///
    /// Removes the entries before the checkpoint, and the files that are kept for the next segments. The pool must not be
    /// in use: a program that has it open calls `Pool::prune_journal`.
    #[command(after_help = "Examples:
  bristlecone journal prune trees.pool
  bristlecone journal prune trees.pool --journal /mnt/log/trees.journal --wait")]
    Prune(Prune),
}

/// The archive, and what it keeps.
#[derive(Args, Debug)]
struct Archive {
    #[command(flatten)]
    place: Place,
    /// Folder of the archive.
    #[arg(value_name = "DEST")]
    folder: PathBuf,
    /// Continue until Ctrl-C.
    #[arg(long)]
    follow: bool,
    /// Time between two copies with --follow, for example 100ms.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval, requires = "follow")]
    interval: Duration,
    /// Every moment of the last N days can be restored; older files are removed up to a later checkpoint
    /// [default: keep all]
    #[arg(long, value_name = "N")]
    keep_days: Option<u32>,
    /// Remove older files while all have more bytes than SIZE, for example 50G, if there is a later checkpoint.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    keep_bytes: Option<u64>,
}

/// What to do with a cursor.
#[derive(Debug, Subcommand)]
enum Cursor {
    /// Create a cursor: checkpoints keep the entries from its LSN on
    ///
    /// When the files that are kept only for a cursor exceed a limit (1 GiB, unless the program that writes to the pool sets
    /// another one, or a command gets `--cursor-limit`), the next checkpoint drops the cursor. Its consumer then gets an error, with exit code 9.
    #[command(after_help = "Examples:
  bristlecone journal cursor create trees.pool audit
  bristlecone journal cursor create trees.pool audit --at 0")]
    Create {
        #[command(flatten)]
        place: Place,
        /// Its name: letters, digits, dots, hyphens and underscores.
        name: String,
        /// Its LSN [default: the durable end of the journal]
        #[arg(long, value_name = "LSN")]
        at: Option<u64>,
    },
    /// Move a cursor: its consumer has seen the entries before
    #[command(after_help = "Examples:
  bristlecone journal cursor advance trees.pool audit 81920")]
    Advance {
        #[command(flatten)]
        place: Place,
        /// Its name.
        name: String,
        /// Its new LSN.
        lsn: u64,
    },
    /// Drop a cursor
    #[command(after_help = "Examples:
  bristlecone journal cursor drop trees.pool audit")]
    Drop {
        #[command(flatten)]
        place: Place,
        /// Its name.
        name: String,
    },
}

/// The pool whose journal is pruned.
#[derive(Args, Debug)]
struct Prune {
    #[command(flatten)]
    pool: PoolPath,
    #[command(flatten)]
    limit: LimitArg,
    #[command(flatten)]
    folder: FolderArg,
}

/// Where the journal is.
#[derive(Args, Debug)]
pub struct Place {
    /// The pool, or the folder of its journal.
    #[arg(value_name = "POOL")]
    path: PathBuf,
}

impl Place {
    /// Returns the folder, and its files.
    pub fn open(&self) -> Outcome<(PathBuf, JournalFiles)> {
        let folder = if self.path.is_dir() { self.path.clone() } else { folder_of(&self.path, None) };
        let files = open(&folder)?;
        Ok((folder, files))
    }
}

impl Journal {
    pub fn run(&self, output: &mut Output) -> Outcome {
        match &self.action {
            Action::List(place) => place.open().and_then(|(folder, files)| list(&folder, &files, output)),
            Action::Verify(place) => place.open().and_then(|(folder, files)| verify(&folder, &files, output)),
            Action::Archive(archive) => archive.run(output),
            Action::Cursor(cursor) => cursor.run(output),
            Action::Prune(prune) => prune.run(output),
        }
    }
}

fn list(folder: &Path, journal: &JournalFiles, output: &mut Output) -> Outcome {
    let files = journal.files().map_err(|error| explain(folder, error))?;
    let cursors = journal.cursors().map_err(|error| explain(folder, error))?;
    if output.json() {
        let file = |JournalFile { name, bytes, first, end, .. }: &JournalFile| json!({ "name": name, "bytes": bytes, "first_lsn": first, "end_lsn": end });
        let files: Vec<_> = files.iter().map(file).collect();
        let cursors: Vec<_> = cursors.iter().map(cursor_json).collect();
        let object = json!({ "journal": folder, "uuid": journal.uuid(), "files": files, "cursors": cursors });
        return output.value(&object);
    }
    let columns =
        [("file", Align::Left), ("size", Align::Right), ("from LSN", Align::Right), ("to LSN", Align::Right)];
    let mut table = Table::new(&columns);
    for JournalFile { name, bytes, first, end, .. } in files {
        let end = end.map_or("in use".to_owned(), |end| end.to_string());
        table.row([name, size::show(bytes), first.to_string(), end]);
    }
    table.print(output)?;
    cursors.iter().map(cursor_line).try_for_each(|line| output.line(line))
}

impl Archive {
    fn run(&self, output: &mut Output) -> Outcome {
        let (_, files) = self.place.open()?;
        let failed = |error| explain(&self.folder, error);
        let mut archiver = files.archive(&self.folder).map_err(failed)?;
        loop {
            let begun = Instant::now();
            // Piece by piece: a request to stop is noticed.
            while archiver.copy().map_err(failed)? && !interrupt::asked() {}
            archiver.prune(&self.keep()).map_err(failed)?;
            if !self.follow || interrupt::asked() {
                break;
            }
            while begun.elapsed() < self.interval && !interrupt::asked() {
                std::thread::sleep(self.interval.saturating_sub(begun.elapsed()).min(NAP));
            }
        }
        if !self.follow {
            interrupt::check("the archive is not complete yet")?;
        }
        let ArchiveStatus {
            folder, uuid, timeline, lsns: (first, end), as_of, files: (files, bytes), ..
        } = archiver.status();
        let from = first.map_or("no checkpoint yet".to_owned(), |first| format!("from LSN {first} on"));
        output.either(
            &json!({
                "archive": folder, "uuid": uuid, "timeline": timeline, "first_lsn": first, "end_lsn": end,
                "as_of": utc(as_of), "files": files, "bytes": bytes,
            }),
            format_args!(
                "{}: up to LSN {end}, {from}; {files} files, {}",
                folder.display(),
                size::show(bytes)
            ),
        )
    }

    fn keep(&self) -> Keep {
        let keep = self.keep_bytes.into_iter().fold(Keep::all(), Keep::bytes);
        let day = Duration::from_secs(86_400);
        self.keep_days.map(|days| day * days).into_iter().fold(keep, Keep::time)
    }
}

impl Cursor {
    fn run(&self, output: &mut Output) -> Outcome {
        let (Self::Create { place, name, .. }
        | Self::Advance { place, name, .. }
        | Self::Drop { place, name }) = self;
        let (folder, files) = place.open()?;
        let (done, lsn) = match self {
            Self::Create { at, .. } => ("created", files.create_cursor(name, *at).map(Some)),
            Self::Advance { lsn, .. } => ("moved", files.advance_cursor(name, *lsn).map(|()| Some(*lsn))),
            Self::Drop { .. } => ("dropped", files.drop_cursor(name).map(|()| None)),
        };
        let lsn = lsn.map_err(|error| explain(&folder, error))?;
        let at = lsn.map(|lsn| format!(" at LSN {lsn}")).unwrap_or_default();
        output.either(
            &json!({ "journal": folder, "cursor": name, "lsn": lsn, "done": done }),
            format_args!("{}: cursor {name} {done}{at}", folder.display()),
        )
    }
}

fn verify(folder: &Path, journal: &JournalFiles, output: &mut Output) -> Outcome {
    let counts = journal.verify().map_err(|error| explain(folder, error))?;
    let text = format!(
        "{}: ok; {} entries with {} changes of keys, up to LSN {}; checkpoint of {} trees, {}",
        folder.display(),
        counts.entries,
        counts.changes,
        counts.end,
        counts.trees,
        size::show(counts.checkpoint_bytes)
    );
    output.either(
        &json!({
            "journal": folder,
            "ok": true,
            "entries": counts.entries,
            "changes": counts.changes,
            "directory_changes": counts.directory,
            "end_lsn": counts.end,
            "checkpoint_trees": counts.trees,
            "checkpoint_bytes": counts.checkpoint_bytes,
        }),
        text,
    )
}

impl Prune {
    fn run(&self, output: &mut Output) -> Outcome {
        let options = self.limit.apply(self.folder.apply(Pool::options()));
        let pool = self.pool.open(&options)?;
        let Some(status) = pool.journal_status()? else {
            let path = self.pool.path.display();
            return Err(Failure::usage(format!(
                "{path} has no journal: only pools with the domain journal have one"
            )));
        };
        let before = bytes_in(&status.folder)?;
        pool.prune_journal()?;
        let after = bytes_in(&status.folder)?;
        pool.close()?;
        let folder = status.folder;
        let (from, to) = (size::show(before), size::show(after));
        output.either(
            &json!({ "journal": folder, "bytes_before": before, "bytes_after": after }),
            format_args!("{}: {to}, before {from}", folder.display()),
        )
    }
}

/// Returns the bytes of all files in a folder.
fn bytes_in(folder: &Path) -> Outcome<u64> {
    let failed = |error| Failure::io(format_args!("reading {}", folder.display()), &error);
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        bytes += entry.and_then(|entry| entry.metadata()).map_err(failed)?.len();
    }
    Ok(bytes)
}
