//! `bristlecone get`: values of keys.

use std::ffi::OsString;

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::{Output, counted};
use clap::Args;
use serde_json::json;

use crate::args::ReadArgs;
use crate::datum::{Datum, Form};
use crate::store;

/// Print the values of keys
#[derive(Args, Debug)]
pub struct Get {
    #[command(flatten)]
    pool: ReadArgs,
    /// The tree.
    tree: String,
    /// The keys; in a tree of kind bytes with \xNN for what cannot be typed.
    #[arg(required = true)]
    keys: Vec<OsString>,
}

impl Get {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let (pool, tree) = store::tree_to_read(&self.pool, &self.tree)?;
        let mut absent = Vec::new();
        let mut text = Vec::new();
        for key in &self.keys {
            let mut scratch = Vec::new();
            let key =
                Datum::argument(tree.key_kind(), key, &mut scratch).map_err(|error| error.within("key"))?;
            let found = tree.get(key, &mut |value| {
                if output.json() {
                    return output.value(&json!({ "key": key, "value": value }));
                }
                text.clear();
                value.write(Form::Plain, &mut text);
                text.push(b'\n');
                output.bytes(&text)
            })?;
            if !found {
                absent.push(key.to_string());
            }
        }
        drop(tree);
        pool.close()?;
        match absent.as_slice() {
            [] => Ok(()),
            [key] => Err(Failure::new(Exit::Absent, format!("{key} has no value"))),
            [first, rest @ ..] => {
                let others = counted(rest.len() as u64, "other key", "other keys");
                Err(Failure::new(Exit::Absent, format!("{first} and {others} have no value")))
            }
        }
    }
}
