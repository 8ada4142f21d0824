//! `bristlecone journal`: the files of a pool's journal.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bristlecone::{Design, JournalChange, JournalEntry, JournalFile, JournalFiles, Pool};
use bristlecone_cli::arguments::FolderArg;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use bristlecone_cli::size;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::datum::{self, Datum, Form, Json};
use crate::journal::{explain, folder_of, open};
use crate::open::PoolPath;
use crate::table::{Align, Table};
use crate::time::utc;

/// Look at the journal of a pool, or prune it
///
/// A pool with the domain `journal` has a folder of files beside it. After a power failure the pool is restored from
/// them. For all commands but `prune`, the pool may be in use.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone journal list trees.pool
  bristlecone journal show trees.pool --limit 10
  bristlecone journal verify /var/lib/trees.journal
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
    /// Print the entries since the last checkpoint: what was changed, and when
    ///
    /// Prints a line for each change: the LSN of its entry, the time at which it was written to the file, the tree, the
    /// kind of the change (put, remove, create, drop, rename or clear), the key, and the new value. Changes of a batch or
    /// transaction have one LSN. A tree has the name that it had at that time. With --json, `next_lsn` is that of the next
    /// entry, from which a later call can continue.
    ///
    /// If another process writes to the pool, prints the entries that it has written to the file so far, and ends.
    #[command(after_help = "Examples:
  bristlecone journal show trees.pool
  bristlecone journal show trees.pool --from 81920 --limit 10
  bristlecone journal show trees.pool --json | jq 'select(.tree == \"ages\")'")]
    Show(Show),
    /// Write a checkpoint, and remove files that are not needed any more
    ///
    /// Removes the entries before the checkpoint, and the files that are kept for the next segments. The pool must not be
    /// in use: a program that has it open calls `Pool::prune_journal`.
    #[command(after_help = "Examples:
  bristlecone journal prune trees.pool
  bristlecone journal prune trees.pool --journal /mnt/log/trees.journal --wait")]
    Prune(Prune),
}

/// The entries to print.
#[derive(Args, Debug)]
struct Show {
    #[command(flatten)]
    place: Place,
    /// LSN of the first entry [default: the first one since the last checkpoint]
    #[arg(long, value_name = "LSN")]
    from: Option<u64>,
    /// Maximum number of entries.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

/// The pool whose journal is pruned.
#[derive(Args, Debug)]
struct Prune {
    #[command(flatten)]
    pool: PoolPath,
    #[command(flatten)]
    folder: FolderArg,
}

/// Where the journal is.
#[derive(Args, Debug)]
struct Place {
    /// The pool, or the folder of its journal.
    #[arg(value_name = "POOL")]
    path: PathBuf,
}

impl Place {
    fn open(&self) -> Outcome<(PathBuf, JournalFiles)> {
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
            Action::Show(show) => show.run(output),
            Action::Prune(prune) => prune.run(output),
        }
    }
}

fn list(folder: &Path, journal: &JournalFiles, output: &mut Output) -> Outcome {
    let files = journal.files().map_err(|error| explain(folder, error))?;
    if output.json() {
        let file = |JournalFile { name, bytes, first, end, .. }: &JournalFile| json!({ "name": name, "bytes": bytes, "first_lsn": first, "end_lsn": end });
        let files: Vec<_> = files.iter().map(file).collect();
        return output.value(&json!({ "journal": folder, "uuid": journal.uuid(), "files": files }));
    }
    let columns =
        [("file", Align::Left), ("size", Align::Right), ("from LSN", Align::Right), ("to LSN", Align::Right)];
    let mut table = Table::new(&columns);
    for JournalFile { name, bytes, first, end, .. } in files {
        let end = end.map_or("in use".to_owned(), |end| end.to_string());
        table.row([name, size::show(bytes), first.to_string(), end]);
    }
    table.print(output)
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

impl Show {
    fn run(&self, output: &mut Output) -> Outcome {
        let (folder, files) = self.place.open()?;
        if self.limit == Some(0) {
            return Ok(());
        }
        let (mut entries, mut shown) = (0, Ok(()));
        let read = files.entries(self.from, &mut |entry| {
            entries += 1;
            shown = interrupt::check("nothing was changed").and_then(|()| show(&entry, output));
            let is_last = self.limit.is_some_and(|limit| entries >= limit);
            if shown.is_err() || is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        read.map_err(|error| explain(&folder, error))?;
        shown
    }
}

/// Prints the changes of an entry, a line each.
fn show(entry: &JournalEntry, output: &mut Output) -> Outcome {
    let time = utc(entry.time);
    for change in &entry.changes {
        if output.json() {
            output.value(&object(entry, change, &time))?;
        } else {
            output.bytes(&line(entry.lsn, change, &time))?;
        }
    }
    Ok(())
}

fn object(entry: &JournalEntry, change: &JournalChange, time: &str) -> Value {
    let mut object = json!({ "lsn": entry.lsn, "next_lsn": entry.next_lsn, "time": time });
    let more = match change {
        JournalChange::Put { tree, key, value } => {
            json!({ "tree": tree, "kind": "put", "key": Json(key), "value": Json(value) })
        }
        JournalChange::Remove { tree, key } => json!({ "tree": tree, "kind": "remove", "key": Json(key) }),
        JournalChange::Create(spec) => json!({
            "tree": spec.name,
            "kind": "create",
            "design": Design::of(spec).ok().map(Design::name),
            "key_kind": spec.key_kind,
            "value_kind": spec.value_kind,
        }),
        JournalChange::Drop { tree } => json!({ "tree": tree, "kind": "drop" }),
        JournalChange::Rename { tree, to } => json!({ "tree": tree, "kind": "rename", "to": to }),
        JournalChange::Clear { tree } => json!({ "tree": tree, "kind": "clear" }),
        // A change that this version does not know.
        _ => json!({ "tree": null, "kind": "unknown" }),
    };
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

/// Returns the line of a change: its columns are separated by tabs, as in a dump.
fn line(lsn: u64, change: &JournalChange, time: &str) -> Vec<u8> {
    let text = |text: &str| Datum::Str(text.to_owned().into());
    let (tree, kind, data) = match change {
        JournalChange::Put { tree, key, value } => (&**tree, "put", vec![key.clone(), value.clone()]),
        JournalChange::Remove { tree, key } => (&**tree, "remove", vec![key.clone()]),
        JournalChange::Create(spec) => {
            (&*spec.name, "create", vec![text(&spec.key_kind), text(&spec.value_kind)])
        }
        JournalChange::Drop { tree } => (&**tree, "drop", Vec::new()),
        JournalChange::Rename { tree, to } => (&**tree, "rename", vec![text(to)]),
        JournalChange::Clear { tree } => (&**tree, "clear", Vec::new()),
        // A change that this version does not know.
        _ => ("", "unknown", Vec::new()),
    };
    let mut line = format!("{lsn}\t{time}\t").into_bytes();
    datum::write(&text(tree), Form::Line, &mut line);
    line.extend_from_slice(format!("\t{kind}").as_bytes());
    for datum in data {
        line.push(b'\t');
        datum::write(&datum, Form::Line, &mut line);
    }
    line.push(b'\n');
    line
}

impl Prune {
    fn run(&self, output: &mut Output) -> Outcome {
        let pool = self.pool.open(&self.folder.apply(Pool::options()))?;
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
