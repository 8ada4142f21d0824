//! Runs the command lines of figures alternately, and derives results from their reports.

use std::collections::HashMap;

use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use indicatif::ProgressBar;
use serde_json::Value;

use super::figure::{Figure, Kind, Row, X};
use super::papers::Asked;
use super::results::{Made, Measurement, Results};
use super::run::Run;
use super::take::Take;

/// Reports, round by round, and errors.
#[derive(Default)]
pub struct Reports {
    of: HashMap<Run, Vec<Value>>,
    failed: HashMap<Run, String>,
}

/// Number of alternate measurements of timed rows.
#[derive(Clone, Copy)]
pub struct Rounds(pub usize);

impl Rounds {
    fn of(self, kind: Kind) -> usize {
        match kind {
            // Every round would give the same result.
            Kind::Counted | Kind::Simulated => 1,
            Kind::Timed => self.0,
        }
    }
}

/// Returns the rows of a figure that must be measured.
pub fn left<'a>(asked: &'a Asked, results: &Results, made: &Made) -> Vec<&'a Row> {
    let of = (asked.paper.name, asked.figure.name.as_str());
    asked.figure.rows.iter().filter(|row| !results.all.iter().any(|old| old.serves(of, row, made))).collect()
}

/// Returns the distinct runs of rows, in the order of the rows.
fn runs<'a>(rows: &[&'a Row]) -> Vec<&'a Run> {
    let mut runs: Vec<&Run> = Vec::new();
    for run in rows.iter().flat_map(|row| &row.runs).filter(|run| run.is_possible()) {
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    runs
}

/// Returns the approximate duration of all remaining runs.
pub fn weight(left: &[(&Asked, Vec<&Row>)], rounds: Rounds) -> u64 {
    let mut most: HashMap<&Run, usize> = HashMap::new();
    for (asked, rows) in left {
        for run in runs(rows) {
            let times = most.entry(run).or_default();
            *times = (*times).max(rounds.of(asked.figure.kind));
        }
    }
    most.into_iter().map(|(run, times)| run.weight() * times as u64).sum()
}

impl Reports {
    /// Executes the missing runs of a figure's rows, and adds the results. If the user interrupts it, completed
    /// measurements are still added.
    pub fn figure(
        &mut self,
        asked: &Asked,
        rows: &[&Row],
        (rounds, made): (Rounds, &Made),
        results: &mut Results,
        bar: &ProgressBar,
    ) -> Outcome<Vec<Measurement>> {
        let rounds = rounds.of(asked.figure.kind);
        let stopped = self.run(asked, &runs(rows), rounds, bar).err();
        let mut new = Vec::new();
        for row in rows {
            let rows = self.row(asked, row, rounds, made);
            if matches!(row.take, Take::Curve(_)) && !rows.is_empty() {
                results.forget_curve((asked.paper.name, &asked.figure.name), row);
            }
            new.extend(rows);
        }
        results.add(new.clone())?;
        stopped.map_or(Ok(new), Err)
    }

    fn run(&mut self, asked: &Asked, runs: &[&Run], rounds: usize, bar: &ProgressBar) -> Outcome {
        for round in 0..rounds {
            // The first run changes from round to round.
            let order: Vec<&&Run> =
                if round % 2 == 0 { runs.iter().collect() } else { runs.iter().rev().collect() };
            for run in order {
                if self.failed.contains_key(*run)
                    || self.of.get(*run).is_some_and(|reports| reports.len() > round)
                {
                    continue;
                }
                interrupt::check("what was measured is kept; the same call goes on")?;
                bar.set_message(format!("{} {}: {}", asked.paper.name, asked.figure.name, run.design()));
                match run.measure() {
                    Ok(report) => self.of.entry((*run).clone()).or_default().push(report),
                    Err(_) if interrupt::asked() => {
                        return Err(Failure::interrupted("what was measured is kept; the same call goes on"));
                    }
                    Err(failure) if failure.is_full() => return Err(failure),
                    Err(failure) => _ = self.failed.insert((*run).clone(), failure.line().to_owned()),
                }
                bar.inc(run.weight());
            }
        }
        Ok(())
    }

    /// Returns the results of a row; none if it is not finished.
    fn row(&self, asked: &Asked, row: &Row, rounds: usize, made: &Made) -> Vec<Measurement> {
        let Figure { name, kind, .. } = &asked.figure;
        let result = |rounds| Measurement::new((asked.paper.name, name), *kind, row, rounds, made);
        let without = |why: String| vec![Measurement { remark: why, ..result(Vec::new()) }];
        if let Some(run) = row.runs.iter().find(|run| !run.is_possible()) {
            return without(format!("not measured: there is no baseline {}", run.design()));
        }
        if let Some(why) = row.runs.iter().find_map(|run| self.failed.get(run)) {
            return without(format!("not measured: {why}"));
        }
        let reports: Option<Vec<&[Value]>> =
            row.runs.iter().map(|run| self.of.get(run)?.get(..rounds)).collect();
        let Some(reports) = reports else { return Vec::new() };
        if let Take::Curve(curve) = &row.take {
            let point = |(x, y)| Measurement { x: X::Number(x), ..result(vec![y]) };
            let points: Vec<_> = curve.points(&reports[0][0]).into_iter().map(point).collect();
            return if points.is_empty() {
                without("not measured: there are no points".to_owned())
            } else {
                points
            };
        }
        let round = |round: usize| {
            let reports: Vec<&Value> = reports.iter().map(|of_run| &of_run[round]).collect();
            row.take.value(&reports)
        };
        match (0..rounds).map(round).collect::<Option<Vec<f64>>>() {
            Some(values) => vec![result(values)],
            None => without("not measured: the design does nothing of the kind".to_owned()),
        }
    }
}

/// Prints the results of a figure.
pub fn show(output: &mut Output, asked: &Asked, results: &[Measurement]) -> Outcome {
    if output.json() {
        return results.iter().try_for_each(|result| output.value(result));
    }
    let Asked { paper, figure } = asked;
    output.line(format_args!("{} {}: {} ({})", paper.name, figure.name, figure.title, figure.kind.name()))?;
    let is_said = |result: &&Measurement| result.paper_value.is_some();
    for result in results.iter().filter(is_said) {
        output.line(format_args!("  {}", super::table::line(figure, result)))?;
    }
    let rest: Vec<_> = results.iter().filter(|result| !is_said(result)).collect();
    let measured = rest.iter().filter(|result| result.value.is_some()).count();
    output.line(format_args!("  {measured} numbers that the paper has in plots only"))?;
    // Each reason once.
    for remark in
        super::table::distinct(rest.iter().filter(|rest| rest.value.is_none()).map(|rest| &rest.remark))
    {
        output.line(format_args!("  {remark}"))?;
    }
    output.line("")?;
    output.finish()
}
