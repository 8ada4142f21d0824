//! The papers, and the requested figures.

use std::sync::LazyLock;

use bristlecone_cli::failure::{Exit, Failure, Outcome};

use super::data::File;
use super::expand;
use super::figure::{Figure, Scale};

/// The files of the papers, in the order of their pages in `docs/designs`.
const FILES: [(&str, &str); 5] = [
    ("sstree", include_str!("../../figures/sstree.toml")),
    ("nbtree", include_str!("../../figures/nbtree.toml")),
    ("cclbtree", include_str!("../../figures/cclbtree.toml")),
    ("lodgetree", include_str!("../../figures/lodgetree.toml")),
    ("wotree", include_str!("../../figures/wotree.toml")),
];

/// One of the papers.
pub struct Paper {
    pub name: &'static str,
    file: File,
}

impl Paper {
    fn read(name: &'static str, text: &str) -> Result<Self, String> {
        let paper = toml::from_str(text).map(|file| Self { name, file });
        let paper = paper.map_err(|error| paper_error(name, &error.to_string()))?;
        paper.expand(Scale::Quick)?;
        Ok(paper)
    }

    /// Returns its title.
    pub fn title(&self) -> &str {
        &self.file.title
    }

    fn expand(&self, scale: Scale) -> Result<Vec<Figure>, String> {
        expand::figures(&self.file, scale).map_err(|error| paper_error(self.name, &error))
    }

    /// Returns its figures at a scale.
    pub fn figures(&self, scale: Scale) -> Outcome<Vec<Figure>> {
        self.expand(scale).map_err(invalid)
    }
}

fn paper_error(name: &str, error: &str) -> String {
    format!("figures/{name}.toml: {}", error.trim_end())
}

fn invalid(error: impl Into<String>) -> Failure {
    Failure::new(Exit::BadInput, error.into())
}

/// Returns every paper; fails if a file is invalid.
pub fn papers() -> Outcome<&'static [Paper]> {
    static PAPERS: LazyLock<Result<Vec<Paper>, String>> =
        LazyLock::new(|| FILES.iter().map(|(name, text)| Paper::read(name, text)).collect());
    PAPERS.as_deref().map_err(|error| invalid(error.as_str()))
}

/// Returns every paper with its figures at a scale.
pub fn all(scale: Scale) -> Outcome<Vec<(&'static Paper, Vec<Figure>)>> {
    papers()?.iter().map(|paper| Ok((paper, paper.figures(scale)?))).collect()
}

/// A figure and its paper.
pub struct Asked {
    pub paper: &'static Paper,
    pub figure: Figure,
}

