//! The process that forks workers, kills them, and makes others verify the pool.
//!
//! It does not open pools itself: pools cannot be used after a fork. It has one thread, so that a child may call
//! any function.

use std::io::{BufRead, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_matrix::{Items, Visit};
use clap::Args;
use rustix::process::{Signal, WaitStatus};

use super::board::{Board, Phase};
use super::life::{Life, draft};
use super::order::{Failed, Order, Ran};
use super::process::{Child, clear, share};
use super::round::{End, Round};
use super::worker::Worker;

/// A worker without progress for this long hangs, unless one of its threads is in an uninterruptible wait of the
/// system. Beyond a longer time it counts as hanging in any case.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_WITH_THE_SYSTEM: Duration = Duration::from_secs(600);
/// Interval of checks of a worker. More frequent checks would use more of the processor than the worker itself.
const GLANCE: Duration = Duration::from_micros(150);

/// Runs rounds given on standard input, and reports each on standard output
#[derive(Args, Debug)]
pub struct SoakDriver;

impl SoakDriver {
    pub fn run(&self) -> Outcome {
        let failed = |error| Failure::io("running a round", &error);
        let malformed = |error| Failure::new(Exit::BadInput, format!("an order: {error}"));
        let board = share().map_err(failed)?;
        let mut output = std::io::stdout();
        for line in std::io::stdin().lock().lines() {
            let order: Order = serde_json::from_str(&line.map_err(failed)?).map_err(malformed)?;
            let ran = run_round(&order, board).map_err(failed)?;
            writeln!(output, "{}", serde_json::json!(ran))?;
            output.flush()?;
        }
        Ok(())
    }
}

fn run_round(order: &Order, board: &'static Board) -> std::io::Result<Ran> {
    let round = Round::of(order.seed, &order.limits);
    let mut ran = Ran { seed: order.seed, cell: round.cell.to_string(), ..Ran::default() };
    clear(board);
    remove(&order.pool);
    for (life, &end) in round.lives.iter().enumerate() {
        let one = Life { round: &round, board, path: &order.pool, number: life, end, flaw: order.flaw };
        match live(&one)? {
            Lived::Killed => {
                ran.kills += 1;
                ran.kills_in_opening += u64::from(board.phase() < Phase::Comparing);
            }
            Lived::ByItself => {}
            Lived::Failed(what) => {
                let pool = if order.keep { Some(keep(order, &round, board)?) } else { None };
                ran.failure = Some(Failed { what, life, round: round.to_string(), pool });
                break;
            }
        }
    }
    (ran.acknowledged, ran.refused) = (board.acknowledged.load(Relaxed), board.refused.load(Relaxed));
    (ran.reopens, ran.keys_compared) = (board.compared.load(Relaxed), board.keys_compared.load(Relaxed));
    remove(&order.pool);
    Ok(ran)
}

/// The end of a life.
enum Lived {
    Killed,
    ByItself,
    Failed(String),
}

/// Runs a worker until its end.
fn live(life: &Life<'_>) -> std::io::Result<Lived> {
    struct Run<'a>(&'a Life<'a>);
    impl Visit for Run<'_> {
        fn visit<I: Items>(self) {
            Worker { life: self.0 }.run::<I>();
        }
    }
    let board = life.board;
    board.enter(Phase::Begun);
    let child = Child::fork(|| life.round.cell.codec.visit(Run(life)))?;
    let watched = watch(&child, board, life.end)?;
    let status = match watched {
        Watched::Due | Watched::Hangs(_) => child.kill()?,
        Watched::Ended(status) => status,
    };
    let phase = board.phase();
    Ok(match (board.failure(), watched) {
        (Some(what), _) => Lived::Failed(what),
        (None, Watched::Hangs(threads)) => Lived::Failed(format!("a worker hangs, {phase:?}: {threads:?}")),
        (None, Watched::Due) if status.terminating_signal() == Some(Signal::KILL.as_raw()) => Lived::Killed,
        // It may have ended just before it was killed.
        (None, _) if status.exit_status() == Some(0) => Lived::ByItself,
        _ => Lived::Failed(format!("a worker ended with {status:?}, {phase:?}")),
    })
}

/// The reason why a worker need not be watched any longer.
enum Watched {
    /// It is due to be killed.
    Due,
    /// It hangs; the states of its threads.
    Hangs(Vec<(char, String)>),
    Ended(WaitStatus),
}

/// Waits until a worker is due to be killed, ends, or hangs.
fn watch(child: &Child, board: &Board, end: End) -> std::io::Result<Watched> {
    let at = || (board.phase(), board.acknowledged.load(Relaxed));
    let (_, first) = at();
    let (mut last, mut moved) = (at(), Instant::now());
    let mut entered: Option<Instant> = None;
    let mut patience = PATIENCE;
    loop {
        let now @ (phase, acknowledged) = at();
        let mut pause = GLANCE;
        let is_due = match end {
            End::After(awaited, time) if phase >= awaited => {
                let left = time.saturating_sub(entered.get_or_insert_with(Instant::now).elapsed());
                pause = pause.min(left);
                left.is_zero()
            }
            End::Acknowledged(number) => acknowledged - first >= number || phase == Phase::Done,
            _ => false,
        };
        if is_due || board.failure().is_some() {
            return Ok(Watched::Due);
        }
        if let Some(status) = child.ended()? {
            return Ok(Watched::Ended(status));
        }
        if now != last {
            (last, moved) = (now, Instant::now());
        }
        if moved.elapsed() > patience {
            let threads = child.threads();
            let waits = threads.iter().any(|(state, _)| *state == 'D');
            if !waits || patience == PATIENCE_WITH_THE_SYSTEM {
                return Ok(Watched::Hangs(threads));
            }
            patience = PATIENCE_WITH_THE_SYSTEM;
        }
        std::thread::sleep(pause);
    }
}

/// Moves the pool away from other rounds, with the model beside it; returns its path.
fn keep(order: &Order, round: &Round, board: &Board) -> std::io::Result<PathBuf> {
    let kept = order.pool.with_file_name(format!("bristlecone-soak-failed-{}.pool", order.seed));
    let model = board.model(round.keys, |key| round.number(key));
    std::fs::write(kept.with_extension("json"), format!("{model:#}\n"))?;
    match std::fs::rename(&order.pool, &kept) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(kept),
    }
}

/// Removes a pool, if there is one.
pub fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
    let _ = std::fs::remove_file(draft(path));
}
