//! The volatile part of a leaf: one or two cache lines of DRAM that answer most questions about it.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use bristlecone_pm::sync::{AtomicU64, Ordering::Relaxed};
use bristlecone_pm::{Manifest, ManifestReader, Memory, Result, omits};

use super::layout::{FINGERPRINT_WORDS, SUBNODES_MAX, Shape};
use crate::index::parts::arena::{Arena, Bits, Zeroed};
use crate::index::parts::locked::{self, Guarded};
use crate::index::parts::optimistic_lock::{OptimisticLock, Version};
use crate::index::parts::search::Level;
use crate::index::parts::slot::bits;
use crate::index::parts::{fingerprint, prefetch};

/// Low bits of the head's offset that hold the number of subnodes; offsets of subnodes leave them
/// free.
const COUNT_MASK: u64 = 0x3f;
/// Bytes of the header.
const HEADER_BYTES: usize = 48;
/// Subnodes whose offsets are in the header.
const SUBNODES_HERE: usize = 4;
/// Bytes behind the header for the offset of the fifth subnode, in trees whose leaves may have five.
const FIFTH_BYTES: usize = 16;

/// The header of a descriptor; fingerprints follow it in the arena, one byte for each bit of the
/// bitmap. All fields but the lock change only under the lock. Readers do not lock and validate the
/// version (a sequence lock), so relaxed accesses suffice.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Header {
    pub lock: OptimisticLock,
    /// Copy of the bitmap in the head subnode.
    bitmap: AtomicU64,
    /// Offsets of the subnodes; the head's has their number in its low bits.
    subnodes: [AtomicU64; SUBNODES_HERE],
}

// SAFETY: atomics only, for which zero is a value.
unsafe impl Zeroed for Header {}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// The leaves of a tree.
pub struct Leaves {
    arena: Arena<Header>,
    /// Bytes before the fingerprints.
    tags_at: usize,
    tag_words: usize,
    pub level: Level,
}

/// The descriptor of a leaf.
#[derive(Clone, Copy)]
pub struct Leaf<'a> {
    header: &'a Header,
    /// Fingerprints: of the head's slots only, if the others are delegated to the medium.
    tags: &'a [AtomicU64],
}

impl Leaves {
    pub fn new(shape: Shape, memory: &Memory) -> Result<Self> {
        Ok(Self::within(shape, Arena::new(Self::bytes_of(shape), memory)?))
    }

    /// Takes over the leaves of a closed tree.
    pub fn resume(shape: Shape, manifest: &mut ManifestReader<'_>) -> Option<Self> {
        Some(Self::within(shape, Arena::resume(Self::bytes_of(shape), manifest)?))
    }

    /// Takes over the leaves of a killed process.
    pub fn recover(shape: Shape, manifest: &mut ManifestReader<'_>) -> Option<Self> {
        Some(Self::within(shape, Arena::recover(Self::bytes_of(shape), manifest)?))
    }

    fn within(shape: Shape, arena: Arena<Header>) -> Self {
        let tag_words = Self::tag_bytes(shape) / 8;
        Self { arena, tags_at: Self::tags_at(shape), tag_words, level: Level::detect() }
    }

    /// Returns the number of descriptors ever allocated.
    pub fn begun(&self) -> u32 {
        self.arena.begun()
    }

    /// Frees all descriptors that are not in `used`.
    pub fn free_others(&self, used: &Bits) {
        self.arena.free_others(used);
    }

    /// Saves the leaves for the next open of the tree.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        self.arena.save(manifest)
    }

    fn bytes_of(shape: Shape) -> usize {
        Self::tags_at(shape) + Self::tag_bytes(shape)
    }

    fn tags_at(shape: Shape) -> usize {
        HEADER_BYTES + if shape.subnodes_max > SUBNODES_HERE { FIFTH_BYTES } else { 0 }
    }

    fn tag_bytes(shape: Shape) -> usize {
        (shape.tagged_subnodes() * shape.slots).next_multiple_of(8 * fingerprint::GROUP)
    }

    #[inline(always)]
    pub fn get(&self, id: u32) -> Leaf<'_> {
        let header = self.arena.get(id);
        // SAFETY: the arena keeps that many words there behind each header, and any bytes are values of
        // atomics.
        let tags = unsafe {
            let start = std::ptr::from_ref(header).cast::<u8>().add(self.tags_at);
            std::slice::from_raw_parts(start.cast(), self.tag_words)
        };
        Leaf { header, tags }
    }

    /// Prefetches the part of a descriptor that scans need: all but the fingerprints.
    #[inline(always)]
    pub fn prefetch(&self, id: u32) {
        let start = std::ptr::from_ref(self.arena.get(id)).cast::<u8>();
        prefetch(start);
        prefetch(start.wrapping_add(self.tags_at - 1));
    }

    /// Prefetches a descriptor, fingerprints included.
    #[inline(always)]
    pub fn prefetch_whole(&self, id: u32) {
        self.prefetch(id);
        let start = std::ptr::from_ref(self.arena.get(id)).cast::<u8>();
        prefetch(start.wrapping_add(self.tags_at + 8 * self.tag_words - 1));
    }

    pub fn alloc(&self) -> Result<u32> {
        self.arena.alloc()
    }

    pub fn alloc_fresh(&self, count: u32) -> Result<std::ops::Range<u32>> {
        self.arena.alloc_fresh(count)
    }

    pub fn free(&self, id: u32) {
        self.arena.free(id);
    }

    pub fn live(&self) -> usize {
        self.arena.live()
    }

    pub fn bytes(&self) -> u64 {
        self.arena.bytes()
    }
}

