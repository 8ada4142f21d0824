//! The table of configurations (cells) of the test suites.
//!
//! ```text
//! cell = shape (design and options) x codec x domain x room      every cell
//!          |                                                      except those that a suite leaves out
//!        Suite::cells   all of a suite
//!        Suite::drawn   some of them: every option value of every design, and every design with every
//!                       codec, domain and room
//! ```
//!
//! `BRISTLECONE_EFFORT` sets the test level: `quick`, the default, takes a share of the drawn cells and few schedules
//! and images; `ci` all drawn cells; `long` all cells. See [`Effort`].
//!
//! The drawn cells depend on `BRISTLECONE_SEED`, or on the day. `BRISTLECONE_CELLS=all` runs every cell of every suite,
//! and any other value the cells whose names contain it: `BRISTLECONE_CELLS=nbtree-7/`.
//!
//! A new option of a design needs one more shape in [`SHAPES`] or [`SHORT_LOGS`], which a test here checks.

mod cell;
mod codec;
mod draw;
mod effort;
mod room;
mod shape;
mod suite;

pub use cell::{Cell, all};
pub use codec::{Codec, Items, Labels, Notes, Texts, Visit, Words};
pub use draw::{covering, goals, seed};
pub use effort::{Effort, by_effort, in_share, share, takes, tell};
pub use room::{DOMAINS, ROOMS, Room};
pub use shape::{SHAPES, SHORT_LOGS, Shape, shapes};
pub use suite::{LeftOut, SUITES, Suite, suites};
