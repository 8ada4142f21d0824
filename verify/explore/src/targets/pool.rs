//! The pool without its trees: named bags of marks in slots of chunks, so that the directory, the
//! chunk descriptors, the free tag and the superblock are explored separately.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bristlecone::lab::AnyMedium;
use bristlecone_pm::{
    Alone, ChunkRange, Error, Flushed, Geometry, Heap, HeapSpec, OpenOptions, Persist, PoolFile, SlotKind,
    TreeEntry, TreeSpec, Word,
};
use bristlecone_sim::{Memory, Sim, System};

use super::media::any_medium;

/// A pool of bags. See the module.
#[derive(Debug, Clone, Copy)]
pub struct Bags {
    /// The sizes of the pool.
    pub geometry: Geometry,
    /// Maximum number of chunks to which it may be raised.
    pub chunks_possible: u64,
}

/// An operation on a pool of bags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BagOp {
    /// Creates a bag.
    Create(&'static str),
    /// Creates a bag that has a mark when it becomes live.
    CreateWith(&'static str, u64),
    /// Drops a bag and all its marks.
    Drop(&'static str),
    /// Puts a mark into a bag.
    Put(&'static str, u64),
    /// Takes a mark out of a bag.
    Take(&'static str, u64),
    /// Allocates a slot of a bag and frees it, on a separate thread that does not fence again.
    Touch(&'static str),
    /// Renames a bag.
    Rename(&'static str, &'static str),
    /// Replaces a bag by another of the same name with one mark.
    Replace(&'static str, u64),
    /// Closes the pool cleanly and reopens it.
    Close,
    /// Closes the pool and reopens it with a maximum of that many chunks more than at creation.
    Raise(u64),
}

/// Slots large enough to fill a chunk soon.
const SLOT_BYTES: u32 = 1024;
const TAKEN: u64 = 1;

/// An open pool of bags.
pub struct Live {
    sim: Sim,
    pool: Arc<PoolFile<AnyMedium>>,
    bags: BTreeMap<String, Bag>,
}

struct Bag {
    entry: TreeEntry,
    heap: Heap<AnyMedium>,
    slots: BTreeMap<u64, u64>,
}

fn text(error: Error) -> String {
    error.to_string()
}

/// Opens a pool; `None` if its creation was interrupted before it existed.
pub(super) fn open_pool(sim: &Sim) -> Result<Option<Arc<PoolFile<AnyMedium>>>, String> {
    open_pool_of(sim, None)
}

/// Opens a pool with a maximum.
fn open_pool_of(sim: &Sim, max_bytes: Option<u64>) -> Result<Option<Arc<PoolFile<AnyMedium>>>, String> {
    let options = OpenOptions { domain: Some(sim.domain()), max_bytes };
    match PoolFile::open_in_with(sim.region(), &options, any_medium(sim)) {
        Ok(pool) => Ok(Some(pool)),
        Err(Error::Corrupted { location, .. }) if location == "superblock" => Ok(None),
        Err(error) => Err(text(error)),
    }
}

/// Checks the pool itself, and that every chunk is free or has an owner.
pub(super) fn check_pool(pool: &PoolFile<AnyMedium>) -> Result<(), String> {
    let issues = pool.check();
    if !issues.is_empty() {
        return Err(format!("{issues:?}"));
    }
    let (free, begun, _) = pool.chunk_counts();
    let of_trees: usize = pool.live_trees().map(|tree| pool.chunks_of(tree).len()).sum();
    let owned = of_trees + pool.commit_chunks() + pool.directory_chunks();
    if owned as u64 + free != begun {
        return Err(format!("{begun} chunks, but {owned} owned and {free} free"));
    }
    Ok(())
}

impl Live {
    fn open(sim: &Sim, pool: Arc<PoolFile<AnyMedium>>) -> Result<Self, String> {
        let mut bags = BTreeMap::new();
        for entry in pool.trees().map_err(text)? {
            bags.insert(entry.spec.name.clone(), Bag::open(&pool, entry)?);
        }
        Ok(Self { sim: sim.clone(), pool, bags })
    }

    fn word(&self, offset: u64) -> &Word {
        self.pool.at(offset)
    }

    fn put(&mut self, bag: &str, mark: u64) -> Result<(), String> {
        let slot = self.bags[bag].heap.alloc().map_err(text)?;
        if self.word(slot).load(&self.sim) != 0 {
            return Err(format!("the slot at {slot:#x} is handed out with a tag on"));
        }
        // A bag's root is the chunk of its first mark.
        let root = self.pool.anchor(self.bags[bag].entry.id);
        let mut flushed = Flushed::none();
        if root.load(&self.sim) == 0 {
            root.publish(&self.sim, slot - slot % self.pool.chunk_bytes(), &Alone, "bag root");
            flushed = self.sim.flush(root, "bag root");
        }
        self.word(slot + 512).store(&self.sim, mark);
        let flushed = flushed.and(self.sim.flush(self.word(slot + 512), "bag put.1"));
        let durable = self.sim.fence(flushed, "bag put.1");
        self.word(slot).publish(&self.sim, TAKEN, &durable, "bag put.2");
        self.sim.persist(self.word(slot), "bag put.2");
        self.bags.get_mut(bag).and_then(|bag| bag.slots.insert(mark, slot));
        Ok(())
    }

    fn take(&mut self, bag: &str, mark: u64) {
        let slot = self.bags.get_mut(bag).and_then(|bag| bag.slots.remove(&mark));
        if let Some(slot) = slot {
            self.word(slot).store(&self.sim, 0);
            self.sim.persist(self.word(slot), "bag take");
            self.bags[bag].heap.free(slot);
        }
    }

    /// Creates a bag with a mark in it, by one of the two calls that do so.
    fn create_with(
        &mut self,
        name: &str,
        mark: u64,
        create: impl FnOnce(
            &PoolFile<AnyMedium>,
            &mut dyn FnMut(&TreeEntry) -> Result<(), Error>,
        ) -> Result<(TreeEntry, ()), Error>,
    ) -> Result<(), String> {
        let pool = Arc::clone(&self.pool);
        let mut fill = |entry: &TreeEntry| {
            let bag = Bag::open(&pool, entry.clone()).expect("nothing is there");
            self.bags.insert(name.to_owned(), bag);
            self.put(name, mark).expect("there is room");
            Ok(())
        };
        create(&pool, &mut fill).map(drop).map_err(text)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), String> {
        if self.bags.contains_key(to) {
            return Ok(());
        }
        let Some(mut bag) = self.bags.remove(from) else { return Ok(()) };
        self.pool.rename_tree(from, to).map_err(text)?;
        bag.entry.spec.name = to.to_owned();
        self.bags.insert(to.to_owned(), bag);
        Ok(())
    }

    fn reopen(&mut self, max_bytes: Option<u64>) -> Result<(), String> {
        self.bags.clear();
        self.pool.close().map_err(text)?;
        let pool = open_pool_of(&self.sim, max_bytes)?.ok_or("the pool is gone")?;
        if !pool.was_clean() {
            return Err("a closed pool is not clean".to_owned());
        }
        *self = Self::open(&self.sim, pool)?;
        Ok(())
    }
}

impl Bag {
    fn open(pool: &Arc<PoolFile<AnyMedium>>, entry: TreeEntry) -> Result<Self, String> {
        let heap = Heap::open(
            pool,
            HeapSpec { tagged: true, ..HeapSpec::new(entry.id, SlotKind::new(1), SLOT_BYTES) },
        );
        let mut slots = BTreeMap::new();
        for range in heap.chunks() {
            for slot in 0..range.slots as u64 {
                let slot = range.offset + slot * u64::from(SLOT_BYTES);
                if pool.at::<Word>(slot).load(pool.medium()) == 0 {
                    continue;
                }
                let mark = pool.at::<Word>(slot + 512).load(pool.medium());
                if slots.insert(mark, slot).is_some() || !heap.mark_live(slot).map_err(text)? {
                    return Err(format!("mark {mark} twice"));
                }
            }
        }
        let root = pool.anchor(entry.id).load(pool.medium());
        let has = |range: &ChunkRange| range.offset == root;
        if root != 0 && !heap.chunks().iter().any(has) {
            return Err(format!("the root {root:#x} of another bag"));
        }
        if root == 0 && !slots.is_empty() {
            return Err("marks without a root".to_owned());
        }
        heap.finish_recovery();
        Ok(Self { entry, heap, slots })
    }
}

fn spec(name: &str) -> TreeSpec {
    let value_kind = format!("bag of {name}, in more bytes than one line");
    TreeSpec::new(name, 7, name, value_kind)
        .with_params(std::array::from_fn(|at| at as u64 + name.len() as u64))
}

impl System for Bags {
    type Op = BagOp;
    type State = BTreeMap<String, BTreeSet<u64>>;
    type Live = Live;

    fn memory(&self) -> Memory {
        Memory::of_pool(&Geometry { chunks_max: self.chunks_possible, ..self.geometry })
    }

    fn create(&self, sim: &Sim) -> Result<Live, String> {
        let region = sim.region();
        let pool = PoolFile::create_in(region, self.geometry, sim.domain(), any_medium(sim));
        Live::open(sim, pool.map_err(text)?)
    }

    fn open(&self, sim: &Sim) -> Result<Option<Live>, String> {
        open_pool(sim)?.map(|pool| Live::open(sim, pool)).transpose()
    }

    fn abandon(&self, live: Live) {
        drop(live);
    }

    fn fresh(&self) -> Self::State {
        BTreeMap::new()
    }

    fn predict(&self, state: &mut Self::State, op: &BagOp) -> String {
        match op {
            BagOp::Create(name) => _ = state.entry((*name).to_owned()).or_default(),
            BagOp::CreateWith(name, mark) => {
                state.entry((*name).to_owned()).or_insert_with(|| BTreeSet::from([*mark]));
            }
            BagOp::Drop(name) => _ = state.remove(*name),
            BagOp::Put(name, mark) => {
                state.get_mut(*name).into_iter().for_each(|bag| _ = bag.insert(*mark));
            }
            BagOp::Take(name, mark) => {
                state.get_mut(*name).into_iter().for_each(|bag| _ = bag.remove(mark));
            }
            BagOp::Rename(from, to) => {
                let is_taken = state.contains_key(*to);
                let bag = if is_taken { None } else { state.remove(*from) };
                state.extend(bag.map(|bag| ((*to).to_owned(), bag)));
            }
            BagOp::Replace(name, mark) => {
                state.get_mut(*name).into_iter().for_each(|bag| *bag = BTreeSet::from([*mark]));
            }
            BagOp::Touch(_) | BagOp::Close | BagOp::Raise(_) => {}
        }
        String::new()
    }

    fn apply(&self, live: &mut Live, op: &BagOp) -> Result<String, String> {
        match op {
            BagOp::Create(name) | BagOp::CreateWith(name, _) if live.bags.contains_key(*name) => {}
            BagOp::Create(name) => {
                let entry = live.pool.create_tree(&spec(name)).map_err(text)?;
                let bag = Bag::open(&live.pool, entry)?;
                live.bags.insert((*name).to_owned(), bag);
            }
            BagOp::CreateWith(name, mark) => {
                live.create_with(name, *mark, |pool, fill| pool.create_tree_with(&spec(name), fill))?;
            }
            BagOp::Rename(from, to) => live.rename(from, to)?,
            BagOp::Replace(name, mark) => {
                if let Some(old) = live.bags.remove(*name) {
                    drop(old.heap);
                    let id = old.entry.id;
                    live.create_with(name, *mark, |pool, fill| pool.replace_tree_with(id, fill))?;
                }
            }
            BagOp::Drop(name) => {
                if let Some(bag) = live.bags.remove(*name) {
                    drop(bag.heap);
                    live.pool.drop_tree(bag.entry.id).map_err(text)?;
                }
            }
            BagOp::Put(name, mark) => {
                if live.bags.get(*name).is_some_and(|bag| !bag.slots.contains_key(mark)) {
                    live.put(name, *mark)?;
                }
            }
            BagOp::Take(name, mark) => live.take(name, *mark),
            BagOp::Touch(name) => {
                if let Some(Bag { heap, .. }) = live.bags.get(*name) {
                    let touch = || heap.alloc().map(|slot| heap.free(slot));
                    let touched = std::thread::scope(|scope| scope.spawn(touch).join());
                    touched.map_err(|_| "a panic elsewhere")?.map_err(text)?;
                }
            }
            BagOp::Close => live.reopen(None)?,
            BagOp::Raise(more) => {
                live.reopen(Some((self.geometry.chunks_max + more) * self.geometry.chunk_bytes))?;
            }
        }
        Ok(String::new())
    }

    fn observe(&self, live: &Live) -> Result<Self::State, String> {
        check_pool(&live.pool)?;
        let mut state = BTreeMap::new();
        for (name, bag) in &live.bags {
            // Its name may differ from the one at its creation.
            let made = spec(&bag.entry.spec.key_kind).with_name(name);
            if bag.entry.spec != made {
                return Err(format!("bag {name} has become {:?}", bag.entry.spec));
            }
            let live_slots = bag.heap.stats().live_slots;
            if live_slots != bag.slots.len() as u64 {
                return Err(format!("{live_slots} slots live, {} in use", bag.slots.len()));
            }
            state.insert(name.clone(), bag.slots.keys().copied().collect());
        }
        Ok(state)
    }
}
