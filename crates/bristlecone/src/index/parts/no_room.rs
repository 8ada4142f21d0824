//! What a write that finds no room does about it, in every design.

use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use bristlecone_pm::sync::epoch::pin;
use bristlecone_pm::sync::wait::{self, is_simulated};
use bristlecone_pm::{Error, Medium, Records, Result, told_if_long};

use super::optimistic_lock::pause;

/// How often epochs are ended: a backlog of half a million releases of other trees is worked off by then.
const ROUNDS: u32 = 1024;
/// How often a write that finds no room is tried again.
const RETRIES: u32 = 3;
/// Rounds between two moments that threads amid an operation are given.
const ROUNDS_A_MOMENT: u32 = 16;
/// A moment of the second half: a thread that lost its processor amid an operation has it again within a few.
const LONG_MOMENT: Duration = Duration::from_micros(500);

/// Ends epochs for a tree whose writes find no room.
#[derive(Debug, Default)]
pub struct Epochs(Mutex<Futile<u64>>);

impl Epochs {
    /// Ends epochs until there may be room for another record; whether there may. The caller is not pinned.
    pub fn free_retired<M: Medium>(&self, records: [&Records<M>; 2]) -> bool {
        records.iter().any(|records| records.has_released())
            || self.end(|| records.iter().map(|records| records.held()).sum())
    }

    /// Runs a write, which pins for itself alone. If it finds no room, what threads have `released` may be room, or what is still
    /// `held` once epochs end: then the write runs again, a few times.
    #[inline(always)]
    pub fn with_room<R>(
        &self,
        released: impl Fn() -> bool,
        held: impl Fn() -> u64,
        mut write: impl FnMut() -> Result<R>,
    ) -> Result<R> {
        for _ in 0..RETRIES {
            let done = write();
            if !done.as_ref().is_err_and(Error::is_no_room) || !(released() || self.end(&held)) {
                return done;
            }
        }
        write()
    }

    /// Ends epochs until less is `held` than before, so that the next write can have the room; whether that came.
    /// The caller is not pinned. A thread that stays pinned, or keeps to itself what it has retired, is waited for
    /// a moment only, and not by each write anew.
    #[cold]
    pub fn end(&self, held: impl Fn() -> u64) -> bool {
        let before = held();
        if before == 0 {
            return false;
        }
        let waits = wait::lock(&self.0).is_past(before);
        let round_ends = |round| {
            pin().flush();
            if round % ROUNDS_A_MOMENT == ROUNDS_A_MOMENT - 1 {
                if round < ROUNDS / 2 || is_simulated() { pause(u32::MAX) } else { sleep(LONG_MOMENT) }
            }
            held() < before
        };
        let rounds = if waits { ROUNDS } else { ROUNDS_A_MOMENT - 1 };
        let ended = told_if_long("a write waits for room", || (0..rounds).any(round_ends));
        if waits || ended {
            wait::lock(&self.0).remember((!ended).then_some(before));
        }
        ended
    }
}

/// What stood when a search for room gave nothing, and how many were spared since: where nothing has changed,
/// another one would give nothing.
#[derive(Debug)]
pub struct Futile<S> {
    state: Option<S>,
    spared: u32,
}

impl<S> Default for Futile<S> {
    fn default() -> Self {
        Self { state: None, spared: 0 }
    }
}

/// Searches that are spared until one is made even where nothing seems to have changed.
const SPARED: u32 = 256;

impl<S: PartialEq> Futile<S> {
    /// Returns whether to search.
    pub fn is_past(&mut self, state: S) -> bool {
        self.spared += 1;
        self.state.as_ref() != Some(&state) || self.spared > SPARED
    }

    /// Remembers what a search gave nothing in; `None`: it gave something.
    pub fn remember(&mut self, state: Option<S>) {
        *self = Self { state, spared: 0 };
    }
}
