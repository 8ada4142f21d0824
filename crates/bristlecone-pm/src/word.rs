//! The cells of persistent structures. Every access names the medium, so an access that bypasses it does not
//! compile.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::medium::copy;
use crate::medium::{Flushed, Medium, Step, Witness};

/// A type that may be laid over persistent bytes.
///
/// # Safety
///
/// The type must be `repr(C)` or `repr(transparent)`, consist of [`Word`]s only, and have no padding, and every bit
/// pattern must be a valid value.
pub unsafe trait Persistent: Sized {}

/// Eight aligned bytes: the only unit that is written to the medium atomically.
#[repr(transparent)]
#[derive(Debug)]
pub struct Word(AtomicU64);

const _: () = assert!(size_of::<Word>() == 8 && align_of::<Word>() == 8);

// SAFETY: a transparent atomic integer; any eight bytes are a value.
unsafe impl Persistent for Word {}

impl Word {
    /// Loads the value; pairs with [`publish`](Self::publish).
    #[inline(always)]
    pub fn load<M: Medium>(&self, medium: &M) -> u64 {
        medium.load(&self.0, Ordering::Acquire)
    }

    /// Stores without ordering: for data that a later publish makes reachable.
    #[inline(always)]
    #[track_caller]
    pub fn store<M: Medium>(&self, medium: &M, value: u64) {
        medium.store(&self.0, value, Ordering::Relaxed);
    }

    /// Stores data that recovery derives from other words, or repairs: a crash may undo the store. No flush is
    /// needed.
    #[inline(always)]
    #[track_caller]
    pub fn store_derived<M: Medium>(&self, medium: &M, value: u64) {
        medium.store_derived(&self.0, value);
    }

    /// Begins to make durable that the medium extends up to this word.
    pub(crate) fn extend<M: Medium>(&self, medium: &M) -> Flushed {
        medium.extended(&self.0);
        Flushed::none()
    }

    /// Stores the word that makes other data reachable; the witness proves that this is allowed.
    #[inline(always)]
    #[track_caller]
    pub fn publish<M: Medium>(&self, medium: &M, value: u64, _proof: &impl Witness, step: Step) {
        medium.publish(&self.0, value, step);
    }

    /// Replaces `current` by `new` if it is stored there; the witness proves that this is allowed.
    ///
    /// # Errors
    ///
    /// The stored value, if it differs.
    #[inline(always)]
    #[track_caller]
    pub fn publish_if<M: Medium>(
        &self,
        medium: &M,
        current: u64,
        new: u64,
        _proof: &impl Witness,
    ) -> Result<u64, u64> {
        medium.compare_exchange(&self.0, current, new)
    }
}

/// A fixed group of bytes, consisting of words.
#[repr(transparent)]
#[derive(Debug)]
pub struct Group<const WORDS: usize>([Word; WORDS]);

// SAFETY: a transparent array of words.
unsafe impl<const WORDS: usize> Persistent for Group<WORDS> {}

impl<const WORDS: usize> Group<WORDS> {
    /// Loads the words of the group; byte `i` is byte `i % 8` (little-endian) of word `i / 8`.
    #[inline(always)]
    pub fn load<M: Medium>(&self, medium: &M) -> [u64; WORDS] {
        std::array::from_fn(|i| self.0[i].load(medium))
    }

    /// Stores every word.
    #[inline(always)]
    #[track_caller]
    pub fn store<M: Medium>(&self, medium: &M, words: [u64; WORDS]) {
        for (cell, word) in self.0.iter().zip(words) {
            cell.store(medium, word);
        }
    }

    /// Stores every word as [`Word::store_derived`] does.
    #[inline(always)]
    #[track_caller]
    pub fn store_derived<M: Medium>(&self, medium: &M, words: [u64; WORDS]) {
        for (cell, word) in self.0.iter().zip(words) {
            cell.store_derived(medium, word);
        }
    }

