//! `bristlecone check`: whether everything reachable is as it must be, and what to save if not.

use std::path::{Path, PathBuf};

use bristlecone::{Finding, Pool, TreeSpec};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, counted, grouped};
use clap::Args;
use serde_json::json;

use crate::args::ReadArgs;
use crate::store;

/// Check a pool and everything in it; save what can be read of a damaged one
#[derive(Args, Debug)]
pub struct Check {
    #[command(flatten)]
    pool: ReadArgs,
    /// Check only this tree.
    tree: Option<String>,
    /// Save whatever can be read into a new pool at this path; the old one is not changed.
    #[arg(long, value_name = "NEW_POOL", conflicts_with = "tree")]
    repair: Option<PathBuf>,
}

impl Check {
    pub fn run(&self, output: &mut Output) -> Outcome {
        match &self.repair {
            Some(to) => self.repair(to, output),
            None => self.check(output),
        }
    }

    /// Fails if anything is lost, after saying what.
    fn repair(&self, to: &Path, output: &mut Output) -> Outcome {
        let bar = output.progress("saving", None);
        let domain = self.pool.pool.domain.domain;
        let options = domain.map_or_else(Pool::options, |domain| Pool::options().domain(domain));
        let salvage = options.salvage(&self.pool.pool.path, to)?;
        bar.finish_and_clear();
        let (kept, lost) = salvage.items();
        let in_trees = salvage
            .trees
            .iter()
            .flat_map(|tree| tree.findings.iter().map(move |finding| (Some(tree.name.as_str()), finding)));
        let findings = salvage.findings.iter().map(|finding| (None, finding)).chain(in_trees);
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
            let findings: Vec<_> = findings
                .map(|(tree, Finding { location, what, .. })| json!({ "tree": tree, "location": location, "what": what }))
                .collect();
            output.value(&json!({
                "ok": salvage.is_whole(),
                "pool": to,
                "trees": trees,
                "kept": kept,
                "lost": lost,
                "findings": findings,
            }))?;
        } else {
            for (tree, Finding { location, what, .. }) in findings {
                let tree = tree.map(|tree| format!("{tree}: ")).unwrap_or_default();
                output.line(format_args!("{tree}{what} at {location}"))?;
            }
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

    fn check(&self, output: &mut Output) -> Outcome {
        let pool = store::open_to_check(&self.pool)?;
        let mut found = Found::default();
        found.pool(&pool);
        let specs = match &self.tree {
            Some(name) => vec![store::find_spec(&pool, name)?],
            None => store::specs(&pool)?,
        };
        let bar = output.progress("checking", Some(specs.len() as u64));
        let mut without_room = Vec::new();
        for TreeSpec { name, .. } in &specs {
            interrupt::check("nothing was changed")?;
            if found.tree(&pool, name).is_err_and(|failure| failure.is_full()) {
                without_room.push(name);
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        pool.close()?;
        if !without_room.is_empty() {
            // What recovery has to write then stays in memory.
            let pool = Pool::options().read_only(true).open(&self.pool.pool.path)?;
            for name in without_room {
                found.unchecked.retain(|(unchecked, _)| unchecked != name);
                let _ = found.tree(&pool, name);
            }
        }
        found.show(specs.len() as u64, output)
    }
}

/// What a check found.
#[derive(Default)]
struct Found {
    findings: Vec<(Option<String>, Finding)>,
    /// Trees that could not be looked at, and why.
    unchecked: Vec<(String, String)>,
    entries: u64,
}

impl Found {
    fn pool(&mut self, pool: &Pool) {
        self.findings.extend(pool.check().into_iter().map(|finding| (None, finding)));
    }

    /// Checks a tree. The failure is noted, too.
    fn tree(&mut self, pool: &Pool, name: &str) -> Outcome {
        match pool.check_tree(name).map_err(Failure::from) {
            Ok((entries, findings)) => {
                self.entries += entries;
                self.findings.extend(findings.into_iter().map(|finding| (Some(name.to_owned()), finding)));
                Ok(())
            }
            Err(failure) => {
                self.unchecked.push((name.to_owned(), failure.line().to_owned()));
                Err(failure)
            }
        }
    }

    /// Fails if anything was found, or not looked at, after saying what.
    fn show(&self, trees: u64, output: &mut Output) -> Outcome {
        let wrong = self.findings.len() + self.unchecked.len();
        if output.json() {
            let finding = |tree: Option<&String>, location: &str, what: &str| json!({ "tree": tree, "location": location, "what": what });
            let found = self.findings.iter();
            let found = found.map(|(tree, found)| finding(tree.as_ref(), &found.location, &found.what));
            let unchecked = self.unchecked.iter();
            let unchecked =
                unchecked.map(|(tree, why)| finding(Some(tree), "tree", &format!("not checked: {why}")));
            output.value(&json!({
                "ok": wrong == 0,
                "trees": trees,
                "entries": self.entries,
                "skipped": self.unchecked.iter().map(|(tree, _)| tree).collect::<Vec<_>>(),
                "findings": found.chain(unchecked).collect::<Vec<_>>(),
            }))?;
        } else {
            for (tree, Finding { location, what, .. }) in &self.findings {
                let tree = tree.as_ref().map(|tree| format!("{tree}: ")).unwrap_or_default();
                output.line(format_args!("{tree}{what} at {location}"))?;
            }
            for (tree, why) in &self.unchecked {
                output.line(format_args!("{tree}: not checked: {why}"))?;
            }
            let verdict = match wrong {
                0 => "everything is as it must be".to_owned(),
                _ => counted(wrong as u64, "finding", "findings"),
            };
            let (trees, entries) =
                (counted(trees, "tree", "trees"), counted(self.entries, "entry", "entries"));
            output.line(format_args!("{trees}, {entries}: {verdict}"))?;
        }
        if wrong == 0 { Ok(()) } else { Err(Failure::Shown(Exit::Failed)) }
    }
}
