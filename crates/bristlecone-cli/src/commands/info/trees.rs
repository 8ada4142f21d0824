//! The trees of a pool.

use std::collections::BTreeMap;

use bristlecone::{Error, Issue, Pool, TreeSpec};
use bristlecone_cli::failure::{Failure, Outcome};
use bristlecone_cli::interrupt;
use bristlecone_cli::output::{Output, grouped};
use serde_json::{Value, json};

use super::space::TreeSpace;
use crate::store::{self, TreeInfo};
use crate::table::{Align, Table};

/// Descriptions of trees.
pub struct Trees {
    trees: Vec<Described>,
    /// The first error of a tree that could not be read.
    failure: Option<Failure>,
}

struct Described {
    spec: TreeSpec,
    /// `None` for a design that this version does not know.
    info: Option<TreeInfo>,
    /// `None` for a tree that could not be read.
    entries: Option<u64>,
    damage: Option<Issue>,
    space: Option<TreeSpace>,
}

impl Trees {
    /// Describes one tree, or all; reads every entry to measure its space if requested.
    pub fn read(pool: &Pool, only: Option<&str>, space: bool, output: &Output) -> Outcome<Self> {
        let specs = match only {
            Some(name) => vec![store::find_spec(pool, name)?],
            None => store::specs(pool)?,
        };
        let bar = output.progress("reading", None);
        let (mut trees, mut failure) = (Vec::with_capacity(specs.len()), None);
        for spec in specs {
            let (tree, wrong) = Described::read(pool, spec, space, &mut || bar.inc(1));
            interrupt::check("nothing was changed")?;
            failure = failure.or(wrong.map(|wrong| wrong.within(&tree.spec.name)));
            trees.push(tree);
        }
        bar.finish_and_clear();
        Ok(Self { trees, failure })
    }

    pub fn len(&self) -> usize {
        self.trees.len()
    }

    /// Returns the damaged trees, and the first issue of each.
    pub fn damaged(&self) -> impl Iterator<Item = (&str, &Issue)> {
        self.trees.iter().filter_map(|tree| Some((tree.spec.name.as_str(), tree.damage.as_ref()?)))
    }

    /// Fails if any tree could not be read.
    pub fn failure(self) -> Outcome {
        self.failure.map_or(Ok(()), Err)
    }

    pub fn json(&self) -> Value {
        self.trees.iter().map(Described::json).collect()
    }

    pub fn print_damage(&self, output: &mut Output) -> Outcome {
        self.damaged().try_for_each(|(tree, Issue { what, location, .. })| {
            output.line(format_args!("damaged    {tree}: {what} at {location}"))
        })
    }

    pub fn print(&self, output: &mut Output) -> Outcome {
        if self.trees.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(&[
            ("tree", Align::Left),
            ("entries", Align::Right),
            ("keys", Align::Left),
            ("values", Align::Left),
            ("design", Align::Left),
            ("options", Align::Left),
        ]);
        let unknown = || "?".to_owned();
        for tree @ Described { spec, info, entries, .. } in &self.trees {
            let mut options: Vec<_> = tree.options().map(|(name, value)| format!("{name}={value}")).collect();
            let expire_after = info.as_ref().and_then(|info| info.expire_after_ms);
            options.extend(expire_after.map(|millis| format!("expire_after={millis}ms")));
            table.row([
                spec.name.clone(),
                entries.map_or_else(unknown, grouped),
                spec.key_kind.clone(),
                spec.value_kind.clone(),
                info.as_ref().map_or_else(unknown, |info| info.design.to_string()),
                options.join(" "),
            ]);
        }
        table.print(output)
    }

    pub fn print_space(&self, output: &mut Output) -> Outcome {
        let mut measured =
            self.trees.iter().filter_map(|tree| Some((tree.info.as_ref()?, tree.space.as_ref()?)));
        measured.try_for_each(|(info, space)| {
            output.line("")?;
            space.print(info, output)
        })
    }
}

impl Described {
    /// Describes a tree; also returns the error if it cannot be read.
    fn read(pool: &Pool, spec: TreeSpec, space: bool, each: &mut dyn FnMut()) -> (Self, Option<Failure>) {
        let mut described = Self { spec, info: None, entries: None, damage: None, space: None };
        let failure = described.open(pool, space, each).err();
        (described, failure)
    }

    fn open(&mut self, pool: &Pool, space: bool, each: &mut dyn FnMut()) -> Outcome {
        self.info = Some(TreeInfo::new(self.spec.clone())?);
        let opened = pool.dynamic_tree(&self.spec.name);
        self.damage = match &opened {
            Ok(tree) if tree.is_salvaged() => tree.damage().into_iter().next(),
            Err(Error::Corrupted { what, location }) => Some(Issue::new(location.clone(), what.clone())),
            _ => None,
        };
        let tree = opened?;
        self.entries = Some(tree.len()?);
        if space {
            self.space = Some(TreeSpace::read(pool, &self.spec.name, &tree, each)?);
        }
        Ok(())
    }

    fn options(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.info.iter().flat_map(|info| info.options.iter().copied())
    }

    fn json(&self) -> Value {
        let TreeSpec { name, key_kind, value_kind, .. } = &self.spec;
        let mut object = json!({
            "name": name,
            "design": self.info.as_ref().map(|info| info.design.to_string()),
            "key": key_kind,
            "value": value_kind,
            "entries": self.entries,
            "options": self.options().collect::<BTreeMap<_, _>>(),
        });
        if let Some(millis) = self.info.as_ref().and_then(|info| info.expire_after_ms) {
            object["expire_after_ms"] = millis.into();
        }
        if let Some(space) = &self.space {
            space.add_to(&mut object);
        }
        object
    }
}
