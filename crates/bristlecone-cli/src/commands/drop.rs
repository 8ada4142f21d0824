//! `bristlecone drop`: a whole tree out.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
use clap::Args;
use serde_json::json;

use crate::args::PoolArgs;
use crate::store;

/// Remove a tree and everything in it, at once and for good
#[derive(Args, Debug)]
pub struct Drop {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree.
    tree: String,
}

impl Drop {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = store::open(&self.pool)?;
        store::find(&pool, &self.tree)?;
        pool.drop_tree(&self.tree)?;
        pool.close()?;
        output.either(&json!({ "dropped": self.tree }), format_args!("dropped {}", self.tree))
    }
}