/// The subnodes of a leaf, and their taken slots.
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

    /// Returns the taken slots of the subnode at `at`, from bit 0.
    #[inline(always)]
    pub fn taken(&self, shape: Shape, at: usize) -> u64 {
        self.bitmap >> (at * shape.slots) & shape.head_bits()
    }

    /// Returns the free slots of the subnode at `at`, from bit 0.
    #[inline(always)]
    pub fn free(&self, shape: Shape, at: usize) -> u64 {
        !self.taken(shape, at) & shape.head_bits()
    }

    /// Returns the first free slot of the leaf, nearest to the head.
    pub fn first_free(&self, shape: Shape) -> Option<(usize, usize)> {
        let free = !self.bitmap & ((1 << (self.count * shape.slots)) - 1);
        let bit = free.trailing_zeros() as usize;
        (free != 0).then(|| shape.place(bit))
    }

    /// Returns every taken slot as (position of the subnode, slot).
    pub fn items(&self, shape: Shape) -> impl Iterator<Item = (usize, usize)> + use<> {
        bits(self.bitmap).map(move |bit| shape.place(bit))
    }
}

impl std::ops::Deref for Leaf<'_> {
    type Target = Header;

    fn deref(&self) -> &Header {
        self.header
    }
}

impl<'a> Leaf<'a> {
    /// Returns the current state of the leaf; garbage unless the version is validated or the lock
    /// held.
    #[inline(always)]
    pub fn view(self) -> View {
        let [head, second, third, fourth] =
            self.header.subnodes.each_ref().map(|subnode| subnode.load(Relaxed));
        let count = (head & COUNT_MASK) as usize;
        let fifth = if count > SUBNODES_HERE { self.offset(SUBNODES_HERE).load(Relaxed) } else { 0 };
        let subnodes = [head & !COUNT_MASK, second, third, fourth, fifth];
        View { subnodes, count, bitmap: self.bitmap() }
    }

    #[inline(always)]
    pub fn bitmap(self) -> u64 {
        self.header.bitmap.load(Relaxed)
    }

    /// Returns the number of subnodes.
    #[inline(always)]
    pub fn count(self) -> usize {
        (self.header.subnodes[0].load(Relaxed) & COUNT_MASK) as usize
    }

    /// Returns the offset of the subnode at a position.
    #[inline(always)]
    pub fn subnode(self, at: usize) -> u64 {
        self.offset(at).load(Relaxed) & !COUNT_MASK
    }

