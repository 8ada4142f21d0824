//! The changes of a batch or a transaction.

use std::collections::BTreeMap;

use bristlecone_pm::{Error, Result};

use super::any_tree::{AnyTree, rank};
use super::link::Link;
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
    /// The writes: in ascending order of their places, each place once, from [`settle`](Self::settle) on.
    pub writes: Vec<Write>,
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
        let link = tree.link;
        if !pool.is_same(&tree.pool) {
            return Err(Error::invalid("the tree belongs to another pool: a commit covers one pool"));
        }
        if !link.is_known {
            return Err(Error::invalid("a tree of an external design supports single-key writes only"));
        }
        let known = self.trees.iter().position(|(known, _)| known.identity == link.identity);
        Ok(known.unwrap_or_else(|| {
            self.trees.push((link, tree.any()));
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
        self.writes.push((place, value));
    }

    /// Sorts the writes. Of those to one place the last counts.
    pub fn settle(&mut self) {
        if !self.is_settled() {
            // Writes to one place keep their order in both. The first one compares words, and moves each write once; it
            // leaves little to the second one.
            self.writes.sort_by_cached_key(|((tree, key), _)| (*tree, rank(key)));
            if !self.writes.is_sorted_by(|(place, _), (next, _)| place <= next) {
                self.writes.sort_by(|(place, _), (other, _)| place.cmp(other));
            }
            self.writes.dedup_by(|later, earlier| {
                let is_same = later.0 == earlier.0;
                if is_same {
                    std::mem::swap(&mut later.1, &mut earlier.1);
                }
                is_same
            });
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
        if self.is_settled() {
            return self.writes.len();
        }
        let mut places: Vec<&Place> = self.places_of_writes().collect();
        places.sort_unstable();
        places.dedup();
        places.len()
    }

    /// Returns whether a key of a tree is written. The writes must be settled.
    pub fn has(&self, tree: usize, key: &Encoded) -> bool {
        self.writes.binary_search_by(|((of, written), _)| (*of, written).cmp(&(tree, key))).is_ok()
    }

    pub fn saved_key(&self, (tree, key): &Place) -> (u64, Encoded) {
        (self.identity(*tree), key.clone())
    }
}
