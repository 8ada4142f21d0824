//! Limits of explorations.

/// Limits of an exploration.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Crash points that need at most this many runs are exhausted: one run covers all images that differ
    /// only in lines that no recovery reads.
    pub exhaustive: u64,
    /// Number of random images of the other crash points, in addition to the extremes.
    pub sampled: u64,
    /// Number of contents of each line that are then tried alone; 0: not even nothing and everything.
    pub extremes: usize,
    /// If there are more lines than this, as in records of many lines, only some are tried alone.
    pub lines: usize,
    /// The first two for crashes inside recovery.
    pub nested: (u64, u64),
    /// Maximum number of nested crashes: 1 is a crash with an undisturbed recovery.
    pub depth: u32,
    /// One in this many continuations after a recovery also crashes inside its last operation.
    pub continuation_crashes: u32,
    /// Maximum number of remembered images and continuations, so that none is explored twice. When it is
    /// reached, crash points are sampled.
    pub remembered: usize,
    /// Seed of samples and continuations.
    pub seed: u64,
    /// Number of workers.
    pub threads: usize,
}

impl Budget {
    /// Returns an affordable budget for a test run on few cores.
    pub fn quick() -> Self {
        Self { depth: 2, threads: 2, ..Self::of(4096) }
    }

    /// Returns a budget in proportion to the number of runs of one crash point.
    pub fn of(runs: u64) -> Self {
        let root = runs.isqrt().max(1);
        Self {
            exhaustive: runs,
            sampled: (runs / 8).max(1),
            extremes: 64,
            lines: 512,
            nested: (4 * root, root),
            depth: 2,
            continuation_crashes: if runs < 100_000 { 32 } else { 1 },
            remembered: 8 << 20,
            seed: 0,
            threads: 1,
        }
    }
}
