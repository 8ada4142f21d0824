//! The device model: the cost of operations on a device that need not be present.
//!
//! ```text
//! loads, stores   ->  processor cache    36 MiB, 12 ways          cpu.rs
//! misses, flushed
//! or evicted lines ->  modules           interleaved, 4 KiB
//!                       buffers          media lines, LRU         media.rs
//!                       media            whole media lines
//! all of it       ->  tallies            by operation and part    counts.rs
//!                 ->  virtual clocks     threads share modules    clock.rs
//! ```
//!
//! A [`Device`] is a [`Medium`](bristlecone_pm::Medium) that executes every access on ordinary memory and counts
//! it. It records no trace, so tens of millions of operations take minutes. Operations are executed one after the
//! other; threads exist on the clocks only. `lab/docs/DEVICE.md` lists the parameters and their sources.
//!
//! [`cores`] simulates the threads themselves: coherent caches, locks and virtual time in front of the same device.
//!
//! # Features
//!
//! - `turns`: makes the accesses to DRAM visible that [`cores`] needs.

mod clock;
pub mod cores;
mod counts;
mod cpu;
mod device;
mod media;
mod modules;
mod parts;
mod profile;
mod state;
mod writing;

pub use clock::Times;
pub use counts::{KINDS, OUTSIDE, Tallies, Tally, Traffic};
pub use device::Device;
pub use parts::Layout;
pub use profile::{Processor, Profile};
pub use state::Counted;
