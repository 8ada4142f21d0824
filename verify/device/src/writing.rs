//! The number of threads that write to the device at the same time: from a thread's first flush to
//! the end of its fence.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Picoseconds.
type Time = u64;

/// Writing threads, and the time spent with each number of them.
#[derive(Default)]
pub(super) struct Writing {
    active: usize,
    at: Time,
    /// End times of the threads that are writing.
    ends: BinaryHeap<Reverse<Time>>,
    /// Time spent with as many writers as the index.
    spent: Vec<Time>,
}

impl Writing {
    /// Records that a thread begins to write. Times of calls must not decrease.
    pub fn begin(&mut self, time: Time) {
        self.advance(time);
        self.active += 1;
    }

    /// Records when a writing thread will stop.
    pub fn end(&mut self, time: Time) {
        self.ends.push(Reverse(time));
    }

    /// Returns the fraction of the time for each number of writers, from none on, and restarts.
    pub fn finish(&mut self, last: Time) -> Vec<f64> {
        self.advance(last);
        let all = self.spent.iter().sum::<Time>().max(1) as f64;
        let shares = self.spent.iter().map(|time| *time as f64 / all).collect();
        *self = Self::default();
        shares
    }

    fn advance(&mut self, to: Time) {
        while let Some(Reverse(end)) = self.ends.peek().copied().filter(|Reverse(end)| *end <= to) {
            self.ends.pop();
            self.spend(end);
            self.active -= 1;
        }
        self.spend(to);
    }

    fn spend(&mut self, to: Time) {
        if self.spent.len() <= self.active {
            self.spent.resize(self.active + 1, 0);
        }
        self.spent[self.active] += to.saturating_sub(self.at);
        self.at = self.at.max(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_threads_are_counted_while_their_times_overlap() {
        let mut writing = Writing::default();
        writing.begin(10);
        writing.end(40);
        writing.begin(20);
        writing.end(30);
        writing.begin(60);
        writing.end(100);
        // None for 0-10 and 40-60, two for 20-30.
        assert_eq!(writing.finish(100), [0.3, 0.6, 0.1]);
        assert_eq!(writing.finish(8), [1.0], "and it begins anew");
    }
}
