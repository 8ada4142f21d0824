//! Results of an exploration.

pub(crate) mod case;
pub(crate) mod describe;
pub(crate) mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::model::mode::Mode;
use crate::model::trace::Sites;
use bristlecone_pm::Step;

/// The outcome of exploring one scenario.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// Number of explored crash points.
    pub crash_points: u64,
    /// The total number of images of these, at most 2^64.
    pub covered: u64,
    /// Decided images: opened, or equal to an opened one in every word that its recovery, its checks and its
    /// continuation read. For crash points with more than 10^6 images, the visited ones.
    pub images: u64,
    /// Decided images of crashes inside a recovery.
    pub nested_images: u64,
    /// Images that were recovered and passed through all checks.
    pub opened: u64,
    /// Recovered structures on which operations continued and crashed again.
    pub continuations: u64,
    /// Opened images of these crashes.
    pub reopened: u64,
    /// Crash points whose images were sampled.
    pub truncated_points: u64,
    /// Crash points by the number of earlier crashes: the first entry has none, the next are inside a recovery.
    pub depths: Vec<Depth>,
    /// Crash points inside the last operation of continuations.
    pub in_continuations: Depth,
    /// Sampled crash points for which no more images could be remembered.
    pub points_beyond_memory: u64,
    /// Number of executed schedules of several threads.
    pub schedules: u64,
    /// Publishes of one thread of a schedule, by name, during another one's operation; and named steps in DRAM
    /// that a thread reached while others ran.
    pub raced: BTreeMap<Step, u64>,
    /// Pairs of named steps of two threads, where the second came during the operation of the first.
    pub pairs: BTreeSet<(Step, Step)>,
    /// The sites that the trace and its recoveries passed.
    pub sites: Sites,
    /// Whether the mutation of the run had any effect.
    pub mutated: bool,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// Failures, at most one per worker.
    pub failures: Vec<Failure>,
}

/// Number of crash points of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depth {
    /// Total number.
    pub points: u64,
    /// Number whose images were sampled.
    pub sampled: u64,
}

impl Depth {
    /// Counts one more.
    pub(crate) fn count(&mut self, is_decided: bool) {
        self.merge(Self { points: 1, sampled: u64::from(!is_decided) });
    }

    fn merge(&mut self, other: Self) {
        self.points += other.points;
        self.sampled += other.sampled;
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.sampled, self.points)
    }
}

/// A crash that the structure did not survive.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The scenario.
    pub scenario: String,
    /// The crash model.
    pub mode: Mode,
    /// The crash, and those inside its recovery.
    pub crashes: Vec<Crash>,
    /// Description of the failure.
    pub what: String,
    /// The number of the schedule, if several threads ran.
    pub schedule: Option<u64>,
}

/// One crash on the way to a failure.
#[derive(Debug, Clone)]
pub struct Crash {
    /// The interrupted activity: the operation, or recovery.
    pub during: String,
    /// Number of events so far, which is also the number of the next one.
    pub event: usize,
    /// The first event that did not happen.
    pub next: String,
    /// Descriptions of the contents that dirty lines kept.
    pub kept: Vec<String>,
    /// Numbers of the contents, for lines that kept anything.
    pub choices: Vec<Choice>,
}

/// The choice of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The line.
    pub line: u32,
    /// The index of its contents.
    pub contents: usize,
}

impl Report {
    /// Counts a crash point, given the number of crashes including its own.
    pub(crate) fn decided(&mut self, depth: usize, is_decided: bool) {
        self.truncated_points += u64::from(!is_decided);
        let depths = self.depths.len().max(depth);
        self.depths.resize(depths, Depth::default());
        self.depths[depth - 1].count(is_decided);
    }

    /// Returns whether every image of every crash point was decided, including those inside recoveries. Crashes
    /// of continuations and of schedules are always samples, and are additional.
    pub fn is_decided(&self) -> bool {
        !self.interrupted && self.depths.iter().all(|depth| depth.sampled == 0)
    }

    /// Describes for each depth the number of sampled crash points.
    pub fn sampled(&self) -> String {
        let depths = self.depths.iter().zip(1..);
        let mut parts: Vec<_> =
            depths.map(|(points, depth)| format!("{points} points at depth {depth}")).collect();
        if self.in_continuations.points > 0 {
            parts.push(format!("{} inside continuations", self.in_continuations));
        }
        parts.join(", ")
    }

    /// Adds the results of another worker or scenario.
    pub fn merge(&mut self, other: Report) {
        self.crash_points += other.crash_points;
        self.covered = self.covered.saturating_add(other.covered);
        self.images += other.images;
        self.opened += other.opened;
        self.nested_images += other.nested_images;
        self.continuations += other.continuations;
        self.reopened += other.reopened;
        self.schedules += other.schedules;
        other.raced.into_iter().for_each(|(step, times)| *self.raced.entry(step).or_default() += times);
        self.pairs.extend(other.pairs);
        self.points_beyond_memory += other.points_beyond_memory;
        self.interrupted |= other.interrupted;
        self.truncated_points += other.truncated_points;
        let depths = self.depths.len().max(other.depths.len());
        self.depths.resize(depths, Depth::default());
        self.depths.iter_mut().zip(other.depths).for_each(|(depth, more)| depth.merge(more));
        self.in_continuations.merge(other.in_continuations);
        self.sites.merge(&other.sites);
        self.mutated |= other.mutated;
        self.failures.extend(other.failures);
    }

    /// Fails a test, and prints everything.
    ///
    /// # Panics
    ///
    /// If there are failures.
    pub fn assert_clean(&self) {
        assert!(self.failures.is_empty(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} crash points, {:.2e} possible images, {} decided ({} in recovery) by opening {}, {} continuations ({} opened)",
            self.scenario,
            self.crash_points,
            self.covered as f64,
            self.images + self.nested_images,
            self.nested_images,
            self.opened,
            self.continuations,
            self.reopened
        )?;
        if !self.depths.is_empty() {
            write!(f, ", sampled: {}", self.sampled())?;
        }
        if self.schedules > 0 {
            write!(f, ", {} schedules", self.schedules)?;
        }
        self.failures.iter().try_for_each(|failure| write!(f, "\n{failure}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "FAILED {} ({}): {}", self.scenario, self.mode, self.what)?;
        if let Some(number) = self.schedule {
            writeln!(f, "  in schedule {number}")?;
        }
        for crash in &self.crashes {
            writeln!(f, "  crash in {} at event {}, before {}", crash.during, crash.event, crash.next)?;
            for line in &crash.kept {
                writeln!(f, "    {line}")?;
            }
        }
        Ok(())
    }
}
