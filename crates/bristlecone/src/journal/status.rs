//! The state of a journal that is open, in this process or in another one.
//!
//! The writer publishes figures in the header of the ring, where other processes find them: see `docs/format.md`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

use bristlecone_pm::{Error, Result, SharedWords};

use super::cursor::JournalCursor;
use super::manifest::Manifest;
use super::{Durability, Journal};
use crate::Pool;

/// Words of the ring's header.
const DURABILITY: usize = 128;
const INTERVAL: usize = 129;
const DURABLE: usize = 130;
const CHECKPOINT: usize = 131;
const SEGMENT_BYTES: usize = 132;
const FAILED: usize = 133;
const OPENINGS: usize = 134;
const COUNT: usize = 136;
const NANOS: usize = 137;
const MAX: usize = 138;
const HISTOGRAM: usize = 144;
/// Number of powers of two: the last one is half an hour in nanoseconds, and includes all longer times.
const POWERS: usize = 42;
/// There is no checkpoint.
const NONE: u64 = u64::MAX;

/// The state of a journal: see [`Pool::journal_status`] and [`JournalFiles::status`](crate::JournalFiles::status).
///
/// LSNs count the bytes of all entries since the creation of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalStatus {
    /// The folder of the journal.
    pub folder: PathBuf,
    /// When a write returns. `None`: no process has published it since the last clean close.
    pub durability: Option<Durability>,
    /// LSN behind the last entry.
    pub lsn: u64,
    /// LSN up to which entries are durable.
    pub durable_lsn: u64,
    /// LSN of the oldest entry that is kept: a [stream](Pool::changes) can begin there.
    pub oldest_lsn: u64,
    /// LSN of the begin of the last checkpoint.
    pub checkpoint_lsn: Option<u64>,
    /// Bytes of entries since the begin of the last checkpoint, or since the creation of the pool.
    pub bytes_since_checkpoint: u64,
    /// Bytes of the files that hold these entries, including unused space.
    pub segment_bytes: u64,
    /// Whether a write or sync has failed. All later writes return [`Error::DurabilityLost`].
    pub failed: bool,
    /// Syncs of segments since the pool was opened.
    pub syncs: SyncTimes,
    /// Its cursors, by name.
    pub cursors: Vec<JournalCursor>,
}

/// Number and duration of syncs.
///
/// The percentiles come from a histogram of powers of two: they are upper limits, and less than twice the exact values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncTimes {
    /// Number of syncs. If it is 0, so are the durations.
    pub count: u64,
    /// Mean duration.
    pub mean: Duration,
    /// Limit of the duration of half of the syncs.
    pub p50: Duration,
    /// Limit of the duration of 99 % of the syncs.
    pub p99: Duration,
    /// Longest duration.
    pub max: Duration,
}

/// The figures of an open journal, in the header of its ring.
#[derive(Clone)]
pub struct Figures(Arc<dyn SharedWords>);

impl Figures {
    pub fn new(ring: Arc<dyn SharedWords>) -> Self {
        Self(ring)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.0.words()[at]
    }

    /// Replaces the figures of the last writer by those of a new one.
    pub fn begin(&self, durability: Durability, durable: u64) {
        self.end();
        let openings = self.word(OPENINGS).load(Relaxed);
        self.0.words()[DURABILITY + 1..HISTOGRAM + POWERS].iter().for_each(|word| word.store(0, Relaxed));
        self.word(OPENINGS).store(openings.wrapping_add(1), Release);
        self.word(DURABLE).store(durable, Relaxed);
        self.word(CHECKPOINT).store(NONE, Relaxed);
        self.publish(durability);
    }

    /// Records that a process writes, with a durability.
    pub fn publish(&self, durability: Durability) {
        let (code, interval) = match durability {
            Durability::Commit => (1, Duration::ZERO),
            Durability::Interval(time) => (2, time),
            Durability::Memory => (3, Duration::ZERO),
        };
        self.word(INTERVAL).store(nanoseconds(interval), Relaxed);
        self.word(DURABILITY).store(code, Release);
    }

    /// Records that no process writes.
    pub fn end(&self) {
        self.word(DURABILITY).store(0, Release);
    }

    /// Records which files there are.
    pub fn note_files(&self, manifest: &Manifest, segment_bytes: u64) {
        let begin = manifest.checkpoint.map_or(NONE, |checkpoint| checkpoint.begin);
        self.word(CHECKPOINT).store(begin, Relaxed);
        self.word(SEGMENT_BYTES).store(manifest.segments_to_replay() * segment_bytes, Relaxed);
    }

    /// Records a sync that made entries durable up to an LSN.
    pub fn note_sync(&self, took: Duration, durable: u64) {
        let nanos = nanoseconds(took);
        // Pairs with the readers of changes, of any process: the entries are in the file.
        self.word(DURABLE).store(durable, Release);
        self.word(NANOS).fetch_add(nanos, Relaxed);
        self.word(MAX).fetch_max(nanos, Relaxed);
        self.word(HISTOGRAM + power(nanos)).fetch_add(1, Relaxed);
        self.word(COUNT).fetch_add(1, Relaxed);
    }

