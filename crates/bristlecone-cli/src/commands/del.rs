//! `bristlecone del`: removes entries.

use std::ffi::OsString;

use bristlecone::dynamic::Tree;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::{Output, counted};
use clap::Args;
use serde_json::json;

use crate::datum::argument;
use crate::open::PoolArgs;
use crate::store;

/// Remove keys
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone del trees.pool ages Methuselah
  bristlecone del trees.pool numbers 1 2 3")]
pub struct Del {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree.
    tree: String,
    #[command(flatten)]
    what: DelArgs,
}

/// The keys to remove.
#[derive(Args, Debug)]
pub struct DelArgs {
    /// The keys; in a tree of kind bytes, write \xNN for bytes that cannot be typed.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
}

impl Del {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = self.pool.open()?;
        let tree = store::tree(&pool, &self.tree)?;
        let done = self.what.run(&tree, output);
        drop(tree);
        pool.close()?;
        done
    }
}

impl DelArgs {
    /// Removes the keys, and fails if any was absent.
    pub fn run(&self, tree: &Tree, output: &mut Output) -> Outcome {
        // Every key is parsed before any is removed: a typing error removes nothing.
        let keys = self.keys.iter().map(|key| argument(tree.key_kind(), key));
        let keys = keys.collect::<Outcome<Vec<_>>>().map_err(|error| error.within("key"))?;
        let mut removed = 0;
        for key in &keys {
            removed += u64::from(tree.remove(key)?.is_some());
        }
        let absent = keys.len() as u64 - removed;
        let text = format!("removed {}", counted(removed, "entry", "entries"));
        output.either(&json!({ "removed": removed, "absent": absent }), text)?;
        if absent == 0 {
            return Ok(());
        }
        let had = counted(absent, "key", "keys");
        let others = if removed == 0 { "" } else { "; the others are removed" };
        Err(Failure::new(Exit::Absent, format!("{had} had no value{others}")))
    }
}
