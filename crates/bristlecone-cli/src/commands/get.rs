//! `bristlecone get`: prints the values of keys.

use std::ffi::OsString;

use bristlecone::Error;
use bristlecone::dynamic::Tree;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::output::{Output, counted};
use clap::Args;

use crate::datum::{self, Entry, Form, Shown, argument};
use crate::expiry;
use crate::open::ReadArgs;
use crate::store;

/// Print the values of keys
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone get trees.pool ages Methuselah Prometheus
  bristlecone get trees.pool places '[\"oak\", 7]'      a key that is a tuple")]
pub struct Get {
    #[command(flatten)]
    pool: ReadArgs,
    /// The tree.
    tree: String,
    #[command(flatten)]
    what: GetArgs,
}

/// The keys to look up.
#[derive(Args, Debug)]
pub struct GetArgs {
    /// The keys; in a tree of kind bytes, write \xNN for bytes that cannot be typed.
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,
}

impl Get {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = self.pool.open_or_follow()?;
        let tree = store::tree(&pool, &self.tree)?;
        self.what.run(&tree, output)
    }
}

impl GetArgs {
    /// Prints the values, and fails if any key is absent. Of a damaged tree, prints all readable values, and fails if
    /// damage may affect any of the keys.
    pub fn run(&self, tree: &Tree, output: &mut Output) -> Outcome {
        let mut doubt = None;
        let mut absent = Vec::new();
        let mut text = Vec::new();
        for key in &self.keys {
            let key = argument(tree.key_kind(), key).map_err(|error| error.within("key"))?;
            let found = match tree.get(&key) {
                Err(error @ Error::Corrupted { .. }) if tree.is_salvaged() => {
                    doubt.get_or_insert(error);
                    let mut readable = tree.readable(&key..=&key);
                    let Some((_, value)) = readable.next().transpose()? else { continue };
                    Some(value)
                }
                found => found?,
            };
            match expiry::live(found) {
                Some(value) if output.json() => output.value(&Entry::new(&key, &value))?,
                Some(value) => {
                    text.clear();
                    datum::write(&value, Form::Plain, &mut text);
                    text.push(b'\n');
                    output.bytes(&text)?;
                }
                None => absent.push(Shown(&key).to_string()),
            }
        }
        if let Some(error) = doubt {
            return Err(error.into());
        }
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
