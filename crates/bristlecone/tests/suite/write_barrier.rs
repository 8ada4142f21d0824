//! Every write operation passes the write barrier: a snapshot shows the previous state, and a
//! transaction that has read one of the keys detects the change.

use crate::common::{Scratch, defaults};
use bristlecone::{Error, Pool, Transaction, Tree};

const KEYS: u64 = 200;

type Words = Tree<u64, u64>;
type Strings = Tree<&'static str, &'static str>;
type Way<T> = (&'static str, fn(&Pool, &T));

/// The operations that change the keys 0, 2, 4 … of a tree of words to words, whose values are the
/// keys.
const OF_WORDS: &[Way<Words>] = &[
    ("insert", |_, tree| {
        tree.insert(1, 7).unwrap();
    }),
    ("insert over", |_, tree| {
        tree.insert(2, 7).unwrap();
    }),
    ("upsert", |_, tree| tree.upsert(2, 7).unwrap()),
    ("try_insert", |_, tree| tree.try_insert(1, 7).unwrap()),
    ("update", |_, tree| {
        tree.update(2, 7).unwrap();
    }),
    ("remove", |_, tree| {
        tree.remove(2).unwrap();
    }),
    ("swap in", |_, tree| tree.compare_and_swap(1, None, Some(7)).unwrap()),
    ("swap", |_, tree| tree.compare_and_swap(2, Some(2), Some(7)).unwrap()),
    ("swap out", |_, tree| tree.compare_and_swap(2, Some(2), None).unwrap()),
    ("fetch_update", |_, tree| {
        tree.fetch_update(2, |_| Some(7)).unwrap();
    }),
    ("fetch_update in", |_, tree| {
        tree.fetch_update(1, |_| Some(7)).unwrap();
    }),
    ("update_and_fetch out", |_, tree| {
        tree.update_and_fetch(2, |_| None).unwrap();
    }),
    ("entry", |_, tree| {
        tree.entry(1).or_insert(7).unwrap();
    }),
    ("and_modify", |_, tree| {
        tree.entry(2).and_modify(|value| *value = 7).or_insert(8).unwrap();
    }),
    ("pop_first", |_, tree| {
        tree.pop_first().unwrap();
    }),
    ("pop_last", |_, tree| {
        tree.pop_last().unwrap();
    }),
    ("pop_first_if", |_, tree| {
        tree.pop_first_if(|_, _| true).unwrap();
    }),
    ("pop_last_if", |_, tree| {
        tree.pop_last_if(|_, _| true).unwrap();
    }),
    ("remove_range", |_, tree| {
        tree.remove_range(10..100).unwrap();
    }),
    ("drain", |_, tree| {
        tree.drain(10..20).for_each(drop);
    }),
    ("retain", |_, tree| tree.retain(|key, _| key % 3 == 0).unwrap()),
    ("retain_in", |_, tree| tree.retain_in(10..90, |key, _| key % 3 == 0).map(drop).unwrap()),
    ("clear", |_, tree| tree.clear().unwrap()),
    ("insert_many", |_, tree| {
        let items: Vec<_> = (0..50).map(|key| (key, 7)).collect();
        tree.insert_many(&items, &mut Vec::new()).unwrap();
    }),
    ("upsert_many", |_, tree| {
        let items: Vec<_> = (0..50).map(|key| (key, 7)).collect();
        tree.upsert_many(&items).unwrap();
    }),
    ("remove_many", |_, tree| tree.remove_many(&[0, 4, 5, 8], &mut Vec::new()).unwrap()),
    ("batch", |pool, tree| {
        let mut batch = pool.batch();
        batch.insert(tree, 1, 7);
        batch.remove(tree, 2);
        batch.commit().unwrap();
    }),
    ("transaction", |pool, tree| {
        pool.transaction(|tx| {
            let value = tx.get(tree, 2)?.unwrap_or_default();
            tx.insert(tree, 4, value + 7)
        })
        .map(drop)
        .unwrap();
    }),
];

/// The operations that change those keys, as text, of a tree of strings.
const OF_STRINGS: &[Way<Strings>] = &[
    ("insert", |_, tree| {
        tree.insert("1", "x").unwrap();
    }),
    ("upsert", |_, tree| tree.upsert("002", "x").unwrap()),
    ("try_insert", |_, tree| tree.try_insert("1", "x").unwrap()),
    ("update", |_, tree| {
        tree.update("002", "x").unwrap();
    }),
    ("remove", |_, tree| {
        tree.remove("002").unwrap();
    }),
    ("swap", |_, tree| {
        tree.compare_and_swap("002", Some("002"), Some("x")).unwrap();
    }),
    ("fetch_update", |_, tree| {
        tree.fetch_update("002", |_| Some("x".to_owned())).unwrap();
    }),
    ("update_and_fetch", |_, tree| {
        tree.update_and_fetch("002", |_| None).unwrap();
    }),
    ("pop_first", |_, tree| {
        tree.pop_first().unwrap();
    }),
    ("pop_last", |_, tree| {
        tree.pop_last().unwrap();
    }),
    ("pop_first_if", |_, tree| {
        tree.pop_first_if(|_, _| true).unwrap();
    }),
    ("remove_range", |_, tree| {
        tree.remove_range("01".."1").unwrap();
    }),
    ("drain", |_, tree| {
        tree.drain("01"..).for_each(drop);
    }),
    ("retain", |_, tree| tree.retain(|_, _| false).unwrap()),
    ("clear", |_, tree| tree.clear().unwrap()),
    ("insert_many", |_, tree| {
        let items: Vec<_> = ["000", "001", "002"].map(|key| (key, "x")).into();
        tree.insert_many(&items, &mut Vec::new()).unwrap();
    }),
    ("upsert_many", |_, tree| tree.upsert_many(&[("002", "x")]).unwrap()),
    ("remove_many", |_, tree| tree.remove_many(&["002"], &mut Vec::new()).unwrap()),
];

/// Returns the first, the middle and the last key whose items differ.
fn changed<K: Ord + Clone, V: PartialEq>(before: &[(K, V)], after: &[(K, V)]) -> [K; 3] {
    let is_in = |item: &(K, V), items: &[(K, V)]| items.contains(item);
    let gone = before.iter().filter(|item| !is_in(item, after));
    let mut keys: Vec<_> = gone.chain(after.iter().filter(|item| !is_in(item, before))).collect();
    keys.sort_by(|one, other| one.0.cmp(&other.0));
    [0, keys.len() / 2, keys.len() - 1].map(|at| keys[at].0.clone())
}

/// Lets a transaction without a snapshot read a key, and again after the tree was changed; returns
/// whether it detected the change.
fn is_noticed(
    pool: &Pool,
    read: impl Fn(&Transaction) -> Result<(), Error>,
    change: impl Fn() + Sync,
) -> bool {
    let mut noticed = None;
    pool.transaction(|tx| {
        read(tx)?;
        if noticed.is_none() {
            // On another thread: the change may be a transaction, too.
            std::thread::scope(|scope| scope.spawn(&change).join().unwrap());
            noticed = Some(matches!(read(tx), Err(Error::Conflict)));
        }
        Ok(())
    })
    .unwrap();
    noticed.unwrap()
}

#[test]
fn words_are_shown_as_they_were_whatever_changes_them() {
    for shape in defaults() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        for (number, (way, change)) in OF_WORDS.iter().enumerate() {
            let create = |copy: usize| -> Words {
                let name = format!("tree {number} {copy}");
                let tree = pool.tree_options(&name).design(shape.design).create::<u64, u64>().unwrap();
                (0..KEYS).step_by(2).for_each(|key| tree.upsert(key, key).unwrap());
                tree
            };
            let tree = create(0);
            let before: Vec<_> = tree.iter().map(Result::unwrap).collect();
            let snapshot = pool.snapshot().unwrap();
            change(&pool, &tree);
            let after: Vec<_> = tree.iter().map(Result::unwrap).collect();
            assert_ne!(after, before, "{}: {way} changed nothing", shape.name);
            assert_eq!(
                snapshot.tree(&tree).iter().map(Result::unwrap).collect::<Vec<_>>(),
                before,
                "{}: {way}",
                shape.name
            );
            for (copy, key) in changed(&before, &after).into_iter().enumerate() {
                let tree = create(1 + copy);
                let read = |tx: &Transaction| tx.get(&tree, key).map(drop);
                let change = || change(&pool, &tree);
                assert!(is_noticed(&pool, read, change), "{}: {way}: key {key}", shape.name);
                drop(tree);
                pool.drop_tree(&format!("tree {number} {}", 1 + copy)).unwrap();
            }
        }
    }
}

