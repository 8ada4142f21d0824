//! `bristlecone demo`: indexes real files, kills the writer, and finds every acknowledged entry
//! again.
//!
//! 1. The paths under a directory are collected.
//! 2. A child process indexes them, path to size and time, and acknowledges each entry through a
//!    pipe once the tree has answered.
//! 3. The child is killed with SIGKILL at a random point. The entries whose acknowledgements are in
//!    the pipe by then are acknowledged.
//! 4. The pool is reopened, timed; every acknowledged entry must be present with its value.
//! 5. The rest is loaded, the tree is checked, and a few queries are run.

mod query;
mod walk;
mod writer;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bristlecone::{Design, Pool, PoolInfo, Tree};
use bristlecone_cli::arguments::{DomainArg, option};
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::medium;
use bristlecone_cli::output::{Output, counted, grouped};
use bristlecone_cli::scratch::Scratch;
use clap::Args;
use serde::Serialize;

use self::walk::Entry;
pub use self::writer::DemoWriter;
use crate::open::explain;

/// Name of the demo's tree.
const TREE: &str = "files";

/// A tree from paths to size and time.
type Files = Tree<&'static [u8], &'static str>;

/// Index a directory tree, kill the indexer, and find every acknowledged entry again
///
/// A child process indexes every path under a directory and is killed with SIGKILL at a random
/// point. The pool is then reopened, every acknowledged entry is verified, the load is finished,
/// and a few queries run.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone demo
  bristlecone demo ~/src --keep --pool /dev/shm/demo.pool")]
pub struct Demo {
    /// Directory whose paths are indexed.
    #[arg(default_value = "/usr")]
    directory: PathBuf,
    /// Path of the pool [default: a file in /dev/shm]
    #[arg(long, value_name = "PATH")]
    pool: Option<PathBuf>,
    /// Keep the pool afterwards, for `scan` and the other commands.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    domain: DomainArg,
    /// Design of the tree: sstree, nbtree, cclbtree, lodgetree or wotree.
    #[arg(long, default_value_t)]
    design: Design,
    /// Parameter of the design; repeatable.
    #[arg(long = "option", value_name = "NAME=NUMBER", value_parser = option)]
    options: Vec<(String, u64)>,
}

/// The JSON output.
#[derive(Serialize)]
struct Report {
    acknowledged: u64,
    recovered: u64,
    lost: u64,
    recovery_ms: f64,
    entries: u64,
    medium: String,
    domain: String,
}

impl Demo {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let walked = Instant::now();
        let entries = walk::walk(&self.directory, &output.progress("walking", None))?;
        let (paths, took) = (counted(entries.len() as u64, "path", "paths"), seconds(walked.elapsed()));
        tell(output, format_args!("{paths} under {}, found in {took}", self.directory.display()))?;
        if entries.len() < 2 {
            let said =
                format!("{} holds too little to index: choose another directory", self.directory.display());
            return Err(Failure::usage(said));
        }
        let scratch = Scratch::new(self.pool.as_deref(), "demo", self.keep);
        let info = self.create(&scratch, &entries)?;
        let medium = medium::name(scratch.path());
        let (path, promise) = (scratch.path().display(), medium::promise(&info));
        tell(output, format_args!("pool {path} on {medium}, {promise}"))?;

        let indexed = Instant::now();
        let bar = output.progress("indexing in a child process", Some(entries.len() as u64));
        let killed = writer::index_and_kill(scratch.path(), info.domain, &entries, &bar)?;
        let acknowledged = killed.acknowledged as u64;
        let (pid, after, count) = (killed.pid, seconds(indexed.elapsed()), grouped(acknowledged));
        tell(output, format_args!("process {pid} killed with SIGKILL after {after}: {count} acknowledged"))?;

        let opened = Instant::now();
        let pool = Pool::options().domain(info.domain).open(scratch.path())?;
        let tree: Files = pool.tree_options(TREE).open()?;
        let recovery = opened.elapsed();
        let recovered = tree.len()?;
        let lost = self.verify(output, &tree, &entries[..killed.acknowledged])?;
        let (took, found) = (milliseconds(recovery), counted(recovered, "entry", "entries"));
        tell(output, format_args!("opened again in {took}: {found}, {lost} of the acknowledged missing"))?;

