//! `bristlecone trees`: the trees of a pool.

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::{Output, counted};
use clap::Args;
use serde_json::json;

use crate::args::ReadArgs;
use crate::store::{self, TreeInfo};

/// List the trees of a pool
#[derive(Args, Debug)]
pub struct Trees {
    #[command(flatten)]
    pool: ReadArgs,
}

impl Trees {
    pub fn run(&self, output: &mut Output) -> Outcome {
        let pool = store::open_to_read(&self.pool)?;
        let specs = store::specs(&pool)?;
        let trees = specs.into_iter().map(TreeInfo::new).collect::<Outcome<Vec<_>>>()?;
        if trees.is_empty() && !output.json() {
            output.line("no trees")?;
        }
        let mut failure = None;
        let width = trees.iter().map(|tree| tree.name.chars().count()).max().unwrap_or(0);
        for info in trees {
            // Trees of kinds that only a program can open are listed without their length, and so are
            // damaged ones, which is the first failure after the list.
            let opened = info.kinds().map(|kinds| store::open_tree(&pool, &info.name, kinds));
            let entries = match opened.transpose() {
                Ok(tree) => tree.map(|tree| tree.len()),
                Err(error) => {
                    failure.get_or_insert(error.within(&info.name));
                    None
                }
            };
            let options: Vec<String> =
                info.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
            if output.json() {
                let options: serde_json::Map<_, _> =
                    info.options.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
                output.value(&json!({
                    "name": info.name,
                    "design": info.design.to_string(),
                    "key": info.key_kind,
                    "value": info.value_kind,
                    "entries": entries,
                    "options": options,
                }))?;
            } else {
                let counted = |entries| counted(entries, "entry", "entries");
                let entries = entries.map_or_else(|| "? entries".to_owned(), counted);
                output.line(format_args!(
                    "{:width$}  {} {} -> {}  {entries}  {}",
                    info.name,
                    info.design,
                    info.key_kind,
                    info.value_kind,
                    options.join(" ")
                ))?;
            }
        }
        pool.close()?;
        failure.map_or(Ok(()), Err)
    }
}
