//! Sets and maps of lines.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::image::mix;
use crate::memory::Memory;

/// Which lines of a memory: a bit each, set from any thread.
#[derive(Debug)]
pub(crate) struct Lines(Box<[AtomicU64]>);

impl Lines {
    pub(crate) fn none(memory: &Memory) -> Self {
        Self((0..memory.lines().div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn add(&self, line: u32) {
        let (word, bit) = (&self.0[line as usize / 64], 1 << (line % 64));
        // Most reads are of lines that were read before.
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    pub(crate) fn add_all(&self, other: &Lines) {
        for (word, more) in self.0.iter().zip(&other.0) {
            word.fetch_or(more.load(Relaxed), Relaxed);
        }
    }

    /// A hash of the set.
    pub(crate) fn hash(&self) -> u64 {
        self.0.iter().fold(0, |hash, word| mix(hash.rotate_left(17) ^ mix(word.load(Relaxed))))
    }

    pub(crate) fn contains(&self, line: u32) -> bool {
        self.0[line as usize / 64].load(Relaxed) >> (line % 64) & 1 == 1
    }
}

/// Something of some lines.
pub(crate) type LineMap<T> = HashMap<u32, T, BuildHasherDefault<LineHasher>>;

/// Numbers of lines are nobody's choice: they need no hash that withstands an attack.
#[derive(Debug, Default)]
pub(crate) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32((*byte).into()));
    }

    fn write_u32(&mut self, line: u32) {
        self.0 = (self.0 ^ u64::from(line)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}
