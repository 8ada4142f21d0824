//! The lowest layer of Bristlecone: persistent memory, accessed through a [`Medium`] and divided by a pool file.
//!
//! Modules, from the bottom up:
//!
//! - `medium`: loads, stores, flushes and fences; [`Native`] executes them; [`Domain`] states which stores survive a
//!   crash.
//! - `word`: the words that persistent structures consist of.
//! - `map`: reserved address space with a file mapped into it, which grows; NUMA nodes; faults in the mapping.
//! - `pool`: superblock, tree directory and chunks of a pool file.
//! - `alloc`: slots of one size in chunks, byte strings in slots, and the sweep that finds free ones.
//! - `wal`: write-ahead logs in chunks.
//! - `files`: a folder of files beside a pool.
//! - `segment`: shared memory that a process leaves for the next one.
//! - [`sync`]: locks, epochs, thread numbers, and the scheduling points of simulated threads.
//!
//! # Features
//!
//! Programs need not enable these themselves: the library forwards `metrics` and `tracing`, and the others are for
//! tests.
//!
//! - `turns`: each access to DRAM that threads share is a step, at which a simulator may switch threads. All atomics
//!   of [`sync`] become slightly slower.
//! - `metrics`: flushed lines and fences are counted; each becomes slightly slower.
//! - `tracing`: events of the crate `tracing` for each chunk that a tree gets, and for each call of [`trace_span`] and
//!   [`trace_slow`].
//! - `failpoints`: makes the module `failpoint` public, with which a test makes system calls fail.

mod alloc;
mod counts;
mod dax_device;
mod error;
#[cfg(not(feature = "failpoints"))]
mod failpoint;
#[cfg(feature = "failpoints")]
pub mod failpoint;
mod files;
mod map;
mod medium;
mod opener;
mod pool;
mod segment;
pub mod sync;
mod trace;
mod wal;
mod word;

pub use alloc::{
    AllMarks, Census, ChunkRange, Heap, HeapSpec, HeapStats, KEY_BYTES_MAX, Liveness, Marks, RecordSpec,
    Records, Sparse, VALUE_BYTES_MAX, record_bytes_max, record_slot_bytes,
};
pub use counts::{Counts, Events};
pub use error::{Error, Result};
pub use files::{Folder, SharedWords, Storage, StoredFile};
pub use map::{At, Region};
pub(crate) use medium::PAGE_BYTES;
pub use medium::{
    Alone, Domain, Durable, Flushed, LINE_BYTES, Medium, Native, Ordered, Persist, Step, Witness, prefetch,
    prefetch_to_write,
};
pub use opener::Opener;
pub use pool::{
    CHUNK_BYTES, Chunk, CommitSpace, CreateOptions, Damaged, Geometry, Glance, Issue, Nameless, OpenOptions,
    Part, PartOf, PoolFile, PoolInfo, SetAside, SlotKind, TreeEntry, TreeId, TreeSpec, Unnamed,
    kind_of_descriptor,
};
pub use segment::{
    Extent, Follower, KeepIndex, Manifest, ManifestReader, Memory, Released, SharedCell, Zeroed,
};
pub use sync::{assume_thread_index, own_thread_index, thread_index};
pub use trace::{trace_slow, trace_span};
pub use wal::{Copies, LOG_ENTRY_BYTES, Log, LogChunk, LogEntry, LogSpot};
pub use word::{Group, Persistent, Word, read_bytes, read_words, write_bytes, write_words};

/// Hash of the sources that determine the layout and the meaning of shared memory in this crate.
pub const LAYOUT: u64 = match u64::from_str_radix(env!("BRISTLECONE_PM_LAYOUT"), 10) {
    Ok(layout) => layout,
    Err(_) => panic!("the build script prints a number"),
};

/// Returns whether a test omits this step: always `false` without the feature `failpoints`.
#[inline(always)]
pub fn omits(step: &'static str) -> bool {
    cfg!(feature = "failpoints") && failpoint::is_omitted(step)
}
