//! Results of explorations, as JSON and as tables.

use bristlecone_cli::failure::Outcome as Done;
use bristlecone_cli::output::{Output, counted, grouped};
use bristlecone_sim::{Budget, Case, Depth, Report, Round, Table};
use serde_json::{Value, json};

/// One round and its report.
pub struct Explored<'a> {
    pub round: Round<'a>,
    pub report: Report,
}

/// The point at which a run was stopped.
#[derive(Clone, Copy)]
pub enum Stopped<'a> {
    /// Before the end of this round.
    Exploring(Round<'a>),
    /// Before the end of the schedules.
    Interleaving,
    /// Before the end of the mutations.
    Mutating,
}

/// All results of a run of the command.
pub struct Outcome<'a> {
    seed: u64,
    budget: Budget,
    pub explored: Vec<Explored<'a>>,
    /// Results of the schedules of each subject.
    pub interleaved: Vec<(String, Report)>,
    pub mutations: Option<Table>,
    /// `None`: the run was completed.
    pub stopped: Option<Stopped<'a>>,
    pub seconds: f64,
}

impl<'a> Outcome<'a> {
    pub fn new(seed: u64, budget: Budget) -> Self {
        let (explored, interleaved, mutations) = (Vec::new(), Vec::new(), None);
        Self { seed, budget, explored, interleaved, mutations, stopped: None, seconds: 0.0 }
    }

    /// Returns whether nothing failed and no mutation survived.
    pub fn is_clean(&self) -> bool {
        self.reports().all(|(_, report)| report.failures.is_empty())
            && self.mutations.as_ref().is_none_or(Table::is_clean)
    }

    /// Returns all reports, with the names of their subjects.
    fn reports(&self) -> impl Iterator<Item = (&str, &Report)> {
        let explored = self.explored.iter().map(|explored| (explored.round.subject.name(), &explored.report));
        explored.chain(self.interleaved.iter().map(|(subject, report)| (subject.as_str(), report)))
    }

    fn total(&self) -> Report {
        let mut total = Report::default();
        self.reports().for_each(|(_, report)| total.merge(report.clone()));
        total
    }

    fn cases(&self) -> impl Iterator<Item = (Case, &bristlecone_sim::Failure)> {
        self.reports().flat_map(move |(subject, report)| {
            let of = move |failure| Case::of(failure, subject, self.seed, self.budget.continuation_crashes);
            report.failures.iter().map(move |failure| (of(failure), failure))
        })
    }

    pub fn show(&self, output: &mut Output) -> Done {
        if output.json() { output.value(&self.json()) } else { self.text(output) }
    }

    fn json(&self) -> Value {
        let total = self.total();
        let failures: Vec<_> = self
            .cases()
            .map(|(case, failure)| {
                let crashes: Vec<_> = failure
                    .crashes
                    .iter()
                    .map(|crash| {
                        json!({
                            "during": crash.during, "event": crash.event, "before": crash.next, "kept": crash.kept,
                        })
                    })
                    .collect();
                json!({ "case": case.to_string(), "what": failure.what, "crashes": crashes })
            })
            .collect();
        let by_scenario: Vec<_> = self
            .explored
            .iter()
            .map(|Explored { round, report }| {
                let mut row = json!({
                    "subject": round.subject.name(),
                    "scenario": round.scenario(),
                    "mode": round.mode.to_string(),
                });
                add_counts(&mut row, report);
                row
            })
            .collect();
        let mutations = self.mutations.as_ref().map(|table| {
            let row = |(mutation, by): (&String, &Option<String>)| {
                json!({ "mutation": mutation, "killed_by": by, "explained": table.explained(mutation) })
            };
            let rows: Vec<_> = table.rows.iter().map(row).collect();
            json!({
                "sites": table.sites.len(),
                "mutations": table.rows.len(),
                "killed": table.killed(),
                "survivors": table.survivors(),
                "table": rows,
            })
        });
        let next = match self.stopped {
            Some(Stopped::Exploring(round)) => Some(round.to_string()),
            _ => None,
        };
        let mut value = json!({ "scenarios": self.explored.len() });
        add_counts(&mut value, &total);
        let more = json!({
            "failures": failures,
            "schedules": total.schedules,
            "mutations": mutations,
            "seed": self.seed,
            "seconds": self.seconds,
            "threads": self.budget.threads,
            "interrupted": self.stopped.is_some(),
            "next": next,
            "by_scenario": by_scenario,
        });
        extend(&mut value, more);
        value
    }

