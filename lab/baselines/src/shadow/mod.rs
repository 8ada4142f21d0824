//! Common code of DPTree and the Bε-tree: leaves on the medium that get many changes at a time, with two copies of
//! their metadata, and the planning of such changes.

mod leaf;

use bristlecone::{Medium, Result};
use bristlecone_pm::Flushed;

use self::leaf::bits;
pub use self::leaf::{Meta, Shape, Steps};
use crate::index::Census;
use crate::store::{Store, damaged};

/// A key and its new value, or `None` for a removal.
pub type Change = (u64, Option<u64>);

/// Returns whether sorted changes contain a key.
fn is_changed(changes: &[Change], key: u64) -> bool {
    changes.binary_search_by_key(&key, |(key, _)| *key).is_ok()
}

/// Applies changes to items, both in order.
pub fn overlay(items: Vec<(u64, u64)>, changes: &[Change]) -> Vec<(u64, u64)> {
    let kept = items.into_iter().filter(|(key, _)| !is_changed(changes, *key));
    let mut items: Vec<_> =
        kept.chain(changes.iter().filter_map(|(key, value)| Some((*key, (*value)?)))).collect();
    items.sort_unstable();
    items
}

/// Planned change of a leaf.
pub struct Plan {
    pub leaf: u64,
    /// Items to store in free slots.
    puts: Vec<(usize, (u64, u64))>,
    /// The slots taken afterwards.
    bitmap: u128,
    next: u64,
    /// Split-off leaves, with their items.
    pub fresh: Vec<(u64, Vec<(u64, u64)>)>,
}

impl Plan {
    /// Plans the result of sorted changes of a leaf, and allocates the leaves that it needs.
    pub fn new<M: Medium>(
        store: &Store<M>,
        shape: Shape,
        leaf: u64,
        stamp: u64,
        changes: &[Change],
    ) -> Result<Self> {
        let now = shape.now(store, leaf, stamp);
        // The resulting items: each in its slot, or needing a slot.
        let held = bits(now.bitmap).map(|slot| (shape.item(store, leaf, slot), Some(slot)));
        let kept = held.filter(|((key, _), _)| !is_changed(changes, *key));
        let new = changes.iter().filter_map(|(key, value)| Some(((*key, (*value)?), None)));
        let mut all: Vec<_> = kept.chain(new).collect();
        all.sort_unstable();
        let mut free = bits(!now.bitmap & ((1 << shape.slots) - 1));
        let room = shape.slots - now.bitmap.count_ones() as usize;
        let puts =
            |items: &[((u64, u64), Option<usize>)]| items.iter().filter(|item| item.1.is_none()).count();
        let mut stay = all.len();
        // As full as leaves are on average after splits.
        let part = (shape.capacity() * 3).div_ceil(4);
        if stay > shape.capacity() || puts(&all) > room {
            stay = stay.min(part);
            while puts(&all[..stay]) > room {
                stay -= 1;
            }
        }
        let (own, split) = all.split_at(stay);
        let mut plan = Self { leaf, puts: Vec::new(), bitmap: 0, next: now.next, fresh: Vec::new() };
        for (item, slot) in own {
            let slot = slot.unwrap_or_else(|| {
                let slot = free.next().expect("as many as there is room for");
                plan.puts.push((slot, *item));
                slot
            });
            plan.bitmap |= 1 << slot;
        }
        for items in split.chunks(part) {
            match store.alloc() {
                Ok(fresh) => plan.fresh.push((fresh, items.iter().map(|(item, _)| *item).collect())),
                Err(error) => {
                    plan.give_back(store);
                    return Err(error);
                }
            }
        }
        Ok(plan)
    }

    /// Frees the allocated leaves.
    pub fn give_back<M: Medium>(&self, store: &Store<M>) {
        self.fresh.iter().for_each(|(leaf, _)| store.unalloc(*leaf));
    }

    /// Writes everything that does not count yet, with a stamp for the split-off leaves; returns the metadata that
    /// commits it.
    pub fn write<M: Medium>(&self, store: &Store<M>, shape: Shape, stamp: u64) -> (Flushed, Meta) {
        self.puts.iter().for_each(|(slot, item)| shape.put(store, self.leaf, *slot, *item));
        let mut flushed = shape.flush(store, self.leaf, self.puts.iter().map(|(slot, _)| *slot));
        let mut next = self.next;
        for (leaf, items) in self.fresh.iter().rev() {
            flushed = flushed.and(shape.fill(store, *leaf, items, next, stamp));
            next = *leaf;
        }
        (flushed, Meta { stamp, next, bitmap: self.bitmap })
    }

    /// Returns whether only metadata must be written.
    pub fn is_of_metadata(&self) -> bool {
        self.puts.is_empty() && self.fresh.is_empty()
    }
}

/// Finds the leaves from the first one on during recovery, and removes those without items, whose range is unknown;
/// returns the others, the last leaf first, each with its first key.
pub fn find_leaves<M: Medium>(
    store: &Store<M>,
    shape: Shape,
    first: u64,
    stamp: u64,
    census: &Census,
) -> Result<Vec<(u64, u64)>> {
    let mut chain = Vec::new();
    let mut leaf = first;
    while leaf != 0 {
        store.mark_live(leaf)?;
        chain.push(leaf);
        leaf = shape.next(store, leaf, stamp);
    }
    let mut found: Vec<(u64, u64)> = Vec::new();
    for (at, &leaf) in chain.iter().enumerate().rev() {
        let items = shape.items(store, leaf, stamp);
        let right = found.last().map(|(low, _)| *low);
        if items.last().is_some_and(|(last, _)| right.is_some_and(|right| *last >= right)) {
            return Err(damaged("leaves out of order", leaf));
        }
        match items.first() {
            None if at > 0 => {
                shape.link(store, chain[at - 1], stamp, shape.next(store, leaf, stamp));
                store.unalloc(leaf);
            }
            first => found.push((first.map_or(0, |item| item.0), leaf)),
        }
        census.items.add(items.len() as i64);
    }
    census.leaves.add(found.len() as i64);
    Ok(found)
}
