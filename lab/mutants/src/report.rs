//! Results of the mutants, by file.

use std::collections::BTreeMap;
use std::fmt;

use crate::explained::Explained;
use crate::mutant::Mutant;
use crate::results::{Line, Outcome};

/// Counts of a file, or of all files.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    mutants: usize,
    killed: usize,
    timed_out: usize,
    survived: usize,
    unreached: usize,
    explained: usize,
    not_run: usize,
}

/// Results of the mutants.
#[derive(Debug, Default)]
pub struct Report<'m> {
    files: BTreeMap<&'m str, Counts>,
    /// Neither detected nor explained.
    unnoticed: Vec<(&'m Mutant, Outcome)>,
    /// Explanations that match no mutant, or one that a test detects.
    stale: Vec<String>,
}

impl<'m> Report<'m> {
    /// Counts the selected mutants. `all` are those that an explanation may match.
    pub fn of(
        chosen: &[&'m Mutant],
        all: &[&'m Mutant],
        lines: &BTreeMap<String, Line>,
        explained: &[Explained],
    ) -> Self {
        let mut report = Self::default();
        let mut chosen = chosen.to_vec();
        chosen.sort_by_key(|mutant| mutant.id);
        for mutant in chosen {
            let counts = report.files.entry(&mutant.file).or_default();
            counts.mutants += 1;
            let Some(line) = lines.get(&mutant.key()) else {
                counts.not_run += 1;
                continue;
            };
            let is_explained = explained.iter().any(|entry| entry.is_of(mutant));
            match line.outcome {
                Outcome::Killed => counts.killed += 1,
                Outcome::TimedOut => counts.timed_out += 1,
                _ if is_explained => counts.explained += 1,
                Outcome::Survived => counts.survived += 1,
                Outcome::Unreached => counts.unreached += 1,
            }
            if !line.outcome.is_noticed() && !is_explained {
                report.unnoticed.push((mutant, line.outcome));
            }
        }
        for entry in explained {
            let about = || all.iter().filter(|mutant| entry.is_of(mutant));
            let noticed =
                |mutant: &&&Mutant| lines.get(&mutant.key()).is_some_and(|line| line.outcome.is_noticed());
            let why = match about().count() {
                0 => "no such mutant",
                _ if about().all(|mutant| noticed(&mutant)) => "a test notices it",
                _ => continue,
            };
            report.stale.push(format!("{}: `{}` {}: {why}", entry.file, entry.line, entry.kind));
        }
        report
    }

    /// Returns whether every executed mutant was detected or is explained, and no explanation is
    /// stale.
    pub fn is_clean(&self) -> bool {
        self.unnoticed.is_empty() && self.stale.is_empty()
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.mutants += other.mutants;
        self.killed += other.killed;
        self.timed_out += other.timed_out;
        self.survived += other.survived;
        self.unreached += other.unreached;
        self.explained += other.explained;
        self.not_run += other.not_run;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mutants, killed, timed_out, survived, unreached, explained, not_run } = self;
        write!(
            f,
            "{mutants:>8} {killed:>8} {timed_out:>9} {survived:>9} {unreached:>10} {explained:>10} {not_run:>8}"
        )
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut total = Counts::default();
        let heads = ["mutants", "killed", "timed out", "survived", "unreached", "explained", "not run"];
        let [a, b, c, d, e, g, h] = heads;
        writeln!(f, "{:<52} {a:>8} {b:>8} {c:>9} {d:>9} {e:>10} {g:>10} {h:>8}", "file")?;
        for (file, counts) in &self.files {
            writeln!(f, "{file:<52} {counts}")?;
            total.add(counts);
        }
        writeln!(f, "{:<52} {total}", "all")?;
        let noticed = total.killed + total.timed_out;
        let counted = noticed + total.survived + total.unreached;
        if counted > 0 {
            let percent = 100.0 * noticed as f64 / counted as f64;
            writeln!(f, "{noticed} of {counted} noticed ({percent:.1} %), explained ones not counted")?;
        }
        for (mutant, outcome) in &self.unnoticed {
            let outcome = if *outcome == Outcome::Survived { "SURVIVED " } else { "UNREACHED" };
            writeln!(f, "{outcome} {mutant}")?;
        }
        for entry in &self.stale {
            writeln!(f, "STALE explanation: {entry}")?;
        }
        Ok(())
    }
}
