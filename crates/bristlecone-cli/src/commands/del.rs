//! `bristlecone del`: removes entries.

use std::ffi::OsString;

use bristlecone::dynamic::Tree;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::{Output, counted};
use clap::Args;
use serde_json::json;

use super::range::RangeArgs;
use crate::datum::argument;
use crate::expiry;
use crate::open::PoolArgs;
use crate::store;

/// Remove keys, or a range of keys in one step
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone del trees.pool ages Methuselah
  bristlecone del trees.pool numbers 1 2 3
  bristlecone del trees.pool numbers --from 10 --to 20
  bristlecone del trees.pool sessions --expired")]
pub struct Del {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree.
    tree: String,
    #[command(flatten)]
    what: DelArgs,
}

/// The keys to remove, or their range.
#[derive(Args, Debug)]
pub struct DelArgs {
    /// The keys; in a tree of kind bytes, write \xNN for bytes that cannot be typed.
    #[arg(required_unless_present_any = ["expired", "from", "to", "prefix"], value_name = "KEY",
        conflicts_with_all = ["from", "to", "prefix"])]
    keys: Vec<OsString>,
    #[command(flatten)]
    range: RangeArgs,
    /// Remove all entries that have expired.
    #[arg(long, conflicts_with_all = ["keys", "from", "to", "prefix"])]
    expired: bool,
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
    /// Removes the entries that have expired.
    fn remove_expired(tree: &Tree, output: &mut Output) -> Outcome {
        let mut removed = 0;
        tree.retain(|_, value| {
            let has_expired = expiry::has_expired(value);
            removed += u64::from(has_expired);
            !has_expired
        })?;
        Self::report(removed, output)
    }

    fn report(removed: u64, output: &mut Output) -> Outcome {
        let text = format!("removed {}", counted(removed, "entry", "entries"));
        output.either(&json!({ "removed": removed, "absent": 0 }), text)
    }

    /// Removes the keys, and fails if any was absent.
    pub fn run(&self, tree: &Tree, output: &mut Output) -> Outcome {
        if self.expired {
            return Self::remove_expired(tree, output);
        }
        if self.range.is_given() {
            let (from, to) = self.range.bounds(tree.key_kind())?;
            let removed = tree.remove_range((from.as_ref(), to.as_ref()))?;
            return Self::report(removed, output);
        }
        // Every key is parsed before any is removed: a typing error removes nothing.
        let keys = self.keys.iter().map(|key| argument(tree.key_kind(), key));
        let keys = keys.collect::<Outcome<Vec<_>>>().map_err(|error| error.within("key"))?;
        let mut removed = 0;
        for key in &keys {
            removed += u64::from(expiry::live(tree.remove(key)?).is_some());
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
