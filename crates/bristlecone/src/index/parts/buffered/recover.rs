//! Recovery. The chain of leaves is authoritative; the log restores the items that were buffered for them. Recovery
//! writes only derived data: fingerprints, and descriptors of unneeded chunks. A crash during recovery is therefore
//! safe. Step numbers are those of both designs.

use std::cmp::Reverse;

use bristlecone_pm::{ChunkRange, Error, LogChunk, LogEntry, Medium, Result};

use super::leaf::set_tag;
use super::{LeafLayout, Link, Store, TreeLog};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::recovery::each;
use crate::index::parts::slot::bits;

/// Number of leaves that a thread recovers at a time.
const STRIDE: usize = 4096;

/// A leaf of the chain: its low fence, the stamp up to which entries are merged into it, and the data of its design.
pub struct Survivor<K: KeyCodec, T> {
    pub fence: K::Owned,
    /// Offset of the leaf, and its taken slots.
    pub slots: (u64, u64),
    pub stamp: u64,
    pub own: T,
}

/// A log entry that is not merged into its leaf, the newest of its key.
pub struct Replayed {
    /// Index of the leaf in the chain.
    pub at: usize,
    /// The chunk of the entry.
    pub log: u32,
    pub entry: LogEntry,
}

impl Replayed {
    /// Returns the sort key of entries: by leaf, newest first. With a closure, each kind of tree would compile its own
    /// sort.
    fn newest_first(&self) -> (usize, Reverse<u64>) {
        (self.at, Reverse(self.entry.sequence))
    }
}

/// The links of all possible leaf slots, read chunk by chunk on several threads.
struct Links {
    ranges: Vec<ChunkRange>,
    links: Vec<Vec<Link>>,
    leaf_bytes: u64,
}

impl Links {
    /// Returns the link of the leaf at `offset`, if one can be there.
    fn at(&self, offset: u64) -> Option<Link> {
        let chunk = self.ranges.partition_point(|range| range.offset <= offset).checked_sub(1)?;
        let within = offset - self.ranges[chunk].offset;
        let link = self.links[chunk].get((within / self.leaf_bytes) as usize)?;
        within.is_multiple_of(self.leaf_bytes).then_some(*link)
    }
}

fn corrupted<T>(what: &str, leaf: u64) -> Result<T> {
    Err(Error::corrupted(what, format!("leaf at {leaf:#x}")))
}

impl<L: LeafLayout, K: KeyCodec, M: Medium> Store<L, K, M> {
    /// Follows the chain (recover 1 and 2); returns its leaves in order. `own` computes the design's data from a
    /// leaf's offset, taken slots and stamp.
    pub fn survivors<T: Send>(
        &self,
        threads: usize,
        own: impl Fn(u64, u64, u64) -> Result<T> + Sync,
    ) -> Result<Vec<Survivor<K, T>>> {
        let chain = self.chain(threads)?;
        let strides: Vec<_> = chain.chunks(STRIDE).collect();
        let parts = each(strides.len(), threads, |at| {
            let ahead = (1..=strides[at].len()).map(|next| &strides[at][next..]);
            let leaf = |(&leaf, ahead)| {
                self.prefetch_ahead(ahead);
                self.survivor(leaf, &own)
            };
            strides[at].iter().zip(ahead).map(leaf).collect::<Result<Vec<_>>>()
        })?;
        let survivors: Vec<Survivor<K, T>> = parts.into_iter().flatten().collect();
        if survivors[1..].windows(2).any(|pair| pair[0].fence >= pair[1].fence) {
            return Err(Error::corrupted("leaves out of order", "chain of leaves"));
        }
        Ok(survivors)
    }

    /// Returns, by recover 1, the offsets of all leaves in order, and their taken slots.
    fn chain(&self, threads: usize) -> Result<Vec<(u64, u64)>> {
        let ranges = self.leaves.chunks();
        let leaf_bytes = L::bytes(self.slots) as u64;
        let links = each(ranges.len(), threads, |chunk| {
            let ChunkRange { offset, slots } = ranges[chunk];
            let link = |slot| self.leaf(offset + slot * leaf_bytes).link(self.medium());
            Ok((0..slots as u64).map(link).collect::<Vec<_>>())
        })?;
        let most: usize = links.iter().map(Vec::len).sum();
        let links = Links { ranges, links, leaf_bytes };
        let mut chain = Vec::new();
        let mut offset = self.first;
        while offset != 0 {
            let broken = |what: &str| Err(Error::corrupted(what, format!("chain of leaves at {offset:#x}")));
            let Some(Link { bitmap, next }) = links.at(offset) else { return broken("a dangling leaf link") };
            if bitmap >> self.slots != 0 {
                return broken("slots beyond a leaf");
            }
            if chain.len() == most {
                return broken("a chain without end");
            }
            chain.push((offset, bitmap));
            offset = next;
        }
        Ok(chain)
    }

    /// Prefetches data of the next leaves: the records of the first one, the lines of the second.
    fn prefetch_ahead(&self, leaves: &[(u64, u64)]) {
        if let Some(&(leaf, _)) = leaves.get(1) {
            self.pool.prefetch_lines(leaf, L::bytes(self.slots));
        }
        if let Some(&(leaf, bitmap)) = leaves.first()
            && !(K::INLINE && self.values.are_words())
        {
            self.keys.prefetch(self.leaf(leaf).fence().load(self.medium()));
            for slot in bits(bitmap) {
                let cell = self.slot(leaf, slot);
                self.keys.prefetch(cell.key.load(self.medium()));
                self.values.prefetch(cell.value.load(self.medium()));
            }
        }
    }

