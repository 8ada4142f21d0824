//! A pool with trees in it, through the public face.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use bristlecone::{Pool, Tree, Value};
use bristlecone_baselines::Contender;
use bristlecone_pm::{Error, Geometry, PoolFile, Step};

use super::items::Items;
use super::media::sim_pool;
use super::pool::{check_pool, open_pool};
use bristlecone_sim::Memory;
use bristlecone_sim::Progress;
use bristlecone_sim::Report;
use bristlecone_sim::Sim;
use bristlecone_sim::Stopped;
use bristlecone_sim::{Access, Seen};
use bristlecone_sim::{Answer, Deed, Registers, Schedules, explore_schedules};
use bristlecone_sim::{System, guarded};

/// A pool of trees of one design and one kind of items.
#[derive(Debug, Clone)]
pub struct Forest<I> {
    /// The sizes of the pool.
    pub geometry: Geometry,
    /// The design of the trees.
    pub design: Contender,
    /// Its options, by name.
    pub options: Vec<(&'static str, u64)>,
    /// What keys and values are.
    pub items: PhantomData<I>,
}

/// What is done to a pool of trees. Operations on a tree that is not there do nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeOp {
    /// Creates a tree, unless it is there.
    Create(&'static str),
    /// Creates a tree like another one as earlier versions did: it is live before it has a leaf, which the first
    /// opening makes.
    CreateBare(&'static str),
    /// The same on a thread of its own, whose fences are nobody else's.
    Elsewhere(Box<TreeOp>),
    /// Begins an operation on one key on a thread of its own, which stops at a step before anything
    /// comes of it.
    Begin(Box<TreeOp>, Step),
    /// Lets it go on.
    Finish(Box<TreeOp>),
    /// Drops a tree.
    Drop(&'static str),
    /// Writes a key.
    Insert(&'static str, u64, u64),
    /// Writes a key without asking what was there.
    Upsert(&'static str, u64, u64),
    /// Writes a key that is not there.
    InsertNew(&'static str, u64, u64),
    /// Writes a key that is there.
    Update(&'static str, u64, u64),
    /// Writes a key (first number) that has a value (second) and gives it another (third).
    Swap(&'static str, u64, u64, u64),
    /// Removes a key.
    Remove(&'static str, u64),
    /// Removes a key (first number) that has a value (second).
    RemoveIf(&'static str, u64, u64),
    /// Does something while the medium has no room: it grants so many requests, and refuses so many more.
    Short(Box<TreeOp>, u64, u64),
    /// Closes the pool in good order and opens it again.
    Close,
    /// Waits until nobody reads any more what was removed or replaced so far.
    Rest,
}

/// An open pool of trees.
pub struct Live<I: Items> {
    sim: Sim,
    file: Arc<PoolFile<Sim>>,
    pool: Pool,
    trees: BTreeMap<String, Tree<I::K, I::V>>,
    stopped: Option<Stopped>,
}

fn text(error: Error) -> String {
    error.to_string()
}

/// What the trees hold.
type Contents = BTreeMap<String, BTreeMap<u64, u64>>;

impl<I: Items> Forest<I> {
    fn grow(&self, sim: &Sim, file: Arc<PoolFile<Sim>>) -> Result<Live<I>, String> {
        // Where threads take turns, recovery has several.
        let recovering = if sim.takes_turns() { 2 } else { 1 };
        let pool = sim_pool(Arc::clone(&file), recovering);
        let mut live = Live { sim: sim.clone(), file, pool, trees: BTreeMap::new(), stopped: None };
        for entry in live.pool.trees().map_err(text)? {
            let tree = self.design.open::<_, _, Sim>(&live.pool, &entry.spec.name).map_err(text)?;
            live.trees.insert(entry.spec.name, tree);
        }
        Ok(live)
    }

    fn plant(&self, live: &mut Live<I>, name: &str) -> Result<(), String> {
        if live.trees.contains_key(name) {
            return Ok(());
        }
        let tree = self.create_tree(live, name).map_err(text)?;
        live.trees.insert(name.to_owned(), tree);
        Ok(())
    }

    /// Creates a tree, or finds that there is no room for it.
    fn plant_if_room(&self, live: &mut Live<I>, name: &str) -> Result<String, String> {
        if live.trees.contains_key(name) {
            return Ok(String::new());
        }
        match self.create_tree(live, name) {
            Ok(tree) => _ = live.trees.insert(name.to_owned(), tree),
            Err(error) if error.is_no_room() => return Ok(format!("{:?}", Seen::Refused)),
            Err(error) => return Err(text(error)),
        }
        Ok(String::new())
    }

    fn create_tree(&self, live: &Live<I>, name: &str) -> Result<Tree<I::K, I::V>, Error> {
        let options: Vec<_> = self.options.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        self.design.create::<_, _, Sim>(&live.pool, name, &options)
    }

    fn plant_bare(&self, live: &mut Live<I>, name: &str) -> Result<(), String> {
        if live.trees.contains_key(name) {
            return Ok(());
        }
        let other = live.file.trees().map_err(text)?.pop().ok_or("there is no tree to be like")?;
        live.file.create_tree(&other.spec.with_name(name)).map_err(text)?;
        let tree = self.design.open::<_, _, Sim>(&live.pool, name).map_err(text)?;
        live.trees.insert(name.to_owned(), tree);
        Ok(())
    }

    fn reopen(&self, live: &mut Live<I>) -> Result<(), String> {
        live.trees.clear();
        live.file.close().map_err(text)?;
        live.pool.clone().simulate_crash();
        let file = open_pool(&live.sim)?.ok_or("the pool is gone")?;
        if !file.was_clean() {
            return Err("a closed pool is not clean".to_owned());
        }
        *live = self.grow(&live.sim.clone(), file)?;
        Ok(())
    }
}

impl<I: Items> Drop for Live<I> {
    fn drop(&mut self) {
        let _ = self.stopped.take().map(Stopped::finish);
        // A crash, not a close: also when the code under test panics.
        self.pool.clone().simulate_crash();
    }
}

/// Does an operation on one key.
fn act<I: Items>(tree: &Tree<I::K, I::V>, key: u64, access: Access) -> Result<Seen, String> {
    match attempt::<I>(tree, key, access) {
        Ok(Ok(seen)) => Ok(seen),
        Ok(Err(held)) => Ok(Seen::Value(held.as_ref().map(I::value_number).transpose()?)),
        Err(error) if error.is_no_room() => Ok(Seen::Refused),
        Err(error) => Err(text(error)),
    }
}

/// What an operation on one key answers: `Err` within `Ok` is the value that was there.
type Attempt<I> = Result<Result<Seen, Option<<<I as Items>::V as Value>::Owned>>, Error>;

fn attempt<I: Items>(tree: &Tree<I::K, I::V>, key: u64, access: Access) -> Attempt<I> {
    I::with_key(key, |key| {
        let held = match access {
            Access::Get => tree.get(key),
            Access::Insert(value) => I::with_value(value, |value| tree.insert(key, value))?,
            Access::Upsert(value) => {
                I::with_value(value, |value| tree.upsert(key, value))?;
                return Ok(Ok(Seen::Done));
            }
            Access::InsertNew(value) => match I::with_value(value, |value| tree.try_insert(key, value)) {
                Ok(()) => None,
                Err(present) => Some(present.into_present()?),
            },
            Access::Update(value) => I::with_value(value, |value| tree.update(key, value))?,
            Access::Remove => tree.remove(key)?,
            Access::RemoveIf(expected) => {
                match I::with_value(expected, |expected| tree.compare_and_swap(key, Some(expected), None)) {
                    Ok(()) => return Ok(Ok(Seen::Removed)),
                    Err(differs) => differs.into_found()?,
                }
            }
            Access::Swap(expected, new) => {
                let swapped = I::with_value(expected, |expected| {
                    I::with_value(new, |new| tree.compare_and_swap(key, Some(expected), Some(new)))
                });
                match swapped {
                    Ok(()) => return Ok(Ok(Seen::Swapped)),
                    Err(differs) => differs.into_found()?,
                }
            }
        };
        Ok(Err(held))
    })
}

/// Waits until everything has run that was put off until nobody reads it any more.
fn rest() {
    let over = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&over);
    bristlecone_pm::sync::epoch::pin().defer(move || told.store(true, Release));
    while !over.load(Acquire) {
        bristlecone_pm::sync::epoch::pin().flush();
        std::thread::yield_now();
    }
}

/// Checks a tree and reads it in every way there is.
fn read<I: Items>(tree: &Tree<I::K, I::V>) -> Result<BTreeMap<u64, u64>, String> {
    let findings = tree.check();
    if !findings.is_empty() {
        return Err(format!("{findings:?}"));
    }
    let number = |(key, value): (_, _)| Ok((I::key_number(&key)?, I::value_number(&value)?));
    let forward: Vec<(u64, u64)> = tree.iter().map(number).collect::<Result<_, String>>()?;
    let mut backward: Vec<(u64, u64)> = tree.iter().rev().map(number).collect::<Result<_, String>>()?;
    backward.reverse();
    if forward != backward || !forward.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(format!("forward {forward:?}, backward {backward:?}"));
    }
    if tree.len() != forward.len() as u64 {
        return Err(format!("a length of {}, but {forward:?}", tree.len()));
    }
    for (key, value) in &forward {
        let got = I::with_key(*key, |key| tree.get(key));
        if got.as_ref().map(I::value_number) != Some(Ok(*value)) {
            return Err(format!("key {key} is there with {value}, but get says {:?}", got.is_some()));
        }
    }
    read_beside::<I>(tree, &forward)?;
    read_parts::<I>(tree, &forward)?;
    Ok(forward.into_iter().collect())
}

/// Looks for keys that are absent: beside each that is there, below all of them, and above.
fn read_beside<I: Items>(tree: &Tree<I::K, I::V>, all: &[(u64, u64)]) -> Result<(), String> {
    let beside = all.iter().flat_map(|(key, _)| [key.saturating_sub(1), key + 1]);
    let beside: BTreeSet<_> = beside.chain([0, LAST_KEY]).collect();
    let is_absent = |key: &&u64| all.binary_search_by_key(*key, |(key, _)| *key).is_err();
    for key in beside.iter().filter(is_absent) {
        if I::with_key(*key, |key| tree.get(key).is_some() || tree.contains_key(key)) {
            return Err(format!("key {key} is there by itself, and not among {all:?}"));
        }
    }
    Ok(())
}

/// The largest key that scenarios may use.
const LAST_KEY: u64 = 9999;

/// Reads parts of the tree from both ends: their ends are keys that are there, and such that may not be.
fn read_parts<I: Items>(tree: &Tree<I::K, I::V>, all: &[(u64, u64)]) -> Result<(), String> {
    let at = |part: usize| all.get(all.len() * part / 6).map_or(part as u64, |(key, _)| *key);
    for (from, to) in [(at(1), at(3)), (at(2) + 1, at(5) + 1), (at(3), at(3)), (at(4), at(1))] {
        let range = || I::with_keys(from, to, |from, to| tree.range(from..to));
        let until = || I::with_keys(from, to, |from, to| tree.range((Excluded(from), Included(to))));
        for (parts, is_due) in [
            ([range(), range()], &(|key| from <= key && key < to) as &dyn Fn(u64) -> bool),
            ([until(), until()], &|key| from < key && key <= to),
        ] {
            let number = |(key, value): (_, _)| Ok((I::key_number(&key)?, I::value_number(&value)?));
            let [forward, backward] = parts;
            let forward: Vec<(u64, u64)> = forward.map(number).collect::<Result<_, String>>()?;
            let mut backward: Vec<(u64, u64)> = backward.rev().map(number).collect::<Result<_, String>>()?;
            backward.reverse();
            let due: Vec<_> = all.iter().copied().filter(|(key, _)| is_due(*key)).collect();
            if forward != due || backward != due {
                return Err(format!("from {from} to {to}: {forward:?} and {backward:?}, but {all:?}"));
            }
        }
    }
    Ok(())
}

impl<I: Items> System for Forest<I> {
    type Op = TreeOp;
    type State = Contents;
    type Live = Live<I>;

    fn memory(&self) -> Memory {
        Memory::of_pool(&self.geometry)
    }

    fn create(&self, sim: &Sim) -> Result<Live<I>, String> {
        let region = sim.region();
        let file = PoolFile::create_in(region, self.geometry, sim.domain(), sim.clone());
        self.grow(sim, file.map_err(text)?)
    }

    fn open(&self, sim: &Sim) -> Result<Option<Live<I>>, String> {
        open_pool(sim)?.map(|file| self.grow(sim, file)).transpose()
    }

    fn abandon(&self, live: Live<I>) {
        drop(live);
    }

    fn fresh(&self) -> Contents {
        Contents::new()
    }

    fn predict(&self, state: &mut Contents, op: &TreeOp) -> String {
        match op {
            TreeOp::Elsewhere(op) | TreeOp::Finish(op) | TreeOp::Short(op, ..) => {
                return self.predict(state, op);
            }
            TreeOp::Create(name) | TreeOp::CreateBare(name) => {
                state.entry((*name).to_owned()).or_default();
            }
            TreeOp::Drop(name) => _ = state.remove(*name),
            _ => {}
        }
        let Some((name, key, access)) = op.access() else { return String::new() };
        let Some(tree) = state.get_mut(name) else { return String::new() };
        let (after, seen) = access.on(tree.get(&key).copied());
        match after {
            Some(value) => _ = tree.insert(key, value),
            None => _ = tree.remove(&key),
        }
        format!("{seen:?}")
    }

    fn apply(&self, live: &mut Live<I>, op: &TreeOp) -> Result<String, String> {
        match op {
            TreeOp::Short(op, granted, refused) => {
                live.sim.refuse_room(*granted, *refused);
                let answer = match &**op {
                    TreeOp::Create(name) => self.plant_if_room(live, name),
                    op => self.apply(live, op),
                };
                live.sim.refuse_room(u64::MAX, 0);
                return answer;
            }
            TreeOp::Create(name) => self.plant(live, name)?,
            TreeOp::CreateBare(name) => self.plant_bare(live, name)?,
            TreeOp::Elsewhere(op) => {
                let elsewhere = || guarded(|| self.apply(live, op));
                let done = std::thread::scope(|scope| scope.spawn(elsewhere).join());
                return done.map_err(|_| "a panic elsewhere")?;
            }
            TreeOp::Begin(op, at) => {
                let (name, key, access) = op.access().ok_or("no operation on a key")?;
                let tree = live.trees.get(name).ok_or("no tree")?.clone();
                let act = move || act::<I>(&tree, key, access).map(|seen| format!("{seen:?}"));
                live.stopped = Some(Stopped::begin(at, act)?);
            }
            TreeOp::Finish(_) => return live.stopped.take().ok_or("nobody has begun")?.finish(),
            TreeOp::Rest => rest(),
            TreeOp::Drop(name) => {
                if live.trees.remove(*name).is_some() {
                    live.pool.drop_tree(name).map_err(text)?;
                }
            }
            TreeOp::Close => self.reopen(live)?,
            _ => {
                let Some((name, key, access)) = op.access() else { return Ok(String::new()) };
                let Some(tree) = live.trees.get(name) else { return Ok(String::new()) };
                return act::<I>(tree, key, access).map(|seen| format!("{seen:?}"));
            }
        }
        Ok(String::new())
    }

    fn refusal(&self, op: &TreeOp) -> Option<String> {
        matches!(op, TreeOp::Short(..)).then(|| format!("{:?}", Seen::Refused))
    }

    fn schedules(&self, wanted: &Schedules, progress: &Progress) -> Option<Report> {
        Some(explore_schedules(self, wanted, progress))
    }

    fn observe(&self, live: &Live<I>) -> Result<Contents, String> {
        check_pool(&live.file)?;
        live.trees.iter().map(|(name, tree)| Ok((name.clone(), read::<I>(tree)?))).collect()
    }
}

impl TreeOp {
    /// The tree, the key, and what is done to it.
    fn access(&self) -> Option<(&'static str, u64, Access)> {
        Some(match *self {
            Self::Insert(tree, key, value) => (tree, key, Access::Insert(value)),
            Self::Upsert(tree, key, value) => (tree, key, Access::Upsert(value)),
            Self::InsertNew(tree, key, value) => (tree, key, Access::InsertNew(value)),
            Self::Update(tree, key, value) => (tree, key, Access::Update(value)),
            Self::Swap(tree, key, expected, new) => (tree, key, Access::Swap(expected, new)),
            Self::Remove(tree, key) => (tree, key, Access::Remove),
            Self::RemoveIf(tree, key, expected) => (tree, key, Access::RemoveIf(expected)),
            Self::Create(_) | Self::CreateBare(_) | Self::Drop(_) | Self::Close | Self::Rest => return None,
            Self::Elsewhere(_) | Self::Begin(..) | Self::Finish(_) | Self::Short(..) => return None,
        })
    }
}

/// The tree that threads share.
const SHARED: &str = "t";

impl<I: Items> Registers for Forest<I> {
    type Live = Live<I>;

    fn memory(&self) -> Memory {
        System::memory(self)
    }

    fn create(&self, sim: &Sim) -> Result<Live<I>, String> {
        let mut live = System::create(self, sim)?;
        self.plant(&mut live, SHARED)?;
        Ok(live)
    }

    fn open(&self, sim: &Sim) -> Result<Live<I>, String> {
        System::open(self, sim)?.ok_or_else(|| "nothing is there any more".to_owned())
    }

    fn act(&self, live: &Live<I>, deed: &Deed) -> Result<Answer, String> {
        let tree = &live.trees[SHARED];
        match deed {
            Deed::Of(key, access) => Ok(Answer::Of(act::<I>(tree, *key, *access)?)),
            Deed::Scan => {
                let number = |(key, value): (_, _)| Ok((I::key_number(&key)?, I::value_number(&value)?));
                Ok(Answer::All(tree.iter().map(number).collect::<Result<_, String>>()?))
            }
        }
    }

    fn contents(&self, live: &Live<I>) -> Result<BTreeMap<u64, u64>, String> {
        self.observe(live)?.remove(SHARED).ok_or_else(|| "the tree is gone".to_owned())
    }
}
