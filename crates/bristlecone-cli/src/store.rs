//! Trees whose types are known only at run time: what the pool's directory says.

use std::ops::Bound;

use bristlecone::{Design, Error, Key, Pool, Tree, TreeSpec, TreeStats, Value};
use bristlecone_cli::failure::{Exit, Failure, Outcome};

use crate::datum::{Datum, Kind, Shown};

/// What the directory says about a tree.
pub struct TreeInfo {
    pub name: String,
    pub design: Design,
    pub key_kind: String,
    pub value_kind: String,
    pub options: Vec<(&'static str, u64)>,
}

impl TreeInfo {
    /// Reads what the directory says.
    pub fn new(spec: TreeSpec) -> Outcome<Self> {
        let (design, options) = (Design::of(&spec)?, Design::options_of(&spec)?);
        let TreeSpec { name, key_kind, value_kind, .. } = spec;
        Ok(Self { name, design, key_kind, value_kind, options })
    }

    /// The kinds of keys and values, if the tool can open them.
    pub fn kinds(&self) -> Option<(Kind, Kind)> {
        Some((self.key_kind.parse().ok()?, self.value_kind.parse().ok()?))
    }
}

/// The directory's entries of the trees of a pool, by name.
pub fn specs(pool: &Pool) -> Outcome<Vec<TreeSpec>> {
    let mut trees: Vec<_> = pool.trees()?.into_iter().map(|entry| entry.spec).collect();
    trees.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(trees)
}

/// The directory's entry of the tree of this name.
pub fn find_spec(pool: &Pool, name: &str) -> Outcome<TreeSpec> {
    let mut trees = specs(pool)?;
    if let Some(index) = trees.iter().position(|tree| tree.name == name) {
        return Ok(trees.swap_remove(index));
    }
    let names: Vec<&str> = trees.iter().map(|tree| tree.name.as_str()).collect();
    let said = if names.is_empty() {
        format!("no tree named {name:?}: the pool has none; `bristlecone create POOL --tree NAME` makes one")
    } else {
        format!("no tree named {name:?}: the pool has {}", names.join(", "))
    };
    Err(Failure::new(Exit::Absent, said))
}

/// What the directory says about the tree of this name.
pub fn find(pool: &Pool, name: &str) -> Outcome<TreeInfo> {
    TreeInfo::new(find_spec(pool, name)?)
}

/// A tree of any kind.
pub trait AnyTree {
    /// Returns the kind of the keys.
    fn key_kind(&self) -> &Kind;
    /// Returns the kind of the values.
    fn value_kind(&self) -> &Kind;
    /// Returns the number of entries.
    fn len(&self) -> u64;
    /// Returns the value of a key, its record compared with its checksum.
    fn get(&self, key: &Datum) -> Outcome<Option<Datum>>;
    /// Sets the value of a key; returns whether there was one before.
    fn insert(&self, key: &Datum, value: &Datum) -> Outcome<bool>;
    /// Sets the value of a key that has none; returns the value it has otherwise.
    fn insert_new(&self, key: &Datum, value: &Datum) -> Outcome<Option<Datum>>;
    /// Sets the value of a key that has one; returns whether it was set.
    fn update(&self, key: &Datum, value: &Datum) -> Outcome<bool>;
    /// Removes a key; returns whether it was there.
    fn remove(&self, key: &Datum) -> Outcome<bool>;
    /// Calls `each` with entries in order until it returns `false`. Their records are compared with
    /// their checksums.
    fn scan(
        &self,
        bounds: (Bound<&Datum>, Bound<&Datum>),
        reverse: bool,
        each: &mut dyn FnMut(&Datum, &Datum) -> Outcome<bool>,
    ) -> Outcome;
    /// Returns what the tree occupies.
    fn stats(&self) -> TreeStats;
}

/// Opens a tree as what it is.
pub fn tree(pool: &Pool, name: &str) -> Outcome<Box<dyn AnyTree>> {
    let info = find(pool, name)?;
    let Some(kinds) = info.kinds() else {
        let kinds = format!("{} to {}", info.key_kind, info.value_kind);
        let said = format!(
            "the tree {name:?} maps {kinds}: the tool opens u64, str and bytes; a program can open it"
        );
        return Err(Failure::usage(said));
    };
    open_tree(pool, name, kinds)
}

/// Opens a tree of these kinds.
pub fn open_tree(pool: &Pool, name: &str, (key, value): (Kind, Kind)) -> Outcome<Box<dyn AnyTree>> {
    dispatch(&key, &value, &mut Opening { pool, name })
}

/// Creates a tree of these kinds.
pub fn create(
    pool: &Pool,
    name: &str,
    (key, value): (Kind, Kind),
    design: Design,
    options: &[(String, u64)],
) -> Outcome<Box<dyn AnyTree>> {
    dispatch(&key, &value, &mut Creating { pool, name, design, options })
}

/// Does something for one pair of types.
trait ForTypes {
    fn run<K: TextKey, V: TextValue>(&mut self) -> Result<Box<dyn AnyTree>, Error>;
}

fn dispatch(key: &Kind, value: &Kind, what: &mut impl ForTypes) -> Outcome<Box<dyn AnyTree>> {
    fn with_key<K: TextKey>(value: &Kind, what: &mut impl ForTypes) -> Result<Box<dyn AnyTree>, Error> {
        match value {
            Kind::U64 => what.run::<K, u64>(),
            Kind::Str => what.run::<K, &'static str>(),
            _ => what.run::<K, &'static [u8]>(),
        }
    }
    let tree = match key {
        Kind::U64 => with_key::<u64>(value, what),
        Kind::Str => with_key::<&'static str>(value, what),
        _ => with_key::<&'static [u8]>(value, what),
    };
    Ok(tree?)
}

struct Opening<'a> {
    pool: &'a Pool,
    name: &'a str,
}

