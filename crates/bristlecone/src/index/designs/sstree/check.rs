//! Invariants of a quiescent tree, for tests, the tool and the crash explorer.

use bristlecone_pm::{Issue, Medium, Result};

use super::SsTree;
use super::layout::{END, Header, unstage};
use super::leaf::{Leaf, View};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::fingerprint;
use crate::index::{Inspect, TreeStats};

impl<K: KeyCodec, M: Medium> Inspect for SsTree<K, M> {
    fn len(&self) -> Result<u64> {
        Ok(self.len.sum())
    }

    fn stats(&self) -> Result<TreeStats> {
        let subnodes = self.subnodes.stats();
        let records = self.keys.records.stats().1 + self.values.records.stats().1;
        Ok(TreeStats {
            items: self.len()?,
            leaves: self.leaves.live() as u64,
            pm_bytes: subnodes.chunks * subnodes.chunk_bytes + records,
            dram_bytes: self.inner.dram_bytes() + self.leaves.bytes(),
            ..TreeStats::default()
        })
    }

    // Verifies every leaf against the medium, the index and the allocator. The counts are exact
    // only while no thread writes.
    fn check(&self) -> Vec<Issue> {
        let mut issues = self.inner.check();
        let mut previous: Option<K::Owned> = None;
        let (mut items, mut subnodes) = (0, 0);
        self.inner.for_each_leaf(|fence, id| {
            let leaf = self.leaves.get(id);
            let view = leaf.view();
            items += u64::from(view.bitmap.count_ones());
            subnodes += view.count as u64;
            self.verify_chain(leaf, &view, &mut issues);
            self.verify_items(id, fence, &mut previous, &mut issues);
        });
        if items != self.len.sum() {
            issues.push(Issue::new("tree", format!("{items} items, but a count of {}", self.len.sum())));
        }
        let live = self.subnodes.stats().live_slots;
        if live != subnodes {
            issues.push(Issue::new("heap", format!("{live} subnodes allocated, {subnodes} in leaves")));
        }
        issues.extend(self.keys.check_records(items));
        issues.extend(self.values.check_records(items));
        issues
    }
}

impl<K: KeyCodec, M: Medium> SsTree<K, M> {
    /// Verifies that the chain and the bitmap on the medium match the descriptor.
    fn verify_chain(&self, leaf: Leaf<'_>, view: &View, issues: &mut Vec<Issue>) {
        let mut report = |what: &str| {
            issues.push(Issue::new(format!("leaf at {:#x}", view.subnodes[0]), what.to_owned()));
        };
        let header = |at: usize| -> &Header { self.header(view.subnodes[at]) };
        if unstage(header(0).bitmap.load(self.medium())).0 != view.bitmap {
            report("bitmap differs from its copy");
        }
        for at in 0..view.count {
            let successor = if at + 1 < view.count { view.subnodes[at + 1] } else { END };
            if header(at).next.load(self.medium()) != successor {
                report("chain differs from its copy");
            }
        }
        if view.count > 1 && view.taken(self.shape, view.count - 1) == 0 {
            report("empty tail");
        }
        for (at, slot) in view.items(self.shape) {
            let word = self.slot(view.subnodes[at], slot).key.load(self.medium());
            let guard = K::pin();
            let tag = K::fingerprint(self.keys.read(word, &guard));
            let found = if at == 0 || self.shape.resident {
                leaf.probe(self.leaves.level, tag) >> (at * self.shape.slots + slot) & 1
            } else {
                fingerprint::probe(header(at - 1).annex.load(self.medium()), tag) >> slot & 1
            };
            if found == 0 {
                report("fingerprint differs from its key");
            }
        }
    }

    /// Verifies that keys lie within the leaf's range, strictly above all keys of the previous
    /// leaves.
    fn verify_items(
        &self,
        id: u32,
        fence: Option<K::Ref<'_>>,
        previous: &mut Option<K::Owned>,
        issues: &mut Vec<Issue>,
    ) {
        let guard = K::pin();
        let mut keys = Vec::new();
        for (_, (key, value)) in self.words(id) {
            if let Err(error) = self.keys.verify(key).and(self.values.verify(value)) {
                issues.push(Issue::new(format!("leaf {id}"), error.to_string()));
                return;
            }
            keys.push(self.keys.read(key, &guard));
        }
        keys.sort_unstable();
        let disorder = keys.windows(2).any(|pair| pair[0] >= pair[1]);
        let first = keys.first().copied();
        let below = first.is_some_and(|first| fence.is_some_and(|fence| first < K::shorten(fence)));
        let behind =
            first.zip(previous.as_ref()).is_some_and(|(first, previous)| K::owned(first) <= *previous);
        let last = keys.last().map(|last| K::owned(*last));
        if disorder || below || behind {
            issues.push(Issue::new(format!("leaf {id}"), "keys out of order or range".to_owned()));
        }
        *previous = last.or(previous.take());
    }
}
