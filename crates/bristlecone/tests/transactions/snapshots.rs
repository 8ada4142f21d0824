//! Snapshots: one point in time, regardless of later writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bristlecone::{Error, Pool, Snapshot};

use crate::{Scratch, mix, pairs};

#[test]
pub fn snapshots_show_what_a_map_was() {
    for (design, other) in pairs() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let words = pool.tree_options("words").design(design).create::<u64, u64>().unwrap();
        let texts = pool.tree_options("texts").design(other).create::<String, String>().unwrap();
        let (mut word_model, mut text_model) = (BTreeMap::new(), BTreeMap::new());
        type View = (Snapshot, BTreeMap<u64, u64>, BTreeMap<String, String>);
        let mut views: Vec<View> = Vec::new();
        for step in 0..6000_u64 {
            let noise = mix(step ^ 77);
            let (key, text) = (noise % 300, format!("{:03}", noise >> 20 & 0xff));
            match noise >> 61 {
                0 | 1 => {
                    words.remove(key).unwrap();
                    texts.remove(&text).unwrap();
                    word_model.remove(&key);
                    text_model.remove(&text);
                }
                2 => {
                    let mut batch = pool.batch();
                    batch.insert(&words, key, step).insert(&texts, &text, "batch");
                    batch.commit().unwrap();
                    word_model.insert(key, step);
                    text_model.insert(text, "batch".to_owned());
                }
                3 => {
                    words.upsert(key, step).unwrap();
                    word_model.insert(key, step);
                }
                _ => {
                    words.insert(key, step).unwrap();
                    texts.insert(&text, &step.to_string()).unwrap();
                    word_model.insert(key, step);
                    text_model.insert(text, step.to_string());
                }
            }
            if step % 200 == 100 {
                views.push((pool.snapshot().unwrap(), word_model.clone(), text_model.clone()));
            }
            // The oldest, the newest, one in the middle: in any order.
            if views.len() > 8 {
                views.remove((noise >> 30) as usize % 9);
            }
            if step % 500 == 0 {
                for (view, word_model, text_model) in &views {
                    let (words, texts) = (view.tree(&words), view.tree(&texts));
                    assert!(words.iter().map(Result::unwrap).eq(word_model.clone()), "{design} at {step}");
                    assert!(
                        texts.iter().map(Result::unwrap).rev().eq(text_model.clone().into_iter().rev()),
                        "{other} at {step}"
                    );
                    assert!(
                        words
                            .range(50..200)
                            .map(Result::unwrap)
                            .eq(word_model.range(50..200).map(|(key, value)| (*key, *value)))
                    );
                    // One key, from either end.
                    assert_eq!(
                        words.range(key..=key).map(Result::unwrap).next(),
                        word_model.get_key_value(&key).map(|(k, v)| (*k, *v))
                    );
                    assert_eq!(
                        words.range(key..=key).map(Result::unwrap).next_back(),
                        words.range(key..=key).map(Result::unwrap).next()
                    );
                    let middle = texts.range("050"..="150").map(Result::unwrap).map(|(key, _)| key);
                    assert!(middle.eq(
                        text_model.range("050".to_owned()..="150".to_owned()).map(|(key, _)| key.clone())
                    ));
                    (0..300)
                        .for_each(|key| assert_eq!(words.get(key).unwrap(), word_model.get(&key).copied()));
                    assert_eq!(words.len().unwrap(), word_model.len() as u64);
                    assert_eq!(
                        texts.first_key_value().unwrap().map(|(key, _)| key).as_ref(),
                        text_model.keys().next()
                    );
                    assert_eq!(
                        texts.last_key_value().unwrap().map(|(key, _)| key).as_ref(),
                        text_model.keys().next_back()
                    );
                }
            }
        }
        assert!(
            words.iter().map(Result::unwrap).eq(word_model)
                && texts.iter().map(Result::unwrap).eq(text_model)
        );
        assert!(words.check().is_empty() && texts.check().is_empty());
    }
}

