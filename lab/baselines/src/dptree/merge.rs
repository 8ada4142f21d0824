//! Merging the buffer into the base tree, and recovery of both.

use bristlecone::lab::Inline;
use bristlecone::parts::volatile_index::VolatileIndex;
use bristlecone::{Medium, Result};
use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::sync::wait;
use bristlecone_pm::{Flushed, LogChunk, Memory, Persist};

use super::{Buffer, DpTree, FIRST, STAMP, State};
use crate::index::{INDEX_NODE_BYTES, Span};
use crate::shadow::{Plan, find_leaves};

impl<M: Medium> DpTree<M> {
    /// Merges a buffer whose log has at least `least` entries. Has no effect if there is no space.
    pub(super) fn merge(&self, least: u64) -> Result<()> {
        let mut state = wait::write(&self.state);
        if state.buffer.logged.load(Relaxed) < least {
            return Ok(());
        }
        let buffer = Buffer::new(self.store.node_bytes / 64)?;
        let plans = self.plan(&state)?;
        let fresh: usize = plans.iter().map(|plan| plan.fresh.len()).sum();
        let room = state
            .index
            .reserve(fresh)
            .inspect_err(|_| plans.iter().for_each(|plan| plan.give_back(&self.store)))?;
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

    /// Plans the change of every leaf with changed keys, and allocates the leaves that it needs.
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
            match Plan::new(&self.store, self.shape, leaf, state.stamp, own) {
                Ok(plan) => plans.push(plan),
                Err(error) => {
                    plans.iter().for_each(|plan| plan.give_back(&self.store));
                    return Err(error);
                }
            }
        }
        Ok(plans)
    }

    /// Executes merge 1 and 2.
    fn carry_out(&self, plans: &[Plan], stamp: u64, new: u64) {
        let (store, shape, medium) = (&self.store, self.shape, self.store.medium());
        let mut flushed = Flushed::none();
        for plan in plans {
            let (written, meta) = plan.write(store, shape, new);
            flushed = flushed.and(written).and(shape.prepare(store, plan.leaf, stamp, meta));
        }
        let durable = medium.fence(flushed, "dptree merge.1");
        let cell = store.word(self.root, STAMP);
        cell.publish(medium, new, &durable, "dptree merge.2");
        medium.persist(cell, "dptree merge.2");
    }

    /// Finds the leaves, removes those without items, and rebuilds index and buffer.
    pub(super) fn recover(&mut self, logged: Vec<LogChunk>) -> Result<()> {
        let (store, shape, root) = (&self.store, self.shape, self.root);
        store.mark_live(root)?;
        let stamp = store.load(root, STAMP);
        let found = find_leaves(store, shape, store.load(root, FIRST), stamp, &self.census)?;
        store.finish_recovery();
        let found = found.into_iter().rev().map(|(low, leaf)| (low, self.number(leaf)));
        let index = VolatileIndex::<Inline>::build(INDEX_NODE_BYTES, found, &Memory::private())?;
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
