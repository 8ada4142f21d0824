//! What a tree leaves behind beside its extents, as words: numbers, lists of what is free.

use std::sync::Arc;

use super::{Extent, Segment};

/// Notes that are being taken.
#[derive(Debug, Default)]
pub struct Notes {
    extents: Vec<u32>,
    words: Vec<u64>,
}

impl Notes {
    /// Notes a word.
    pub fn push(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Notes a list, and its length.
    pub fn push_all(&mut self, words: impl ExactSizeIterator<Item = u64>) {
        self.words.push(words.len() as u64);
        self.words.extend(words);
    }

    /// Notes an extent, which stays when its holder goes. `None`: it is memory of this process.
    pub fn push_extent(&mut self, extent: &Extent) -> Option<()> {
        let number = extent.keep()?;
        self.extents.push(number);
        self.words.push(number.into());
        Some(())
    }

    pub(super) fn into_parts(self) -> (Vec<u32>, Vec<u64>) {
        (self.extents, self.words)
    }
}

/// Notes that are read, in the order in which they were taken. `None`: they were not taken so.
#[derive(Debug)]
pub struct NotesReader<'a> {
    segment: &'a Arc<Segment>,
    words: &'a [u64],
    taken: Vec<u32>,
}

impl<'a> NotesReader<'a> {
    pub(super) fn new(segment: &'a Arc<Segment>, words: &'a [u64]) -> Self {
        Self { segment, words, taken: Vec::new() }
    }

    /// Returns the next word.
    pub fn read(&mut self) -> Option<u64> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(*first)
    }

    /// Returns the next word, if it is a number so small.
    pub fn read_u32(&mut self) -> Option<u32> {
        self.read().and_then(|word| word.try_into().ok())
    }

    /// Returns the next list.
    pub fn read_all(&mut self) -> Option<&'a [u64]> {
        let len = usize::try_from(self.read()?).ok()?;
        let (list, rest) = self.words.split_at_checked(len)?;
        self.words = rest;
        Some(list)
    }

    /// Returns the next extent, of up to `bytes` bytes, of which `usable` have been used.
    pub fn read_extent(&mut self, bytes: usize, usable: usize) -> Option<Extent> {
        let number = self.read_u32()?;
        let extent = Extent::again(self.segment, number, bytes, usable)?;
        self.taken.push(number);
        Some(extent)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.words.is_empty()
    }

    pub(super) fn into_taken(self) -> Vec<u32> {
        self.taken
    }
}
