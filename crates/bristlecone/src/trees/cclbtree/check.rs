//! Invariants of a tree at rest, for tests, the tool and the crash explorer.

use bristlecone_pm::{Finding, Medium};

use super::Core;
use super::layout::LeafWord;
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::fingerprint;
use crate::shared::slot::bits;

impl<K: KeyCodec, V: Codec, M: Medium> Core<K, V, M> {
    /// Verifies every leaf and its buffer against the index, the chain and the allocator. The
    /// counts are exact only while nobody writes.
    pub(super) fn verify(&self) -> Vec<Finding> {
        let mut findings = self.inner.check();
        let mut leaves = Vec::new();
        self.inner.for_each_leaf(|fence, id| leaves.push((fence.map(K::owned), id)));
        let (mut items, mut next) = (0, self.first);
        for (at, (fence, id)) in leaves.iter().enumerate() {
            let offset = self.buffers.get(*id).state().leaf;
            let mut report = |what: &str| findings.push(Finding::new(format!("leaf at {offset:#x}"), what));
            if offset != next {
                report("not where the leaf before it leads");
                break;
            }
            next = LeafWord::unpack(self.leaf(offset).header.word.load(self.medium())).next;
            let end = leaves.get(at + 1).and_then(|(fence, _)| fence.as_ref());
            items += self.verify_leaf(*id, fence.as_ref(), end, &mut report);
        }
        if next != 0 {
            findings.push(Finding::new("leaves", "the chain leads beyond the index"));
        }
        if items != self.len.sum() {
            findings.push(Finding::new("tree", format!("{items} items, but a count of {}", self.len.sum())));
        }
        let live = self.leaves.stats().live_slots;
        if live != leaves.len() as u64 {
            findings.push(Finding::new(
                "heap",
                format!("{live} leaves allocated, {} in the index", leaves.len()),
            ));
        }
        findings.extend(K::check_records(&self.keys, items));
        findings.extend(V::check_records(&self.values, items));
        findings
    }

    /// Keys lie within the leaf's range, once each; how many there are.
    fn verify_leaf(
        &self,
        id: u32,
        fence: Option<&K::Owned>,
        end: Option<&K::Owned>,
        report: &mut impl FnMut(&str),
    ) -> u64 {
        let guards = (K::pin(), V::pin());
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
            && (K::verify(&self.keys, first).is_err()
                || K::read(&self.keys, first, &guards.0) != K::borrow(fence))
        {
            report("slot 0 is not the fence");
        }
        let tags = cells.header.fingerprints.load(self.medium());
        let mut keys = Vec::new();
        for slot in bits(word.bitmap & self.slots_mask()) {
            let cell = &cells.slots[slot];
            let (key, value) = (cell.key.load(self.medium()), cell.value.load(self.medium()));
            if let Err(error) = K::verify(&self.keys, key).and(V::verify(&self.values, value)) {
                report(&error.to_string());
                return 0;
            }
            let key = K::read(&self.keys, key, &guards.0);
            if fingerprint::probe(tags, K::fingerprint(key)) >> slot & 1 == 0 {
                report("fingerprint differs from its key");
            }
            keys.push((key, true));
        }
        for at in 0..state.pending {
            let (key, value) = buffer.slot(at);
            let removed = state.is_removed(at);
            let value_holds = if removed { Ok(()) } else { V::verify(&self.values, value) };
            if let Err(error) = K::verify(&self.keys, key).and(value_holds) {
                report(&error.to_string());
                return 0;
            }
            let key = K::read(&self.keys, key, &guards.0);
            keys.retain(|(held, in_leaf)| {
                if *held == key && !in_leaf {
                    report("a key pends twice");
                }
                *held != key
            });
            if !removed {
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