    /// Returns, by recover 2, the items and the fence of a leaf; rewrites wrong fingerprints.
    fn survivor<T>(
        &self,
        (leaf, bitmap): (u64, u64),
        own: impl Fn(u64, u64, u64) -> Result<T>,
    ) -> Result<Survivor<K, T>> {
        let (medium, guard) = (self.medium(), K::pin());
        let head = self.leaf(leaf);
        if !self.leaves.mark_live(leaf)? {
            return Err(Error::corrupted("a leaf twice", format!("chain of leaves at {leaf:#x}")));
        }
        let fence = if leaf == self.first {
            K::least()
        } else {
            let fence = head.fence().load(medium);
            self.keys.mark_live(fence)?;
            let _ = self.keys.verify_held(fence, &guard);
            self.keys.read(fence, &guard)
        };
        let tags = head.tags(medium);
        let mut right = tags;
        for slot in bits(bitmap) {
            let cell = self.slot(leaf, slot);
            let key = cell.key.load(medium);
            self.keys.mark_live(key)?;
            if !self.values.mark_live(cell.value.load(medium))? {
                // The record would be freed twice, or while an item still refers to it.
                return corrupted("two items referencing one record", leaf);
            }
            // Remembered if damaged: the fingerprint is not that of the original key.
            let _ = self.keys.verify_held(key, &guard);
            let key = self.keys.read(key, &guard);
            if key < fence {
                return corrupted("a key below its leaf's fence", leaf);
            }
            set_tag(right.as_mut(), slot, K::fingerprint(key));
        }
        if tags != right {
            head.derive_tags(medium, right);
        }
        let stamp = head.stamp().load(medium);
        if stamp > LogEntry::SEQUENCE_BELIEVED_MAX {
            return corrupted("a stamp beyond all sequences", leaf);
        }
        self.len.add(i64::from(bitmap.count_ones()));
        Ok(Survivor { fence: K::owned(fence), slots: (leaf, bitmap), stamp, own: own(leaf, bitmap, stamp)? })
    }

    /// Returns, by recover 3, the entries that are not merged into their leaves, only the last one for each key,
    /// ordered by leaf, newest first. A leaf has at most `most` of them.
    pub fn replay<T: Sync>(
        &self,
        survivors: &[Survivor<K, T>],
        (log, logged): (&TreeLog<M>, &[LogChunk]),
        most: usize,
        threads: usize,
    ) -> Result<Vec<Replayed>> {
        let parts = each(logged.len(), threads, |chunk| {
            let guard = K::pin();
            let mut part = Vec::new();
            for entry in log.entries(&logged[chunk]) {
                let entry = entry?;
                if entry.sequence > LogEntry::SEQUENCE_BELIEVED_MAX {
                    let chunk = format!("chunk {}, a log's", logged[chunk].id());
                    return Err(Error::corrupted("a log entry beyond all sequences", chunk));
                }
                self.keys.verify(entry.key)?;
                let key = K::owned(self.keys.read(entry.key, &guard));
                let at = survivors[1..].partition_point(|leaf| leaf.fence <= key);
                if entry.sequence > survivors[at].stamp {
                    part.push(Replayed { at, log: logged[chunk].id(), entry });
                }
            }
            Ok(part)
        })?;
        let mut entries: Vec<Replayed> = parts.into_iter().flatten().collect();
        entries.sort_unstable_by_key(Replayed::newest_first);
        self.keep_newest(&mut entries);
        for of_leaf in entries.chunk_by(|a, b| a.at == b.at) {
            if of_leaf.len() > most {
                let leaf = format!("leaf {} of the chain", of_leaf[0].at);
                return Err(Error::corrupted("buffered items exceed the leaf's capacity", leaf));
            }
            for Replayed { entry, .. } in of_leaf {
                self.keys.mark_live(entry.key)?;
                if !entry.removed && !self.values.mark_live(entry.value)? {
                    self.verify_arrived(survivors[of_leaf[0].at].slots, entry)?;
                }
            }
        }
        if !K::INLINE {
            // Keys that only invalid entries refer to.
            for entry in logged.iter().flat_map(|chunk| log.entries(chunk)) {
                let LogEntry { key, .. } = entry?;
                if self.keys.mark_live(key)? {
                    log.put_aside(key);
                }
            }
        }
        Ok(entries)
    }

    /// Verifies that an entry is the item that refers to the same record: it was merged into the leaf before the
    /// leaf's stamp was updated.
    fn verify_arrived(&self, (leaf, bitmap): (u64, u64), entry: &LogEntry) -> Result<()> {
        let (medium, guard) = (self.medium(), K::pin());
        let key = self.keys.read(entry.key, &guard);
        let is_there = bits(bitmap).any(|slot| {
            let cell = self.slot(leaf, slot);
            cell.value.load(medium) == entry.value && self.keys.read(cell.key.load(medium), &guard) == key
        });
        if is_there { Ok(()) } else { corrupted("two items referencing one record", leaf) }
    }

    /// Keeps the first entry of each key, of entries ordered by leaf.
    fn keep_newest(&self, entries: &mut Vec<Replayed>) {
        let guard = K::pin();
        let (mut leaf, mut keys) = (None, std::collections::BTreeSet::new());
        entries.retain(|Replayed { at, entry, .. }| {
            if leaf != Some(*at) {
                leaf = Some(*at);
                keys.clear();
            }
            keys.insert(self.keys.read(entry.key, &guard))
        });
    }

    /// Frees everything that was not found in use. Call this last.
    pub fn finish_recovery(&mut self) {
        self.leaves.finish_recovery();
        self.keys.finish_recovery();
        self.values.finish_recovery();
    }
}
