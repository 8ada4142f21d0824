//! Opening a tree after anything. The chain of leaves is the truth; the logs bring back what was
//! buffered for them. What is written does not change what they say: fingerprints, descriptors of chunks
//! that nobody needs, the first leaf of a new tree; and logs that nobody needs are emptied. So a crash in
//! here is one more crash.

use std::cmp::Reverse;

use bristlecone_pm::{ChunkRange, Error, LogChunk, LogEntry, Medium, Persist, Result, TreeId};

use super::LodgeTree;
use super::buffer::Buffered;
use super::layout::{LeafWord, Slots, leaf_bytes};
use super::node::Entry;
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::inner::Inner;
use crate::shared::recovery::each;
use crate::shared::slot::bits;

/// A leaf on the chain, and what is buffered for it.
struct Survivor<K: KeyCodec> {
    low: K::Owned,
    entry: Entry,
    stamp: u64,
    buffered: Vec<Buffered>,
}

/// Returns what entries are sorted by: their leaf, and within it the newest first.
fn newest_first((at, _, entry): &(usize, u32, LogEntry)) -> (usize, Reverse<u64>) {
    (*at, Reverse(entry.sequence))
}

/// What leads from leaf to leaf, for all slots that leaves may stand in.
struct Links {
    ranges: Vec<ChunkRange>,
    links: Vec<Vec<(LeafWord, u64)>>,
    leaf_bytes: u64,
}

impl Links {
    /// The word and the successor of the leaf at `offset`, if one can stand there.
    fn at(&self, offset: u64) -> Option<(LeafWord, u64)> {
        let chunk = self.ranges.partition_point(|range| range.offset <= offset).checked_sub(1)?;
        let within = offset - self.ranges[chunk].offset;
        let link = self.links[chunk].get((within / self.leaf_bytes) as usize)?;
        within.is_multiple_of(self.leaf_bytes).then_some(*link)
    }
}

/// Leaves that a thread recovers at a time.
const STRIDE: usize = 4096;

impl<K: KeyCodec, V: Codec, M: Medium> LodgeTree<K, V, M> {
    pub(super) fn recover(&mut self, tree: TreeId, logged: Vec<LogChunk>, threads: usize) -> Result<()> {
        let Some(first) = self.pool.root(tree)? else { return self.create(tree, logged) };
        self.first = first;
        let chain = self.chain(threads)?;
        let mut survivors = self.survivors(&chain, threads)?;
        self.replay(&mut survivors, &logged, threads)?;
        self.versions.keep(logged);
        self.leaves.finish_recovery();
        self.keys.finish_recovery();
        self.values.finish_recovery();
        let nodes = self.build_nodes(&survivors)?;
        self.inner = Inner::build(self.options.inner_bytes as usize, nodes)?;
        Ok(())
    }

    /// Create 1 and 2: the first leaf, then the word of the directory that leads to it.
    fn create(&mut self, tree: TreeId, logged: Vec<LogChunk>) -> Result<()> {
        let leaf = self.leaves.alloc()?;
        let (_, flushed) = self.write_leaf(leaf, 0, std::iter::empty(), 0, 0);
        let durable = self.medium().fence(flushed, "lodgetree create.1");
        self.first = leaf;
        let anchor = self.pool.anchor(tree);
        anchor.publish(self.medium(), leaf, &durable, "lodgetree create.2");
        self.medium().persist(anchor, "lodgetree create.2");
        let id = self.nodes.alloc(0)?;
        self.nodes.get(id).insert_entry(0, Entry { fence: 0, leaf, slots: Slots::default() });
        self.inner = Inner::new(self.options.inner_bytes as usize, id)?;
        self.versions.keep(logged);
        Ok(())
    }

