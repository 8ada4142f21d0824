//! `crash --forever`: rounds drawn from seeds, until one fails.

use std::time::{Duration, Instant};

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::{Output, counted, grouped};
use bristlecone_explore::Turn;
use bristlecone_sim::{Case, Progress, Report};
use serde_json::json;

/// Interval of progress reports.
const A_LINE_EACH: Duration = Duration::from_secs(60);

/// Work done so far.
struct Tally {
    started: Instant,
    turns: u64,
    total: Report,
}

impl Tally {
    fn report(&self, verdict: &str, output: &mut Output) -> Outcome {
        let Self { started, turns, total } = self;
        let (seconds, opened) = (started.elapsed().as_secs(), total.opened + total.reopened);
        let images = total.images + total.nested_images;
        let value = json!({
            "seconds": seconds, "turns": turns, "images": images, "opened": opened, "lives": total.continuations,
            "schedules": total.schedules, "failures": total.failures.len(),
        });
        let text = format!(
            "{} min: {}, {} images decided by opening {}, {}: {verdict}",
            seconds / 60,
            counted(*turns, "turn", "turns"),
            grouped(images),
            grouped(opened),
            counted(total.schedules, "schedule", "schedules"),
        );
        output.either(&value, text)?;
        // The output of a run without end is read while it runs.
        output.finish()
    }
}

/// Explores rounds drawn from consecutive seeds, until a failure, or until all `turns` are done.
pub fn run(
    first: u64,
    turns: Option<u64>,
    threads: usize,
    progress: &Progress,
    output: &mut Output,
) -> Outcome {
    let started = Instant::now();
    let mut tally = Tally { started, turns: 0, total: Report::default() };
    let mut reported = started;
    let bar = output.progress("exploring", turns);
    while turns.is_none_or(|turns| tally.turns < turns) {
        let seed = first.wrapping_add(tally.turns);
        let turn = Turn::of(seed, threads);
        bar.set_message(format!("{turn}, seed {seed}"));
        let report = turn.explore(progress);
        tally.total.merge(report.clone());
        if !report.failures.is_empty() {
            bar.finish_and_clear();
            for failure in &report.failures {
                let case = Case::of(failure, turn.subject(), seed, turn.budget().continuation_crashes);
                output.line(format_args!("{failure}  again: bristlecone-lab crash --replay {case}"))?;
                output.line(format_args!(
                    "the whole turn: bristlecone-lab crash --forever --turns 1 --seed {seed}"
                ))?;
            }
            tally.report("failed", output)?;
            return Err(Failure::Shown(Exit::Failed));
        }
        if progress.is_stopped() {
            bar.finish_and_clear();
            tally.report(&format!("no failure; --seed {seed} goes on"), output)?;
            return Err(Failure::Shown(Exit::Interrupted));
        }
        tally.turns += 1;
        bar.inc(1);
        if reported.elapsed() >= A_LINE_EACH {
            reported = Instant::now();
            tally.report("no failure so far", output)?;
        }
    }
    bar.finish_and_clear();
    tally.report("no failure", output)
}
