//! The changes of a batch or a transaction.

use std::collections::BTreeMap;

use bristlecone_pm::{Error, Result};
use smallvec::SmallVec;

use super::any_tree::{AnyTree, hash, rank};
use super::link::Link;
use super::stripes::{self, StripeSet, Stripes};
use crate::index::parts::codec::GROUP;
use crate::index::parts::encoded::Encoded;
use crate::{Key, Pool, Tree, Value};

/// The index of a tree within the batch, and its key.
pub type Place = (usize, Encoded);

/// A key and its new value; `None` removes the key.
pub type Write = (Place, Option<Encoded>);

/// Keys of several trees, and their new values.
#[derive(Default)]
pub struct Changes {
    pub trees: Vec<(Link, AnyTree)>,
    /// The writes. From [`settle`](Self::settle) on, each place is there once, and those of one tree follow each other.
    pub writes: Vec<Write>,
    /// The locks of the places of the writes.
    pub stripes: StripeSet,
    /// Two writes have one lock, so their places may be the same.
    may_repeat: bool,
    /// Expected values by place, the conditions for the change.
    pub expected: BTreeMap<Place, Option<Encoded>>,
}

impl Changes {
    /// Returns the index of a tree, and adds the tree if it is new.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a tree of another pool, or of a design that the library does not know.
    pub fn tree<K: Key, V: Value>(&mut self, pool: &Pool, tree: &Tree<K, V>) -> Result<usize> {
        let link = &tree.link;
        if !pool.is_same(&tree.pool) {
            return Err(Error::invalid("the tree belongs to another pool: a commit covers one pool"));
        }
        if !link.is_known {
            return Err(Error::invalid("a tree of an external design supports single-key writes only"));
        }
        let known = self.trees.iter().position(|(known, _)| known.identity == link.identity);
        Ok(known.unwrap_or_else(|| {
            self.trees.push((*link, tree.any()));
            self.trees.len() - 1
        }))
    }

    pub fn identity(&self, tree: usize) -> u64 {
        self.trees[tree].0.identity
    }

    /// Adds a write.
    #[inline]
    pub fn add(&mut self, place: Place, value: Option<Encoded>) {
        if self.writes.capacity() == 0 {
            self.writes.reserve(GROUP);
        }
        self.may_repeat |= !self.stripes.insert(self.stripe(&place));
        self.writes.push((place, value));
    }

    /// Returns the lock of a key.
    pub fn stripe(&self, (tree, key): &Place) -> stripes::Place {
        Stripes::of(self.identity(*tree), hash(key))
    }

    /// Of the writes to one place the last counts. Sorts the writes, unless they are a group of different keys of one
    /// tree, and need not be `in_order`.
    pub fn settle(&mut self, in_order: bool) {
        let is_group = self.trees.len() <= 1 && self.writes.len() <= GROUP && !self.may_repeat;
        if is_group && !in_order || self.is_settled() {
            return;
        }
        self.sort_by_rank();
        if self.is_settled() {
            return;
        }
        // Keys of one rank, or writes to one place, which keep their order.
        self.writes.sort_by(|(place, _), (other, _)| place.cmp(other));
        self.writes.dedup_by(|later, earlier| {
            let is_same = later.0 == earlier.0;
            if is_same {
                std::mem::swap(&mut later.1, &mut earlier.1);
            }
            is_same
        });
    }

    /// Sorts the writes by tree, the rank of the key, and their order so far. Compares words, and moves each write once.
    fn sort_by_rank(&mut self) {
        let sort_key = |(((tree, key), _), at): (&Write, u32)| {
            (*tree as u128) << 96 | u128::from(rank(key)) << 32 | u128::from(at)
        };
        let mut order: SmallVec<[u128; GROUP]> = self.writes.iter().zip(0..).map(sort_key).collect();
        order.sort_unstable();
        for to in 0..order.len() {
            let mut from = order[to] as u32 as usize;
            // The write that was there has moved to where that place got its own from.
            while from < to {
                from = order[from] as u32 as usize;
            }
            self.writes.swap(to, from);
            order[to] = from as u128;
        }
    }

    fn is_settled(&self) -> bool {
        self.writes.is_sorted_by(|(place, _), (next, _)| place < next)
    }

    /// Returns the places of the writes.
    pub fn places_of_writes(&self) -> impl Iterator<Item = &Place> {
        self.writes.iter().map(|(place, _)| place)
    }

    /// Returns the number of places that are written.
    pub fn places(&self) -> usize {
        if !self.may_repeat || self.is_settled() {
            return self.writes.len();
        }
        let mut places: Vec<&Place> = self.places_of_writes().collect();
        places.sort_unstable();
        places.dedup();
        places.len()
    }

    /// Returns whether a key of a tree is written. The writes must be sorted.
    pub fn has(&self, tree: usize, key: &Encoded) -> bool {
        self.writes.binary_search_by(|((of, written), _)| (*of, written).cmp(&(tree, key))).is_ok()
    }

    pub fn saved_key(&self, (tree, key): &Place) -> (u64, Encoded) {
        (self.identity(*tree), key.clone())
    }
}
