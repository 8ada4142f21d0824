//! The crash model: contents that the medium certainly has after a prefix of a trace, and contents
//! that it may have.

pub(crate) mod access;
pub(crate) mod cache;
pub(crate) mod image;
pub(crate) mod lines;
pub(crate) mod memory;
pub(crate) mod mode;
pub(crate) mod trace;
