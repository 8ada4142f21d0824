//! `bristlecone put`: writes one entry.

use std::ffi::OsString;

use bristlecone::dynamic::Tree;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::Output;
use clap::Args;
use serde::Serialize;

use crate::datum::{Datum, Json, Shown, argument};
use crate::expiry::{self, ExpiryArgs};
use crate::open::PoolArgs;
use crate::store;

/// Set the value of a key
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone put trees.pool ages Methuselah 4857
  bristlecone put trees.pool ages Prometheus 4862 --new
  bristlecone put trees.pool sessions ada 7 --ttl 15m    in a tree with values of kind Expiring<u64>
  bristlecone put trees.pool depths -- -7 3             a word that begins with a dash follows --")]
pub struct Put {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree.
    tree: String,
    #[command(flatten)]
    what: PutArgs,
}

/// The entry to write.
#[derive(Args, Debug)]
pub struct PutArgs {
    /// The key; in a tree of kind bytes, write \xNN for bytes that cannot be typed.
    key: OsString,
    /// The value.
    value: OsString,
    /// Fail if the key exists.
    #[arg(long, conflicts_with = "existing")]
    new: bool,
    /// Fail if the key does not exist.
    #[arg(long)]
    existing: bool,
    #[command(flatten)]
    expiry: ExpiryArgs,
}

/// The JSON output.
#[derive(Serialize)]
struct Done<'a> {
    key: Json<'a>,
    value: Json<'a>,
    replaced: bool,
}

impl Put {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = self.pool.open()?;
        let tree = store::tree(&pool, &self.tree)?;
        let done = self.what.run(&tree, output);
        drop(tree);
        pool.close()?;
        done
    }
}

impl PutArgs {
    /// Parses the value.
    fn value(&self, tree: &Tree) -> Outcome<Datum> {
        let parse = |kind| argument(kind, &self.value).map_err(|error| error.within("value"));
        if !self.expiry.is_given() {
            return parse(tree.value_kind());
        }
        let tree = expiry::expiring(tree)?;
        let value = parse(tree.value_kind())?;
        Ok(Datum::Expiring(Box::new(value), self.expiry.expiry(&tree)))
    }

    /// Sets the value, if the key's existence is as required.
    pub fn run(&self, tree: &Tree, output: &mut Output) -> Outcome {
        let key = argument(tree.key_kind(), &self.key).map_err(|error| error.within("key"))?;
        let value = self.value(tree)?;
        let shown = Shown(&key);
        let replaced = if self.new {
            if store::insert_new(tree, &key, &value)?.is_some() {
                let said = format!("{shown} has a value already: drop --new to replace it");
                return Err(Failure::new(Exit::Failed, said));
            }
            false
        } else if self.existing {
            if !expiry::update(tree, &key, &value)? {
                let said = format!("{shown} has no value: drop --existing to add it");
                return Err(Failure::new(Exit::Absent, said));
            }
            true
        } else {
            expiry::live(tree.insert(&key, &value)?).is_some()
        };
        let said = if replaced { "replaced" } else { "added" };
        output.either(&Done { key: Json(&key), value: Json(&value), replaced }, said)
    }
}
