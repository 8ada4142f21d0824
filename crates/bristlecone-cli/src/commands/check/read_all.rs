//! `bristlecone check --read-all`: reads every entry and compares it with its checksum, at a given rate.

use std::ops::ControlFlow;

use bristlecone::{Pool, ScrubOptions};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, counted};
use bristlecone_cli::size;
use serde_json::json;

use crate::issues::{self, summed_up};

/// Reads every entry, at most `rate` bytes per second, and compares it with its checksum.
pub fn read_all(pool: &Pool, rate: Option<u64>, output: &mut Output) -> Outcome {
    let bar = output.progress("reading", Some(0));
    let counter = bar.clone();
    let options = ScrubOptions::new().bytes_per_second(rate.unwrap_or(0));
    let scrub = pool.scrub(options.on_progress(move |progress| {
        counter.set_length(progress.items_all);
        counter.set_position(progress.items);
        if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }));
    bar.finish_and_clear();
    let scrub = scrub?;
    let issues = || scrub.issues.iter().map(|(tree, issue)| (tree.as_deref(), issue));
    if output.json() {
        output.value(&json!({
            "ok": scrub.issues.is_empty() && scrub.is_complete,
            "entries": scrub.items,
            "bytes": scrub.bytes,
            "issues": issues().map(|(tree, issue)| issues::object(tree, issue)).collect::<Vec<_>>(),
        }))?;
    } else {
        summed_up(issues()).into_iter().try_for_each(|line| output.line(line))?;
        let (entries, bytes) = (counted(scrub.items, "entry", "entries"), size::show(scrub.bytes));
        let verdict = match scrub.issues.len() as u64 {
            0 => "ok".to_owned(),
            found => {
                let found = counted(found, "issue", "issues");
                format!("{found}; `bristlecone check POOL --repair NEW_POOL` saves the readable data")
            }
        };
        output.line(format_args!("{entries}, {bytes} read: {verdict}"))?;
    }
    if !scrub.is_complete {
        return Err(Failure::interrupted("not everything was read"));
    }
    if scrub.issues.is_empty() { Ok(()) } else { Err(Failure::Shown(Exit::Failed)) }
}
