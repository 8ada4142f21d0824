//! `bristlecone rename`: renames a tree.

use bristlecone::Pool;
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::Output;
use clap::Args;
use serde_json::json;

use crate::open::PoolArgs;
use crate::store;

/// Rename a tree atomically
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone rename trees.pool draft final")]
pub struct Rename {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree.
    tree: String,
    /// Its new name, which no other tree may have.
    name: String,
}

impl Rename {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = self.pool.open()?;
        rename(&pool, &self.tree, &self.name, output)?;
        Ok(pool.close()?)
    }
}

/// Renames the tree.
pub fn rename(pool: &Pool, tree: &str, name: &str, output: &mut Output) -> Outcome {
    store::find(pool, tree)?;
    pool.rename_tree(tree, name)?;
    output.either(&json!({ "renamed": tree, "name": name }), format_args!("{tree} is {name} now"))
}
