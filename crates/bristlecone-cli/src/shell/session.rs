//! The shell's commands.

use std::path::Path;

use bristlecone::Pool;
use bristlecone::dynamic::Tree;
use bristlecone_cli::answer;
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::output::Output;
use clap::{CommandFactory, Parser, Subcommand};
use serde_json::json;

use super::words;
use crate::commands::{check, clear, copy, del, drop, dump, expire, get, info, load, put, rename, scan};
use crate::store;
use crate::tree_args::TreeArgs;

/// One line of the shell.
#[derive(Debug, Parser)]
#[command(name = "shell", multicall = true, disable_version_flag = true, help_template = HELP)]
pub struct Line {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str = "\
Commands are those of the tool, for the open pool and the tree chosen by `use`.
Words with spaces stand in 'quotes'. `help COMMAND` says more.

{subcommands}";

/// The shell's commands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Select the current tree
    Use {
        /// The tree.
        tree: String,
    },
    /// Print the values of keys
    Get(get::GetArgs),
    /// Set the value of a key
    Put(put::PutArgs),
    /// Remove keys
    Del(del::DelArgs),
    /// Set when entries expire
    Expire(expire::ExpireArgs),
    /// Print entries in key order
    Scan(scan::ScanArgs),
    /// Create a tree, and select it
    Create {
        /// Its name.
        #[arg(required_unless_present = "named")]
        tree: Option<String>,
        /// Its name, in the syntax of the tool's own command.
        #[arg(long = "tree", id = "named", value_name = "NAME", conflicts_with = "tree")]
        named: Option<String>,
        #[command(flatten)]
        shape: TreeArgs,
    },
    /// Load entries from a file
    #[command(allow_missing_positional = true)]
    Load {
        /// The tree; created if it does not exist [default: that of the dump, otherwise the current
        /// one]
        tree: Option<String>,
        #[command(flatten)]
        what: load::LoadArgs,
    },
    /// Print a tree, or all, as text that `load` can read
    Dump {
        /// The tree [default: the current one]
        tree: Option<String>,
        #[command(flatten)]
        what: dump::DumpArgs,
    },
    /// Remove a tree and all its entries, immediately and permanently
    Drop {
        /// The tree.
        tree: String,
    },
    /// Rename a tree
    Rename {
        /// The tree.
        tree: String,
        /// Its new name.
        name: String,
    },
    /// Remove every entry of a tree, immediately and permanently
    Clear {
        /// The tree.
        tree: String,
    },
    /// Describe the pool and its trees
    Info(info::InfoArgs),
    /// Check the pool and its trees
    Check(check::CheckArgs),
    /// Copy the pool in its present state to a new file
    Copy(copy::CopyArgs),
    /// Leave
    #[command(visible_alias = "quit")]
    Exit,
}

/// Whether the shell continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Go,
    Leave,
}

/// An open pool, and the current tree.
pub struct Session<'a> {
    pool: Pool,
    path: &'a Path,
    /// Folder of the journal, if it was given.
    folder: Option<&'a Path>,
    chosen: Option<(String, Tree)>,
}

impl<'a> Session<'a> {
    pub fn new(pool: Pool, path: &'a Path, folder: Option<&'a Path>) -> Self {
        Self { pool, path, folder, chosen: None }
    }

    /// Selects the tree with this name.
    pub fn choose(&mut self, name: &str) -> Outcome {
        self.chosen = Some((name.to_owned(), store::tree(&self.pool, name)?));
        Ok(())
    }

    /// Returns the prompt's text for the current tree.
    pub fn place(&self) -> String {
        self.chosen.as_ref().map(|(name, _)| format!("/{name}")).unwrap_or_default()
    }

    /// Returns the names of the trees.
    pub fn names(&self) -> Vec<String> {
        store::specs(&self.pool).unwrap_or_default().into_iter().map(|spec| spec.name).collect()
    }

    /// Closes the pool.
    pub fn close(self) -> Outcome {
        std::mem::drop(self.chosen);
        Ok(self.pool.close()?)
    }

