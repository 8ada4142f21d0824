//! The preset `bank`: several threads make transfers among accounts, while another one sums snapshots; then a process
//! that makes transfers is killed, and its store is reopened and summed.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bristlecone::Domain;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_random::Generator;
use clap::Args;
use serde_json::{Value, json};

use super::kept::Kept;
use super::ledger::Ledger;
use crate::bench::competitor::Competitor;
use crate::bench::report::median;
use crate::bench::rivals::Refused;
use crate::bench::run;

/// Initial balance of each account.
const EACH: u64 = 1000;
/// Upper limit of a transfer, exclusive.
const AMOUNT: u64 = 100;
/// Minimum time between two sums.
const PAUSE: Duration = Duration::from_millis(20);
/// Number of transfers between two lines of output of a process that will be killed.
const TOLD: u64 = 64;
/// Running time of such a process.
const ALIVE: Duration = Duration::from_millis(300);

/// The sizes of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Accounts.
    pub accounts: u64,
    /// Number of transfers of all threads.
    pub transfers: u64,
    /// Number of threads that make them.
    pub threads: usize,
    /// Number of kills.
    pub kills: u32,
    /// The seed of transfers.
    pub seed: u64,
}

/// Results of one store in one round.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Transfers per second.
    pub rate: f64,
    /// Commits that failed because of other threads' changes.
    pub conflicts: u64,
    /// Number of sums, of snapshots and of reopened stores.
    pub sums: u64,
    /// Number of sums that differ from the initial total.
    pub wrong: u64,
    /// Transfers that killed processes had acknowledged.
    pub before_kills: u64,
    /// Seconds to open the store and sum it after a kill.
    pub reopened: Vec<f64>,
}

impl Sizes {
    fn is_right(&self, (count, sum): (u64, u64)) -> bool {
        (count, sum) == (self.accounts, self.accounts * EACH)
    }

    /// Runs one round on a store.
    ///
    /// # Errors
    ///
    /// Those of the store, and of processes.
    pub fn round(&self, store: &Kept, number: u64) -> Outcome<Round> {
        let mut round = Round::default();
        let ledger = store.create()?;
        let failed = |error| store.failed(error);
        ledger.load(&mut (0..self.accounts).map(|account| (account, EACH))).map_err(failed)?;
        self.transfer(&*ledger, number, &mut round).map_err(failed)?;
        drop(ledger);
        for _ in 0..self.kills {
            interrupt::check("the bench is not finished")?;
            round.before_kills += self.kill(store, number)?;
            let begun = Instant::now();
            let ledger = store.open()?;
            self.note(ledger.sum().map_err(failed)?, &mut round);
            round.reopened.push(begun.elapsed().as_secs_f64());
        }
        Ok(round)
    }

    fn note(&self, sum: (u64, u64), round: &mut Round) {
        round.sums += 1;
        round.wrong += u64::from(!self.is_right(sum));
    }

