//! The kinds of words that format.md lists, and their places in a pool, from its own layout.

use std::collections::BTreeSet;

use super::nodes;
use crate::common::Configuration;
use bristlecone::Design;

pub const SUPERBLOCK_STRIDE: usize = 4096;
const SUPERBLOCK_WORDS: usize = 13;
const DIRECTORY: usize = 8192;
const ENTRY_WORDS: usize = 32;

/// The harm that a wrong word may do without an error and without an issue of `check`.
#[derive(Clone, Copy, Debug)]
pub enum Harm {
    /// None: it has a checksum, is ignored, or contradicts another word.
    None,
    /// This number of items may be missing, wrong or reappear: format.md has no checksum for it.
    Items(usize),
    /// Any: format.md says that such a word is not noticed.
    Any,
    /// The check of a log's entry, which 63 of 64 wrong words fail.
    Chance,
}

/// A word of the pool.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub kind: &'static str,
    /// Offset in the file.
    pub at: usize,
    /// The possible harm if the second word replaces the first one.
    pub harm: fn(&Pages, u64, u64) -> Harm,
}

/// A pool's bytes, and its known layout.
#[derive(Clone, Debug)]
pub struct Pages {
    pub bytes: Vec<u8>,
    pub shape: Configuration,
    chunk_bytes: usize,
    chunks_max: usize,
    trees_max: usize,
    header: usize,
}

/// Slots of one kind: their offsets and their size.
pub struct Slots {
    pub at: Vec<usize>,
    pub bytes: usize,
}

pub fn none(_: &Pages, _: u64, _: u64) -> Harm {
    Harm::None
}

pub fn one(_: &Pages, _: u64, _: u64) -> Harm {
    Harm::Items(1)
}

pub fn any(_: &Pages, _: u64, _: u64) -> Harm {
    Harm::Any
}

impl Pages {
    pub fn new(bytes: Vec<u8>, shape: Configuration) -> Self {
        let mut pages = Self { bytes, shape, chunk_bytes: 0, chunks_max: 0, trees_max: 0, header: 0 };
        let [chunk_bytes, chunks_max, trees_max] = [56, 64, 72].map(|at| pages.word(at) as usize);
        let header = (DIRECTORY + trees_max * ENTRY_WORDS * 8 + chunks_max * 8).next_multiple_of(chunk_bytes);
        (pages.chunk_bytes, pages.chunks_max, pages.trees_max, pages.header) =
            (chunk_bytes, chunks_max, trees_max, header);
        pages
    }

    pub fn word(&self, at: usize) -> u64 {
        self.bytes.get(at..at + 8).map_or(0, |word| u64::from_le_bytes(word.try_into().unwrap()))
    }

