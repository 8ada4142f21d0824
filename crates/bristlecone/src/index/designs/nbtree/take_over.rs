//! Taking over a tree from a process that was killed. Its descriptors are as the kill left them, and consistent but for
//! the operations that were under way. As no operation waits for another one, each can be completed by any thread.
//!
//! # Takeover
//! 1. The index gives the leaves: see `volatile_index/take_over.rs`. A leaf that was replaced leads to its successors. A
//!    descriptor that does not belong to its block refuses the tree.
//! 2. A leaf is *unsettled* if it is being replaced, if a slot was claimed and has not joined, or if a flush is pending.
//!    All other leaves are used as they are, and nothing of them is read on the medium.
//! 3. Blocks of no leaf are free, unless they are LIVE: then they are copies whose cells seals may refer to.
//! 4. Unsettled leaves: claimed slots are emptied, since their inserts were not acknowledged, and no thread saw them;
//!    flush, fence. *Otherwise a later recovery would find their items.* Leaves whose replacement was decided are linked,
//!    from link 2 on; others that were frozen are replaced.
//! 5. The leaf that each thread changed last gets its number of items, which counts the tree's.
//! 6. Copies that no leaf refers to are discarded; flush, fence.
//!
//! A kill during these steps: the tree is rebuilt from its blocks (recover), as each of these steps leaves a state that
//! recovery handles.
//!
//! The records of keys and values are not read. A census finds the free ones: immediately in a small tree, else when the
//! pool is full, or when the tree is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bristlecone_pm::{ChunkRange, ManifestReader, Medium, Memory, Persist, PoolFile, omits};

use super::layout::{EMPTY, State, Stored};
use super::leaf::{FROZEN, Leaf};
use super::lookup::Pins;
use super::uncounted::Uncounted;
use super::{NbTree, NbTreeOptions};
use crate::index::Described;
use crate::index::parts::arena::Bits;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;
use crate::index::parts::items::{Items, Values};
use crate::index::parts::lost_records;
use crate::index::parts::recovery::each;
use crate::index::parts::slot::bits;
use crate::index::parts::volatile_index::{Step, VolatileIndex};

/// Number of descriptors that a thread inspects at a time.
const STRIDE: u32 = 1 << 14;

/// The leaves of some descriptors.
#[derive(Default)]
struct Inspected {
    items: i64,
    unsettled: Vec<u32>,
    separators: Vec<u64>,
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Takes over the tree that a manifest for followers describes. Returns `None` in doubt.
    pub(super) fn taken_over(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: NbTreeOptions,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let mut tree = Self::unrecovered(pool, entry, options, &Memory::private()).ok()?;
        (tree.locking == 0 && !tree.single_layer).then_some(())?;
        tree.len = Counter::recover(manifest)?;
        tree.stamps = manifest.read_cell()?;
        tree.uncounted = Uncounted::recover(manifest)?;
        tree.keys = Items::take_over_keys(pool, entry.id, manifest)?;
        tree.values = Values::take_over(pool, entry.id, entry.values, manifest)?;
        let find = VolatileIndex::take_over(options.inner_bytes as usize, manifest)?;
        tree.leaves.recover(manifest)?;
        let mut used = Bits::below(tree.leaves.begun().0);
        let lowest = find(&mut used)?;
        let mut found = tree.inspect(&used)?;
        tree.add_successors(&mut used, &mut found)?;
        tree.inner = lowest.complete(found.separators.iter().copied())?;
        let copies = tree.sort_blocks(&used)?;
        tree.count_changed(&used, found.items)?;
        tree.settle_leaves(&found, copies)?;
        if tree.len.sum() <= lost_records::FEW_ITEMS {
            // If a pinned thread prevents it, a later call repeats it.
            tree.free_lost_records();
        }
        tree.saver.opened();
        Some(tree)
    }

    /// Takeover 1 and 2 for the leaves that the index refers to.
    fn inspect(&self, used: &Bits) -> Option<Inspected> {
        let (begun, _) = self.leaves.begun();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let parts = each(begun.div_ceil(STRIDE) as usize, threads, |part| {
            let first = part as u32 * STRIDE;
            let mut own = Inspected::default();
            let mut is_doubtful = false;
            for word in first / 64..(first + STRIDE).min(begun).div_ceil(64) {
                for bit in bits(used.word(word as usize)) {
                    is_doubtful |= self.inspect_leaf(word * 64 + bit as u32, &mut own).is_none();
                }
            }
            Ok((!is_doubtful).then_some(own))
        });
        let mut all = Inspected::default();
        for part in parts.ok()? {
            let mut part = part?;
            all.items += part.items;
            all.unsettled.append(&mut part.unsettled);
            all.separators.append(&mut part.separators);
        }
        Some(all)
    }

