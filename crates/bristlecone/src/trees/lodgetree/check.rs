//! Invariants of a tree at rest, for tests, the tool and the crash explorer.

use bristlecone_pm::{Finding, Medium};

use super::LodgeTree;
use super::layout::LeafWord;
use super::node::{Entry, NodeRef};
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::fingerprint;
use crate::shared::slot::bits;

impl<K: KeyCodec, V: Codec, M: Medium> LodgeTree<K, V, M> {
    /// Verifies every node and its leaves against the index, the chain and the allocator. The
    /// counts are exact only while nobody writes.
    pub(super) fn verify(&self) -> Vec<Finding> {
        self.settle();
        let mut findings = self.inner.check();
        let mut nodes = Vec::new();
        self.inner.for_each_leaf(|fence, id| nodes.push((fence.map(K::owned), id)));
        let guard = K::pin();
        let mut leaves = Vec::new();
        for (fence, id) in &nodes {
            let node = self.nodes.get(*id);
            let mut report = |what: &str| findings.push(Finding::new(format!("node {id}"), what));
            let counts = node.counts();
            if counts.index == 0 || counts.index > self.index_max + 1 {
                report("too many leaves, or none");
                return findings;
            }
            if node.all_buffered().any(|item| item.owner >= counts.index) {
                report("an item of no leaf");
                return findings;
            }
            let low = |at: usize| K::owned(K::read(&self.keys, node.fence(at), &guard));
            if fence.as_ref().is_some_and(|fence| *fence != low(0)) {
                report("does not begin where its first leaf does");
            }
            let first = |at: usize| node.entry(at).leaf == self.first;
            leaves.extend((0..counts.index).map(|at| ((!first(at)).then(|| low(at)), node, at)));
        }
        let (mut items, mut next) = (0, self.first);
        for (number, (fence, node, at)) in leaves.iter().enumerate() {
            let entry = node.entry(*at);
            let mut report =
                |what: &str| findings.push(Finding::new(format!("leaf at {:#x}", entry.leaf), what));
            if entry.leaf != next {
                report("not where the leaf before it leads");
                break;
            }
            let header = self.header(entry.leaf);
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
        if next != 0 {
            findings.push(Finding::new("leaves", "the chain leads beyond the index"));
        }
        if items != self.len.sum() {
            findings.push(Finding::new("tree", format!("{items} items, but a count of {}", self.len.sum())));
        }
        if self.unseen.sum() != 0 {
            findings.push(Finding::new("tree", "counts items that nobody looked for, after looking for all"));
        }
        let live = self.leaves.stats().live_slots;
        if live != leaves.len() as u64 {
            let what = format!("{live} leaves allocated, {} in the index", leaves.len());
            findings.push(Finding::new("heap", what));
        }
        findings.extend(K::check_records(&self.keys, items));
        findings.extend(V::check_records(&self.values, items));
        findings.extend(self.versions.verify(nodes.iter().map(|(_, id)| self.nodes.get(*id))));
        findings
    }

    /// Keys lie within the leaf's range, once each; how many there are.
    fn verify_leaf(
        &self,
        node: NodeRef<'_>,
        at: usize,
        entry: Entry,
        (fence, end): (Option<&K::Owned>, Option<&K::Owned>),
        report: &mut impl FnMut(&str),
    ) -> u64 {
        let guards = (K::pin(), V::pin());
        let header = self.header(entry.leaf);
        let tags = header.fingerprints.load(self.medium());
        let mut keys = Vec::new();
        for slot in bits(entry.slots.bitmap) {
            let cell = self.slot(entry.leaf, slot);
            let (key, value) = (cell.key.load(self.medium()), cell.value.load(self.medium()));
            if let Err(error) = K::verify(&self.keys, key).and(V::verify(&self.values, value)) {
                report(&error.to_string());
                return 0;
            }
            let key = K::read(&self.keys, key, &guards.0);
            let half = slot / 16 * 2;
            let hits = fingerprint::probe([tags[half], tags[half + 1]], K::fingerprint(key));
            if hits >> (slot % 16) & 1 == 0 {
                report("fingerprint differs from its key");
            }
            if !entry.slots.lead_to(slot, K::fingerprint(key), self.slots) {
                report("an item away from home that the node does not know of");
            }
            keys.push((key, true));
        }
        if header.stamp.load(self.medium()) > node.lock.count() {
            report("a stamp beyond its node's sequences");
        }
        for item in node.all_buffered().filter(|item| item.owner == at) {
            let value_holds = if item.removed { Ok(()) } else { V::verify(&self.values, item.value) };
            if let Err(error) = K::verify(&self.keys, item.key).and(value_holds) {
                report(&error.to_string());
                return 0;
            }
            let key = K::read(&self.keys, item.key, &guards.0);
            if item.tag != K::fingerprint(key) {
                report("fingerprint of a buffered item differs from its key");
            }
            let mut in_leaf = false;
            keys.retain(|(held, of_leaf)| {
                if *held == key && !of_leaf {
                    report("a key is buffered twice");
                }
                in_leaf |= *held == key;
                *held != key
            });
            if item.in_leaf != in_leaf.into() {
                report("a buffered item does not know whether it is in its leaf");
            }
            if !item.removed {
                keys.push((key, false));
            }
        }
        keys.sort_unstable();
        if keys.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            report("a key twice");
        }
        let below = keys.first().zip(fence).is_some_and(|(key, fence)| key.0 < K::borrow(fence));
        let above = keys.last().zip(end).is_some_and(|(key, end)| key.0 >= K::borrow(end));
        if below || above {
            report("a key out of the leaf's range");
        }
        keys.len() as u64
    }
}
