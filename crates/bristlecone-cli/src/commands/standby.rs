//! `bristlecone standby`: a copy of a pool that follows its archive.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bristlecone::{Pool, StandbyStatus};
use bristlecone_cli::arguments::FolderArg;
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, grouped};
use clap::Args;
use serde_json::{Value, json};

use super::top::interval;
use crate::open::explain;
use crate::time::{shown, utc};

/// Keep a copy of an archived pool up to date, or make the copy the writer
///
/// Creates NEW from an archive, or continues, and applies what reaches the archive until Ctrl-C. Meanwhile `get`, `scan`,
/// `dump`, `info`, `check` and `top` follow NEW. A killed standby continues where it was. `info` shows how far it is behind.
///
/// With --promote, applies the rest of the archive, makes NEW an ordinary pool whose journal continues there, and ends. From
/// then on the archive refuses the old writer (exit code 10). What that one committed and did not archive is not in NEW. Stop
/// the old writer first, if it still runs.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone standby copy.pool --from /mnt/backup/trees
  bristlecone standby copy.pool --from /mnt/backup/trees --poll 20ms
  bristlecone standby copy.pool --from /mnt/backup/trees --promote")]
pub struct StandbyOf {
    /// Path of the copy.
    #[arg(value_name = "NEW")]
    path: PathBuf,
    /// Folder of the archive.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Time between two looks at the archive, for example 100ms.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    poll: Duration,
    /// Make the copy the writer, and end.
    #[arg(long)]
    promote: bool,
    /// Apply what the archive has now, and end.
    #[arg(long, conflicts_with = "promote")]
    once: bool,
    #[command(flatten)]
    folder: FolderArg,
}

/// Maximum delay until a request to stop is noticed.
const NAP: Duration = Duration::from_millis(20);

impl StandbyOf {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let failed = |error| explain(&self.path, error);
        let mut standby =
            self.folder.apply(Pool::options()).standby(&self.path, &self.from).map_err(failed)?;
        if self.promote {
            let lsn = standby.promote().map_err(failed)?;
            let text = format!("{}: the writer from LSN {} on", self.path.display(), grouped(lsn));
            return output.either(&json!({ "pool": self.path, "promoted": true, "lsn": lsn }), text);
        }
        self.show(&standby.status(), output)?;
        output.finish()?;
        while !self.once && !interrupt::asked() {
            let begun = Instant::now();
            standby.poll().map_err(failed)?;
            while begun.elapsed() < self.poll && !interrupt::asked() {
                std::thread::sleep(self.poll.saturating_sub(begun.elapsed()).min(NAP));
            }
        }
        let status = standby.status();
        standby.close().map_err(failed)?;
        if self.once { Ok(()) } else { self.show(&status, output) }
    }

    fn show(&self, status: &StandbyStatus, output: &mut Output) -> Outcome {
        if output.json() {
            return output.value(&json!({ "pool": self.path, "standby": status_json(status) }));
        }
        output.line(line(status))
    }
}

/// Describes a standby as JSON.
pub fn status_json(status: &StandbyStatus) -> Value {
    json!({
        "lsn": status.lsn,
        "archive_lsn": status.archive_lsn,
        "lag_bytes": status.lag_bytes(),
        "as_of": status.as_of.map(utc),
        "lag_seconds": status.lag().map(|lag| lag.as_secs_f64()),
        "timeline": status.timeline,
        "running": status.running,
    })
}

/// Describes a standby in a line.
pub fn line(status: &StandbyStatus) -> String {
    let (lsn, bytes) = (grouped(status.lsn), grouped(status.lag_bytes()));
    let lag = status.lag().map(|lag| format!(" and {}", shown(lag))).unwrap_or_default();
    format!("standby    LSN {lsn}, {bytes} bytes{lag} behind")
}
