//! `scale`: a design on simulated cores, as many as a machine has that need not be there. Deterministic: the same seed
//! gives the same figures everywhere.
//!
//! The phases, keys and operations are those of `bench`; the threads are those of `bristlecone_device::cores`.

pub mod command;
mod conflicts;
mod machine;
mod report;
mod run;
mod table;
mod validate;
