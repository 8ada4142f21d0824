//! The interface of a leaf to design-independent code.

use bristlecone_pm::{Medium, Persistent, SlotKind, Step, Word};

/// The contents of a leaf's bitmap word and link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The taken slots.
    pub bitmap: u64,
    /// Offset of the next leaf; 0 for none.
    pub next: u64,
}

/// The header at the beginning of a leaf.
pub trait LeafLayout: Persistent + Sync + 'static {
    /// The slot kind of leaves in the pool.
    const KIND: SlotKind;
    /// The step names of write 1, for keys and for values.
    const RECORD_STEPS: [Step; 2];
    /// The fingerprints of all slots, one byte each.
    type Tags: AsMut<[u64]> + AsRef<[u64]> + Copy + Eq;

    /// Returns the size of a leaf with this number of slots, in whole lines.
    fn bytes(slots: usize) -> usize;

    /// Returns the offset of a slot of the leaf at `leaf`.
    fn slot_offset(leaf: u64, slot: usize) -> u64;

    /// Returns the taken slots, and the offset of the next leaf.
    fn link<M: Medium>(&self, medium: &M) -> Link;

    /// Returns the word of the stamp: log entries up to this sequence are merged into the leaf.
    fn stamp(&self) -> &Word;

    /// Returns the key word of the low fence. The first leaf of a tree has none, and its word is
    /// ignored.
    fn fence(&self) -> &Word;

    /// Returns the fingerprints.
    fn tags<M: Medium>(&self, medium: &M) -> Self::Tags;

    /// Stores the fingerprints that recovery derived from keys.
    fn derive_tags<M: Medium>(&self, medium: &M, tags: Self::Tags);
}

/// Returns the fingerprint of a slot.
#[inline(always)]
pub fn tag_of(tags: &[u64], slot: usize) -> u8 {
    (tags[slot / 8] >> (slot % 8 * 8)) as u8
}

/// Replaces the fingerprint of a slot.
pub fn set_tag(tags: &mut [u64], slot: usize, tag: u8) {
    let shift = slot % 8 * 8;
    tags[slot / 8] = tags[slot / 8] & !(0xff << shift) | u64::from(tag) << shift;
}