    fn text(&self, output: &mut Output) -> Done {
        let total = self.total();
        let names = self.explored.iter().map(|explored| explored.round.to_string());
        let names: Vec<_> = names.collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        output.line(format_args!(
            "{:width$} {:>7} {:>12} {:>12} {:>12} {:>9} {:>8}",
            "subject/scenario/mode", "points", "images", "in recovery", "opened", "continued", "sampled"
        ))?;
        for (name, Explored { report, .. }) in names.iter().zip(&self.explored) {
            let failed = if report.failures.is_empty() { "" } else { "  FAILED" };
            output.line(format_args!("{name:width$} {}{failed}", row(report)))?;
        }
        for (subject, report) in &self.interleaved {
            let name = format!("{subject}/schedules");
            let schedules = counted(report.schedules, "schedule", "schedules");
            let failed = if report.failures.is_empty() { "" } else { "  FAILED" };
            output.line(format_args!("{name:width$} {}  {schedules}{failed}", row(report)))?;
        }
        output.line(format_args!("{:width$} {}", "all", row(&total)))?;
        if total.points_beyond_memory > 0 {
            output.line(format_args!(
                "{} sampled for want of memory: see --memory",
                counted(total.points_beyond_memory, "crash point was", "crash points were")
            ))?;
        }
        for (case, failure) in self.cases() {
            output.line(format_args!("\n{failure}  again: bristlecone-lab crash --replay {case}"))?;
        }
        if let Some(table) = &self.mutations {
            output
                .line(format_args!("\n{table}, at {}", counted(table.sites.len() as u64, "site", "sites")))?;
        }
        let opened = total.opened + total.reopened;
        let failures = self.cases().count() as u64;
        let verdict = match failures {
            0 if self.stopped.is_some() => "no failure so far".to_owned(),
            0 if total.is_decided() => "every crash survived".to_owned(),
            0 => format!("no failure in what was tried of them; sampled: {}", total.sampled()),
            failures => counted(failures, "failure", "failures"),
        };
        output.line(format_args!(
            "{} images opened in {:.1} s on {}: {verdict}",
            grouped(opened),
            self.seconds,
            counted(self.budget.threads as u64, "thread", "threads"),
        ))?;
        let seed = self.seed;
        match self.stopped {
            None => Ok(()),
            Some(Stopped::Exploring(next)) => {
                output.line(format_args!("interrupted: the same with --seed {seed} --from {next} goes on"))
            }
            Some(Stopped::Interleaving) => output.line("interrupted: schedules are not finished"),
            Some(Stopped::Mutating) => output.line("interrupted: mutations are not finished"),
        }
    }
}

fn row(report: &Report) -> String {
    format!(
        "{:>7} {:>12} {:>12} {:>12} {:>9} {:>8}",
        grouped(report.crash_points),
        grouped(report.images),
        grouped(report.nested_images),
        grouped(report.opened + report.reopened),
        grouped(report.continuations),
        grouped(report.truncated_points),
    )
}

fn add_counts(value: &mut Value, report: &Report) {
    let counts = json!({
        "crash_points": report.crash_points,
        "images": report.images,
        "nested_images": report.nested_images,
        "possible_images": report.covered,
        "opened": report.opened + report.reopened,
        "lives": report.continuations,
        "truncated_points": report.truncated_points,
        "by_depth": report.depths.iter().map(in_json).collect::<Vec<_>>(),
        "inside_lives": in_json(&report.in_continuations),
        "truncated_for_memory": report.points_beyond_memory,
    });
    extend(value, counts);
}

fn in_json(depth: &Depth) -> Value {
    json!({ "crash_points": depth.points, "sampled": depth.sampled })
}

fn extend(value: &mut Value, more: Value) {
    if let (Value::Object(value), Value::Object(more)) = (value, more) {
        value.extend(more);
    }
}

/// Prints the outcome of one case.
pub fn show_replay(case: &Case, report: &Report, output: &mut Output) -> Done {
    let failure = report.failures.first();
    if output.json() {
        return output.value(&json!({
            "case": case.to_string(),
            "failed": failure.is_some(),
            "what": failure.map(|failure| &failure.what),
        }));
    }
    match failure {
        Some(failure) => output.line(failure),
        None => output.line(format_args!("{case}: survived")),
    }
}
