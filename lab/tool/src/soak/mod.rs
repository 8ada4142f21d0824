//! `bristlecone-lab soak`: kills processes repeatedly, until one loses data.
//!
//! ```text
//! soak          draws seeds, collects, minimises           one process
//!   driver      one round after the other: forks, kills    one per processor
//!     worker    opens, compares, operates                  one per life of a pool
//!         \--- board: memory shared by driver and workers, with the expected state
//! ```

mod board;
mod checked;
pub mod command;
mod compare;
pub mod driver;
mod handle;
mod items;
mod life;
mod minimise;
mod operate;
mod order;
mod other;
mod process;
mod round;
mod tally;
mod worker;
