//! How much of what could be tried a run tries.

use std::fmt;
use std::io::Write;
use std::str::FromStr;

use crate::draw::seed;

/// How much a run tries: `BRISTLECONE_EFFORT`. What is asserted of each thing that is tried is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// What `cargo test --workspace` has minutes for.
    Quick,
    /// What is tried before a change goes in.
    Ci,
    /// What there is.
    Long,
}

impl Effort {
    /// Every effort, the least first.
    pub const ALL: [Self; 3] = [Self::Quick, Self::Ci, Self::Long];

    /// Returns the effort of this run: `BRISTLECONE_EFFORT`, or quick.
    ///
    /// # Panics
    ///
    /// If there is no effort of that name.
    pub fn of_run() -> Self {
        match std::env::var("BRISTLECONE_EFFORT") {
            Ok(name) => name.parse().unwrap_or_else(|error| panic!("BRISTLECONE_EFFORT: {error}")),
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

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Effort {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|effort| effort.name() == name);
        found.ok_or_else(|| {
            format!("there is no effort {name:?}, but {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// Returns the count that belongs to the effort of this run.
pub fn by_effort<T>(quick: T, ci: T, long: T) -> T {
    match Effort::of_run() {
        Effort::Quick => quick,
        Effort::Ci => ci,
        Effort::Long => long,
    }
}

/// Returns whether this run takes the thing of a number: a quick run takes one of so many, others each day.
pub fn in_share(number: usize, one_of: u64) -> bool {
    Effort::of_run() > Effort::Quick || (number as u64).wrapping_add(seed()).is_multiple_of(one_of)
}

/// Returns what this run takes of some things: a quick run one of so many, others each day, and one at least.
pub fn share<T>(all: impl IntoIterator<Item = T>, one_of: u64) -> Vec<T> {
    let all: Vec<T> = all.into_iter().collect();
    let one_of = one_of.min(all.len() as u64);
    let all = all.into_iter().enumerate();
    all.filter(|(number, _)| in_share(*number, one_of)).map(|(_, thing)| thing).collect()
}

/// Returns whether this run makes at least an effort; says what is left out if it does not.
pub fn takes(least: Effort, what: &str) -> bool {
    let takes = Effort::of_run() >= least;
    if !takes {
        tell(&format!("{what}: left out, as BRISTLECONE_EFFORT is below {least}"));
    }
    takes
}

/// Prints a line that is seen also of tests that pass.
pub fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effort_is_known_by_its_name_and_no_other() {
        for effort in Effort::ALL {
            assert_eq!(effort.to_string().parse(), Ok(effort));
        }
        assert_eq!(
            "fast".parse::<Effort>(),
            Err("there is no effort \"fast\", but quick, ci, long".to_owned())
        );
        assert!(Effort::ALL.is_sorted());
    }

    #[test]
    fn each_thing_is_in_the_share_of_some_day() {
        let taken = (0..12).filter(|number| in_share(*number, 4)).count();
        assert_eq!(taken, if Effort::of_run() == Effort::Quick { 3 } else { 12 });
    }

    #[test]
    fn a_run_takes_what_needs_no_more_than_its_effort() {
        let effort = Effort::of_run();
        let count = by_effort(0, 1, 2);
        assert_eq!(Effort::ALL[count], effort);
        assert!(takes(Effort::Quick, "everything") && takes(effort, "what is its own"));
        assert_eq!(takes(Effort::Long, "what takes hours"), effort == Effort::Long);
    }
}
