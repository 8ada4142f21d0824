//! `bristlecone check`: whether everything reachable is as it must be, and what to save if not.

use std::path::{Path, PathBuf};

use bristlecone::{Finding, Pool};
use clap::Args;
use serde_json::json;

use crate::args::ReadArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, counted, grouped};
use crate::{interrupt, store};

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
                .map(|tree| json!({ "name": tree.name, "kept": tree.kept, "lost": tree.lost }))
                .collect();
            let findings: Vec<_> = findings
                .map(|(tree, Finding { location, what })| json!({ "tree": tree, "location": location, "what": what }))
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
            for (tree, Finding { location, what }) in findings {
                let tree = tree.map(|tree| format!("{tree}: ")).unwrap_or_default();
                output.line(format_args!("{tree}{what} at {location}"))?;
            }
            for tree in &salvage.trees {
                let (kept, lost) = (counted(tree.kept, "entry", "entries"), grouped(tree.lost));
                output.line(format_args!("{}: {kept} saved, {lost} lost", tree.name))?;
            }
            let verdict = if salvage.is_whole() { "nothing is lost" } else { "not everything could be read" };
            let trees = counted(salvage.trees.len() as u64, "tree", "trees");
            output.line(format_args!("{}: {trees} saved; {verdict}", to.display()))?;
        }
        if salvage.is_whole() { Ok(()) } else { Err(Failure::Shown(Exit::Failed)) }
    }

    fn check(&self, output: &mut Output) -> Outcome {
        let pool = store::open_to_read(&self.pool)?;
        let mut trees = store::trees(&pool)?;
        if let Some(name) = &self.tree {
            trees = vec![store::find(&pool, name)?];
        }
        let mut findings: Vec<(Option<String>, String, String)> =
            pool.check().into_iter().map(|finding| (None, finding.location, finding.what)).collect();
        let mut entries = 0;
        let mut skipped = Vec::new();
        let bar = output.progress("checking", Some(trees.len() as u64));
        for info in &trees {
            interrupt::check("nothing was changed")?;
            let Some(kinds) = info.kinds() else {
                skipped.push(info.name.clone());
                continue;
            };
            let tree =
                store::open_tree(&pool, &info.name, kinds).map_err(|error| error.within(&info.name))?;
            entries += tree.len();
            let found = tree.check().into_iter();
            findings.extend(found.map(|finding| (Some(info.name.clone()), finding.location, finding.what)));
            bar.inc(1);
        }
        bar.finish_and_clear();
        if output.json() {
            let findings: Vec<_> = findings
                .iter()
                .map(|(tree, location, what)| json!({ "tree": tree, "location": location, "what": what }))
                .collect();
            output.value(&json!({
                "ok": findings.is_empty(),
                "trees": trees.len(),
                "entries": entries,
                "skipped": skipped,
                "findings": findings,
            }))?;
        } else {
            for (tree, location, what) in &findings {
                let tree = tree.as_ref().map(|tree| format!("{tree}: ")).unwrap_or_default();
                output.line(format_args!("{tree}{what} at {location}"))?;
            }
            for name in &skipped {
                output.line(format_args!("{name}: not checked, of a kind that only a program can open"))?;
            }
            let verdict = if findings.is_empty() {
                "everything is as it must be".to_owned()
            } else {
                counted(findings.len() as u64, "finding", "findings")
            };
            let (trees, entries) = (trees.len() as u64, counted(entries, "entry", "entries"));
            output.line(format_args!("{}, {entries}: {verdict}", counted(trees, "tree", "trees")))?;
        }
        pool.close()?;
        if findings.is_empty() { Ok(()) } else { Err(Failure::Shown(Exit::Failed)) }
    }
}
