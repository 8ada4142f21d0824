//! FPTree (Oukid et al., *FPTree: A Hybrid SCM-DRAM Persistent and Concurrent B-Tree for Storage Class Memory*, SIGMOD
//! 2016): leaves with a bitmap, a fingerprint for each slot, and slots in no order; splits through a micro-log.
//! Versions and locks in DRAM replace hardware transactions and the leaf's lock.
//!
//! ```text
//! word 0   bitmap          1   fingerprints          then   right sibling          then   items, on 16 bytes
//! ```
//!
//! **The commit word** is the bitmap.
//!
//! # Insert, update
//! 1. The fingerprint of a free slot; flush, fence. 2. The item there; flush, fence. *Its bit is clear.*
//! 3. The bitmap, for an update without the old slot's bit; flush, fence. *Before or after.*
//!
//! # Delete
//! 1. The bitmap; flush, fence.
//!
//! # Split
//! 1. A micro-log names the leaf and the new one; flush, fence.
//! 2. The leaf is copied, with the upper half in the bitmap; flushes, one fence. *The old leaf is full: recovery forgets
//!    the log (replay 2).*
//! 3. The old one's bitmap has the others; flush, fence. *It is not full: recovery does 4 (replay 1).*
//! 4. The old one's sibling is the new one; flush, fence.
//! 5. The micro-log is cleared; flush, fence.

use std::sync::{Arc, Mutex};

use bristlecone::lab::{Inline, KeyCodec};
use bristlecone::parts::fingerprint::{GROUP, probe};
use bristlecone::parts::slot::bits;
use bristlecone::{Medium, Result};
use bristlecone_pm::sync::wait;
use bristlecone_pm::{
    Alone, Error, Flushed, Heap, HeapSpec, Persist, PoolFile, TreeId, Witness, Word, thread_index,
};

use crate::hybrid::Leaves;
use crate::log::LOGS;
use crate::store::{LINE_WORDS, Store};

/// Number of micro-logs, a line each, and of concurrent splits.
const LANES: usize = 32;
/// Slots whose fingerprints share the bitmap's line.
const SLOTS_MAX: usize = 56;

/// The layout of a leaf, and the micro-logs.
pub struct FpTree<M: Medium> {
    pool: Arc<PoolFile<M>>,
    slots: usize,
    /// Words: the offset of the sibling, and of the items.
    next_at: usize,
    items_at: usize,
    logs: u64,
    lanes: Box<[Mutex<()>]>,
    /// Keeps the chunk allocated.
    _heap: Heap<M>,
}

/// Names of the steps of a change.
struct Steps {
    tag: &'static str,
    item: &'static str,
    bitmap: &'static str,
}

const INSERT: Steps = Steps { tag: "fptree insert.1", item: "fptree insert.2", bitmap: "fptree insert.3" };
const UPDATE: Steps = Steps { tag: "fptree update.1", item: "fptree update.2", bitmap: "fptree update.3" };

impl<M: Medium> FpTree<M> {
    fn place(&self, slot: usize) -> usize {
        self.items_at + slot * 2
    }

    fn all(&self) -> u64 {
        (1 << self.slots) - 1
    }

    #[inline(always)]
    fn bitmap(&self, store: &Store<M>, leaf: u64) -> u64 {
        store.load(leaf, 0) & self.all()
    }

    fn item(&self, store: &Store<M>, leaf: u64, slot: usize) -> (u64, u64) {
        (store.load(leaf, self.place(slot)), store.load(leaf, self.place(slot) + 1))
    }

    /// Stores an item in a free slot, and replaces the leaf's bitmap.
    fn put(&self, store: &Store<M>, leaf: u64, (key, value): (u64, u64), gone: u64, steps: &Steps) {
        let medium = store.medium();
        let bitmap = self.bitmap(store, leaf);
        let slot = bitmap.trailing_ones() as usize;
        let (tags, shift) = (store.word(leaf, 1 + slot / 8), slot % 8 * 8);
        let tag = u64::from(Inline::fingerprint(key));
        tags.store(medium, tags.load(medium) & !(0xff << shift) | tag << shift);
        medium.persist(tags, steps.tag);
        let item = store.words(leaf, self.place(slot), 2);
        item[0].store(medium, key);
        item[1].store(medium, value);
        let durable = medium.persist_proof(item, steps.item);
        self.set_bitmap(store, leaf, bitmap & !gone | 1 << slot, &durable, steps.bitmap);
    }

    fn set_bitmap(&self, store: &Store<M>, leaf: u64, bitmap: u64, proof: &impl Witness, step: &'static str) {
        store.word(leaf, 0).publish(store.medium(), bitmap, proof, step);
        store.medium().persist(store.word(leaf, 0), step);
    }

    /// Returns the words of a micro-log: the leaf that splits, and the new one.
    fn lane(&self, lane: usize) -> &[Word] {
        self.pool.words(self.logs + (lane * LINE_WORDS * 8) as u64, 2)
    }

    fn clear(&self, lane: usize, step: &'static str) -> Flushed {
        let medium = self.pool.medium();
        self.lane(lane)[0].publish(medium, 0, &Alone, step);
        medium.flush(&self.lane(lane)[0], step)
    }

    fn set_next(&self, store: &Store<M>, leaf: u64, next: u64, step: &'static str) {
        let cell = store.word(leaf, self.next_at);
        cell.publish(store.medium(), next, &Alone, step);
        store.medium().persist(cell, step);
    }
}

impl<M: Medium> Leaves<M> for FpTree<M> {
    const UPDATES_MOVE: bool = true;

