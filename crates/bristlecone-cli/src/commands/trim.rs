//! `bristlecone trim`: releases free space to the file system.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
use bristlecone_cli::size;
use clap::Args;
use serde_json::json;

use crate::open::PoolArgs;

/// Release unused space to the file system
///
/// A pool keeps up to 64 MiB of freed space for later use, and releases more than that when it is closed. This command
/// releases all of it. `bristlecone copy` also compacts trees whose leaves are half empty.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone trim trees.pool")]
pub struct Trim {
    #[command(flatten)]
    pool: PoolArgs,
}

impl Trim {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = self.pool.open()?;
        let given = pool.trim()?;
        let file_bytes = pool.info().file_bytes;
        pool.close()?;
        let said = format!("{} released; the file has {}", size::show(given), size::show(file_bytes));
        output.either(&json!({ "given_back_bytes": given, "file_bytes": file_bytes }), said)
    }
}
