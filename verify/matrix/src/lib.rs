//! The table of configurations (cells) of the test suites.
//!
//! ```text
//! cell = configuration (design and options) x codec x domain x pool_size      every cell
//!          |                                                      except those that a suite leaves out
//!        Suite::cells   all of a suite
//!        Suite::sampled   some of them: every option value of every design, and every design with every
//!                       codec, domain and pool_size
//! ```
//!
//! `BRISTLECONE_TEST_LEVEL` sets the test level: `quick`, the default, takes a share of the drawn cells and few schedules
//! and images; `ci` all drawn cells; `long` all cells. See [`TestLevel`].
//!
//! The drawn cells depend on `BRISTLECONE_SEED`, or on the day. `BRISTLECONE_CELLS=all` runs every cell of every suite,
//! and any other value the cells whose names contain it: `BRISTLECONE_CELLS=nbtree-7/`.
//!
//! A new option of a design needs one more configuration in [`CONFIGURATIONS`] or [`SHORT_LOGS`], which a test here checks.

mod cell;
mod codec;
mod configuration;
pub mod conformance;
mod files;
mod level;
mod pool_size;
pub mod process;
mod sampling;
mod suite;

pub use cell::{Cell, all};
pub use codec::{Codec, Items, Labels, Notes, Texts, Visit, Words};
pub use configuration::{CONFIGURATIONS, Configuration, SHORT_LOGS, configurations};
pub use files::{CopiedJournal, lose_pages, remove_pool};
pub use level::{TestLevel, by_level, in_share, share, takes, tell};
pub use pool_size::{DOMAINS, POOL_SIZES, PoolSize};
pub use sampling::{covering, goals, seed};
pub use suite::{Exclusion, SUITES, Suite, suites};
