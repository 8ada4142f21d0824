//! A minimal external design, following the recipe of `docs/design.md`: a sorted array of words behind a lock,
//! which every write copies. The model suite runs it, and the simulator explores it.
//!
//! **The word that commits** is the tree's root in the directory: the offset of the array.
//!
//! # Create
//! 1. An array without items is written; flush, fence. *No root: the tree is created again.*
//! 2. The root refers to it; flush, fence. *The tree exists.*
//!
//! # Write
//! 1. A copy of the array, with the change, is written to a free slot; flush, fence. *The root refers to the old
//!    one: recovery finds the copy's slot free.*
//! 2. The root refers to the copy; flush, fence. *Before or after.* The old array's slot is free.

use std::ops::Bound;
use std::sync::{Arc, Mutex};

use bristlecone::lab::{
    AnyIndex, Batch, Described, ExternalDesign, Form, Inline, Inspect, Open, PARAMS, Parameters, Read, Scan,
    Swapped, Write, WriteMode, design_options, of_words,
};
use bristlecone::{Error, Issue, Medium, Result, TreeStats};
use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{Heap, HeapSpec, Persist, PoolFile, SlotKind, Step, TreeEntry, TreeId, Word};

/// A slot kind that no other design uses.
const ARRAYS: SlotKind = SlotKind::new(48);

design_options! {
    /// Options of a toy tree.
    pub struct Options of "toy" {
        /// Items that it may hold.
        items = 60 in (1..=2000);
    }
}

/// The design.
#[derive(Clone, Copy, Debug)]
pub struct Toy;

impl ExternalDesign for Toy {
    fn code(self) -> u32 {
        0x201
    }

    fn supports(self, are_words: (bool, bool)) -> Result<()> {
        if are_words == (true, true) { Ok(()) } else { Err(Error::invalid("a toy keeps words only")) }
    }

    fn parse(self, given: &[(String, u64)]) -> Result<[u64; PARAMS]> {
        Ok(Options::parse(given)?.to_words())
    }

    fn open<M: Medium>(self, pool: &Arc<PoolFile<M>>, entry: &TreeEntry) -> Result<AnyIndex> {
        let described = Described { entry, values: Form::Words };
        Ok(of_words(Tree::open(pool, described, Options::from_words(entry.spec.params)?, 1)?))
    }
}

type Items = Vec<(u64, u64)>;
type Bounds = (Bound<u64>, Bound<u64>);

struct Tree<M: Medium> {
    pool: Arc<PoolFile<M>>,
    id: TreeId,
    arrays: Heap<M>,
    capacity: usize,
    /// Offset of the array, a copy of the root.
    array: Mutex<u64>,
}

impl<M: Medium> Tree<M> {
    /// Returns the words of an array: its number of items, and a key and a value of each.
    fn words(&self, array: u64) -> &[Word] {
        self.pool.words(array, 1 + 2 * self.capacity)
    }

    fn items(&self, array: u64) -> Items {
        let medium = self.pool.medium();
        let (count, words) = self.words(array).split_first().expect("an array has a first word");
        let count = (count.load(medium) as usize).min(self.capacity);
        words.chunks_exact(2).take(count).map(|item| (item[0].load(medium), item[1].load(medium))).collect()
    }

    /// Writes an array, and stores its offset in the root; returns the offset.
    fn publish(&self, items: &[(u64, u64)], [copy, root]: [Step; 2]) -> Result<u64> {
        let medium = self.pool.medium();
        let array = self.arrays.alloc()?;
        let (count, words) = self.words(array).split_first().expect("an array has a first word");
        count.store(medium, items.len() as u64);
        for (cells, &(key, value)) in words.chunks_exact(2).zip(items) {
            cells[0].store(medium, key);
            cells[1].store(medium, value);
        }
        let flushed = medium.flush(&self.words(array)[..1 + 2 * items.len()], copy);
        let durable = medium.fence(flushed, copy);
        let anchor = self.pool.anchor(self.id);
        anchor.publish(medium, array, &durable, root);
        medium.persist(anchor, root);
        Ok(array)
    }

    /// Changes a key depending on its value; returns that value.
    fn change(&self, key: u64, decide: impl Fn(Option<u64>) -> Change) -> Result<Option<u64>> {
        let mut array = lock(&self.array);
        let mut items = self.items(*array);
        let found = items.binary_search_by_key(&key, |(key, _)| *key);
        let old = found.ok().map(|at| items[at].1);
        match (found, decide(old)) {
            (_, Change::Nothing) | (Err(_), Change::Remove) => return Ok(old),
            (Ok(at), Change::Put(value)) => items[at].1 = value,
            (Err(_), Change::Put(_)) if items.len() == self.capacity => {
                return Err(Error::invalid("a toy has no room for another item"));
            }
            (Err(at), Change::Put(value)) => items.insert(at, (key, value)),
            (Ok(at), Change::Remove) => _ = items.remove(at),
        }
        let copy = self.publish(&items, ["toy write.1", "toy write.2"])?;
        self.arrays.free(std::mem::replace(&mut *array, copy));
        self.pool.health().map(|()| old)
    }

