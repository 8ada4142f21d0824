//! The lowest layer of Bristlecone: persistent memory, reached through a [`Medium`], divided by a pool file.
//!
//! From the bottom up, as the folders:
//!
//! - `medium`: loads, stores, flushes and fences; [`Native`] runs them; [`Domain`] says what survives a crash.
//! - `word`: the words that persistent structures consist of.
//! - `map`: reserved address space with a file in it, which grows; nodes of memory; bytes that cannot be had.
//! - `pool`: superblock, tree directory and chunks of a pool file.
//! - `alloc`: slots of one size in chunks, byte strings in slots, and the sweep that finds free ones.
//! - `wal`: write-ahead logs in chunks.
//! - `segment`: what a process leaves in shared memory for the next one.
//! - [`sync`]: locks, epochs, numbers of threads, and where simulated threads take turns.
//!
//! # Features
//!
//! A program turns on none of these itself: the library passes `metrics` and `tracing` on, and the others are for tests.
//!
//! - `turns`: each access to DRAM that threads share is a step, at which a simulator may run another thread. All atomics
//!   of [`sync`] cost a little more.
//! - `metrics`: flushed lines and fences are counted; each costs a little more.
//! - `tracing`: events of the crate `tracing` for each chunk that a tree gets, and for whatever [`told`] and [`told_if_long`] do.
//! - `failpoints`: the module `failpoint` is public, with which a test has system calls refused.

mod alloc;
mod counts;
mod error;
#[cfg(not(feature = "failpoints"))]
mod failpoint;
#[cfg(feature = "failpoints")]
pub mod failpoint;
mod map;
mod medium;
mod opener;
mod pool;
mod segment;
pub mod sync;
mod told;
mod wal;
mod word;

pub use alloc::{
    ChunkRange, Heap, HeapSpec, HeapStats, KEY_BYTES_MAX, Liveness, RecordSpec, Records, VALUE_BYTES_MAX,
    record_slot_bytes,
};
pub use counts::{Counts, Events};
pub use error::{Error, Result};
pub use map::{At, Region};
pub(crate) use medium::PAGE_BYTES;
pub use medium::{
    Alone, Domain, Durable, Flushed, LINE_BYTES, Medium, Native, Ordered, Persist, Step, Witness, prefetch,
};
pub use opener::Opener;
pub use pool::{
    CHUNK_BYTES, Chunk, CommitSpace, CreateOptions, Damaged, Finding, Geometry, OpenOptions, Part, PartOf,
    PoolFile, PoolInfo, SetAside, SlotKind, TreeEntry, TreeId, TreeSpec, Unnamed, kind_of_descriptor,
};
pub use segment::{Extent, Follower, KeepIndex, Memory, Notes, NotesReader, Posted, Released, Zeroed};
pub use sync::{assume_thread_index, own_thread_index, thread_index};
pub use told::{told, told_if_long};
pub use wal::{Copies, LOG_ENTRY_BYTES, Log, LogChunk, LogEntry, LogSpot};
pub use word::{Group, Persistent, Word, read_bytes, read_words, write_bytes, write_words};
