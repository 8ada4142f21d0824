//! The journal of a pool: its options, syncs and checkpoints, and its state.

use std::ffi::{CStr, OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use bristlecone_rs::{Durability, PoolOptions};

use crate::argument::{Versioned, fill};
use crate::handle::enter;
use crate::pool::{OpenOptions, PoolHandle};
use crate::status::{BRISTLECONE_ABSENT, Failure, Outcome, call};

/// The default: `BRISTLECONE_DURABILITY_COMMIT`.
pub const BRISTLECONE_DURABILITY_DEFAULT: u32 = 0;
/// A write returns once it is on disk. Threads that wait share a sync.
pub const BRISTLECONE_DURABILITY_COMMIT: u32 = 1;
/// A write returns immediately. It survives the process, and after `interval_ms` and one sync a power failure.
pub const BRISTLECONE_DURABILITY_INTERVAL: u32 = 2;
/// A write returns immediately. It survives the process, and after `bristlecone_pool_sync` or a clean close a power
/// failure.
pub const BRISTLECONE_DURABILITY_MEMORY: u32 = 3;
/// The journal has no checkpoint.
pub const BRISTLECONE_NO_CHECKPOINT: u64 = u64::MAX;

/// The state of a pool's journal. Begin with `BRISTLECONE_JOURNAL_STATUS_INIT`.
///
/// LSNs count the bytes of all entries since the creation of the pool. The percentiles of the duration of syncs are upper
/// limits, less than twice the exact values.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct JournalStatus {
    /// Size of this struct in bytes.
    pub struct_bytes: usize,
    /// When a write returns: one of `BRISTLECONE_DURABILITY_…`, but for the default.
    pub durability: u32,
    /// With `BRISTLECONE_DURABILITY_INTERVAL`, the time in milliseconds, rounded up.
    pub interval_ms: u32,
    /// LSN behind the last entry.
    pub lsn: u64,
    /// LSN up to which entries are durable.
    pub durable_lsn: u64,
    /// LSN of the begin of the last checkpoint, or `BRISTLECONE_NO_CHECKPOINT`.
    pub checkpoint_lsn: u64,
    /// Bytes of entries since then, or since the creation of the pool.
    pub bytes_since_checkpoint: u64,
    /// Bytes of the files that hold these entries, including unused space.
    pub segment_bytes: u64,
    /// Number of syncs since the pool was opened.
    pub syncs: u64,
    /// Mean duration of a sync, in nanoseconds.
    pub sync_mean_ns: u64,
    /// Limit of the duration of half of the syncs.
    pub sync_p50_ns: u64,
    /// Limit of the duration of 99 % of the syncs.
    pub sync_p99_ns: u64,
    /// Longest duration.
    pub sync_max_ns: u64,
    /// Whether a write or sync has failed: all later writes return `BRISTLECONE_DURABILITY_LOST`.
    pub failed: i32,
    /// LSN of the oldest entry that is kept: a stream of changes can begin there.
    pub oldest_lsn: u64,
}

// SAFETY: numbers, and its size first.
unsafe impl Versioned for JournalStatus {}

/// Returns options with the journal that was asked for.
///
/// # Safety
///
/// The folder must be null, or a string that ends with a zero.
pub unsafe fn with_journal(how: PoolOptions, asked: &OpenOptions) -> Outcome<PoolOptions> {
    let interval = asked.interval_ms;
    let durability = match asked.durability {
        BRISTLECONE_DURABILITY_INTERVAL if interval == 0 => {
            return Err(Failure::usage("a durability interval of 0: set interval_ms"));
        }
        BRISTLECONE_DURABILITY_INTERVAL => Some(Durability::Interval(Duration::from_millis(interval.into()))),
        other if interval != 0 => {
            return Err(Failure::usage(format!(
                "interval_ms is {interval}, and the durability is {other}: it goes with BRISTLECONE_DURABILITY_INTERVAL"
            )));
        }
        BRISTLECONE_DURABILITY_DEFAULT => None,
        BRISTLECONE_DURABILITY_COMMIT => Some(Durability::Commit),
        BRISTLECONE_DURABILITY_MEMORY => Some(Durability::Memory),
        other => return Err(Failure::usage(format!("there is no durability {other}"))),
    };
    let how = durability.into_iter().fold(how, PoolOptions::durability);
    let limit = (asked.cursor_limit_bytes != 0).then_some(asked.cursor_limit_bytes);
    let how = limit.into_iter().fold(how, PoolOptions::cursor_limit_bytes);
    if asked.journal.is_null() {
        return Ok(how);
    }
    // SAFETY: not null, and as the caller says.
    let folder = unsafe { CStr::from_ptr(asked.journal) };
    if folder.is_empty() {
        return Err(Failure::usage("the folder of the journal is an empty string"));
    }
    Ok(how.journal(Path::new(OsStr::from_bytes(folder.to_bytes()))))
}

