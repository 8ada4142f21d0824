//! The keys of a round, and their values.

use bristlecone::{Key, Value};
use bristlecone_matrix::Items;

use super::board::State;
use super::round::Round;

/// A key that is owned.
pub type OwnedKey<I> = <<I as Items>::K as Key>::Owned;
/// A value that is owned.
pub type OwnedValue<I> = <<I as Items>::V as Value>::Owned;

/// All keys of a round.
pub struct KeyTable<I: Items> {
    keys: Vec<OwnedKey<I>>,
    /// Indexes of keys, in key order.
    order: Vec<usize>,
    /// The position of each key in this order.
    places: Vec<usize>,
}

impl<I: Items> KeyTable<I> {
    /// Makes the keys of a round.
    pub fn of(round: &Round) -> Self {
        let keys: Vec<_> = (0..round.keys).map(|key| I::key(round.number(key))).collect();
        let mut order: Vec<_> = (0..keys.len()).collect();
        order.sort_unstable_by(|one, other| keys[*one].cmp(&keys[*other]));
        let mut places = vec![0; keys.len()];
        order.iter().enumerate().for_each(|(place, key)| places[*key] = place);
        Self { keys, order, places }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns a key.
    pub fn key(&self, key: usize) -> &OwnedKey<I> {
        &self.keys[key]
    }

    /// Returns the key at a position of the order.
    pub fn at(&self, place: usize) -> usize {
        self.order[place]
    }

    /// Returns the position of a key in the order.
    pub fn place(&self, key: usize) -> usize {
        self.places[key]
    }

    /// Returns the index of this key.
    pub fn find(&self, key: &OwnedKey<I>) -> Option<usize> {
        self.order.binary_search_by(|at| self.keys[*at].cmp(key)).ok().map(|place| self.order[place])
    }

    /// Returns the value of a key in a state.
    pub fn value(&self, key: usize, state: State) -> Option<OwnedValue<I>> {
        state.is_present.then(|| I::value(Round::value_number(key, state)))
    }
}
