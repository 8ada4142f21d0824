//! The commands, one file each.

pub mod changes;
pub mod check;
pub mod clear;
pub mod completions;
pub mod copy;
pub mod create;
pub mod del;
pub mod demo;
pub mod drop;
pub mod dump;
pub mod expire;
pub mod get;
pub mod info;
pub mod journal;
pub mod load;
pub mod man;
pub mod put;
pub mod range;
pub mod rename;
pub mod resize;
pub mod restore;
pub mod scan;
pub mod standby;
pub mod top;
