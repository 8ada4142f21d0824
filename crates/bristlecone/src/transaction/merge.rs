//! Ranges over a past state of a tree: leaf by leaf, with later changes undone.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use bristlecone_pm::Result;

use super::any_tree::Scan;
use crate::index::is_empty;

/// A range of keys.
pub type Bounds<'a, K> = (Bound<&'a K>, Bound<&'a K>);

/// Items that replace those of the tree, by key; `None` removes the key.
pub type Overlay<S> = BTreeMap<<S as Scan>::Key, Option<<S as Scan>::Value>>;

/// An item of a scan.
type Item<S> = (<S as Scan>::Key, <S as Scan>::Value);

/// A scan from both ends.
pub struct Merge<S: Scan> {
    scan: S,
    /// Keys that neither end has read yet.
    from: Bound<S::Key>,
    to: Bound<S::Key>,
    is_read: bool,
    front: VecDeque<Item<S>>,
    back: VecDeque<Item<S>>,
}

impl<S: Scan> Merge<S> {
    pub fn new(scan: S, from: Bound<S::Key>, to: Bound<S::Key>) -> Self {
        let is_read = is_empty(&from, &to);
        Self { scan, from, to, is_read, front: VecDeque::new(), back: VecDeque::new() }
    }

    /// Returns the next item from an end. `changed` returns the replacements of the tree's items between bounds,
    /// which were read before.
    #[inline]
    pub fn next(
        &mut self,
        forward: bool,
        changed: impl FnMut(Bounds<'_, S::Key>) -> Result<Overlay<S>>,
    ) -> Result<Option<Item<S>>> {
        match if forward { self.front.pop_front() } else { self.back.pop_back() } {
            None => self.next_read(forward, changed),
            at_hand => Ok(at_hand),
        }
    }

    fn next_read(
        &mut self,
        forward: bool,
        mut changed: impl FnMut(Bounds<'_, S::Key>) -> Result<Overlay<S>>,
    ) -> Result<Option<Item<S>>> {
        while !self.is_read {
            self.read(forward, &mut changed)?;
            let at_hand = if forward { self.front.pop_front() } else { self.back.pop_back() };
            if at_hand.is_some() {
                return Ok(at_hand);
            }
        }
        // Only items buffered by the other end are left.
        Ok(if forward { self.back.pop_front() } else { self.front.pop_back() })
    }

    /// Reads a leaf, and the changes within its key range.
    fn read(
        &mut self,
        forward: bool,
        changed: &mut impl FnMut(Bounds<'_, S::Key>) -> Result<Overlay<S>>,
    ) -> Result<()> {
        // The buffer is empty, and its memory is reused.
        let at_hand = if forward { &mut self.front } else { &mut self.back };
        let mut items = Vec::from(std::mem::take(at_hand));
        let read = self.scan.next(forward, (self.from.as_ref(), self.to.as_ref()), &mut items);
        let more = read.inspect_err(|_| self.is_read = true)?;
        let last =
            if forward { items.last() } else { items.first() }.filter(|_| more).map(|(key, _)| key.clone());
        let limit = last.as_ref().map(Bound::Included);
        let stretch = match forward {
            true => (self.from.as_ref(), limit.unwrap_or(self.to.as_ref())),
            false => (limit.unwrap_or(self.from.as_ref()), self.to.as_ref()),
        };
        let overlay = changed(stretch).inspect_err(|_| self.is_read = true)?;
        match (last, forward) {
            (Some(last), true) => self.from = Bound::Excluded(last),
            (Some(last), false) => self.to = Bound::Excluded(last),
            (None, _) => self.is_read = true,
        }
        self.is_read |= is_empty(&self.from, &self.to);
        let merged = if overlay.is_empty() { items } else { merge(items, overlay) };
        *if forward { &mut self.front } else { &mut self.back } = merged.into();
        Ok(())
    }
}

/// Applies the overlay to items, both in ascending order.
fn merge<K: Ord, V>(items: Vec<(K, V)>, overlay: BTreeMap<K, Option<V>>) -> Vec<(K, V)> {
    let mut merged = Vec::with_capacity(items.len() + overlay.len());
    let (mut items, mut over) = (items.into_iter().peekable(), overlay.into_iter().peekable());
    loop {
        let is_over = match (items.peek(), over.peek()) {
            (_, None) => {
                merged.extend(items);
                return merged;
            }
            (None, Some(_)) => true,
            (Some((key, _)), Some((changed, _))) => changed <= key,
        };
        if !is_over {
            merged.extend(items.next());
            continue;
        }
        let Some((key, value)) = over.next() else { continue };
        let _replaced = items.next_if(|(held, _)| *held == key);
        merged.extend(value.map(|value| (key, value)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source of leaves with a given number of items.
    struct Few(Vec<u64>, usize);

    impl Scan for Few {
        type Key = u64;
        type Value = u64;

        fn next(
            &mut self,
            forward: bool,
            bounds: Bounds<'_, u64>,
            into: &mut Vec<(u64, u64)>,
        ) -> Result<bool> {
            use std::ops::RangeBounds;
            let within: Vec<u64> = self.0.iter().copied().filter(|key| bounds.contains(key)).collect();
            let len = within.len().min(self.1);
            let leaf = if forward { &within[..len] } else { &within[within.len() - len..] };
            into.extend(leaf.iter().map(|&key| (key, key)));
            Ok(len > 0)
        }
    }

    /// Compares every pattern of ends, for every leaf size, with a naive implementation.
    #[test]
    fn a_merge_is_what_a_map_gives() {
        let keys: Vec<u64> = (0..20).filter(|key| key % 3 != 0).collect();
        let changed: BTreeMap<u64, Option<u64>> = (0..22)
            .filter(|key| key % 4 == 1)
            .map(|key| (key, (key % 8 == 1).then_some(100 + key)))
            .collect();
        let overlay = |bounds: Bounds<'_, u64>| {
            use std::ops::RangeBounds;
            let within = changed.iter().map(|(key, value)| (*key, *value));
            Ok(within.filter(|(key, _)| bounds.contains(key)).collect())
        };
        for (from, to) in (0..22).flat_map(|from| (0..23).map(move |to| (from, to))) {
            let mut model: BTreeMap<u64, u64> = keys.iter().map(|key| (*key, *key)).collect();
            for (key, value) in &changed {
                match value {
                    Some(value) => _ = model.insert(*key, *value),
                    None => _ = model.remove(key),
                }
            }
            let expected: VecDeque<_> =
                model.into_iter().filter(|(key, _)| (from..to).contains(key)).collect();
            for (leaf, pattern) in [(1, 0), (3, u64::MAX), (4, 0xaaaa_aaaa), (7, 0x0f0f_3333)] {
                let scan = Few(keys.clone(), leaf);
                let mut merge = Merge::new(scan, Bound::Included(from), Bound::Excluded(to));
                let mut expected = expected.clone();
                for step in 0..40 {
                    let forward = pattern >> step & 1 == 0;
                    let next = if forward { expected.pop_front() } else { expected.pop_back() };
                    let found = merge.next(forward, overlay).unwrap();
                    assert_eq!(found, next);
                }
            }
        }
    }
}
