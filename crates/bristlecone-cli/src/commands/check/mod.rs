//! `bristlecone check`: verifies all reachable data, and saves the readable data of a damaged pool.

mod read_all;

use std::path::{Path, PathBuf};

use bristlecone::{Issue, Pool, TreeSpec};
use bristlecone_cli::arguments::DomainArg;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, counted, grouped};
use bristlecone_cli::size;
use clap::Args;
use serde_json::json;

use crate::issues::{self, summed_up, without_advice};
use crate::open::{ReadArgs, explain, with_domain};
use crate::store;

/// Check a pool and all its trees, or save the readable data of a damaged pool
///
/// Verifies the directory, the structure of trees, the order of keys, and the checksum of every key and value. Exits
/// with 1 if any check fails or anything cannot be read. If another process writes to the pool, checks the parts that
/// can be read meanwhile: the directory, every record, and the order of keys.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone check trees.pool
  bristlecone check trees.pool ages
  bristlecone check trees.pool --read-all --rate 50M    slowly, beside other work
  bristlecone check trees.pool --repair saved.pool")]
pub struct Check {
    #[command(flatten)]
    pool: ReadArgs,
    #[command(flatten)]
    what: CheckArgs,
    /// Save all readable data to a new pool at this path; the old pool is not changed.
    #[arg(long, value_name = "NEW_POOL", conflicts_with_all = ["tree", "read_all"])]
    repair: Option<PathBuf>,
    #[command(flatten)]
    domain: DomainArg,
}

/// The parts to check.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Check only this tree.
    tree: Option<String>,
    /// Only read every entry and compare it with its checksum, without verifying the structure of trees. Finds keys and
    /// values that the medium has damaged. Not possible while another process writes to the pool.
    #[arg(long, conflicts_with = "tree")]
    read_all: bool,
    /// Bytes of keys and values that --read-all reads per second, for example 50M [default: unlimited]
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "read_all")]
    rate: Option<u64>,
}

impl Check {
    pub fn run(&self, output: &mut Output) -> Outcome {
        match &self.repair {
            Some(to) => self.repair(to, output),
            None if self.domain.domain.is_some() => {
                Err(Failure::usage("--domain is that of the new pool: it goes with --repair"))
            }
            None if self.what.read_all => self.what.run(&self.pool.open_from_medium()?, output),
            None => self.what.run(&self.pool.open_from_medium_or_follow()?, output),
        }
    }

    /// Fails if anything is lost, after reporting it.
    fn repair(&self, to: &Path, output: &mut Output) -> Outcome {
        let bar = output.progress("saving", None);
        let from = &self.pool.pool.path;
        let salvage = with_domain(self.domain.domain).salvage(from, to);
        bar.finish_and_clear();
        // Not every error says which of the two paths it is about.
        let salvage = salvage.map_err(|error| explain(if from.exists() { to } else { from }, error))?;
        let (kept, lost) = salvage.items();
        let in_trees = salvage
            .trees
            .iter()
            .flat_map(|tree| tree.issues.iter().map(move |issue| (Some(tree.name.as_str()), issue)));
        let issues = salvage.issues.iter().map(|issue| (None, issue)).chain(in_trees);
        if output.json() {
            let trees = salvage.trees.iter();
            let trees: Vec<_> = trees
                .map(|tree| {
                    json!({
                        "name": tree.name,
                        "kept": tree.kept,
                        "lost": tree.lost,
                        "chunks_lost": tree.chunks_lost,
                    })
                })
                .collect();
            let issues: Vec<_> = issues.map(|(tree, issue)| issues::object(tree, issue)).collect();
            output.value(&json!({
                "ok": salvage.is_whole(),
                "pool": to,
                "trees": trees,
                "kept": kept,
                "lost": lost,
                "issues": issues,
            }))?;
        } else {
            summed_up(issues).into_iter().try_for_each(|line| output.line(line))?;
            for tree in &salvage.trees {
                let (kept, lost) = (counted(tree.kept, "entry", "entries"), grouped(tree.lost));
                let unknown = match tree.chunks_lost {
                    0 => String::new(),
                    chunks => {
                        let chunks = counted(chunks, "chunk", "chunks");
                        format!(", and whatever stood in {chunks} that cannot be read")
                    }
                };
                output.line(format_args!("{}: {kept} saved, {lost} lost{unknown}", tree.name))?;
            }
            let verdict = if salvage.is_whole() { "nothing is lost" } else { "not everything could be read" };
            let trees = counted(salvage.trees.len() as u64, "tree", "trees");
            output.line(format_args!("{}: {trees} saved; {verdict}", to.display()))?;
        }
        if salvage.is_whole() { Ok(()) } else { Err(Failure::Shown(Exit::Failed)) }
    }
}