    /// Returns the current tree, or the pool's only one.
    fn tree(&mut self) -> Outcome<&(String, Tree)> {
        if self.chosen.is_none() {
            match self.names().as_slice() {
                [only] => self.choose(only)?,
                [] => return Err(Failure::usage("the pool has no trees: create one with `create NAME`")),
                names => {
                    let said = format!("no tree is chosen: `use` one of {}", names.join(", "));
                    return Err(Failure::usage(said));
                }
            }
        }
        self.chosen.as_ref().ok_or_else(|| Failure::usage("no tree is chosen"))
    }

    /// Executes one line; an empty one does nothing.
    pub fn execute(&mut self, line: &str, output: &mut Output) -> Outcome<Next> {
        let words = words::split(line).map_err(Failure::usage)?;
        if words.is_empty() {
            return Ok(Next::Go);
        }
        let line = match Line::try_parse_from(words) {
            Ok(line) => line,
            Err(error) if error.use_stderr() => {
                return Err(Failure::usage(answer::one_line(&error.to_string()).replace("--help", "help")));
            }
            Err(help) => return output.line(help).map(|()| Next::Go),
        };
        if let Command::Exit = line.command {
            return Ok(Next::Leave);
        }
        self.run(line.command, output).map(|()| Next::Go)
    }

    fn run(&mut self, command: Command, output: &mut Output) -> Outcome {
        match command {
            Command::Use { tree } => self.choose(&tree),
            Command::Get(what) => what.run(&self.tree()?.1, output),
            Command::Put(what) => what.run(&self.tree()?.1, output),
            Command::Del(what) => what.run(&self.tree()?.1, output),
            Command::Expire(what) => what.run(&self.tree()?.1, output),
            Command::Scan(what) => what.run(&self.tree()?.1, output),
            Command::Create { tree, named, shape } => {
                let tree = tree.or(named).unwrap_or_default();
                let created = shape.create(&self.pool, &tree)?;
                self.chosen = Some((tree.clone(), created));
                output.either(&json!({ "tree": tree }), format_args!("created {tree}"))
            }
            Command::Load { tree, what } => self.load(tree, &what, output),
            Command::Dump { tree, what } => {
                let tree = match tree {
                    None if !what.all => Some(self.tree()?.0.clone()),
                    named => named,
                };
                what.run(&self.pool, tree.as_deref(), output)
            }
            Command::Drop { tree } => {
                self.chosen.take_if(|(name, _)| *name == tree);
                drop::drop(&self.pool, &tree, output)
            }
            Command::Rename { tree, name } => {
                rename::rename(&self.pool, &tree, &name, output)?;
                if let Some((chosen, _)) = self.chosen.as_mut().filter(|(chosen, _)| *chosen == tree) {
                    *chosen = name;
                }
                Ok(())
            }
            Command::Clear { tree } => {
                let was_chosen = self.chosen.take_if(|(name, _)| *name == tree).is_some();
                clear::clear(&self.pool, &tree, output)?;
                if was_chosen { self.choose(&tree) } else { Ok(()) }
            }
            Command::Info(what) => what.run(&self.pool, self.path, self.folder, output),
            Command::Check(what) => what.run(&self.pool, output),
            Command::Copy(what) => what.run(&self.pool, output),
            Command::Exit => Ok(()),
        }
    }

    fn load(&mut self, tree: Option<String>, what: &load::LoadArgs, output: &mut Output) -> Outcome {
        if what.is_stdin() {
            return Err(Failure::usage("standard input is the shell's own: name a file"));
        }
        let input = what.open()?;
        let tree = match tree {
            None if !input.is_dump() => Some(self.tree()?.0.clone()),
            named => named,
        };
        what.run(input, &self.pool, tree.as_deref(), output)
    }
}

/// Returns the shell's commands with their options, for completion.
pub fn commands() -> clap::Command {
    let mut commands = Line::command();
    commands.build();
    commands
}
