//! Where a broken chain of leaves continues. Every slot that may hold a leaf is a candidate, including leaves that
//! were freed.
//!
//! Stamps decide. A merge gives the leaf that takes over a range a stamp above all that the range had before, and a
//! split never lowers one. So the leaf whose range contains the low fence of a freed leaf has a higher stamp than the
//! freed one. A path of candidates *contradicts* a leaf that is not on it if the path's leaf with that fence in its
//! range is not newer. The correct path contradicts no leaf, so the path with the fewest contradictions is used.
//!
//! The ends of ranges are not compared: the target of a freed leaf's link may have been reused. Low fences are
//! permanent. But an out-of-line fence of a freed leaf may be a reused record, so a leaf counts only if it has items,
//! and all of them are within its range. A leaf whose keys the path's leaf has, too, does not count: no item is lost
//! with it, and merges of a LodgeTree by earlier versions left equal stamps.
//!
//! Leaves between the broken link and the beginning of a path may have been merged into the last leaf, or be those
//! behind it. Of paths with equally many contradictions, the one that skips the fewest of them is used; so a removed
//! item may reappear. An item can be lost only if such a leaf was freed, its link leads to a reused slot, and the
//! leaves that this link passes over are older than it.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};

use bristlecone_pm::{LogEntry, Medium};

use super::{LeafLayout, Member, Relic, Relics};
use crate::index::parts::codec::KeyCodec;

/// A slot that may hold a leaf behind a broken link.
struct Candidate<K: KeyCodec> {
    leaf: u64,
    low: K::Owned,
    stamp: u64,
    next: Next<K>,
    items: Held<K>,
}

/// The link of a candidate.
enum Next<K: KeyCodec> {
    /// It is the last leaf.
    None,
    /// Offset and low fence of the next leaf.
    Leaf(u64, K::Owned),
    Broken,
}

/// The items of a candidate.
enum Held<K: KeyCodec> {
    None,
    /// All of them are within its range. Their greatest key.
    Within(K::Owned),
    /// Some of them are outside of its range.
    Outside,
}

/// A path from a candidate to the end of the chain, or to the next broken link.
#[derive(Clone, Copy, Default)]
struct Path {
    /// The first leaf of the path, and the second one, if there is one.
    leaf: u64,
    next: Option<u64>,
    /// Contradictions of the leaves of the path.
    contradictions: usize,
    /// Number of its leaves.
    leaves: usize,
    is_broken: bool,
    /// Contradictions of the leaf before the broken link, if the chain continues with this path.
    contradicted: usize,
    /// Number of leaves that the path skips at its beginning.
    skipped: usize,
}

impl Path {
    fn all_contradictions(&self) -> usize {
        self.contradictions + self.contradicted
    }

    /// Returns the sort key of paths, the best one first.
    fn rank(&self) -> (usize, usize, bool, Reverse<usize>) {
        (self.all_contradictions(), self.skipped, self.is_broken, Reverse(self.leaves))
    }
}

/// Returns the best one of these paths, each of which stands behind the path of its second leaf.
///
/// A freed leaf whose fence is a reused record may contradict the correct path. Then a path that begins further on may
/// be better, because the last leaf's stamp contradicts few leaves. So a path is extended at its beginning as long as
/// that adds no more contradictions than leaves.
fn best(paths: &[Path]) -> Option<u64> {
    let mut best = paths.iter().min_by_key(|path| path.rank())?;
    loop {
        let mut leading = HashSet::from([best.leaf]);
        let leads =
            |path: &&Path| path.next.is_some_and(|next| leading.contains(&next)) && leading.insert(path.leaf);
        let longer = paths.iter().filter(leads).min_by_key(|path| path.rank());
        let most = |longer: &Path| best.all_contradictions() + longer.leaves - best.leaves;
        match longer.filter(|longer| longer.all_contradictions() <= most(longer)) {
            Some(longer) => best = longer,
            None => return Some(best.leaf),
        }
    }
}

impl<K: KeyCodec> Candidate<K> {
    fn next(&self) -> Option<u64> {
        match &self.next {
            Next::Leaf(next, _) => Some(*next),
            Next::None | Next::Broken => None,
        }
    }

    /// Returns the candidates, of all in key order, whose low fences are in this one's range.
    fn within<'a>(&self, all: &'a [Self]) -> &'a [Self] {
        let start = all.partition_point(|other| other.low < self.low);
        let end = match (&self.next, &self.items) {
            (Next::None, _) => all.len(),
            (Next::Leaf(_, end), _) => all.partition_point(|other| other.low < *end),
            (Next::Broken, Held::Within(greatest)) => all.partition_point(|other| other.low <= *greatest),
            (Next::Broken, _) => start,
        };
        &all[start..end]
    }

    /// Returns whether a path contradicts this leaf if its low fence is in the range of one with the stamp `stamp`.
    fn contradicts(&self, stamp: u64) -> bool {
        matches!(self.items, Held::Within(_)) && self.stamp >= stamp
    }
}

