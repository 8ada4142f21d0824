//! The common invariants of both designs for a quiescent tree.

use bristlecone_pm::{Issue, Medium};

use super::leaf::tag_of;
use super::{Item, LeafLayout, Store};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::slot::bits;

impl<L: LeafLayout, K: KeyCodec, M: Medium> Store<L, K, M> {
    /// Verifies the items of the leaf at an offset with these taken slots, and its `buffered` items: each key must be
    /// unique and within the leaf's range. Returns the number of items.
    ///
    /// Calls `at_slot` with each taken slot and its fingerprint, and `at_item` with the index of each buffered item,
    /// its fingerprint, and whether the leaf has its key. Both return the problems found.
    pub fn verify_items(
        &self,
        (leaf, bitmap): (u64, u64),
        (fence, end): (Option<&K::Owned>, Option<&K::Owned>),
        at_slot: impl Fn(usize, u8) -> Option<&'static str>,
        (buffered, at_item): (impl Iterator<Item = Item>, impl Fn(usize, u8, bool) -> Option<&'static str>),
        report: &mut impl FnMut(&str),
    ) -> u64 {
        let (medium, guard) = (self.medium(), K::pin());
        let tags = self.leaf(leaf).tags(medium);
        let mut keys = Vec::new();
        for slot in bits(bitmap) {
            let cell = self.slot(leaf, slot);
            let (key, value) = (cell.key.load(medium), cell.value.load(medium));
            if let Err(error) = self.keys.verify(key).and(self.values.verify(value)) {
                report(&error.to_string());
                return 0;
            }
            let key = self.keys.read(key, &guard);
            let tag = K::fingerprint(key);
            if tag_of(tags.as_ref(), slot) != tag {
                report("fingerprint differs from its key");
            }
            at_slot(slot, tag).into_iter().for_each(&mut *report);
            keys.push((key, true));
        }
        for (number, Item { key, value, removed }) in buffered.enumerate() {
            let value_holds = if removed { Ok(()) } else { self.values.verify(value) };
            if let Err(error) = self.keys.verify(key).and(value_holds) {
                report(&error.to_string());
                return 0;
            }
            let key = self.keys.read(key, &guard);
            let mut in_leaf = false;
            keys.retain(|(held, of_leaf)| {
                if *held == key && !of_leaf {
                    report("a key is buffered twice");
                }
                in_leaf |= *held == key;
                *held != key
            });
            at_item(number, K::fingerprint(key), in_leaf).into_iter().for_each(&mut *report);
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

    /// Verifies the totals over all leaves: the link of the last one, their number, and the number of items.
    pub fn verify_totals(&self, next: u64, leaves: u64, items: u64) -> Vec<Issue> {
        let mut issues = Vec::new();
        if next != 0 {
            issues.push(Issue::new("leaves", "the chain leads beyond the index"));
        }
        if items != self.len.sum() {
            issues.push(Issue::new("tree", format!("{items} items, but a count of {}", self.len.sum())));
        }
        let live = self.leaves.stats().live_slots;
        if live != leaves {
            issues.push(Issue::new("heap", format!("{live} leaves allocated, {leaves} in the index")));
        }
        issues.extend(self.keys.check_records(items));
        issues.extend(self.values.check_records(items));
        issues
    }
}
