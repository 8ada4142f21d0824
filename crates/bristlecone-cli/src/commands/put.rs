//! `bristlecone put`: one entry in.

use std::ffi::OsString;

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::Output;
use clap::Args;
use serde_json::json;

use crate::args::PoolArgs;
use crate::datum::Datum;
use crate::store;

/// Set the value of a key
#[derive(Args, Debug)]
pub struct Put {
    #[command(flatten)]
    pool: PoolArgs,
    /// The tree.
    tree: String,
    /// The key; in a tree of kind bytes with \xNN for what cannot be typed.
    key: OsString,
    /// The value.
    value: OsString,
    /// Fail if the key has a value.
    #[arg(long, conflicts_with = "existing")]
    new: bool,
    /// Fail if the key has no value.
    #[arg(long)]
    existing: bool,
}

impl Put {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = store::open(&self.pool)?;
        let tree = store::tree(&pool, &self.tree)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let key =
            Datum::argument(tree.key_kind(), &self.key, &mut key).map_err(|error| error.within("key"))?;
        let value = Datum::argument(tree.value_kind(), &self.value, &mut value)
            .map_err(|error| error.within("value"))?;
        let (done, replaced) = if self.new {
            (tree.insert_new(key, value)?, false)
        } else if self.existing {
            (tree.update(key, value)?, true)
        } else {
            (true, tree.insert(key, value)?)
        };
        drop(tree);
        pool.close()?;
        match (done, self.new) {
            (true, _) => {
                let said = if replaced { "replaced" } else { "added" };
                output.either(&json!({ "key": key, "value": value, "replaced": replaced }), said)
            }
            (false, true) => Err(Failure::new(
                Exit::Failed,
                format!("{key} has a value already: leave --new out to replace it"),
            )),
            (false, false) => {
                Err(Failure::new(Exit::Absent, format!("{key} has no value: leave --existing out to add it")))
            }
        }
    }
}