#[test]
pub fn bytes_are_kept_for_snapshots_only_and_go_with_them() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, Vec<u8>>("t").unwrap();
    (0..100).for_each(|key| _ = tree.insert(key, &[1; 1000]).unwrap());
    let first = pool.snapshot().unwrap();
    assert_eq!(first.bytes(), 0);
    (0..100).for_each(|key| _ = tree.insert(key, &[2; 1000]).unwrap());
    assert!((100_000..150_000).contains(&first.bytes()), "{}", first.bytes());
    let second = pool.snapshot().unwrap();
    assert_eq!(second.bytes(), 0);
    (0..100).for_each(|key| _ = tree.insert(key, &[3; 1000]).unwrap());
    assert!(first.bytes() >= 200_000 && second.bytes() < 150_000);
    // Values in between are kept for the first one, once for each key.
    drop(second);
    (0..10).for_each(|_| drop(pool.snapshot().unwrap()));
    assert!((100_000..150_000).contains(&first.bytes()), "{}", first.bytes());
    assert_eq!(first.tree(&tree).get(7).unwrap(), Some(vec![1; 1000]));
    drop(first);
    assert_eq!(pool.snapshot().unwrap().bytes(), 0);
}

#[test]
pub fn a_snapshot_beyond_its_bound_is_given_up_and_others_stay() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    (0..1000).for_each(|key| _ = tree.insert(key, 0).unwrap());
    let (whole, bounded) = (pool.snapshot().unwrap(), pool.snapshot_within(20_000).unwrap());
    let mut items = bounded.tree(&tree).range(..);
    assert_eq!(items.next().unwrap().unwrap(), (0, 0));
    (0..50).for_each(|key| _ = tree.insert(key, 1).unwrap());
    assert_eq!(bounded.tree(&tree).get(7).unwrap(), Some(0));
    (0..1000).for_each(|key| _ = tree.insert(key, 1).unwrap());
    assert!(matches!(bounded.tree(&tree).get(7), Err(Error::SnapshotTooOld)));
    assert!(matches!(items.find(|item| item.is_err()), Some(Err(Error::SnapshotTooOld))));
    assert!(items.next().is_none());
    assert_eq!(bounded.bytes(), 0);
    let caught =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bounded.tree(&tree).get(7).unwrap()));
    assert!(caught.is_err(), "what is not known was shown");
    assert!(whole.tree(&tree).iter().map(Result::unwrap).all(|(_, value)| value == 0));
    assert_eq!(whole.tree(&tree).len().unwrap(), 1000);
}

#[test]
pub fn trees_that_came_later_are_empty_and_cleared_ones_are_too_old() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    pool.tree::<u64, u64>("old").unwrap().insert(1, 1).unwrap();
    let view = pool.snapshot().unwrap();
    let later = pool.tree::<u64, u64>("later").unwrap();
    later.insert(1, 1).unwrap();
    assert!(view.tree(&later).is_empty().unwrap() && view.tree(&later).get(1).unwrap().is_none());
    pool.clear_tree("old").unwrap();
    let old = pool.tree::<u64, u64>("old").unwrap();
    assert!(matches!(view.tree(&old).get(1), Err(Error::SnapshotTooOld)));
    assert!(matches!(view.tree(&old).range(..).next(), Some(Err(Error::SnapshotTooOld))));
    assert!(pool.snapshot().unwrap().tree(&old).is_empty().unwrap());
    drop(later);
    // Another tree in the place of a dropped one must not be mistaken for it.
    pool.drop_tree("later").unwrap();
    let again = pool.tree::<u64, u64>("later").unwrap();
    again.insert(2, 2).unwrap();
    assert!(view.tree(&again).is_empty().unwrap());
    drop((old, again));
    let refused = pool.close().unwrap_err();
    assert!(matches!(refused.error(), Error::PoolInUse { .. }));
    drop(view);
    refused.into_pool().close().unwrap();
}