    /// Recover 1: the offsets of all leaves, in order.
    fn chain(&self, threads: usize) -> Result<Vec<(u64, u32)>> {
        let ranges = self.leaves.chunks();
        let leaf_bytes = leaf_bytes(self.slots) as u64;
        let links = each(ranges.len(), threads, |chunk| {
            let ChunkRange { offset, slots } = ranges[chunk];
            let link = |slot| {
                let header = self.header(offset + slot * leaf_bytes);
                let word = LeafWord::unpack(header.word.load(self.medium()));
                (word, header.siblings[word.selector].load(self.medium()))
            };
            Ok((0..slots as u64).map(link).collect::<Vec<_>>())
        })?;
        let most: usize = links.iter().map(Vec::len).sum();
        let links = Links { ranges, links, leaf_bytes };
        let mut chain = Vec::new();
        let mut offset = self.first;
        while offset != 0 {
            let broken = |what: &str| Err(Error::corrupted(what, format!("chain of leaves at {offset:#x}")));
            let Some((word, next)) = links.at(offset) else { return broken("a link to no leaf") };
            if word.bitmap & !self.slots_mask() != 0 {
                return broken("slots beyond a leaf");
            }
            if chain.len() == most {
                return broken("a chain without end");
            }
            chain.push((offset, word.bitmap));
            offset = next;
        }
        Ok(chain)
    }

    /// Recover 2: the leaves, for which nothing is buffered yet.
    fn survivors(&self, chain: &[(u64, u32)], threads: usize) -> Result<Vec<Survivor<K>>> {
        let strides: Vec<_> = chain.chunks(STRIDE).collect();
        let parts = each(strides.len(), threads, |at| {
            strides[at].iter().map(|leaf| self.survivor(*leaf)).collect::<Result<Vec<_>>>()
        })?;
        let survivors: Vec<_> = parts.into_iter().flatten().collect();
        if survivors[1..].windows(2).any(|pair: &[Survivor<K>]| pair[0].low >= pair[1].low) {
            return Err(Error::corrupted("leaves out of order", "chain of leaves"));
        }
        Ok(survivors)
    }

    fn survivor(&self, (leaf, bitmap): (u64, u32)) -> Result<Survivor<K>> {
        let medium = self.medium();
        let header = self.header(leaf);
        if !self.leaves.mark_live(leaf)? {
            return Err(Error::corrupted("a leaf twice", format!("chain of leaves at {leaf:#x}")));
        }
        let guard = K::pin();
        let fence = header.fence.load(medium);
        let low = if leaf != self.first {
            K::mark_live(&self.keys, fence)?;
            K::read(&self.keys, fence, &guard)
        } else if fence == 0 {
            K::least()
        } else {
            let what = "the root leads to a leaf that is not the first";
            return Err(Error::corrupted(what, format!("leaf at {leaf:#x}")));
        };
        let tags = header.fingerprints.load(medium);
        let mut right = tags;
        for slot in bits(bitmap) {
            let cell = self.slot(leaf, slot);
            let key = cell.key.load(medium);
            K::mark_live(&self.keys, key)?;
            V::mark_live(&self.values, cell.value.load(medium))?;
            let key = K::read(&self.keys, key, &guard);
            if key < low {
                return Err(Error::corrupted("a key below its leaf's fence", format!("leaf at {leaf:#x}")));
            }
            let shift = slot % 8 * 8;
            right[slot / 8] = right[slot / 8] & !(0xff << shift) | u64::from(K::fingerprint(key)) << shift;
        }
        if tags != right {
            header.fingerprints.store(medium, right);
        }
        let stamp = header.stamp.load(medium);
        if stamp > LogEntry::SEQUENCE_MAX {
            return Err(Error::corrupted("a stamp beyond all sequences", format!("leaf at {leaf:#x}")));
        }
        self.len.add(i64::from(bitmap.count_ones()));
        let entry = Entry { fence, leaf, slots: self.slots_of(header, bitmap) };
        Ok(Survivor { low: K::owned(low), entry, stamp, buffered: Vec::new() })
    }

