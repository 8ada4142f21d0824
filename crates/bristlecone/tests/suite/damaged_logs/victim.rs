//! A pool whose words are changed and restored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::common::{Configuration, Noise, Plant, Scratch};
use bristlecone::{Design, Error, Issue, Key, Pool, Result, Salvage, Tree, Value};
use bristlecone_matrix::seed;

pub const CHUNK: u64 = 2 << 20;
const DESCRIPTORS: u64 = 73_728;
pub const ENTRY: u64 = 24;
pub const KEYS: u64 = 400;

/// The contents of a tree, as numbers.
pub type Items = BTreeMap<u64, u64>;

/// Words, or out-of-line bytes.
pub trait Codec {
    type Key: Key;
    type Value: Value;
    fn put(tree: &Tree<Self::Key, Self::Value>, key: u64, value: u64);
    fn remove(tree: &Tree<Self::Key, Self::Value>, key: u64);
    /// Returns whether a lookup finds this item.
    fn holds(tree: &Tree<Self::Key, Self::Value>, key: u64, value: u64) -> bool;
    /// Returns all items, ascending or descending.
    fn items(tree: &Tree<Self::Key, Self::Value>, backward: bool) -> Items;
}

pub struct Words;
pub struct Texts;

impl Codec for Words {
    type Key = u64;
    type Value = u64;

    fn put(tree: &Tree<u64, u64>, key: u64, value: u64) {
        tree.upsert(key, value).unwrap();
    }

    fn remove(tree: &Tree<u64, u64>, key: u64) {
        tree.remove(key).unwrap();
    }

    fn holds(tree: &Tree<u64, u64>, key: u64, value: u64) -> bool {
        tree.get(key).is_ok_and(|found| found == Some(value))
    }

    fn items(tree: &Tree<u64, u64>, backward: bool) -> Items {
        if backward {
            tree.readable(..).filter_map(Result::ok).rev().collect()
        } else {
            tree.readable(..).filter_map(Result::ok).collect()
        }
    }
}

fn text(key: u64) -> String {
    format!("{key:016x}")
}

fn bytes(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(3)
}

impl Codec for Texts {
    type Key = &'static str;
    type Value = &'static [u8];

    fn put(tree: &Tree<Self::Key, Self::Value>, key: u64, value: u64) {
        tree.upsert(&text(key), &bytes(value)).unwrap();
    }

    fn remove(tree: &Tree<Self::Key, Self::Value>, key: u64) {
        tree.remove(&text(key)).unwrap();
    }

    fn holds(tree: &Tree<Self::Key, Self::Value>, key: u64, value: u64) -> bool {
        tree.get(&text(key)).is_ok_and(|found| found == Some(bytes(value)))
    }

    fn items(tree: &Tree<Self::Key, Self::Value>, backward: bool) -> Items {
        // An invalid key or value becomes another number.
        let key = |key: String| u64::from_str_radix(&key, 16).unwrap_or(key.len() as u64);
        let value = |value: Vec<u8>| value.first_chunk().map_or(7, |first| u64::from_le_bytes(*first));
        let both = |(k, v): (String, Vec<u8>)| (key(k), value(v));
        if backward {
            tree.readable(..).filter_map(Result::ok).rev().map(both).collect()
        } else {
            tree.readable(..).filter_map(Result::ok).map(both).collect()
        }
    }
}

/// A pool with one tree, whose words are changed and restored.
pub struct Victim {
    pub scratch: Scratch,
    pub file: File,
    pub shape: Configuration,
    /// The original contents of the tree.
    pub truth: Items,
}

/// A word of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub at: u64,
    pub part: Part,
    /// The number of the word in its part.
    pub word: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Header of a log's chunk.
    Header,
    /// An entry.
    Entry {
        slot: u64,
    },
    /// The slot behind the last entry.
    End {
        slot: u64,
    },
    Leaf,
}

/// Creates a victim that is the same in each run, unless its tree has a thread.
pub fn fill<C: Codec>(shape: Configuration) -> Victim {
    filled::<C>(shape, Noise(0x2545_f491_4f6c_dd1d))
}

