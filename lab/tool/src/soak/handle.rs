//! A parent's handle of a driver: sends orders, receives results.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use bristlecone_cli::failure::{Exit, Failure, Outcome};

use super::order::{Flaw, Order, Ran};
use super::round::Limits;

/// A driver that is killed, and its pool removed, when this is dropped.
pub struct Driver {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pool: PathBuf,
}

impl Driver {
    /// Starts a driver whose pools are in a directory.
    pub fn start(directory: &Path, number: usize) -> Outcome<Self> {
        let failed = |error| Failure::io("starting a driver", &error);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        // Ctrl-C must reach only the parent: a separate process group.
        command.arg("soak-driver").process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new(Exit::Failed, "a driver has no pipes"));
        };
        let pool = directory.join(format!("bristlecone-soak-{}-{number}.pool", std::process::id()));
        Ok(Self { child, input, output: BufReader::new(output), pool })
    }

    /// Runs a round.
    pub fn run(&mut self, seed: u64, limits: &Limits, flaw: Option<Flaw>, keep: bool) -> Outcome<Ran> {
        let failed = |error| Failure::io("reaching a driver", &error);
        let order = Order { seed, limits: limits.clone(), pool: self.pool.clone(), flaw, keep };
        writeln!(self.input, "{}", serde_json::json!(order)).map_err(failed)?;
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(failed)?;
        serde_json::from_str(&line)
            .map_err(|_| Failure::new(Exit::Failed, format!("a driver ended in the round of seed {seed}")))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to kill. Its worker dies with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        super::driver::remove(&self.pool);
    }
}
