//! `bristlecone del`: entries out.

use std::ffi::OsString;

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::{Output, counted};
use clap::Args;
use serde_json::json;

use crate::args::PoolArgs;
use crate::datum::Datum;
use crate::store;

/// Remove keys
#[derive(Args, Debug)]
pub struct Del {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree.
    tree: String,
    /// The keys; in a tree of kind bytes with \xNN for what cannot be typed.
    #[arg(required = true)]
    keys: Vec<OsString>,
}

impl Del {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = store::open(&self.pool)?;
        let tree = store::tree(&pool, &self.tree)?;
        // Every key is read before any is removed: a typing error removes nothing.
        let mut scratches = vec![Vec::new(); self.keys.len()];
        let mut keys = Vec::new();
        for (key, scratch) in self.keys.iter().zip(&mut scratches) {
            keys.push(Datum::argument(tree.key_kind(), key, scratch).map_err(|error| error.within("key"))?);
        }
        let mut removed = 0;
        for key in &keys {
            removed += u64::from(tree.remove(*key)?);
        }
        drop(tree);
        pool.close()?;
        let absent = keys.len() as u64 - removed;
        let text = format!("removed {}", counted(removed, "entry", "entries"));
        output.either(&json!({ "removed": removed, "absent": absent }), text)?;
        if absent == 0 {
            return Ok(());
        }
        let had = counted(absent, "key", "keys");
        Err(Failure::new(Exit::Absent, format!("{had} had no value; the others are removed")))
    }
}