fn filled<C: Codec>(shape: Configuration, mut noise: Noise) -> Victim {
    let scratch = Scratch::new();
    // A saved index would not read its leaves again.
    let options = scratch.without_index().max_bytes(64 << 20);
    let pool = options.open(&scratch.0).unwrap();
    let tree = shape.create::<C::Key, C::Value>(&pool, "t").unwrap();
    let mut truth = Items::new();
    for n in 0..3 * KEYS {
        let key = noise.below(KEYS).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        if n % 5 == 4 {
            C::remove(&tree, key);
            truth.remove(&key);
        } else {
            C::put(&tree, key, n + 1000);
            truth.insert(key, n + 1000);
        }
    }
    assert_eq!(C::items(&tree, false), truth);
    drop(tree);
    pool.close().unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&scratch.0).unwrap();
    Victim { scratch, file, shape, truth }
}

/// Creates a victim that depends on the seed, and writes a few keys until the log has turned over: it holds no item
/// of other leaves.
pub fn fill_and_turn<C: Codec>(shape: Configuration) -> Victim {
    let mut victim = filled::<C>(shape, Noise(0x2545_f491_4f6c_dd1d ^ seed()));
    let pool = victim.scratch.without_index().max_bytes(64 << 20).open(&victim.scratch.0).unwrap();
    let tree = shape.open::<C::Key, C::Value>(&pool, "t").unwrap();
    let lowest: Vec<u64> = victim.truth.keys().copied().take(10).collect();
    for round in 0..300 {
        for key in &lowest {
            C::put(&tree, *key, 100_000 + round);
            victim.truth.insert(*key, 100_000 + round);
        }
    }
    drop(tree);
    pool.close().unwrap();
    victim
}

