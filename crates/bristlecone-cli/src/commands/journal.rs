//! `bristlecone journal`: the files of a pool's journal.

use std::path::{Path, PathBuf};

use bristlecone::{JournalFile, JournalFiles};
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
use bristlecone_cli::size;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::open::explain;
use crate::table::{Align, Table};

/// Look at the journal of a pool
///
/// A pool with the domain `journal` has a folder of files beside it. After a power failure the pool is restored from
/// them. The pool may be in use meanwhile.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone journal list trees.pool
  bristlecone journal verify /var/lib/trees.journal")]
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
}

/// Where the journal is.
#[derive(Args, Debug)]
struct Place {
    /// The pool, or the folder of its journal.
    #[arg(value_name = "POOL")]
    path: PathBuf,
}

impl Place {
    fn folder(&self) -> PathBuf {
        if self.path.is_dir() {
            return self.path.clone();
        }
        let mut name = self.path.as_os_str().to_owned();
        name.push(".journal");
        name.into()
    }

    fn open(&self) -> Outcome<(PathBuf, JournalFiles)> {
        let folder = self.folder();
        let files = JournalFiles::open(&folder).map_err(|error| explain(&folder, error))?;
        Ok((folder, files))
    }
}

impl Journal {
    pub fn run(&self, output: &mut Output) -> Outcome {
        match &self.action {
            Action::List(place) => place.open().and_then(|(folder, files)| list(&folder, &files, output)),
            Action::Verify(place) => place.open().and_then(|(folder, files)| verify(&folder, &files, output)),
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
