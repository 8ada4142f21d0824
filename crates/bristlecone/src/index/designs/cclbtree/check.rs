//! Invariants of a quiescent tree, for tests, the tool and the crash explorer.

use bristlecone_pm::{Issue, Medium, Result};

use super::layout::LeafWord;
use super::{CclBTree, Core};
use crate::index::parts::buffered::Item;
use crate::index::parts::codec::KeyCodec;
use crate::index::{Inspect, TreeStats};

impl<K: KeyCodec, M: Medium> Inspect for CclBTree<K, M> {
    fn len(&self) -> Result<u64> {
        self.count_all();
        Ok(self.len.sum())
    }

    fn len_known(&self) -> Option<u64> {
        (self.promised.uncounted.sum() == 0).then(|| self.len.sum())
    }

    fn stats(&self) -> Result<TreeStats> {
        let pending = (0..self.buffers.end()).map(|id| self.buffers.get(id).state().pending as u64).sum();
        Ok(self.store.stats(
            self.len()?,
            (&self.log, pending),
            self.inner.dram_bytes() + self.buffers.bytes(),
        ))
    }

    fn check(&self) -> Vec<Issue> {
        // The collector writes, too.
        let _at_rest = self.collection.hold();
        self.count_all();
        self.verify()
    }
}

impl<K: KeyCodec, M: Medium> Core<K, M> {
    /// Verifies every leaf and its buffer against the index, the chain and the allocator. The
    /// counts are exact only while no thread writes.
    pub(super) fn verify(&self) -> Vec<Issue> {
        let mut issues = self.inner.check();
        let mut leaves = Vec::new();
        self.inner.for_each_leaf(|fence, id| leaves.push((fence.map(K::owned), id)));
        let (mut items, mut next) = (0, self.first);
        for (at, (fence, id)) in leaves.iter().enumerate() {
            let offset = self.buffers.get(*id).state().leaf;
            let mut report = |what: &str| issues.push(Issue::new(format!("leaf at {offset:#x}"), what));
            if offset != next {
                report("not where the leaf before it leads");
                break;
            }
            next = LeafWord::unpack(self.leaf(offset).header.word.load(self.medium())).next;
            let end = leaves.get(at + 1).and_then(|(fence, _)| fence.as_ref());
            items += self.verify_leaf(*id, fence.as_ref(), end, &mut report);
        }
        issues.extend(self.verify_totals(next, leaves.len() as u64, items));
        issues.extend(self.log.check());
        issues
    }

    /// Verifies that keys are unique and lie within the leaf's range; returns their number.
    fn verify_leaf(
        &self,
        id: u32,
        fence: Option<&K::Owned>,
        end: Option<&K::Owned>,
        report: &mut impl FnMut(&str),
    ) -> u64 {
        let guard = K::pin();
        let buffer = self.buffers.get(id);
        let state = buffer.state();
        let cells = self.leaf(state.leaf);
        let word = LeafWord::unpack(cells.header.word.load(self.medium()));
        if word.bitmap & !self.slots_mask() != 0 {
            report("slots beyond the leaf");
        }
        if state.pending > state.used || state.used > self.buffers.batch() {
            report("a buffer beyond its bounds");
            return 0;
        }
        let first = cells.slots[0].key.load(self.medium());
        if let Some(fence) = fence
            && (self.keys.verify(first).is_err() || self.keys.read(first, &guard) != K::borrow(fence))
        {
            report("slot 0 is not the fence");
        }
        let buffered = (0..state.pending).map(|at| {
            let (key, value) = buffer.slot(at);
            Item { key, value, removed: state.is_removed(at) }
        });
        let bitmap = word.bitmap & self.slots_mask();
        self.verify_items((state.leaf, bitmap), (fence, end), |_, _| None, (buffered, |_, _, _| None), report)
    }
}
