//! Invariants of a quiescent tree, for tests, the tool and the crash explorer.

use bristlecone_pm::{Issue, Medium, Result};

use super::WoTree;
use super::layout::State;
use super::leaf::WRONG_ORDER;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;
use crate::index::parts::optimistic_lock::LockState;
use crate::index::{Inspect, TreeStats};

/// The issues of a walk over the tree.
#[derive(Default)]
struct Census {
    issues: Vec<Issue>,
    nodes: u64,
    leaves: u64,
    items: u64,
    separators: u64,
}

/// The result of a count.
struct Count {
    items: u64,
    leaves: u64,
    /// Whether no leaf was locked. Writers update the tree's counters before they unlock, so the counters
    /// include an unlocked leaf's changes.
    at_rest: bool,
}

impl Census {
    fn note(&mut self, node: u64, what: impl Into<String>) {
        self.issues.push(Issue::new(format!("node {node:#x}"), what));
    }
}

impl<K: KeyCodec, M: Medium> Inspect for WoTree<K, M> {
    fn len(&self) -> Result<u64> {
        Ok(self.counted().0)
    }

    fn len_known(&self) -> Option<u64> {
        self.base.get().map(|_| self.counted().0)
    }

    fn stats(&self) -> Result<TreeStats> {
        let nodes = self.nodes.stats();
        let records =
            self.keys.records.stats().1 + self.values.records.stats().1 + self.separators.records.stats().1;
        Ok(TreeStats {
            items: self.len()?,
            leaves: self.counted().1,
            pm_bytes: nodes.chunks * nodes.chunk_bytes + self.log.bytes() + records,
            dram_bytes: self.nodes.dram_bytes(),
            log_bytes: self.log.bytes(),
            ..TreeStats::default()
        })
    }

    // Verifies every level from left to right, each against the one above, and the allocators against the
    // nodes found. Exact only while no thread writes.
    fn check(&self) -> Vec<Issue> {
        let mut census = Census::default();
        if let Err(error) = self.walk(&mut census) {
            census.issues.push(Issue::new("tree", error.to_string()));
            return census.issues;
        }
        let mut counts = vec![
            ("items", self.counted().0, census.items),
            ("nodes", self.nodes.swept_stats().live_slots, census.nodes),
            ("leaves", self.counted().1, census.leaves),
        ];
        if !K::INLINE {
            self.keys.records.sweep_all(&|offset| self.refers_to_key(offset));
            self.separators.records.sweep_all(&|offset| self.is_separator(offset));
            counts.push((
                "key records",
                self.keys.records.stats().0 - self.keys.records.limbo(),
                census.items,
            ));
            let separators = self.separators.records.stats().0 - self.separators.records.limbo();
            counts.push(("separators", separators, census.separators));
        }
        if !self.values.are_words() {
            self.values.records.sweep_all(&|offset| self.refers_to_value(offset));
            counts.push((
                "value records",
                self.values.records.stats().0 - self.values.records.limbo(),
                census.items,
            ));
        }
        let wrong = counts.into_iter().filter(|(_, said, found)| said != found);
        let wrong =
            wrong.map(|(what, said, found)| Issue::new("tree", format!("{found} {what}, not {said}")));
        census.issues.extend(wrong);
        census.issues
    }

