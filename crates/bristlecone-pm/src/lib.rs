//! The ground that Bristlecone's trees stand on: persistent memory, reached through a
//! [`Medium`], divided by a pool file.

mod cell;
mod error;
mod medium;

pub use cell::{Group, Persistent, Word, read_bytes, write_bytes};
pub use error::{Error, Result};
pub use medium::{Durable, Flushed, LINE_BYTES, Medium, Ordered, Persist, Step, Witness};
