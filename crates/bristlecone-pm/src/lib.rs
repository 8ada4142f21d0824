//! The ground that Bristlecone's trees stand on: persistent memory, reached through a
//! [`Medium`], divided by a pool file.

mod arch;
mod bus;
mod cell;
mod copy;
mod domain;
pub mod epoch;
mod error;
#[cfg(not(feature = "faults"))]
mod fault;
#[cfg(feature = "faults")]
pub mod fault;
mod heap;
mod latch;
mod log;
mod mapping;
mod medium;
mod native;
mod numa;
mod opener;
mod pause;
mod pool;
mod prefetch;
mod record;
mod slots;
pub mod sync;
mod thread;
pub mod wait;

pub use cell::{Group, Persistent, Word, read_bytes, read_words, write_bytes};
pub use domain::Domain;
pub use error::{Error, Result};
pub use heap::{ChunkRange, Heap, HeapStats, Judge};
pub use log::{Copies, LOG_ENTRY_BYTES, Log, LogChunk, LogEntry, LogSpot};
pub use mapping::Region;
pub use medium::{Alone, Durable, Flushed, LINE_BYTES, Medium, Ordered, Persist, Step, Witness};
pub use native::Native;
pub use opener::Opener;
pub use pool::{
    CHUNK_BYTES, Chunk, CreateOptions, Damaged, Finding, Geometry, OpenOptions, Part, PoolFile, PoolInfo,
    SlotKind, TreeEntry, TreeId, TreeSpec, part_of_descriptor,
};
pub use prefetch::prefetch;
pub use record::{KEY_BYTES_MAX, Records, VALUE_BYTES_MAX};
pub use thread::{assume_thread_index, own_thread_index, thread_index};