    /// Recover 3: entries above their leaf's stamp are buffered again; of those for one key, the
    /// last one.
    fn replay(&self, survivors: &mut [Survivor<K>], logged: &[LogChunk], threads: usize) -> Result<()> {
        let leaves: &[Survivor<K>] = survivors;
        let parts = each(logged.len(), threads, |chunk| {
            let guard = K::pin();
            let mut part = Vec::new();
            for entry in self.versions.entries(&logged[chunk]) {
                let entry = entry?;
                K::verify(&self.keys, entry.key)?;
                let key = K::owned(K::read(&self.keys, entry.key, &guard));
                let at = leaves[1..].partition_point(|leaf| leaf.low <= key);
                if entry.sequence > leaves[at].stamp {
                    part.push((at, logged[chunk].id(), entry));
                }
            }
            Ok(part)
        })?;
        let mut entries: Vec<_> = parts.into_iter().flatten().collect();
        entries.sort_unstable_by_key(newest_first);
        for of_leaf in entries.chunk_by(|a, b| a.0 == b.0) {
            self.buffer_again(&mut survivors[of_leaf[0].0], of_leaf)?;
        }
        if !K::INLINE {
            // Keys that only entries name which do not count any more.
            for entry in logged.iter().flat_map(|chunk| self.versions.entries(chunk)) {
                let LogEntry { key, .. } = entry?;
                if K::mark_live(&self.keys, key)? {
                    self.versions.put_aside(key);
                }
            }
        }
        Ok(())
    }

    /// Takes up what the entries of one leaf, newest first, say.
    fn buffer_again(&self, leaf: &mut Survivor<K>, entries: &[(usize, u32, LogEntry)]) -> Result<()> {
        let guard = K::pin();
        let mut keys: Vec<K::Ref<'_>> = Vec::new();
        for (_, log, entry) in entries {
            let key = K::read(&self.keys, entry.key, &guard);
            leaf.stamp = leaf.stamp.max(entry.sequence);
            if keys.contains(&key) {
                continue;
            }
            keys.push(key);
            if keys.len() >= self.slots || keys.len() >= self.node_slots {
                let what = "more is buffered for a leaf than a node holds";
                return Err(Error::corrupted(what, format!("leaf at {:#x}", leaf.entry.leaf)));
            }
            K::mark_live(&self.keys, entry.key)?;
            if !entry.removed {
                V::mark_live(&self.values, entry.value)?;
            }
            let tag = K::fingerprint(key);
            let in_leaf = self.slot_of(leaf.entry, entry.key, tag, &guard).is_some();
            match (in_leaf, entry.removed) {
                (true, true) => self.len.add(-1),
                (false, false) => self.len.add(1),
                _ => {}
            }
            let LogEntry { removed, key, value, .. } = *entry;
            leaf.buffered.push(Buffered {
                key,
                value,
                log: *log,
                owner: 0,
                in_leaf: in_leaf.into(),
                removed,
                tag,
            });
            self.versions.need(*log);
        }
        // The oldest first, as they were.
        leaf.buffered.reverse();
        Ok(())
    }

    /// Recover 4: nodes over the leaves, each with room for what is buffered; where each begins.
    fn build_nodes(&self, survivors: &[Survivor<K>]) -> Result<Vec<(K::Owned, u32)>> {
        let most = self.index_max * 3 / 4;
        let mut nodes: Vec<(K::Owned, u32)> = Vec::new();
        for leaf in survivors {
            let fits = |(_, id): &(K::Owned, u32)| {
                let node = self.nodes.get(*id);
                node.counts().index < most && node.room() > leaf.buffered.len()
            };
            if !nodes.last().is_some_and(fits) {
                nodes.push((leaf.low.clone(), self.nodes.alloc(0)?));
            }
            let node = self.nodes.get(nodes[nodes.len() - 1].1);
            let owner = node.counts().index;
            node.insert_entry(owner, leaf.entry);
            leaf.buffered.iter().for_each(|item| node.push_buffered(Buffered { owner, ..*item }));
            node.lock.renew_above(leaf.stamp);
        }
        Ok(nodes)
    }
}
