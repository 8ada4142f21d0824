//! Retired memory that followers may still read, and the location of posts.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::PoisonError;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::ProtFlags;

use super::mapping::Mapping;
use super::{Mode, Segment};
use crate::{PAGE_BYTES, failpoint};

/// Offset of posts in extent 0.
const POSTS_AT: u64 = 1 << 35;
/// Bytes for all posts.
const POSTS_BYTES: usize = 64 << 20;
/// Alignment of posts, so that no two share a line, or a pair of lines that is fetched together.
const POST_ALIGN: usize = 128;

/// Retired memory of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waste {
    Extent(u32),
    /// A post, and its size.
    Post(u64, usize),
}

/// The posts of a segment.
#[derive(Debug, Default)]
pub(super) struct Posts {
    /// `None`: there are none. Each post keeps the segment alive, and with it this mapping.
    mapping: Option<Mapping>,
    begun: usize,
    /// Bytes that the file has allocated.
    backed: usize,
    /// Free zeroed posts, by size.
    free: BTreeMap<usize, Vec<u64>>,
}

impl Posts {
    /// Maps the posts of a segment, all zero; none if nothing is to be shared.
    pub fn begin(file: &File, are_wanted: bool) -> Self {
        let zero = || {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, flags, POSTS_AT, POSTS_BYTES as u64)
        };
        let is_zero = are_wanted && failpoint::call("fallocate", zero).is_ok();
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        Self { mapping: if is_zero { map(file, prot) } else { None }, ..Self::default() }
    }

    /// Maps the posts of a segment for a follower.
    pub fn follow(file: &File) -> Option<Self> {
        map(file, ProtFlags::READ).map(|mapping| Self { mapping: Some(mapping), ..Self::default() })
    }

    fn take(&mut self, bytes: usize) -> Option<u64> {
        if let Some(post) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return Some(post);
        }
        let end = self.begun + bytes;
        let mapping = self.mapping.as_ref().filter(|_| end <= POSTS_BYTES)?;
        if end > self.backed {
            let pages = end.next_multiple_of(PAGE_BYTES);
            mapping.back(self.backed, pages - self.backed)?;
            self.backed = pages;
        }
        let post = self.begun as u64;
        self.begun = end;
        Some(post)
    }
}

fn map(file: &File, prot: ProtFlags) -> Option<Mapping> {
    Mapping::of(file, POSTS_AT, POSTS_BYTES, prot)
}

fn bytes_of(layout: Layout) -> usize {
    assert!(layout.align() <= POST_ALIGN);
    layout.size().next_multiple_of(POST_ALIGN)
}

impl Segment {
    /// Allocates a zeroed value that followers can see; returns its offset.
    pub(super) fn take_post(&self, layout: Layout) -> Option<u64> {
        (self.mode == Mode::Write && self.is_whole() && self.opener.is_here()).then_some(())?;
        self.clear_waste();
        self.state().posts.take(bytes_of(layout))
    }

    /// Makes posts that a follower cannot read appear as zeros: see [`Mapping::watch`].
    pub(super) fn watch_posts(&mut self) {
        let posts = &mut self.state.get_mut().unwrap_or_else(PoisonError::into_inner).posts;
        posts.mapping.iter_mut().for_each(|mapping| mapping.watch(&self.path, &self.over));
    }

    /// Returns the address of a post.
    pub(super) fn post_at(&self, offset: u64, layout: Layout) -> Option<*const u8> {
        let base = self.state().posts.mapping.as_ref()?.base();
        let end = offset.checked_add(bytes_of(layout) as u64)?;
        let fits = offset.is_multiple_of(POST_ALIGN as u64) && end <= POSTS_BYTES as u64;
        fits.then(|| base.wrapping_add(offset as usize).cast_const())
    }

    pub(super) fn give_back_post(&self, offset: u64, layout: Layout) {
        let waste = Waste::Post(offset, bytes_of(layout));
        if self.mode == Mode::Write && self.opener.is_here() && !self.waste(waste) {
            self.clear(waste);
        }
    }

    /// Retires memory that followers may still read. Returns `false` if there are no followers.
    pub(super) fn waste(&self, waste: Waste) -> bool {
        let followed = self.live.as_ref().filter(|live| live.had_followers());
        followed.inspect(|live| self.state().waste.push((live.begin_epoch(), waste))).is_some()
    }

    /// Clears retired memory that no follower reads any more. A stopped follower keeps it indefinitely: with changed
    /// contents its lookup might loop.
    pub(super) fn clear_waste(&self) {
        let Some(live) = &self.live else { return };
        if self.state().waste.is_empty() {
            return;
        }
        let passed = live.passed_by_all(&self.file);
        let clear: Vec<Waste> = self
            .state()
            .waste
            .extract_if(.., |(epoch, _)| *epoch <= passed)
            .map(|(_, waste)| waste)
            .collect();
        clear.into_iter().for_each(|waste| self.clear(waste));
    }

    fn clear(&self, waste: Waste) {
        match waste {
            Waste::Extent(extent) => self.clear_extent(extent),
            Waste::Post(offset, bytes) => {
                let posts = &mut self.state().posts;
                let Some(mapping) = &posts.mapping else { return };
                // SAFETY: a freed post that no thread reads any more.
                unsafe { mapping.base().wrapping_add(offset as usize).write_bytes(0, bytes) };
                posts.free.entry(bytes).or_default().push(offset);
            }
        }
    }
}
