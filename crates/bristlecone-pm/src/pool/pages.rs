//! Directory pages: chunks with the entries of trees beyond those in the header.
//!
//! Page `p` is the chunk whose descriptor names [`page_owner`]`(p)` as its owner. Its entries follow those of page `p - 1`,
//! or of the header. A page is added when no entry is free, and is never removed:
//!
//! 1. Both copies of the superblock get the bit for pages. *From here on, versions that do not know pages refuse the pool.
//!    A crash leaves only the bit.*
//! 2. A chunk is allocated. The states of its entries are durably zero, which is free. *Its descriptor, one word, commits
//!    the page: before it the chunk is free, after it the page exists.*

use super::chunks::{Chunk, broken};
use super::geometry::Geometry;
use super::layout::{Descriptor, ENTRY_BYTES, SlotKind, TREES_LIMIT, page_of_owner, page_owner};
use super::{PoolFile, TreeId};
use crate::sync::AtomicU64;
use crate::sync::Ordering::{Acquire, Release};
use crate::{Error, Medium, Result};

/// The offset of each directory page; 0 if it does not exist.
#[derive(Debug)]
pub(super) struct Pages(Box<[AtomicU64]>);

impl Pages {
    pub fn new(geometry: &Geometry) -> Self {
        Self((0..geometry.pages_max()).map(|_| AtomicU64::new(0)).collect())
    }

    fn offset(&self, page: usize) -> Option<u64> {
        let offset = self.0.get(page)?.load(Acquire);
        (offset != 0).then_some(offset)
    }

    /// Returns the number of pages up to the last one.
    fn begun(&self) -> usize {
        (0..self.0.len()).rev().find(|&page| self.offset(page).is_some()).map_or(0, |last| last + 1)
    }
}

impl<M: Medium> PoolFile<M> {
    /// Returns the offset of an entry beyond those in the header.
    #[cold]
    pub(super) fn entry_in_pages(&self, id: TreeId) -> Option<u64> {
        let (behind, entries) = (u64::from(id.0) - self.geometry.trees_max, self.geometry.page_entries());
        let page = self.pages.offset((behind / entries) as usize)?;
        Some(page + behind % entries * ENTRY_BYTES)
    }

    /// Returns whether the directory has an entry with this index.
    pub(super) fn has_entry(&self, id: TreeId) -> bool {
        let number = u64::from(id.0);
        number < self.geometry.trees_max || number < TREES_LIMIT && self.entry_in_pages(id).is_some()
    }

    /// Returns the indices of the directory's entries from `first` on, ascending.
    pub(super) fn entry_ids(&self, first: u32) -> impl Iterator<Item = TreeId> {
        let behind = self.pages.begun() as u64 * self.geometry.page_entries();
        let end = if behind == 0 {
            self.geometry.trees_max
        } else {
            (self.geometry.trees_max + behind).min(TREES_LIMIT)
        };
        (first..end as u32).map(TreeId).filter(|&id| self.has_entry(id))
    }

    /// Returns whether a chunk is a directory page.
    pub(super) fn is_page(&self, id: u32) -> bool {
        self.page_in(id).is_some_and(|page| self.pages.offset(page) == Some(self.chunk_offset(id)))
    }

    /// Returns the number of the directory page that a chunk's descriptor names.
    fn page_in(&self, id: u32) -> Option<usize> {
        match Descriptor::decode(self.descriptor(id).load(self.medium()))? {
            Descriptor::Owned { owner, kind: SlotKind::DIRECTORY, slot_bytes }
                if u64::from(slot_bytes) == ENTRY_BYTES =>
            {
                page_of_owner(owner).filter(|&page| page < self.geometry.pages_max())
            }
            _ => None,
        }
    }

    /// Returns the number of directory pages.
    pub fn directory_chunks(&self) -> usize {
        (0..self.pages.0.len()).filter(|&page| self.pages.offset(page).is_some()).count()
    }

    /// Finds the pages after open. Salvage has found those of a damaged pool already.
    pub(super) fn recover_pages(&self, chunks: u32) -> Result<()> {
        if self.directory_chunks() > 0 {
            return Ok(());
        }
        self.find_pages(chunks.into(), |id, what| Err(broken(id, what)))
    }

    /// Finds the pages among the first `chunks` chunks. Calls `damage` with each invalid one and the reason.
    pub(super) fn find_pages(
        &self,
        chunks: u64,
        mut damage: impl FnMut(u32, &'static str) -> Result<()>,
    ) -> Result<()> {
        if !self.lock_contents().pages && !self.is_followed() {
            return Ok(());
        }
        let mut last = None;
        for id in 0..chunks as u32 {
            let Some(page) = self.page_in(id) else { continue };
            let offset = self.chunk_offset(id);
            if offset + self.geometry.chunk_bytes > self.region.reserved() {
                continue;
            }
            match self.pages.offset(page) {
                Some(other) if other != offset => {
                    damage(id, "a second chunk is the same page of the directory")?
                }
                _ => self.pages.0[page].store(offset, Release),
            }
            last = last.max(Some((page, id)));
        }
        if let Some((page, id)) = last
            && (0..page).any(|page| self.pages.offset(page).is_none())
        {
            damage(id, "a page of the directory, of which an earlier page is missing")?;
        }
        Ok(())
    }

    /// Adds a page to the directory. After an error nothing has changed.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if it has the maximum number of pages; otherwise as an allocation.
    pub(super) fn add_page(&self) -> Result<()> {
        let page = self.pages.begun();
        if page == self.pages.0.len() {
            return Err(Error::invalid(format!("the pool holds {TREES_LIMIT} trees already: drop one")));
        }
        if !self.lock_contents().pages {
            // Both copies: if the medium damages the newer one, the older one must not deny the pages.
            self.write_contents(|contents| contents.pages = true)?;
            self.write_contents(|_| {})?;
        }
        let owner = TreeId(page_owner(page));
        let entries = self.geometry.page_entries();
        let Chunk { offset, .. } =
            self.chunk_alloc(owner, SlotKind::DIRECTORY, ENTRY_BYTES as u32, entries)?;
        self.health()?;
        self.pages.0[page].store(offset, Release);
        Ok(())
    }
}
