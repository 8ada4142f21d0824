//! `bristlecone top`: shows live figures of a pool that another process writes to.

mod sample;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bristlecone::{Error, JournalStatus, Pool};
use bristlecone_cli::arguments::FolderArg;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, grouped};
use bristlecone_cli::size;
use clap::Args;
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use self::sample::{Figures, Latency, Sampler, Space};
use crate::journal;
use crate::open::explain;
use crate::table::{Align, Table};
use crate::time::{self, shown};

/// Show live figures of a pool that another process writes to
///
/// Prints a line for each tree at every refresh: its number of entries and the change of it, the size and free chunks
/// of the file, and the duration of `top`'s own lookups. `top` reads the pool as a follower; it times 500 lookups of
/// keys at the beginning of the tree. The number of the writer's operations is not shared: a replaced value does not
/// change the number of entries. Of a pool with a journal, `top` also shows what the writer publishes about it: its
/// durability, LSNs, bytes since the last checkpoint, and the duration of syncs. A terminal is refreshed in place. Ctrl-C ends it. Exits with 8 if no process writes to
/// the pool, or when the writer exits.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone top trees.pool
  bristlecone top trees.pool --interval 5s
  bristlecone top trees.pool --count 10 --json | jq .entries_per_second")]
pub struct Top {
    /// The pool file.
    #[arg(value_name = "POOL")]
    path: PathBuf,
    /// Interval between refreshes, for example 1s, 0.5s or 200ms.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Number of refreshes [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    folder: FolderArg,
}

/// Maximum delay until a request to stop is noticed.
const NAP: Duration = Duration::from_millis(20);

impl Top {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = Pool::options().follow(&self.path).map_err(|error| explain(&self.path, error))?;
        let mut sampler = Sampler::default();
        let journal = journal::files(&pool, &self.path, self.folder.journal.as_deref())?;
        let mut next = Instant::now();
        for look in 0.. {
            if self.count.is_some_and(|count| look == count) || !sleep_until(next) {
                return Ok(());
            }
            // A refresh that took longer than the interval is not made up for.
            next = (next + self.interval).max(Instant::now());
            let figures = match sampler.look(&pool) {
                Ok(figures) => figures,
                Err(Error::NoWriter { .. }) => return self.writer_has_gone(output),
                Err(error) => return Err(Failure::from(error).within(self.path.display())),
            };
            let journal = journal.as_ref().map(|files| files.status()).transpose()?;
            self.show(&figures, journal.as_ref(), look == 0, output)?;
            output.finish()?;
        }
        Ok(())
    }

    fn writer_has_gone(&self, output: &mut Output) -> Outcome {
        if output.json() {
            output.value(&json!({ "pool": self.path, "writer": false }))?;
        }
        let why = "its writer has exited".to_owned();
        Err(Error::NoWriter { path: self.path.clone(), why }.into())
    }

    fn show(
        &self,
        figures: &[Figures],
        journal: Option<&JournalStatus>,
        is_first: bool,
        output: &mut Output,
    ) -> Outcome {
        if output.json() {
            return figures.iter().try_for_each(|figures| output.value(&self.json(figures, journal)));
        }
        let mut lines = table(figures).lines_to_fit();
        let mut of_journal = journal.map(journal::lines).unwrap_or_default();
        if !std::io::stdout().is_terminal() {
            let rows = lines.into_iter().skip(usize::from(!is_first));
            return rows.chain(of_journal).try_for_each(|line| output.line(line));
        }
        of_journal.append(&mut lines);
        let mut lines = of_journal;
        // A terminal of unknown size reports 0.
        let rows = tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        let rows = if rows == 0 { 24 } else { rows };
        let title = format!("{}: every {:?}; Ctrl-C ends it", self.path.display(), self.interval);
        // The title and the cursor's line take a row each.
        lines.truncate(rows.saturating_sub(2).max(2));
        output.bytes(b"\x1b[H\x1b[J")?;
        output.line(title)?;
        lines.iter().try_for_each(|line| output.line(line))
    }

    fn json(&self, figures: &Figures, journal: Option<&JournalStatus>) -> Value {
        let Figures { tree, entries, change, latency, space } = figures;
        let Space { file_bytes, chunks, chunks_free } = space;
        let latency = latency.map(|Latency { lookups, median, p99 }| {
            json!({ "lookups": lookups, "median_ns": nanoseconds(median), "p99_ns": nanoseconds(p99) })
        });
        json!({
            "pool": self.path,
            "writer": true,
            "tree": tree,
            "entries": entries,
            "entries_per_second": change,
            "file_bytes": file_bytes,
            "chunks": chunks,
            "chunks_free": chunks_free,
            "get": latency,
            "journal": journal::json(journal),
        })
    }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos() as u64
}

fn table(figures: &[Figures]) -> Table {
    let mut table = Table::new(&[
        ("tree", Align::Left),
        ("entries", Align::Right),
        ("change/s", Align::Right),
        ("file", Align::Right),
        ("free chunks", Align::Right),
        ("get median", Align::Right),
        ("get p99", Align::Right),
        ("writer", Align::Left),
    ]);
    let unknown = || "-".to_owned();
    for Figures { tree, entries, change, latency, space } in figures {
        let free = format!("{} of {}", grouped(space.chunks_free), grouped(space.chunks));
        let time = |time: fn(&Latency) -> Duration| latency.as_ref().map_or_else(unknown, |l| shown(time(l)));
        let writer = match (tree, entries) {
            (Some(_), None) => "running, tree not open",
            _ => "running",
        };
        table.row([
            tree.clone().unwrap_or_else(|| "(no trees)".to_owned()),
            entries.map_or_else(unknown, grouped),
            change.map_or_else(unknown, |change| format!("{change:+.0}")),
            size::show(space.file_bytes),
            free,
            time(|latency| latency.median),
            time(|latency| latency.p99),
            writer.to_owned(),
        ]);
    }
    table
}

/// Sleeps; returns false if the user has asked to stop.
fn sleep_until(moment: Instant) -> bool {
    while !interrupt::asked() {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(NAP));
    }
    false
}

/// Parses `1s`, `0.5s`, `200ms`; a plain number is in seconds.
pub fn interval(text: &str) -> Result<Duration, String> {
    let time = time::parse(text, &[("ms", 1e-3), ("s", 1.0), ("", 1.0)]);
    let time = time.filter(|time| (SHORTEST..=LONGEST).contains(time));
    time.ok_or_else(|| format!("{text:?} is not an interval of 10ms to a day, such as 1s, 0.5s or 200ms"))
}

const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_with_their_units() {
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("2"), Ok(Duration::from_secs(2)));
        assert_eq!(interval("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("200ms"), Ok(Duration::from_millis(200)));
        for wrong in ["", "s", "0", "1ms", "-1s", "nan", "inf", "1h", "1e9s"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
