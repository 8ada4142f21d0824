//! A pool of two trees, of different designs and items, that batches and transactions change together.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use bristlecone::lab::{AnyMedium, pool_on_any};
use bristlecone::{Batch, Design, Error, Key, Pool, Snapshot, Tree};
use bristlecone_pm::{Geometry, PoolFile};
use bristlecone_sim::{Memory, Sim, System};

use super::items::Items;
use super::media::any_medium;
use super::pool::{check_pool, open_pool};
use super::tree_access::read;

/// A pool of two trees: see the module.
#[derive(Debug, Clone)]
pub struct BatchPool<A, B> {
    /// The sizes of the pool.
    pub geometry: Geometry,
    /// The designs of the trees, and their options by name.
    pub designs: [(Design, Vec<(&'static str, u64)>); 2],
    /// Kinds of keys and values.
    pub items: PhantomData<(A, B)>,
}

/// One of both trees, a key of it, and the key's expected or new value.
pub type Place = (usize, u64, Option<u64>);

/// An operation on the trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchOp {
    /// Creates a tree.
    Create(usize),
    /// Drops a tree and all its entries.
    Drop(usize),
    /// Changes keys by a batch, under conditions.
    Batch(Vec<Place>, Vec<Place>),
    /// Adds two keys' values in a transaction, and stores the sum in the first one.
    Add((usize, u64), (usize, u64)),
    /// Changes one key.
    Put(Place),
    /// Takes a snapshot, changes keys by a batch, and reads both.
    View(Vec<Place>),
    /// Removes the keys of a tree from the first one to before the second one, by one call.
    Range(usize, u64, u64),
    /// Takes a snapshot, removes a range likewise, and reads both.
    ViewRange(usize, u64, u64),
    /// Closes the pool cleanly and reopens it.
    Close,
    /// Makes another tree take chunks until this many are left.
    Fill(u64),
    /// Runs an operation that may find no space.
    Full(Box<BatchOp>),
}

/// Contents of the existing trees.
type Contents = [Option<BTreeMap<u64, u64>>; 2];

/// An open pool.
pub struct Live<A: Items, B: Items> {
    sim: Sim,
    file: Arc<PoolFile<AnyMedium>>,
    pub(super) pool: Pool,
    a: Option<Tree<A::K, A::V>>,
    b: Option<Tree<B::K, B::V>>,
}

const NAMES: [&str; 2] = ["a", "b"];
const DONE: &str = "done";
const CONFLICT: &str = "conflict";
/// The result of an operation that found no space.
pub const REFUSED: &str = "refused";
/// The tree that takes chunks, and the size of its values: each takes a chunk of the explorer's
/// size.
const OTHER: &str = "other";
const OTHER_BYTES: usize = 3000;

fn text(error: Error) -> String {
    error.to_string()
}

impl<A: Items, B: Items> Drop for Live<A, B> {
    fn drop(&mut self) {
        // A crash, not a close: also when the code under test panics.
        self.pool.clone().simulate_crash();
    }
}

/// Adds a change to a batch.
pub(super) fn note<I: Items>(
    batch: &mut Batch,
    tree: &Tree<I::K, I::V>,
    (_, key, value): Place,
    expected: bool,
) {
    I::with_key(key, |key| match value {
        Some(value) if expected => I::with_value(value, |value| _ = batch.expect(tree, key, Some(value))),
        None if expected => _ = batch.expect(tree, key, None),
        Some(value) => I::with_value(value, |value| _ = batch.insert(tree, key, value)),
        None => _ = batch.remove(tree, key),
    });
}

fn put<I: Items>(tree: &Tree<I::K, I::V>, (_, key, value): Place) -> Result<(), Error> {
    I::with_key(key, |key| match value {
        Some(value) => I::with_value(value, |value| tree.insert(key, value).map(drop)),
        None => tree.remove(key).map(drop),
    })
}

/// Removes the keys from one to before another one; returns their number.
pub(super) fn remove_range<I: Items>(tree: &Tree<I::K, I::V>, from: u64, to: u64) -> Result<u64, Error> {
    let (from, to) = (I::key(from), I::key(to));
    tree.remove_range(I::K::lend(&from)..I::K::lend(&to))
}

pub(super) fn shown<I: Items>(
    view: &Snapshot,
    tree: &Tree<I::K, I::V>,
) -> Result<BTreeMap<u64, u64>, String> {
    let number = |item: bristlecone::Result<(_, _)>| {
        let (key, value) = item.map_err(text)?;
        Ok((I::key_number(&key)?, I::value_number(&value)?))
    };
    let forward: BTreeMap<u64, u64> = view.tree(tree).iter().map(number).collect::<Result<_, String>>()?;
    let backward = view.tree(tree).iter().rev().map(number).collect::<Result<BTreeMap<_, _>, String>>()?;
    for (key, value) in &forward {
        let got = I::with_key(*key, |key| view.tree(tree).get(key))
            .map_err(text)?
            .map(|value| I::value_number(&value));
        if got != Some(Ok(*value)) {
            return Err(format!("a snapshot shows {key} with {value}, but get {got:?}"));
        }
    }
    if forward == backward { Ok(forward) } else { Err(format!("forward {forward:?}, backward {backward:?}")) }
}

impl<A: Items, B: Items> Live<A, B> {
    /// Returns both trees.
    ///
    /// # Errors
    ///
    /// If one does not exist.
    #[allow(clippy::type_complexity, reason = "two trees")]
    pub(super) fn both(&self) -> Result<(&Tree<A::K, A::V>, &Tree<B::K, B::V>), String> {
        self.a.as_ref().zip(self.b.as_ref()).ok_or_else(|| "a tree is gone".to_owned())
    }

    /// Returns the items of both trees, read without a snapshot.
    pub(super) fn observed(&self) -> Result<BTreeMap<u64, u64>, String> {
        let (a, b) = self.both()?;
        let of_a = a
            .iter()
            .map(|item| item.map_err(text))
            .map(|item| item.and_then(|(key, value)| Ok((A::key_number(&key)?, A::value_number(&value)?))));
        let of_b = b
            .iter()
            .map(|item| item.map_err(text))
            .map(|item| item.and_then(|(key, value)| Ok((B::key_number(&key)?, B::value_number(&value)?))));
        of_a.chain(of_b).collect()
    }

    fn has(&self, tree: usize) -> bool {
        if tree == 0 { self.a.is_some() } else { self.b.is_some() }
    }

    fn has_all(&self, places: &[Place]) -> bool {
        places.iter().all(|(tree, ..)| self.has(*tree))
    }

    fn commit(&self, changes: &[Place], expected: &[Place]) -> Result<String, String> {
        let mut batch = self.pool.batch();
        for (places, is_expected) in [(expected, true), (changes, false)] {
            for &place in places {
                match (place.0, &self.a, &self.b) {
                    (0, Some(tree), _) => note::<A>(&mut batch, tree, place, is_expected),
                    (1, _, Some(tree)) => note::<B>(&mut batch, tree, place, is_expected),
                    _ => return Err(format!("no tree for {place:?}")),
                }
            }
        }
        match batch.commit() {
            Ok(()) => Ok(DONE.to_owned()),
            Err(Error::Conflict) => Ok(CONFLICT.to_owned()),
            Err(error) if error.is_no_room() => Ok(REFUSED.to_owned()),
            Err(error) => Err(text(error)),
        }
    }

    fn remove_range(&self, tree: usize, from: u64, to: u64) -> Result<String, String> {
        let removed = match (tree, &self.a, &self.b) {
            (0, Some(tree), _) => remove_range::<A>(tree, from, to),
            (1, _, Some(tree)) => remove_range::<B>(tree, from, to),
            _ => return Ok(String::new()),
        };
        match removed {
            Ok(count) => Ok(count.to_string()),
            Err(error) if error.is_no_room() => Ok(REFUSED.to_owned()),
            Err(error) => Err(text(error)),
        }
    }

    fn contents(&self, read_a: impl Read<A>, read_b: impl Read<B>) -> Result<Contents, String> {
        let a = self.a.as_ref().map(read_a).transpose()?;
        Ok([a, self.b.as_ref().map(read_b).transpose()?])
    }
}

/// Reads a tree.
trait Read<I: Items>: Fn(&Tree<I::K, I::V>) -> Result<BTreeMap<u64, u64>, String> {}
impl<I: Items, F: Fn(&Tree<I::K, I::V>) -> Result<BTreeMap<u64, u64>, String>> Read<I> for F {}

impl<A: Items, B: Items> BatchPool<A, B> {
    fn open_trees(&self, sim: &Sim, file: Arc<PoolFile<AnyMedium>>) -> Result<Live<A, B>, String> {
        let pool = pool_on_any(Arc::clone(&file)).map_err(text)?;
        let mut live = Live { sim: sim.clone(), file, pool, a: None, b: None };
        for entry in live.pool.trees().map_err(text)? {
            match entry.spec.name.as_str() {
                "a" => live.a = Some(live.pool.tree_options("a").open().map_err(text)?),
                OTHER => {}
                _ => live.b = Some(live.pool.tree_options("b").open().map_err(text)?),
            }
        }
        Ok(live)
    }

    pub(super) fn create_tree(&self, live: &mut Live<A, B>, tree: usize) -> Result<(), Error> {
        let (design, options) = &self.designs[tree];
        let created = live.pool.tree_options(NAMES[tree]).design(*design);
        let created = options.iter().fold(created, |created, (name, value)| created.option(name, *value));
        match tree {
            0 => live.a = Some(created.create()?),
            _ => live.b = Some(created.create()?),
        }
        Ok(())
    }

    fn add(live: &Live<A, B>, to: (usize, u64), from: (usize, u64)) -> Result<String, String> {
        let (Some(a), Some(b)) = (&live.a, &live.b) else { return Ok(String::new()) };
        live.pool
            .transaction(|tx| {
                let held = |(tree, key): (usize, u64)| match tree {
                    0 => A::with_key(key, |key| tx.get(a, key))
                        .map(|held| held.and_then(|held| A::value_number(&held).ok())),
                    _ => B::with_key(key, |key| tx.get(b, key))
                        .map(|held| held.and_then(|held| B::value_number(&held).ok())),
                };
                let sum = held(to)?.unwrap_or(0) + held(from)?.unwrap_or(0);
                match to {
                    (0, key) => A::with_key(key, |key| A::with_value(sum, |sum| tx.insert(a, key, sum)))?,
                    (_, key) => B::with_key(key, |key| B::with_value(sum, |sum| tx.insert(b, key, sum)))?,
                }
                Ok(sum.to_string())
            })
            .map_err(text)
    }

    /// Takes a snapshot, changes the trees, and compares what the snapshot shows.
    fn view(live: &Live<A, B>, change: impl FnOnce() -> Result<String, String>) -> Result<String, String> {
        let view = live.pool.snapshot().map_err(text)?;
        let before = live.contents(read::<A>, read::<B>)?;
        let changed = change()?;
        let then = live.contents(|tree: &_| shown::<A>(&view, tree), |tree: &_| shown::<B>(&view, tree))?;
        if then == before { Ok(changed) } else { Err(format!("{then:?} is shown for {before:?}")) }
    }

    /// Makes another tree take chunks until this many are left.
    fn fill(live: &Live<A, B>, chunks: u64) -> Result<(), Error> {
        let options = live.pool.tree_options(OTHER).design(Design::SsTree);
        let other: Tree<u64, Vec<u8>> = options.option("subnode_bytes", 128).create()?;
        for key in other.len()?.. {
            if live.file.chunks_available() <= chunks {
                break;
            }
            match other.insert(key, &[7; OTHER_BYTES]) {
                Err(error) if error.is_no_room() => break,
                done => done.map(drop)?,
            }
        }
        Ok(())
    }

    fn reopen(&self, live: &mut Live<A, B>) -> Result<(), String> {
        (live.a, live.b) = (None, None);
        live.file.close().map_err(text)?;
        live.pool.clone().simulate_crash();
        let file = open_pool(&live.sim)?.ok_or("the pool is gone")?;
        if !file.was_clean() || file.commit_chunks() > 0 {
            return Err("a closed pool is not clean, or has a commit log".to_owned());
        }
        *live = self.open_trees(&live.sim.clone(), file)?;
        Ok(())
    }
}

fn change(state: &mut Contents, (tree, key, value): Place) {
    let Some(tree) = &mut state[tree] else { return };
    match value {
        Some(value) => _ = tree.insert(key, value),
        None => _ = tree.remove(&key),
    }
}

impl<A: Items, B: Items> System for BatchPool<A, B> {
    type Op = BatchOp;
    type State = Contents;
    type Live = Live<A, B>;

    fn memory(&self) -> Memory {
        Memory::of_pool(&self.geometry)
    }

    fn create(&self, sim: &Sim) -> Result<Live<A, B>, String> {
        let file = PoolFile::create_in(sim.region(), self.geometry, sim.domain(), any_medium(sim));
        self.open_trees(sim, file.map_err(text)?)
    }

    fn open(&self, sim: &Sim) -> Result<Option<Live<A, B>>, String> {
        open_pool(sim)?.map(|file| self.open_trees(sim, file)).transpose()
    }

    fn abandon(&self, live: Live<A, B>) {
        drop(live);
    }

    fn fresh(&self) -> Contents {
        [None, None]
    }

    fn predict(&self, state: &mut Contents, op: &BatchOp) -> String {
        let is_there =
            |state: &Contents, places: &[Place]| places.iter().all(|(tree, ..)| state[*tree].is_some());
        match op {
            BatchOp::Create(tree) => _ = state[*tree].get_or_insert_default(),
            BatchOp::Drop(tree) => state[*tree] = None,
            BatchOp::Batch(changes, expected) => {
                if !is_there(state, changes) || !is_there(state, expected) {
                    return String::new();
                }
                let holds = |(tree, key, value): &Place| {
                    state[*tree].as_ref().and_then(|tree| tree.get(key)).copied() == *value
                };
                if !expected.iter().all(holds) {
                    return CONFLICT.to_owned();
                }
                changes.iter().for_each(|place| change(state, *place));
                return DONE.to_owned();
            }
            BatchOp::Add(to, from) => {
                if !is_there(state, &[(0, 0, None), (1, 0, None)]) {
                    return String::new();
                }
                let held = |(tree, key): (usize, u64)| {
                    state[tree].as_ref().and_then(|tree| tree.get(&key)).copied().unwrap_or(0)
                };
                let sum = held(*to) + held(*from);
                change(state, (to.0, to.1, Some(sum)));
                return sum.to_string();
            }
            BatchOp::Put(place) => change(state, *place),
            BatchOp::View(changes) => {
                if !is_there(state, changes) {
                    return String::new();
                }
                changes.iter().for_each(|place| change(state, *place));
                return DONE.to_owned();
            }
            BatchOp::Range(tree, from, to) | BatchOp::ViewRange(tree, from, to) => {
                let Some(items) = &mut state[*tree] else { return String::new() };
                let count = items.len();
                items.retain(|key, _| !(from..to).contains(&key));
                return (count - items.len()).to_string();
            }
            BatchOp::Full(op) => return self.predict(state, op),
            BatchOp::Close | BatchOp::Fill(_) => {}
        }
        String::new()
    }

    fn refusal(&self, op: &BatchOp) -> Option<String> {
        matches!(op, BatchOp::Full(_)).then(|| REFUSED.to_owned())
    }

    fn apply(&self, live: &mut Live<A, B>, op: &BatchOp) -> Result<String, String> {
        match op {
            BatchOp::Create(tree) if live.has(*tree) => {}
            BatchOp::Create(tree) => self.create_tree(live, *tree).map_err(text)?,
            BatchOp::Drop(tree) => {
                if live.has(*tree) {
                    if *tree == 0 {
                        live.a = None
                    } else {
                        live.b = None
                    }
                    live.pool.drop_tree(NAMES[*tree]).map_err(text)?;
                }
            }
            BatchOp::Batch(changes, expected) => {
                if live.has_all(changes) && live.has_all(expected) {
                    return live.commit(changes, expected);
                }
            }
            BatchOp::Add(to, from) => return Self::add(live, *to, *from),
            BatchOp::Put(place) => {
                let done = match (place.0, &live.a, &live.b) {
                    (0, Some(tree), _) => put::<A>(tree, *place),
                    (1, _, Some(tree)) => put::<B>(tree, *place),
                    _ => Ok(()),
                };
                match done {
                    Err(error) if error.is_no_room() => return Ok(REFUSED.to_owned()),
                    done => done.map_err(text)?,
                }
            }
            BatchOp::View(changes) => {
                if live.has_all(changes) {
                    return Self::view(live, || live.commit(changes, &[]));
                }
            }
            BatchOp::Range(tree, from, to) => return live.remove_range(*tree, *from, *to),
            BatchOp::ViewRange(tree, from, to) => {
                return Self::view(live, || live.remove_range(*tree, *from, *to));
            }
            BatchOp::Close => self.reopen(live)?,
            BatchOp::Fill(chunks) => Self::fill(live, *chunks).map_err(text)?,
            BatchOp::Full(op) => return self.apply(live, op),
        }
        Ok(String::new())
    }

    fn observe(&self, live: &Live<A, B>) -> Result<Contents, String> {
        check_pool(&live.file)?;
        live.contents(read::<A>, read::<B>)
    }
}
