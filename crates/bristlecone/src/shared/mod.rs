//! What two or more trees have in common: how they are searched, locked, probed and walked.

pub mod arena;
pub mod counter;
pub mod fingerprint;
pub mod form;
pub mod inner;
pub mod lock_table;
mod prefetch;
pub mod search;
pub mod sync;
pub mod version_lock;
pub mod words;

pub use prefetch::prefetch;