/// Returns the requested figures of a paper, or of all; all figures, if none is named.
pub fn asked(paper: &str, names: &[String], scale: Scale) -> Outcome<Vec<Asked>> {
    let known = papers()?;
    let chosen: Vec<_> = known.iter().filter(|known| paper == "all" || paper == known.name).collect();
    if chosen.is_empty() {
        let known: Vec<_> = known.iter().map(|paper| paper.name).collect();
        return Err(Failure::usage(format!("no paper {paper:?}: {} or all", known.join(", "))));
    }
    let mut all = Vec::new();
    for paper in chosen {
        all.extend(paper.figures(scale)?.into_iter().map(|figure| Asked { paper, figure }));
    }
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|asked| asked.figure.name != **name)) {
        let known: Vec<_> = all.iter().map(|asked| asked.figure.name.as_str()).collect();
        let of = if paper == "all" { "any paper" } else { paper };
        return Err(Failure::usage(format!("no figure {unknown:?} of {of}: {}", known.join(", "))));
    }
    all.retain(|asked| names.is_empty() || names.contains(&asked.figure.name));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::figure::X;
    use std::collections::HashSet;

    #[test]
    fn figures_have_distinct_rows() {
        for paper in papers().unwrap() {
            let mut names = HashSet::new();
            for figure in paper.figures(Scale::Quick).unwrap() {
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
                        rows.insert((row.series.clone(), row.metric.clone(), x)),
                        "{name}: {row:?} is there twice"
                    );
                }
            }
        }
    }

    #[test]
    fn figures_of_every_scale_have_valid_command_lines() {
        for scale in [Scale::Quick, Scale::Full, Scale::Keys(1000)] {
            for paper in papers().unwrap() {
                for row in paper.figures(scale).unwrap().iter().flat_map(|figure| &figure.rows) {
                    for run in row.runs.iter().filter(|run| run.is_possible()) {
                        assert_eq!(run.refusal(), None, "{}", run.line());
                    }
                }
            }
        }
    }

    #[test]
    fn remarks_begin_with_the_side_that_causes_the_difference() {
        let sides =
            ["ours: ", "the baseline: ", "the machine: ", "the model: ", "the scale: ", "the paper: "];
        for paper in papers().unwrap() {
            for figure in paper.figures(Scale::Quick).unwrap() {
                for row in figure.rows.iter().filter(|row| !row.remark.is_empty()) {
                    let begins = sides.iter().any(|side| row.remark.starts_with(side));
                    assert!(begins, "{} {}: {}", paper.name, figure.name, row.remark);
                }
            }
        }
    }

    #[test]
    fn papers_use_all_their_names_and_lists() {
        for (name, text) in FILES {
            let paper = Paper::read(name, text).unwrap();
            let is_used = |name: &String| text.contains(&format!("{{{name}}}"));
            let unused: Vec<_> = paper.file.text.keys().filter(|name| !is_used(name)).collect();
            assert!(unused.is_empty(), "{name}: {unused:?}");
            let is_used = |name: &String| text.contains(&format!(" = \"{name}\" }}"));
            let unused: Vec<_> = paper.file.lists.keys().filter(|name| !is_used(name)).collect();
            assert!(unused.is_empty(), "{name}: {unused:?}");
        }
    }

    /// A file, with `row` as the fields of its rows.
    fn file(row: &str) -> String {
        format!(
            "title = \"t\"\nkeys = 1000\n[[figure]]\ntitle = \"1: f\"\nkind = \"counted\"\n\
             run = \"count --design {{design}} --records {{keys}}\"\n[[figure.row]]\n\
             metric = \"lines\"\nfor = [{{ design = [\"sstree\", \"wotree\"] }}]\n{row}\n"
        )
    }

    #[test]
    fn mistakes_in_a_file_are_named_with_file_and_key() {
        let said = |row: &str| Paper::read("test", &file(row)).err();
        assert_eq!(said("value = \"a\""), None);
        assert_eq!(
            said(
                "value = \"ratio a\"\nagainst = { design = \"native\" }\npaper = [\"about 1 to 2\", \"-\"]\nplace = \"p\""
            ),
            None
        );
        for (row, parts) in [
            ("valeu = \"a\"", ["TOML parse error at line", "unknown field `valeu`"]),
            ("", ["figure 1, row 1, value", "missing"]),
            ("value = \"a b\"", ["figure 1, row 1, value", "derives no value"]),
            ("value = \"{kyes}\"", ["figure 1, row 1, value", "unknown name {kyes}"]),
            (
                "value = \"ratio a\"\nagainst = { desing = \"native\" }",
                ["figure 1, row 1, against", "both runs are the same"],
            ),
            ("value = \"ratio a\"", ["figure 1, row 1, against", "compares 2 runs"]),
            ("value = \"a\"\npaper = [1]\nplace = \"p\"", ["figure 1, row 1, paper", "1 values of 2"]),
            ("value = \"a\"\npaper = 1", ["figure 1, row 1, paper", "no place"]),
            ("value = \"a\"\npaper = \"some\"\nplace = \"p\"", ["figure 1, row 1, paper", "no number"]),
            ("value = \"a\"\nremark = { ntive = \"r\" }", ["figure 1, row 1, remark", "no row is \"ntive\""]),
            (
                "[[figure.row.row]]\nfor = [{ n = [1, 2] }]\nvalue = \"a\"\nremark = { \"sstree / *\" = 1, \"* / 1\" = 2 }",
                ["figure 1, row 1.1, remark", "match one row"],
            ),
            ("value = \"a\"\nnote = \"n\"", ["figure 1, row 1, note", "belongs to the figure"]),
            ("value = \"a\"\nrun = \"count --records many\"", ["figure 1, row 1, run", "invalid digit"]),
        ] {
            let said = said(row).unwrap_or_else(|| panic!("{row:?} is accepted"));
            assert!(said.starts_with("figures/test.toml: "), "{said}");
            assert!(parts.iter().all(|part| said.contains(part)), "{row:?}: {said}");
        }
    }

    #[test]
    fn unknown_papers_and_figures_are_refused_with_the_known_ones() {
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
