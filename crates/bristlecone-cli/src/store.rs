//! The trees of a pool, by name.

use std::ops::Bound;

use bristlecone::dynamic::Tree;
use bristlecone::{CasError, Design, Pool, TreeSpec};
use bristlecone_cli::failure::{Exit, Failure, Outcome};

use crate::datum::Datum;
use crate::expiry;

/// A tree's entry in the directory.
pub struct TreeInfo {
    pub name: String,
    pub design: Design,
    pub key_kind: String,
    pub value_kind: String,
    pub options: Vec<(&'static str, u64)>,
    /// Milliseconds that a value lives if its write names no expiry.
    pub expire_after_ms: Option<u64>,
}

impl TreeInfo {
    /// Interprets a directory entry.
    pub fn new(spec: TreeSpec) -> Outcome<Self> {
        let (design, options) = (Design::of(&spec)?, Design::options_of(&spec)?);
        let TreeSpec { name, key_kind, value_kind, expire_after_ms, .. } = spec;
        let expire_after_ms = (expire_after_ms > 0).then_some(expire_after_ms);
        Ok(Self { name, design, key_kind, value_kind, options, expire_after_ms })
    }
}

/// Returns the directory's entries of the trees of a pool, by name.
pub fn specs(pool: &Pool) -> Outcome<Vec<TreeSpec>> {
    let mut trees: Vec<_> = pool.trees()?.into_iter().map(|entry| entry.spec).collect();
    trees.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(trees)
}

/// Returns the directory's entry of the tree of this name.
pub fn find_spec(pool: &Pool, name: &str) -> Outcome<TreeSpec> {
    let mut trees = specs(pool)?;
    if let Some(index) = trees.iter().position(|tree| tree.name == name) {
        return Ok(trees.swap_remove(index));
    }
    let names: Vec<&str> = trees.iter().map(|tree| tree.name.as_str()).collect();
    let said = if names.is_empty() {
        format!(
            "no tree named {name:?}: the pool is empty; create a tree with `bristlecone create POOL --tree NAME`"
        )
    } else {
        format!("no tree named {name:?}: the pool has {}", names.join(", "))
    };
    Err(Failure::new(Exit::Absent, said))
}

/// Returns the interpreted directory entry of the tree of this name.
pub fn find(pool: &Pool, name: &str) -> Outcome<TreeInfo> {
    TreeInfo::new(find_spec(pool, name)?)
}

/// Opens a tree with its own design and kinds. Warns on standard error if it is damaged, so that only its readable
/// entries are served.
pub fn tree(pool: &Pool, name: &str) -> Outcome<Tree> {
    find_spec(pool, name)?;
    let tree = pool.dynamic_tree(name)?;
    if tree.is_salvaged() {
        let damage = tree.damage();
        let reason = damage.first().map(|found| format!(": {} at {}", found.what, found.location));
        eprintln!(
            "bristlecone: tree {name} is damaged; printing its readable entries{}",
            reason.unwrap_or_default()
        );
    }
    Ok(tree)
}

/// Inserts an absent key, or one that has expired; returns the value of a key that exists, which is unchanged.
pub fn insert_new(tree: &Tree, key: &Datum, value: &Datum) -> Outcome<Option<Datum>> {
    loop {
        let held = match tree.try_insert(key, value) {
            Ok(()) => return Ok(None),
            Err(present) => present.into_present()?,
        };
        if !expiry::has_expired(&held) {
            return Ok(Some(held));
        }
        match tree.compare_and_swap(key, Some(&held), None) {
            Ok(()) | Err(CasError::Found(_)) => {}
            Err(error) => return Err(bristlecone::Error::from(error).into()),
        }
    }
}

/// Calls `each` as [`scan`] does. Of a damaged tree, calls it with all readable entries, and then fails if damage may
/// affect any key that the scan has passed.
pub fn scan_readable(
    tree: &Tree,
    bounds: (Bound<Datum>, Bound<Datum>),
    reverse: bool,
    each: &mut dyn FnMut(&Datum, &Datum) -> Outcome<bool>,
) -> Outcome {
    if !tree.is_salvaged() {
        return scan(tree, bounds, reverse, each);
    }
    let bounds = (bounds.0.as_ref(), bounds.1.as_ref());
    let (mut range, mut checked) = (tree.readable(bounds), tree.range(bounds));
    let mut doubt = None;
    loop {
        if doubt.is_none() {
            let checked = if reverse { checked.next_back() } else { checked.next() };
            doubt = checked.and_then(|item| item.err());
        }
        let item = if reverse { range.next_back() } else { range.next() };
        let Some((key, value)) = item.transpose()? else { break };
        if !each(&key, &value)? {
            break;
        }
    }
    doubt.map_or(Ok(()), |doubt| Err(doubt.into()))
}

/// Calls `each` with entries in order until it returns `false`. Verifies the checksums of their
/// records.
pub fn scan(
    tree: &Tree,
    bounds: (Bound<Datum>, Bound<Datum>),
    reverse: bool,
    each: &mut dyn FnMut(&Datum, &Datum) -> Outcome<bool>,
) -> Outcome {
    let mut range = tree.range((bounds.0.as_ref(), bounds.1.as_ref()));
    while let Some(item) = if reverse { range.next_back() } else { range.next() } {
        let (key, value) = item?;
        if !each(&key, &value)? {
            break;
        }
    }
    Ok(())
}