    fn open(pool: &Arc<PoolFile<M>>, id: TreeId, node_lines: u64, fresh: bool) -> Result<(Self, Flushed)> {
        let words = node_lines as usize * LINE_WORDS;
        let header = |slots: usize| (2 + slots.div_ceil(8)).next_multiple_of(2);
        let fits = |slots: &usize| header(*slots) + slots * 2 <= words;
        let slots = (1..=SLOTS_MAX).rev().find(fits).expect("leaves have two lines or more");
        let heap = Heap::open(pool, HeapSpec::new(id, LOGS, (LANES * LINE_WORDS * 8) as u32));
        let logs = match heap.chunks()[..] {
            _ if fresh => heap.alloc()?,
            [chunk] => chunk.offset,
            _ => return Err(Error::corrupted("a tree without its micro-logs", "directory")),
        };
        let lanes = (0..LANES).map(|_| Mutex::default()).collect();
        let tree = Self {
            pool: Arc::clone(pool),
            slots,
            next_at: 1 + slots.div_ceil(8),
            items_at: header(slots),
            logs,
            lanes,
            _heap: heap,
        };
        let mut flushed = Flushed::none();
        if fresh {
            for lane in 0..LANES {
                flushed = flushed.and(tree.clear(lane, "fptree create"));
            }
        } else {
            tree._heap.mark_live(logs)?;
        }
        Ok((tree, flushed))
    }

    fn replay(&self, store: &Store<M>) -> Result<()> {
        let medium = store.medium();
        for lane in 0..LANES {
            let [leaf, right] = [0, 1].map(|at| self.lane(lane)[at].load(medium));
            if leaf == 0 {
                continue;
            }
            store.lock(leaf)?;
            store.lock(right)?;
            if self.bitmap(store, leaf) != self.all() {
                self.set_next(store, leaf, right, "fptree replay.1");
            }
            let _durable = medium.fence(self.clear(lane, "fptree replay.2"), "fptree replay.2");
        }
        Ok(())
    }

    fn log_bytes(&self) -> u64 {
        self.pool.chunk_bytes()
    }

    fn capacity(&self) -> usize {
        self.slots
    }

    fn count(&self, store: &Store<M>, leaf: u64) -> usize {
        self.bitmap(store, leaf).count_ones() as usize
    }

    #[inline(always)]
    fn find(&self, store: &Store<M>, leaf: u64, key: u64) -> Option<(usize, u64)> {
        let tag = Inline::fingerprint(key);
        let taken = self.bitmap(store, leaf);
        for group in 0..self.slots.div_ceil(8 * GROUP) {
            let tags = [0, 1].map(|at| store.load(leaf, 1 + group * GROUP + at));
            let hits = probe(tags, tag) << (group * 8 * GROUP);
            for slot in bits(hits & taken) {
                let (held, value) = self.item(store, leaf, slot);
                if held == key {
                    return Some((slot, value));
                }
            }
        }
        None
    }

    fn items(&self, store: &Store<M>, leaf: u64) -> Vec<(u64, u64)> {
        bits(self.bitmap(store, leaf)).map(|slot| self.item(store, leaf, slot)).collect()
    }

    fn next(&self, store: &Store<M>, leaf: u64) -> u64 {
        store.load(leaf, self.next_at)
    }

    fn fill(&self, store: &Store<M>, leaf: u64, items: &[(u64, u64)], next: u64) -> Flushed {
        debug_assert!(items.is_empty(), "the first leaf of a tree");
        let medium = store.medium();
        store.word(leaf, 0).store(medium, 0);
        store.word(leaf, self.next_at).store(medium, next);
        medium.flush(store.words(leaf, 0, self.next_at + 1), "fptree create")
    }

    fn insert(&self, store: &Store<M>, leaf: u64, item: (u64, u64)) {
        self.put(store, leaf, item, 0, &INSERT);
    }

    fn update(&self, store: &Store<M>, leaf: u64, slot: usize, value: u64) {
        let (key, _) = self.item(store, leaf, slot);
        self.put(store, leaf, (key, value), 1 << slot, &UPDATE);
    }

    fn remove(&self, store: &Store<M>, leaf: u64, slot: usize) {
        let bitmap = self.bitmap(store, leaf) & !(1 << slot);
        self.set_bitmap(store, leaf, bitmap, &Alone, "fptree delete");
    }

    fn split(
        &self,
        store: &Store<M>,
        leaf: u64,
        right: u64,
        moved: &[(u64, u64)],
        _new: Option<(u64, u64)>,
    ) -> bool {
        let medium = store.medium();
        let lane = thread_index() % LANES;
        let _held = wait::lock(&self.lanes[lane]);
        let [splitting, fresh] = self.lane(lane) else { unreachable!("a lane has two words") };
        fresh.store(medium, right);
        let ordered = medium.ordered_within_line();
        splitting.publish(medium, leaf, &ordered, "fptree split.1");
        medium.persist(splitting, "fptree split.1");
        let above = |slot: &usize| store.load(leaf, self.place(*slot)) >= moved[0].0;
        let upper = bits(self.all()).filter(above).fold(0, |all, slot| all | 1 << slot);
        let words = self.place(self.slots);
        let (from, to) = (store.words(leaf, 0, words), store.words(right, 0, words));
        to.iter().zip(from).skip(1).for_each(|(to, from)| to.store(medium, from.load(medium)));
        to[0].store(medium, upper);
        let durable = medium.persist_proof(to, "fptree split.2");
        self.set_bitmap(store, leaf, self.all() & !upper, &durable, "fptree split.3");
        self.set_next(store, leaf, right, "fptree split.4");
        let _durable = medium.fence(self.clear(lane, "fptree split.5"), "fptree split.5");
        false
    }

    fn link(&self, store: &Store<M>, leaf: u64, next: u64) {
        self.set_next(store, leaf, next, "fptree unlink.1");
    }
}