/// Returns the stamp of a leaf. One beyond all sequences says nothing.
fn stamp_of(relic: &Relic) -> u64 {
    if relic.stamp > LogEntry::SEQUENCE_BELIEVED_MAX { 0 } else { relic.stamp }
}

impl<L: LeafLayout, K: KeyCodec, M: Medium> Relics<'_, L, K, M> {
    /// Returns the leaf where a broken chain continues.
    pub(super) fn resume(&self, chain: &[Member<K>], seen: &HashSet<u64>) -> Option<u64> {
        let last = chain.last().map(|member| (self.read(member.offset), member.low.clone()));
        let keys = last.iter().flat_map(|(relic, low)| self.keys_of(relic).chain(low.clone()));
        let bound = keys.max();
        let unseen = self.places.all().filter(|leaf| !seen.contains(leaf));
        let mut leaves: Vec<Candidate<K>> = unseen
            .filter_map(|leaf| self.candidate(leaf))
            .filter(|candidate| bound.as_ref().is_none_or(|bound| *bound < candidate.low))
            .collect();
        // A slot that never held a leaf looks like an empty leaf at the end.
        let named: HashSet<u64> = leaves.iter().filter_map(Candidate::next).collect();
        leaves.retain(|leaf| {
            let is_blank = matches!((&leaf.items, &leaf.next), (Held::None, Next::None));
            !is_blank || named.contains(&leaf.leaf)
        });
        leaves.sort_by(|a, b| a.low.cmp(&b.low).then(b.stamp.cmp(&a.stamp)));
        self.best_start(last.map(|(relic, _)| stamp_of(&relic)), &leaves)
    }

    /// Reads a slot that may hold a leaf.
    fn candidate(&self, leaf: u64) -> Option<Candidate<K>> {
        let fence_of = |relic: &Relic| self.key(relic.fence).filter(|_| relic.violation.is_none());
        let relic = self.read(leaf);
        let low = fence_of(&relic)?;
        let end = self.leaf(relic.next).and_then(|next| fence_of(&next)).filter(|end| low < *end);
        let next = match end {
            _ if relic.next == 0 => Next::None,
            Some(end) => Next::Leaf(relic.next, end),
            None => Next::Broken,
        };
        let fits = |key: &K::Owned| low <= *key && !matches!(&next, Next::Leaf(_, end) if end <= key);
        let items = match self.keys_of(&relic).max() {
            None => Held::None,
            Some(greatest) if self.keys_of(&relic).all(|key| fits(&key)) => Held::Within(greatest),
            Some(_) => Held::Outside,
        };
        Some(Candidate { leaf, low, stamp: stamp_of(&relic), next, items })
    }

    fn keys_of(&self, relic: &Relic) -> impl Iterator<Item = K::Owned> {
        relic.items.iter().filter_map(|[key, _]| self.key(*key))
    }

    /// Returns the first leaf of the best path of these candidates, which are in key order, behind a leaf with the
    /// stamp `before`.
    fn best_start(&self, before: Option<u64>, leaves: &[Candidate<K>]) -> Option<u64> {
        // For each leaf: how many leaves before it contradict the last one, and how many there are.
        let mut sums = Vec::with_capacity(leaves.len());
        let mut sum = (0, 0);
        for leaf in leaves {
            sums.push(sum);
            sum.0 += usize::from(before.is_some_and(|stamp| leaf.contradicts(stamp)));
            sum.1 += usize::from(!matches!(leaf.items, Held::Outside));
        }
        let mut numbers: HashMap<u64, usize> = HashMap::new();
        let mut paths: Vec<Path> = Vec::new();
        for leaf in leaves.iter().rev() {
            let rest = match leaf.next {
                Next::None => Some(Path::default()),
                Next::Broken => Some(Path { is_broken: true, ..Path::default() }),
                Next::Leaf(next, _) => numbers.get(&next).map(|number| paths[*number]),
            };
            let Some(rest) = rest else { continue };
            let (contradicted, skipped) = sums[leaves.partition_point(|other| other.low < leaf.low)];
            numbers.insert(leaf.leaf, paths.len());
            paths.push(Path {
                leaf: leaf.leaf,
                next: leaf.next(),
                contradictions: rest.contradictions + self.contradictions(leaf, leaves),
                leaves: rest.leaves + 1,
                is_broken: rest.is_broken,
                contradicted,
                skipped,
            });
        }
        best(&paths)
    }

    /// Returns the number of contradictions of a leaf: leaves in its range that are as new and have other keys, and its
    /// own items outside of its range.
    fn contradictions(&self, leaf: &Candidate<K>, all: &[Candidate<K>]) -> usize {
        let others = leaf.within(all).iter().filter(|other| other.leaf != leaf.leaf);
        let mut others = others.filter(|other| other.contradicts(leaf.stamp)).peekable();
        let own = usize::from(matches!(leaf.items, Held::Outside));
        if others.peek().is_none() {
            return own;
        }
        let keys: BTreeSet<K::Owned> = self.keys_of(&self.read(leaf.leaf)).collect();
        let has_more =
            |other: &&Candidate<K>| self.keys_of(&self.read(other.leaf)).any(|key| !keys.contains(&key));
        own + others.filter(has_more).count()
    }
}
