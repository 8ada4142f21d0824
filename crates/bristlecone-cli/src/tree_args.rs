//! Arguments that describe a new tree.

use std::time::Duration;

use bristlecone::dynamic::Tree;
use bristlecone::{Design, Pool};
use bristlecone_cli::arguments::option;
use bristlecone_cli::failure::{Failure, Outcome};
use clap::Args;

use crate::datum::Kind;
use crate::expiry;
use crate::store::{self, TreeInfo};

/// Properties of a new tree.
#[derive(Args, Clone, Debug, Default)]
pub struct TreeArgs {
    /// Design of a new tree: sstree, nbtree, cclbtree, lodgetree or wotree [default: nbtree]
    #[arg(long)]
    pub design: Option<Design>,
    /// Kind of a new tree's keys, for example u64 or "(str, u32)"; `bristlecone help` lists them [default:
    /// str]
    #[arg(long, value_name = "KIND")]
    pub key: Option<Kind>,
    /// Kind of a new tree's values [default: str]
    #[arg(long, value_name = "KIND")]
    pub value: Option<Kind>,
    /// Option of a new tree's design, for example block_bytes=512; repeatable.
    #[arg(long = "option", value_name = "NAME=NUMBER", value_parser = option)]
    pub options: Vec<(String, u64)>,
    /// How long a value of a kind Expiring<…> lives if its write names no expiry, for example 90s, 15m or 7d [default: it
    /// does not expire]
    #[arg(long, value_name = "TIME", value_parser = expiry::duration)]
    pub expire_after: Option<Duration>,
}

impl TreeArgs {
    /// Returns whether any argument was given.
    pub fn is_given(&self) -> bool {
        self.design.is_some()
            || self.key.is_some()
            || self.value.is_some()
            || !self.options.is_empty()
            || self.expire_after.is_some()
    }

    /// Returns the design.
    pub fn design(&self) -> Design {
        self.design.unwrap_or_default()
    }

    /// Returns the kinds of keys and values.
    pub fn kinds(&self) -> (Kind, Kind) {
        let or_str = |kind: &Option<Kind>| kind.clone().unwrap_or(Kind::Str);
        (or_str(&self.key), or_str(&self.value))
    }

    /// Returns the given arguments, and those of `other` for the rest. Options belong to one design: those
    /// of another design are omitted.
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
            expire_after: self.expire_after.or(other.expire_after),
        }
    }

    /// Creates the tree.
    pub fn create(&self, pool: &Pool, name: &str) -> Outcome<Tree> {
        let mut options = pool.tree_options(name).design(self.design());
        for (name, value) in &self.options {
            options = options.option(name, *value);
        }
        if let Some(time) = self.expire_after {
            options = options.expire_after(time);
        }
        let (key, value) = self.kinds();
        Ok(options.create_dynamic(&key, &value)?)
    }

    /// Opens the tree if it exists, which must then match the arguments. Otherwise creates it with the
    /// arguments, and with those of `default` for the rest.
    pub fn open_or_create(&self, pool: &Pool, name: &str, default: Self) -> Outcome<Tree> {
        let spec = store::specs(pool)?.into_iter().find(|tree| tree.name == name);
        let Some(info) = spec.map(TreeInfo::new).transpose()? else {
            return self.or(default).create(pool, name);
        };
        let same = |what: &str, asked: Option<String>, found: &str| match asked {
            Some(asked) if asked != found => Err(Failure::usage(format!(
                "the tree {name:?} has {what} {found}, not {asked}: drop the option, or choose another tree"
            ))),
            _ => Ok(()),
        };
        same("keys of kind", self.key.as_ref().map(Kind::to_string), &info.key_kind)?;
        same("values of kind", self.value.as_ref().map(Kind::to_string), &info.value_kind)?;
        same("design", self.design.map(|design| design.to_string()), &info.design.to_string())?;
        let millis = |time: Duration| format!("{} ms", time.as_millis());
        let found = info.expire_after_ms.map_or_else(|| "unset".to_owned(), |found| format!("{found} ms"));
        same("--expire-after", self.expire_after.map(millis), &found)?;
        for (option, asked) in &self.options {
            let found = info.options.iter().find(|(name, _)| name == option);
            let found = found.map_or_else(|| "unset".to_owned(), |(_, value)| value.to_string());
            same(&format!("option {option}"), Some(asked.to_string()), &found)?;
        }
        store::tree(pool, name)
    }
}
