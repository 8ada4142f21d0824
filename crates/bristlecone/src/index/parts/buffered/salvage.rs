//! Salvaging the items of a damaged tree with a chain of leaves and a log. Nothing is trusted: leaves and log
//! entries are read one by one, as in recovery, and contradictions are skipped.
//!
//! A leaf has no checksum. Two criteria identify valid items: the checksums of their records, for keys and values
//! out of line, and the fences. A key must lie between the fence of its leaf and that of the next one. Where the
//! chain is broken, [`rejoin`] finds the leaf behind the gap. A log entry has a check, so a damaged entry does not
//! affect those before and behind it. For each key, the entry with the highest sequence is used if it is above its
//! leaf's stamp.

mod rejoin;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use bristlecone_pm::sync::epoch::pin;
use bristlecone_pm::{Chunk, Error, LogEntry, Medium, PoolFile, Result, SlotKind, TreeId};

use super::{LeafLayout, Link, TreeLog};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::items::{Items, Values};
use crate::index::parts::slot::{Slot, bits};
use crate::index::salvage::only;
use crate::index::{Described, SalvageSink, Span};

/// Passes every plausible item of a damaged tree to the sink. Its leaves have `slots` slots; chunks of its log
/// have `entries` entries, or as many as fit.
pub fn salvage<L: LeafLayout, K: KeyCodec, M: Medium>(
    pool: &Arc<PoolFile<M>>,
    entry: Described<'_>,
    (slots, log_entries): (u64, u64),
    sink: &mut SalvageSink<'_, K>,
) -> Result<()> {
    let (log, chunks) = TreeLog::open(pool, entry.id, log_entries);
    for violation in chunks.iter().filter_map(|chunk| log.violation(chunk)) {
        sink.find("log".to_owned(), violation.to_string());
    }
    let relics = Relics::<L, K, M> {
        pool,
        keys: &Items::keys(pool, entry.id)?,
        values: &Values::open(pool, entry.id, entry.values)?,
        first: pool.anchor(entry.id).load(pool.medium()),
        slots: slots as usize,
        places: Places::of(pool, entry.id, L::KIND, L::bytes(slots as usize) as u64),
        logged: chunks.iter().flat_map(|chunk| log.remains(chunk)).collect(),
        named: HashMap::new(),
        layout: PhantomData,
    };
    relics.save(sink)
}

/// The contents of a leaf slot, valid or not.
struct Relic {
    /// Offset of the next leaf; 0 for none.
    next: u64,
    stamp: u64,
    /// Key word of the low fence.
    fence: u64,
    /// Key and value words.
    items: Vec<[u64; 2]>,
    /// Description of an impossible state, if any.
    violation: Option<&'static str>,
}

/// The remains of a tree.
struct Relics<'a, L, K: KeyCodec, M: Medium> {
    pool: &'a PoolFile<M>,
    keys: &'a Items<K, M>,
    values: &'a Values<M>,
    /// Offset of the first leaf, which has no fence.
    first: u64,
    /// Number of slots of a leaf.
    slots: usize,
    /// Possible offsets of leaves.
    places: Places,
    /// Entries of the log, or their damage.
    logged: Vec<Result<LogEntry>>,
    /// The key word of the item that refers to each value record.
    named: HashMap<u64, u64>,
    layout: PhantomData<L>,
}

/// A leaf of the chain, with its low fence unless that is the smallest key.
struct Member<K: KeyCodec> {
    offset: u64,
    low: Option<K::Owned>,
}

/// All possible leaf positions of a tree.
struct Places {
    /// Offsets of chunks, in order.
    chunks: Vec<u64>,
    chunk_bytes: u64,
    leaf_bytes: u64,
}

impl Places {
    fn of<M: Medium>(pool: &PoolFile<M>, tree: TreeId, kind: SlotKind, leaf_bytes: u64) -> Self {
        let fits = |chunk: &Chunk| chunk.kind == kind && u64::from(chunk.slot_bytes) == leaf_bytes;
        let chunks = pool.chunks_of(tree).into_iter().filter(fits).map(|chunk| chunk.offset);
        let mut chunks: Vec<u64> = chunks.collect();
        chunks.sort_unstable();
        Self { chunks, chunk_bytes: pool.chunk_bytes(), leaf_bytes }
    }

    fn count(&self) -> u64 {
        self.chunk_bytes / self.leaf_bytes
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        let (count, leaf_bytes) = (self.count(), self.leaf_bytes);
        let slots = move |chunk: &u64| {
            let chunk = *chunk;
            (0..count).map(move |slot| chunk + slot * leaf_bytes)
        };
        self.chunks.iter().flat_map(slots)
    }

    fn contains(&self, offset: u64) -> bool {
        let chunk = self.chunks.partition_point(|chunk| *chunk <= offset).checked_sub(1);
        let within = chunk.map(|chunk| offset - self.chunks[chunk]);
        within.is_some_and(|within| {
            within.is_multiple_of(self.leaf_bytes) && within / self.leaf_bytes < self.count()
        })
    }
}

