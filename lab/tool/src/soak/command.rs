//! The command: draws seeds, collects results, and minimises failures.

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::Output;
use clap::Args;
use serde_json::json;

use super::handle::Driver;
use super::minimise::{Minimiser, TRIES};
use super::order::{Failed, Flaw, Ran};
use super::round::Limits;
use super::tally::Tally;
use crate::bench::run::processors;

/// Interval of progress reports.
const A_LINE_EACH: Duration = Duration::from_secs(60);

/// Repeatedly kill writing processes and check the recovered pool, until stopped or something fails
///
/// Each round draws from its seed: a design with options, the kinds of keys and values, a domain, the sizes of the
/// pool and of its file (some are soon full), the kinds of operations and the distribution of keys, the number of
/// threads, and the ends of a few lives of one pool. In each life a process opens the pool, compares all of it, and
/// operates on it until it is killed with SIGKILL: after a number of acknowledgements, or some time after it began
/// to create or open the pool, to compare, or to operate. Some lives end with a clean close, some only read.
#[derive(Args, Debug)]
#[command(after_help = "\
What is compared: before each write, a thread records the new state of the key in memory that outlives the process; \
after it, that the write was acknowledged. After a kill, each key must be in its acknowledged or its recorded state, \
and the same in a scan forwards, a scan backwards and by get. `check` of the pool and its trees must find nothing. \
Each write must return the value that was there before. Readers of all keys must see values that were written, never \
older than a value acknowledged or seen before, and must see every key that is never removed. A panic, an abort, an \
error other than a lack of space where there may be one, and a worker that hangs are failures.

Caches survive a kill: a store that reached them counts as durable, even if its flush is missing. Flushes are the \
subject of `bristlecone-lab crash`.

A failure leaves the pool and, in JSON, the states of its keys. Then the round is made smaller as long as it fails, \
and the line that repeats it is printed. Threads and kills never occur twice in the same order, so a failed round may \
pass the next time: --repeat runs it again.")]
pub struct Soak {
    /// Stop after this many minutes [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    minutes: Option<u64>,
    /// Stop after the rounds of this many seeds.
    #[arg(long, value_name = "N", conflicts_with = "minutes", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Seed of the first round; each further round has its successor [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// Run each round this many times.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    repeat: u64,
    #[command(flatten)]
    limits: Limits,
    /// Number of rounds at the same time [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Directory of the pools [default: /dev/shm, or the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Introduce an error on purpose, to test its detection.
    #[arg(long, hide = true)]
    flaw: Option<Flaw>,
}

/// State shared by the threads that run drivers.
struct Jobs<'a> {
    soak: &'a Soak,
    directory: &'a Path,
    first: u64,
    /// Number of the next round.
    next: AtomicU64,
    is_over: AtomicBool,
}

