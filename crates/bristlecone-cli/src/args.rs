//! The command line.

use std::path::PathBuf;

use bristlecone::{Design, Pool};
use bristlecone_cli::arguments::{DomainArg, option};
use bristlecone_cli::failure::{self, Failure, Outcome};
use clap::{Args, Parser, Subcommand};

use crate::commands::{check, completions, create, del, demo, drop, dump, get, info, load, put, scan, trees};
use crate::datum::Kind;
use crate::store::{self, AnyTree, TreeInfo};

/// Ordered key-value indexes that survive crashes.
#[derive(Debug, Parser)]
#[command(name = "bristlecone", version, after_help = failure::HELP, propagate_version = true)]
#[command(disable_help_subcommand = true)]
pub struct Cli {
    /// Print JSON: one value per line on standard output, errors as JSON on standard error.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands; each has a file of its own in `commands/`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::Demo),
    Create(create::Create),
    Info(info::Info),
    Trees(trees::Trees),
    Check(check::Check),
    Put(put::Put),
    Get(get::Get),
    Del(del::Del),
    Scan(scan::Scan),
    Load(load::Load),
    Dump(dump::Dump),
    Drop(drop::Drop),
    Completions(completions::Completions),
    #[command(hide = true)]
    DemoWriter(demo::DemoWriter),
}

/// Which pool, and how it is made durable.
#[derive(Args, Debug)]
pub struct PoolArgs {
    /// The pool file.
    #[arg(value_name = "POOL")]
    pub path: PathBuf,
    #[command(flatten)]
    pub domain: DomainArg,
}

/// Which pool, for commands that only read.
#[derive(Args, Debug)]
pub struct ReadArgs {
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Leave the file as it is, also after a crash; done anyway where it cannot be written.
    #[arg(long)]
    pub read_only: bool,
}

/// What a new tree is to be.
#[derive(Args, Clone, Debug)]
pub struct TreeArgs {
    /// Design of a new tree: sstree, nbtree, cclbtree, lodgetree or wotree [default: sstree]
    #[arg(long)]
    design: Option<Design>,
    /// Kind of a new tree's keys: u64, str or bytes [default: str]
    #[arg(long, value_name = "KIND")]
    key: Option<Kind>,
    /// Kind of a new tree's values: u64, str or bytes [default: str]
    #[arg(long, value_name = "KIND")]
    value: Option<Kind>,
    /// Parameter of a new tree's design; may be given several times.
    #[arg(long = "option", value_name = "NAME=NUMBER", value_parser = option)]
    options: Vec<(String, u64)>,
}

impl TreeArgs {
    /// Whether anything was said.
    pub fn is_given(&self) -> bool {
        self.design.is_some() || self.key.is_some() || self.value.is_some() || !self.options.is_empty()
    }

    /// The design.
    pub fn design(&self) -> Design {
        self.design.unwrap_or(Design::SsTree)
    }

    /// Kinds of keys and values.
    pub fn kinds(&self) -> (Kind, Kind) {
        (self.key.unwrap_or(Kind::Str), self.value.unwrap_or(Kind::Str))
    }

    /// Creates the tree.
    pub fn create(&self, pool: &Pool, name: &str) -> Outcome<Box<dyn AnyTree>> {
        let (key, value) = self.kinds();
        store::create(pool, name, (key, value), self.design(), &self.options)
    }

    /// Opens the tree if there is one, which must then be as described; creates it otherwise.
    pub fn open_or_create(&self, pool: &Pool, name: &str) -> Outcome<Box<dyn AnyTree>> {
        let spec = store::specs(pool)?.into_iter().find(|tree| tree.name == name);
        let Some(info) = spec.map(TreeInfo::new).transpose()? else {
            return self.create(pool, name);
        };
        let same = |what: &str, asked: Option<String>, found: &str| match asked {
            Some(asked) if asked != found => Err(Failure::usage(format!(
                "the tree {name:?} has {what} {found}, not {asked}: leave the option out, or choose another tree"
            ))),
            _ => Ok(()),
        };
        same("keys of kind", self.key.map(|kind| kind.to_string()), &info.key_kind)?;
        same("values of kind", self.value.map(|kind| kind.to_string()), &info.value_kind)?;
        same("design", self.design.map(|design| design.to_string()), &info.design.to_string())?;
        for (option, asked) in &self.options {
            let found = info.options.iter().find(|(name, _)| name == option);
            let found = found.map_or_else(|| "unset".to_owned(), |(_, value)| value.to_string());
            same(&format!("option {option}"), Some(asked.to_string()), &found)?;
        }
        store::tree(pool, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