    fn damage(&self) -> Vec<Issue> {
        self.damage.issues()
    }
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    fn walk(&self, census: &mut Census) -> Result<()> {
        let mut first = self.root();
        let mut level = match self.nodes.state(first) {
            Some(State::Leaf { .. }) => 0,
            Some(State::Inner { level }) => level,
            _ => return Err(self.damaged("a root that is no node", first)),
        };
        // The entries of the level above, as (least key's word, node); the root has none.
        let mut above: Vec<(Option<u64>, u64)> = vec![(None, first)];
        loop {
            let nodes = self.level(first, level)?;
            if nodes.is_empty() {
                return Err(self.damaged("a level without a node", first));
            }
            census.nodes += nodes.len() as u64;
            if nodes.iter().ne(above.iter().map(|(_, node)| node)) {
                census.note(first, format!("level {level} differs from the entries of the level above"));
            }
            let mut low = None;
            for (&node, &(entry, _)) in nodes.iter().zip(&above) {
                let link = self.nodes.link(node, level);
                if !self.same_separator(low, entry) {
                    census.note(node, "its range does not begin where its entry says");
                }
                let high = (link.next.load(self.medium()) != 0).then(|| link.high.load(self.medium()));
                self.verify_range(node, low, high, census);
                low = high;
            }
            if level == 0 {
                census.leaves = nodes.len() as u64;
                census.separators = nodes.len() as u64 - 1;
                let mut low = None;
                for &leaf in &nodes {
                    self.verify_leaf(leaf, low, census);
                    low = Some(self.nodes.leaf_link(leaf).high.load(self.medium()));
                }
                return Ok(());
            }
            let entries = self.entries_of(&nodes, level, census);
            (first, level) = (self.nodes.entry(first, 0).word.load(self.medium()), level - 1);
            above = entries;
        }
    }

    /// Returns the nodes of a level from the left end on.
    pub(super) fn level(&self, mut node: u64, level: u8) -> Result<Vec<u64>> {
        let most = self.pool.max_bytes() / self.shape.node_bytes;
        let mut nodes = Vec::new();
        while node != 0 {
            self.nodes.lock(node)?;
            nodes.push(node);
            if nodes.len() as u64 > most {
                return Err(self.damaged("nodes that lead in a circle", node));
            }
            node = self.nodes.link(node, level).next.load(self.medium());
        }
        Ok(nodes)
    }

    fn same_separator(&self, one: Option<u64>, other: Option<u64>) -> bool {
        let guard = K::pin();
        let key = |word: Option<u64>| word.map(|word| K::owned(self.separator(word, &guard)));
        key(one) == key(other)
    }

    fn verify_range(&self, node: u64, low: Option<u64>, high: Option<u64>, census: &mut Census) {
        let guard = K::pin();
        let Some(high) = high else { return };
        if let Err(error) = self.separators.verify(high) {
            census.note(node, error.to_string());
        } else if low.is_some_and(|low| self.separator(low, &guard) >= self.separator(high, &guard)) {
            census.note(node, "a range that ends before it begins");
        }
    }

    /// Returns the entries of a level, each node's first one with the range that it inherits.
    fn entries_of(&self, nodes: &[u64], level: u8, census: &mut Census) -> Vec<(Option<u64>, u64)> {
        let (medium, guard) = (self.medium(), K::pin());
        let mut entries = Vec::new();
        let mut low = None;
        for &node in nodes {
            if self.nodes.state(node) != Some(State::Inner { level }) {
                census.note(node, format!("no inner node of level {level}"));
            }
            let high = self.nodes.link(node, level).high.load(medium);
            let end = self.nodes.link(node, level).next.load(medium) != 0;
            let mut previous = low;
            for at in 0..self.count(node) {
                let entry = self.nodes.entry(node, at);
                let (key, child) = (entry.key.load(medium), entry.word.load(medium));
                if at == 0 {
                    entries.push((low, child));
                    continue;
                }
                let key_of = |word| self.separator(word, &guard);
                let below = previous.is_some_and(|previous| key_of(previous) >= key_of(key));
                if below || end && key_of(key) >= key_of(high) {
                    census.note(node, "entries out of order or range");
                }
                if entries.last().is_some_and(|&(_, left)| left == child) {
                    // A duplicate, which the next change of the node removes.
                    continue;
                }
                entries.push((Some(key), child));
                previous = Some(key);
            }
            low = Some(high);
        }
        entries
    }