impl Soak {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let directory = self.directory()?;
        let first = self.seed.unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
        let mut tally = Tally::new();
        let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let jobs = Jobs { soak: self, directory: &directory, first, next, is_over };
        let (sender, results) = channel();
        let failed = std::thread::scope(|scope| {
            for number in 0..self.jobs.map_or_else(|| processors().len().max(1), usize::from) {
                let (jobs, sender) = (&jobs, sender.clone());
                scope.spawn(move || jobs.work(number, &sender));
            }
            drop(sender);
            let failed = self.collect(&results, &mut tally, output);
            jobs.is_over.store(true, Relaxed);
            failed
        })?;
        if let Some((seed, failed)) = failed {
            self.report(seed, &failed, &directory, output)?;
            tally.report("failed", output)?;
            return Err(Failure::Shown(Exit::Failed));
        }
        if interrupt::asked() {
            let seed = first.wrapping_add(jobs.next.load(Relaxed) / self.repeat);
            tally.report(&format!("no failure; --seed {seed} goes on"), output)?;
            return Err(Failure::Shown(Exit::Interrupted));
        }
        tally.report("no failure", output)
    }

    fn directory(&self) -> Outcome<PathBuf> {
        let own = || {
            let memory = Path::new("/dev/shm");
            if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
        };
        let directory = self.dir.clone().unwrap_or_else(own);
        if !directory.is_dir() {
            let what = format!("--dir {}: there is no such directory", directory.display());
            return Err(Failure::usage(what));
        }
        Ok(directory)
    }

    /// Collects the results of rounds until one fails, or there are no more; returns the failure.
    fn collect(
        &self,
        results: &Receiver<Outcome<Ran>>,
        tally: &mut Tally,
        output: &mut Output,
    ) -> Outcome<Option<(u64, Failed)>> {
        let started = Instant::now();
        let end = self.minutes.map(|minutes| started + Duration::from_secs(60 * minutes));
        let mut reported = started;
        loop {
            match results.recv_timeout(Duration::from_millis(100)) {
                Ok(ran) => {
                    let mut ran = ran?;
                    let failure = ran.failure.take();
                    let seed = ran.seed;
                    tally.add(ran);
                    if let Some(failed) = failure {
                        return Ok(Some((seed, failed)));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
            if interrupt::asked() || end.is_some_and(|end| Instant::now() >= end) {
                return Ok(None);
            }
            if reported.elapsed() >= A_LINE_EACH {
                reported = Instant::now();
                tally.report("no failure so far", output)?;
            }
        }
    }

    /// Reports a failure, and searches for a smaller one.
    fn report(&self, seed: u64, failed: &Failed, directory: &Path, output: &mut Output) -> Outcome {
        let Failed { what, life, round, pool } = failed;
        let kept = pool.as_ref().map(|pool| (pool, pool.with_extension("json")));
        if !output.json() {
            output.line(format_args!("FAILED in life {life} of the round of seed {seed}: {what}"))?;
            output.line(format_args!("  {round}"))?;
            if let Some((pool, model)) = &kept {
                let (pool, model) = (pool.display(), model.display());
                output.line(format_args!("  the pool as it is now: {pool}; what is due: {model}"))?;
            }
            output.finish()?;
        }
        let mut driver = Driver::start(directory, usize::MAX)?;
        let smallest = Minimiser::new(&mut driver, seed, self.flaw).run(&self.limits)?;
        let limits = smallest.as_ref().map_or(&self.limits, |smallest| &smallest.limits);
        let flaw = self.flaw.map(|flaw| format!(" --flaw {}", flaw.name())).unwrap_or_default();
        let again = format!("bristlecone-lab soak --seed {seed} --rounds 1 --repeat {TRIES}{limits}{flaw}");
        let found = match &smallest {
            Some(smallest) => format!("the smallest that failed, with: {}", smallest.what),
            None => format!("it did not fail again in {TRIES} tries"),
        };
        let value = json!({
            "failure": what, "seed": seed, "life": life, "round": round, "pool": pool,
            "is_repeated": smallest.is_some(), "again": again,
        });
        output.either(&value, format_args!("  {found}\n  again: {again}"))
    }
}

impl Jobs<'_> {
    /// Runs rounds until there are no more, or the run is over.
    fn work(&self, number: usize, to: &Sender<Outcome<Ran>>) {
        let mut driver = match Driver::start(self.directory, number) {
            Ok(driver) => driver,
            // Without a receiver the run is over anyway, here and below.
            Err(failure) => return drop(to.send(Err(failure))),
        };
        let Soak { limits, flaw, repeat, rounds, .. } = self.soak;
        while !self.is_over.load(Relaxed) && !interrupt::asked() {
            let round = self.next.fetch_add(1, Relaxed) / repeat;
            if rounds.is_some_and(|rounds| round >= rounds) {
                return;
            }
            let ran = driver.run(self.first.wrapping_add(round), limits, *flaw, true);
            let is_over = ran.is_err();
            if to.send(ran).is_err() || is_over {
                return;
            }
        }
    }
}
