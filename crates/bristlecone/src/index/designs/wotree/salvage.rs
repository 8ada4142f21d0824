//! Salvaging the items of a damaged tree. Nothing is trusted: leaves are found by sweeping the tree's
//! chunks, ignoring inner nodes and `next`, and read one by one.
//!
//! A leaf has no checksum. Two criteria identify valid items: the checksums of their records, for keys
//! and values out of line, and the order of leaves. A key must lie between the medians of the leaves to
//! the left and to the right of its own; a few wrong keys do not move a median. A node with an invalid
//! state is read last, if another one refers to it as a leaf, and only for keys outside the range of
//! every other leaf.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use bristlecone_pm::sync::epoch::pin;
use bristlecone_pm::{Error, Medium, PoolFile, Result, TreeEntry, Word};

use super::layout::{NODES, Shape, State};
use super::leaf::Order;
use super::log::Record;
use super::{WoTree, WoTreeOptions};
use crate::index::parts::codec::KeyCodec;
use crate::index::{Described, Inspect, Open, SalvageSink};

/// A leaf with keys.
struct Piece<K: KeyCodec> {
    leaf: u64,
    /// Key word and value word of each readable item.
    items: Vec<(u64, u64)>,
    median: K::Owned,
    /// The least and the greatest of the keys between the medians of the adjacent leaves.
    range: Option<(K::Owned, K::Owned)>,
}

impl<K: KeyCodec> Piece<K> {
    fn by_median(&self, other: &Self) -> Ordering {
        self.median.cmp(&other.median)
    }
}

/// Compares the first elements of pairs.
fn by_first<A: Ord, B>(a: &(A, B), b: &(A, B)) -> Ordering {
    a.0.cmp(&b.0)
}

/// Result of a sweep over the nodes.
#[derive(Default)]
struct Found {
    leaves: Vec<u64>,
    /// Nodes that are neither leaves nor inner nodes according to their states.
    others: Vec<u64>,
    /// Offsets that are referred to as leaves.
    named: HashSet<u64>,
}

