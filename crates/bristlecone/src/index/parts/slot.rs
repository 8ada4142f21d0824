//! A slot of a leaf, and bitmaps of slots.

use bristlecone_pm::{LINE_BYTES, Persistent, Word};

/// One item.
#[repr(C)]
pub struct Slot {
    pub key: Word,
    pub value: Word,
}

// SAFETY: repr(C), words only, no padding (size asserted below).
unsafe impl Persistent for Slot {}

pub const SLOT_BYTES: usize = 16;

const _: () = {
    assert!(size_of::<Slot>() == SLOT_BYTES);
    assert!(std::mem::offset_of!(Slot, value) == 8);
    // Aligned to its size, a slot never straddles two lines.
    assert!(LINE_BYTES.is_multiple_of(SLOT_BYTES));
};

/// Returns the set bits of `word`, lowest first.
#[inline(always)]
pub fn bits(word: impl Into<u64>) -> impl Iterator<Item = usize> {
    let mut word = word.into();
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}