    /// Verifies that items lie within the leaf's range, in strict order, and that the slot array matches the
    /// bitmap.
    fn verify_leaf(&self, leaf: u64, low: Option<u64>, census: &mut Census) {
        let (medium, guard) = (self.medium(), K::pin());
        let Some((bitmap, valid)) = self.bitmap(leaf) else {
            return census.note(leaf, "a reference to no leaf");
        };
        let Ok(view) = self.view(leaf, &guard, || true) else {
            return census.note(leaf, "a leaf that cannot be read");
        };
        census.items += u64::from(bitmap.count_ones());
        if valid && !view.is_sound() {
            census.note(leaf, WRONG_ORDER);
        }
        let mut keys = Vec::new();
        for &slot in view.order.slots() {
            let item = self.nodes.item(leaf, slot.into());
            let (key, value) = (item.key.load(medium), item.word.load(medium));
            if let Err(error) = self.keys.verify(key).and_then(|()| self.verify_stored(key, value)) {
                return census.note(leaf, error.to_string());
            }
            keys.push(self.keys.read(key, &guard));
        }
        let link = self.nodes.leaf_link(leaf);
        let high = (link.next.load(medium) != 0).then(|| link.high.load(medium));
        let below = low.zip(keys.first()).is_some_and(|(low, first)| *first < self.separator(low, &guard));
        let above = high.zip(keys.last()).is_some_and(|(high, last)| *last >= self.separator(high, &guard));
        if below || above || !keys.is_sorted_by(|a, b| a < b) {
            census.note(leaf, "keys out of order or range");
        }
    }

    /// Returns the first leaf, without waiting for writers. Returns `None` if the path to it is damaged.
    fn first_leaf(&self) -> Option<u64> {
        loop {
            let root = self.root();
            let (mut node, mut above) = (root, u8::MAX);
            loop {
                match self.nodes.state(node) {
                    Some(State::Leaf { .. }) => return Some(node),
                    // No node on this path is ever freed except the root.
                    Some(State::Inner { level }) if level < above => {
                        above = level;
                        node = self.nodes.entry(node, 0).word.load(self.medium());
                        self.nodes.lock(node).ok()?;
                    }
                    _ if self.root() == root => return None,
                    _ => break,
                }
            }
        }
    }

    /// Returns (items, leaves). Recovery does not count. The first thread that asks afterwards counts, and
    /// the result is kept if nothing was changed meanwhile.
    pub(super) fn counted(&self) -> (u64, u64) {
        let changes = || [&self.added, &self.grown, &self.removed, &self.freed].map(Counter::sum);
        if let Some((items, leaves)) = self.base.get() {
            let [added, grown, removed, freed] = changes();
            return ((items + added).saturating_sub(removed), (leaves + grown).saturating_sub(freed));
        }
        let before = changes();
        let found = self.count_all();
        // A writer that is between a change and its count holds its leaf's lock.
        if found.at_rest && changes() == before && !self.pool.is_followed() {
            let [added, grown, removed, freed] = before;
            let items = (found.items + removed).saturating_sub(added);
            let leaves = (found.leaves + freed).saturating_sub(grown);
            // A second thread found the same.
            self.base.set((items, leaves));
        }
        (found.items, found.leaves)
    }

    /// Counts from leaf to leaf. Concurrent changes may or may not be included.
    fn count_all(&self) -> Count {
        let mut count = Count { items: 0, leaves: 0, at_rest: true };
        let _pinned = bristlecone_pm::sync::epoch::pin();
        let most = self.pool.max_bytes() / self.shape.node_bytes;
        let Some(mut leaf) = self.first_leaf() else { return Count { at_rest: false, ..count } };
        while leaf != 0 && count.leaves < most {
            let Ok(lock) = self.nodes.lock(leaf) else { return Count { at_rest: false, ..count } };
            let version = match lock.try_read() {
                LockState::Free(version) => Some(version),
                LockState::Locked | LockState::Obsolete => None,
            };
            let bitmap = self.bitmap(leaf).map_or(0, |(bitmap, _)| bitmap);
            let next = self.nodes.leaf_link(leaf).next.load(self.medium());
            count.at_rest &= version.is_some_and(|version| lock.validate(version));
            count.items += u64::from(bitmap.count_ones());
            count.leaves += 1;
            leaf = next;
        }
        count
    }
}
