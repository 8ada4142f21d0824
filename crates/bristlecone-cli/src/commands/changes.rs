//! `bristlecone changes`: the durable changes of a pool, as a stream.

use std::path::Path;
use std::time::{Duration, Instant};

use bristlecone::{Changed, Changes, Design, JournalChange, JournalEntry};
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use clap::Args;
use serde_json::{Value, json};

use super::journal::Place;
use crate::datum::{self, Datum, Form, Json};
use crate::journal::explain;
use crate::time::utc;

/// Print the durable changes of a pool, one a line
///
/// The pool needs a journal, and may be in use by any process. Prints a line for each change: the LSN of its entry, the
/// time at which it was written to the journal, the tree, the kind of the change (put, remove, create, drop, rename or
/// clear), the key, and the new value. Changes of a batch or transaction have one LSN. A tree has the name that it had at
/// that time. With --json, `next_lsn` is that of the next entry, from which a later call can continue, and `existed` says
/// whether the key was present before (null: the write did not look).
///
/// Ends at the last durable change, or with --follow waits for more until Ctrl-C. With --cursor, the journal keeps what
/// was not printed yet, and the cursor moves on once lines are written: each line is printed at least once, also if this
/// process is killed. Exits with 9 if the changes asked for are not kept any more, or if the cursor was dropped.
#[derive(Args, Debug)]
#[command(
    name = "changes",
    after_help = "Examples:
  bristlecone changes trees.pool
  bristlecone changes trees.pool --from 81920 --limit 10
  bristlecone changes trees.pool --follow --json | jq 'select(.tree == \"ages\")'
  bristlecone journal cursor create trees.pool audit
  bristlecone changes trees.pool --cursor audit --follow --json >> audit.log"
)]
pub struct ChangesOf {
    #[command(flatten)]
    place: Place,
    /// LSN of the first entry [default: the first one that the journal keeps]
    #[arg(long, value_name = "LSN", conflicts_with = "cursor")]
    from: Option<u64>,
    /// Begin at this cursor, which must exist, and move it.
    #[arg(long, value_name = "NAME")]
    cursor: Option<String>,
    /// Maximum number of entries.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Wait for further changes until Ctrl-C.
    #[arg(long)]
    follow: bool,
}

/// Time between two moves of the cursor.
const MOVE_EVERY: Duration = Duration::from_secs(1);
/// Maximum delay until a request to stop is noticed.
const NAP: Duration = Duration::from_millis(100);

impl ChangesOf {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let (folder, files) = self.place.open()?;
        let changes = match &self.cursor {
            Some(cursor) => files.changes_of(cursor),
            None => files.changes(self.from),
        };
        let mut changes = changes.map_err(|error| explain(&folder, error))?;
        let printed = self.print(&folder, &mut changes, output);
        // What was printed before a failure was printed.
        let written = self.settle(&folder, &mut changes, output);
        printed.and(written)
    }

    fn print(&self, folder: &Path, changes: &mut Changes, output: &mut Output) -> Outcome {
        let (mut left, mut moved) = (self.limit.unwrap_or(u64::MAX), Instant::now());
        while left > 0 {
            if self.follow && interrupt::asked() {
                return Ok(());
            }
            interrupt::check("nothing was changed")?;
            let failed = |error| explain(folder, error);
            let mut entry = changes.next_within(Duration::ZERO).map_err(failed)?;
            if entry.is_none() && self.follow {
                self.settle(folder, changes, output)?;
                entry = changes.next_within(NAP).map_err(failed)?;
            }
            match entry {
                Some(entry) => show(folder, &entry, output)?,
                None if self.follow => continue,
                None => return Ok(()),
            }
            left -= 1;
            if moved.elapsed() > MOVE_EVERY {
                self.settle(folder, changes, output)?;
                moved = Instant::now();
            }
        }
        Ok(())
    }

    /// Writes the lines, and then moves the cursor.
    fn settle(&self, folder: &Path, changes: &mut Changes, output: &mut Output) -> Outcome {
        output.finish()?;
        if self.cursor.is_none() {
            return Ok(());
        }
        changes.advance(changes.next_lsn()).map_err(|error| explain(folder, error))
    }
}

/// Prints the changes of an entry, a line each.
fn show(folder: &Path, entry: &JournalEntry, output: &mut Output) -> Outcome {
    let time = utc(entry.time());
    for change in entry.changes().map_err(|error| explain(folder, error))? {
        let change = change.map_err(|error| explain(folder, error))?;
        if output.json() {
            output.value(&object(entry, &change, &time))?;
        } else {
            output.bytes(&line(entry.lsn(), &change, &time))?;
        }
    }
    Ok(())
}

fn object(entry: &JournalEntry, change: &JournalChange, time: &str) -> Value {
    let spec = &change.tree.spec;
    let mut object = json!({
        "lsn": entry.lsn(),
        "next_lsn": entry.next_lsn(),
        "time": time,
        "tree": spec.name,
        "tree_id": change.tree.id.0,
    });
    let more = match &change.change {
        Changed::Put { key, value, existed } => {
            json!({ "kind": "put", "key": Json(key), "value": Json(value), "existed": existed })
        }
        Changed::Remove { key, existed } => json!({ "kind": "remove", "key": Json(key), "existed": existed }),
        Changed::Create => json!({
            "kind": "create",
            "design": Design::of(spec).ok().map(Design::name),
            "key_kind": spec.key_kind,
            "value_kind": spec.value_kind,
        }),
        Changed::Drop => json!({ "kind": "drop" }),
        Changed::Rename { to } => json!({ "kind": "rename", "to": to }),
        Changed::Clear { id } => json!({ "kind": "clear", "new_tree_id": id.0 }),
        // A change that this version does not know.
        _ => json!({ "kind": "unknown" }),
    };
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

/// Returns the line of a change: its columns are separated by tabs, as in a dump.
fn line(lsn: u64, change: &JournalChange, time: &str) -> Vec<u8> {
    let text = |text: &str| Datum::Str(text.to_owned().into());
    let spec = &change.tree.spec;
    let (kind, data) = match &change.change {
        Changed::Put { key, value, .. } => ("put", vec![key.clone(), value.clone()]),
        Changed::Remove { key, .. } => ("remove", vec![key.clone()]),
        Changed::Create => ("create", vec![text(&spec.key_kind), text(&spec.value_kind)]),
        Changed::Drop => ("drop", Vec::new()),
        Changed::Rename { to } => ("rename", vec![text(to)]),
        Changed::Clear { .. } => ("clear", Vec::new()),
        // A change that this version does not know.
        _ => ("unknown", Vec::new()),
    };
    let mut line = format!("{lsn}\t{time}\t").into_bytes();
    datum::write(&text(&spec.name), Form::Line, &mut line);
    line.extend_from_slice(format!("\t{kind}").as_bytes());
    for datum in data {
        line.push(b'\t');
        datum::write(&datum, Form::Line, &mut line);
    }
    line.push(b'\n');
    line
}