    /// Returns the word with the offset of the subnode at a position that the tree's leaves may have.
    #[inline(always)]
    fn offset(self, at: usize) -> &'a AtomicU64 {
        if let Some(cell) = self.header.subnodes.get(at) {
            return cell;
        }
        // SAFETY: the arena keeps at least two words behind each header. They are the room for the fifth offset if leaves
        // may have five subnodes.
        unsafe { &*std::ptr::from_ref(self.header).cast::<u8>().add(HEADER_BYTES).cast() }
    }

    /// Initializes the descriptor of a leaf that no other thread knows yet.
    pub fn begin(self, view: &View, tags: &Tags) {
        self.store_view(view);
        self.store_tags(tags);
    }

    /// Begins the locked descriptor of a new leaf, which has no items yet, before its subnodes are written: after a kill
    /// they are found here.
    pub fn announce(self, subnodes: &[u64; SUBNODES_MAX], count: usize) {
        if omits("sstree announce") {
            return self.header.lock.renew_locked();
        }
        // A kill interrupts a thread between two stores in program order. Until the lock is renewed, the descriptor has
        // left its tree.
        self.store_view(&View { subnodes: *subnodes, count, bitmap: 0 });
        compiler_fence(SeqCst);
        self.header.lock.renew_locked();
        compiler_fence(SeqCst);
    }

    /// Names the subnode that is about to become the head, at a position that the leaf does not use.
    pub fn announce_head(self, count: usize, subnode: u64) {
        if !omits("sstree announce head") {
            self.offset(count).store(subnode, Relaxed);
        }
        compiler_fence(SeqCst);
    }

    /// Returns the subnode that was about to become the head when the process was killed, if it is one of this leaf.
    pub fn announced_head(self, shape: Shape) -> Option<u64> {
        let count = self.count();
        (count < shape.subnodes_max).then(|| self.offset(count).load(Relaxed))
    }

    /// Applies the loss of subnodes of a recovered leaf, which no other thread knows yet.
    pub fn shrink(self, view: &View) {
        debug_assert!(view.bitmap & !self.bitmap() == 0, "a leaf that shrinks gains no item");
        self.store_view(view);
    }

    fn store_view(self, view: &View) {
        debug_assert!((1..=SUBNODES_MAX).contains(&view.count), "{view:?}");
        // The word with the number is never without it: after a kill it tells whether the descriptor was ever used.
        for (cell, &subnode) in self.header.subnodes.iter().zip(&view.subnodes).skip(1) {
            cell.store(subnode, Relaxed);
        }
        if view.count > SUBNODES_HERE {
            self.offset(SUBNODES_HERE).store(view.subnodes[SUBNODES_HERE], Relaxed);
        }
        self.header.subnodes[0].store(view.subnodes[0] | view.count as u64, Relaxed);
        self.header.bitmap.store(view.bitmap, Relaxed);
    }

    fn store_tags(self, tags: &Tags) {
        for (word, bytes) in self.tags.iter().zip(tags.0.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Relaxed);
        }
    }

    /// Returns the slots whose fingerprint is `tag`, taken or not: as bits of the leaf's bitmap.
    #[inline(always)]
    pub fn probe(self, level: Level, tag: u8) -> u64 {
        fingerprint::probe_cells(level, self.tags, tag)
    }

    /// Returns all fingerprints stored here.
    pub fn tags(self) -> Tags {
        let mut tags = Tags::default();
        for (bytes, word) in tags.0.chunks_exact_mut(8).zip(self.tags) {
            bytes.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
        tags
    }

    /// Locks the leaf if it is unchanged since `version`.
    #[inline(always)]
    pub fn lock_at(self, version: Version) -> Option<Locked<'a>> {
        Locked::at(self, version)
    }
}

/// The fingerprints of a leaf, one byte for each bit of its bitmap.
#[derive(Clone, Copy)]
pub struct Tags([u8; 64]);

impl Default for Tags {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Tags {
    pub fn set(&mut self, bit: usize, tag: u8) {
        self.0[bit] = tag;
    }

    /// Returns the fingerprints after the leaf got a new head with one item.
    pub fn expanded(mut self, shape: Shape, tag: u8) -> Self {
        self.0.copy_within(..64 - shape.slots, shape.slots);
        self.0[0] = tag;
        self
    }

    /// Returns the fingerprints of one subnode, as its predecessor stores them on the medium.
    pub fn of_subnode(&self, shape: Shape, at: usize) -> [u64; FINGERPRINT_WORDS] {
        let mut bytes = [0; 8 * FINGERPRINT_WORDS];
        bytes[..shape.slots].copy_from_slice(&self.0[at * shape.slots..][..shape.slots]);
        let (words, _) = bytes.as_chunks();
        std::array::from_fn(|at| u64::from_le_bytes(words[at]))
    }
}

/// A leaf locked by its only writer.
pub type Locked<'a> = locked::Locked<Leaf<'a>>;

/// State that changes only under the lock.
impl Locked<'_> {
    /// Stores a view.
    pub fn set_view(&self, view: &View) {
        self.store_view(view);
    }

    /// Replaces the bitmap.
    pub fn set_bitmap(&self, bitmap: u64) {
        self.header.bitmap.store(bitmap, Relaxed);
    }

    /// Replaces all fingerprints stored here.
    pub fn set_tags(&self, tags: &Tags) {
        self.store_tags(tags);
    }

    /// Sets the fingerprint of the slot at a bit of the bitmap.
    pub fn set_tag(&self, bit: usize, tag: u8) {
        let (word, shift) = (&self.tags[bit / 8], bit % 8 * 8);
        word.store(word.load(Relaxed) & !(0xff << shift) | u64::from(tag) << shift, Relaxed);
    }
}

