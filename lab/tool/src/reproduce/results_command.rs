//! `bristlecone-lab results`: prints reproduced results as tables.

use std::path::PathBuf;

use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::output::Output;
use clap::Args;

use super::figure::{Figure, Scale};
use super::papers::papers;
use super::results::{self, Measurement};
use super::summary::{self, Line};
use super::table;

/// Print the results of reproduce as tables
///
/// Prints Markdown: every figure, ours beside the paper's. lab/docs/RESULTS.md and lab/docs/SIMULATED.md are generated
/// by it. If several files have the same number, the last one counts.
#[derive(Args, Debug)]
pub struct ShowResults {
    /// Files written by reproduce: results.jsonl.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

const HEAD: &str = "\
# The papers' figures, ours beside theirs

Made by `bristlecone-lab results` of what `bristlecone-lab reproduce all` measured; not edited by hand. [REPRODUCE.md](REPRODUCE.md)
says how to make it again. A deviation is in percent of the paper's value, or in points where both are percent. Values of several rounds are
medians, with the least and the most in brackets.
";

impl ShowResults {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let mut all: Vec<Measurement> = Vec::new();
        for file in &self.files {
            for result in results::read(file)? {
                all.retain(|old| !old.is_of(&result));
                all.push(result);
            }
        }
        if all.is_empty() {
            return Err(Failure::usage("there are no results in these files"));
        }
        for paper in papers()? {
            let figures = paper.figures(Scale::Quick)?;
            all.iter_mut().for_each(|result| result.refresh(paper.name, &figures));
        }
        if output.json() {
            return all.iter().try_for_each(|result| output.value(result));
        }
        output.line(HEAD)?;
        for line in circumstances(&all) {
            output.line(format_args!("- {line}"))?;
        }
        output.line(format_args!("\n## Summary\n\n{}", summary::MEANING))?;
        let of_figure = |paper: &str, name: &str| -> Vec<&Measurement> {
            all.iter()
                .filter(|result| (result.paper.as_str(), result.figure.as_str()) == (paper, name))
                .collect()
        };
        for paper in papers()? {
            let figures = paper.figures(Scale::Quick)?;
            let line = |figure: &Figure| Line::of(figure, &of_figure(paper.name, &figure.name));
            let lines: Vec<_> = figures.iter().filter_map(line).collect();
            if !lines.is_empty() {
                output.line(format_args!("\n{}", summary::markdown(paper.title(), &lines).trim_end()))?;
            }
        }
        for paper in papers()? {
            let figures = paper.figures(Scale::Quick)?;
            let of = |name: &str| of_figure(paper.name, name);
            if figures.iter().any(|figure| !of(&figure.name).is_empty()) {
                output.line(format_args!("\n## {}", paper.title()))?;
            }
            for figure in &figures {
                let rows = of(&figure.name);
                if !rows.is_empty() {
                    output.line(format_args!("\n{}", table::markdown(figure, &rows).trim_end()))?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the distinct circumstances of results, each with the number of results.
pub fn circumstances(all: &[Measurement]) -> Vec<String> {
    let of = |result: &Measurement| {
        let made = &result.made;
        format!(
            "Version {}, commit {}, {} ({}), {}",
            made.version,
            made.commit,
            made.compiler,
            made.build,
            machine(&made.machine)
        )
    };
    let lines: Vec<String> = all.iter().map(of).collect();
    let describe = |line: &String| {
        let of_line = || all.iter().zip(&lines).filter(|(_, other)| *other == line).map(|(result, _)| result);
        let first = of_line().map(|result| &result.made.date).min().map_or("", String::as_str);
        format!("{line}: {} numbers, {first}", of_line().count())
    };
    table::distinct(lines.iter()).into_iter().map(describe).collect()
}

fn machine(machine: &serde_json::Value) -> String {
    let text = |name: &str| machine[name].as_str().unwrap_or("unknown").to_owned();
    format!("{} processors, {}, Linux {}", machine["processors"], text("cpu"), text("kernel"))
}