#[test]
fn strings_are_shown_as_they_were_whatever_changes_them() {
    for shape in defaults() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        for (number, (way, change)) in OF_STRINGS.iter().enumerate() {
            let create = |copy: usize| {
                let options = pool.tree_options(&format!("tree {number} {copy}")).design(shape.design);
                let tree = options.create::<&str, &str>().unwrap();
                for key in (0..KEYS).step_by(2).map(|key| format!("{key:03}")) {
                    tree.insert(key.as_str(), key.as_str()).unwrap();
                }
                tree
            };
            let tree = create(0);
            let items = |tree: &Strings| tree.iter().map(Result::unwrap).collect::<Vec<_>>();
            let before = items(&tree);
            let snapshot = pool.snapshot().unwrap();
            change(&pool, &tree);
            let shown: Vec<_> = snapshot.tree(&tree).iter().map(Result::unwrap).collect();
            let after = items(&tree);
            assert_ne!(after, before, "{}: {way} changed nothing", shape.name);
            assert_eq!(shown, before, "{}: {way}", shape.name);
            for (copy, key) in changed(&before, &after).into_iter().enumerate() {
                let tree = create(1 + copy);
                let read = |tx: &Transaction| tx.get(&tree, &key).map(drop);
                let change = || change(&pool, &tree);
                assert!(is_noticed(&pool, read, change), "{}: {way}: key {key:?}", shape.name);
                drop(tree);
                pool.drop_tree(&format!("tree {number} {}", 1 + copy)).unwrap();
            }
        }
    }
}
