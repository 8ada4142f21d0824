//! What a tree leaves behind beside its extents, as words: numbers, lists of what is free.

use std::sync::Arc;

use super::{Extent, Memory, Posted, Segment, Zeroed};

/// Notes that are being taken.
#[derive(Debug, Default)]
pub struct Notes {
    extents: Vec<u32>,
    words: Vec<u64>,
    live: bool,
}

impl Notes {
    /// Returns notes for followers.
    pub(super) fn live() -> Self {
        Self { live: true, ..Self::default() }
    }

    /// Returns whether they are for followers, which read where things are while the tree goes on changing, and not for the
    /// next open, which goes on with what it was.
    pub fn are_live(&self) -> bool {
        self.live
    }

    /// Notes where a value is. `None`: followers do not see it.
    pub fn push_posted<T: Zeroed>(&mut self, posted: &Posted<T>) -> Option<()> {
        self.words.push(posted.place()?);
        Some(())
    }

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
        let number = if self.live { extent.number()? } else { extent.keep()? };
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
    live: bool,
}

impl<'a> NotesReader<'a> {
    pub(super) fn new(segment: &'a Arc<Segment>, words: &'a [u64]) -> Self {
        Self { segment, words, taken: Vec::new(), live: false }
    }

    pub(super) fn live(segment: &'a Arc<Segment>, words: &'a [u64]) -> Self {
        Self { live: true, ..Self::new(segment, words) }
    }

    /// Returns whether they are those of a follower: see [`Notes::are_live`].
    pub fn are_live(&self) -> bool {
        self.live
    }

    /// Returns where the tree has what is not persistent.
    pub fn memory(&self) -> Memory {
        Memory::of(Some(self.segment))
    }

    /// Returns a value where it was noted to be.
    pub fn read_posted<T: Zeroed>(&mut self) -> Option<Posted<T>> {
        let offset = self.read()?;
        Posted::at(self.segment, offset)
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