        self.finish(output, &tree, &entries)?;
        let issues = tree.check();
        let report = Report {
            acknowledged,
            recovered,
            lost,
            recovery_ms: recovery.as_secs_f64() * 1e3,
            entries: tree.len()?,
            medium,
            domain: info.domain.to_string(),
        };
        if output.json() {
            output.value(&report)?;
        } else {
            query::show(output, &tree, &self.directory, &entries)?;
            self.conclude(output, &report, &scratch)?;
        }
        drop(tree);
        pool.close()?;
        if let Some(issue) = issues.first() {
            return Err(Failure::new(Exit::Failed, format!("check: {} at {}", issue.what, issue.location)));
        }
        if lost > 0 || report.entries != entries.len() as u64 {
            return Err(Failure::new(Exit::Failed, format!("{lost} acknowledged entries are missing")));
        }
        Ok(())
    }

    /// Creates pool and tree, and closes them so that the child can open them.
    fn create(&self, scratch: &Scratch, entries: &[Entry]) -> Outcome<PoolInfo> {
        let bytes: u64 = entries.iter().map(|entry| entry.path.len() as u64 + 256).sum();
        let mut options = Pool::options().max_bytes((bytes * 4).max(1 << 30)).create_new(true);
        if let Some(domain) = self.domain.domain {
            options = options.domain(domain);
        }
        let pool = options.open(scratch.path()).map_err(|error| explain(scratch.path(), error))?;
        scratch.created();
        let mut tree = pool.tree_options(TREE).design(self.design);
        for (name, value) in &self.options {
            tree = tree.option(name, *value);
        }
        drop::<Files>(tree.create()?);
        drop(tree);
        let info = pool.info();
        pool.close()?;
        Ok(info)
    }

    /// Returns how many of these entries are missing or different in the tree.
    fn verify(&self, output: &Output, tree: &Files, entries: &[Entry]) -> Outcome<u64> {
        let bar = output.progress("verifying", Some(entries.len() as u64));
        let mut lost = 0;
        for batch in entries.chunks(1024) {
            interrupt::check("the demo is not finished")?;
            for entry in batch {
                lost += u64::from(tree.get_with(&entry.path, |value| value == entry.value())? != Some(true));
            }
            bar.inc(batch.len() as u64);
        }
        bar.finish_and_clear();
        Ok(lost)
    }

    /// Loads the entries that the child did not reach.
    fn finish(&self, output: &mut Output, tree: &Files, entries: &[Entry]) -> Outcome {
        let (started, before) = (Instant::now(), tree.len()?);
        for entry in entries {
            interrupt::check("the demo is not finished")?;
            if let Err(present) = tree.try_insert(&entry.path, &entry.value()) {
                present.into_present()?;
            }
        }
        let (added, took) = (grouped(tree.len()? - before), seconds(started.elapsed()));
        tell(output, format_args!("the other {added} loaded in {took}"))
    }

    fn conclude(&self, output: &mut Output, report: &Report, scratch: &Scratch) -> Outcome {
        let (acknowledged, entries) = (grouped(report.acknowledged), grouped(report.entries));
        output.line("")?;
        output.line(match report.lost {
            0 => format!("nothing lost: all {acknowledged} acknowledged entries were there, and {entries} are there now"),
            lost => format!("LOST: {} of {acknowledged} acknowledged entries are missing", grouped(lost)),
        })?;
        if self.keep {
            let path = scratch.path().display();
            output.line(format_args!("the pool is kept: try `bristlecone scan {path} {TREE} --limit 10`"))?;
        }
        Ok(())
    }
}

/// Prints progress for people.
fn tell(output: &mut Output, line: impl std::fmt::Display) -> Outcome {
    if output.json() {
        return Ok(());
    }
    output.line(line)?;
    output.finish()
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}
