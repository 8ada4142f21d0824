//! Commits that are left in part, for tests of what the next opening does.

use std::ops::{Bound, RangeInclusive};

use bristlecone_pm::Result;

use super::record::{self, KeyRange};
use crate::index::any::CommitOutcome;
use crate::index::parts::encoded::Encoded;
use crate::{Pool, Tree};

/// Commits values of keys without applying them, to simulate a batch whose writes fail halfway and cannot be
/// rolled back.
///
/// # Errors
///
/// [`Error::DurabilityLost`](crate::Error) on success; another error if the log has no space.
pub fn leave_in_part(pool: &Pool, changes: &[(&Tree<u64, u64>, u64, u64)]) -> Result<()> {
    let mut wanted = record::begin(0, changes.len());
    for (tree, key, value) in changes {
        record::append(&mut wanted, tree.link.id, &Encoded::Word(*key), Some(&Encoded::Word(*value)));
    }
    pool.0.file.commit(&wanted, 0, &mut || CommitOutcome::Partial)
}

/// Commits the removal of a range, and removes only its first `removed` keys, which must be dense.
///
/// # Errors
///
/// Same as [`leave_in_part`].
pub fn leave_range_in_part(
    pool: &Pool,
    tree: &Tree<u64, u64>,
    range: RangeInclusive<u64>,
    removed: u64,
) -> Result<()> {
    let (first, last) = (Encoded::Word(*range.start()), Encoded::Word(*range.end()));
    let end = Encoded::Word(range.start() + removed);
    let wanted = record::removal(&KeyRange { tree: tree.link.id, first: first.clone(), last });
    let (mut refused, tree) = (Ok(0), tree.any());
    let left = pool.0.file.commit(&wanted, 0, &mut || {
        refused = tree.remove_range((Bound::Included(&first), Bound::Excluded(&end)), None);
        CommitOutcome::Partial
    });
    refused.and(left)
}
