//! The command-line tool of Bristlecone.

fn main() {}
