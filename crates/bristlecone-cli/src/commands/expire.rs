//! `bristlecone expire`: sets when entries expire.

use std::ffi::OsString;

use bristlecone::dynamic::Tree;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::{Output, counted};
use clap::Args;
use serde_json::json;

use crate::datum::argument;
use crate::expiry::{self, ExpiryArgs};
use crate::open::PoolArgs;
use crate::store;

/// Set when entries expire, and keep their values
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone expire trees.pool sessions ada --ttl 15m
  bristlecone expire trees.pool sessions ada grace --expires-at 2030-01-31T12:00:00Z
  bristlecone expire trees.pool sessions root --ttl never
  bristlecone expire trees.pool sessions ada              renews it for the time of the tree")]
pub struct Expire {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree, with values of a kind Expiring<…>.
    tree: String,
    #[command(flatten)]
    what: ExpireArgs,
}

/// The keys, and when they expire.
#[derive(Args, Debug)]
pub struct ExpireArgs {
    /// The keys; in a tree of kind bytes, write \xNN for bytes that cannot be typed.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
    #[command(flatten)]
    expiry: ExpiryArgs,
}

impl Expire {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = self.pool.open()?;
        let tree = store::tree(&pool, &self.tree)?;
        let done = self.what.run(&tree, output);
        drop(tree);
        pool.close()?;
        done
    }
}

impl ExpireArgs {
    /// Sets the expiry of the keys, and fails if any is absent.
    pub fn run(&self, tree: &Tree, output: &mut Output) -> Outcome {
        let tree = expiry::expiring(tree)?;
        // Every key is parsed before any is changed: a typing error changes nothing.
        let keys = self.keys.iter().map(|key| argument(tree.entries().key_kind(), key));
        let keys = keys.collect::<Outcome<Vec<_>>>().map_err(|error| error.within("key"))?;
        let expiry = self.expiry.expiry(&tree);
        let mut set = 0;
        for key in &keys {
            set += u64::from(tree.set_expiry(key, expiry)?.is_some());
        }
        let absent = keys.len() as u64 - set;
        let text = format!("set the expiry of {}", counted(set, "entry", "entries"));
        output.either(&json!({ "set": set, "absent": absent }), text)?;
        if absent == 0 {
            return Ok(());
        }
        let had = counted(absent, "key", "keys");
        let others = if set == 0 { "" } else { "; the others are set" };
        Err(Failure::new(Exit::Absent, format!("{had} had no value{others}")))
    }
}
