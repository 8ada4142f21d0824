//! Scanning: one leaf at a time, in order. Not a snapshot of the tree, but of each leaf.

use std::ops::Bound;

use bristlecone_pm::{LINE_BYTES, Medium, Word};

use super::SsTree;
use super::layout::LEAF_SLOTS_MAX;
use super::leaf::{Leaf, bits};
use crate::shared::form::{KeyForm, ValueForm};
use crate::shared::inner::Step;
use crate::shared::prefetch;
use crate::shared::search::sort_words;
use crate::shared::version_lock::Version;
use crate::trees::Batch;

/// How many leaves a scan asks for before it needs them.
const AHEAD: usize = 2;

impl<K: KeyForm, V: ValueForm, M: Medium> SsTree<K, V, M> {
    /// Puts the items of the next leaf with any at or after `from` into `into`, which is empty.
    /// `false`: there are none. Going on with the same batch continues where it ended.
    pub fn scan_forward(&self, from: Bound<K::Ref<'_>>, into: &mut Batch<K, V>) -> bool {
        let guard = K::pin();
        let version_of = |leaf| self.version_of(leaf);
        loop {
            let step = into.cursor.take().map_or(Step::Lost, |at| self.inner.next(at, version_of));
            let (leaf, version, cursor) = match step {
                Step::Leaf(leaf, version, cursor) => (leaf, version, cursor),
                Step::End => return false,
                Step::Lost => {
                    let key = match from {
                        Bound::Included(key) | Bound::Excluded(key) => Some(key),
                        Bound::Unbounded => None,
                    };
                    self.inner.seek(key, &guard, version_of)
                }
            };
            for places in 1..=AHEAD {
                if let Some(ahead) = self.inner.ahead(cursor, places) {
                    prefetch(self.leaves.get(ahead));
                }
            }
            let next = self.inner.ahead(cursor, 1);
            if !self.collect(self.leaves.get(leaf), version, (from, Bound::Unbounded), next, into) {
                continue;
            }
            into.cursor = Some(cursor);
            if !into.entries.is_empty() {
                return true;
            }
        }
    }

    /// The same towards smaller keys: the items at or before `to` of the last leaf that has any.
    pub fn scan_backward(&self, to: Bound<K::Ref<'_>>, into: &mut Batch<K, V>) -> bool {
        let guard = K::pin();
        // The leaf of an included bound may begin with it; every other leaf begins before.
        let mut inclusive = matches!(to, Bound::Included(_)) && into.fence.is_none();
        loop {
            let fence = into.fence.take();
            if matches!(fence, Some(None)) {
                return false;
            }
            let (leaf, version, low) = match (&fence, to) {
                (Some(Some(fence)), _) => {
                    self.inner.find_before(Some(K::borrow(fence)), &guard, |leaf| self.version_of(leaf))
                }
                (_, Bound::Included(key)) if inclusive => {
                    let (leaf, version) = self.inner.find(key, &guard, |leaf| self.version_of(leaf));
                    // What lies before the key is looked for from the key on.
                    (leaf, version, Some(K::owned(key)))
                }
                (_, Bound::Included(key) | Bound::Excluded(key)) => {
                    self.inner.find_before(Some(key), &guard, |leaf| self.version_of(leaf))
                }
                (_, Bound::Unbounded) => self.inner.find_before(None, &guard, |leaf| self.version_of(leaf)),
            };
            let from = if inclusive { to } else { Bound::Unbounded };
            if !self.collect(self.leaves.get(leaf), version, (from, to), None, into) {
                into.fence = fence;
                continue;
            }
            into.fence = Some(low);
            inclusive = false;
            if !into.entries.is_empty() {
                return true;
            }
        }
    }

    /// Collects what is wanted of a leaf, sorted, while the lines of the `next` one are on their
    /// way. `false`: the leaf changed meanwhile.
    fn collect(
        &self,
        leaf: &Leaf,
        version: Version,
        (from, to): (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        next: Option<u32>,
        into: &mut Batch<K, V>,
    ) -> bool {
        let guards = (K::pin(), V::pin());
        let mut words = [(0, 0); LEAF_SLOTS_MAX];
        self.prefetch_leaf(leaf);
        let Some(len) = self.snapshot(leaf, version, &mut words) else { return false };
        if let Some(next) = next {
            self.prefetch_leaf(self.leaves.get(next));
        }
        let words = &mut words[..len];
        let key_of = |words: &(u64, u64)| K::read(&self.keys, words.0, &guards.0);
        if K::INLINE {
            // Words order as their keys do.
            sort_words(words);
        } else {
            words.sort_unstable_by(|a, b| key_of(a).cmp(&key_of(b)));
        }
        into.entries.clear();
        into.entries.extend(
            words
                .iter()
                .filter(|words| within::<K>(key_of(words), from, to))
                .map(|words| (K::owned(key_of(words)), V::owned(V::read(&self.values, words.1, &guards.1)))),
        );
        true
    }

    /// Reads the words of a leaf, unsorted; how many. `None`: it changed meanwhile.
    fn snapshot(&self, leaf: &Leaf, version: Version, words: &mut [(u64, u64)]) -> Option<usize> {
        let view = leaf.view();
        if !leaf.lock.validate(version) {
            return None;
        }
        let mut len = 0;
        for at in 0..view.count {
            for slot in bits(view.taken(self.shape, at)) {
                let item = self.slot(view.subnodes[at], slot);
                words[len] = (item.key.load(self.medium()), item.value.load(self.medium()));
                len += 1;
            }
        }
        leaf.lock.validate(version).then_some(len)
    }

    /// Asks for the lines of a leaf that is read soon.
    fn prefetch_leaf(&self, leaf: &Leaf) {
        let view = leaf.view();
        for &subnode in view.subnodes.iter().take(view.count) {
            for line in (0..self.shape.subnode_bytes).step_by(LINE_BYTES) {
                prefetch(self.pool.at::<Word>(subnode + line as u64));
            }
        }
    }
}

/// Whether a key lies between two bounds.
fn within<K: KeyForm>(key: K::Ref<'_>, from: Bound<K::Ref<'_>>, to: Bound<K::Ref<'_>>) -> bool {
    let key = K::shorten(key);
    let after = match from {
        Bound::Included(bound) => key >= K::shorten(bound),
        Bound::Excluded(bound) => key > K::shorten(bound),
        Bound::Unbounded => true,
    };
    after
        && match to {
            Bound::Included(bound) => key <= K::shorten(bound),
            Bound::Excluded(bound) => key < K::shorten(bound),
            Bound::Unbounded => true,
        }
}
