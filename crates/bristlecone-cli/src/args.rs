//! The command line.

use bristlecone::dynamic::Tree;
use bristlecone::{Design, Pool};
use bristlecone_cli::arguments::option;
use bristlecone_cli::failure::{self, Failure, Outcome};
use clap::{Args, Parser, Subcommand};

use crate::commands::{
    check, clear, completions, copy, create, del, demo, drop, dump, get, info, load, man, put, rename,
    resize, scan, scrub, stat, trees, trim,
};
use crate::datum::Kind;
use crate::shell;
use crate::store::{self, TreeInfo};

/// Ordered key-value indexes that survive crashes.
///
/// A pool is a file that holds named trees; a tree maps keys to values, in order. Commands that only read leave
/// the file as it is and may run at the same time; a command that writes has the pool for itself.
#[derive(Debug, Parser)]
#[command(name = "bristlecone", version, after_help = help(), propagate_version = true)]
pub struct Cli {
    /// Print JSON: one value per line on standard output, errors as JSON on standard error.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How keys and values are written.
const FORMS: &str = "\
Keys and values, by kind:
  u8 … u128, i8 … i128   decimal numbers
  f32, f64               1.5, -2e-7, inf, NaN; in order, the least first
  bool, char, str, ()    true or false; text as it is, without quotes; ()
  bytes, [u8; N]         text, with \\xNN for what cannot be typed and \\\\ for a backslash
  (str, u64) …           a JSON array: '[\"oak\", 7]'
  Option<u64> …          null or the value in JSON: 7, '\"text\"'
  json                   JSON (values only)
  postcard               bytes as a program wrote them (values only)
With --json numbers of up to 64 bits are numbers, wider ones strings; bytes keep their escapes. In lines of
text, as `scan` and `dump` print them, a tab, a newline and a backslash in text are \\t, \\n and \\\\.";

/// Returns what follows the list of commands.
fn help() -> String {
    format!("{FORMS}\n\n{}", failure::HELP)
}

/// The commands; each has a file of its own in `commands/`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::Demo),
    Create(create::Create),
    Info(info::Info),
    Trees(trees::Trees),
    Stat(stat::Stat),
    Check(check::Check),
    Scrub(scrub::Scrub),
    Put(put::Put),
    Get(get::Get),
    Del(del::Del),
    Scan(scan::Scan),
    Load(load::Load),
    Dump(dump::Dump),
    Drop(drop::Drop),
    Rename(rename::Rename),
    Clear(clear::Clear),
    Copy(copy::Copy),
    Backup(copy::Backup),
    Resize(resize::Resize),
    Trim(trim::Trim),
    Shell(shell::Shell),
    Completions(completions::Completions),
    Man(man::Man),
    #[command(hide = true)]
    DemoWriter(demo::DemoWriter),
}

/// What a new tree is to be.
#[derive(Args, Clone, Debug, Default)]
pub struct TreeArgs {
    /// Design of a new tree: sstree, nbtree, cclbtree, lodgetree or wotree [default: sstree]
    #[arg(long)]
    pub design: Option<Design>,
    /// Kind of a new tree's keys, such as u64 or "(str, u32)": `bristlecone help` lists them [default: str]
    #[arg(long, value_name = "KIND")]
    pub key: Option<Kind>,
    /// Kind of a new tree's values, likewise [default: str]
    #[arg(long, value_name = "KIND")]
    pub value: Option<Kind>,
    /// Option of a new tree's design, such as max_subnodes=4; may be given several times.
    #[arg(long = "option", value_name = "NAME=NUMBER", value_parser = option)]
    pub options: Vec<(String, u64)>,
}

impl TreeArgs {
    /// Returns whether anything was said.
    pub fn is_given(&self) -> bool {
        self.design.is_some() || self.key.is_some() || self.value.is_some() || !self.options.is_empty()
    }

    /// Returns the design.
    pub fn design(&self) -> Design {
        self.design.unwrap_or(Design::SsTree)
    }

    /// Returns the kinds of keys and values.
    pub fn kinds(&self) -> (Kind, Kind) {
        let or_str = |kind: &Option<Kind>| kind.clone().unwrap_or(Kind::Str);
        (or_str(&self.key), or_str(&self.value))
    }

    /// Returns what was said, and of the rest what `other` says. Options are of one design: those of another
    /// are left out.
    pub fn or(&self, other: Self) -> Self {
        let same_design = self.design.is_none() || self.design == other.design;
        let mut options = self.options.clone();
        if same_design {
            let unsaid = other
                .options
                .into_iter()
                .filter(|(name, _)| self.options.iter().all(|(said, _)| said != name));
            options.extend(unsaid);
        }
        Self {
            design: self.design.or(other.design),
            key: self.key.clone().or(other.key),
            value: self.value.clone().or(other.value),
            options,
        }
    }

    /// Creates the tree.
    pub fn create(&self, pool: &Pool, name: &str) -> Outcome<Tree> {
        let mut options = pool.tree_options(name).design(self.design());
        for (name, value) in &self.options {
            options = options.option(name, *value);
        }
        let (key, value) = self.kinds();
        Ok(options.create_dynamic(&key, &value)?)
    }

    /// Opens the tree if there is one, which must then be as described; creates it as described, and where
    /// nothing was said as `default` says, otherwise.
    pub fn open_or_create(&self, pool: &Pool, name: &str, default: Self) -> Outcome<Tree> {
        let spec = store::specs(pool)?.into_iter().find(|tree| tree.name == name);
        let Some(info) = spec.map(TreeInfo::new).transpose()? else {
            return self.or(default).create(pool, name);
        };
        let same = |what: &str, asked: Option<String>, found: &str| match asked {
            Some(asked) if asked != found => Err(Failure::usage(format!(
                "the tree {name:?} has {what} {found}, not {asked}: leave the option out, or choose another tree"
            ))),
            _ => Ok(()),
        };
        same("keys of kind", self.key.as_ref().map(Kind::to_string), &info.key_kind)?;
        same("values of kind", self.value.as_ref().map(Kind::to_string), &info.value_kind)?;
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

    #[test]
    fn every_visible_command_has_an_example() {
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.contains("  bristlecone "), "{}", command.get_name());
        }
    }
}