    pub fn put(&mut self, at: usize, word: u64) {
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn descriptors(&self) -> usize {
        DIRECTORY + self.trees_max * ENTRY_WORDS * 8
    }

    fn descriptor(&self, chunk: usize) -> u64 {
        self.word(self.descriptors() + 8 * chunk)
    }

    /// Chunks of the tested tree, which is the last one of the directory.
    fn chunks_of(&self, owner: usize) -> impl Iterator<Item = usize> {
        let present = (self.bytes.len() - self.header) / self.chunk_bytes;
        (0..present).filter(move |&chunk| {
            let descriptor = self.descriptor(chunk);
            descriptor & 0xff == 2 && descriptor >> 16 & 0xff_ffff == owner as u64
        })
    }

    /// The directory entry of the tested tree.
    pub fn tree(&self) -> usize {
        (0..self.trees_max).rfind(|tree| self.word(DIRECTORY + tree * ENTRY_WORDS * 8) == 1).unwrap()
    }

    /// The directory word that refers to the tree.
    pub fn root(&self) -> usize {
        DIRECTORY + (self.tree() * ENTRY_WORDS + ENTRY_WORDS - 1) * 8
    }

    /// Returns whether the bytes of the record with the header `old` begin with those of one with the header
    /// `new`.
    fn begins_as(&self, old: u64, new: u64) -> bool {
        let with = |head: u64| {
            let at = (self.header..self.bytes.len()).step_by(8).find(|&at| self.word(at) == head)?;
            self.bytes.get(at + 8..at + 8 + head as u32 as usize)
        };
        with(old).zip(with(new)).is_some_and(|(old, new)| old.starts_with(new))
    }

    /// Slots of one kind in the chunks of the tree.
    pub fn slots(&self, kind: u64) -> Slots {
        let mut slots = Slots { at: Vec::new(), bytes: 8 };
        for chunk in self.chunks_of(self.tree()) {
            let descriptor = self.descriptor(chunk);
            if descriptor >> 8 & 0xff == kind {
                slots.bytes = (descriptor >> 40) as usize * 8;
                let first = self.header + chunk * self.chunk_bytes;
                slots.at.extend((0..self.chunk_bytes / slots.bytes).map(|slot| first + slot * slots.bytes));
            }
        }
        slots
    }

    /// The start and the end of each chunk of the tree's log.
    pub fn logs(&self) -> Vec<(usize, usize)> {
        let of_log = self.chunks_of(self.tree()).filter(|&chunk| self.descriptor(chunk) >> 8 & 0xff == 9);
        let begin = |chunk: usize| self.header + chunk * self.chunk_bytes;
        of_log.map(|chunk| (begin(chunk), begin(chunk + 1))).collect()
    }

    pub fn option(&self, name: &str, default: u64) -> u64 {
        self.shape.option(name).unwrap_or(default)
    }

    /// Returns all words of the pool that have a kind.
    pub fn places(&mut self) -> Vec<Place> {
        nodes::prepare(self);
        let mut places = Vec::new();
        self.header_words(&mut places);
        self.records(&mut places);
        nodes::words(self, &mut places);
        places
    }

    fn header_words(&self, places: &mut Vec<Place>) {
        let mut place = |kind, at, harm| places.push(Place { kind, at, harm });
        for word in 0..SUPERBLOCK_WORDS {
            // The copy that was written last is valid.
            let newer = self.word(80) < self.word(SUPERBLOCK_STRIDE + 80);
            for copy in [0, 1] {
                let kind = if newer == (copy == 1) { "superblock" } else { "superblock before" };
                place(kind, copy * SUPERBLOCK_STRIDE + 8 * word, none);
            }
        }
        place("behind the superblock", SUPERBLOCK_WORDS * 8, none);
        for tree in 0..self.trees_max {
            let entry = DIRECTORY + tree * ENTRY_WORDS * 8;
            if self.word(entry) == 0 {
                place("state of a free entry", entry, none);
                place("free entry", entry + 8, none);
                continue;
            }
            // The tree is dropped.
            place("state of an entry", entry, |_, _, new| if new == 2 { Harm::Any } else { Harm::None });
            (1..ENTRY_WORDS - 1).for_each(|word| place("entry", entry + word * 8, none));
        }
        let rooted = !matches!(self.shape.design, Design::SsTree | Design::NbTree);
        // A CCL-BTree's first leaf has no fence, so another leaf cannot be distinguished from it.
        place(if rooted { "root" } else { "root of a design without" }, self.root(), |pages, _, new| {
            match pages.shape.design {
                Design::CclBTree if new != 0 => Harm::Any,
                _ => Harm::None,
            }
        });
        for chunk in 0..self.chunks_max {
            let at = self.descriptors() + 8 * chunk;
            match self.descriptor(chunk) {
                0 => place("descriptor of a fresh chunk", at, none),
                1 => place("descriptor of a free chunk", at, none),
                // Any other descriptor of the tree's design is valid, and so is that of a freed chunk.
                _ => place("descriptor", at, |_, _, new| match (new & 0xff, new >> 8 & 0xff) {
                    (2, 1..=4 | 8..=10 | 16..=18) => Harm::Any,
                    _ if new == 1 => Harm::Any,
                    _ => Harm::None,
                }),
            }
        }
    }

    fn records(&self, places: &mut Vec<Place>) {
        const HEADS: [(u64, &str, &str); 3] = [
            (2, "head of a key", "bytes of a key"),
            (3, "head of a value", "bytes of a value"),
            (18, "head of a separator", "bytes of a separator"),
        ];
        let named = self.named();
        for (kind, head, content) in HEADS {
            for chunk in
                self.chunks_of(self.tree()).filter(|&chunk| self.descriptor(chunk) >> 8 & 0xff == kind)
            {
                let (first, bytes) =
                    (self.header + chunk * self.chunk_bytes, (self.descriptor(chunk) >> 40) as usize * 8);
                for slot in (first..=first + self.chunk_bytes - bytes).step_by(bytes) {
                    let mut place = |kind, at, harm| places.push(Place { kind, at, harm });
                    if !named.contains(&(slot as u64)) {
                        place("free record", slot, none);
                        place("free record", slot + 8, none);
                        continue;
                    }
                    // Zeros are an empty record; and a record may begin with the bytes of another one.
                    place(head, slot, |pages, old, new| {
                        if new == 0 || pages.begins_as(old, new) { Harm::Items(1) } else { Harm::None }
                    });
                    let len = (self.word(slot) as u32).next_multiple_of(8) as usize;
                    (8..8 + len).step_by(8).for_each(|at| place(content, slot + at, none));
                    if self.shape.design == Design::WoTree && kind != 2 {
                        place("owner of a record", slot + 8 + len, none);
                    }
                }
            }
        }
    }

    /// Words of nodes and logs that could be offsets: the offsets among them are in use.
    fn named(&self) -> BTreeSet<u64> {
        let mut named = BTreeSet::new();
        for chunk in self.chunks_of(self.tree()) {
            if ![2, 3, 18].contains(&(self.descriptor(chunk) >> 8 & 0xff)) {
                let first = self.header + chunk * self.chunk_bytes;
                let words = (first..first + self.chunk_bytes).step_by(8).map(|at| self.word(at));
                named.extend(words.filter(|word| *word < 1 << 48 && *word != 0));
            }
        }
        named
    }
}
