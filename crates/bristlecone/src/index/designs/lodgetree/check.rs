//! Invariants of a quiescent tree, for tests, the tool and the crash explorer.

use bristlecone_pm::{Issue, Medium, Result};

use super::LodgeTree;
use super::layout::LeafWord;
use super::node::Entry;
use super::places::NodeRef;
use crate::index::parts::codec::KeyCodec;
use crate::index::{Inspect, TreeStats};

impl<K: KeyCodec, M: Medium> Inspect for LodgeTree<K, M> {
    fn len(&self) -> Result<u64> {
        self.count_all();
        Ok(self.len.sum())
    }

    fn len_known(&self) -> Option<u64> {
        (self.unseen.sum() == 0).then(|| self.len.sum())
    }

    fn stats(&self) -> Result<TreeStats> {
        let log = (&self.versions.log, self.versions.needed_entries());
        Ok(self.store.stats(self.len()?, log, self.inner.dram_bytes() + self.nodes.bytes()))
    }

    /// Verifies every node and its leaves against the index, the chain and the allocator. The
    /// counts are exact only while no thread writes.
    fn check(&self) -> Vec<Issue> {
        self.count_all();
        let mut issues = self.inner.check();
        issues.extend(self.versions.log.check());
        let mut nodes = Vec::new();
        self.inner.for_each_leaf(|fence, id| nodes.push((fence.map(K::owned), id)));
        let guard = K::pin();
        let mut leaves = Vec::new();
        for (fence, id) in &nodes {
            let node = self.nodes.get(*id);
            let mut report = |what: &str| issues.push(Issue::new(format!("node {id}"), what));
            let counts = node.counts();
            if counts.index == 0 || counts.index > self.index_max + 1 {
                report("too many leaves, or none");
                return issues;
            }
            if node.all_buffered().any(|item| item.owner >= counts.index) {
                report("an item of no leaf");
                return issues;
            }
            let low = |at: usize| K::owned(self.keys.read(node.fence(at), &guard));
            if fence.as_ref().is_some_and(|fence| *fence != low(0)) {
                report("does not begin where its first leaf does");
            }
            let first = |at: usize| node.entry(at).leaf == self.first;
            leaves.extend((0..counts.index).map(|at| ((!first(at)).then(|| low(at)), node, at)));
        }
        let (mut items, mut next) = (0, self.first);
        for (number, (fence, node, at)) in leaves.iter().enumerate() {
            let entry = node.entry(*at);
            let mut report = |what: &str| issues.push(Issue::new(format!("leaf at {:#x}", entry.leaf), what));
            if entry.leaf != next {
                report("not where the leaf before it leads");
                break;
            }
            let header = self.leaf(entry.leaf);
            let word = LeafWord::unpack(header.word.load(self.medium()));
            next = header.siblings[word.selector].load(self.medium());
            if word.bitmap != entry.slots.bitmap || word.bitmap & !self.slots_mask() != 0 {
                report("other slots than the node knows");
                continue;
            }
            if fence.is_some() && header.fence.load(self.medium()) != entry.fence {
                report("another fence than the node knows");
            }
            let end = leaves.get(number + 1).and_then(|(fence, ..)| fence.as_ref());
            items += self.verify_leaf(*node, *at, entry, (fence.as_ref(), end), &mut report);
        }
        issues.extend(self.verify_totals(next, leaves.len() as u64, items));
        if self.unseen.sum() != 0 {
            issues.push(Issue::new("tree", "counts items that were not looked for, after looking for all"));
        }
        issues.extend(self.versions.verify(nodes.iter().map(|(_, id)| self.nodes.get(*id))));
        issues
    }
}

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Verifies that keys are unique and lie within the leaf's range; returns their number.
    fn verify_leaf(
        &self,
        node: NodeRef<'_>,
        at: usize,
        entry: Entry,
        range: (Option<&K::Owned>, Option<&K::Owned>),
        report: &mut impl FnMut(&str),
    ) -> u64 {
        if self.leaf(entry.leaf).stamp.load(self.medium()) > node.lock.count() {
            report("a stamp beyond its node's sequences");
        }
        let leads = |slot, tag| {
            let lead = entry.slots.lead_to(slot, tag, self.slots);
            (!lead).then_some("an item away from home that the node does not know of")
        };
        let buffered: Vec<_> = node.all_buffered().filter(|item| item.owner == at).collect();
        let items = buffered.iter().map(|item| item.item());
        let knows = |number: usize, tag, in_leaf: bool| {
            let item = &buffered[number];
            if item.tag != tag {
                return Some("fingerprint of a buffered item differs from its key");
            }
            (item.in_leaf != in_leaf.into())
                .then_some("a buffered item does not know whether it is in its leaf")
        };
        self.verify_items((entry.leaf, entry.slots.bitmap.into()), range, leads, (items, knows), report)
    }
}
