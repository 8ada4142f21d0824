//! The test level of a run.

use std::fmt;
use std::io::Write;
use std::str::FromStr;

use crate::sampling::seed;

/// Number of configurations that a run tries: `BRISTLECONE_TEST_LEVEL`. The assertions are the same at
/// every level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestLevel {
    /// As much as `cargo test --workspace` can run in minutes.
    Quick,
    /// As much as is tried before a change is merged.
    Ci,
    /// Everything.
    Long,
}

impl TestLevel {
    /// Every level, in ascending order.
    pub const ALL: [Self; 3] = [Self::Quick, Self::Ci, Self::Long];

    /// Returns the level of this run: `BRISTLECONE_TEST_LEVEL`, or quick.
    ///
    /// # Panics
    ///
    /// If there is no level of that name.
    pub fn of_run() -> Self {
        match std::env::var("BRISTLECONE_TEST_LEVEL") {
            Ok(name) => name.parse().unwrap_or_else(|error| panic!("BRISTLECONE_TEST_LEVEL: {error}")),
            Err(_) => Self::Quick,
        }
    }

    /// Returns the name, as in the variable.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Ci => "ci",
            Self::Long => "long",
        }
    }
}

impl fmt::Display for TestLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for TestLevel {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|level| level.name() == name);
        found.ok_or_else(|| {
            format!("there is no level {name:?}, but {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// Returns the count for the level of this run.
pub fn by_level<T>(quick: T, ci: T, long: T) -> T {
    match TestLevel::of_run() {
        TestLevel::Quick => quick,
        TestLevel::Ci => ci,
        TestLevel::Long => long,
    }
}

/// Returns whether this run takes item `number`: a quick run takes one of `one_of`, different ones
/// each day.
pub fn in_share(number: usize, one_of: u64) -> bool {
    TestLevel::of_run() > TestLevel::Quick || (number as u64).wrapping_add(seed()).is_multiple_of(one_of)
}

/// Returns the items that this run takes: in a quick run one of `one_of`, different ones each day,
/// and at least one.
pub fn share<T>(all: impl IntoIterator<Item = T>, one_of: u64) -> Vec<T> {
    let all: Vec<T> = all.into_iter().collect();
    let one_of = one_of.min(all.len() as u64);
    let all = all.into_iter().enumerate();
    all.filter(|(number, _)| in_share(*number, one_of)).map(|(_, thing)| thing).collect()
}

/// Returns whether this run has at least this level; prints the omission if it does not.
pub fn takes(least: TestLevel, what: &str) -> bool {
    let takes = TestLevel::of_run() >= least;
    if !takes {
        tell(&format!("{what}: left out, as BRISTLECONE_TEST_LEVEL is below {least}"));
    }
    takes
}

/// Prints a line that is visible also for tests that pass.
pub fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effort_is_known_by_its_name_and_no_other() {
        for level in TestLevel::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert_eq!(
            "fast".parse::<TestLevel>(),
            Err("there is no level \"fast\", but quick, ci, long".to_owned())
        );
        assert!(TestLevel::ALL.is_sorted());
    }

    #[test]
    fn each_thing_is_in_the_share_of_some_day() {
        let taken = (0..12).filter(|number| in_share(*number, 4)).count();
        assert_eq!(taken, if TestLevel::of_run() == TestLevel::Quick { 3 } else { 12 });
    }

    #[test]
    fn a_run_takes_what_needs_no_more_than_its_effort() {
        let level = TestLevel::of_run();
        let count = by_level(0, 1, 2);
        assert_eq!(TestLevel::ALL[count], level);
        assert!(takes(TestLevel::Quick, "everything") && takes(level, "what is its own"));
        assert_eq!(takes(TestLevel::Long, "what takes hours"), level == TestLevel::Long);
    }
}
