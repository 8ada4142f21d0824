//! The volatile half of a leaf: one line of DRAM that answers most questions about it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::layout::{FINGERPRINT_WORDS, SUBNODES_MAX, Shape};
use crate::shared::arena::Zeroed;
use crate::shared::fingerprint;
use crate::shared::version_lock::{Version, VersionLock};

/// Low bits of `Leaf::head` that count the subnodes; offsets of subnodes leave them free.
const COUNT_MASK: u64 = 0x3f;

/// Descriptor of a leaf. Everything but the lock changes only under the lock; readers look
/// without it and validate the version (a sequence lock), hence relaxed accesses.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Leaf {
    pub lock: VersionLock,
    /// Offset of the head subnode, with the number of subnodes in its low bits.
    head: AtomicU64,
    /// Copy of the bitmap that stands in the head subnode.
    bitmap: AtomicU64,
    /// Fingerprints of the head's slots; those of the others are delegated to the medium.
    fingerprints: [AtomicU64; FINGERPRINT_WORDS],
    /// Offsets of the subnodes behind the head, so that their lines are fetched side by side.
    overflow: [AtomicU64; SUBNODES_MAX - 1],
}

// SAFETY: atomics only, for which zero is a value.
unsafe impl Zeroed for Leaf {}

const _: () = assert!(size_of::<Leaf>() == 64);

/// Where a leaf's subnodes are and which of their slots are taken.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub subnodes: [u64; SUBNODES_MAX],
    pub count: usize,
    pub bitmap: u64,
}

impl View {
    pub fn tail(&self) -> u64 {
        self.subnodes[self.count - 1]
    }

    /// Taken slots of the subnode at `at`, from bit 0.
    #[inline(always)]
    pub fn taken(&self, shape: Shape, at: usize) -> u64 {
        self.bitmap >> (at * shape.slots) & shape.head_bits()
    }

    /// Free slots of the subnode at `at`, from bit 0.
    #[inline(always)]
    pub fn free(&self, shape: Shape, at: usize) -> u64 {
        !self.taken(shape, at) & shape.head_bits()
    }

    /// The first free slot of the leaf, nearest to the head.
    pub fn first_free(&self, shape: Shape) -> Option<(usize, usize)> {
        let free = !self.bitmap & ((1 << (self.count * shape.slots)) - 1);
        let bit = free.trailing_zeros() as usize;
        (free != 0).then(|| (bit / shape.slots, bit % shape.slots))
    }

    /// Every taken slot as (position of the subnode, slot).
    pub fn items(&self, shape: Shape) -> impl Iterator<Item = (usize, usize)> + use<> {
        bits(self.bitmap).map(move |bit| (bit / shape.slots, bit % shape.slots))
    }
}

/// The set bits of `word`, lowest first.
pub fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}

impl Leaf {
    /// The leaf as it stands; garbage unless the version is validated or the lock held.
    #[inline(always)]
    pub fn view(&self) -> View {
        let head = self.head.load(Relaxed);
        let count = (head & COUNT_MASK) as usize;
        let mut subnodes = [head & !COUNT_MASK; SUBNODES_MAX];
        for (subnode, overflow) in subnodes[1..].iter_mut().zip(&self.overflow) {
            *subnode = overflow.load(Relaxed);
        }
        View { subnodes, count, bitmap: self.bitmap.load(Relaxed) }
    }

    /// Takes over a view. The caller holds the lock, or is the only one who knows the leaf.
    pub fn set_view(&self, view: &View) {
        self.head.store(view.subnodes[0] | view.count as u64, Relaxed);
        for (overflow, &subnode) in self.overflow.iter().zip(&view.subnodes[1..]) {
            overflow.store(subnode, Relaxed);
        }
        self.bitmap.store(view.bitmap, Relaxed);
    }

    pub fn set_bitmap(&self, bitmap: u64) {
        self.bitmap.store(bitmap, Relaxed);
    }

    /// Slots of the head whose fingerprint is `tag`, taken or not.
    #[inline(always)]
    pub fn probe(&self, tag: u8) -> u64 {
        fingerprint::probe(self.fingerprints(), tag)
    }

    pub fn fingerprints(&self) -> [u64; FINGERPRINT_WORDS] {
        std::array::from_fn(|i| self.fingerprints[i].load(Relaxed))
    }

    pub fn set_fingerprints(&self, words: [u64; FINGERPRINT_WORDS]) {
        for (cell, word) in self.fingerprints.iter().zip(words) {
            cell.store(word, Relaxed);
        }
    }

    /// Sets the fingerprint of one slot of the head.
    pub fn set_fingerprint(&self, slot: usize, tag: u8) {
        let mut words = self.fingerprints();
        put_byte(&mut words, slot, tag);
        self.set_fingerprints(words);
    }

    /// Locks the leaf if it is still the one that was read at `version`.
    #[inline(always)]
    pub fn lock_at(&self, version: Version) -> Option<Locked<'_>> {
        // Lazily: a guard that is made is a guard that unlocks.
        self.lock.upgrade(version).then(|| Locked { leaf: self, obsolete: false })
    }
}

/// Sets byte `index` of a little-endian group of words.
pub fn put_byte(words: &mut [u64; FINGERPRINT_WORDS], index: usize, byte: u8) {
    let shift = index % 8 * 8;
    words[index / 8] = words[index / 8] & !(0xff << shift) | u64::from(byte) << shift;
}

/// A leaf held by the only writer it may have; given back when dropped, also on errors.
pub struct Locked<'a> {
    leaf: &'a Leaf,
    obsolete: bool,
}

impl Locked<'_> {
    /// The leaf has left the tree: whoever comes to it later starts again from the root.
    pub fn retire(mut self) {
        self.obsolete = true;
    }
}

impl std::ops::Deref for Locked<'_> {
    type Target = Leaf;

    fn deref(&self) -> &Leaf {
        self.leaf
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.obsolete {
            self.leaf.lock.unlock_obsolete();
        } else {
            self.leaf.lock.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_survives_the_descriptor() {
        let leaf = Leaf::default();
        let view = View { subnodes: [256, 512, 1 << 40, 0], count: 3, bitmap: 0b1011 };
        leaf.set_view(&view);
        let back = leaf.view();
        assert_eq!((back.subnodes, back.count, back.bitmap), (view.subnodes, 3, 0b1011));
    }

    #[test]
    fn first_free_is_nearest_to_the_head() {
        let shape = Shape::new(128, 3);
        let mut view = View { subnodes: [0; 4], count: 2, bitmap: 0b111111 };
        assert_eq!(view.first_free(shape), Some((1, 0)));
        view.bitmap = 0b011111_111111;
        assert_eq!(view.first_free(shape), Some((1, 5)));
        view.bitmap = 0b111111_111111;
        assert_eq!(view.first_free(shape), None);
    }
}
