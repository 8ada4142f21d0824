//! Schedules of plans made for a purpose.

pub use bristlecone_sim::Planned;
