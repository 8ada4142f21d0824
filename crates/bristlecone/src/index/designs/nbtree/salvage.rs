//! Salvaging the items of a damaged tree. Nothing is trusted: blocks are read one by one, as in recovery,
//! and contradictions are skipped.
//!
//! A block has no checksum. Two criteria identify valid items: the checksums of their records, for keys and
//! values out of line, and the order of leaves. A key must lie between the medians of the leaves to the left
//! and to the right of its own; a few wrong keys do not move a median. A block with an invalid header is read
//! last, if most of its keys are in their home lines, which is unlikely in noise. Only keys outside the range
//! of every other leaf are taken from it.

use bristlecone_pm::{ChunkRange, Error, Result};
use std::cmp::Ordering;
use std::ops::Bound;

use super::NbTree;
use super::layout::{State, Stored};
use super::lookup::Pins;
use crate::index::SalvageSink;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::encoded;
use crate::index::parts::slot::Slot;

/// Classification of a block by its header.
enum Standing {
    /// Belongs to no leaf.
    Nothing,
    Leaf,
    /// Its header is damaged, or marks it as a copy.
    InDoubt,
}

/// A block with keys.
struct Piece<K: KeyCodec> {
    block: u64,
    birth: u64,
    median: K::Owned,
    /// Its unreadable items.
    violations: Vec<Error>,
    /// The least and the greatest of the keys between the medians of the adjacent blocks.
    range: Option<(K::Owned, K::Owned)>,
}

impl<K: KeyCodec> Piece<K> {
    fn by_median(&self, other: &Self) -> Ordering {
        self.median.cmp(&other.median)
    }

    fn youngest_first(&self, other: &Self) -> Ordering {
        other.birth.cmp(&self.birth)
    }
}

/// An item as stored in a slot.
#[derive(Clone, Copy)]
struct Item {
    key: u64,
    /// The value word without a seal.
    value: u64,
}

impl<K: KeyCodec, M: bristlecone_pm::Medium> NbTree<K, M> {
    /// Passes every plausible item to the sink. The tree was not recovered.
    pub(super) fn save_items(&self, sink: &mut SalvageSink<'_, K>) -> Result<()> {
        let ranges = self.blocks.chunks();
        let (mut leaves, mut in_doubt) = (Vec::new(), Vec::new());
        for range in &ranges {
            for slot in 0..range.slots as u64 {
                let block = range.offset + slot * self.shape.block_bytes as u64;
                match self.standing(block, &ranges, sink) {
                    Standing::Nothing => {}
                    Standing::Leaf => leaves.extend(self.piece(block, &ranges, true, sink)),
                    Standing::InDoubt => in_doubt.extend(self.piece(block, &ranges, false, sink)),
                }
            }
        }
        leaves.sort_unstable_by(Piece::by_median);
        for at in 0..leaves.len() {
            let range = self.hand_over(&leaves, at, &ranges, sink)?;
            leaves[at].range = range;
        }
        in_doubt.sort_unstable_by(Piece::youngest_first);
        for piece in &in_doubt {
            self.hand_over_uncovered(piece, &leaves, &ranges, sink)?;
        }
        Ok(())
    }

    fn standing(&self, block: u64, ranges: &[ChunkRange], sink: &mut SalvageSink<'_, K>) -> Standing {
        let (state, birth) = match self.header_of(block) {
            Ok(header) => header,
            Err(error) => {
                sink.find(format!("block {block:#x}"), error.to_string());
                return Standing::InDoubt;
            }
        };
        match state {
            State::Live { origin } => match self.came_to_pass(origin, birth, ranges) {
                Ok(true) => Standing::Leaf,
                Ok(false) | Err(_) => Standing::InDoubt,
            },
            // A block that ever belonged to a leaf keeps its stamp.
            State::Free if self.birth_of(block) == 0 => Standing::InDoubt,
            State::Free | State::Replaced { .. } => Standing::Nothing,
        }
    }

    /// Returns the items that a block may hold, in slot order, with `Err` for each invalid one.
    fn items_in(&self, block: u64, ranges: &[ChunkRange]) -> impl Iterator<Item = Result<Item>> {
        (0..self.shape.slots).filter_map(move |at| self.item(block, at, ranges).transpose())
    }

    fn item(&self, block: u64, at: usize, ranges: &[ChunkRange]) -> Result<Option<Item>> {
        let [key, mut value] = self.slot_words(block, at);
        let broken = |what: &str| Error::corrupted(what.to_owned(), format!("block {block:#x}"));
        if let Stored::Sealed(cell) = Stored::decode(value) {
            value =
                self.unseal(key, cell, ranges).ok_or_else(|| broken("a seal with an unknown location"))?;
        }
        match Stored::decode(value) {
            Stored::Empty => return Ok(None),
            Stored::Record(record) => {
                self.values.records.verify(record)?;
                if self.values.are_words()
                    && self.values.records.read(record, &bristlecone_pm::sync::epoch::pin()).len() != 8
                {
                    return Err(broken("an invalid value word"));
                }
            }
            Stored::Plain(_) if self.values.are_words() => {}
            Stored::Plain(_) | Stored::Sealed(_) => return Err(broken("an invalid value word")),
        }
        self.keys.verify(key)?;
        Ok(Some(Item { key, value }))
    }

    fn slot_words(&self, block: u64, at: usize) -> [u64; 2] {
        let slot: &Slot = self.pool.at(self.shape.slot(block, at));
        [slot.key.load(self.medium()), slot.value.load(self.medium())]
    }

