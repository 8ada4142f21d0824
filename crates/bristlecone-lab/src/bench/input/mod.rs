//! Keys and operations from outside: SOSD files and key sets of like shape, and traces of YCSB.

pub mod dataset;
pub mod generate;
pub mod sosd;
pub mod trace;