    fn within(&self, bounds: Bounds) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let items = self.items(*lock(&self.array)).into_iter();
        items.filter(move |(key, _)| std::ops::RangeBounds::contains(&bounds, key))
    }
}

/// The change of a key.
enum Change {
    Nothing,
    Put(u64),
    Remove,
}

impl<M: Medium> Open<Inline, M> for Tree<M> {
    type Options = Options;

    fn open(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: Options,
        _threads: usize,
    ) -> Result<Self> {
        let capacity = options.items as usize;
        let bytes = ((1 + 2 * capacity) * 8).next_multiple_of(64) as u32;
        let arrays = Heap::open(pool, HeapSpec::new(entry.id, ARRAYS, bytes));
        let root = pool.anchor(entry.id).load(pool.medium());
        let mut tree =
            Self { pool: Arc::clone(pool), id: entry.id, arrays, capacity, array: Mutex::new(root) };
        if root != 0 {
            tree.arrays.mark_live(root)?;
        }
        tree.arrays.finish_recovery();
        if root == 0 {
            tree.array = Mutex::new(tree.publish(&[], ["toy create.1", "toy create.2"])?);
        }
        Ok(tree)
    }
}

impl<M: Medium> Read<Inline, Inline> for Tree<M> {
    fn get(&self, key: u64, show: &mut dyn FnMut(u64)) -> Result<bool> {
        let found = self.within((Bound::Included(key), Bound::Included(key))).next();
        Ok(found.map(|(_, value)| show(value)).is_some())
    }
}

impl<M: Medium> Write<Inline, Inline> for Tree<M> {
    fn write(&self, key: u64, value: u64, mode: WriteMode) -> Result<Option<u64>> {
        self.change(key, |old| match (old, mode) {
            (Some(_), WriteMode::New) | (None, WriteMode::Update) => Change::Nothing,
            _ => Change::Put(value),
        })
    }

    fn remove(&self, key: u64) -> Result<Option<u64>> {
        self.change(key, |_| Change::Remove)
    }

    fn remove_if(&self, key: u64, expected: u64) -> Result<Swapped<Inline>> {
        let change = |old| if old == Some(expected) { Change::Remove } else { Change::Nothing };
        self.change(key, change).map(|old| if old == Some(expected) { Ok(()) } else { Err(old) })
    }

    fn compare_and_swap(&self, key: u64, expected: u64, new: u64) -> Result<Swapped<Inline>> {
        let change = |old| if old == Some(expected) { Change::Put(new) } else { Change::Nothing };
        self.change(key, change).map(|old| if old == Some(expected) { Ok(()) } else { Err(old) })
    }
}

impl<M: Medium> Scan<Inline, Inline> for Tree<M> {
    fn scan_forward(&self, bounds: Bounds, into: &mut Batch<Inline, Inline>) -> bool {
        // The whole array is returned in one batch: a filled batch has a fence, behind which there is nothing.
        if into.fence.replace(None).is_none() {
            into.entries.extend(self.within(bounds).rev());
        }
        !into.entries.is_empty()
    }

    fn scan_backward(&self, bounds: Bounds, into: &mut Batch<Inline, Inline>) -> bool {
        if into.fence.replace(None).is_none() {
            into.entries.extend(self.within(bounds));
        }
        !into.entries.is_empty()
    }
}

impl<M: Medium> Inspect for Tree<M> {
    fn len(&self) -> Result<u64> {
        Ok(self.items(*lock(&self.array)).len() as u64)
    }

    fn stats(&self) -> Result<TreeStats> {
        let arrays = self.arrays.stats();
        let mut stats = TreeStats::default();
        (stats.items, stats.leaves) = (self.len()?, 1);
        stats.pm_bytes = arrays.chunks * arrays.chunk_bytes;
        Ok(stats)
    }

    fn check(&self) -> Vec<Issue> {
        let array = *lock(&self.array);
        let in_order = self.items(array).is_sorted_by(|one, next| one.0 < next.0);
        let sound = in_order
            && self.arrays.stats().live_slots == 1
            && self.pool.anchor(self.id).load(self.pool.medium()) == array;
        if sound { Vec::new() } else { vec![Issue::new("toy", "its array, its heap or its root is wrong")] }
    }
}