    pub fn note_failure(&self) {
        self.word(FAILED).store(1, Relaxed);
    }

    /// Returns the LSN up to which entries are durable, and a number that differs after each opening; `None` if no process
    /// has published it.
    pub fn durable(&self) -> Option<(u64, u64)> {
        self.durability()?;
        // In this order: what a new process made durable is seen with its number.
        let durable = self.word(DURABLE).load(Acquire);
        Some((durable, self.word(OPENINGS).load(Acquire)))
    }

    /// Returns when a write returns; `None` if no process has published it.
    pub fn durability(&self) -> Option<Durability> {
        match self.word(DURABILITY).load(Acquire) {
            1 => Some(Durability::Commit),
            2 => Some(Durability::Interval(Duration::from_nanos(self.word(INTERVAL).load(Relaxed)))),
            3 => Some(Durability::Memory),
            _ => None,
        }
    }

    fn syncs(&self) -> SyncTimes {
        let word = |at: usize| self.word(at).load(Relaxed);
        let counts: [u64; POWERS] = std::array::from_fn(|power| word(HISTOGRAM + power));
        // Of a sync that is being recorded, any of the words may be missing.
        let (count, max) = (counts.iter().sum::<u64>(), word(MAX));
        if count == 0 {
            return SyncTimes::default();
        }
        let limit = |percent: u64| {
            let rank = (count * percent).div_ceil(100);
            let mut seen = 0;
            let reached = counts.iter().position(|some| {
                seen += some;
                seen >= rank
            });
            let nanos = reached.map_or(max, |power| (2 << power) - 1);
            Duration::from_nanos(nanos.min(max))
        };
        let mean = Duration::from_nanos(word(NANOS) / count);
        SyncTimes { count, mean, p50: limit(50), p99: limit(99), max: Duration::from_nanos(max) }
    }

    /// Returns the state, with the LSN behind the last entry.
    pub fn status(&self, folder: PathBuf, lsn: u64) -> JournalStatus {
        let checkpoint = Some(self.word(CHECKPOINT).load(Relaxed)).filter(|begin| *begin != NONE);
        let durable = self.word(DURABLE).load(Relaxed);
        let lsn = lsn.max(durable);
        JournalStatus {
            folder,
            durability: self.durability(),
            lsn,
            durable_lsn: durable,
            oldest_lsn: 0,
            checkpoint_lsn: checkpoint,
            bytes_since_checkpoint: lsn.saturating_sub(checkpoint.unwrap_or(0)),
            segment_bytes: self.word(SEGMENT_BYTES).load(Relaxed),
            failed: self.word(FAILED).load(Relaxed) != 0,
            syncs: self.syncs(),
            cursors: Vec::new(),
        }
    }
}

/// Returns the state of a journal that no process writes, which ends at an LSN.
pub fn of_files(folder: PathBuf, manifest: &Manifest, segment_bytes: u64, end: u64) -> JournalStatus {
    JournalStatus {
        folder,
        durability: None,
        lsn: end,
        durable_lsn: end,
        oldest_lsn: manifest.kept,
        checkpoint_lsn: manifest.checkpoint.map(|checkpoint| checkpoint.begin),
        bytes_since_checkpoint: end.saturating_sub(manifest.begin()),
        segment_bytes: manifest.segments_to_replay() * segment_bytes,
        failed: false,
        syncs: SyncTimes::default(),
        cursors: Vec::new(),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the power of two in the histogram.
fn power(nanos: u64) -> usize {
    (nanos.max(1).ilog2() as usize).min(POWERS - 1)
}

impl Pool {
    /// Returns the state of the pool's journal; `None` for a pool that does not write one: of another domain, open for
    /// reading, or followed.
    ///
    /// Takes no lock, and reads only the small files of the manifest and of cursors. Other threads may change the journal meanwhile, so the
    /// figures are not those of one instant.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::Error::Forked), and errors of the system from reading these files.
    ///
    /// ```
    /// use bristlecone::{Domain, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-status-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().domain(Domain::Journal).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Methuselah", 4857)?;
    /// let status = pool.journal_status()?.expect("the pool has a journal");
    /// assert_eq!(status.durable_lsn, status.lsn);
    /// assert!(status.syncs.count > 0);
    /// println!("a sync takes {:?}, at most {:?}", status.syncs.mean, status.syncs.max);
    /// # drop(ages);
    /// # pool.close()?;
    /// # std::fs::remove_file(&path).unwrap();
    /// # std::fs::remove_dir_all(format!("{path}.journal")).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn journal_status(&self) -> Result<Option<JournalStatus>> {
        self.0.file.here()?;
        self.0.journal.get().map(|journal| journal.status()).transpose()
    }
}

impl Journal {
    fn status(&self) -> Result<JournalStatus> {
        let durable = self.durable.load(Acquire);
        let status = self.figures.status(self.folder.clone(), self.ring.reserved());
        let durable_lsn = status.durable_lsn.max(durable);
        self.files()?.with_files(JournalStatus { durability: Some(self.durability), durable_lsn, ..status })
    }
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Commit => f.write_str("commit"),
            Self::Memory => f.write_str("memory"),
            Self::Interval(time) => {
                let nanos = time.as_nanos();
                let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
                match units.iter().find(|(_, unit)| nanos != 0 && nanos.is_multiple_of(*unit)) {
                    Some((name, unit)) => write!(f, "interval:{}{name}", nanos / unit),
                    None => write!(f, "interval:{nanos}ns"),
                }
            }
        }
    }
}

