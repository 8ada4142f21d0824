//! The papers, and the requested figures.

use bristlecone_cli::failure::{Failure, Outcome};

use super::figure::{Figure, Paper, Scale};
use super::{cclbtree, lodgetree, nbtree, sstree, wotree};

/// Every paper, in the order of their pages in `docs/designs`.
pub const PAPERS: [&Paper; 5] =
    [&sstree::PAPER, &nbtree::PAPER, &cclbtree::PAPER, &lodgetree::PAPER, &wotree::PAPER];

/// A figure and its paper.
pub struct Asked {
    pub paper: &'static Paper,
    pub figure: Figure,
}

/// Returns the requested figures of a paper, or of all; all figures, if none is named.
pub fn asked(paper: &str, names: &[String], scale: Scale) -> Outcome<Vec<Asked>> {
    let papers: Vec<_> = PAPERS.into_iter().filter(|known| paper == "all" || paper == known.name).collect();
    if papers.is_empty() {
        let known: Vec<_> = PAPERS.iter().map(|paper| paper.name).collect();
        return Err(Failure::usage(format!("no paper {paper:?}: {} or all", known.join(", "))));
    }
    let all = || {
        papers
            .iter()
            .flat_map(|paper| (paper.figures)(scale).into_iter().map(|figure| Asked { paper, figure }))
    };
    if let Some(unknown) = names.iter().find(|name| all().all(|asked| asked.figure.name != name.as_str())) {
        let known: Vec<_> = all().map(|asked| asked.figure.name).collect();
        let of = if paper == "all" { "any paper" } else { paper };
        return Err(Failure::usage(format!("no figure {unknown:?} of {of}: {}", known.join(", "))));
    }
    Ok(all().filter(|asked| names.is_empty() || names.iter().any(|name| asked.figure.name == name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::figure::X;
    use std::collections::HashSet;

    #[test]
    fn figures_have_rows_that_are_told_apart() {
        for paper in PAPERS {
            let mut names = HashSet::new();
            for figure in (paper.figures)(Scale::Quick) {
                let name = format!("{} {}", paper.name, figure.name);
                assert!(names.insert(figure.name), "{name} is there twice");
                assert!(!figure.rows.is_empty(), "{name}");
                let mut rows = HashSet::new();
                for row in &figure.rows {
                    let x = match &row.x {
                        X::Number(number) => number.to_string(),
                        X::Label(label) => label.clone(),
                        X::None => String::new(),
                    };
                    assert!(
                        rows.insert((row.series.clone(), row.metric, x)),
                        "{name}: {row:?} is there twice"
                    );
                }
            }
        }
    }

    #[test]
    fn figures_of_every_scale_have_command_lines_that_can_be_read() {
        for scale in [Scale::Quick, Scale::Full, Scale::Keys(1000)] {
            for paper in PAPERS {
                for row in (paper.figures)(scale).iter().flat_map(|figure| &figure.rows) {
                    for run in row.runs.iter().filter(|run| run.is_possible()) {
                        assert_eq!(run.refusal(), None, "{}", run.line());
                    }
                }
            }
        }
    }

    #[test]
    fn papers_and_figures_that_are_not_there_are_refused_with_those_that_are() {
        let line = |paper: &str, figures: &[&str]| {
            let names: Vec<_> = figures.iter().map(|name| (*name).to_owned()).collect();
            asked(paper, &names, Scale::Quick).err().map(|failure| failure.line().to_owned())
        };
        assert!(line("lbtree", &[]).unwrap().contains("wotree or all"));
        assert!(line("wotree", &["99"]).unwrap().contains("10a, "));
        assert_eq!(line("wotree", &["10a", "14"]), None);
        assert_eq!(line("all", &[]), None);
    }
}
