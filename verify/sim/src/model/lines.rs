//! Sets of words, and maps of lines.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bristlecone_random::mix;

use crate::model::memory::{LINE_WORDS, Line, Memory};

/// A set of words of a memory: a bit each, set from any thread.
#[derive(Debug)]
pub(crate) struct WordSet(Box<[AtomicU64]>);

impl WordSet {
    pub(crate) fn none(memory: &Memory) -> Self {
        Self((0..(memory.lines() * LINE_WORDS).div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    pub(crate) fn add(&self, word: u32) {
        let (words, bit) = (&self.0[word as usize / 64], 1 << (word % 64));
        // Most reads are of words that were already read.
        if words.load(Relaxed) & bit == 0 {
            words.fetch_or(bit, Relaxed);
        }
    }

    pub(crate) fn add_all(&self, other: &WordSet) {
        for (words, more) in self.0.iter().zip(&other.0) {
            let more = more.load(Relaxed);
            if more & !words.load(Relaxed) != 0 {
                words.fetch_or(more, Relaxed);
            }
        }
    }

    /// Adds the words of `other` that are not among `except`.
    pub(crate) fn add_others(&self, other: &WordSet, except: &WordSet) {
        for ((words, more), except) in self.0.iter().zip(&other.0).zip(&except.0) {
            let more = more.load(Relaxed) & !except.load(Relaxed);
            if more & !words.load(Relaxed) != 0 {
                words.fetch_or(more, Relaxed);
            }
        }
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|words| words.store(0, Relaxed));
    }

    #[inline]
    pub(crate) fn contains(&self, word: u32) -> bool {
        self.0[word as usize / 64].load(Relaxed) >> (word % 64) & 1 == 1
    }

    /// Adds words of a line, a bit each.
    pub(crate) fn add_of_line(&self, line: u32, words: u8) {
        let first = line as usize * LINE_WORDS;
        self.0[first / 64].fetch_or(u64::from(words) << (first % 64), Relaxed);
    }

    /// Adds every word.
    pub(crate) fn add_everything(&self) {
        self.0.iter().for_each(|words| words.store(u64::MAX, Relaxed));
    }

    /// Returns a hash of the set.
    pub(crate) fn hash(&self) -> u64 {
        let occupied = self.0.iter().enumerate().map(|(at, words)| (at as u64, words.load(Relaxed)));
        occupied
            .filter(|(_, words)| *words != 0)
            .fold(0, |hash: u64, (at, words)| mix(hash.rotate_left(17) ^ mix(words ^ at.rotate_left(32))))
    }

    /// Returns which words of a line are in the set, a bit each.
    #[inline]
    pub(crate) fn of_line(&self, line: u32) -> u8 {
        let first = line as usize * LINE_WORDS;
        (self.0[first / 64].load(Relaxed) >> (first % 64)) as u8
    }
}

/// A map from some lines.
pub(crate) type LineMap<T> = HashMap<u32, T, BuildHasherDefault<LineHasher>>;

/// Hashes numbers of lines. They are not chosen by an attacker, so a weak hash suffices.
#[derive(Debug, Default)]
pub(crate) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    fn write_u32(&mut self, line: u32) {
        self.0 = (self.0 ^ u64::from(line)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// Returns a line's contribution to the hash of an image: the hash is the sum over all lines.
pub(crate) fn line_hash(line: u32, contents: &Line) -> u64 {
    contents.iter().fold(u64::from(line) + 1, |hash, word| mix(hash.rotate_left(17) ^ mix(*word)))
}

/// Returns a line's contribution to the hash of an image relative to the base.
pub(crate) fn difference(base: &[Line], line: u32, contents: &Line) -> u64 {
    line_hash(line, contents).wrapping_sub(line_hash(line, &base[line as usize]))
}
