//! What the command-line tools of Bristlecone share: arguments, results, errors, exit codes, Ctrl-C. The commands are
//! the tools' own.

pub mod answer;
pub mod arguments;
pub mod failure;
pub mod interrupt;
pub mod medium;
pub mod output;
pub mod scratch;
pub mod size;
