//! How far explorations go.

/// How far an exploration goes.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Crash points that need at most this many runs are exhausted: one run stands for all images
    /// that differ only in lines that no recovery reads.
    pub exhaustive: u64,
    /// Of others, so many images are drawn beside the extremes.
    pub sampled: u64,
    /// Of each line, contents that are then tried alone; 0: not even nothing and everything.
    pub extremes: usize,
    /// Of more lines than this, which records of many lines have, only some are tried alone.
    pub lines: usize,
    /// The first two for crashes inside recovery.
    pub nested: (u64, u64),
    /// How many crashes in a row: 1 is a crash with an undisturbed recovery.
    pub depth: u32,
    /// One in so many continuations after a recovery crashes inside its last operation, too.
    pub continuation_crashes: u32,
    /// Images and continuations that are remembered, so that none is explored twice. When there is no more
    /// room for them, crash points are sampled.
    pub remembered: usize,
    /// What samples and continuations are drawn from.
    pub seed: u64,
    /// Workers.
    pub threads: usize,
}

impl Budget {
    /// Returns what a test run on few cores can afford.
    pub fn quick() -> Self {
        Self { depth: 2, threads: 2, ..Self::of(4096) }
    }

    /// Returns a budget in proportion to the runs that one crash point may take.
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
