//! Simulated cores: the real code of a structure on N threads, in virtual time.
//!
//! ```text
//! body of each thread  ->  step: an access to shared DRAM or to the medium
//! least virtual time   ->  the thread that takes the next step         cores.rs
//! private caches       ->  L1 and L2 of each core                      cache.rs
//! directory            ->  MESI: who has the line, and modified        directory.rs
//! last-level caches    ->  one for each socket
//! miss                 ->  DRAM of a socket, or the device             memory.rs
//! all of it            ->  tallies by kind of operation                tally.rs
//! ```
//!
//! Each simulated thread is a coroutine on one system thread. Of all threads the one with the least virtual time takes
//! the next step; of several with the same time, the one with the lowest number. A run is therefore deterministic: the
//! same code, workload and machine give the same counts and times.
//!
//! The lines that objects in DRAM share must not depend on the run either: a program that simulates declares
//! [`SimulatorHeap`] as its global allocator.
//!
//! `lab/docs/SCALE.md` lists what is modelled, what is not, and the sources of the latencies.

mod cache;
mod conflicts;
#[allow(clippy::module_inception, reason = "the module holds the type of this name")]
mod cores;
mod directory;
mod heap;
mod machine;
mod medium;
mod memory;
mod pages;
mod pending;
mod shared;
mod state;
mod tally;

pub use self::conflicts::Conflicts;
pub use self::cores::{Cores, Outcome, Simulated};
pub use self::directory::THREADS_MAX;
pub use self::heap::SimulatorHeap;
pub use self::machine::{Machine, Placement};
pub use self::shared::Shared;
pub use self::tally::{CoreTallies, CoreTally, Hot, Latencies};

/// Picoseconds of virtual time: whole numbers, so that sums have no order.
pub(crate) type Time = u64;

/// Converts nanoseconds.
fn picoseconds(nanoseconds: f64) -> Time {
    (nanoseconds * 1000.0).round() as Time
}
