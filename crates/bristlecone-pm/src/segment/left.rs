//! Trees that a killed writer had open: the next writer takes over the state that it shared with followers. The memory
//! is as the kill left it: each thread had executed a prefix of its stores.
//!
//! # Take over
//! 1. The number of the killed writer's opening is in the header and in the superblock. *Otherwise the pool was changed
//!    by a process that did not use this segment.* The superblock gets the number of this opening. *A kill before 2: the
//!    numbers differ, and the next open discards the segment.*
//! 2. The header gets the same number. Pages of trees keep the life in which they were shared, so that followers do not
//!    see them. *A kill: the trees are as before, and the next open takes them over.*
//! 3. When a tree is opened, its page is withdrawn. *A kill from here to 5: the tree is rebuilt.*
//! 4. The design completes or undoes what was under way, and verifies what it finds. If anything is in doubt, the tree
//!    is rebuilt from its leaves.
//! 5. The tree is shared again.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{SeekFrom, seek};

use super::header::Header;
use super::live::{END, Live};
use super::place::Place;
use super::retired::SharedCells;
use super::{EXTENT_BYTES, EXTENTS_MAX, Identity, KeepIndex, ManifestReader, Mode, Segment, State};

/// The state of a tree that followers see: its extents, and its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub extents: Vec<u32>,
    pub words: Vec<u64>,
}

impl Left {
    /// Returns the words for the page of the tree.
    pub fn encode(&self) -> Vec<u64> {
        let count = self.extents.len() as u64;
        let extents = self.extents.iter().map(|&extent| extent.into());
        [count].into_iter().chain(extents).chain(self.words.iter().copied()).collect()
    }

    /// Decodes the output of [`encode`](Self::encode).
    pub fn decode(words: &[u64]) -> Option<Self> {
        let (&count, rest) = words.split_first()?;
        let (extents, words) = rest.split_at_checked(usize::try_from(count).ok()?)?;
        let extents = extents.iter().map(|&extent| extent.try_into().ok()).collect::<Option<_>>()?;
        Some(Self { extents, words: words.to_vec() })
    }
}

impl Segment {
    /// Takes over the segment of a killed writer. Returns `None` if a part of it is missing, or a follower may still
    /// read it.
    pub(super) fn take_over(
        (file, place): (File, Place),
        header: &Header,
        identity: &Identity<'_>,
        keep: KeepIndex,
    ) -> Option<Self> {
        let live = Live::write_again(&file)?;
        live.wait_until_unread(&file, END).then_some(())?;
        let trees = live.left(&file).into_iter().map(|(tree, words)| Some((tree, Left::decode(&words)?)));
        let left = trees.collect::<Option<std::collections::BTreeMap<_, _>>>()?;
        let begun = u32::try_from(file.metadata().ok()?.len().div_ceil(EXTENT_BYTES)).ok()?;
        let mut used = BTreeSet::new();
        let mut extents = left.values().flat_map(|left| &left.extents);
        let are_possible = (1..=EXTENTS_MAX).contains(&begun)
            && extents.all(|extent| (1..begun).contains(extent) && used.insert(*extent));
        are_possible.then_some(())?;
        let cells = SharedCells::again(&file, live.cells().load(Relaxed))?;
        let state = State { begun, cells, left, ..State::default() };
        let header = header.reopened(identity);
        header.write(&file, &[]).ok()?;
        let segment = Self::over(file, (place, Mode::Write, keep), header, (state, Some(live)));
        segment.live.as_ref()?;
        // Zeroed, regardless of old contents. Extents that were free have no data.
        let unused = (1..begun).filter(|extent| !used.contains(extent));
        unused.for_each(|extent| segment.clear_extent(extent));
        Some(segment)
    }

    /// Takes the state of a tree that a killed writer had open. From here on the next open does not find it.
    pub(super) fn take_left(&self, tree: u32) -> Option<Left> {
        let left = self.state().left.remove(&tree);
        left.inspect(|_| self.live.iter().for_each(|live| live.withdraw(tree)))
    }

    /// Calls `recover` with the state of a tree that a killed writer had open; extents that it does not use become free.
    pub(crate) fn recover_tree<T>(
        self: &Arc<Self>,
        tree: u32,
        recover: impl FnOnce(&mut ManifestReader<'_>) -> Option<T>,
    ) -> Option<T> {
        let left = self.take_left(tree)?;
        let mut reader = ManifestReader::live(self, &left.words);
        let recovered = recover(&mut reader).filter(|_| reader.is_at_end());
        if recovered.is_none() {
            self.found.store(false, Relaxed);
        }
        let taken = reader.into_taken();
        for extent in left.extents.into_iter().filter(|extent| !taken.contains(extent)) {
            self.give_back(extent);
        }
        recovered
    }

    /// Returns the end of the data at the start of an extent, in bytes from there.
    pub(super) fn data_bytes(&self, extent: u32) -> Option<u64> {
        let start = u64::from(extent) * EXTENT_BYTES;
        (seek(self.file.as_fd(), SeekFrom::Data(start)) == Ok(start)).then_some(())?;
        seek(self.file.as_fd(), SeekFrom::Hole(start)).ok().map(|end| end.min(start + EXTENT_BYTES) - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_tree_is_encoded_and_decoded() {
        for extents in [vec![], vec![3], vec![1, 7, 2]] {
            let left = Left { extents, words: vec![5, 0, u64::MAX] };
            assert_eq!(Left::decode(&left.encode()), Some(left));
        }
        assert_eq!(
            [Left::decode(&[]), Left::decode(&[2, 1]), Left::decode(&[1, 1 << 32])],
            [None, None, None]
        );
    }
}