/// Splits of leaves in the log: leaves whose items from the separator on belong to another leaf, and
/// leaves that are not in the tree yet.
#[derive(Default)]
struct Splits {
    moved: Vec<(u64, u64)>,
    unborn: Vec<u64>,
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Passes on the readable contents of a tree that was not recovered, and then reports its other
    /// problems.
    pub(super) fn save(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: WoTreeOptions,
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<()> {
        Self::unrecovered(pool, entry, options, false)?.sweep(sink)?;
        if sink.issues.is_empty() {
            // Every leaf is read. The path to them may still be damaged.
            match Self::open(pool, entry, options, 1) {
                Ok(tree) => sink.find_all(tree.check()),
                Err(error) => sink.find("tree".to_owned(), error.to_string()),
            }
        }
        Ok(())
    }

    fn sweep(&self, sink: &mut SalvageSink<'_, K>) -> Result<()> {
        let splits = self.splits(sink);
        let mut found = self.found();
        found.leaves.retain(|leaf| !splits.unborn.contains(leaf));
        let mut leaves: Vec<_> =
            found.leaves.iter().filter_map(|&leaf| self.piece(leaf, &splits, sink)).collect();
        leaves.sort_by(Piece::by_median);
        for at in 0..leaves.len() {
            leaves[at].range = self.save_leaf(&leaves, at, sink)?;
        }
        for &node in found.others.iter().filter(|node| found.named.contains(node)) {
            self.save_in_doubt(node, &leaves, sink)?;
        }
        Ok(())
    }

    fn found(&self) -> Found {
        let (medium, mut found) = (self.medium(), Found::default());
        for node in self.nodes.all() {
            match self.nodes.state(node) {
                Some(State::Leaf { .. }) => {
                    found.leaves.push(node);
                    found.named.insert(self.nodes.leaf_link(node).next.load(medium));
                }
                Some(State::Inner { level }) => {
                    let children =
                        (0..self.count(node)).map(|at| self.nodes.entry(node, at).word.load(medium));
                    found.named.extend(children.filter(|_| level == 1));
                }
                Some(State::Free) | None => {
                    found.others.push(node);
                }
            }
        }
        if found.leaves.is_empty() {
            // The only leaf is the root.
            found.named.insert(self.root());
        }
        found
    }

    fn splits(&self, sink: &mut SalvageSink<'_, K>) -> Splits {
        let mut splits = Splits::default();
        for lane in self.log.all() {
            match lane.read() {
                Ok(Some(Record::Split { left, right, separator, level: 0 })) => {
                    let nodes = self.nodes.lock(left).and(self.nodes.lock(right));
                    if nodes.is_err() {
                        sink.find("log".to_owned(), "a split of nodes that are none");
                    } else if self.nodes.leaf_link(left).next.load(self.medium()) != right {
                        splits.unborn.push(right);
                    } else if let Err(error) = self.separators.verify(separator) {
                        sink.find("log".to_owned(), error.to_string());
                    } else {
                        splits.moved.push((left, separator));
                    }
                }
                Ok(_) => {}
                Err(kind) => sink.find("log".to_owned(), format!("unknown record {kind:#x}")),
            }
        }
        splits
    }

    /// Returns key word and value word of a slot, if both are readable.
    fn item_in(&self, leaf: u64, slot: usize) -> Result<(u64, u64)> {
        let item = self.nodes.item(leaf, slot);
        let (key, value) = (item.key.load(self.medium()), item.word.load(self.medium()));
        self.keys.verify(key)?;
        self.verify_stored(key, value)?;
        Ok((key, value))
    }

    /// Reads a whole leaf; returns `None` if it has no readable item.
    fn piece(&self, leaf: u64, splits: &Splits, sink: &mut SalvageSink<'_, K>) -> Option<Piece<K>> {
        let guard = K::pin();
        let (bitmap, valid) = self.bitmap(leaf)?;
        let told = |word: u64| bitmap >> word & 1 != 0;
        let order = self.order_of(leaf);
        if valid && order.is_none_or(|order| order.bitmap() != bitmap) {
            sink.find(format!("node {leaf:#x}"), "slot array differs from the bitmap");
        }
        let end = splits.moved.iter().find(|(left, _)| *left == leaf).map(|&(_, separator)| separator);
        let mut items = Vec::new();
        for slot in (0..self.shape.slots).filter(|&slot| told(slot as u64)) {
            match self.item_in(leaf, slot) {
                Ok((key, _))
                    if end.is_some_and(|end| self.keys.read(key, &guard) >= self.separator(end, &guard)) => {}
                Ok(item) => items.push(item),
                Err(error) => {
                    sink.lost += 1;
                    sink.find(format!("node {leaf:#x}"), error.to_string());
                }
            }
        }
        self.piece_of(leaf, items)
    }

    fn piece_of(&self, leaf: u64, items: Vec<(u64, u64)>) -> Option<Piece<K>> {
        let guard = K::pin();
        let with_key = |item: (u64, u64)| (self.keys.read(item.0, &guard), item);
        let mut items: Vec<_> = items.into_iter().map(with_key).collect();
        items.sort_by(by_first);
        let median = K::owned(items.get(items.len() / 2)?.0);
        let items = items.into_iter().map(|(_, item)| item).collect();
        Some(Piece { leaf, items, median, range: None })
    }

    /// Returns the slot array of a leaf, if it is plausible.
    fn order_of(&self, leaf: u64) -> Option<Order> {
        let words: Vec<u64> =
            self.nodes.slot_words(leaf).iter().map(|word| word.load(self.medium())).collect();
        Order::of_words(&words, self.shape.slots)
    }

    /// Passes on the items of a leaf, except those whose keys lie beyond the adjacent leaves; returns
    /// the range of those passed on.
    fn save_leaf(
        &self,
        leaves: &[Piece<K>],
        at: usize,
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<Option<(K::Owned, K::Owned)>> {
        let Piece { leaf, items, median, .. } = &leaves[at];
        let left = leaves[..at].iter().rev().map(|other| &other.median).find(|other| *other != median);
        let right = leaves[at + 1..].iter().map(|other| &other.median).find(|other| *other != median);
        let pins = (K::pin(), pin());
        let mut range: Option<(K::Ref<'_>, K::Ref<'_>)> = None;
        for &(key, value) in items {
            let key = self.keys.read(key, &pins.0);
            if is_between::<K>(key, [left, right]) {
                range = Some(range.map_or((key, key), |(low, high)| (low.min(key), high.max(key))));
                sink.keep(key, self.values.read(value, &pins.1))?;
            } else {
                sink.lost += 1;
                sink.find(format!("node {leaf:#x}"), "a key that does not belong there");
            }
        }
        Ok(range.map(|(low, high)| (K::owned(low), K::owned(high))))
    }

    /// Passes on the items of a leaf with an invalid state: those of its slot array, or of all its
    /// slots if that is invalid, too.
    fn save_in_doubt(&self, node: u64, leaves: &[Piece<K>], sink: &mut SalvageSink<'_, K>) -> Result<()> {
        let order = self.order_of(node).filter(|order| !order.slots().is_empty());
        let slots: Vec<usize> = match &order {
            Some(order) => order.slots().iter().map(|&slot| slot.into()).collect(),
            None => (0..self.shape.slots).collect(),
        };
        let items = slots.iter().filter_map(|&slot| self.item_in(node, slot).ok()).collect();
        let mut taken = 0_u64;
        if let Some(Piece { items, median, .. }) = self.piece_of(node, items) {
            let pins = (K::pin(), pin());
            let right_of = |key: K::Ref<'_>| {
                leaves.partition_point(|leaf| K::shorten(K::borrow(&leaf.median)) <= K::shorten(key))
            };
            let right = right_of(K::borrow(&median));
            let medians = [right.checked_sub(1), Some(right)].map(|at| Some(&leaves.get(at?)?.median));
            for (key, value) in items {
                let key = self.keys.read(key, &pins.0);
                let at = right_of(key);
                let beside = [at.checked_sub(1), Some(at)].map(|at| leaves.get(at?)?.range.as_ref());
                let covered = beside.into_iter().flatten().any(|(low, high)| {
                    K::shorten(K::borrow(low)) <= K::shorten(key)
                        && K::shorten(key) <= K::shorten(K::borrow(high))
                });
                if !covered && is_between::<K>(key, medians) {
                    taken += 1;
                    sink.keep(key, self.values.read(value, &pins.1))?;
                }
            }
        }
        let what = format!("its state cannot be believed: {taken} items are taken as they stand");
        sink.find(format!("node {node:#x}"), what);
        Ok(())
    }

    /// Rejects a tree that has nodes but no root. Nothing is changed.
    pub(super) fn expect_no_nodes(pool: &PoolFile<M>, entry: &TreeEntry, shape: Shape) -> Result<()> {
        let chunks = pool.chunks_of(entry.id);
        let chunks = chunks.iter().filter(|chunk| chunk.kind == NODES).map(|chunk| chunk.offset);
        let nodes =
            chunks.flat_map(|chunk| (chunk..chunk + pool.chunk_bytes()).step_by(shape.node_bytes as usize));
        let free = |&node: &u64| pool.at::<Word>(node).load(pool.medium()) == State::Free.encode();
        // An interrupted creation wrote to one node.
        match nodes.filter(|node| !free(node)).nth(1) {
            Some(node) => Err(Error::corrupted("a tree without its root", format!("node {node:#x}"))),
            None => Ok(()),
        }
    }
}

fn is_between<K: KeyCodec>(key: K::Ref<'_>, [left, right]: [Option<&K::Owned>; 2]) -> bool {
    let above = left.is_none_or(|left| K::shorten(key) >= K::shorten(K::borrow(left)));
    above && right.is_none_or(|right| K::shorten(key) <= K::shorten(K::borrow(right)))
}
