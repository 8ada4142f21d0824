//! Invariants of a quiescent tree, for tests, the tool and the crash explorer.

use bristlecone_pm::{Issue, Medium, Result};

use super::NbTree;
use super::layout::{EMPTY, Header, State, Stored};
use super::leaf::Leaf;
use super::meta::Tag;
use crate::index::parts::codec::KeyCodec;
use crate::index::{Inspect, TreeStats};

impl<K: KeyCodec, M: Medium> Inspect for NbTree<K, M> {
    fn len(&self) -> Result<u64> {
        Ok(self.len.sum())
    }

    fn stats(&self) -> Result<TreeStats> {
        let outstanding = self.outstanding();
        let blocks = self.blocks.stats();
        let records = self.keys.records.stats().1 + self.values.records.stats().1;
        Ok(TreeStats {
            items: self.len()?,
            leaves: blocks.live_slots.saturating_sub(outstanding),
            pm_bytes: blocks.chunks * blocks.chunk_bytes + records,
            dram_bytes: self.inner.dram_bytes() + self.leaves.bytes(),
            ..TreeStats::default()
        })
    }

    // Verifies every leaf against the medium, the index and the allocator. The counts are exact
    // only while no thread writes.
    fn check(&self) -> Vec<Issue> {
        let mut issues = self.inner.check();
        let outstanding = self.outstanding();
        let mut previous: Option<K::Owned> = None;
        let (mut items, mut blocks) = (0, outstanding);
        self.inner.for_each_leaf(|fence, id| {
            // A leaf may forward to others that are not in the index yet.
            let mut stack = vec![id];
            while let Some(id) = stack.pop() {
                blocks += 1;
                let leaf = self.leaves.get(id);
                let succession = leaf.succession();
                if succession.is_open() && !succession.is_removed() {
                    stack.extend(succession.right().into_iter().chain([succession.left()]));
                } else {
                    items += self.verify_leaf(id, leaf, fence, &mut previous, &mut issues);
                }
            }
        });
        if items != self.len.sum() {
            issues.push(Issue::new("tree", format!("{items} items, but a count of {}", self.len.sum())));
        }
        let live = self.blocks.stats().live_slots;
        if live != blocks {
            issues.push(Issue::new("heap", format!("{live} blocks allocated, {blocks} in leaves")));
        }
        issues.extend(self.keys.check_records(items));
        issues.extend(self.values.check_records(items));
        issues
    }
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Verifies one leaf; returns its number of items.
    fn verify_leaf(
        &self,
        id: u32,
        leaf: &Leaf,
        fence: Option<K::Ref<'_>>,
        previous: &mut Option<K::Owned>,
        issues: &mut Vec<Issue>,
    ) -> u64 {
        let mut report = |what: &str| {
            issues.push(Issue::new(format!("leaf {id} at {:#x}", leaf.block()), what.to_owned()));
        };
        let guard = K::pin();
        let state = self.pool.at::<Header>(leaf.block()).state.load(self.medium());
        if !matches!(State::decode(state), Some(State::Live { .. })) {
            report("its block is no leaf's");
        }
        let mut items = 0;
        let mut keys = Vec::new();
        for slot in 0..self.shape.slots {
            let value = self.resolve(self.slot(leaf, slot).value.load(self.medium()));
            if value == EMPTY {
                continue;
            }
            items += self.bitmap(leaf) >> slot & 1;
            match self.verify_item(leaf, slot, value, &guard) {
                Ok(key) => keys.push(key),
                Err(what) => report(&what),
            }
        }
        if self.items(leaf) != keys.len() as i32 {
            report("a wrong number of items");
        }
        if leaf.pending.is_flushing_anywhere() {
            report("a flush under way");
        }
        keys.sort_unstable();
        let first = keys.first().copied();
        let below = first.is_some_and(|first| fence.is_some_and(|fence| first < K::shorten(fence)));
        let behind =
            first.zip(previous.as_ref()).is_some_and(|(first, previous)| K::owned(first) <= *previous);
        if below || behind || keys.windows(2).any(|pair| pair[0] >= pair[1]) {
            report("keys out of order or range");
        }
        *previous = keys.last().map(|last| K::owned(*last)).or(previous.take());
        items
    }

    /// Verifies the item of a slot with a value; returns its key.
    fn verify_item<'g>(
        &'g self,
        leaf: &Leaf,
        slot: usize,
        value: u64,
        guard: &'g K::Guard,
    ) -> std::result::Result<K::Ref<'g>, String> {
        if self.bitmap(leaf) >> slot & 1 == 0 {
            return Err("an item in a slot that is not taken".to_owned());
        }
        let word = self.slot(leaf, slot).key.load(self.medium());
        let whole = self.keys.verify(word).and(match Stored::decode(value) {
            Stored::Record(record) => self.values.records.verify(record),
            _ => Ok(()),
        });
        whole.map_err(|error| error.to_string())?;
        let key = self.keys.read(word, guard);
        if self.candidates(leaf, Tag::of::<K>(key)) >> slot & 1 == 0 {
            return Err("fingerprint differs from its key".to_owned());
        }
        Ok(key)
    }
}
