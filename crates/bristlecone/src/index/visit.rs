//! Visiting items in order without copying them, one leaf at a time.

use std::ops::{Bound, ControlFlow};

use bristlecone_pm::Result;

use super::scan::{Bounds, Leafwise, precedes, shorten, succeeds};
use crate::index::parts::codec::{Codec, KeyCodec, Storage};
use crate::index::parts::volatile_index::{Cursor, Step};
use crate::index::parts::words::{Sorted, Words};
use crate::index::{Batch, Visit};

/// Position of a visit.
pub struct Visiting<K: KeyCodec> {
    cursor: Option<Cursor>,
    /// The last visited key.
    last: Option<K::Owned>,
}

impl<K: KeyCodec> Default for Visiting<K> {
    fn default() -> Self {
        Self { cursor: None, last: None }
    }
}

/// Returns the rest of the bounds behind the last visited key.
pub fn behind<'k, 'a: 'k, 'b: 'k, K: Codec>(
    last: &'k Option<K::Owned>,
    (from, to): Bounds<'a, 'b, K>,
) -> (Bound<K::Ref<'k>>, Bound<K::Ref<'k>>) {
    let (from, to) = (shorten::<K>(from), shorten::<K>(to));
    (last.as_ref().map_or(from, |last| Bound::Excluded(K::borrow(last))), to)
}

/// Visits the items of the next leaf, verified. Returns `Break` at the end, or if `visit` breaks.
pub fn visit_leaf<K: KeyCodec, V: Storage, L: Leafwise<K>>(
    leaves: &L,
    bounds: Bounds<'_, '_, K>,
    at: &mut Visiting<K>,
    visit: &mut Visit<'_, K, V>,
) -> Result<ControlFlow<()>> {
    let Visiting { cursor: place, last } = at;
    let (from, to) = behind::<K>(last, bounds);
    let guards = (K::pin(), V::pin());
    let version_of = |leaf| leaves.version(leaf);
    let descriptor = |leaf| leaves.prefetch_descriptor(leaf);
    let is_first = place.is_none();
    let step = place.take().map_or(Step::Lost, |cursor| leaves.inner().next(cursor, version_of));
    let (leaf, version, cursor) = match step {
        Step::Leaf(leaf, version, cursor) => {
            leaves.look_ahead(cursor, L::AHEAD..=L::AHEAD, descriptor);
            (leaf, version, cursor)
        }
        Step::End => return Ok(ControlFlow::Break(())),
        Step::Lost => {
            let key = match from {
                Bound::Included(key) | Bound::Excluded(key) => Some(key),
                Bound::Unbounded => None,
            };
            let near = |cursor| leaves.look_ahead(cursor, 1..=L::AHEAD, descriptor);
            let found = leaves.inner().seek(key, &guards.0, version_of, near);
            leaves.prefetch_items(found.0);
            found
        }
    };
    leaves.look_ahead(cursor, 1..=L::ITEMS_AHEAD, |leaf| leaves.prefetch_items(leaf));
    let mut words = Words::default();
    let mut shown = None;
    if leaves.snapshot(leaf, version, &mut words).is_some() {
        // The last leaf's visit has asked for the records of this one.
        if !K::INLINE && is_first {
            words.iter().for_each(|(_, [key, _])| leaves.prefetch_key(key));
        }
        let mut items = Sorted::<K>::default();
        words.sort(leaves.level(), |word| leaves.key_at(word, &guards.0, false), &mut items)?;
        let places = items.count_while(|key| precedes::<K>(key, from))..items.count();
        if !V::INLINE && is_first {
            items.range(places.clone()).for_each(|(_, value)| leaves.prefetch_value(value));
        }
        let (mut damage, half) = (None, places.len() / 2);
        for (place, (key, value)) in items.range(places).enumerate() {
            if succeeds::<K>(key, to) {
                return Ok(ControlFlow::Break(()));
            }
            if !(K::INLINE && V::INLINE)
                && place == half
                && let Some(next) = leaves.inner().ahead(cursor, 1)
            {
                leaves.prefetch_records(next);
            }
            let value = leaves.value_at::<V>(value, &guards.1, false, &mut damage);
            damage.take().map_or(Ok(()), Err)?;
            if visit(key, value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            shown = Some(key);
        }
        if let Some(key) = shown {
            *last = Some(K::owned(key));
        }
        *place = Some(cursor);
        return Ok(ControlFlow::Continue(()));
    }
    // The leaf is being written or replaced.
    let mut batch = Batch::default();
    let Some(outside) = leaves.collect::<true, V>(leaf, version, (from, to), &mut batch) else {
        return Ok(ControlFlow::Continue(()));
    };
    batch.damage.take().map_or(Ok(()), Err)?;
    *place = Some(cursor);
    while let Some((key, value)) = batch.entries.pop() {
        if visit(K::borrow(&key), V::borrow(&value)).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        *last = Some(key);
    }
    Ok(if outside.above { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}
