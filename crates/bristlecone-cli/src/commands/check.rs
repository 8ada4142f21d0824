//! `bristlecone check`: whether everything reachable is as it must be.

use clap::Args;
use serde_json::json;

use crate::args::ReadArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::output::{Output, counted};
use crate::{interrupt, store};

/// Check a pool and everything in it
#[derive(Args, Debug)]
pub struct Check {
    #[command(flatten)]
    pool: ReadArgs,
    /// Check only this tree.
    tree: Option<String>,
}

impl Check {
    pub fn run(&self, output: &mut Output) -> Outcome {
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
