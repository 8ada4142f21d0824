//! Ranks are compared first, several at a time. A key that fits a word is its own rank, and is stored
//! only there. The rank of a byte string is eight of its bytes, and its word locates the rest. The last
//! rank is that of the high key, so a node accesses a string only if ranks are equal. The rank is the
//! first eight bytes. If all separators of the node and its high key share a prefix of four or more
//! bytes, it is the eight bytes behind this *common* prefix: a key without this prefix lies before all
//! of them, or behind. The node holds the prefix, too, unless it is long.

use std::cmp::Ordering;

use bristlecone_pm::sync::Ordering::Relaxed;

use super::NodeRef;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::search::{count_le, count_lt};
use crate::index::parts::separators::Separators;

/// Minimum length of the common prefix of a node's separators for ranks to omit it.
const COMMON_MIN: usize = 4;

impl NodeRef<'_> {
    /// Returns the number of ranks that are at most `rank`.
    #[inline(always)]
    pub fn count_le(self, rank: u64) -> usize {
        count_le(self.shape.level, self.ranks(), rank).min(self.count())
    }

    /// Returns the number of ranks that are less than `rank`.
    #[inline(always)]
    pub fn count_lt(self, rank: u64) -> usize {
        count_lt(self.shape.level, self.ranks(), rank).min(self.count())
    }

    /// Returns the length of the common prefix of all separators, which their ranks omit.
    #[inline(always)]
    pub fn common(self) -> usize {
        (self.node.edge.load(Relaxed) >> 1) as usize
    }

    /// Compares the begin of a key with the common prefix. Returns `None` if the node does not hold all of its `common`
    /// bytes.
    #[inline(always)]
    pub fn compare_prefix<K: KeyCodec>(self, key: K::Ref<'_>, common: usize) -> Option<Ordering> {
        let prefix = self.prefix().get(..common.div_ceil(8))?;
        for (at, word) in prefix.iter().enumerate() {
            // The last word has bytes behind the prefix. A key that ends within it has zeros there; such a key may count
            // as one with the prefix, since its rank is zero then.
            let mask = u64::MAX << (64 - 8 * (common - 8 * at).min(8));
            match (K::rank_behind(key, 8 * at) & mask).cmp(&(word.load(Relaxed) & mask)) {
                Ordering::Equal => {}
                different => return Some(different),
            }
        }
        Some(Ordering::Equal)
    }

    /// Recomputes the ranks of a locked node's separators from the bytes behind their common prefix.
    /// Words are their own ranks.
    pub fn rank_all<K: KeyCodec>(self, separators: &Separators, guard: &K::Guard) {
        if K::INLINE {
            return;
        }
        let count = self.count();
        let key = |word| K::separator_at(separators, word, guard);
        let high = self.right().map(|(_, high)| high.word);
        let words = || (1..count).map(|at| self.key(at)).chain(high);
        let most = |first| words().map(|word| K::common(key(first), key(word))).min().unwrap_or(0);
        let common = (count > 1).then(|| most(self.key(1))).filter(|common| *common >= COMMON_MIN);
        let common = common.unwrap_or(0);
        self.node.edge.store(u32::from(self.is_leftmost()) | (common as u32) << 1, Relaxed);
        if common > 0 {
            for (at, word) in self.prefix().iter().enumerate().take(common.div_ceil(8)) {
                word.store(K::rank_behind(key(self.key(1)), 8 * at), Relaxed);
            }
        }
        // The first entry begins where the node does, which is before every key that is searched here.
        self.ranks()[0].store(0, Relaxed);
        for at in 1..count {
            self.ranks()[at].store(K::rank_behind(key(self.key(at)), common), Relaxed);
        }
        if let Some(high) = high {
            self.ranks()[self.shape.slots - 1].store(K::rank_behind(key(high), common), Relaxed);
        }
    }

    /// Recomputes the ranks of a locked node's separators if none is left that determined their common
    /// prefix.
    pub fn rank_fewer<K: KeyCodec>(self, separators: &Separators, guard: &K::Guard) {
        if self.count() < 2 {
            self.rank_all::<K>(separators, guard);
        }
    }

    /// Computes the rank of the separator at `at` of a locked node. Recomputes all of them if it lacks
    /// the common prefix, or has the same rank as a neighbour.
    pub fn rank_one<K: KeyCodec>(self, at: usize, separators: &Separators, guard: &K::Guard) {
        if K::INLINE {
            return;
        }
        let (count, common) = (self.count(), self.common());
        let key = K::separator_at(separators, self.key(at), guard);
        let other = if at == 1 { 2 } else { 1 };
        let alike =
            || K::common(K::shorten(key), K::separator_at(separators, self.key(other), guard)) >= common;
        let rank = K::rank_behind(key, common);
        let mut beside = [at - 1, at + 1].into_iter().filter(|beside| (1..count).contains(beside));
        if common > 0 && !alike() || beside.any(|beside| self.ranks()[beside].load(Relaxed) == rank) {
            self.rank_all::<K>(separators, guard);
        } else {
            self.ranks()[at].store(rank, Relaxed);
        }
    }
}
