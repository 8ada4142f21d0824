//! Visiting items in order without copying them, one leaf at a time.

use std::ops::{Bound, ControlFlow, Range};

use bristlecone_pm::Result;

use super::scan::{Bounds, Leafwise, precedes, shorten, succeeds};
use crate::index::parts::codec::{Codec, KeyCodec, Storage};
use crate::index::parts::volatile_index::{Cursor, Step};
use crate::index::parts::words::{Order, Words};
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

/// Items ahead whose records a visit prefetches.
const DISTANCE: usize = 8;

/// Returns the number of items that `precede` the first one to visit. If `is_cold`, their records are not in the cache, and
/// those that are compared are prefetched together, by `prefetch`.
#[inline(always)]
fn begin(
    order: &Order,
    is_cold: bool,
    precedes: impl Fn(usize) -> Result<bool>,
    prefetch: impl Fn(Range<usize>),
) -> Result<usize> {
    let (count, step) = (order.count(), order.count().div_ceil(DISTANCE).max(1));
    if !is_cold {
        // Most leaves are visited from their first item on.
        let all = if count > 0 && !precedes(order.range(0..1).sum())? { 0..0 } else { 0..count };
        return order.count_while(all, precedes);
    }
    (step..count).step_by(step).for_each(|place| prefetch(place..place + 1));
    let mut low = 0;
    for place in (step..count).step_by(step) {
        if !precedes(order.range(place..place + 1).sum())? {
            break;
        }
        low = place;
    }
    prefetch(low..low + step);
    order.count_while(low..count.min(low + step), precedes)
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
    let orders = leaves.inner().orders();
    let descriptor = |leaf| {
        leaves.prefetch_descriptor(leaf);
        orders.into_iter().for_each(|orders| orders.prefetch(leaf));
    };
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
            orders.into_iter().for_each(|orders| orders.prefetch(found.0));
            leaves.prefetch_items(found.0);
            found
        }
    };
    leaves.look_ahead(cursor, 1..=L::ITEMS_AHEAD, |leaf| leaves.prefetch_items(leaf));
    let reads_values = matches!(visit, Visit::Items(_));
    let mut words = Words::default();
    let mut shown = None;
    if leaves.snapshot(leaf, version, &mut words).is_some() {
        let (order, is_verified) = leaves.order(Some((leaf, version)), &words, &guards.0, false)?;
        let key_at = |at: usize| leaves.key_at(words.at(at)[0], &guards.0, is_verified);
        let prefetch_at = |at: usize| {
            let [key, value] = words.at(at);
            leaves.prefetch_key(key);
            if reads_values {
                leaves.prefetch_value(value);
            }
        };
        let prefetch = |places: Range<usize>| {
            let places = places.start.min(order.count())..places.end.min(order.count());
            order.range(places).for_each(prefetch_at);
        };
        // The last leaf's visit has prefetched the first records of this one.
        let start = match from {
            Bound::Unbounded => 0,
            Bound::Included(_) | Bound::Excluded(_) => {
                let is_before = |at| Ok(precedes::<K>(key_at(at)?, from));
                begin(&order, is_first && !is_verified, is_before, prefetch)?
            }
        };
        if !(K::INLINE && V::INLINE) && is_first {
            prefetch(start..start + DISTANCE);
        }
        let end = match to {
            Bound::Included(key) | Bound::Excluded(key) => K::rank(key),
            Bound::Unbounded => u64::MAX,
        };
        let (mut damage, half) = (None, start + (order.count() - start) / 2);
        let mut ahead = order.range(order.count().min(start + DISTANCE)..order.count());
        for (place, at) in (start..).zip(order.range(start..order.count())) {
            let [_, value] = words.at(at);
            let key = key_at(at)?;
            // Keys of a lower rank are lower keys: most need no comparison.
            if (K::INLINE || K::rank(key) >= end) && succeeds::<K>(key, to) {
                return Ok(ControlFlow::Break(()));
            }
            if !(K::INLINE && V::INLINE) {
                if let Some(at) = ahead.next() {
                    prefetch_at(at);
                }
                if place == half
                    && let Some(next) = leaves.inner().ahead(cursor, 1)
                {
                    match orders.and_then(|orders| orders.first(next)) {
                        Some(positions) => leaves.prefetch_some(next, &positions),
                        None => leaves.prefetch_records(next),
                    }
                }
            }
            let flow = match visit {
                Visit::Items(see) => {
                    let value = leaves.value_at::<V>(value, &guards.1, false, &mut damage);
                    damage.take().map_or(Ok(()), Err)?;
                    see(key, value)
                }
                Visit::Keys(see) => see(key),
            };
            if flow.is_break() {
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
        if visit.see(K::borrow(&key), V::borrow(&value)).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        *last = Some(key);
    }
    Ok(if outside.above { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
}
