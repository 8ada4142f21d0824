//! The tool as a user runs it: every command, and what it answers to wrong input. One program, so
//! that it is linked once.

mod bench;
mod common;
mod count;
mod crash;
mod damage;
mod entries;
mod kill;
mod loads;
mod pools;
mod room;
mod soak;
mod usage;