/// Items that a tree is created with are not written one by one, and none of them is saved as absent.
#[test]
pub fn trees_that_came_later_with_items_are_too_old() {
    for (design, _) in pairs() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let create = |name: &str| {
            let fill = pool.tree_options(name).design(design).create_with::<u64, u64>(|loader| {
                (0..100).try_for_each(|number| loader.push(number, number))
            });
            fill.unwrap()
        };
        let first = create("first");
        assert_eq!(pool.snapshot().unwrap().tree(&first).len().unwrap(), 100);
        let (view, tx) = (pool.snapshot().unwrap(), pool.begin_transaction().unwrap());
        let later = create("later");
        assert!(matches!(view.tree(&later).get(1), Err(Error::SnapshotTooOld)));
        assert!(matches!(view.tree(&later).range(..).next(), Some(Err(Error::SnapshotTooOld))));
        assert!(matches!(tx.get(&later, 1), Err(Error::SnapshotTooOld)));
        assert_eq!((view.tree(&first).len().unwrap(), tx.get(&first, 1).unwrap()), (100, Some(1)));
        let count = |tx: &bristlecone::Transaction| {
            tx.range(&later, ..).try_fold(0, |count, item| item.map(|_| count + 1))
        };
        let counted = count(&tx).and_then(|count| tx.insert(&first, 200, count)).and_then(|()| tx.commit());
        assert!(matches!(counted, Err(Error::SnapshotTooOld)));
        assert_eq!((first.get(200).unwrap(), later.len().unwrap()), (None, 100));
        // Opened again it is the same tree, and later snapshots see it.
        let again = pool.tree::<u64, u64>("later").unwrap();
        assert!(matches!(view.tree(&again).get(1), Err(Error::SnapshotTooOld)));
        later.upsert(1, 7).unwrap();
        let after = pool.snapshot().unwrap();
        again.remove(1).unwrap();
        assert_eq!((after.tree(&again).get(1).unwrap(), after.tree(&later).len().unwrap()), (Some(7), 100));
        assert_eq!(pool.transaction(|tx| tx.get(&later, 2)).unwrap(), Some(2));
    }
}

/// Flips a byte in the values of some keys, wherever they are in a pool's file.
pub fn damage(scratch: &Scratch, keys: &[u64]) {
    let mut bytes = std::fs::read(&scratch.0).unwrap();
    for value in keys.iter().map(|key| value(*key).into_bytes()) {
        let places: Vec<_> =
            (0..bytes.len() - value.len()).filter(|&at| bytes[at..].starts_with(&value)).collect();
        assert!(!places.is_empty());
        places.into_iter().for_each(|at| bytes[at] ^= 1);
    }
    std::fs::write(&scratch.0, bytes).unwrap();
}

fn value(key: u64) -> String {
    format!("<the value of {key:08}>")
}

/// A value damaged before it was changed stays damaged in the old state.
#[test]
pub fn damage_passes_through_no_snapshot_transaction_or_copy() {
    const KEYS: u64 = 3000;
    for (design, _) in pairs() {
        let scratch = Scratch::new();
        let fill = |pool: &Pool| {
            let tree = pool.tree_options("t").design(design).create::<u64, String>().unwrap();
            (0..KEYS).for_each(|key| _ = tree.insert(key, &value(key)).unwrap());
        };
        let pool = scratch.open();
        fill(&pool);
        pool.close().unwrap();
        damage(&scratch, &[7, 8, 9, 2500]);
        let pool = scratch.open();
        let tree = pool.tree::<u64, String>("t").unwrap();
        let is_told = |held: Result<Option<String>, Error>| {
            assert!(matches!(held, Err(Error::Corrupted { .. })), "{design}: {held:?}");
        };
        let (view, tx) = (pool.snapshot().unwrap(), pool.begin_transaction().unwrap());
        is_told(tree.get(7));
        is_told(view.tree(&tree).get(7));
        is_told(tx.get(&tree, 7));
        is_told(pool.transaction(|tx| tx.get(&tree, 7)));
        let mut batch = pool.batch();
        batch.expect(&tree, 7, Some("new")).insert(&tree, 1, "new");
        assert!(matches!(batch.commit(), Err(Error::Corrupted { .. })));
        // Overwritten, by a single write and in a batch.
        tree.upsert(7, "new").unwrap();
        let mut batch = pool.batch();
        batch.insert(&tree, 8, "new").remove(&tree, 9);
        batch.commit().unwrap();
        for key in 7..10 {
            is_told(view.tree(&tree).get(key));
            is_told(tx.get(&tree, key));
            is_told(view.tree(&tree).contains_key(key).map(|_| None));
        }
        let shown = view.tree(&tree).range(..20).filter_map(Result::ok);
        assert_eq!(shown.filter(|(key, _)| (7..10).contains(key)).count(), 0);
        let mut seen = view.tree(&tree).range(..20);
        assert!(seen.any(|item| item.is_err()));
        // An error ends the iteration, from either end.
        assert!(seen.next().is_none() && seen.next_back().is_none(), "{design}");
        assert_eq!((tree.get(7).unwrap().as_deref(), tree.get(9).unwrap()), (Some("new"), None));
        assert_eq!(pool.snapshot().unwrap().tree(&tree).get(8).unwrap().as_deref(), Some("new"));
        // A copy that reaches a key after it was overwritten.
        let path = scratch.0.with_extension("copy");
        let options = bristlecone::BackupOptions::new().on_progress(|_| {
            tree.upsert(2500, "new").unwrap();
            std::ops::ControlFlow::Continue(())
        });
        let copied = pool.backup(&path, options);
        assert!(matches!(copied, Err(Error::Corrupted { .. })), "{design}: {copied:?}");
        assert!(!path.exists() && tree.get(2500).unwrap().as_deref() == Some("new"));
    }
}

