//! Opening a tree after anything. The chain of leaves is the truth; the log brings back what
//! pended for them. What is written does not change what they say: fingerprints, descriptors of chunks
//! that nobody needs, the first leaf of a new tree, and the flush of a write that was logged and
//! interrupted. So a crash in here is one more crash.

use std::cmp::Reverse;

use bristlecone_pm::{ChunkRange, Error, LogChunk, LogEntry, Medium, Persist, Result, TreeId};

use super::Core;
use super::layout::{LEAF_BYTES, LeafWord};
use crate::shared::change::Item;
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::inner::Inner;
use crate::shared::recovery::each;
use crate::shared::slot::bits;

/// A leaf on the chain: where it begins, and its buffer.
struct Survivor<K: KeyCodec> {
    fence: K::Owned,
    id: u32,
    stamp: u64,
}

/// The first words of all slots that leaves may stand in, read chunk by chunk on many threads.
/// Returns what entries are sorted by: their leaf, and within it the newest first.
fn newest_first((at, entry): &(usize, LogEntry)) -> (usize, Reverse<u64>) {
    (*at, Reverse(entry.sequence))
}

struct Words {
    ranges: Vec<ChunkRange>,
    words: Vec<Vec<u64>>,
}

impl Words {
    /// The word of the leaf at `offset`, if one can stand there.
    fn at(&self, offset: u64) -> Option<LeafWord> {
        let chunk = self.ranges.partition_point(|range| range.offset <= offset).checked_sub(1)?;
        let within = offset - self.ranges[chunk].offset;
        let word = self.words[chunk].get((within / LEAF_BYTES) as usize)?;
        within.is_multiple_of(LEAF_BYTES).then(|| LeafWord::unpack(*word))
    }

    fn slots(&self) -> usize {
        self.words.iter().map(Vec::len).sum()
    }
}

/// Leaves that a thread recovers at a time.
const STRIDE: usize = 4096;

impl<K: KeyCodec, V: Codec, M: Medium> Core<K, V, M> {
    pub(super) fn recover(&mut self, tree: TreeId, logged: Vec<LogChunk>, threads: usize) -> Result<()> {
        let Some(first) = self.pool.root(tree)? else { return self.create(tree, logged) };
        self.first = first;
        let chain = self.chain(threads)?;
        let survivors = self.survivors(&chain, threads)?;
        self.replay(&survivors, &logged, threads)?;
        self.log.seal(logged);
        self.leaves.finish_recovery();
        self.keys.finish_recovery();
        self.values.finish_recovery();
        let fences = survivors.into_iter().map(|leaf| (leaf.fence, leaf.id));
        self.inner = Inner::build(self.options.inner_bytes as usize, fences)?;
        Ok(())
    }

    /// Create 1 and 2: the first leaf, then the word of the directory that leads to it.
    fn create(&mut self, tree: TreeId, logged: Vec<LogChunk>) -> Result<()> {
        let (first, durable) = self.write_first_leaf()?;
        self.first = first;
        let anchor = self.pool.anchor(tree);
        anchor.publish(self.medium(), first, &durable, "cclbtree create.2");
        self.medium().persist(anchor, "cclbtree create.2");
        let id = self.buffers.alloc(first, 0)?;
        self.inner = Inner::new(self.options.inner_bytes as usize, id)?;
        self.log.seal(logged);
        Ok(())
    }

    /// Recover 1: the offsets of all leaves, in order.
    fn chain(&self, threads: usize) -> Result<Vec<u64>> {
        let ranges = self.leaves.chunks();
        let words = each(ranges.len(), threads, |chunk| {
            let ChunkRange { offset, slots } = ranges[chunk];
            let word = |slot| self.leaf(offset + slot * LEAF_BYTES).header.word.load(self.medium());
            Ok((0..slots as u64).map(word).collect())
        })?;
        let words = Words { ranges, words };
        let most = words.slots();
        let mut chain = Vec::new();
        let mut offset = self.first;
        while offset != 0 {
            let broken = |what: &str| Err(Error::corrupted(what, format!("chain of leaves at {offset:#x}")));
            let Some(word) = words.at(offset) else { return broken("a link to no leaf") };
            if word.bitmap & !self.slots_mask() != 0 {
                return broken("slots beyond a leaf");
            }
            if chain.len() == most {
                return broken("a chain without end");
            }
            chain.push(offset);
            offset = word.next;
        }
        Ok(chain)
    }

    /// Recover 2: the leaves, with buffers that are empty still.
    fn survivors(&self, chain: &[u64], threads: usize) -> Result<Vec<Survivor<K>>> {
        let strides: Vec<&[u64]> = chain.chunks(STRIDE).collect();
        let parts = each(strides.len(), threads, |at| {
            strides[at].iter().map(|leaf| self.survivor(*leaf)).collect::<Result<Vec<_>>>()
        })?;
        let survivors: Vec<_> = parts.into_iter().flatten().collect();
        let disorder = survivors[1..].windows(2).any(|pair| pair[0].fence >= pair[1].fence);
        if disorder {
            return Err(Error::corrupted("leaves out of order", "chain of leaves"));
        }
        Ok(survivors)
    }

