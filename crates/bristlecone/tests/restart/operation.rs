//! Operations that a kill interrupts, and the model of their items.

use std::collections::BTreeMap;

use bristlecone::{Pool, Tree};

use crate::common::{Items, inserted, swapped};

/// The items by the numbers of their keys.
pub type Model = BTreeMap<u64, u64>;

/// A key, and its value after an operation.
pub type Part = (u64, Option<u64>);

/// Applies a part of an operation to a model.
pub fn apply(model: &mut Model, (key, value): Part) {
    match value {
        Some(value) => _ = model.insert(key, value),
        None => _ = model.remove(&key),
    }
}

/// Returns whether a tree has exactly the items of a model.
pub fn is_equal<I: Items>(tree: &Tree<I::K, I::V>, model: &Model) -> bool {
    let items: BTreeMap<_, _> = model.iter().map(|(&key, &value)| (I::key(key), I::value(value))).collect();
    tree.iter().map(Result::unwrap).eq(items)
}

/// What an operation does to its keys.
#[derive(Clone, Debug)]
pub enum Operation {
    Write(u64, u64),
    Remove(u64),
    /// Inserts a key, or replaces its value by a comparison.
    Swap(u64, u64),
    /// Several together, each of which may be there or not after a kill.
    Many(Vec<(u64, u64)>),
    RemoveMany(Vec<u64>),
    /// Several together, all of which are there after a kill, or none.
    Batch(Vec<Part>),
}

impl Operation {
    /// Returns the keys with their values afterwards.
    pub fn parts(&self) -> Vec<Part> {
        match self {
            Self::Write(key, value) | Self::Swap(key, value) => vec![(*key, Some(*value))],
            Self::Remove(key) => vec![(*key, None)],
            Self::Many(items) => items.iter().map(|&(key, value)| (key, Some(value))).collect(),
            Self::RemoveMany(keys) => keys.iter().map(|&key| (key, None)).collect(),
            Self::Batch(parts) => parts.clone(),
        }
    }

    /// Runs the operation; no other thread may write to its keys.
    pub fn run<I: Items>(&self, pool: &Pool, tree: &Tree<I::K, I::V>) {
        match self {
            Self::Write(key, value) => {
                tree.upsert(I::key_ref(&I::key(*key)), I::value_ref(&I::value(*value))).unwrap();
            }
            Self::Remove(key) => drop(tree.remove(I::key_ref(&I::key(*key))).unwrap()),
            Self::Swap(key, value) => {
                let (key, value) = (I::key(*key), I::value(*value));
                let (key, value) = (I::key_ref(&key), I::value_ref(&value));
                if let Some(found) = inserted(tree.try_insert(key, value)) {
                    let expected = Some(I::value_ref(&found));
                    assert_eq!(swapped(tree.compare_and_swap(key, expected, Some(value))), Ok(()));
                }
            }
            Self::Many(items) => {
                let owned: Vec<_> =
                    items.iter().map(|&(key, value)| (I::key(key), I::value(value))).collect();
                let items: Vec<_> =
                    owned.iter().map(|(key, value)| (I::key_ref(key), I::value_ref(value))).collect();
                tree.upsert_many(&items).unwrap();
            }
            Self::RemoveMany(keys) => {
                let owned: Vec<_> = keys.iter().map(|&key| I::key(key)).collect();
                let keys: Vec<_> = owned.iter().map(I::key_ref).collect();
                tree.remove_many(&keys, &mut Vec::new()).unwrap();
            }
            Self::Batch(parts) => {
                let mut batch = pool.batch();
                for &(key, value) in parts {
                    let key = I::key(key);
                    match value.map(I::value) {
                        Some(value) => batch.insert(tree, I::key_ref(&key), I::value_ref(&value)),
                        None => batch.remove(tree, I::key_ref(&key)),
                    };
                }
                batch.commit().unwrap();
            }
        }
    }
}