/// Keys that exceed the limits are absent, and bounds may have any length.
#[test]
pub fn keys_that_are_too_long_are_absent() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<String, u64>("t").unwrap();
    tree.insert("a", 1).unwrap();
    let long = "b".repeat(1 << 20);
    let view = pool.snapshot().unwrap();
    let shown = view.tree(&tree);
    assert!(shown.get(&long).unwrap().is_none() && !shown.contains_key(&long).unwrap());
    assert_eq!(
        (
            shown.range(..long.as_str()).map(Result::unwrap).count(),
            shown.range(long.as_str()..).map(Result::unwrap).count()
        ),
        (1, 0)
    );
    let dynamic = pool.dynamic_tree("t").unwrap();
    assert!(view.tree(&dynamic).get(&long.as_str().into()).unwrap().is_none());
    pool.transaction(|tx| {
        assert!(tx.get(&tree, &long)?.is_none() && !tx.contains_key(&dynamic, &long.as_str().into())?);
        assert_eq!(tx.range(&tree, ..long.as_str()).map(Result::unwrap).count(), 1);
        assert!(matches!(tx.insert(&tree, &long, 1), Err(Error::TooLong { .. })));
        Ok(())
    })
    .unwrap();
}

/// An unreachable size bound is valid.
#[test]
pub fn a_snapshot_may_keep_almost_everything() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let whole = pool.snapshot().unwrap();
    (0..100).for_each(|key| _ = tree.insert(key, key).unwrap());
    let bounded = pool.snapshot_within(usize::MAX - 1).unwrap();
    (0..100).for_each(|key| _ = tree.insert(key, 0).unwrap());
    assert!(
        bounded.tree(&tree).iter().map(Result::unwrap).eq((0..100).map(|key| (key, key)))
            && whole.tree(&tree).is_empty().unwrap()
    );
}

/// Readers of many snapshots concurrent with writers: the same result each time, forward, backward
/// and key by key.
#[test]
pub fn a_snapshot_stays_what_it_is_while_threads_write() {
    for (design, other) in pairs() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let words = pool.tree_options("words").design(design).create::<u64, u64>().unwrap();
        let texts = pool.tree_options("texts").design(other).create::<String, u64>().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2_u64 {
                let (pool, words, texts, over) = (&pool, &words, &texts, &over);
                scope.spawn(move || {
                    for step in 0.. {
                        if over.load(Relaxed) {
                            return;
                        }
                        let noise = mix(step << 1 | thread);
                        let key = noise % 500;
                        // Both trees hold the same keys, after each batch.
                        let mut batch = pool.batch();
                        if noise >> 62 == 0 {
                            batch.remove(words, key).remove(texts, &format!("{key:05}"));
                        } else {
                            batch.insert(words, key, noise).insert(texts, &format!("{key:05}"), noise);
                        }
                        batch.commit().unwrap();
                    }
                });
            }
            for _ in 0..60 {
                let view = pool.snapshot().unwrap();
                let first: Vec<_> = view.tree(&words).iter().map(Result::unwrap).collect();
                let other: Vec<_> = view
                    .tree(&texts)
                    .iter()
                    .map(Result::unwrap)
                    .map(|(key, value)| (key.parse().unwrap(), value))
                    .collect();
                assert_eq!(first, other);
                let mut again: Vec<_> = view.tree(&words).iter().map(Result::unwrap).rev().collect();
                again.reverse();
                assert_eq!(first, again);
                let held: BTreeMap<_, _> = first.into_iter().collect();
                (0..500)
                    .for_each(|key| assert_eq!(view.tree(&words).get(key).unwrap(), held.get(&key).copied()));
            }
            over.store(true, Relaxed);
        });
        assert!(words.check().is_empty() && texts.check().is_empty());
    }
}
