//! `bristlecone-lab reproduce`: measures the figures of the papers.

use std::path::PathBuf;

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
use bristlecone_cli::size;
use clap::Args;

use super::figure::{Kind, Scale};
use super::measure::{self, Reports, Rounds};
use super::papers::{self, Asked};
use super::results::{Made, Results};
use super::{memory, report};

/// Measure the figures of the papers, and compare ours with theirs
///
/// Each figure is measured by runs of count, scale, bench and probe, whose command lines are part of the results.
/// Counted figures are the same on every machine; timed ones are measured alternately, several times. Results
/// are written to results.jsonl in the folder, a line each, and to report.html, a self-contained page. Existing
/// results are kept, if they were measured by the same command lines at the same commit on this machine: an
/// interrupted call continues where it stopped.
#[derive(Args, Debug)]
#[command(after_help = "\
Scales: quick uses at most 100k keys a figure (500k where space counts), and takes six to ten minutes for all on two \
processors. full uses as many keys as the paper, up to 1G, with memory and hours to match. A number, such as 10M, is \
the maximum number of keys.

bristlecone-lab results makes tables of results.jsonl.")]
pub struct Reproduce {
    /// The paper: sstree, nbtree, cclbtree, lodgetree, wotree or all.
    #[arg(value_name = "PAPER", required_unless_present = "list")]
    paper: Option<String>,
    /// A figure or table, as numbered in the paper, for example 10a; repeatable [default: all]
    #[arg(long = "figure", value_name = "F")]
    figures: Vec<String>,
    /// Number of keys: quick, full or a number.
    #[arg(long, value_name = "SCALE", default_value = "quick", value_parser = scale)]
    scale: Scale,
    /// Folder of the results.
    #[arg(long, value_name = "DIR", default_value = "reproduced")]
    out: PathBuf,
    /// Number of alternate measurements of timed figures; medians are reported.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Measure only counted figures.
    #[arg(long)]
    counted: bool,
    /// Measure only simulated figures, which need a build with --features turns; with --counted, also these.
    #[arg(long)]
    simulated: bool,
    /// List the papers and figures instead.
    #[arg(long)]
    list: bool,
}

fn scale(text: &str) -> Result<Scale, String> {
    match text {
        "quick" => Ok(Scale::Quick),
        "full" => Ok(Scale::Full),
        _ => match size::parse_count(text) {
            Ok(keys) if keys >= 1000 => Ok(Scale::Keys(keys)),
            _ => Err(format!(
                "{text:?} is no scale: quick, full, or a number of keys from 1000 on, such as 10M"
            )),
        },
    }
}

impl Reproduce {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let paper = self.paper.as_deref().unwrap_or("all");
        let mut asked = papers::asked(paper, &self.figures, self.scale)?;
        asked.retain(|asked| self.is_wanted(asked.figure.kind));
        if self.list {
            return list(output, &asked);
        }
        if let Some(available) = memory::available() {
            memory::check(paper, &self.figures, &asked, available)?;
        }
        let made = Made::now();
        let mut results = Results::open(&self.out)?;
        report::check_writable(&self.out)?;
        let measured = self.measure(&asked, &made, &mut results, output);
        // The page is written even after a failure.
        results.rewrite()?;
        let page = report::write(&self.out, &papers::all(self.scale)?, &results.all)?;
        measured?;
        if output.json() { Ok(()) } else { output.line(format_args!("{} shows it all", page.display())) }
    }

    fn is_wanted(&self, kind: Kind) -> bool {
        match kind {
            Kind::Counted => self.counted || !self.simulated,
            Kind::Simulated => self.simulated || !self.counted,
            Kind::Timed => !self.counted && !self.simulated,
        }
    }

    fn measure(&self, asked: &[Asked], made: &Made, results: &mut Results, output: &mut Output) -> Outcome {
        let rounds = Rounds(self.rounds.into());
        let left: Vec<_> = asked
            .iter()
            .map(|asked| (asked, measure::left(asked, results, made)))
            .filter(|(_, rows)| !rows.is_empty())
            .collect();
        let kept = asked.len() - left.len();
        if kept > 0 && !output.json() {
            output.line(format_args!("{kept} of {} figures are there already", asked.len()))?;
        }
        let bar = output.progress("measuring", Some(measure::weight(&left, rounds)));
        let mut reports = Reports::default();
        for (asked, rows) in &left {
            let new = reports.figure(asked, rows, (rounds, made), results, &bar);
            let new = new.inspect_err(|_| bar.finish_and_clear())?;
            bar.suspend(|| measure::show(output, asked, &new))?;
        }
        bar.finish_and_clear();
        Ok(())
    }
}

fn list(output: &mut Output, asked: &[Asked]) -> Outcome {
    for Asked { paper, figure } in asked {
        let (kind, rows) = (figure.kind.name(), figure.rows.len());
        let value = serde_json::json!({
            "paper": paper.name, "figure": figure.name, "title": figure.title, "kind": kind, "rows": rows,
        });
        output.either(
            &value,
            format_args!("{:<10} {:<9} {kind:<8} {}", paper.name, figure.name, figure.title),
        )?;
    }
    Ok(())
}
