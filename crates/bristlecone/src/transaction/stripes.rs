//! Lock table for keys: each key maps to one lock, shared with other keys.

use bristlecone_pm::sync::wait::cross;

use super::any_tree::place;
use super::stripe::{Count, Stripe};
use crate::index::parts::slot::bits;
use crate::index::parts::zeroed::zeroed;

/// Number of locks of keys.
const STRIPES: usize = 4096;
/// Number of locks of trees.
const TREES: usize = 64;
/// Words with a bit for each lock of keys.
const WORDS: usize = STRIPES / 64;
const _: () = assert!(TREES <= 64 && WORDS <= 64, "a word has a bit for each");

/// The lock table. A writer holds the locks of its keys. A thread that removes a range holds the lock of the tree
/// instead, and excludes the writers of all keys of the tree:
/// 1. A writer takes the locks of its keys. If the lock of a tree is held then, it releases them, waits, and begins
///    again.
/// 2. The thread that removes a range takes the lock of the tree, and waits for the holders of all locks of keys. *Both
///    take a lock and then read the other one, with a full barrier between: at least one sees the other. A writer waits
///    without locks, so no two threads wait for each other.*
#[derive(Debug)]
pub(crate) struct Stripes {
    keys: Box<[Stripe]>,
    trees: Box<[Stripe]>,
}

/// The lock of a key, and that of its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    key: u16,
    tree: u16,
}

/// The lock of a key, or of a tree, held until this is dropped.
pub(crate) struct LockedOne<'a>(&'a Stripe);

impl Drop for LockedOne<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.give_back();
        cross();
    }
}

/// A set of locks of keys, and of the locks of their trees. It enumerates them in the global lock order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StripeSet {
    keys: [u64; WORDS],
    /// The words of `keys` that are not zero.
    words: u64,
    trees: u64,
}

impl Default for StripeSet {
    fn default() -> Self {
        Self { keys: [0; WORDS], words: 0, trees: 0 }
    }
}

impl StripeSet {
    /// Adds a key's lock; returns whether it is new.
    #[inline]
    pub fn insert(&mut self, place: Place) -> bool {
        let (word, bit) = (usize::from(place.key / 64), 1 << (place.key % 64));
        let is_new = self.keys[word] & bit == 0;
        self.keys[word] |= bit;
        self.words |= 1 << word;
        self.trees |= 1 << place.tree;
        is_new
    }

    fn has(&self, place: Place) -> bool {
        self.keys[usize::from(place.key / 64)] >> (place.key % 64) & 1 != 0
    }

    /// Returns the indexes of the keys' locks, ascending: the lock order.
    #[inline]
    fn keys(&self) -> impl Iterator<Item = usize> {
        bits(self.words).flat_map(|word| bits(self.keys[word]).map(move |bit| word * 64 + bit))
    }
}

impl FromIterator<Place> for StripeSet {
    fn from_iter<I: IntoIterator<Item = Place>>(places: I) -> Self {
        let mut set = Self::default();
        places.into_iter().for_each(|place| _ = set.insert(place));
        set
    }
}

/// A set of locks of keys that are held until this is dropped.
pub(crate) struct Locked<'a> {
    stripes: &'a Stripes,
    set: StripeSet,
}

impl Stripes {
    pub fn new() -> Self {
        Self { keys: zeroed(STRIPES), trees: zeroed(TREES) }
    }

    /// Returns the lock of a key of a tree, by a hash of the key whose top bits have the best distribution.
    #[inline]
    pub fn of(tree: u64, hash: u64) -> Place {
        let key = place(tree, hash, STRIPES.trailing_zeros());
        Place { key: key as u16, tree: tree_place(tree) as u16 }
    }

    fn key(&self, place: Place) -> &Stripe {
        &self.keys[usize::from(place.key)]
    }

    fn tree(&self, place: Place) -> &Stripe {
        &self.trees[usize::from(place.tree)]
    }