    #[inline(always)]
    fn inspect_leaf(&self, id: u32, found: &mut Inspected) -> Option<()> {
        let leaf = self.leaves.get(id);
        (leaf.block() == self.leaves.block(id)).then_some(())?;
        if leaf.is_unsettled(self.shape.all()) {
            found.unsettled.push(id);
        }
        if !leaf.succession().is_decided() {
            found.items += i64::from(self.items(leaf));
        }
        if !K::INLINE && leaf.low() != 0 {
            found.separators.push(leaf.low());
        }
        Some(())
    }

    /// Takeover 1 for the leaves that only replaced leaves refer to.
    fn add_successors(&self, used: &mut Bits, found: &mut Inspected) -> Option<()> {
        let mut at = 0;
        while let Some(&id) = found.unsettled.get(at) {
            at += 1;
            let succession = self.leaves.get(id).succession();
            if !succession.is_decided() || succession.is_removed() {
                continue;
            }
            for successor in [Some(succession.left()), succession.right()].into_iter().flatten() {
                used.add(successor).then_some(())?;
                self.inspect_leaf(successor, found)?;
            }
        }
        Some(())
    }

    /// Takeover 3: marks the blocks of leaves and of copies as taken; returns the copies.
    fn sort_blocks(&self, used: &Bits) -> Option<Vec<u64>> {
        let chunks: BTreeMap<u64, ChunkRange> =
            self.blocks.chunks().into_iter().map(|chunk| (chunk.offset, chunk)).collect();
        let (begun, each_range) = self.leaves.begun();
        let ranges = (begun / each_range) as usize;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let parts = each(ranges, threads, |range| {
            let first = range as u32 * each_range;
            let ids = || first..first + each_range;
            let chunk = self.leaves.chunk_of_range(range as u32).and_then(|offset| chunks.get(&offset));
            let Some(&chunk) = chunk.filter(|chunk| chunk.slots >= each_range as usize) else {
                // Its chunk has left the tree.
                return Ok((!ids().any(|id| used.has(id))).then(Vec::new));
            };
            let mut copies = Vec::new();
            for word in 0..each_range.div_ceil(64) {
                let slots = (word * 64..each_range.min(word * 64 + 64)).map(|slot| (slot, first + slot));
                let mut taken = 0;
                for (slot, id) in slots {
                    if used.has(id) {
                        taken |= 1_u64 << (slot % 64);
                    } else if let (State::Live { .. }, _) = self.header_of(self.leaves.block(id))? {
                        taken |= 1 << (slot % 64);
                        copies.push(self.leaves.block(id));
                    }
                }
                self.blocks.mark_live_word(chunk, word as usize, taken);
            }
            Ok(Some(copies))
        });
        let parts = parts.ok()?.into_iter().collect::<Option<Vec<_>>>()?;
        self.blocks.finish_recovery();
        Some(parts.into_iter().flatten().collect())
    }

    /// Takeover 4 and 6.
    fn settle_leaves(&self, found: &Inspected, copies: Vec<u64>) -> Option<()> {
        let pins = Pins::new();
        let unsettled: BTreeSet<u32> = found.unsettled.iter().copied().collect();
        // A leaf before its successors, as found.
        found.unsettled.iter().try_for_each(|&id| self.settle_leaf(id, &pins))?;
        for block in copies {
            let id = self.leaves.of(block);
            // The index has the successors of leaves that were linked above.
            if !unsettled.contains(&id) && !self.is_in_index(id) && !omits("nbtree takeover.6") {
                self.discard(block);
                self.blocks.free(block);
            }
        }
        self.pool.health().ok()
    }

