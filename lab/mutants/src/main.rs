//! `bristlecone-mutants`: small changes that the tests should detect, compiled together and tried
//! one by one.

mod args;
mod compile;
mod explained;
mod find;
mod mutant;
mod plan;
mod report;
mod results;
mod rewrite;
mod run;
mod suite;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use clap::Parser;

use crate::args::Args;
use crate::compile::{Copy, Program};
use crate::mutant::Mutant;
use crate::plan::Plan;
use crate::report::Report;
use crate::results::{Line, Outcome, Results};
use crate::run::Runs;

/// Set by Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    match work(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("bristlecone-mutants: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the command, and returns whether every mutant was detected.
fn work(args: &Args) -> Result<bool, String> {
    let root = args.root.canonicalize().map_err(|error| format!("{}: {error}", args.root.display()))?;
    let work = args.work.clone().unwrap_or_else(|| root.join("target/mutants"));
    std::fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    let work = work.canonicalize().map_err(|error| format!("{}: {error}", work.display()))?;
    let mut copy = Copy::of(&root, &work, plan(args)?, args.build_jobs)?;
    copy.recall()?;
    if args.list {
        args.chosen(copy.living()).iter().for_each(|mutant| println!("{mutant}"));
        return Ok(true);
    }
    // A second Ctrl-C ends the process immediately.
    let stop = || {
        if STOP.swap(true, Relaxed) {
            std::process::exit(130)
        }
    };
    ctrlc::set_handler(stop).map_err(|error| error.to_string())?;
    let results = Results::open(&work.join("results.jsonl"))?;
    let lines = if args.report { results.before.clone() } else { run(args, &mut copy, &work, &results)? };
    let all: Vec<&Mutant> = copy.living().collect();
    let explained = match explained_path(args, &root) {
        Some(path) => explained::read(&path)?,
        None => Vec::new(),
    };
    let report = Report::of(&args.chosen(copy.living()), &all, &lines, &explained);
    println!("{} mutants were found, {} of them do not compile", copy.mutants.len(), copy.refused.len());
    print!("{report}");
    if STOP.load(Relaxed) {
        println!("interrupted: the same command goes on");
    }
    Ok(report.is_clean())
}

fn plan(args: &Args) -> Result<Plan, String> {
    match &args.owners {
        Some(path) => {
            let read = std::fs::read_to_string(path);
            Plan::parse(&read.map_err(|error| format!("{}: {error}", path.display()))?)
        }
        None => Plan::parse(plan::OWN),
    }
}

fn explained_path(args: &Args, root: &Path) -> Option<PathBuf> {
    let default = root.join("lab/mutants/explained.toml");
    args.explained.clone().or_else(|| default.is_file().then_some(default))
}

/// Builds the copy, and runs the selected mutants without results.
fn run(
    args: &Args,
    copy: &mut Copy,
    work: &Path,
    results: &Results,
) -> Result<BTreeMap<String, Line>, String> {
    let programs = if args.built { copy.built()? } else { build(args, copy, work)? };
    let longest = Duration::from_secs(args.longest);
    let runs = Runs { plan: copy.plan(), programs: &programs, work, jobs: args.jobs, longest, stop: &STOP };
    let again = |line: &Line| args.retry && line.outcome != Outcome::Killed;
    let mut chosen = args.chosen(copy.living());
    chosen.retain(|mutant| results.before.get(&mutant.key()).is_none_or(again));
    let files: HashSet<&str> = chosen.iter().map(|mutant| mutant.file.as_str()).collect();
    let baseline = runs.baseline(&files)?;
    runs.mutants(&chosen, &baseline, results)
}

fn build(args: &Args, copy: &mut Copy, work: &Path) -> Result<Vec<Program>, String> {
    eprintln!("{} mutants: writing the copy and checking which of them compile", copy.mutants.len());
    let report = |round: &str| eprintln!("{round}");
    if !args.sparse || !copy.knows_refused() {
        copy.write(&report)?;
    }
    if args.sparse {
        let chosen = args.chosen(copy.living()).iter().map(|mutant| mutant.id).collect();
        copy.keep_only(chosen);
        copy.write(&report)?;
    }
    let list = serde_json::to_string_pretty(&copy.living().collect::<Vec<_>>());
    compile::write(&work.join("mutants.json"), list.map_err(|error| error.to_string())?)?;
    eprintln!("{} do not compile; building the tests of the others", copy.refused.len());
    copy.build()
}
