//! The slot sizes of records.

use super::{HEADER_BYTES, VALUE_BYTES_MAX};

/// Slot sizes: two to an octave, from 16 B to beyond the longest record.
pub const CLASSES: [u32; 28] = [
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    192,
    256,
    384,
    512,
    768,
    1 << 10,
    1536,
    2 << 10,
    3 << 10,
    4 << 10,
    6 << 10,
    8 << 10,
    12 << 10,
    16 << 10,
    24 << 10,
    32 << 10,
    48 << 10,
    64 << 10,
    96 << 10,
    128 << 10,
    192 << 10,
];

/// The longest record has a class, with a word of its owner, too.
const _: () = assert!(CLASSES[CLASSES.len() - 1] as usize >= VALUE_BYTES_MAX + 2 * HEADER_BYTES);

/// Returns whether records are stored in slots of this size.
pub fn is_record_class(slot_bytes: u32) -> bool {
    CLASSES.contains(&slot_bytes)
}

/// Returns the smallest class that holds a record of `len` bytes.
pub fn class_of(len: usize) -> usize {
    CLASSES.partition_point(|&bytes| (bytes as usize) < len + HEADER_BYTES)
}

/// Returns the maximum record size in bytes in a pool with this chunk size. The record's slot is smaller than a chunk, so
/// that a slot with a word for the owner fits, too.
pub fn record_bytes_max(chunk_bytes: u64) -> usize {
    let below = CLASSES.partition_point(|&bytes| u64::from(bytes) < chunk_bytes);
    below.checked_sub(1).map_or(0, |class| (CLASSES[class] as usize - HEADER_BYTES).min(VALUE_BYTES_MAX))
}

/// Returns the lengths of the shortest and of the longest record that belongs in a class, if each record has
/// `owner_bytes` behind its bytes.
pub fn lens_of(class: usize, owner_bytes: usize) -> (u32, u32) {
    let other_bytes = (HEADER_BYTES + owner_bytes) as u32;
    let least = class.checked_sub(1).map_or(0, |below| (CLASSES[below] + 1).saturating_sub(other_bytes));
    (least, (CLASSES[class] - other_bytes).min(VALUE_BYTES_MAX as u32))
}

/// Returns the largest slot size of a record of `len` bytes: that of an owned record.
///
/// # Panics
///
/// If `len` exceeds the longest record.
pub fn record_slot_bytes(len: usize) -> u64 {
    CLASSES[class_of(len + HEADER_BYTES)].into()
}
