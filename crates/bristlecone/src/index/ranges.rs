//! All items of a range, leaf by leaf.

use std::ops::Bound;

use bristlecone_pm::Result;
use smallvec::SmallVec;

use super::{Batch, Index};
use crate::index::parts::codec::{Codec, GROUP};

/// Bounds of keys.
pub type Bounds<'a, K> = (Bound<<K as Codec>::Ref<'a>>, Bound<<K as Codec>::Ref<'a>>);

/// Receives the items of a leaf, ascending.
pub type VisitLeaf<'a, K, V> = dyn FnMut(&[(<K as Codec>::Owned, <V as Codec>::Owned)]) -> Result<()> + 'a;

/// Calls `visit` with the items of each leaf within bounds, ascending; it may remove them. If `lenient`, it includes
/// items that damage may affect.
///
/// # Errors
///
/// Errors of `visit`; [`Error::Corrupted`](crate::Error) for damage, if `lenient` only where it makes the following
/// items unreachable.
pub fn for_each_leaf<K: Codec, V: Codec>(
    tree: &dyn Index<K, V>,
    (from, to): Bounds<'_, K>,
    lenient: bool,
    visit: &mut VisitLeaf<'_, K, V>,
) -> Result<()> {
    let mut batch = Batch::<K, V> { lenient, ..Batch::default() };
    let to = to.map(K::owned);
    let mut from = from.map(K::owned);
    loop {
        let bounds = (from.as_ref().map(K::borrow), to.as_ref().map(K::borrow));
        if is_empty(&bounds.0, &bounds.1) || !tree.scan_forward(bounds, &mut batch) {
            return batch.damage.take().map_or(Ok(()), Err);
        }
        batch.entries.reverse();
        visit(&batch.entries)?;
        let last = batch.entries.pop();
        batch.entries.clear();
        if let Some((key, _)) = last {
            from = Bound::Excluded(key);
        }
    }
}

/// Removes the items within bounds, also damaged ones, and calls `tell` with each; returns their number. Each removal is
/// atomic, but not the call: other threads must not write to the range.
///
/// # Errors
///
/// As for [`for_each_leaf`], and errors of removals. The items before were removed.
pub fn remove_range<K: Codec, V: Codec>(
    tree: &dyn Index<K, V>,
    bounds: Bounds<'_, K>,
    tell: &mut dyn FnMut(&K::Owned, V::Owned),
) -> Result<u64> {
    let mut count = 0;
    for_each_leaf(tree, bounds, true, &mut |items| {
        items.chunks(GROUP).try_for_each(|group| {
            let keys: SmallVec<[_; GROUP]> = group.iter().map(|(key, _)| K::borrow(key)).collect();
            let mut at = 0;
            tree.remove_many(&keys, &mut |removed| {
                if let Some(value) = removed {
                    count += 1;
                    tell(&group[at].0, value);
                }
                at += 1;
            })
        })
    })?;
    Ok(count)
}

/// Returns whether the range between two bounds is empty.
pub fn is_empty<T: Ord>(from: &Bound<T>, to: &Bound<T>) -> bool {
    match (from, to) {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
        _ => false,
    }
}
