//! `bristlecone trees`: lists the trees of a pool.

use std::collections::BTreeMap;

use bristlecone::Pool;
use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::{Output, grouped};
use clap::Args;
use serde_json::json;

use crate::open::ReadArgs;
use crate::store::{self, TreeInfo};
use crate::table::{Align, Table};

/// List the trees of a pool
#[derive(Args, Debug)]
#[command(
    after_help = "On a terminal, lines are cut to 100 columns; to anything else, and with --json, they are whole.

Examples:
  bristlecone trees trees.pool
  bristlecone trees trees.pool --json | jq .entries"
)]
pub struct Trees {
    #[command(flatten)]
    pool: ReadArgs,
}

impl Trees {
    pub fn run(&self, output: &mut Output) -> Outcome {
        list(&self.pool.open_or_follow()?, output)
    }
}

/// Lists the trees. Damaged ones are listed without their length; the first of their errors is
/// returned after the list.
pub fn list(pool: &Pool, output: &mut Output) -> Outcome {
    let trees = store::specs(pool)?.into_iter().map(TreeInfo::new).collect::<Outcome<Vec<_>>>()?;
    if trees.is_empty() && !output.json() {
        return output.line("no trees");
    }
    let mut failure = None;
    let mut table = Table::new(&[
        ("tree", Align::Left),
        ("entries", Align::Right),
        ("keys", Align::Left),
        ("values", Align::Left),
        ("design", Align::Left),
        ("options", Align::Left),
    ]);
    for info in trees {
        let len = store::tree(pool, &info.name).and_then(|tree| Ok(tree.try_len()?));
        let entries = match len {
            Ok(entries) => Some(entries),
            Err(error) => {
                failure.get_or_insert(error.within(&info.name));
                None
            }
        };
        if output.json() {
            let options: BTreeMap<_, _> = info.options.iter().copied().collect();
            output.value(&json!({
                "name": info.name,
                "design": info.design.to_string(),
                "key": info.key_kind,
                "value": info.value_kind,
                "entries": entries,
                "options": options,
            }))?;
        } else {
            let options: Vec<_> =
                info.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let entries = entries.map_or_else(|| "?".to_owned(), grouped);
            let design = info.design.to_string();
            table.row([info.name, entries, info.key_kind, info.value_kind, design, options.join(" ")]);
        }
    }
    if !output.json() {
        table.print(output)?;
    }
    failure.map_or(Ok(()), Err)
}
