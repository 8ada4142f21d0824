//! The bytes that a simulated structure lives on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bristlecone_pm::{LINE_BYTES, Persistent, Region, Word};

/// Words of a line.
pub const LINE_WORDS: usize = LINE_BYTES / 8;

/// The contents of one line.
pub type Line = [u64; LINE_WORDS];

#[repr(C, align(64))]
struct Cells([AtomicU64; LINE_WORDS]);

/// Line-aligned memory, zero at first, shared by a [`Sim`](crate::Sim) and the structure on it.
#[derive(Clone)]
pub struct Memory(Arc<Vec<Cells>>);

impl Memory {
    /// Zeroed memory of at least `bytes`.
    pub fn new(bytes: usize) -> Self {
        let cells = || Cells([const { AtomicU64::new(0) }; LINE_WORDS]);
        Self(Arc::new((0..bytes.div_ceil(LINE_BYTES)).map(|_| cells()).collect()))
    }

    /// How many lines there are.
    pub fn lines(&self) -> usize {
        self.0.len()
    }

    /// The memory as the bytes of a pool.
    pub fn region(&self) -> Region {
        let owner = Arc::clone(&self.0);
        let base = owner.as_ptr().cast_mut().cast();
        let bytes = (owner.len() * LINE_BYTES) as u64;
        // SAFETY: the vector never changes its buffer again and lives as long as its owner; it
        // consists of atomics, aligned to a line, and is reached as such from here, too.
        unsafe { Region::owned_by(owner, base, bytes) }
    }

    /// The `count` words from word `first` on, for structures laid out by hand.
    ///
    /// # Panics
    ///
    /// If they are not all there, or cross a line.
    pub fn words(&self, first: usize, count: usize) -> &[Word] {
        let line = &self.0[first / LINE_WORDS].0;
        let cells = &line[first % LINE_WORDS..first % LINE_WORDS + count];
        const { assert!(size_of::<Word>() == size_of::<AtomicU64>()) };
        fn is_persistent<T: Persistent>() {}
        is_persistent::<Word>();
        // SAFETY: `Word` is a transparent `AtomicU64` (any eight bytes are a value of it), and the
        // slice is that of the cells, for as long as they are borrowed.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), count) }
    }

    /// What stands in a line now.
    pub fn line(&self, line: u32) -> Line {
        self.0[line as usize].0.each_ref().map(|cell| cell.load(Relaxed))
    }

    /// Replaces a line, behind the back of every medium.
    pub(crate) fn set_line(&self, line: u32, to: &Line) {
        for (cell, word) in self.0[line as usize].0.iter().zip(to) {
            cell.store(*word, Relaxed);
        }
    }

    /// Its address.
    pub(crate) fn base(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// The number of the word at an address inside this memory.
    pub(crate) fn word_at(&self, address: usize) -> Option<usize> {
        let word = address.checked_sub(self.0.as_ptr() as usize)? / 8;
        (word < self.0.len() * LINE_WORDS).then_some(word)
    }
}
