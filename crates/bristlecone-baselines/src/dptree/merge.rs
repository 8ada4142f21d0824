//! Merging the buffer into the base tree, and what recovery has of both.

use bristlecone::lab::Inline;
use bristlecone::parts::volatile_index::VolatileIndex;
use bristlecone::{Medium, Result};
use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::sync::wait;
use bristlecone_pm::{Flushed, LogChunk, Memory, Persist};

use super::leaf::{Meta, bits};
use super::{Buffer, Change, DpTree, FIRST, STAMP, State};
use crate::index::{INDEX_NODE_BYTES, Span};
use crate::store::damaged;

/// What a leaf becomes.
struct Plan {
    leaf: u64,
    /// Items that go to free slots.
    puts: Vec<(usize, (u64, u64))>,
    /// The slots that are taken then.
    bitmap: u128,
    next: u64,
    /// Leaves that are split off, with their items.
    fresh: Vec<(u64, Vec<(u64, u64)>)>,
}

impl<M: Medium> DpTree<M> {
    /// Merges a buffer whose log has so many entries at least. Nothing happened if there is no room.
    pub(super) fn merge(&self, least: u64) -> Result<()> {
        let mut state = wait::write(&self.state);
        if state.buffer.logged.load(Relaxed) < least {
            return Ok(());
        }
        let buffer = Buffer::new(self.store.node_bytes / 64)?;
        let plans = self.plan(&state)?;
        let fresh: usize = plans.iter().map(|plan| plan.fresh.len()).sum();
        let room = state.index.reserve(fresh).inspect_err(|_| self.give_back(&plans))?;
        let stamp = self.sequence.load(Relaxed);
        self.carry_out(&plans, state.stamp, stamp);
        let split = plans.iter().flat_map(|plan| &plan.fresh);
        split.for_each(|(leaf, items)| state.index.insert(items[0].0, self.number(*leaf), &()));
        drop(room);
        self.census.leaves.add(fresh as i64);
        let (_, old) = self.log.rotate();
        self.log.recycle(old);
        (state.buffer, state.stamp, state.full) = (buffer, stamp, self.full());
        Ok(())
    }

    fn give_back(&self, plans: &[Plan]) {
        let fresh = plans.iter().flat_map(|plan| &plan.fresh);
        fresh.for_each(|(leaf, _)| self.store.unalloc(*leaf));
    }

    /// Plans what becomes of every leaf of which a key was changed, with the leaves that it takes.
    fn plan(&self, state: &State) -> Result<Vec<Plan>> {
        let mut named = Vec::new();
        state.index.for_each_leaf(|low, number| named.push((low, self.leaf_of(number))));
        let changes = state.buffer.within(Span::default());
        let mut rest = &changes[..];
        let mut plans = Vec::new();
        for (at, &(_, leaf)) in named.iter().enumerate() {
            let high = named.get(at + 1).and_then(|(low, _)| *low);
            let own = rest.partition_point(|(key, _)| high.is_none_or(|high| *key < high));
            let (own, others) = rest.split_at(own);
            rest = others;
            if own.is_empty() {
                continue;
            }
            match self.plan_leaf(leaf, state.stamp, own) {
                Ok(plan) => plans.push(plan),
                Err(error) => {
                    self.give_back(&plans);
                    return Err(error);
                }
            }
        }
        Ok(plans)
    }

    fn plan_leaf(&self, leaf: u64, stamp: u64, changes: &[Change]) -> Result<Plan> {
        let (store, shape) = (&self.store, self.shape);
        let now = shape.now(store, leaf, stamp);
        // What is there then: an item in its slot, or one that takes a slot.
        let changed = |key: u64| changes.binary_search_by_key(&key, |(key, _)| *key).is_ok();
        let held = bits(now.bitmap).map(|slot| (shape.item(store, leaf, slot), Some(slot)));
        let kept = held.filter(|((key, _), _)| !changed(*key));
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
        let mut plan = Plan { leaf, puts: Vec::new(), bitmap: 0, next: now.next, fresh: Vec::new() };
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
                    self.give_back(&[plan]);
                    return Err(error);
                }
            }
        }
        Ok(plan)
    }

    /// Merge 1 and 2.
    fn carry_out(&self, plans: &[Plan], stamp: u64, new: u64) {
        let (store, shape, medium) = (&self.store, self.shape, self.store.medium());
        let mut flushed = Flushed::none();
        for Plan { leaf, puts, bitmap, next, fresh } in plans {
            puts.iter().for_each(|(slot, item)| shape.put(store, *leaf, *slot, *item));
            flushed = flushed.and(shape.flush(store, *leaf, puts.iter().map(|(slot, _)| *slot)));
            let mut next = *next;
            for (leaf, items) in fresh.iter().rev() {
                flushed = flushed.and(shape.fill(store, *leaf, items, next, new));
                next = *leaf;
            }
            let meta = Meta { stamp: new, next, bitmap: *bitmap };
            flushed = flushed.and(shape.prepare(store, *leaf, stamp, meta));
        }
        let durable = medium.fence(flushed, "dptree merge.1");
        let cell = store.word(self.root, STAMP);
        cell.publish(medium, new, &durable, "dptree merge.2");
        medium.persist(cell, "dptree merge.2");
    }

    /// Finds the leaves, takes out those without items, and makes index and buffer again.
    pub(super) fn recover(&mut self, logged: Vec<LogChunk>) -> Result<()> {
        let (store, shape, root) = (&self.store, self.shape, self.root);
        store.mark_live(root)?;
        let stamp = store.load(root, STAMP);
        let mut chain = Vec::new();
        let mut leaf = store.load(root, FIRST);
        while leaf != 0 {
            store.mark_live(leaf)?;
            chain.push(leaf);
            leaf = shape.next(store, leaf, stamp);
        }
        let mut found: Vec<(u64, u32)> = Vec::new();
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
                first => found.push((first.map_or(0, |item| item.0), self.number(leaf))),
            }
            self.census.items.add(items.len() as i64);
        }
        store.finish_recovery();
        self.census.leaves.add(found.len() as i64);
        let index =
            VolatileIndex::<Inline>::build(INDEX_NODE_BYTES, found.into_iter().rev(), &Memory::private())?;
        let mut state = wait::write(&self.state);
        (state.index, state.stamp) = (index, stamp);
        let mut entries = Vec::new();
        for chunk in &logged {
            for entry in self.log.entries(chunk) {
                entries.push(entry?);
            }
        }
        self.log.seal(logged);
        entries.retain(|entry| entry.sequence > stamp);
        entries.sort_unstable_by_key(|entry| entry.sequence);
        self.sequence.store(entries.last().map_or(stamp, |entry| entry.sequence), Relaxed);
        for entry in entries {
            let old = state.buffer.get(entry.key).unwrap_or_else(|| self.base(&state, entry.key));
            let new = (!entry.removed).then_some(entry.value);
            state.buffer.put((entry.key, new))?;
            self.census.items.add(i64::from(new.is_some()) - i64::from(old.is_some()));
        }
        Ok(())
    }
}
