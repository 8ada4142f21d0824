//! The crash model: what the medium holds for certain after some prefix of a trace, and what it may hold.

pub(crate) mod access;
pub(crate) mod cache;
pub(crate) mod image;
pub(crate) mod lines;
pub(crate) mod memory;
pub(crate) mod mode;
pub(crate) mod trace;