    /// Takeover 4 for one leaf.
    fn settle_leaf(&self, id: u32, pins: &Pins<K>) -> Option<()> {
        let (leaf, medium) = (self.leaves.get(id), self.medium());
        let lost = leaf.forget_threads(self.shape.all());
        let lost = bits(lost).filter(|_| !omits("nbtree takeover.4"));
        lost.for_each(|slot| self.slot(leaf, slot).value.store(medium, EMPTY));
        medium.persist(self.words_of(leaf.block()), "nbtree takeover.4");
        let is_decided = leaf.succession().is_decided();
        if !is_decided && (!leaf.is_to_be_replaced() || omits("nbtree takeover.4 replace")) {
            return Some(());
        }
        let slot = bits(self.bitmap(leaf) & !FROZEN).next()?;
        let key = self.keys.read(self.slot(leaf, slot).key.load(medium), &pins.key);
        if is_decided {
            if omits("nbtree takeover.4 link") {
                return Some(());
            }
            self.open(leaf);
            self.install(id, key, pins);
        } else {
            self.replace(id, key, pins).ok()?;
        }
        let found = self.inner.find(key, &pins.key, |leaf| self.version_of(leaf)).0;
        (found != id).then_some(())
    }

    fn is_in_index(&self, id: u32) -> bool {
        let (leaf, guard) = (self.leaves.get(id), K::pin());
        let slot = bits(self.bitmap(leaf) & !FROZEN).next();
        let key = slot.map(|slot| self.slot(leaf, slot).key.load(self.medium()));
        key.is_some_and(|key| {
            let key = self.keys.read(key, &guard);
            self.inner.find(key, &guard, |leaf| self.version_of(leaf)).0 == id
        })
    }

    /// Takeover 5: counts the items of the leaves that threads changed last, and of the tree, which had `items` by the
    /// counts of its leaves. A leaf may have left the tree since.
    fn count_changed(&self, used: &Bits, items: i64) -> Option<()> {
        let blocks = self.uncounted.take()?.into_iter();
        let leaves = blocks.filter_map(|block| self.leaves.known(block)).filter(|&id| used.has(id));
        let wrong: i64 = leaves.map(|id| self.count_again(self.leaves.get(id))).sum();
        self.len.reset(u64::try_from(items + wrong).ok()?);
        Some(())
    }

    /// Counts the items of a leaf; returns by how much their number was wrong.
    fn count_again(&self, leaf: &Leaf) -> i64 {
        if leaf.succession().is_decided() {
            return 0;
        }
        let joined = self.bitmap(leaf) & !FROZEN;
        let is_empty = |&slot: &usize| self.resolve(self.slot(leaf, slot).value.load(self.medium())) == EMPTY;
        let wrong = bits(joined).filter(is_empty).count() as i32 - leaf.pending.removed();
        leaf.pending.note_removed(wrong);
        -i64::from(wrong)
    }

    /// Frees the records that a killed process left behind. Returns `false` if a pinned thread prevents this; a later
    /// call repeats it.
    pub(super) fn free_lost_records(&self) -> bool {
        lost_records::free([&self.keys.records, &self.values.records], |keys, values| {
            self.each_leaf(|leaf| {
                for slot in bits(self.bitmap(leaf) & !FROZEN) {
                    let cell = self.slot(leaf, slot);
                    if !K::INLINE {
                        keys.note(cell.key.load(self.medium()));
                    }
                    if let Stored::Record(record) =
                        Stored::decode(self.resolve(cell.value.load(self.medium())))
                    {
                        values.note(record);
                    }
                }
            });
        })
    }

    /// Calls `visit` with every leaf, some of them repeatedly if threads write. A key that stays in the tree meanwhile is
    /// in a leaf that is visited.
    fn each_leaf(&self, mut visit: impl FnMut(&Leaf)) {
        let version_of = |leaf| self.version_of(leaf);
        let mut from: Option<K::Owned> = None;
        loop {
            let pins = Pins::<K>::new();
            let start = from.as_ref().map(K::borrow);
            let (id, _, mut cursor) = self.inner.seek(start, &pins.key, version_of, |_| {});
            let mut leaf = self.leaves.get(id);
            let mut last = None;
            loop {
                visit(leaf);
                let words = bits(self.bitmap(leaf) & !FROZEN)
                    .map(|slot| self.slot(leaf, slot).key.load(self.medium()));
                last = words.map(|word| self.keys.read(word, &pins.key)).max().or(last);
                match self.inner.next(cursor, version_of) {
                    Step::Leaf(id, _, next) => (leaf, cursor) = (self.leaves.get(id), next),
                    Step::End => return,
                    // From the last key on again.
                    Step::Lost => break,
                }
            }
            from = last.map(K::owned).or(from);
        }
    }
}
