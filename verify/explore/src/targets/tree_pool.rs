//! A pool with trees in it, through the public interface.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use bristlecone::lab::{AnyMedium, TreeDesign, pool_on_any_with};
use bristlecone::{Pool, Tree};
use bristlecone_baselines::AnyDesign;
use bristlecone_pm::{Error, Geometry, PoolFile};
use bristlecone_sim::{
    Access, Answer, Memory, Operation, Progress, Registers, Report, Schedules, Seen, Sim, Stopped, System,
    explore_schedules, guarded,
};

use super::items::Items;
use super::media::any_medium;
use super::pool::{check_pool, open_pool};
use super::tree_access::{act, act_on_many, all, read};
use super::tree_op::TreeOp;

/// A pool of trees of one design and one kind of items.
#[derive(Debug, Clone)]
pub struct TreePool<I, D = AnyDesign> {
    /// The sizes of the pool.
    pub geometry: Geometry,
    /// The design of the trees.
    pub design: D,
    /// Its options, by name.
    pub options: Vec<(&'static str, u64)>,
    /// Kinds of keys and values.
    pub items: PhantomData<I>,
}

/// An open pool of trees.
pub struct Live<I: Items> {
    sim: Sim,
    file: Arc<PoolFile<AnyMedium>>,
    pool: Pool,
    trees: BTreeMap<String, Tree<I::K, I::V>>,
    stopped: Option<Stopped>,
}

fn text(error: Error) -> String {
    error.to_string()
}

/// Contents of the trees.
type Contents = BTreeMap<String, BTreeMap<u64, u64>>;

impl<I: Items, D: TreeDesign> TreePool<I, D> {
    fn open_trees(&self, sim: &Sim, file: Arc<PoolFile<AnyMedium>>) -> Result<Live<I>, String> {
        // Where threads are interleaved, recovery has several.
        let recovering = if sim.takes_turns() { 2 } else { 1 };
        let pool = pool_on_any_with(Arc::clone(&file), recovering).map_err(text)?;
        let mut live = Live { sim: sim.clone(), file, pool, trees: BTreeMap::new(), stopped: None };
        for entry in live.pool.trees().map_err(text)? {
            let tree = self.design.open::<_, _, AnyMedium>(&live.pool, &entry.spec.name).map_err(text)?;
            live.trees.insert(entry.spec.name, tree);
        }
        Ok(live)
    }

    fn create_absent(&self, live: &mut Live<I>, name: &str) -> Result<(), String> {
        if live.trees.contains_key(name) {
            return Ok(());
        }
        let tree = self.create_tree(live, name).map_err(text)?;
        live.trees.insert(name.to_owned(), tree);
        Ok(())
    }

    /// Creates a tree, or reports that there is no space for it.
    fn create_if_room(&self, live: &mut Live<I>, name: &str) -> Result<String, String> {
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
        self.design.create::<_, _, AnyMedium>(&live.pool, name, &options)
    }

    fn load_tree(&self, live: &Live<I>, name: &str, keys: u64) -> Result<Tree<I::K, I::V>, Error> {
        let design =
            self.design.library().ok_or_else(|| Error::invalid("only library designs are loaded"))?;
        let options = live.pool.tree_options(name).design(design);
        let options =
            self.options.iter().fold(options, |options, (name, value)| options.option(name, *value));
        options.create_with(|loader| {
            (0..keys).try_for_each(|key| {
                I::with_key(key, |code| I::with_value(key, |value| loader.push(code, value)))
            })
        })
    }

    fn create_bare(&self, live: &mut Live<I>, name: &str) -> Result<(), String> {
        if live.trees.contains_key(name) {
            return Ok(());
        }
        let other = live.file.trees().map_err(text)?.pop().ok_or("there is no tree to be like")?;
        live.file.create_tree(&other.spec.with_name(name)).map_err(text)?;
        let tree = self.design.open::<_, _, AnyMedium>(&live.pool, name).map_err(text)?;
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
        *live = self.open_trees(&live.sim.clone(), file)?;
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

/// Applies an operation to the contents of a tree; returns its result.
fn change(tree: &mut BTreeMap<u64, u64>, key: u64, access: Access) -> Seen {
    let (after, seen) = access.on(tree.get(&key).copied());
    match after {
        Some(value) => _ = tree.insert(key, value),
        None => _ = tree.remove(&key),
    }
    seen
}

/// Waits until all deferred functions have run.
fn rest() {
    let over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&over);
    bristlecone_pm::sync::epoch::pin().defer(move || seen.store(true, Release));
    while !over.load(Acquire) {
        bristlecone_pm::sync::epoch::pin().flush();
        std::thread::yield_now();
    }
}

impl<I: Items, D: TreeDesign> System for TreePool<I, D> {
    type Op = TreeOp;
    type State = Contents;
    type Live = Live<I>;