fn number_of(durability: Option<Durability>) -> (u32, u32) {
    match durability {
        Some(Durability::Commit) => (BRISTLECONE_DURABILITY_COMMIT, 0),
        Some(Durability::Memory) => (BRISTLECONE_DURABILITY_MEMORY, 0),
        Some(Durability::Interval(time)) => {
            let millis = time.as_nanos().div_ceil(1_000_000);
            (BRISTLECONE_DURABILITY_INTERVAL, u32::try_from(millis).unwrap_or(u32::MAX))
        }
        // A durability without a number in this interface.
        _ => (BRISTLECONE_DURABILITY_DEFAULT, 0),
    }
}

/// Makes everything durable that has been acknowledged so far. Only pools of the domain `BRISTLECONE_DOMAIN_JOURNAL` need
/// this, with another durability than `BRISTLECONE_DURABILITY_COMMIT`: in other pools each write is durable when it
/// returns.
///
/// Returns `BRISTLECONE_DURABILITY_LOST` if the journal could not be written, now or before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_sync(pool: *const PoolHandle) -> c_int {
    call(|| Ok(enter(pool)?.get()?.pool.sync()?))
}

/// Writes all items to a new checkpoint in the journal, and frees the space of the entries before it. Readers and writers
/// go on.
///
/// Returns `BRISTLECONE_USAGE` for a pool of another domain than `BRISTLECONE_DOMAIN_JOURNAL`, and `BRISTLECONE_FULL` if the
/// file system has too little space. After an error the journal keeps its last checkpoint and all entries behind it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_checkpoint(pool: *const PoolHandle) -> c_int {
    call(|| Ok(enter(pool)?.get()?.pool.checkpoint()?))
}

/// Writes a checkpoint as `bristlecone_pool_checkpoint` does, and removes all files of the journal that are not needed any
/// more, including those that are kept for later entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_prune_journal(pool: *const PoolHandle) -> c_int {
    call(|| Ok(enter(pool)?.get()?.pool.prune_journal()?))
}

/// Writes the state of the pool's journal. Does not wait for the disk.
///
/// Returns `BRISTLECONE_ABSENT` for a pool that does not write a journal: of another domain, open for reading, or followed.
/// After an error `*status` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bristlecone_pool_get_journal_status(
    pool: *const PoolHandle,
    status: *mut JournalStatus,
) -> c_int {
    call(|| {
        let inside = enter(pool)?;
        let Some(found) = inside.get()?.pool.journal_status()? else {
            return Err(Failure::Said(BRISTLECONE_ABSENT, "the pool does not write a journal".to_owned()));
        };
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (durability, interval_ms) = number_of(found.durability);
        let known = JournalStatus {
            struct_bytes: 0,
            durability,
            interval_ms,
            lsn: found.lsn,
            durable_lsn: found.durable_lsn,
            checkpoint_lsn: found.checkpoint_lsn.unwrap_or(BRISTLECONE_NO_CHECKPOINT),
            bytes_since_checkpoint: found.bytes_since_checkpoint,
            segment_bytes: found.segment_bytes,
            syncs: found.syncs.count,
            sync_mean_ns: nanos(found.syncs.mean),
            sync_p50_ns: nanos(found.syncs.p50),
            sync_p99_ns: nanos(found.syncs.p99),
            sync_max_ns: nanos(found.syncs.max),
            failed: found.failed.into(),
            oldest_lsn: found.oldest_lsn,
        };
        // SAFETY: as the header says.
        unsafe { fill(status, &known) }
    })
}
