//! Metrics of an open pool.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bristlecone_pm::{Error, Part, Result};

use crate::index::part_of;
use crate::{Key, Pool, Tree, Value};

/// Usage and cost of a pool since this process opened it. See [`Pool::metrics`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Tree operations by kind; `None` without the feature `metrics`.
    pub operations: Option<Operations>,
    /// Flushed lines, including those that would be flushed in a domain that requires it; `None` without the feature
    /// `metrics`.
    pub flushes: Option<u64>,
    /// Fences; `None` without the feature `metrics`.
    pub fences: Option<u64>,
    /// Number of node splits.
    pub splits: u64,
    /// Number of chunks allocated to trees.
    pub chunks_taken: u64,
    /// Time spent allocating them: growth of the file, and its page faults.
    pub growth_time: Duration,
    /// Number of trees opened and recovered.
    pub recoveries: u64,
    /// Time spent recovering them.
    pub recovery_time: Duration,
    /// Bytes of the chunks that hold logs of trees.
    pub log_bytes: u64,
    /// Number of committed batches and transactions.
    pub commits: u64,
    /// Number of attempts that met a conflict, at a lookup or at the commit. A transaction then retries; a batch
    /// fails.
    pub conflicts: u64,
    /// Approximate bytes of DRAM kept for snapshots.
    pub snapshot_bytes: u64,
}

/// Operations of all trees of a pool, without those of batches and transactions. A multi-key call counts once per
/// key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operations {
    /// Lookups of one key.
    pub gets: u64,
    /// Scans of any length.
    pub scans: u64,
    /// `insert`, `try_insert` and `update`.
    pub inserts: u64,
    /// `upsert`.
    pub upserts: u64,
    /// `remove`.
    pub removes: u64,
    /// `compare_and_swap`, and each attempt of the operations built on it.
    pub swaps: u64,
}

/// A kind of operation.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "metrics"), allow(dead_code, reason = "nothing is counted then"))]
pub(crate) enum Operation {
    Get,
    Scan,
    Insert,
    Upsert,
    Remove,
    Swap,
}

/// Counters of a pool.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    recoveries: AtomicU64,
    recovery_nanos: AtomicU64,
    commits: AtomicU64,
    conflicts: AtomicU64,
    #[cfg(feature = "metrics")]
    operations: bristlecone_pm::Counts<6>,
}

impl Meters {
    /// Recovers a tree, and records the duration.
    pub fn recovery<T>(&self, recover: impl FnOnce() -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let recovered = recover()?;
        self.recoveries.fetch_add(1, Relaxed);
        self.recovery_nanos.fetch_add(begun.elapsed().as_nanos() as u64, Relaxed);
        Ok(recovered)
    }

    /// Records the outcome of an attempt to commit.
    pub fn note_commit(&self, ended: &Result<()>) {
        match ended {
            Ok(()) => _ = self.commits.fetch_add(1, Relaxed),
            Err(Error::Conflict) => _ = self.conflicts.fetch_add(1, Relaxed),
            Err(_) => {}
        }
    }

    #[cfg(feature = "metrics")]
    fn operations(&self) -> Option<Operations> {
        let sum = |operation: Operation| self.operations.sum(operation as usize);
        Some(Operations {
            gets: sum(Operation::Get),
            scans: sum(Operation::Scan),
            inserts: sum(Operation::Insert),
            upserts: sum(Operation::Upsert),
            removes: sum(Operation::Remove),
            swaps: sum(Operation::Swap),
        })
    }

    #[cfg(not(feature = "metrics"))]
    fn operations(&self) -> Option<Operations> {
        None
    }
}

impl<K: Key, V: Value> Tree<K, V> {
    /// Counts an operation, with the feature `metrics`.
    #[inline(always)]
    #[cfg_attr(not(feature = "metrics"), allow(unused_variables, reason = "nothing is counted then"))]
    pub(crate) fn count_one(&self, operation: Operation) {
        self.count_many(operation, 1);
    }

    /// Counts an operation on `keys` keys, with the feature `metrics`.
    #[inline(always)]
    #[cfg_attr(not(feature = "metrics"), allow(unused_variables, reason = "nothing is counted then"))]
    pub(crate) fn count_many(&self, operation: Operation, keys: usize) {
        #[cfg(feature = "metrics")]
        self.pool.0.meters.operations.add(operation as usize, keys as u64);
    }
}

impl Pool {
    /// Returns metrics of the pool since this process opened it.
    ///
    /// Operations, flushes and fences are counted only with the feature `metrics`, because each count costs a few
    /// instructions. The other counters have no measurable cost. The call inspects each chunk of the pool.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`](crate::Error) if the directory cannot be read; [`Error::Forked`](crate::Error).
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let tree = pool.tree::<u64, u64>("numbers")?;
    /// (0..10_000).try_for_each(|number| tree.upsert(number, 0))?;
    /// let metrics = pool.metrics()?;
    /// assert!(metrics.splits > 100 && metrics.chunks_taken > 0);
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn metrics(&self) -> Result<Metrics> {
        let (file, meters) = (&self.0.file, &self.0.meters);
        let chunks = self.trees()?.into_iter().flat_map(|entry| file.chunks_of(entry.id));
        let logs = chunks.filter(|chunk| part_of(chunk.kind) == Some(Part::Log)).count() as u64;
        let (chunks_taken, growth_time) = file.events().growth();
        let counts = file.medium_counts();
        Ok(Metrics {
            operations: meters.operations(),
            flushes: counts.map(|[flushes, _]| flushes),
            fences: counts.map(|[_, fences]| fences),
            splits: file.events().splits(),
            chunks_taken,
            growth_time,
            recoveries: meters.recoveries.load(Relaxed),
            recovery_time: Duration::from_nanos(meters.recovery_nanos.load(Relaxed)),
            log_bytes: logs * file.info().chunk_bytes,
            commits: meters.commits.load(Relaxed),
            conflicts: meters.conflicts.load(Relaxed),
            snapshot_bytes: self.0.epochs.bytes() as u64,
        })
    }
}
