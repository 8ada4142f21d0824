//! `bristlecone-lab soak`: kills processes repeatedly, until one loses data.
//!
//! ```text
//! soak          draws seeds, adds up, minimises            one process
//!   driver      one round after the other: forks, kills    one a processor
//!     worker    opens, compares, operates                  one a life of a pool
//!         \--- board: memory shared by driver and workers, which says what is due
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
