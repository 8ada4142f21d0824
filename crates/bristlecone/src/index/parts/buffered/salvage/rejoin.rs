//! Where a broken chain of leaves continues. All slots that may hold a leaf are candidates, including leaves that
//! were freed.
//!
//! A merge or a split raises the stamp of each leaf that takes over a range above all stamps that the range had
//! before. Of two leaves with overlapping ranges, the one with the lower stamp was therefore freed. A freed leaf may
//! refer to a slot or to a record that was reused since, and then its own range is wrong. Its range is not believed if
//! a newer leaf begins within it, if its low fence is in the range of a newer leaf, or if it has items outside of it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use bristlecone_pm::{LogEntry, Medium};

use super::{LeafLayout, Member, Relic, Relics};
use crate::index::parts::codec::KeyCodec;

/// A slot that may hold a leaf behind a broken link.
struct Candidate<K: KeyCodec> {
    leaf: u64,
    low: K::Owned,
    stamp: u64,
    next: Next<K>,
    is_empty: bool,
    /// Whether it has items, all of them within its range.
    is_plausible: bool,
}

/// The link of a candidate.
enum Next<K: KeyCodec> {
    /// It is the last leaf.
    None,
    Leaf(u64, K::Owned),
    Broken,
}

impl<K: KeyCodec> Candidate<K> {
    fn next(&self) -> Option<u64> {
        match &self.next {
            Next::Leaf(next, _) => Some(*next),
            Next::None | Next::Broken => None,
        }
    }

    /// Returns the index behind those candidates whose low fences are within this one's range.
    fn beyond(&self, all: &[Self]) -> Option<usize> {
        match &self.next {
            Next::None => Some(all.len()),
            Next::Leaf(_, end) => Some(all.partition_point(|other| other.low < *end)),
            Next::Broken => None,
        }
    }
}

impl<L: LeafLayout, M: Medium> Relics<'_, L, M> {
    /// Returns the leaf where a broken chain continues.
    pub(super) fn resume<K: KeyCodec>(&self, chain: &[Member<K>], seen: &HashSet<u64>) -> Option<u64> {
        let last = chain.last();
        let held = last.into_iter().flat_map(|member| self.read(member.offset).items);
        let keys = held.filter_map(|[key, _]| self.key::<K>(key));
        let bound = keys.chain(last.and_then(|member| member.low.clone())).max();
        let unseen = self.places.all().filter(|leaf| !seen.contains(leaf));
        let mut leaves: Vec<Candidate<K>> = unseen
            .filter_map(|leaf| self.candidate(leaf))
            .filter(|candidate| bound.as_ref().is_none_or(|bound| *bound < candidate.low))
            .collect();
        // A slot that never held a leaf looks like an empty one at the end.
        let named: HashSet<u64> = leaves.iter().filter_map(Candidate::next).collect();
        leaves
            .retain(|leaf| !leaf.is_empty || !matches!(leaf.next, Next::None) || named.contains(&leaf.leaf));
        // Of leaves with equal low fences, all but the newest were freed.
        leaves.sort_by(|a, b| a.low.cmp(&b.low).then(b.stamp.cmp(&a.stamp)));
        drop_superseded(&mut leaves);
        best_start(&leaves)
    }

    /// Reads a slot that may hold a leaf.
    fn candidate<K: KeyCodec>(&self, leaf: u64) -> Option<Candidate<K>> {
        let fence_of = |relic: &Relic| self.key::<K>(relic.fence).filter(|_| relic.flaw.is_none());
        let relic = self.read(leaf);
        let low = fence_of(&relic)?;
        let end = self.leaf(relic.next).and_then(|next| fence_of(&next)).filter(|end| low < *end);
        let next = match end {
            _ if relic.next == 0 => Next::None,
            Some(end) => Next::Leaf(relic.next, end),
            None => Next::Broken,
        };
        let mut keys = relic.items.iter().filter_map(|[key, _]| self.key::<K>(*key)).peekable();
        let fits = |key: K::Owned| low <= key && !matches!(&next, Next::Leaf(_, end) if *end <= key);
        let is_plausible = keys.peek().is_some() && keys.all(fits);
        // A stamp beyond all sequences says nothing.
        let stamp = if relic.stamp > LogEntry::SEQUENCE_BELIEVED_MAX { 0 } else { relic.stamp };
        Some(Candidate { leaf, low, stamp, next, is_empty: relic.items.is_empty(), is_plausible })
    }
}

/// Drops candidates, in key order, whose low fences are in the range of a newer leaf.
fn drop_superseded<K: KeyCodec>(leaves: &mut Vec<Candidate<K>>) {
    let is_kept: Vec<bool> = {
        // The leaves whose ranges contain the current key, the highest stamp first.
        let mut open: BinaryHeap<(u64, usize)> = BinaryHeap::new();
        let keep = |(at, leaf): (usize, &Candidate<K>)| {
            while open.peek().is_some_and(|(_, beyond)| *beyond <= at) {
                open.pop();
            }
            let is_kept = open.peek().is_none_or(|(newest, _)| *newest <= leaf.stamp);
            let beyond = leaf.beyond(leaves).filter(|_| is_kept && leaf.is_plausible);
            let is_newest =
                |beyond: &usize| leaves[at..*beyond].iter().all(|other| other.stamp <= leaf.stamp);
            open.extend(beyond.filter(is_newest).map(|beyond| (leaf.stamp, beyond)));
            is_kept
        };
        leaves.iter().enumerate().map(keep).collect()
    };
    let mut is_kept = is_kept.into_iter();
    leaves.retain(|_| is_kept.next() == Some(true));
}

/// Returns the candidate whose path, to the end of the chain or to the next broken link, skips the fewest others; of
/// several, that with the longest path. The path of a freed leaf joins the chain further on. A leaf on a path that is
/// older than one within its range was probably freed, and counts like a skipped one.
fn best_start<K: KeyCodec>(leaves: &[Candidate<K>]) -> Option<u64> {
    // For each leaf, from right to left: the index behind its path, and the numbers of all and of old leaves on it.
    let mut paths: HashMap<u64, (usize, usize, usize)> = HashMap::new();
    let mut best = None;
    for (at, leaf) in leaves.iter().enumerate().rev() {
        let path = match leaf.next {
            Next::None => Some((leaves.len(), 0, 0)),
            Next::Broken => Some((at + 1, 0, 0)),
            Next::Leaf(next, _) => paths.get(&next).copied(),
        };
        let Some((behind, len, old)) = path else { continue };
        let within = &leaves[at..leaf.beyond(leaves).unwrap_or(at)];
        let is_old = within.iter().any(|other| other.is_plausible && other.stamp > leaf.stamp);
        let (len, old) = (len + 1, old + usize::from(is_old));
        paths.insert(leaf.leaf, (behind, len, old));
        let found = (behind - len + old, Reverse(len), leaf.leaf);
        best = Some(best.map_or(found, |best| found.min(best)));
    }
    best.map(|(.., leaf)| leaf).or(leaves.first().map(|first| first.leaf))
}
