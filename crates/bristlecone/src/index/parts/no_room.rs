//! Handling of writes that find no space, in every design.

use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use bristlecone_pm::sync::epoch::pin;
use bristlecone_pm::sync::wait::{self, is_simulated};
use bristlecone_pm::{Error, Medium, Records, Result, trace_slow};

use super::optimistic_lock::pause;

/// Maximum number of rounds to end epochs, enough to work off a backlog of half a million releases of other trees.
const ROUNDS: u32 = 1024;
/// Number of retries of a write that finds no space.
const RETRIES: u32 = 3;
/// Number of rounds between two pauses for threads in the middle of an operation.
const ROUNDS_A_MOMENT: u32 = 16;
/// Length of a pause in the second half: a thread preempted in the middle of an operation runs again within a few
/// of them.
const LONG_MOMENT: Duration = Duration::from_micros(500);

/// Ends epochs for a tree whose writes find no space.
#[derive(Debug, Default)]
pub struct Epochs(Mutex<Futile<u64>>);

impl Epochs {
    /// Ends epochs until there may be space for another record; returns whether there may be. The caller must not
    /// be pinned.
    pub fn free_retired<M: Medium>(&self, records: [&Records<M>; 2]) -> bool {
        records.iter().any(|records| records.has_released())
            || self.end(&|| records.iter().map(|records| records.held()).sum())
    }

    /// Runs a write, which pins by itself. If it finds no space, the memory that threads have `released` or that
    /// is still `held` may become free when epochs end: the write then runs again, a few times.
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

    /// Ends epochs until less is `held` than before, so that the next write can use the space; returns whether
    /// this succeeded. The caller must not be pinned. A thread that stays pinned, or keeps its retired memory to
    /// itself, is waited for only briefly, and not again by each write.
    #[cold]
    pub fn end(&self, held: &dyn Fn() -> u64) -> bool {
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
        let ended = trace_slow("a write waits for room", || (0..rounds).any(round_ends));
        if waits || ended {
            wait::lock(&self.0).remember((!ended).then_some(before));
        }
        ended
    }
}

/// The state after an unsuccessful search for space, and the number of searches skipped since: another search in
/// the same state would also be unsuccessful.
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

/// Number of searches that are skipped before one runs even though the state seems unchanged.
const SPARED: u32 = 256;

impl<S: PartialEq> Futile<S> {
    /// Returns whether to search.
    pub fn is_past(&mut self, state: S) -> bool {
        self.spared += 1;
        self.state.as_ref() != Some(&state) || self.spared > SPARED
    }

    /// Records the state of an unsuccessful search; `None` after a successful one.
    pub fn remember(&mut self, state: Option<S>) {
        *self = Self { state, spared: 0 };
    }
}
