//! Minimises a failed round while it still fails.

use std::time::{Duration, Instant};

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::interrupt;

use super::handle::Driver;
use super::order::Flaw;
use super::round::{Kind, Limits, Round};

/// Number of passes after which a round counts as not failing.
pub const TRIES: u64 = 20;
/// Number of failures among these that suffices, so that a smaller round does not fail much less
/// often.
const FAILURES: usize = 3;
/// Maximum duration of the search.
const PATIENCE: Duration = Duration::from_secs(60);

/// The smallest round that failed.
pub struct Smallest {
    pub limits: Limits,
    /// The failure in it.
    pub what: String,
}

/// Repeats rounds of one seed.
pub struct Minimiser<'a> {
    driver: &'a mut Driver,
    seed: u64,
    flaw: Option<Flaw>,
    until: Instant,
}

impl<'a> Minimiser<'a> {
    pub fn new(driver: &'a mut Driver, seed: u64, flaw: Option<Flaw>) -> Self {
        Self { driver, seed, flaw, until: Instant::now() + PATIENCE }
    }

    /// Minimises the round as long as it fails; `None` if it did not fail again unchanged.
    pub fn run(mut self, limits: &Limits) -> Outcome<Option<Smallest>> {
        let failures = self.failures(limits, FAILURES)?;
        let wanted = failures.len();
        let Some(what) = failures.into_iter().next() else { return Ok(None) };
        let mut smallest = Smallest { limits: limits.clone(), what };
        loop {
            let mut is_smaller = false;
            // Each candidate is smaller in one way than the smallest failing round.
            for way in WAYS {
                for limits in way(&smallest.limits, &Round::of(self.seed, &smallest.limits)) {
                    let mut failures = self.failures(&limits, wanted)?;
                    if failures.len() == wanted {
                        smallest = Smallest { limits, what: failures.swap_remove(0) };
                        is_smaller = true;
                        break;
                    }
                }
            }
            if !is_smaller {
                return Ok(Some(smallest));
            }
        }
    }

    /// Returns the failures of some tries, which end after `wanted` failures.
    fn failures(&mut self, limits: &Limits, wanted: usize) -> Outcome<Vec<String>> {
        let mut failures = Vec::new();
        for _ in 0..TRIES {
            if failures.len() == wanted || interrupt::asked() || Instant::now() > self.until {
                break;
            }
            let ran = self.driver.run(self.seed, limits, self.flaw, false)?;
            failures.extend(ran.failure.map(|failed| failed.what));
        }
        Ok(failures)
    }
}

/// Returns limits that are tighter in one way, the tightest first.
type Way = fn(&Limits, &Round) -> Vec<Limits>;

const WAYS: [Way; 5] = [
    |limits, round| {
        let lives = fewer(round.lives.len() as u64 - 1);
        lives.map(|lives| Limits { lives: Some(lives), ..limits.clone() }).collect()
    },
    |limits, round| {
        fewer(round.threads).map(|threads| Limits { threads: Some(threads), ..limits.clone() }).collect()
    },
    |limits, round| {
        let all = &round.kinds;
        let alone = all.iter().map(|kind| vec![*kind]);
        let without = |left: &Kind| all.iter().copied().filter(|kind| kind != left).collect::<Vec<_>>();
        let fewer = alone.chain(all.iter().map(without)).filter(|_| all.len() > 1);
        fewer.map(|only| Limits { only, ..limits.clone() }).collect()
    },
    |limits, round| {
        let operations = fewer(round.operations);
        operations.map(|operations| Limits { operations: Some(operations), ..limits.clone() }).collect()
    },
    |limits, round| {
        fewer(round.keys as u64).map(|keys| Limits { keys: Some(keys), ..limits.clone() }).collect()
    },
];

/// Returns smaller numbers, from 1 on.
fn fewer(number: u64) -> impl Iterator<Item = u64> {
    let smaller = [1, number / 8, number / 2, number - number / 4, number - 1];
    let mut last = 0;
    smaller
        .into_iter()
        .filter(move |&one| one > last && one < number && std::mem::replace(&mut last, one) < one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimise_fewer_gives_rising_smaller_numbers() {
        assert_eq!(fewer(1).count(), 0);
        assert_eq!(fewer(2).collect::<Vec<_>>(), [1]);
        assert_eq!(fewer(4).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(fewer(100).collect::<Vec<_>>(), [1, 12, 50, 75, 99]);
    }
}