    /// Acquires the lock of a key.
    #[inline]
    pub fn lock(&self, place: Place) -> LockedOne<'_> {
        let key = self.key(place);
        key.take_beneath(self.tree(place));
        LockedOne(key)
    }

    /// Acquires the locks of keys one after the other, in the global lock order. Returns `None` if the set is empty.
    pub fn lock_all(&self, set: StripeSet) -> Option<Locked<'_>> {
        loop {
            set.keys().for_each(|key| self.keys[key].take());
            let Some(excluded) = bits(set.trees).find(|tree| self.trees[*tree].is_held()) else {
                return (set.words != 0).then_some(Locked { stripes: self, set });
            };
            self.give_back(&set);
            self.trees[excluded].wait_for_holder();
        }
    }

    fn give_back(&self, set: &StripeSet) {
        set.keys().for_each(|key| self.keys[key].give_back());
        cross();
    }

    /// Acquires the lock of a tree, and waits until no thread holds the lock of one of its keys. The calling thread must
    /// hold no lock.
    pub fn lock_tree(&self, tree: u64) -> LockedOne<'_> {
        let own = &self.trees[tree_place(tree)];
        own.take_above(&self.keys);
        LockedOne(own)
    }

    /// See [`Stripe::count`].
    #[inline]
    pub fn count(&self, place: Place) -> Count {
        self.tree(place).count().and(self.key(place).count())
    }

    /// See [`Count::is_unchanged`].
    #[inline]
    pub fn is_unchanged(&self, place: Place, since: Count, is_held: bool) -> bool {
        since.is_unchanged(&[self.tree(place), self.key(place)], is_held)
    }
}

/// Returns the place of a tree's lock.
fn tree_place(tree: u64) -> usize {
    tree as usize % TREES
}

impl Locked<'_> {
    /// Returns whether the lock of a key is in this set.
    pub fn has(&self, place: Place) -> bool {
        self.set.has(place)
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        self.stripes.give_back(&self.set);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn key(key: u16) -> Place {
        Place { key, tree: 5 }
    }

    #[test]
    fn locks_in_any_order_exclude_and_never_wait_for_each_other_in_a_circle() {
        let stripes = Stripes::new();
        let total = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (stripes, total) = (&stripes, &total);
                scope.spawn(move || {
                    for round in 0..2000 {
                        if round % 16 == thread {
                            let _locked = stripes.lock_tree(5);
                            total.store(total.load(Relaxed) + 1, Relaxed);
                            continue;
                        }
                        let wanted = (0..4).map(|at| (thread * 7 + round * 3 + at * 5) % 8).chain([9]);
                        let wanted = wanted.map(|at| key(at as u16));
                        let _locked = stripes.lock_all(wanted.collect());
                        // Non-atomic increment, protected by lock 9, or by that of the tree.
                        total.store(total.load(Relaxed) + 1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 8000);
        assert!(
            stripes.keys.iter().chain(&stripes.trees).all(|stripe| !stripe.is_held()),
            "a lock was left held"
        );
        assert!(stripes.lock_all(StripeSet::default()).is_none());
    }

    #[test]
    fn a_count_tells_what_others_have_held_since() {
        let stripes = Stripes::new();
        let (one, other) = (stripes.count(key(1)), stripes.count(key(2)));
        let own = stripes.lock_all([1, 7].map(key).into_iter().collect()).unwrap();
        assert!(own.has(key(1)) && own.has(key(7)) && !own.has(key(2)));
        assert!(stripes.is_unchanged(key(1), one, true) && stripes.is_unchanged(key(2), other, false));
        assert!(!stripes.is_unchanged(key(1), one, false), "held by another thread");
        drop(own);
        assert!(!stripes.is_unchanged(key(1), one, false), "was held");
        let _again = stripes.lock(key(1));
        assert!(!stripes.is_unchanged(key(1), one, true), "was held, and is once more");
    }

    #[test]
    fn the_lock_of_a_tree_changes_the_counts_of_its_keys_only() {
        let stripes = Stripes::new();
        let (own, other) = (key(1), Place { key: 1, tree: 6 });
        let counts = [own, other].map(|place| stripes.count(place));
        let locked = stripes.lock_tree(5);
        assert!(
            !stripes.is_unchanged(own, counts[0], false) && stripes.is_unchanged(other, counts[1], false)
        );
        drop(stripes.lock(other));
        drop(stripes.lock_all([other, Place { key: 2, tree: 6 }].into_iter().collect()));
        drop(locked);
        assert!(!stripes.is_unchanged(own, counts[0], false));
    }

    #[test]
    fn keys_spread_over_the_table() {
        let mut used = std::collections::HashSet::new();
        (0..4096_u64)
            .for_each(|key| _ = used.insert(Stripes::of(3, key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).key));
        assert!(used.len() > 2000, "{} of {STRIPES}", used.len());
    }
}
