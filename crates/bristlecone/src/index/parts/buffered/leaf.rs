//! What a leaf is to all that is not its design's own.

use bristlecone_pm::{Medium, Persistent, SlotKind, Word};

/// What the word of a leaf, and its link, say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Which slots are taken.
    pub bitmap: u64,
    /// Offset of the next leaf; 0 for none.
    pub next: u64,
}

/// The head of a leaf, which stands where the leaf begins.
pub trait LeafLayout: Persistent + Sync + 'static {
    /// What the pool knows leaves as.
    const KIND: SlotKind;
    /// The fingerprints of all slots, a byte each.
    type Tags: AsMut<[u64]> + AsRef<[u64]> + Copy + Eq;

    /// Returns how many bytes a leaf of so many slots has: whole lines.
    fn bytes(slots: usize) -> usize;

    /// Returns the offset of a slot of the leaf at `leaf`.
    fn slot_offset(leaf: u64, slot: usize) -> u64;

    /// Returns which slots are taken, and where the next leaf is.
    fn link<M: Medium>(&self, medium: &M) -> Link;

    /// Returns the word of the stamp: log entries up to this sequence have reached the leaf.
    fn stamp(&self) -> &Word;

    /// Returns the key word of the low fence. The first leaf of a tree has none, whatever the word says.
    fn fence(&self) -> &Word;

    /// Returns the fingerprints.
    fn tags<M: Medium>(&self, medium: &M) -> Self::Tags;

    /// Stores the fingerprints, as recovery derives them from keys.
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
