//! Changes of the directory, and of whole trees, by one thread of a process that is killed.

use std::collections::BTreeMap;

use bristlecone::{Pool, Tree};

use crate::common::{Configuration, Items, Plant};
use crate::operation::{Model, is_equal};

const FIRST: &str = "aside";
const SECOND: &str = "renamed";
/// Items that the tree is created with.
const ITEMS: u64 = 300;
/// Number of changes after which there is no tree again.
const CHANGES: usize = 7;

/// Returns the name and the items of the tree after a number of changes.
fn after(changes: usize) -> Option<(&'static str, Model)> {
    let items = |numbers: std::ops::Range<u64>| numbers.map(|number| (number, number)).collect();
    match changes % CHANGES {
        0 => None,
        1 => Some((FIRST, items(0..ITEMS))),
        2 => Some((FIRST, items(0..ITEMS + 1))),
        3 => Some((SECOND, items(0..ITEMS + 1))),
        4 => Some((SECOND, Model::new())),
        5 => Some((SECOND, items(0..1))),
        _ => Some((SECOND, Model::new())),
    }
}

/// Removes what a killed process left.
pub fn remove(pool: &Pool) {
    for tree in pool.trees().unwrap().into_iter().filter(|tree| [FIRST, SECOND].contains(&&*tree.spec.name)) {
        pool.drop_tree(&tree.spec.name).unwrap();
    }
}

/// Changes the directory until the process is killed; says the number of each change that is complete.
pub fn change<I: Items>(configuration: Configuration, pool: &Pool, mut say: impl FnMut(usize)) {
    let open = |name| -> Tree<I::K, I::V> { configuration.open(pool, name).unwrap() };
    let write = |tree: &Tree<I::K, I::V>, number| {
        tree.upsert(I::key_ref(&I::key(number)), I::value_ref(&I::value(number))).unwrap();
    };
    for number in 0.. {
        match number % CHANGES {
            0 => {
                let items: BTreeMap<_, _> = (0..ITEMS).map(|item| (I::key(item), I::value(item))).collect();
                let filled = configuration.tree(pool, FIRST).create_with::<I::K, I::V>(|loader| {
                    items
                        .iter()
                        .try_for_each(|(key, value)| loader.push(I::key_ref(key), I::value_ref(value)))
                });
                drop(filled.unwrap());
            }
            1 => write(&open(FIRST), ITEMS),
            2 => pool.rename_tree(FIRST, SECOND).unwrap(),
            3 => open(SECOND).clear().unwrap(),
            4 => write(&open(SECOND), 0),
            5 => pool.clear_tree(SECOND).unwrap(),
            _ => pool.drop_tree(SECOND).unwrap(),
        }
        say(number);
    }
}

/// Verifies the tree after a number of acknowledged changes: the next one may have taken effect.
pub fn verify<I: Items>(configuration: Configuration, pool: &Pool, changes: usize, when: &str) {
    let names = pool.trees().unwrap().into_iter().map(|tree| tree.spec.name);
    let found: Vec<_> = names.filter(|name| [FIRST, SECOND].contains(&&**name)).collect();
    let is = |changes| match after(changes) {
        None => found.is_empty(),
        Some((name, items)) => {
            found == [name] && {
                let tree: Tree<I::K, I::V> = configuration.open(pool, name).unwrap();
                assert_eq!(tree.check(), [], "{when}: {name}");
                is_equal::<I>(&tree, &items)
            }
        }
    };
    assert!(is(changes) || is(changes + 1), "{when}: {changes} changes of the directory, {found:?}");
}
