//! The memory of a simulated structure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use bristlecone_pm::{Geometry, LINE_BYTES, Persistent, Region, Word};

/// Words of a line.
pub const LINE_WORDS: usize = LINE_BYTES / 8;

/// The contents of one line.
pub type Line = [u64; LINE_WORDS];

#[repr(C, align(64))]
struct Cells([AtomicU64; LINE_WORDS]);

/// Line-aligned memory, initially zero, shared by a [`Sim`](crate::Sim) and the structure on it.
///
/// The memory of a pool has one more line, which no access of the pool reaches: its first word is the length of
/// the file. A crash may lose or keep it like any other line.
#[derive(Clone)]
pub struct Memory {
    cells: Arc<Vec<Cells>>,
    of_pool: bool,
    /// Lines from here on were never stored to.
    used: Arc<AtomicU32>,
}

impl Memory {
    /// Creates zeroed memory of at least `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self::of_lines(bytes.div_ceil(LINE_BYTES), false)
    }

    /// Returns the memory of a pool: zeros, of which the header exists.
    pub fn of_pool(geometry: &Geometry) -> Self {
        let memory = Self::of_lines((geometry.max_bytes() as usize).div_ceil(LINE_BYTES) + 1, true);
        memory.cell(memory.reach()).store(geometry.header_bytes(), Relaxed);
        memory
    }

    fn of_lines(lines: usize, of_pool: bool) -> Self {
        let cells = || Cells([const { AtomicU64::new(0) }; LINE_WORDS]);
        Self { cells: Arc::new((0..lines).map(|_| cells()).collect()), of_pool, used: Arc::default() }
    }

    fn cell(&self, word: usize) -> &AtomicU64 {
        &self.cells[word / LINE_WORDS].0[word % LINE_WORDS]
    }

    /// Returns the number of words that a structure can reach.
    pub(crate) fn reach(&self) -> usize {
        (self.lines() - usize::from(self.of_pool)) * LINE_WORDS
    }

    /// Returns the word with the file's length, if there is a file.
    pub(crate) fn length_word(&self) -> Option<u32> {
        self.of_pool.then_some(self.reach() as u32)
    }

    /// Returns the length of the file.
    pub(crate) fn length(&self) -> u64 {
        match self.length_word() {
            Some(word) => self.cell(word as usize).load(Relaxed),
            None => (self.lines() * LINE_BYTES) as u64,
        }
    }

    /// Returns the line from which on no line was ever stored to.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// Declares that all lines from this one on are zero again.
    pub(crate) fn unuse_from(&self, line: u32) {
        self.used.store(line, Relaxed);
    }

    /// Records that a line is stored to.
    pub(crate) fn use_line(&self, line: u32) {
        if self.used.load(Relaxed) <= line {
            self.used.fetch_max(line + 1, Relaxed);
        }
    }

    /// Returns the nonzero words behind the file's end: remains of chunks that the file lost in a crash.
    pub(crate) fn lost_words(&self) -> impl Iterator<Item = u32> {
        let used = self.used.load(Relaxed) as usize * LINE_WORDS;
        let behind = self.length() as usize / size_of::<u64>()..used.min(self.reach());
        behind.filter(|word| self.cell(*word).load(Relaxed) != 0).map(|word| word as u32)
    }

    /// Sets a word, bypassing every medium.
    pub(crate) fn set_word(&self, word: u32, value: u64) {
        self.cell(word as usize).store(value, Relaxed);
    }

    /// Returns the number of lines.
    pub fn lines(&self) -> usize {
        self.cells.len()
    }

    /// Returns the memory as the bytes of a pool.
    pub(crate) fn region(&self) -> Region {
        let owner = Arc::clone(&self.cells);
        let base = owner.as_ptr().cast_mut().cast();
        let reserved = (self.reach() * size_of::<u64>()) as u64;
        // SAFETY: the vector never changes its buffer again and lives as long as its owner; it consists of
        // atomics, aligned to a line, and is accessed as such from here, too.
        unsafe { Region::owned_by(owner, base, reserved, self.length()) }
    }

    /// Returns the `count` words from word `first` on, for hand-written structures.
    ///
    /// # Panics
    ///
    /// If they do not all exist, or cross a line.
    pub fn words(&self, first: usize, count: usize) -> &[Word] {
        let line = &self.cells[first / LINE_WORDS].0;
        let cells = &line[first % LINE_WORDS..first % LINE_WORDS + count];
        const { assert!(size_of::<Word>() == size_of::<AtomicU64>()) };
        fn is_persistent<T: Persistent>() {}
        is_persistent::<Word>();
        // SAFETY: `Word` is a transparent `AtomicU64` (any eight bytes are a value of it), and the
        // slice is that of the cells, for as long as they are borrowed.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), count) }
    }

    /// Returns the contents of a line.
    pub fn line(&self, line: u32) -> Line {
        let mut contents = [0; LINE_WORDS];
        for (word, cell) in contents.iter_mut().zip(&self.cells[line as usize].0) {
            *word = cell.load(Relaxed);
        }
        contents
    }

    /// Replaces a line, bypassing every medium.
    pub(crate) fn set_line(&self, line: u32, to: &Line) {
        for (cell, word) in self.cells[line as usize].0.iter().zip(to) {
            cell.store(*word, Relaxed);
        }
        let is_length = self.length_word() == Some(line * LINE_WORDS as u32);
        if *to != [0; LINE_WORDS] && !is_length {
            self.use_line(line);
        }
    }

    /// Returns the contents of all lines.
    pub(crate) fn snapshot(&self) -> Arc<[Line]> {
        (0..self.lines() as u32).map(|line| self.line(line)).collect()
    }

    /// Restores the contents of a snapshot, bypassing every medium.
    pub(crate) fn restore(&self, lines: &[Line]) {
        lines.iter().enumerate().for_each(|(line, contents)| self.set_line(line as u32, contents));
    }

    /// Returns its address.
    pub(crate) fn base(&self) -> usize {
        self.cells.as_ptr() as usize
    }

    /// Returns the number of the word at an address inside this memory.
    pub(crate) fn word_at(&self, address: usize) -> Option<usize> {
        let word = address.checked_sub(self.base())? / 8;
        (word < self.reach()).then_some(word)
    }
}
