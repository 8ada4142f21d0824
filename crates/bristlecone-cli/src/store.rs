//! Trees whose types are known only at run time: what the pool's directory says.

use std::ops::Bound;

use bristlecone::{Design, Error, Finding, Key, Pool, Tree, TreeSpec, Value};
use bristlecone_cli::failure::{Exit, Failure, Outcome};

use crate::args::{PoolArgs, ReadArgs};
use crate::datum::{Datum, Kind};

/// Opens a pool that exists, and says on standard error what of it was damaged.
pub fn open(args: &PoolArgs) -> Outcome<Pool> {
    let pool = open_as_it_is(args)?;
    report_damage(&pool);
    Ok(pool)
}

fn open_as_it_is(args: &PoolArgs) -> Outcome<Pool> {
    let mut options = Pool::options();
    if let Some(domain) = args.domain.domain {
        options = options.domain(domain);
    }
    Ok(options.open(&args.path)?)
}

/// Opens a pool that exists, to read, and says on standard error what of it was damaged.
pub fn open_to_read(args: &ReadArgs) -> Outcome<Pool> {
    let pool = open_to_check(args)?;
    report_damage(&pool);
    Ok(pool)
}

/// Opens a pool that exists, to read: without writing if asked to, if the file cannot be written,
/// or if there is no room that recovery may write to.
pub fn open_to_check(args: &ReadArgs) -> Outcome<Pool> {
    let path = &args.pool.path;
    let writable = rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
    let refused = [rustix::io::Errno::ACCESS, rustix::io::Errno::PERM, rustix::io::Errno::ROFS];
    if args.read_only || writable.is_err_and(|error| refused.contains(&error)) {
        return Ok(Pool::options().read_only(true).open(path)?);
    }
    match open_as_it_is(&args.pool) {
        Err(failure) if failure.is_full() => Ok(Pool::options().read_only(true).open(path)?),
        opened => opened,
    }
}

/// Opens a pool that exists and a tree in it, to read. Where opening the tree takes room that there
/// is not, nothing is written.
pub fn tree_to_read(args: &ReadArgs, name: &str) -> Outcome<(Pool, Box<dyn AnyTree>)> {
    let pool = open_to_read(args)?;
    match tree(&pool, name) {
        Err(failure) if failure.is_full() && !pool.info().read_only => {
            drop(pool);
            let pool = Pool::options().read_only(true).open(&args.pool.path)?;
            let tree = tree(&pool, name)?;
            Ok((pool, tree))
        }
        opened => Ok((pool, opened?)),
    }
}

fn report_damage(pool: &Pool) {
    for Finding { location, what, .. } in pool.info().findings {
        eprintln!("bristlecone: {what} at {location}");
    }
}

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
    /// Kind of the keys.
    fn key_kind(&self) -> Kind;
    /// Kind of the values.
    fn value_kind(&self) -> Kind;
    /// Number of entries.
    fn len(&self) -> u64;
    /// Calls `show` with the value of `key`; whether there is one. Its record is compared with its
    /// checksum.
    fn get(&self, key: Datum<'_>, show: &mut dyn FnMut(Datum<'_>) -> Outcome) -> Outcome<bool>;
    /// Whether the value of `key` is exactly `value`.
    fn holds(&self, key: Datum<'_>, value: Datum<'_>) -> Outcome<bool>;
    /// Sets the value of `key`; whether there was one before.
    fn insert(&self, key: Datum<'_>, value: Datum<'_>) -> Outcome<bool>;
    /// Sets the value of `key` if it has none; whether it was set.
    fn insert_new(&self, key: Datum<'_>, value: Datum<'_>) -> Outcome<bool>;
    /// Sets the value of `key` if it has one; whether it was set.
    fn update(&self, key: Datum<'_>, value: Datum<'_>) -> Outcome<bool>;
    /// Removes `key`; whether it was there.
    fn remove(&self, key: Datum<'_>) -> Outcome<bool>;
    /// Calls `each` with entries in order until it returns `false`. Their records are compared with
    /// their checksums.
    fn scan(
        &self,
        bounds: (Bound<Datum<'_>>, Bound<Datum<'_>>),
        reverse: bool,
        each: &mut dyn FnMut(Datum<'_>, Datum<'_>) -> Outcome<bool>,
    ) -> Outcome;
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
    dispatch(key, value, &mut Opening { pool, name })
}

/// Creates a tree of these kinds.
pub fn create(
    pool: &Pool,
    name: &str,
    (key, value): (Kind, Kind),
    design: Design,
    options: &[(String, u64)],
) -> Outcome<Box<dyn AnyTree>> {
    dispatch(key, value, &mut Creating { pool, name, design, options })
}

/// Does something for one pair of types.
trait ForTypes {
    fn run<K: TextKey, V: TextValue>(&mut self) -> Result<Box<dyn AnyTree>, Error>;
}