    /// Makes the transfers, and sums meanwhile.
    fn transfer(&self, ledger: &dyn Ledger, number: u64, round: &mut Round) -> Refused<()> {
        let (over, refused, done) = (AtomicBool::new(false), Mutex::new(None), AtomicU64::new(0));
        let (barrier, processors) = (Barrier::new(self.threads + 1), run::processors());
        let fail = |error| {
            refused.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        };
        let before = ledger.conflicts();
        let mut seconds = 0.0;
        std::thread::scope(|scope| {
            let movers: Vec<_> = (0..self.threads as u64)
                .map(|thread| {
                    let (barrier, processors, fail, done) = (&barrier, &processors, &fail, &done);
                    scope.spawn(move || {
                        run::pin(processors.get(thread as usize % processors.len().max(1)).copied());
                        let mut noise = Generator::new(self.seed ^ (number << 32 | thread << 16));
                        let share = self.transfers / self.threads as u64
                            + u64::from(thread < self.transfers % self.threads as u64);
                        barrier.wait();
                        for _ in 0..share {
                            match self.one(ledger, &mut noise) {
                                Ok(moved) => _ = done.fetch_add(u64::from(moved), Relaxed),
                                Err(error) => return fail(error),
                            }
                            if interrupt::asked() {
                                return;
                            }
                        }
                    })
                })
                .collect();
            let (over, fail) = (&over, &fail);
            let summer = scope.spawn(move || {
                let mut sums = Vec::new();
                loop {
                    let begun = Instant::now();
                    match ledger.sum() {
                        Ok(sum) => sums.push(sum),
                        Err(error) => fail(error),
                    }
                    if over.load(Relaxed) {
                        return sums;
                    }
                    // As long as a sum takes: at most half of one processor.
                    std::thread::park_timeout(PAUSE.max(begun.elapsed()));
                }
            });
            barrier.wait();
            let begun = Instant::now();
            let movers: Vec<_> = movers.into_iter().map(|mover| mover.join()).collect();
            seconds = begun.elapsed().as_secs_f64();
            over.store(true, Relaxed);
            summer.thread().unpark();
            for sum in summer.join().unwrap_or_default() {
                self.note(sum, round);
            }
            if movers.iter().any(Result::is_err) {
                fail("a thread that made transfers panicked".into());
            }
        });
        round.rate = done.into_inner() as f64 / seconds;
        round.conflicts = ledger.conflicts() - before;
        match refused.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Makes one transfer between two accounts.
    fn one(&self, ledger: &dyn Ledger, noise: &mut Generator) -> Refused<bool> {
        let from = noise.below(self.accounts);
        let to = (from + 1 + noise.below((self.accounts - 1).max(1))) % self.accounts;
        ledger.transfer(from, to, noise.below(AMOUNT))
    }

    /// Makes another process transfer, kills it, and returns the number of acknowledged transfers.
    fn kill(&self, store: &Kept, number: u64) -> Outcome<u64> {
        let io = |error: std::io::Error| Failure::io("the process that is to be killed", &error);
        let mut child = Command::new(std::env::current_exe().map_err(io)?)
            .arg("bank-victim")
            .args(store.arguments())
            .args(["--accounts", &self.accounts.to_string(), "--threads", &self.threads.to_string()])
            .args(["--seed", &(self.seed ^ number << 40).to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(io)?;
        let mut lines = BufReader::new(child.stdout.take().expect("it has a pipe")).lines();
        let opened = lines.next().transpose().map_err(io)?;
        std::thread::sleep(ALIVE);
        let still_there = child.try_wait().map_err(io)?.is_none();
        child.kill().and_then(|()| child.wait()).map_err(io)?;
        interrupt::check("the bench is not finished")?;
        if opened.as_deref() != Some("opened") || !still_there {
            return Err(store.failed("the process that was to be killed ended before"));
        }
        Ok(lines.map_while(Result::ok).filter(|line| line == "moved").count() as u64 * TOLD)
    }
}

/// Makes transfers until killed.
#[derive(Args, Debug)]
pub struct BankVictim {
    #[arg(long)]
    store: Competitor,
    #[arg(long)]
    domain: Domain,
    #[arg(long)]
    max_bytes: u64,
    #[arg(long)]
    path: PathBuf,
    #[arg(long)]
    accounts: u64,
    #[arg(long)]
    threads: usize,
    #[arg(long)]
    seed: u64,
}

impl BankVictim {
    /// Opens the store, reports it, and makes transfers.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub fn run(&self) -> Outcome {
        let store = Kept::there(self.store.clone(), self.domain, self.max_bytes, &self.path);
        let ledger = store.open()?;
        let Self { accounts, threads, seed, .. } = *self;
        let sizes = Sizes { accounts, transfers: 0, threads, kills: 0, seed };
        let tell = |line: &[u8]| {
            let mut out = std::io::stdout().lock();
            out.write_all(line).and_then(|()| out.flush())
        };
        tell(b"opened\n")?;
        // A parent that exits closes its pipe, and this ends after a while in any case.
        let (begun, ledger) = (Instant::now(), &*ledger);
        std::thread::scope(|scope| {
            for thread in 0..threads as u64 {
                scope.spawn(move || {
                    let mut noise = Generator::new(seed ^ thread << 16);
                    let mut one = || sizes.one(ledger, &mut noise).is_ok();
                    while !interrupt::asked()
                        && begun.elapsed() < Duration::from_secs(60)
                        && (0..TOLD).all(|_| one())
                        && tell(b"moved\n").is_ok()
                    {}
                });
            }
        });
        Err(Failure::new(Exit::Failed, "it was not killed".to_owned()))
    }
}

/// Returns the results of one store, as JSON.
pub fn json(store: &Kept, rounds: &[Round]) -> Value {
    let sum = |of: fn(&Round) -> u64| rounds.iter().map(of).sum::<u64>();
    let rates: Vec<f64> = rounds.iter().map(|round| round.rate).collect();
    let reopened: Vec<f64> = rounds.iter().flat_map(|round| round.reopened.clone()).collect();
    json!({
        "name": store.name(),
        "durability": store.durability(),
        "transfers_per_second": median(rates.clone()),
        "transfers_per_second_rounds": rates,
        "conflicts": sum(|round| round.conflicts),
        "sums_checked": sum(|round| round.sums),
        "sums_wrong": sum(|round| round.wrong),
        "total_is_constant": sum(|round| round.wrong) == 0,
        "kills": reopened.len(),
        "transfers_before_kills": sum(|round| round.before_kills),
        "reopen_and_sum_seconds": median(reopened),
    })
}