impl CheckArgs {
    /// Checks the pool as requested.
    pub fn run(&self, pool: &Pool, output: &mut Output) -> Outcome {
        if self.read_all {
            return read_all::read_all(pool, self.rate, output);
        }
        check(pool, self.tree.as_deref(), output)
    }
}

/// Checks a pool and all its trees, or one tree.
fn check(pool: &Pool, tree: Option<&str>, output: &mut Output) -> Outcome {
    let mut found = Found::default();
    found.issues.extend(pool.check().into_iter().map(|issue| (None, issue)));
    let specs = match tree {
        Some(name) => vec![store::find_spec(pool, name)?],
        None => store::specs(pool)?,
    };
    let bar = output.progress("checking", Some(specs.len() as u64));
    for TreeSpec { name, .. } in &specs {
        interrupt::check("nothing was changed")?;
        found.tree(pool, name);
        bar.inc(1);
    }
    bar.finish_and_clear();
    found.is_live = pool.info().following;
    found.show(specs.len() as u64, output)
}

/// Results of a check.
#[derive(Default)]
struct Found {
    issues: Vec<(Option<String>, Issue)>,
    /// Trees that could not be checked, and the reasons.
    unchecked: Vec<(String, String)>,
    entries: u64,
    /// Whether another process was writing meanwhile.
    is_live: bool,
}

/// Parts of a pool that are not checked while another process writes to it.
const NOT_CHECKED_LIVE: [&str; 3] = ["descriptors of chunks", "logs", "structure of trees"];

impl Found {
    /// Checks a tree.
    fn tree(&mut self, pool: &Pool, name: &str) {
        match pool.check_tree(name).map_err(Failure::from) {
            Ok((entries, issues)) => {
                self.entries += entries;
                self.issues.extend(issues.into_iter().map(|issue| (Some(name.to_owned()), issue)));
            }
            Err(failure) => {
                self.unchecked.push((name.to_owned(), without_advice(failure.line()).to_owned()));
            }
        }
    }

    /// Prints the results; fails if anything was found or not checked.
    fn show(&self, trees: u64, output: &mut Output) -> Outcome {
        let wrong = self.issues.len() + self.unchecked.len();
        if output.json() {
            let found = self.issues.iter().map(|(tree, issue)| issues::object(tree.as_deref(), issue));
            let unchecked = self.unchecked.iter();
            let unchecked = unchecked.map(|(tree, why)| {
                issues::object(Some(tree), &Issue::new("tree", format!("not checked: {why}")))
            });
            output.value(&json!({
                "ok": wrong == 0,
                "trees": trees,
                "entries": self.entries,
                "skipped": self.unchecked.iter().map(|(tree, _)| tree).collect::<Vec<_>>(),
                "issues": found.chain(unchecked).collect::<Vec<_>>(),
                "live": self.is_live,
                "not_checked": if self.is_live { &NOT_CHECKED_LIVE[..] } else { &[] },
            }))?;
        } else {
            let issues = self.issues.iter().map(|(tree, issue)| (tree.as_deref(), issue));
            summed_up(issues).into_iter().try_for_each(|line| output.line(line))?;
            for (tree, why) in &self.unchecked {
                output.line(format_args!("{tree}: not checked: {why}"))?;
            }
            let issues = counted(wrong as u64, "issue", "issues");
            let verdict = match (wrong, self.is_live) {
                (0, false) => "ok".to_owned(),
                (0, true) => "all checks passed".to_owned(),
                (_, false) => {
                    format!("{issues}; `bristlecone check POOL --repair NEW_POOL` saves the readable data")
                }
                (_, true) => format!("{issues}; check it again when no process writes to it"),
            };
            let (trees, entries) =
                (counted(trees, "tree", "trees"), counted(self.entries, "entry", "entries"));
            if self.is_live {
                let left_out = NOT_CHECKED_LIVE.join(", ");
                output.line(format_args!(
                    "another process writes to the pool: records and their order were checked; not checked: {left_out}"
                ))?;
            }
            output.line(format_args!("{trees}, {entries}: {verdict}"))?;
        }
        if wrong == 0 { Ok(()) } else { Err(Failure::Shown(Exit::Failed)) }
    }
}
