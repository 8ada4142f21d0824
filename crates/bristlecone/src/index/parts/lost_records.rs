//! Records that a killed process left behind: see [`Census`].

use std::sync::Arc;

use bristlecone_pm::sync::epoch;
use bristlecone_pm::sync::{AtomicBool, Ordering::Relaxed};
use bristlecone_pm::{Census, Medium, Records};

/// Number of items up to which a tree looks for such records when it is taken over, in some milliseconds. Until it does,
/// each size of records takes a chunk of its own, which would be much beside a small tree.
pub const FEW_ITEMS: u64 = 1 << 16;

/// Returns whether a tree that was taken over from a killed process may have such records.
pub fn may_exist<M: Medium>(records: [&Records<M>; 2]) -> bool {
    records.iter().any(|records| records.needs_census())
}

/// Frees the keys and values that are not in use, if any is unknown. `note_all` notes those that are: of keys, and of
/// values. Returns `false` if a pinned thread prevents this; a later call repeats it. The caller must not be pinned.
pub fn free<M: Medium>(
    [keys, values]: [&Records<M>; 2],
    note_all: impl FnOnce(&mut Census, &mut Census),
) -> bool {
    let mut found = (keys.begin_census(), values.begin_census());
    if found.0.is_none() && found.1.is_none() {
        return true;
    }
    let (of_keys, of_values) = (found.0.get_or_insert_default(), found.1.get_or_insert_default());
    note_all(of_keys, of_values);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    epoch::pin().defer(move || over.store(true, Relaxed));
    let is_settled = epoch::settle(|| is_over.load(Relaxed));
    if is_settled {
        keys.end_census(of_keys);
        values.end_census(of_values);
    }
    is_settled
}