    fn survivor(&self, offset: u64) -> Result<Survivor<K>> {
        let medium = self.medium();
        let cells = self.leaf(offset);
        if !self.leaves.mark_live(offset)? {
            return Err(Error::corrupted("a leaf twice", format!("chain of leaves at {offset:#x}")));
        }
        let word = LeafWord::unpack(cells.header.word.load(medium));
        let guard = K::pin();
        let fence = if offset == self.first {
            K::least()
        } else {
            let fence = cells.slots[0].key.load(medium);
            K::mark_live(&self.keys, fence)?;
            K::read(&self.keys, fence, &guard)
        };
        let mut tags = [0; 2];
        for slot in bits(word.bitmap) {
            let cell = &cells.slots[slot];
            let key = cell.key.load(medium);
            K::mark_live(&self.keys, key)?;
            V::mark_live(&self.values, cell.value.load(medium))?;
            let key = K::read(&self.keys, key, &guard);
            if key < fence {
                return Err(Error::corrupted("a key below its leaf's fence", format!("leaf at {offset:#x}")));
            }
            tags[slot / 8] |= u64::from(K::fingerprint(key)) << (slot % 8 * 8);
        }
        if cells.header.fingerprints.load(medium) != tags {
            cells.header.fingerprints.store_derived(medium, tags);
        }
        let stamp = cells.header.stamp.load(medium);
        if stamp > LogEntry::SEQUENCE_MAX {
            return Err(Error::corrupted("a stamp beyond all sequences", format!("leaf at {offset:#x}")));
        }
        self.len.add(i64::from(word.bitmap.count_ones()));
        Ok(Survivor { fence: K::owned(fence), id: self.buffers.alloc(offset, stamp)?, stamp })
    }

    /// Recover 3: entries that have not reached their leaves pend again; of those for one key, the
    /// last one.
    fn replay(&self, survivors: &[Survivor<K>], logged: &[LogChunk], threads: usize) -> Result<()> {
        let parts = each(logged.len(), threads, |chunk| {
            let guard = K::pin();
            let mut part = Vec::new();
            for entry in self.log.entries(&logged[chunk]) {
                let entry = entry?;
                K::verify(&self.keys, entry.key)?;
                let key = K::owned(K::read(&self.keys, entry.key, &guard));
                let at = survivors[1..].partition_point(|leaf| leaf.fence <= key);
                if entry.sequence > survivors[at].stamp {
                    part.push((at, entry));
                }
            }
            Ok(part)
        })?;
        let mut entries: Vec<(usize, LogEntry)> = parts.into_iter().flatten().collect();
        entries.sort_unstable_by_key(newest_first);
        for of_leaf in entries.chunk_by(|a, b| a.0 == b.0) {
            self.pend_again(survivors[of_leaf[0].0].id, of_leaf)?;
        }
        if !K::INLINE {
            // Keys that only entries name which do not count any more.
            for entry in logged.iter().flat_map(|chunk| self.log.entries(chunk)) {
                let LogEntry { key, .. } = entry?;
                if K::mark_live(&self.keys, key)? {
                    self.collection.put_aside(key);
                }
            }
        }
        Ok(())
    }

    /// Puts what the entries of one leaf, newest first, say into its buffer.
    fn pend_again(&self, id: u32, entries: &[(usize, LogEntry)]) -> Result<()> {
        let guards = (K::pin(), V::pin());
        let buffer = self.buffers.get(id);
        let newest = entries[0].1.sequence;
        let version = buffer.lock.read().expect("nobody else knows the leaf");
        let mut leaf = buffer.lock_at(version).expect("nobody else knows the leaf");
        leaf.raise(newest);
        let mut last: Vec<(K::Ref<'_>, Item)> = Vec::new();
        for (_, entry) in entries {
            let key = K::read(&self.keys, entry.key, &guards.0);
            if last.iter().all(|(other, _)| *other != key) {
                K::mark_live(&self.keys, entry.key)?;
                if !entry.removed {
                    V::mark_live(&self.values, entry.value)?;
                }
                last.push((key, Item { key: entry.key, value: entry.value, removed: entry.removed }));
            }
        }
        if last.len() > self.buffers.batch() {
            return Err(Error::corrupted("more entries pend than a buffer holds", format!("leaf {id}")));
        }
        let mut state = leaf.state();
        let before = self.live_items(&leaf);
        for (_, item) in last {
            leaf.set_slot(state.pending, item.key, item.value);
            state.set_removed(state.pending, item.removed);
            state.pending += 1;
            state.used = state.pending;
        }
        leaf.set_state(state);
        self.len.add(self.live_items(&leaf) as i64 - before as i64);
        self.count_overflow(false, self.overflows(&leaf));
        Ok(())
    }
}
