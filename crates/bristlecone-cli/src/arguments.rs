//! Arguments that several commands share.

use std::path::PathBuf;

use bristlecone::{Domain, Durability, PoolOptions};
use clap::Args;

use crate::size;

/// The point that a store must reach to be durable.
#[derive(Args, Clone, Copy, Debug)]
pub struct DomainArg {
    /// Durability domain: process, adr, eadr, msync or journal [default: detected from the medium]
    #[arg(long, value_name = "DOMAIN")]
    pub domain: Option<Domain>,
}

/// Where the journal of a pool is.
#[derive(Args, Clone, Debug)]
pub struct FolderArg {
    /// Folder of the journal, in a pool with the domain journal [default: POOL.journal]
    #[arg(long, value_name = "DIR")]
    pub journal: Option<PathBuf>,
}

/// What cursors may hold back.
#[derive(Args, Clone, Copy, Debug)]
pub struct LimitArg {
    /// Size of the files that a cursor may hold back, in a pool with the domain journal. A checkpoint drops a cursor that
    /// needs more [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub cursor_limit: Option<u64>,
}

/// The journal of a pool.
#[derive(Args, Clone, Debug)]
pub struct JournalArgs {
    /// When a write returns, in a pool with the domain journal: commit (on disk), memory (immediately), or interval:TIME
    /// (immediately, on disk after this time), such as interval:100ms [default: commit]
    #[arg(long, value_name = "DURABILITY")]
    pub durability: Option<Durability>,
    /// What cursors may hold back.
    #[command(flatten)]
    pub limit: LimitArg,
    /// Where it is.
    #[command(flatten)]
    pub folder: FolderArg,
}

impl LimitArg {
    /// Returns options with the limit, if one was given.
    pub fn apply(self, options: PoolOptions) -> PoolOptions {
        self.cursor_limit.into_iter().fold(options, PoolOptions::cursor_limit_bytes)
    }
}

impl FolderArg {
    /// Returns options with the folder, if one was given.
    pub fn apply(&self, options: PoolOptions) -> PoolOptions {
        self.journal.iter().fold(options, PoolOptions::journal)
    }
}

impl JournalArgs {
    /// Returns options with the durability, the limit and the folder that were given.
    pub fn apply(&self, options: PoolOptions) -> PoolOptions {
        let options = self.limit.apply(options);
        self.folder.apply(self.durability.into_iter().fold(options, PoolOptions::durability))
    }
}

/// Parses `name=value`.
pub fn option(text: &str) -> Result<(String, u64), String> {
    let said = || format!("{text:?} is not an option: write name=number, such as block_bytes=512");
    let (name, value) = text.split_once('=').ok_or_else(said)?;
    let value = value.trim().parse().map_err(|_| said())?;
    Ok((name.trim().to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_names_and_numbers() {
        assert_eq!(option("max_subnodes=4"), Ok(("max_subnodes".to_owned(), 4)));
        assert!(option("max_subnodes").is_err());
        assert!(option("max_subnodes=many").is_err());
    }
}
