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
    /// The name of the manifest that a killed process left is not synced.
    NamesUnsynced,
    /// The file of a cursor is not synced when it advances.
    CursorUnsynced,
    /// A checkpoint does not sync what it read of cursors.
    CursorsUnsynced,
    /// A new cursor does not read the manifest again.
    CursorUnchecked,
    /// A checkpoint does not list the cursors again.
    CursorsListedOnce,
    /// A restored pool writes on behind the last block.
    SegmentContinued,
    /// A file of an archive has its name before it is synced.
    NamedBeforeSynced,
    /// A file of an archive is written under its name.
    WrittenUnderName,
    /// What an archive has is not compared with what was to be written.
    CopyUncompared,
    /// A copied checkpoint is not compared with its checksum.
    CheckpointUncompared,
    /// The catalog is overwritten.
    CatalogInPlace,
    /// The catalog names a piece before the piece has its name.
    CatalogBeforeFiles,
    /// The cursor of an archive moves before the catalog has the entries.
    CursorBeforeCatalog,
    /// The next archiver does not sync the name of the catalog.
    CatalogNameUnsynced,
    /// Files are removed before a catalog without them is durable.
    RemovedBeforeCatalog,
    /// An archiver continues in spite of another timeline.
    FenceIgnored,
    /// The checksum of a catalog is not compared.
    CatalogUnchecked,
    /// A restore does not compare files with the checksums of the catalog.
    RestoreUnchecked,
    /// Entries beyond the cursor of an archive are not compared.
    EntriesUncompared,
    /// An archive that is behind its cursor counts as whole.
    OlderArchiveTaken,
    /// A standby takes over in spite of another one.
    ClaimReplaces,
    /// A standby that is ahead of a new timeline follows it.
    ForkIgnored,
    /// The state does not say what is about to be applied.
    ApplyingUnnoted,
    /// The identity of the timeline that a copy begins is not noted first.
    OwnUnnoted,
    /// Pages that another kernel had count as whole.
    BootIgnored,
    /// The file of a standby that another process replaced counts as its own.
    InodeIgnored,
    /// A standby that is filled again gets another identity.
    CopyRenumbered,
    /// A catalog is not compared with what was to be written.
    CatalogUncompared,
    /// A journal that is not finished is opened.
    UnfinishedOpened,
    /// A restored pool has its name before its journal.
    NamedBeforeJournal,
}

/// A place in the life of an entry where a test kills the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "only tests kill"))]
pub enum Point {
    /// Its LSN is reserved.
    Reserved,
    /// It is stored as an intent.
    Intended,
    /// Its changes are applied.
    Applied,
    /// It is complete.
    Complete,
}

/// Dies here if a test wants it.
#[inline(always)]
pub fn reached(point: Point) {
    let _ = point;
    #[cfg(test)]
    if POINT.get().is_some_and(|(wanted, _)| wanted == point) {
        let after = POINT.get().map_or(0, |(_, after)| after);
        POINT.set(after.checked_sub(1).map(|after| (point, after)));
        assert!(after > 0, "killed at {point:?}");
    }
}

#[cfg(test)]
thread_local! {
    static POINT: std::cell::Cell<Option<(Point, usize)>> = const { std::cell::Cell::new(None) };
}

/// Kills the thread when it reaches a point after it has passed it the given number of times.
#[cfg(test)]
pub fn kill_at(point: Option<(Point, usize)>) {
    POINT.set(point);
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
