//! `bristlecone scrub`: reads every entry and compares it with its checksum, at a given rate.

use std::ops::ControlFlow;

use bristlecone::{Issue, ScrubOptions};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, counted};
use bristlecone_cli::size;
use clap::Args;
use serde_json::json;

use super::summed_up;
use crate::open::ReadArgs;

/// Read every entry and compare it with its checksum, at a given rate
///
/// Finds keys and values that the medium has damaged. Others can read the pool meanwhile. `bristlecone check` is
/// faster, and also verifies the structure of trees. Exits with 1 if any check fails.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone scrub trees.pool
  bristlecone scrub trees.pool --rate 50M")]
pub struct Scrub {
    #[command(flatten)]
    pool: ReadArgs,
    /// Bytes of keys and values to read per second, for example 50M [default: unlimited]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    rate: Option<u64>,
}

impl Scrub {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = self.pool.open_from_medium()?;
        let bar = output.progress("scrubbing", Some(0));
        let counter = bar.clone();
        let options = ScrubOptions::new().bytes_per_second(self.rate.unwrap_or(0));
        let scrub = pool.scrub(options.on_progress(move |progress| {
            counter.set_length(progress.items_all);
            counter.set_position(progress.items);
            if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }));
        bar.finish_and_clear();
        let scrub = scrub?;
        let issues = || scrub.issues.iter().map(|(tree, issue)| (tree.as_deref(), issue));
        if output.json() {
            let found = |(tree, Issue { location, what, .. }): (Option<&str>, &Issue)| json!({ "tree": tree, "location": location, "what": what });
            output.value(&json!({
                "ok": scrub.issues.is_empty() && scrub.is_complete,
                "entries": scrub.items,
                "bytes": scrub.bytes,
                "issues": issues().map(found).collect::<Vec<_>>(),
            }))?;
        } else {
            summed_up(issues()).into_iter().try_for_each(|line| output.line(line))?;
            let (entries, bytes) = (counted(scrub.items, "entry", "entries"), size::show(scrub.bytes));
            let verdict = match scrub.issues.len() as u64 {
                0 => "nothing wrong with them".to_owned(),
                found => {
                    let found = counted(found, "issue", "issues");
                    format!("{found}; `bristlecone check POOL --repair NEW_POOL` saves what can be read")
                }
            };
            output.line(format_args!("{entries}, {bytes} read: {verdict}"))?;
        }
        if !scrub.is_complete {
            return Err(Failure::interrupted("not everything was read"));
        }
        if scrub.issues.is_empty() { Ok(()) } else { Err(Failure::Shown(Exit::Failed)) }
    }
}