impl Guarded for Leaf<'_> {
    #[inline(always)]
    fn lock(&self) -> &OptimisticLock {
        &self.header.lock
    }

    #[inline(always)]
    fn unlock_above(&self, _: u64) {
        self.header.lock.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_survives_the_descriptor() {
        let leaves = Leaves::new(Shape::new(256, 3, true), &Memory::private()).unwrap();
        let leaf = leaves.get(leaves.alloc().unwrap());
        let view = View { subnodes: [256, 512, 1 << 40, 0, 0], count: 3, bitmap: 0b1011 };
        leaf.begin(&view, &Tags::default());
        let back = leaf.view();
        assert_eq!((back.subnodes, back.count, back.bitmap), (view.subnodes, 3, 0b1011));
    }

    #[test]
    fn the_fifth_subnode_is_behind_the_header_and_apart_from_fingerprints() {
        let shape = Shape::new(192, 5, true);
        let leaves = Leaves::new(shape, &Memory::private()).unwrap();
        let leaf = leaves.get(leaves.alloc().unwrap());
        let mut tags = Tags::default();
        (0..50).for_each(|bit| tags.set(bit, 0xff));
        let view = View { subnodes: [256, 512, 768, 1024, 1 << 40], count: 5, bitmap: (1 << 50) - 1 };
        leaf.begin(&view, &tags);
        assert_eq!((leaf.view().subnodes, leaf.view().count), (view.subnodes, 5));
        assert_eq!(
            (leaf.subnode(0), leaf.subnode(4), leaf.probe(leaves.level, 0xff)),
            (256, 1 << 40, view.bitmap)
        );
        leaf.shrink(&View { count: 4, bitmap: 1, ..view });
        assert_eq!((leaf.view().subnodes[4], leaf.announced_head(shape)), (0, Some(1 << 40)));
        leaf.announce_head(4, 1280);
        assert_eq!((leaf.announced_head(shape), leaf.tags().0[49]), (Some(1280), 0xff));
    }

    #[test]
    fn only_leaves_of_five_subnodes_have_larger_descriptors() {
        let bytes = |bytes, subnodes, resident| Leaves::bytes_of(Shape::new(bytes, subnodes, resident));
        assert_eq!([bytes(256, 3, true), bytes(256, 4, true), bytes(256, 4, false)], [96, 112, 64]);
        assert_eq!([bytes(192, 4, true), bytes(192, 5, true), bytes(128, 5, true)], [96, 128, 96]);
    }

    #[test]
    fn fingerprints_move_with_their_subnodes() {
        for (bytes, resident) in [(128, true), (192, true), (256, true), (128, false), (256, false)] {
            let shape = Shape::new(bytes, if bytes == 256 { 4 } else { 5 }, resident);
            let leaves = Leaves::new(shape, &Memory::private()).unwrap();
            let (_, leaf) = (leaves.alloc().unwrap(), leaves.get(leaves.alloc().unwrap()));
            let leaf = leaf.lock_at(leaf.lock.read().unwrap()).unwrap();
            let tagged = shape.slots * shape.tagged_subnodes();
            (0..tagged).for_each(|bit| leaf.set_tag(bit, bit as u8 + 1));
            (0..tagged).for_each(|bit| assert_eq!(leaf.probe(leaves.level, bit as u8 + 1), 1 << bit));
            let head = leaf.tags().of_subnode(shape, 0);
            (0..shape.slots)
                .for_each(|slot| assert_eq!(head[slot / 8].to_le_bytes()[slot % 8], slot as u8 + 1));
            leaf.set_tags(&leaf.tags().expanded(shape, 0xee));
            assert_eq!(leaf.probe(leaves.level, 0xee), 1);
            let moved = |bit: usize| (bit - shape.slots) as u8 + 1;
            (shape.slots..tagged)
                .for_each(|bit| assert_eq!(leaf.probe(leaves.level, moved(bit)) & 1 << bit, 1 << bit));
        }
    }

    #[test]
    fn first_free_is_nearest_to_the_head() {
        let shape = Shape::new(128, 3, true);
        let mut view = View { subnodes: [0; 5], count: 2, bitmap: 0b111111 };
        assert_eq!(view.first_free(shape), Some((1, 0)));
        view.bitmap = 0b011111_111111;
        assert_eq!(view.first_free(shape), Some((1, 5)));
        view.bitmap = 0b111111_111111;
        assert_eq!(view.first_free(shape), None);
    }
}
