//! Common parts of two or more designs: search, locks, fingerprints and walks.

pub mod active_threads;
pub mod arena;
pub mod buffered;
pub mod codec;
pub mod counter;
pub mod encoded;
pub mod fingerprint;
pub mod index_saver;
pub mod items;
pub mod lock_table;
pub mod locked;
pub mod lost_records;
pub mod no_room;
pub mod optimistic_lock;
pub mod orders;
pub mod recovery;
pub mod search;
pub mod separators;
pub mod slot;
pub mod split;
pub mod sync;

pub mod volatile_index;
pub mod words;
pub mod zeroed;

pub use bristlecone_pm::prefetch;
