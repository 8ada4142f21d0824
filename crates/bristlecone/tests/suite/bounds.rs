//! Ranges with every kind of bound, on keys, between them and beyond them, in every configuration: forward,
//! backward, and from both ends.

use std::fmt::Debug;
use std::ops::Bound;

use crate::common::{CONFIGURATIONS, Configuration, Scratch, small};
use bristlecone::{Key, Tree};

/// Number of keys of a tree, two apart, so that there are numbers between them.
const KEYS: u64 = 320;

/// Maps numbers to keys, in the same order.
struct Keys<K: Key> {
    own: fn(u64) -> K::Owned,
    view: for<'a> fn(&'a K::Owned) -> K::Ref<'a>,
}

/// The numbers for bounds on, between and beyond keys.
fn places() -> impl Iterator<Item = u64> {
    // One below the first, one above the last.
    0..2 * KEYS + 3
}

fn kinds<T: Copy>(at: T) -> [Bound<T>; 3] {
    [Bound::Included(at), Bound::Excluded(at), Bound::Unbounded]
}

fn lies_within(key: u64, from: Bound<u64>, to: Bound<u64>) -> bool {
    let above = match from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    };
    let below = match to {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    };
    above && below
}

impl<K: Key> Keys<K>
where
    K::Owned: Ord + Debug,
{
    /// Fills a tree; some keys are inserted late, written twice or removed, so that buffers hold a part of
    /// them.
    fn fill(&self, tree: &Tree<K, u64>) -> Vec<u64> {
        let at = |n: u64| (self.own)(2 * n + 1);
        let order = (0..KEYS).map(|n| n * 137 % KEYS);
        for n in order.clone() {
            tree.insert((self.view)(&at(n)), n).unwrap();
        }
        for n in order.filter(|n| n % 11 == 3) {
            tree.remove((self.view)(&at(n))).unwrap();
        }
        (0..KEYS).filter(|n| n % 11 != 3).map(|n| 2 * n + 1).collect()
    }

    fn holds(&self, tree: &Tree<K, u64>, there: &[u64], from: Bound<u64>, to: Bound<u64>) {
        let (low, high) = (from.map(self.own), to.map(self.own));
        let bounds = (low.as_ref().map(self.view), high.as_ref().map(self.view));
        let due: Vec<_> = there.iter().filter(|key| lies_within(**key, from, to)).collect();
        let due: Vec<_> = due.into_iter().map(|&key| ((self.own)(key), (key - 1) / 2)).collect();
        let said = || format!("from {from:?} to {to:?}");
        assert!(tree.range(bounds).map(Result::unwrap).eq(due.iter().cloned()), "{}", said());
        assert!(
            tree.range(bounds).map(Result::unwrap).rev().eq(due.iter().rev().cloned()),
            "{} backwards",
            said()
        );
        // Both ends alternately, the front twice as often.
        let (mut ours, mut theirs) = (tree.range(bounds).map(Result::unwrap), due.into_iter());
        for turn in 0.. {
            let (our, their) = match turn % 3 {
                0 => (ours.next_back(), theirs.next_back()),
                _ => (ours.next(), theirs.next()),
            };
            assert_eq!(our, their, "{} from both ends", said());
            if our.is_none() {
                break;
            }
        }
        assert_eq!((ours.next(), ours.next_back()), (None, None), "{} after the end", said());
    }

    fn run(&self, shape: Configuration) {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = shape.tree(&pool, "t").create::<K, u64>().unwrap();
        self.holds(&tree, &[], Bound::Unbounded, Bound::Unbounded);
        self.holds(&tree, &[], Bound::Included(3), Bound::Excluded(5));
        let there = self.fill(&tree);
        for start in places() {
            // Narrow ranges with each pair of kinds, and a wide one with one kind each.
            let near = [0, 1, 2, 3, 7].map(|width| start + width);
            let near =
                near.into_iter().chain(start.checked_sub(1 + start % 3)).filter(|end| *end < 2 * KEYS + 3);
            for end in near {
                for from in &kinds(start)[..2] {
                    kinds(end)[..2].iter().for_each(|to| self.holds(&tree, &there, *from, *to));
                }
            }
            if start % 16 == 5 {
                for (from, to) in kinds(start).into_iter().zip(kinds((start + 90).min(2 * KEYS + 2))) {
                    self.holds(&tree, &there, from, Bound::Unbounded);
                    self.holds(&tree, &there, Bound::Unbounded, from);
                    self.holds(&tree, &there, from, to);
                }
            }
        }
    }
}

#[test]
fn words_in_every_shape() {
    for &shape in CONFIGURATIONS {
        Keys::<u64> { own: |n| n, view: |key| *key }.run(shape);
    }
}

/// The first number stands for the least key of all.
#[test]
fn texts_in_small_shapes() {
    let own = |n: u64| if n == 0 { String::new() } else { format!("{}{n:04}", "stem/".repeat(3)) };
    for shape in small() {
        Keys::<&str> { own, view: |key| key }.run(shape);
    }
}
