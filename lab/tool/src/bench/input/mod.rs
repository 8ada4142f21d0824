//! External keys and operations: SOSD files and key sets of similar shape, and traces of YCSB.

pub mod dataset;
pub mod generate;
pub mod sosd;
pub mod trace;
