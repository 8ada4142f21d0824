//! Steps that tests leave out, to show that something notices.

/// A step that a test leaves out on its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests leave anything out"))]
pub enum Mutation {
    /// The checksum of a manifest is not compared.
    ManifestUnchecked,
    /// The checksum of a block is not compared.
    BlockUnchecked,
    /// The generation of a block is not compared.
    GenerationUnchecked,
    /// A hole in the journal counts as its end.
    HoleIsEnd,
    /// The end of a checkpoint need not be reached.
    CheckpointEndUnchecked,
    /// Entries leave the ring before they are in a segment.
    FreedBeforeWritten,
    /// A write is acknowledged before the sync.
    AcknowledgedBeforeSync,
    /// A kill's incomplete entries are left out.
    IntentsIgnored,
    /// A restored pool writes on behind the last block.
    SegmentContinued,
}

#[cfg(test)]
thread_local! {
    static MUTATION: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Returns whether this step is left out.
#[cfg(test)]
pub fn is_mutated(step: Mutation) -> bool {
    MUTATION.get() == Some(step)
}

/// Returns `false`.
#[cfg(not(test))]
#[inline(always)]
pub fn is_mutated(_: Mutation) -> bool {
    false
}

/// Leaves a step out while `run` runs.
#[cfg(test)]
pub fn without<T>(step: Option<Mutation>, run: impl FnOnce() -> T) -> T {
    MUTATION.set(step);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    MUTATION.set(None);
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
