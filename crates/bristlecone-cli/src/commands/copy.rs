//! `bristlecone copy`: copies a pool to a new file.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bristlecone::{BackupOptions, Design, Error, Pool};
use bristlecone_cli::arguments::{DomainArg, option};
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, counted};
use bristlecone_cli::size;
use clap::Args;
use serde_json::json;

use crate::open::{ReadArgs, explain};
use crate::store;

/// Copy a pool to a new file: back it up, compact it, or change its size or designs
///
/// Reads every entry, compares it with its checksum, and writes it densely to a new pool. Without options, the new pool
/// has the size and designs of the source. The new file gets its name when it is complete and synced; after an error it
/// does not exist. The source is only read; others may read it at the same time. If another process has it open for
/// writing, the command fails or waits. That process can copy it meanwhile: `copy NEW` in `bristlecone shell`, or
/// `Pool::backup` in a program.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  bristlecone copy trees.pool /mnt/backups/trees-2026-11-23.pool
  bristlecone copy trees.pool copy.pool --wait
  bristlecone copy trees.pool larger.pool --max-bytes 4T
  bristlecone copy trees.pool new.pool --design lodgetree
  bristlecone copy trees.pool new.pool --tree ages=nbtree,block_bytes=512 --tree log=cclbtree")]
pub struct Copy {
    #[command(flatten)]
    pool: ReadArgs,
    #[command(flatten)]
    what: CopyArgs,
}

/// The new pool.
#[derive(Args, Debug)]
pub struct CopyArgs {
    /// Path of the new pool (must not exist).
    new: PathBuf,
    /// Maximum size of the new pool, for example 64G; may be smaller [default: that of the source]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_bytes: Option<u64>,
    /// Chunk size of the new pool, such as 4K for thousands of small trees [default: that of the source]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    chunk_size: Option<u64>,
    /// Design of all trees in the new pool.
    #[arg(long)]
    design: Option<Design>,
    /// Design of one tree in the new pool, with options; repeatable.
    #[arg(long = "tree", value_name = "NAME=DESIGN[,OPTION=NUMBER]...", value_parser = reshape)]
    trees: Vec<Reshape>,
    #[command(flatten)]
    domain: DomainArg,
}

/// New design and options of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reshape {
    name: String,
    design: Design,
    options: Vec<(String, u64)>,
}

/// Parses `name=design,option=number`.
fn reshape(text: &str) -> Result<Reshape, String> {
    let said = || format!("{text:?} names no tree and design: write name=design, such as ages=nbtree");
    // A name may contain any characters. Names of designs have no commas, and each option has one equals sign.
    let (head, options) = match text.split_once(',') {
        Some((head, options)) if head.contains('=') => (head, options.split(',').collect()),
        _ => (text, Vec::new()),
    };
    let (name, design) = head.rsplit_once('=').ok_or_else(said)?;
    let design = design.parse().map_err(|error: Error| error.to_string())?;
    let options = options.into_iter().map(option).collect::<Result<_, _>>()?;
    Ok(Reshape { name: name.to_owned(), design, options })
}

impl Copy {
    pub fn run(&self, output: &mut Output) -> Outcome {
        self.what.run(&self.pool.open()?, output)
    }
}

impl CopyArgs {
    /// Copies the pool to the new file.
    pub fn run(&self, pool: &Pool, output: &mut Output) -> Outcome {
        let mut options = BackupOptions::new();
        if let Some(bytes) = self.max_bytes {
            options = options.max_bytes(bytes);
        }
        if let Some(bytes) = self.chunk_size {
            options = options.chunk_bytes(bytes);
        }
        if let Some(design) = self.design {
            options = options.design(design);
        }
        for Reshape { name, design, options: given } in &self.trees {
            store::find_spec(pool, name)?;
            let given: Vec<_> = given.iter().map(|(option, value)| (option.as_str(), *value)).collect();
            options = options.tree(name, *design, &given);
        }
        if let Some(domain) = self.domain.domain {
            options = options.domain(domain);
        }
        copy(pool, &self.new, options, output)
    }
}

/// Copies the pool to a new file, and shows the progress.
fn copy(pool: &Pool, new: &Path, options: BackupOptions<'_>, output: &mut Output) -> Outcome {
    let bar = output.progress("copying", Some(0));
    let counter = bar.clone();
    let options = options.on_progress(move |progress| {
        counter.set_length(progress.items_all);
        counter.set_position(progress.items);
        if interrupt::asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let copied = pool.backup(new, options);
    bar.finish_and_clear();
    interrupt::check_failed(&copied, format_args!("no such {}", new.display()))?;
    let copied = copied.map_err(|error| fails(pool, new, error))?;
    let entries: u64 = copied.trees.iter().map(|(_, items)| items).sum();
    let trees: Vec<_> =
        copied.trees.iter().map(|(name, entries)| json!({ "name": name, "entries": entries })).collect();
    let json = json!({ "pool": new, "trees": trees, "entries": entries, "file_bytes": copied.file_bytes });
    let of = counted(copied.trees.len() as u64, "tree", "trees");
    let (entries, bytes) = (counted(entries, "entry", "entries"), size::show(copied.file_bytes));
    output.either(&json, format_args!("{}: {of} with {entries}, {bytes}", new.display()))
}

/// Returns the failure, with the name of the pool that caused it.
fn fails(pool: &Pool, new: &Path, error: Error) -> Failure {
    match error {
        Error::PoolFull { max_bytes } => {
            let max = size::show(max_bytes);
            let needs = "the entries need more: use a larger --max-bytes";
            Failure::new(
                bristlecone_cli::failure::Exit::Full,
                format!("the maximum of {} is {max}; {needs}", new.display()),
            )
        }
        // The source pool is only read.
        error if error.is_no_room() || matches!(error, Error::ReadOnly) => {
            Failure::from(error).within(new.display())
        }
        Error::Corrupted { .. } => {
            let path = pool.info().path.unwrap_or_default();
            Failure::from(error).within(path.display())
        }
        error => explain(new, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_named_with_their_designs() {
        let read = |text| reshape(text).map(|tree| (tree.name, tree.design, tree.options));
        assert_eq!(read("ages=nbtree"), Ok(("ages".to_owned(), Design::NbTree, vec![])));
        let options = vec![("block_bytes".to_owned(), 512), ("x".to_owned(), 1)];
        assert_eq!(read("a=b=nbtree,block_bytes=512,x=1"), Ok(("a=b".to_owned(), Design::NbTree, options)));
        for wrong in ["", "ages", "ages=oak", "ages=nbtree,x", "ages=nbtree,x=y"] {
            assert!(reshape(wrong).is_err(), "{wrong}");
        }
    }
}
