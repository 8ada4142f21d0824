//! What a thread has begun and does not wait for: stores in its store buffer, and lines on their way to its caches.

use std::collections::VecDeque;

use super::Time;

/// Stores in order, each with the time at which it takes effect.
#[derive(Default)]
pub(super) struct StoreBuffer {
    ends: VecDeque<Time>,
    last: Time,
}

impl StoreBuffer {
    /// Adds a store whose line arrives at `arrives`. Returns when the thread continues: immediately, unless `most` stores
    /// wait.
    pub fn push(&mut self, now: Time, arrives: Time, most: usize) -> Time {
        self.last = self.last.max(arrives);
        while self.ends.front().is_some_and(|end| *end <= now) {
            self.ends.pop_front();
        }
        if self.last > now {
            self.ends.push_back(self.last);
        }
        match self.ends.len() > most {
            true => self.ends.pop_front().unwrap_or(now),
            false => now,
        }
    }

    /// Returns when the last store takes effect.
    pub fn ends(&self) -> Time {
        self.last
    }
}

/// Lines on their way, and when they arrive.
#[derive(Default)]
pub(super) struct Fills(Vec<(u32, Time)>);

impl Fills {
    /// Returns when a line arrives, if it is on its way at `now`.
    #[inline]
    pub fn arrival(&mut self, line: u32, now: Time) -> Option<Time> {
        if self.0.is_empty() {
            return None;
        }
        self.0.retain(|(_, arrives)| *arrives > now);
        self.0.iter().find(|(other, _)| *other == line).map(|(_, arrives)| *arrives)
    }

    /// Returns when one of `most` buffers is free.
    pub fn free_at(&mut self, now: Time, most: usize) -> Time {
        self.0.retain(|(_, arrives)| *arrives > now);
        if self.0.len() < most {
            return now;
        }
        self.0.iter().map(|(_, arrives)| *arrives).min().unwrap_or(now)
    }

    /// Adds a line.
    pub fn push(&mut self, line: u32, arrives: Time) {
        self.0.push((line, arrives));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_takes_effect_after_those_before_it_and_a_full_buffer_waits() {
        let mut stores = StoreBuffer::default();
        assert_eq!(stores.push(10, 100, 2), 10);
        assert_eq!(stores.push(11, 12, 2), 11);
        assert_eq!(stores.ends(), 100, "behind the slow one");
        assert_eq!(stores.push(12, 13, 2), 100, "both places are taken");
        assert_eq!(stores.push(101, 0, 2), 101);
    }

    #[test]
    fn a_line_on_its_way_is_waited_for_and_a_full_set_of_buffers_too() {
        let mut fills = Fills::default();
        fills.push(7, 50);
        fills.push(8, 40);
        assert_eq!((fills.arrival(7, 10), fills.arrival(9, 10)), (Some(50), None));
        assert_eq!((fills.free_at(10, 3), fills.free_at(10, 2)), (10, 40));
        assert_eq!((fills.arrival(8, 45), fills.arrival(7, 50)), (None, None));
    }
}