fn dispatch(key: Kind, value: Kind, what: &mut impl ForTypes) -> Outcome<Box<dyn AnyTree>> {
    fn with_key<K: TextKey>(value: Kind, what: &mut impl ForTypes) -> Result<Box<dyn AnyTree>, Error> {
        match value {
            Kind::U64 => what.run::<K, u64>(),
            Kind::Str => what.run::<K, &'static str>(),
            Kind::Bytes => what.run::<K, &'static [u8]>(),
        }
    }
    let tree = match key {
        Kind::U64 => with_key::<u64>(value, what),
        Kind::Str => with_key::<&'static str>(value, what),
        Kind::Bytes => with_key::<&'static [u8]>(value, what),
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
    const KIND: Kind;
    fn of(datum: Datum<'_>) -> Outcome<Self::Ref<'_>>;
    fn datum(owned: &Self::Owned) -> Datum<'_>;
}

/// A value type that stands for a [`Kind`].
trait TextValue: Value + Sized + 'static {
    const KIND: Kind;
    fn of(datum: Datum<'_>) -> Outcome<Self::Ref<'_>>;
    fn datum(owned: &Self::Owned) -> Datum<'_>;
    fn datum_of(shown: Self::Ref<'_>) -> Datum<'_>;
}

macro_rules! texts {
    ($($type:ty, $kind:ident, |$owned:ident| $borrow:expr;)*) => {$(
        impl TextKey for $type {
            const KIND: Kind = Kind::$kind;
            fn of(datum: Datum<'_>) -> Outcome<<Self as Key>::Ref<'_>> {
                match datum {
                    Datum::$kind(datum) => Ok(datum),
                    other => Err(wrong_kind(other, Kind::$kind)),
                }
            }
            fn datum($owned: &<Self as Key>::Owned) -> Datum<'_> {
                Datum::$kind($borrow)
            }
        }
        impl TextValue for $type {
            const KIND: Kind = Kind::$kind;
            fn of(datum: Datum<'_>) -> Outcome<<Self as Value>::Ref<'_>> {
                match datum {
                    Datum::$kind(datum) => Ok(datum),
                    other => Err(wrong_kind(other, Kind::$kind)),
                }
            }
            fn datum($owned: &<Self as Value>::Owned) -> Datum<'_> {
                Datum::$kind($borrow)
            }
            fn datum_of(shown: <Self as Value>::Ref<'_>) -> Datum<'_> {
                Datum::$kind(shown)
            }
        }
    )*};
}

texts! {
    u64, U64, |owned| *owned;
    &'static str, Str, |owned| owned;
    &'static [u8], Bytes, |owned| owned;
}

fn wrong_kind(datum: Datum<'_>, kind: Kind) -> Failure {
    Failure::usage(format!("{datum} is not of kind {kind}"))
}

impl<K: TextKey, V: TextValue> AnyTree for Tree<K, V> {
    fn key_kind(&self) -> Kind {
        K::KIND
    }

    fn value_kind(&self) -> Kind {
        V::KIND
    }

    fn len(&self) -> u64 {
        Tree::len(self)
    }

    fn get(&self, key: Datum<'_>, show: &mut dyn FnMut(Datum<'_>) -> Outcome) -> Outcome<bool> {
        match self.try_get(K::of(key)?)? {
            Some(value) => show(V::datum(&value)).map(|()| true),
            None => Ok(false),
        }
    }

    fn holds(&self, key: Datum<'_>, value: Datum<'_>) -> Outcome<bool> {
        Ok(self.get_with(K::of(key)?, |found| V::datum_of(found) == value).unwrap_or(false))
    }

    fn insert(&self, key: Datum<'_>, value: Datum<'_>) -> Outcome<bool> {
        Ok(Tree::insert(self, K::of(key)?, V::of(value)?)?.is_some())
    }

    fn insert_new(&self, key: Datum<'_>, value: Datum<'_>) -> Outcome<bool> {
        match Tree::try_insert(self, K::of(key)?, V::of(value)?) {
            Ok(()) => Ok(true),
            Err(present) => Ok(present.into_present().map(|_| false)?),
        }
    }

    fn update(&self, key: Datum<'_>, value: Datum<'_>) -> Outcome<bool> {
        Ok(Tree::update(self, K::of(key)?, V::of(value)?)?.is_some())
    }

    fn remove(&self, key: Datum<'_>) -> Outcome<bool> {
        Ok(Tree::remove(self, K::of(key)?)?.is_some())
    }

    fn scan(
        &self,
        bounds: (Bound<Datum<'_>>, Bound<Datum<'_>>),
        reverse: bool,
        each: &mut dyn FnMut(Datum<'_>, Datum<'_>) -> Outcome<bool>,
    ) -> Outcome {
        let mut range = self.try_range((bound::<K>(bounds.0)?, bound::<K>(bounds.1)?));
        while let Some(item) = if reverse { range.next_back() } else { range.next() } {
            let (key, value) = item?;
            if !each(K::datum(&key), V::datum(&value))? {
                break;
            }
        }
        Ok(())
    }
}

fn bound<K: TextKey>(bound: Bound<Datum<'_>>) -> Outcome<Bound<K::Ref<'_>>> {
    Ok(match bound {
        Bound::Included(datum) => Bound::Included(K::of(datum)?),
        Bound::Excluded(datum) => Bound::Excluded(K::of(datum)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}