impl Victim {
    pub fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    }

    pub fn put(&self, at: u64, word: u64) {
        self.file.write_all_at(&word.to_le_bytes(), at).unwrap();
    }

    /// Offsets of chunks of a kind, with their slot sizes.
    pub fn chunks(&self, kind: u64) -> Vec<(u64, u64)> {
        let descriptor = |chunk: u64| self.word(DESCRIPTORS + 8 * chunk);
        let of_kind = (0..31).filter(|chunk| descriptor(*chunk) & 0xffff == kind << 8 | 2);
        of_kind.map(|chunk| ((chunk + 1) * CHUNK, (descriptor(chunk) >> 40) * 8)).collect()
    }

    /// Slots of a log's chunk, including the header, up to the last entry.
    pub fn slots(&self, chunk: u64) -> u64 {
        let named = |name: &str| self.shape.options.iter().find(|(known, _)| *known == name);
        let most = named("log_entries").map_or(CHUNK / ENTRY, |(_, entries)| entries + 1);
        let generation = self.word(chunk) & 0xff;
        let end_mark = !0x1fe | generation << 1;
        let stamp = |slot: &u64| self.word(chunk + slot * ENTRY);
        let counts = |slot: &u64| stamp(slot) >> 1 & 0xff == generation && stamp(slot) != end_mark;
        (1..most).take_while(counts).count() as u64 + 1
    }

    /// Words of logs: those of the longest ones, at their ends and in the middle.
    pub fn logged(&self) -> Vec<Place> {
        let mut chunks: Vec<_> =
            self.chunks(9).into_iter().map(|(chunk, _)| (self.slots(chunk), chunk)).collect();
        chunks.sort_unstable();
        let mut places = Vec::new();
        for (slots, chunk) in chunks.into_iter().rev().take(2) {
            places.extend((0..3).map(|word| Place { at: chunk + word * 8, part: Part::Header, word }));
            let middle = slots / 2..slots / 2 + 3;
            let chosen = (1..5)
                .chain(middle)
                .chain(slots.saturating_sub(4)..slots)
                .filter(|slot| (1..slots).contains(slot));
            for slot in chosen.collect::<BTreeSet<_>>() {
                let part = Part::Entry { slot };
                places.extend((0..3).map(|word| Place { at: chunk + slot * ENTRY + word * 8, part, word }));
            }
            let end = Part::End { slot: slots };
            places.extend((0..3).map(|word| Place { at: chunk + slots * ENTRY + word * 8, part: end, word }));
        }
        places
    }

    /// Chunks of leaves, with the size of a leaf.
    fn leaf_chunks(&self) -> Vec<(u64, u64)> {
        self.chunks(if self.shape.design == Design::CclBTree { 8 } else { 10 })
    }

    /// All words of a few leaves.
    pub fn leaves(&self) -> Vec<Place> {
        let (chunk, bytes) = self.leaf_chunks()[0];
        let leaves = [0, 3, 10].map(|leaf| chunk + leaf * bytes);
        let words =
            |leaf: u64| (0..bytes / 8).map(move |word| Place { at: leaf + word * 8, part: Part::Leaf, word });
        leaves.into_iter().flat_map(words).collect()
    }

    /// Offsets of leaves that have items, and of some that had.
    pub fn all_leaves(&self) -> Vec<u64> {
        let of_chunk =
            |(chunk, bytes): (u64, u64)| (0..(CHUNK / bytes).min(KEYS)).map(move |leaf| chunk + leaf * bytes);
        self.leaf_chunks().into_iter().flat_map(of_chunk).filter(|leaf| self.word(*leaf) != 0).collect()
    }

    /// Returns the values to store in a word, and whether each is a flipped bit.
    pub fn values(&self, place: Place, noise: &mut Noise) -> Vec<(u64, bool)> {
        let word = self.word(place.at);
        let neighbour = if place.part == Part::Leaf { 16 } else { ENTRY };
        let across = if place.part == Part::Leaf { 1024 } else { 8 * ENTRY };
        let whole = [
            0,
            1,
            u64::MAX,
            self.word(place.at + neighbour),
            self.word(place.at + across),
            word.wrapping_add(4),
            1 << 45,
            CHUNK + 0x100,
            noise.next(),
        ];
        let bits = if place.word == 0 && place.part != Part::Leaf { 20 } else { 5 };
        let flips: Vec<_> =
            (0..bits).map(|bit| word ^ 1 << if bit < 9 { bit } else { noise.below(64) }).collect();
        let whole = whole
            .into_iter()
            .filter(|value| *value != word)
            .map(|value| (value, (value ^ word).count_ones() == 1));
        whole.chain(flips.into_iter().map(|value| (value, true))).collect()
    }

    /// Returns the tree's own report.
    pub fn ask<C: Codec>(&self) -> Result<Answer> {
        let pool = Pool::options().read_only(true).recovery_threads(1).open(&self.scratch.0)?;
        let mut issues = pool.check().len();
        let tree = self.shape.open::<C::Key, C::Value>(&pool, "t")?;
        if let Some(Issue { what, location, .. }) = tree.damage().into_iter().next() {
            // It cannot be recovered, and shows what is left of it.
            return Err(Error::Corrupted { what, location });
        }
        let items = C::items(&tree, false);
        assert!(items.len() as u64 <= 8 * KEYS, "{} items out of nothing", items.len());
        C::items(&tree, true);
        let missed = self.truth.iter().filter(|(key, value)| !C::holds(&tree, **key, **value)).count();
        issues += tree.check().len();
        Ok(Answer { items, missed, issues })
    }

    pub fn salvage<C: Codec>(&self) -> (Salvage, Items) {
        let to = Scratch::new();
        let salvage = Pool::options().salvage(&self.scratch.0, &to.0).unwrap();
        let pool = to.options().create(false).open(&to.0).unwrap();
        let tree = self.shape.open::<C::Key, C::Value>(&pool, "t").unwrap();
        assert_eq!(tree.check(), []);
        (salvage, C::items(&tree, false))
    }

    /// Returns the number of keys whose items differ.
    pub fn differences(&self, items: &Items) -> usize {
        let changed = self.truth.iter().filter(|(key, value)| items.get(key) != Some(value)).count();
        changed + items.keys().filter(|key| !self.truth.contains_key(key)).count()
    }
}

pub struct Answer {
    pub items: Items,
    /// Number of items that are not found by their keys.
    pub missed: usize,
    pub issues: usize,
}