    /// Returns the value that an unsealed word represents, unverified.
    fn value_of<'a>(&'a self, word: u64, pins: &'a Pins<K>) -> Option<encoded::Item<'a>> {
        match Stored::decode(word) {
            Stored::Empty | Stored::Sealed(_) => None,
            Stored::Record(record) if self.values.are_words() => {
                Some(encoded::Item::Word(self.boxed(record, true).unwrap_or_default()))
            }
            Stored::Plain(word) | Stored::Record(word) => Some(self.values.read(word, &pins.epoch)),
        }
    }

    /// Reads a whole block; returns `None` if it has no readable item.
    fn piece(
        &self,
        block: u64,
        ranges: &[ChunkRange],
        is_leaf: bool,
        sink: &mut SalvageSink<'_, K>,
    ) -> Option<Piece<K>> {
        let guard = K::pin();
        let (mut keys, mut violations) = (Vec::new(), Vec::new());
        let mut at_home = 0;
        for at in 0..self.shape.slots {
            match self.item(block, at, ranges) {
                Ok(None) => {}
                Ok(Some(item)) => {
                    let key = self.keys.read(item.key, &guard);
                    at_home += usize::from(self.shape.home(K::hash(key)) == self.shape.line(at));
                    keys.push(key);
                }
                Err(error) => violations.extend(Some(error).filter(|_| is_leaf)),
            }
        }
        keys.sort_unstable();
        let twice = keys.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        if is_leaf && twice > 0 {
            sink.lost += twice;
            sink.find(format!("block {block:#x}"), "a key that stands there twice");
        }
        if !is_leaf && at_home * 2 <= keys.len() {
            return None;
        }
        let Some(median) = keys.get(keys.len() / 2) else {
            for violation in violations {
                sink.lost += 1;
                sink.find(format!("block {block:#x}"), violation.to_string());
            }
            return None;
        };
        Some(Piece { block, birth: self.birth_of(block), median: K::owned(*median), violations, range: None })
    }

    /// Passes on the items of a leaf, except those whose keys lie beyond the adjacent leaves; returns the
    /// range of those passed on.
    fn hand_over(
        &self,
        leaves: &[Piece<K>],
        at: usize,
        ranges: &[ChunkRange],
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<Option<(K::Owned, K::Owned)>> {
        let Piece { block, median, violations, .. } = &leaves[at];
        let left = leaves[..at].iter().rev().map(|other| &other.median).find(|other| *other != median);
        let right = leaves[at + 1..].iter().map(|other| &other.median).find(|other| *other != median);
        let limit =
            |median: Option<&K::Owned>| median.map_or(Bound::Unbounded, |key| Bound::Included(key.clone()));
        for violation in violations {
            sink.lost += 1;
            sink.find_in((limit(left), limit(right)), format!("block {block:#x}"), violation.to_string());
        }
        let pins = Pins::<K>::new();
        let mut range: Option<(K::Ref<'_>, K::Ref<'_>)> = None;
        for item in self.items_in(*block, ranges).flatten() {
            let key = self.keys.read(item.key, &pins.key);
            if self.is_between(key, left, right) {
                range = Some(range.map_or((key, key), |(low, high)| (low.min(key), high.max(key))));
                self.value_of(item.value, &pins).map(|value| sink.keep(key, value)).transpose()?;
            } else {
                sink.lost += 1;
                sink.find(format!("block {block:#x}"), "a key that does not belong there");
            }
        }
        Ok(range.map(|(low, high)| (K::owned(low), K::owned(high))))
    }

    fn is_between(&self, key: K::Ref<'_>, left: Option<&K::Owned>, right: Option<&K::Owned>) -> bool {
        let above = left.is_none_or(|left| K::shorten(key) >= K::shorten(K::borrow(left)));
        above && right.is_none_or(|right| K::shorten(key) <= K::shorten(K::borrow(right)))
    }

    /// Passes on the items of a doubtful block whose keys are outside the range of every leaf.
    fn hand_over_uncovered(
        &self,
        piece: &Piece<K>,
        leaves: &[Piece<K>],
        ranges: &[ChunkRange],
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<()> {
        let pins = Pins::<K>::new();
        let right_of = |key: K::Ref<'_>| {
            leaves.partition_point(|leaf| K::shorten(K::borrow(&leaf.median)) <= K::shorten(key))
        };
        let right = right_of(K::borrow(&piece.median));
        let medians = [right.checked_sub(1), Some(right)].map(|at| Some(&leaves.get(at?)?.median));
        let mut taken = 0_u64;
        for item in self.items_in(piece.block, ranges).flatten() {
            let key = self.keys.read(item.key, &pins.key);
            let at = right_of(key);
            let beside = [at.checked_sub(1), Some(at)].map(|at| leaves.get(at?)?.range.as_ref());
            let covered = beside.into_iter().flatten().any(|(low, high)| {
                K::shorten(K::borrow(low)) <= K::shorten(key)
                    && K::shorten(key) <= K::shorten(K::borrow(high))
            });
            if !covered && self.is_between(key, medians[0], medians[1]) {
                taken += 1;
                self.value_of(item.value, &pins).map(|value| sink.keep(key, value)).transpose()?;
            }
        }
        if taken > 0 {
            let what = format!("its header cannot be believed: {taken} items are taken as they stand");
            sink.find(format!("block {:#x}", piece.block), what);
        }
        Ok(())
    }
}
