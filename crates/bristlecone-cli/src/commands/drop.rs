//! `bristlecone drop`: drops a tree.

use bristlecone::Pool;
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
use clap::Args;
use serde_json::json;

use crate::open::PoolArgs;
use crate::store;

/// Remove a tree and all its entries, immediately and permanently
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone drop trees.pool ages")]
pub struct Drop {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree.
    tree: String,
}

impl Drop {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = self.pool.open()?;
        drop(&pool, &self.tree, output)?;
        Ok(pool.close()?)
    }
}

/// Drops the tree.
pub fn drop(pool: &Pool, tree: &str, output: &mut Output) -> Outcome {
    store::find(pool, tree)?;
    pool.drop_tree(tree)?;
    output.either(&json!({ "dropped": tree }), format_args!("dropped {tree}"))
}