impl std::str::FromStr for Durability {
    type Err = Error;

    /// Parses `commit`, `memory`, or `interval:` with a time: `interval:100ms`, `interval:1.5s`, `interval:500us`.
    fn from_str(text: &str) -> Result<Self> {
        let interval = || {
            let time = text.strip_prefix("interval:")?;
            let at = time.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (number, unit) = time.split_at(at);
            let unit = match unit {
                "ns" => 1e-9,
                "us" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                _ => return None,
            };
            let time = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()?;
            Some(Self::Interval(time)).filter(|_| !time.is_zero())
        };
        match text {
            "commit" => Ok(Self::Commit),
            "memory" => Ok(Self::Memory),
            _ => interval().ok_or_else(|| {
                Error::invalid(format!(
                    "unknown durability {text:?}; expected commit, memory, or interval:TIME with a time above 0, such as \
                     interval:100ms"
                ))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::ring::file_bytes;
    use crate::journal::simulated::Memory;

    #[test]
    fn durabilities_round_trip_as_text() {
        let interval = |nanos| Durability::Interval(Duration::from_nanos(nanos));
        let all = [
            (Durability::Commit, "commit"),
            (Durability::Memory, "memory"),
            (interval(100_000_000), "interval:100ms"),
            (interval(2_000_000_000), "interval:2s"),
            (interval(1_500_000), "interval:1500us"),
            (interval(7), "interval:7ns"),
        ];
        for (durability, text) in all {
            assert_eq!(durability.to_string(), text);
            assert_eq!(text.parse::<Durability>().unwrap(), durability);
        }
        assert_eq!("interval:1.5s".parse::<Durability>().unwrap(), interval(1_500_000_000));
        for wrong in [
            "",
            "Commit",
            "interval",
            "interval:",
            "interval:100",
            "interval:ms",
            "interval:0ms",
            "interval:-1s",
            "interval:1h",
            "interval:1.2.3s",
            "interval:nans",
            "interval:99999999999999999999999s",
            "interval: 1s",
        ] {
            let error = wrong.parse::<Durability>().unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")) && error.contains("interval:100ms"), "{error}");
        }
    }

    #[test]
    fn times_of_syncs_are_counted_by_powers_of_two() {
        let figures = Figures::new(Arc::new(Memory::new(file_bytes(256))));
        figures.begin(Durability::Commit, 0);
        assert_eq!(figures.syncs(), SyncTimes::default());
        (0..98).for_each(|_| figures.note_sync(Duration::from_nanos(50_000), 8));
        figures.note_sync(Duration::from_nanos(1_000_000), 16);
        figures.note_sync(Duration::from_nanos(9_000_000), 24);
        let SyncTimes { count, mean, p50, p99, max } = figures.syncs();
        assert_eq!((count, mean), (100, Duration::from_nanos((98 * 50_000 + 10_000_000) / 100)));
        assert_eq!(p50, Duration::from_nanos((1 << 16) - 1));
        assert_eq!(p99, Duration::from_nanos((1 << 20) - 1));
        assert_eq!(max, Duration::from_nanos(9_000_000));
        // A limit is never above the longest time.
        figures.begin(Durability::Commit, 24);
        figures.note_sync(Duration::from_nanos(40), 32);
        assert_eq!(figures.syncs().p99, Duration::from_nanos(40));
    }

    #[test]
    fn no_time_is_outside_of_the_histogram() {
        assert_eq!([0, 1, 2, 3, 4].map(power), [0, 0, 1, 1, 2]);
        assert_eq!([1 << 41, u64::MAX].map(power), [POWERS - 1; 2]);
    }

    #[test]
    fn a_writer_replaces_all_figures_of_the_last_one() {
        let figures = Figures::new(Arc::new(Memory::new(file_bytes(256))));
        assert_eq!(figures.durability(), None);
        let interval = Durability::Interval(Duration::from_millis(100));
        figures.begin(interval, 40);
        figures.note_sync(Duration::from_micros(50), 80);
        figures.note_failure();
        let status = figures.status(PathBuf::from("f"), 96);
        assert_eq!((status.durability, status.lsn, status.durable_lsn), (Some(interval), 96, 80));
        assert_eq!((status.failed, status.checkpoint_lsn, status.bytes_since_checkpoint), (true, None, 96));
        figures.begin(Durability::Memory, 96);
        let status = figures.status(PathBuf::from("f"), 96);
        assert_eq!((status.durability, status.durable_lsn), (Some(Durability::Memory), 96));
        assert_eq!((status.failed, status.syncs), (false, SyncTimes::default()));
        figures.end();
        assert_eq!(figures.durability(), None);
    }
}
