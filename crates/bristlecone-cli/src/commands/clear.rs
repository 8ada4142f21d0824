//! `bristlecone clear`: removes every entry of a tree.

use bristlecone::Pool;
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
use clap::Args;
use serde_json::json;

use crate::open::PoolArgs;
use crate::store;

/// Remove every entry of a tree, immediately and permanently; the tree stays
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone clear trees.pool ages")]
pub struct Clear {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree.
    tree: String,
}

impl Clear {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = self.pool.open()?;
        clear(&pool, &self.tree, output)?;
        Ok(pool.close()?)
    }
}

/// Clears the tree, which must have no handle.
pub fn clear(pool: &Pool, tree: &str, output: &mut Output) -> Outcome {
    store::find(pool, tree)?;
    pool.clear_tree(tree)?;
    output.either(&json!({ "cleared": tree }), format_args!("cleared {tree}"))
}
