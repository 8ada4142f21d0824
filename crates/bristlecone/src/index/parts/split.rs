//! The point at which a full leaf is split.

/// Returns the number of the least items that stay in a full leaf of `len` items when it is split for a new key, of
/// which `below` are less than the key. The others move to the new leaf.
///
/// For a key above all items nothing moves, and for a key below all items only the least one stays. So ascending and
/// descending loads leave full leaves behind.
pub fn kept(len: usize, below: usize) -> usize {
    match below {
        0 => 1,
        _ if below == len => len,
        _ => len.div_ceil(2),
    }
}
