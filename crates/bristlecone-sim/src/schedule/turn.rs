//! Several simulated threads on one system thread, by turns.

use std::time::Duration;

use bristlecone_pm::wait::simulate_waiting;
use bristlecone_pm::{assume_thread_index, thread_index};
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};

use crate::image::Dice;
use crate::sim::{assume_thread, thread};

/// Numbers of simulated threads begin here, far from those of real ones.
const FIRST: u32 = 1 << 30;

/// What a trace calls the simulated thread that does the deeds of this number.
pub(super) fn number_of(doer: usize) -> u32 {
    FIRST + 1 + doer as u32
}

/// The calling thread is the simulated one of this number from now on.
pub(super) fn begin(number: usize) {
    assume_thread(Some(FIRST + number as u32));
    assume_thread_index(Some(number));
    simulate_waiting(Some(wait));
}

/// The calling thread is itself again.
pub(super) fn end() {
    assume_thread(None);
    assume_thread_index(None);
    simulate_waiting(None);
}

/// Lets any thread have the next turn.
pub(crate) fn offer() {
    as_before(|| shuttle::thread::sleep(Duration::ZERO));
}

/// Lets another thread have the next turn.
fn wait() {
    as_before(shuttle::thread::yield_now);
}

/// Others' turns change who the system thread stands for.
fn as_before(switch: impl FnOnce()) {
    let (number, index) = (thread(), thread_index());
    switch();
    assume_thread(Some(number));
    assume_thread_index(Some(index));
}

/// Goes on with the same thread for a while: how long is part of what is drawn, so that some
/// schedules have many changes and others one at the worst moment.
#[derive(Debug)]
pub(super) struct Sticky {
    dice: Dice,
    /// At a turn, one in so many changes the thread.
    changes: usize,
    over: bool,
}

impl Sticky {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let changes = [1, 3, 10, 30][dice.roll(4)];
        Self { dice, changes, over: false }
    }
}

impl Scheduler for Sticky {
    fn new_execution(&mut self) -> Option<Schedule> {
        (!std::mem::replace(&mut self.over, true)).then(|| Schedule::new(0))
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, waits: bool) -> Option<TaskId> {
        let current = current.filter(|current| runnable.iter().any(|task| task.id() == *current));
        if let Some(current) = current.filter(|_| !waits && self.dice.roll(self.changes) != 0) {
            return Some(current);
        }
        let others: Vec<_> =
            runnable.iter().map(|task| task.id()).filter(|id| Some(*id) != current).collect();
        if others.is_empty() || !waits && self.dice.roll(others.len() + 1) == 0 {
            return current.or(others.first().copied());
        }
        Some(others[self.dice.roll(others.len())])
    }

    fn next_u64(&mut self) -> u64 {
        self.dice.next()
    }
}
