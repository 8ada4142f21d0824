//! Shared code of Bristlecone's command-line tools: arguments, results, errors, exit codes, Ctrl-C. Each tool defines
//! its own commands.

pub mod answer;
pub mod arguments;
pub mod failure;
pub mod interrupt;
pub mod medium;
pub mod output;
pub mod scratch;
pub mod size;