    fn memory(&self) -> Memory {
        Memory::of_pool(&self.geometry)
    }

    fn create(&self, sim: &Sim) -> Result<Live<I>, String> {
        let region = sim.region();
        let file = PoolFile::create_in(region, self.geometry, sim.domain(), any_medium(sim));
        self.open_trees(sim, file.map_err(text)?)
    }

    fn open(&self, sim: &Sim) -> Result<Option<Live<I>>, String> {
        open_pool(sim)?.map(|file| self.open_trees(sim, file)).transpose()
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
            TreeOp::Load(name, keys) => {
                let loaded = || (0..*keys).map(|key| (key, key)).collect();
                state.entry((*name).to_owned()).or_insert_with(loaded);
            }
            TreeOp::Drop(name) => _ = state.remove(*name),
            TreeOp::Many(name, each) => {
                let Some(tree) = state.get_mut(*name) else { return String::new() };
                let seen: Vec<_> = each.iter().map(|(key, access)| change(tree, *key, *access)).collect();
                return format!("{seen:?}");
            }
            _ => {}
        }
        let Some((name, key, access)) = op.access() else { return String::new() };
        let Some(tree) = state.get_mut(name) else { return String::new() };
        format!("{:?}", change(tree, key, access))
    }

    /// Verifies each key separately: operations on one key change no other, and others change no
    /// key of a tree that stays.
    fn is_between(&self, before: &Contents, after: &Contents, found: &Contents) -> bool {
        let is_of_either = |(name, found): (&String, &BTreeMap<u64, u64>)| {
            let [Some(before), Some(after)] = [before, after].map(|trees| trees.get(name)) else {
                return false;
            };
            let mut keys = before.keys().chain(after.keys()).chain(found.keys());
            keys.all(|key| found.get(key) == before.get(key) || found.get(key) == after.get(key))
        };
        before.keys().eq(after.keys()) && before.keys().eq(found.keys()) && found.iter().all(is_of_either)
    }

    fn apply(&self, live: &mut Live<I>, op: &TreeOp) -> Result<String, String> {
        match op {
            TreeOp::Short(op, granted, refused) => {
                live.sim.refuse_room(*granted, *refused);
                let answer = match &**op {
                    TreeOp::Create(name) => self.create_if_room(live, name),
                    op => self.apply(live, op),
                };
                live.sim.refuse_room(u64::MAX, 0);
                return answer;
            }
            TreeOp::Create(name) => self.create_absent(live, name)?,
            TreeOp::CreateBare(name) => self.create_bare(live, name)?,
            TreeOp::Load(name, keys) => {
                if !live.trees.contains_key(*name) {
                    let tree = self.load_tree(live, name, *keys).map_err(text)?;
                    live.trees.insert((*name).to_owned(), tree);
                }
            }
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
            TreeOp::Finish(_) => return live.stopped.take().ok_or("no operation has begun")?.finish(),
            TreeOp::Rest => rest(),
            TreeOp::Drop(name) => {
                if live.trees.remove(*name).is_some() {
                    live.pool.drop_tree(name).map_err(text)?;
                }
            }
            TreeOp::Close => self.reopen(live)?,
            TreeOp::Many(name, each) => {
                let Some(tree) = live.trees.get(*name) else { return Ok(String::new()) };
                return act_on_many::<I>(tree, each).map(|seen| format!("{seen:?}"));
            }
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

/// The tree that threads share.
const SHARED: &str = "t";

impl<I: Items, D: TreeDesign> Registers for TreePool<I, D> {
    type Live = Live<I>;

    fn memory(&self) -> Memory {
        System::memory(self)
    }

    fn create(&self, sim: &Sim) -> Result<Live<I>, String> {
        let mut live = System::create(self, sim)?;
        self.create_absent(&mut live, SHARED)?;
        Ok(live)
    }

    fn open(&self, sim: &Sim) -> Result<Live<I>, String> {
        System::open(self, sim)?.ok_or_else(|| "nothing is there any more".to_owned())
    }

    fn act(&self, live: &Live<I>, operation: &Operation) -> Result<Answer, String> {
        let tree = &live.trees[SHARED];
        match operation {
            Operation::On(key, access) => Ok(Answer::One(act::<I>(tree, *key, *access)?)),
            Operation::Many(each) => Ok(Answer::Many(act_on_many::<I>(tree, each)?)),
            Operation::Together { .. } => Err("trees have no such operation".to_owned()),
            Operation::Scan(way) => all::<I>(tree, *way).map(Answer::All),
        }
    }

    fn contents(&self, live: &Live<I>) -> Result<BTreeMap<u64, u64>, String> {
        self.observe(live)?.remove(SHARED).ok_or_else(|| "the tree is gone".to_owned())
    }
}