    /// Stores every word, none before what the witness covers.
    #[inline(always)]
    #[track_caller]
    pub fn publish<M: Medium>(&self, medium: &M, words: [u64; WORDS], proof: &impl Witness, step: Step) {
        for (cell, word) in self.0.iter().zip(words) {
            cell.publish(medium, word, proof, step);
        }
    }

    /// Stores one byte that recovery derives, like [`Word::store_derived`]. The caller must be the only writer of
    /// the group.
    #[inline(always)]
    #[track_caller]
    pub fn store_byte<M: Medium>(&self, medium: &M, index: usize, byte: u8) {
        let cell = &self.0[index / 8];
        let shift = index % 8 * 8;
        let word = cell.load(medium) & !(0xff << shift) | u64::from(byte) << shift;
        cell.store_derived(medium, word);
    }
}

/// Copies words out, each like [`Word::load`], in any order.
///
/// # Panics
///
/// If `to` and `from` differ in length.
#[inline(always)]
pub fn read_words<M: Medium>(medium: &M, from: &[Word], to: &mut [MaybeUninit<u64>]) {
    assert!(from.len() == to.len(), "a copy of another length");
    medium.about_to_read(from.as_ptr().cast(), size_of_val(from));
    // SAFETY: both are valid for this many words, and no other thread has `to`.
    unsafe { copy::words(from.as_ptr().cast(), to.as_mut_ptr().cast(), from.len()) };
}

/// Copies words to the medium, each like [`Word::store`], in any order.
///
/// # Panics
///
/// If `from` and `to` differ in length.
#[inline(always)]
#[track_caller]
pub fn write_words<M: Medium>(medium: &M, to: &[Word], from: &[u64]) {
    // SAFETY: a word consists of one atomic integer.
    let cells = unsafe { std::slice::from_raw_parts(to.as_ptr().cast::<AtomicU64>(), to.len()) };
    medium.store_words(cells, from);
}

/// Loads an array of words: see [`read_words`].
pub(crate) fn load_words<M: Medium, const N: usize>(medium: &M, from: &[Word; N]) -> [u64; N] {
    let mut to = [MaybeUninit::uninit(); N];
    read_words(medium, from, &mut to);
    // SAFETY: every one of them was written.
    to.map(|word| unsafe { word.assume_init() })
}

/// Returns words as the bytes of the medium.
pub(crate) fn le_bytes<const WORDS: usize, const BYTES: usize>(words: &[u64; WORDS]) -> [u8; BYTES] {
    const { assert!(BYTES <= WORDS * 8) };
    let mut bytes = [0; BYTES];
    for (piece, word) in bytes.chunks_mut(8).zip(words) {
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
    bytes
}

/// Copies bytes into words, the last one padded with zeros. The copy is not atomic: publish a reference to it only
/// once it is durable.
///
/// # Panics
///
/// If `to` is shorter than `bytes`.
#[track_caller]
pub fn write_bytes<M: Medium>(medium: &M, to: &[Word], bytes: &[u8]) {
    assert!(to.len() >= bytes.len().div_ceil(8), "a copy beyond its slot");
    let (words, rest) = bytes.as_chunks();
    for (cell, word) in to.iter().zip(words) {
        cell.store(medium, u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        to[words.len()].store(medium, u64::from_le_bytes(word));
    }
}

/// Appends `len` bytes from `from` to `to`.
///
/// # Panics
///
/// If `from` is shorter than `len` bytes.
pub fn read_bytes<M: Medium>(medium: &M, from: &[Word], len: usize, to: &mut Vec<u8>) {
    assert!(from.len() >= len.div_ceil(8), "a read beyond its slot");
    to.reserve(len);
    let mut left = len;
    for cell in from {
        if left == 0 {
            break;
        }
        let take = left.min(8);
        to.extend_from_slice(&cell.load(medium).to_le_bytes()[..take]);
        left -= take;
    }
}