impl ForTypes for Opening<'_> {
    fn run<K: TextKey, V: TextValue>(&mut self) -> Result<Box<dyn AnyTree>, Error> {
        Ok(Box::new(self.pool.tree_options(self.name).open::<K, V>()?))
    }
}

struct Creating<'a> {
    pool: &'a Pool,
    name: &'a str,
    design: Design,
    options: &'a [(String, u64)],
}

impl ForTypes for Creating<'_> {
    fn run<K: TextKey, V: TextValue>(&mut self) -> Result<Box<dyn AnyTree>, Error> {
        let mut options = self.pool.tree_options(self.name).design(self.design);
        for (name, value) in self.options {
            options = options.option(name, *value);
        }
        Ok(Box::new(options.create::<K, V>()?))
    }
}

/// A key type that stands for a [`Kind`].
trait TextKey: Key + Sized + 'static {
    const KIND: &'static Kind;
    fn of(datum: &Datum) -> Outcome<Self::Ref<'_>>;
    fn datum(owned: Self::Owned) -> Datum;
}

/// A value type that stands for a [`Kind`].
trait TextValue: Value + Sized + 'static {
    const KIND: &'static Kind;
    fn of(datum: &Datum) -> Outcome<Self::Ref<'_>>;
    fn datum(owned: Self::Owned) -> Datum;
}

macro_rules! texts {
    ($($type:ty, $kind:ident, |$owned:ident| $borrow:expr;)*) => {$(
        impl TextKey for $type {
            const KIND: &'static Kind = &Kind::$kind;
            fn of(datum: &Datum) -> Outcome<<Self as Key>::Ref<'_>> {
                match datum {
                    Datum::$kind($owned) => Ok($borrow),
                    other => Err(wrong_kind(other, Kind::$kind)),
                }
            }
            fn datum(owned: <Self as Key>::Owned) -> Datum {
                Datum::$kind(owned)
            }
        }
        impl TextValue for $type {
            const KIND: &'static Kind = &Kind::$kind;
            fn of(datum: &Datum) -> Outcome<<Self as Value>::Ref<'_>> {
                match datum {
                    Datum::$kind($owned) => Ok($borrow),
                    other => Err(wrong_kind(other, Kind::$kind)),
                }
            }
            fn datum(owned: <Self as Value>::Owned) -> Datum {
                Datum::$kind(owned)
            }
        }
    )*};
}

texts! {
    u64, U64, |owned| *owned;
    &'static str, Str, |owned| owned;
    &'static [u8], Bytes, |owned| owned;
}

fn wrong_kind(datum: &Datum, kind: Kind) -> Failure {
    Failure::usage(format!("{} is not of kind {kind}", Shown(datum)))
}

impl<K: TextKey, V: TextValue> AnyTree for Tree<K, V> {
    fn key_kind(&self) -> &Kind {
        K::KIND
    }

    fn value_kind(&self) -> &Kind {
        V::KIND
    }

    fn len(&self) -> u64 {
        Tree::len(self)
    }

    fn get(&self, key: &Datum) -> Outcome<Option<Datum>> {
        Ok(self.try_get(K::of(key)?)?.map(V::datum))
    }

    fn insert(&self, key: &Datum, value: &Datum) -> Outcome<bool> {
        Ok(Tree::insert(self, K::of(key)?, V::of(value)?)?.is_some())
    }

    fn insert_new(&self, key: &Datum, value: &Datum) -> Outcome<Option<Datum>> {
        Ok(Tree::insert_new(self, K::of(key)?, V::of(value)?)?.map(V::datum))
    }

    fn update(&self, key: &Datum, value: &Datum) -> Outcome<bool> {
        Ok(Tree::update(self, K::of(key)?, V::of(value)?)?.is_some())
    }

    fn remove(&self, key: &Datum) -> Outcome<bool> {
        Ok(Tree::remove(self, K::of(key)?)?.is_some())
    }

    fn scan(
        &self,
        bounds: (Bound<&Datum>, Bound<&Datum>),
        reverse: bool,
        each: &mut dyn FnMut(&Datum, &Datum) -> Outcome<bool>,
    ) -> Outcome {
        let mut range = self.try_range((bound::<K>(bounds.0)?, bound::<K>(bounds.1)?));
        while let Some(item) = if reverse { range.next_back() } else { range.next() } {
            let (key, value) = item?;
            if !each(&K::datum(key), &V::datum(value))? {
                break;
            }
        }
        Ok(())
    }

    fn stats(&self) -> TreeStats {
        Tree::stats(self)
    }
}

fn bound<K: TextKey>(bound: Bound<&Datum>) -> Outcome<Bound<K::Ref<'_>>> {
    Ok(match bound {
        Bound::Included(datum) => Bound::Included(K::of(datum)?),
        Bound::Excluded(datum) => Bound::Excluded(K::of(datum)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}