fn at(leaf: u64) -> String {
    format!("leaf at {leaf:#x}")
}

impl<L: LeafLayout, K: KeyCodec, M: Medium> Relics<'_, L, K, M> {
    /// Passes every plausible item to the sink.
    fn save(mut self, sink: &mut SalvageSink<'_, K>) -> Result<()> {
        let chain = self.chain(sink);
        let entries = self.entries(sink);
        if chain.first().map_or(0, |member| member.offset) != self.first {
            let root = format!("{:#x} is not the first leaf's offset", self.first);
            sink.find("root in the directory".to_owned(), root);
        }
        let mut entries = entries.into_iter().peekable();
        for (number, member) in chain.iter().enumerate() {
            let end = chain.get(number + 1).and_then(|next| next.low.as_ref());
            let mut of_leaf = BTreeMap::new();
            while let Some((key, entry)) = entries.next_if(|(key, _)| end.is_none_or(|end| key < end)) {
                of_leaf.insert(key, entry);
            }
            // If the fence of a leaf is wrong, the right one is within the adjacent leaves.
            let before = number.checked_sub(1).and_then(|left| chain[left].low.as_ref());
            let behind = chain.get(number + 2).and_then(|next| next.low.as_ref());
            self.save_leaf(member, end, (before, behind), of_leaf, sink)?;
        }
        for (key, entry) in entries.filter(|(_, entry)| !entry.removed) {
            // There is no leaf.
            self.keep(entry.key, entry.value, "a log entry", only::<K>(K::borrow(&key)), sink)?;
        }
        Ok(())
    }

    /// Returns the newest entry of each key.
    fn entries(&mut self, sink: &mut SalvageSink<'_, K>) -> BTreeMap<K::Owned, LogEntry> {
        let mut newest = BTreeMap::<K::Owned, LogEntry>::new();
        let guard = K::pin();
        let mut damaged = 0;
        for logged in std::mem::take(&mut self.logged) {
            let readable = logged.and_then(|entry| {
                self.keys.verify(entry.key)?;
                let is_believed = entry.sequence <= LogEntry::SEQUENCE_BELIEVED_MAX;
                is_believed
                    .then_some(entry)
                    .ok_or_else(|| Error::corrupted("an entry beyond all sequences", "log"))
            });
            let Ok(entry) = readable.inspect_err(|error| sink.find("log".to_owned(), error.to_string()))
            else {
                damaged += 1;
                continue;
            };
            let key = K::owned(self.keys.read(entry.key, &guard));
            let known = newest.entry(key).or_insert(entry);
            if known.sequence < entry.sequence {
                *known = entry;
            }
        }
        if damaged > 0 {
            sink.lost += damaged;
            let what =
                format!("{damaged} entries are lost: their keys may have older values, be gone, or be back");
            sink.find("log".to_owned(), what);
        }
        newest
    }

    /// Returns the leaves in order.
    fn chain(&self, sink: &mut SalvageSink<'_, K>) -> Vec<Member<K>> {
        let mut seen = HashSet::new();
        let mut chain: Vec<Member<K>> = Vec::new();
        let mut next = self.first;
        loop {
            while next != 0 {
                let last = chain.last().map(|member| member.offset);
                let from = last.map_or_else(|| "directory".to_owned(), at);
                let Some(relic) = self.leaf(next) else {
                    sink.find(from, format!("leads to {next:#x}, where no leaf is"));
                    break;
                };
                if !seen.insert(next) {
                    sink.find(from, format!("leads back to {next:#x}"));
                    break;
                }
                let low = if chain.is_empty() { None } else { self.low(next, &relic, &chain, sink) };
                if low.is_none() && !chain.is_empty() {
                    break;
                }
                chain.push(Member { offset: next, low });
                next = relic.next;
            }
            if next == 0 && !chain.is_empty() {
                return chain;
            }
            match self.resume(&chain, &seen) {
                Some(leaf) => next = leaf,
                None => return chain,
            }
        }
    }

    /// Returns the low fence of a leaf, if it is above that of the previous leaf.
    fn low(
        &self,
        offset: u64,
        relic: &Relic,
        chain: &[Member<K>],
        sink: &mut SalvageSink<'_, K>,
    ) -> Option<K::Owned> {
        let before = chain.last().and_then(|member| member.low.as_ref());
        let fence = self.key(relic.fence);
        let beyond = self.leaf(relic.next).and_then(|next| self.key(next.fence));
        let above = |key: &K::Owned| before.is_none_or(|before| before < key);
        let fits = |key: &K::Owned| above(key) && beyond.as_ref().is_none_or(|beyond| key < beyond);
        if let Some(fence) = fence.clone().filter(fits) {
            return Some(fence);
        }
        // This fence, the next one, or the link is damaged. Most keys are above a valid fence.
        let keys: BTreeSet<K::Owned> = relic.items.iter().filter_map(|[key, _]| self.key(*key)).collect();
        let is_right = |fence: &K::Owned| above(fence) && keys.range(fence..).count() * 2 >= keys.len();
        let least = || keys.iter().find(|key| fits(key) && fence.as_ref() != Some(key)).cloned();
        let believed = fence.clone().filter(is_right).or_else(least);
        sink.find(
            at(offset),
            if believed.is_some() { "fences that are out of order" } else { "no leaf of this chain" },
        );
        believed
    }

    /// Returns the leaf at an offset where one may be.
    fn leaf(&self, offset: u64) -> Option<Relic> {
        self.places.contains(offset).then(|| self.read(offset))
    }

    /// Reads the possible leaf in a slot.
    fn read(&self, leaf: u64) -> Relic {
        let (head, medium) = (self.pool.at::<L>(leaf), self.pool.medium());
        let Link { bitmap, next } = head.link(medium);
        let within = bitmap & ((1 << self.slots) - 1);
        let item = |slot: usize| {
            let slot = self.pool.at::<Slot>(L::slot_offset(leaf, slot));
            [slot.key.load(medium), slot.value.load(medium)]
        };
        Relic {
            next,
            stamp: head.stamp().load(medium),
            fence: head.fence().load(medium),
            items: bits(within).map(item).collect(),
            violation: (within != bitmap).then_some("slots beyond a leaf"),
        }
    }

    fn key(&self, word: u64) -> Option<K::Owned> {
        self.keys.verify(word).ok()?;
        let guard = K::pin();
        Some(K::owned(self.keys.read(word, &guard)))
    }

    /// Passes on the items of a leaf, merged with its log entries.
    fn save_leaf(
        &mut self,
        member: &Member<K>,
        end: Option<&K::Owned>,
        adjacent: (Option<&K::Owned>, Option<&K::Owned>),
        entries: BTreeMap<K::Owned, LogEntry>,
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<()> {
        let relic = self.read(member.offset);
        let span = |from: Option<&K::Owned>, to: Option<&K::Owned>| {
            let from = from.cloned().map_or(Bound::Unbounded, Bound::Included);
            (from, to.cloned().map_or(Bound::Unbounded, Bound::Excluded))
        };
        let find = |sink: &mut SalvageSink<'_, K>, what: &str| {
            sink.find_in(span(member.low.as_ref(), end), at(member.offset), what);
        };
        if let Some(violation) = relic.violation {
            find(sink, violation);
        }
        let stamp = if relic.stamp > LogEntry::SEQUENCE_BELIEVED_MAX {
            find(sink, "a stamp beyond all sequences: entries may be older than items");
            0
        } else {
            relic.stamp
        };
        let newer = |key: &K::Owned| entries.get(key).filter(|entry| entry.sequence > stamp);
        let mut seen = BTreeSet::new();
        for [key, value] in &relic.items {
            let Some(owned) = self.key(*key) else {
                sink.lost += 1;
                find(sink, "a key that cannot be read");
                continue;
            };
            let below = member.low.as_ref().is_some_and(|low| owned < *low);
            if below || end.is_some_and(|end| owned >= *end) {
                sink.lost += 1;
                let what = "a key that does not belong there";
                sink.find_in(span(adjacent.0, adjacent.1), at(member.offset), what);
                // If the record of the key is damaged, log entries refer to it, too.
                sink.doubt(K::borrow(&owned));
            } else if newer(&owned).is_none() {
                // Where the value is not readable, the bit may be damaged as well, and others with it.
                self.keep(*key, *value, &at(member.offset), span(member.low.as_ref(), end), sink)?;
                if !seen.insert(owned) {
                    sink.lost += 1;
                    find(sink, "a key that stands there twice");
                }
            }
        }
        for (key, entry) in &entries {
            if newer(key).is_some() && !entry.removed {
                self.keep(entry.key, entry.value, "a log entry", only::<K>(K::borrow(key)), sink)?;
            }
        }
        Ok(())
    }

    /// Passes on an item if its value is readable, and otherwise puts a span of keys in doubt.
    fn keep(
        &mut self,
        key: u64,
        value: u64,
        place: &str,
        doubted: Span<K>,
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<()> {
        if let Err(error) = self.values.verify(value) {
            sink.lost += 1;
            sink.find_in(doubted, place.to_owned(), error.to_string());
            return Ok(());
        }
        if !self.values.are_words() && self.named.insert(value, key).is_some_and(|other| other != key) {
            sink.find(place.to_owned(), "two items referencing one record");
        }
        let guards = (K::pin(), pin());
        sink.keep(self.keys.read(key, &guards.0), self.values.read(value, &guards.1))
    }
}
