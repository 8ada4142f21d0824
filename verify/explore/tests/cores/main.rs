//! Lines that move between simulated cores: counted, and the same in each run.

mod bench;
mod lines;
