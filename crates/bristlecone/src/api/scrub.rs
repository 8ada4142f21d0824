//! Scrubbing: reading the whole pool while it is in use, to find damage early.

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::time::{Duration, Instant};

use bristlecone_pm::{Error, Issue, Result, trace_span};

use crate::dynamic::{self, Dynamic};
use crate::index::parts::codec::{Any, Codec};
use crate::{Key, Pool, Value};

/// Options for scrubbing a pool. See [`Pool::scrub`].
#[derive(Default)]
pub struct ScrubOptions<'a> {
    bytes_per_second: Option<u64>,
    report: Option<Report<'a>>,
}

type Report<'a> = Box<dyn FnMut(ScrubProgress<'_>) -> ControlFlow<()> + Send + 'a>;

impl<'a> ScrubOptions<'a> {
    /// Returns options for a scrub without a rate limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of bytes of keys and values read per second. 0 means no limit.
    pub fn bytes_per_second(mut self, bytes: u64) -> Self {
        self.bytes_per_second = Some(bytes).filter(|bytes| *bytes > 0);
        self
    }

    /// Calls `report` several times per second. If it breaks, the scrub ends.
    pub fn on_progress(
        mut self,
        report: impl FnMut(ScrubProgress<'_>) -> ControlFlow<()> + Send + 'a,
    ) -> Self {
        self.report = Some(Box::new(report));
        self
    }
}

impl fmt::Debug for ScrubOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScrubOptions")
            .field("bytes_per_second", &self.bytes_per_second)
            .finish_non_exhaustive()
    }
}

/// Progress of a scrub.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ScrubProgress<'a> {
    /// The tree being read.
    pub tree: &'a str,
    /// Items of all trees read so far.
    pub items: u64,
    /// Items of all trees at the start of the scrub.
    pub items_all: u64,
}

/// Result of a scrub.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scrub {
    /// Number of items read.
    pub items: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The issues, for the pool itself or for the named tree.
    pub issues: Vec<(Option<String>, Issue)>,
    /// Whether everything was read; false if the scrub was ended early.
    pub is_complete: bool,
}

impl Pool {
    /// Reads every item of every tree, verifies checksums of records and types of items, and returns the issues. The
    /// call pauses only to keep to the rate, if one is set. A program that scrubs in the background should use a
    /// separate thread.
    ///
    /// Trees can be used during the scrub, but cannot be dropped while they are read. Concurrent writes may or may not
    /// be read. Words have no checksum; [`Tree::check`](crate::Tree::check) verifies the structure of nodes, but is exact only while no
    /// thread writes.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error); [`Error::Corrupted`](crate::Error) if the directory cannot be read. Other
    /// damage is reported as an issue.
    ///
    /// ```
    /// use bristlecone::ScrubOptions;
    /// # let pool = bristlecone::Pool::temporary()?;
    /// pool.tree::<u64, &str>("notes")?.insert(1, "oak")?;
    /// let scrub = pool.scrub(ScrubOptions::new().bytes_per_second(100 << 20))?;
    /// assert!(scrub.items == 1 && scrub.issues.is_empty() && scrub.is_complete);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn scrub(&self, options: ScrubOptions<'_>) -> Result<Scrub> {
        trace_span("a pool is scrubbed", (), || self.scrub_all(options))
    }

    fn scrub_all(&self, options: ScrubOptions<'_>) -> Result<Scrub> {
        self.0.file.here()?;
        let trees = self.trees()?;
        let issues = self.0.file.check().into_iter().map(|issue| (None, issue)).collect();
        let found = Scrub { items: 0, bytes: 0, issues, is_complete: true };
        let mut work = Work { options, found, items_all: 0, begun: Instant::now(), reported: Instant::now() };
        for entry in trees {
            let name = &entry.spec.name;
            match self.dynamic_tree(name) {
                Ok(tree) => work.tree(&tree),
                // Another thread dropped the tree.
                Err(Error::NoSuchTree { .. }) => {}
                Err(error @ Error::Forked { .. }) => return Err(error),
                Err(error) => work.find(name, "tree", &error),
            }
            if !work.found.is_complete {
                break;
            }
        }
        Ok(work.found)
    }
}

/// State of a running scrub.
struct Work<'a> {
    options: ScrubOptions<'a>,
    found: Scrub,
    items_all: u64,
    begun: Instant,
    reported: Instant,
}

/// Maximum length of a pause, which bounds the time until the scrub can end.
const BREAK: Duration = Duration::from_millis(50);
/// Interval between two progress reports.
const REPORTED_EVERY: Duration = Duration::from_millis(100);
/// Number of items between two readings of the clock.
const LOOK_EVERY: u64 = 64;

impl Work<'_> {
    fn tree(&mut self, tree: &dynamic::Tree) {
        self.items_all = self.found.items + tree.stats().map_or(0, |stats| stats.items);
        let name = tree.name();
        let (mut unfit_keys, mut unfit_values, mut from) = (0u64, 0u64, Bound::Unbounded);
        // Leaf by leaf: it continues after a damaged one.
        loop {
            let mut walk = tree.walk((from, Bound::Unbounded));
            for (key, value) in &mut walk {
                let bytes = Any::bytes(key.item()) + Any::bytes(value.item());
                unfit_keys += u64::from(Dynamic::show(&tree.keys, key.item(), |_| ()).is_none());
                unfit_values += u64::from(Dynamic::view(&tree.values, value.item(), |_| ()).is_none());
                if self.read(name, bytes as u64).is_break() {
                    self.found.is_complete = false;
                    return;
                }
            }
            let (at, damage) = walk.into_position();
            let Some(damage) = damage else { break };
            self.find(name, "record", &damage);
            match tree.walk((at, Bound::Unbounded)).lenient().into_next_leaf() {
                Some(behind) => from = behind,
                None => break,
            }
        }
        let (keys, values) = (tree.key_kind(), tree.value_kind());
        for (count, what, kind) in [(unfit_keys, "keys", keys), (unfit_values, "values", values)] {
            if count > 0 {
                let issue = Issue::new(what, format!("{count} of them are no {kind}"));
                self.found.issues.push((Some(name.to_owned()), issue));
            }
        }
    }

    fn find(&mut self, tree: &str, location: &str, error: &Error) {
        let issue = match error {
            Error::Corrupted { what, location } => Issue::new(location, what),
            error => Issue::new(location, error.to_string()),
        };
        self.found.issues.push((Some(tree.to_owned()), issue));
    }

    /// Counts an item, reports periodically, and pauses if the rate is too high.
    fn read(&mut self, tree: &str, bytes: u64) -> ControlFlow<()> {
        self.found.items += 1;
        self.found.bytes += bytes;
        if !self.found.items.is_multiple_of(LOOK_EVERY) {
            return ControlFlow::Continue(());
        }
        loop {
            if self.reported.elapsed() >= REPORTED_EVERY {
                self.reported = Instant::now();
                let progress = ScrubProgress { tree, items: self.found.items, items_all: self.items_all };
                if let Some(report) = &mut self.options.report {
                    report(progress)?;
                }
            }
            let Some(rate) = self.options.bytes_per_second else { break };
            let due = Duration::from_secs_f64(self.found.bytes as f64 / rate as f64);
            let early = due.saturating_sub(self.begun.elapsed());
            if early.is_zero() {
                break;
            }
            std::thread::sleep(early.min(BREAK));
        }
        ControlFlow::Continue(())
    }
}
