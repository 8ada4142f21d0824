//! The state that a tree saves beside its extents, as words: numbers, lists of free items.

use std::sync::Arc;

use super::{Extent, Memory, Segment, SharedCell, Zeroed};

/// Stands for a cell that a writer does not have: there is none at this offset.
const NO_CELL: u64 = u64::MAX;

/// Manifest being written.
#[derive(Debug, Default)]
pub struct Manifest {
    extents: Vec<u32>,
    words: Vec<u64>,
    live: bool,
}

impl Manifest {
    /// Returns a manifest for followers.
    pub(super) fn live() -> Self {
        Self { live: true, ..Self::default() }
    }

    /// Returns whether they are for followers, which use locations while the tree continues to change, or else for the
    /// next open, which restores the state.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Writes the location of a value. Returns `None` if followers cannot see it.
    pub fn push_cell<T: Zeroed>(&mut self, cell: &SharedCell<T>) -> Option<()> {
        self.words.push(cell.place()?);
        Some(())
    }

    /// Writes the location of a cell that not every writer has.
    pub fn push_optional_cell<T: Zeroed>(&mut self, cell: Option<&SharedCell<T>>) -> Option<()> {
        match cell {
            Some(cell) => self.push_cell(cell),
            None => {
                self.words.push(NO_CELL);
                Some(())
            }
        }
    }

    /// Writes a word.
    pub fn push(&mut self, word: u64) {
        self.words.push(word);
    }

    /// Writes a list, and its length.
    pub fn push_all(&mut self, words: impl ExactSizeIterator<Item = u64>) {
        self.words.push(words.len() as u64);
        self.words.extend(words);
    }

    /// Writes an extent, which stays when its holder is dropped. Returns `None` if it is memory of this process.
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

/// Manifest being read, in the order in which it was written. Methods return `None` if the manifest does not match.
#[derive(Debug)]
pub struct ManifestReader<'a> {
    segment: &'a Arc<Segment>,
    words: &'a [u64],
    taken: Vec<u32>,
    live: bool,
}

impl<'a> ManifestReader<'a> {
    pub(super) fn new(segment: &'a Arc<Segment>, words: &'a [u64]) -> Self {
        Self { segment, words, taken: Vec::new(), live: false }
    }

    pub(super) fn live(segment: &'a Arc<Segment>, words: &'a [u64]) -> Self {
        Self { live: true, ..Self::new(segment, words) }
    }

    /// Returns whether it is for a follower: see [`Manifest::is_live`].
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Returns the memory of the tree's volatile data.
    pub fn memory(&self) -> Memory {
        Memory::of(Some(self.segment))
    }

    /// Returns a value at its noted location.
    pub fn read_cell<T: Zeroed>(&mut self) -> Option<SharedCell<T>> {
        let offset = self.read()?;
        SharedCell::at(self.segment, offset)
    }

    /// Returns the next word.
    pub fn read(&mut self) -> Option<u64> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(*first)
    }

    /// Returns the next word if it fits 32 bits.
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
        if self.live && usable > 0 {
            // After a kill the file must have what the tree used.
            (self.segment.data_bytes(number)? >= usable as u64).then_some(())?;
        }
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
