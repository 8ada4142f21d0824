//! How many threads write to the device at the same time: from a thread's first flush to the end of its fence.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Picoseconds.
type Time = u64;

/// Threads that write, and for how long so many did.
#[derive(Default)]
pub(super) struct Writing {
    active: usize,
    at: Time,
    /// When threads stop that write still.
    ends: BinaryHeap<Reverse<Time>>,
    /// How long as many wrote as the place says.
    spent: Vec<Time>,
}

impl Writing {
    /// Notes that a thread begins to write. Times of calls do not decrease.
    pub fn begin(&mut self, time: Time) {
        self.advance(time);
        self.active += 1;
    }

    /// Notes that a thread that writes will stop then.
    pub fn end(&mut self, time: Time) {
        self.ends.push(Reverse(time));
    }

    /// Returns for which share of the time how many wrote, from none on, and begins anew.
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
