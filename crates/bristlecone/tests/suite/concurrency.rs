//! Many threads on one tree: every written value is unique, so each read identifies the write that it
//! saw, and histories can be checked key by key.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use crate::common::{
    Cell, Codec, Items, Noise, Plant, Scratch, Visit, baselines, defaults, inserted, share, small,
    small_baselines, suites, swapped,
};
use bristlecone::{Key, Tree, Value};

const THREADS: u64 = 4;

/// Each thread owns every `THREADS`-th key and knows its value; all of them read, scan and compete for
/// the leaves that the keys share.
fn owners<K: Key, V: Value>(
    keys: u64,
    rounds: u64,
    shape: impl Plant,
    key: fn(u64) -> K::Owned,
    value: fn(u64) -> V::Owned,
    key_ref: for<'a> fn(&'a K::Owned) -> K::Ref<'a>,
    value_ref: for<'a> fn(&'a V::Owned) -> V::Ref<'a>,
) where
    K::Owned: Ord,
    V::Owned: PartialEq,
{
    println!("{shape:?}");
    let scratch = Scratch::new();
    let pool = shape.pool(&scratch);
    let tree: Tree<K, V> = shape.create(&pool, "t").unwrap();
    let work = |thread: u64| {
        let mut noise = Noise(thread + 1);
        let mut mine: BTreeMap<K::Owned, V::Owned> = BTreeMap::new();
        for round in 0..rounds {
            let own = key(noise.below(keys / THREADS) * THREADS + thread);
            // Filling and emptying alternately makes leaves split, shrink and be freed.
            let inserts = if (round * 6 / rounds).is_multiple_of(2) { 8 } else { 2 };
            let fresh = value(thread << 40 | round);
            match noise.below(10) {
                roll if roll < inserts && round.is_multiple_of(3) => {
                    tree.upsert(key_ref(&own), value_ref(&fresh)).unwrap();
                    mine.insert(own.clone(), fresh);
                }
                roll if roll < inserts => {
                    let old = tree.insert(key_ref(&own), value_ref(&fresh)).unwrap();
                    assert!(old == mine.insert(own.clone(), fresh));
                }
                roll if roll < 9 => assert!(tree.remove(key_ref(&own)).unwrap() == mine.remove(&own)),
                _ => {
                    let mut last = None;
                    for (key, _) in tree.range(key_ref(&own)..).map(Result::unwrap).take(50) {
                        assert!(last.is_none_or(|last| last < key), "out of order, or twice");
                        last = Some(key);
                    }
                    assert!(tree.iter().map(Result::unwrap).rev().take(50).is_sorted_by(|a, b| a.0 > b.0));
                }
            }
            assert!(tree.get(key_ref(&own)).unwrap() == mine.get(&own).cloned());
        }
        mine
    };
    let mut all = BTreeMap::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        workers.into_iter().for_each(|worker| all.extend(worker.join().unwrap()));
    });
    assert_eq!(tree.check(), []);
    let contents: Vec<_> = tree.iter().map(Result::unwrap).collect();
    assert!(contents.iter().map(|(k, v)| (k, v)).eq(all.iter()));
    drop(tree);
    shape.crash(pool, &scratch);
    let pool = shape.pool(&scratch);
    let tree: Tree<K, V> = shape.open(&pool, "t").unwrap();
    assert_eq!(tree.check(), []);
    assert!(tree.iter().map(Result::unwrap).eq(contents));
}

/// Owners of many keys and of few, in each cell.
#[test]
fn owners_in_every_cell() {
    struct Run(Cell);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let Self(cell) = self;
            // Each record has about a thousand bytes.
            let rounds = if cell.codec == Codec::Words { 20_000 } else { 8_000 };
            for keys in [8000, 200] {
                owners::<I::K, I::V>(keys, rounds, cell, I::key, I::value, I::key_ref, I::value_ref);
            }
        }
    }
    suites::CONCURRENCY.sampled().into_iter().for_each(|cell| cell.codec.visit(Run(cell)));
}

#[test]
fn owners_of_words_find_what_they_wrote() {
    for shape in defaults() {
        owners::<u64, u64>(20_000, 80_000, shape, |n| n, |n| n, |k| *k, |v| *v);
    }
}

#[test]
fn baselines_keep_their_promises() {
    for shape in share(baselines()) {
        owners::<u64, u64>(20_000, 40_000, shape, |n| n, |n| n, |k| *k, |v| *v);
        owners::<u64, u64>(200, 20_000, shape, |n| n, |n| n, |k| *k, |v| *v);
        swaps(shape);
    }
    share(small_baselines()).into_iter().for_each(scans);
}

#[test]
fn owners_of_strings_find_what_they_wrote() {
    let key = |n: u64| format!("shared/prefix/{n:06}");
    let value = |n: u64| vec![n as u8; n as usize % 90];
    for shape in defaults() {
        owners::<&str, &[u8]>(8000, 30_000, shape, key, value, |k| k, |v| v);
    }
}

/// A counter per key that changes only by compare-and-swap: no step may be lost or seen twice, and no
/// reader may see a counter decrease.
#[test]
fn swaps_are_linearizable() {
    defaults().chain(small()).for_each(swaps);
}

fn swaps(shape: impl Plant) {
    const KEYS: u64 = 64;
    const STEPS: u64 = 20_000;
    let scratch = Scratch::new();
    let pool = shape.pool(&scratch);
    let tree: Tree<u64, u64> = shape.create(&pool, "t").unwrap();
    for key in 0..KEYS {
        tree.try_insert(key, 0).unwrap();
    }
    let done = AtomicBool::new(false);
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = [0; KEYS as usize];
            while !done.load(SeqCst) {
                for (key, value) in tree.iter().map(Result::unwrap) {
                    assert!(value >= seen[key as usize], "a counter went back");
                    seen[key as usize] = value;
                }
            }
        });
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (tree, taken) = (&tree, &taken);
                scope.spawn(move || {
                    let mut noise = Noise(thread + 9);
                    for _ in 0..STEPS {
                        let key = noise.below(KEYS);
                        let value = tree.get(key).unwrap().unwrap();
                        if swapped(tree.compare_and_swap(key, Some(value), Some(value + 1))).is_ok() {
                            taken.fetch_add(1, Relaxed);
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, SeqCst);
        reader.join().unwrap();
    });
    assert_eq!(tree.iter().map(Result::unwrap).map(|(_, value)| value).sum::<u64>(), taken.into_inner());
}

/// Threads remove the same values. Exactly one thread removes each value, and then inserts the next one.
fn removals<I: Items>(cell: Cell, keys: u64, rounds: u64) {
    println!("{cell}");
    let scratch = Scratch::new();
    let pool = cell.pool(&scratch);
    let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
    // Different in every codec: there are eight byte lengths, which distinguish some thousand versions.
    let value = |version: u64| I::value(version * 8 + 3);
    let wrong = I::value(5);
    for key in 0..keys {
        tree.try_insert(I::key_ref(&I::key(key)), I::value_ref(&value(0))).unwrap();
    }
    let versions: Vec<_> = (0..keys).map(|_| AtomicU64::new(0)).collect();
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (tree, versions, taken, wrong) = (&tree, &versions, &taken, &wrong);
            scope.spawn(move || {
                let mut noise = Noise(thread + 5);
                for _ in 0..rounds {
                    let number = noise.below(keys);
                    let version = versions[number as usize].load(SeqCst);
                    let (own, expected) = (I::key(number), value(version));
                    let remove = |value| {
                        swapped(tree.compare_and_swap(I::key_ref(&own), Some(I::value_ref(value)), None))
                    };
                    let removed = remove(wrong);
                    assert!(removed.is_err(), "a value that never was is removed");
                    if remove(&expected) != Ok(()) {
                        continue;
                    }
                    taken.fetch_add(1, Relaxed);
                    // Another thread that removed the same value would also have inserted the next one.
                    let moved =
                        versions[number as usize].compare_exchange(version, version + 1, SeqCst, SeqCst);
                    assert_eq!(moved, Ok(version), "removed twice");
                    let next = value(version + 1);
                    // By either of the operations that insert an absent key.
                    let held = if version % 2 == 0 {
                        inserted(tree.try_insert(I::key_ref(&own), I::value_ref(&next)))
                    } else {
                        let next = Some(I::value_ref(&next));
                        swapped(tree.compare_and_swap(I::key_ref(&own), None, next)).err().flatten()
                    };
                    assert!(held.is_none(), "removed, and there");
                }
            });
        }
    });
    let last: u64 = versions.iter().map(|version| version.load(SeqCst)).sum();
    assert_eq!(last, taken.into_inner());
    assert!(last > rounds, "hardly any value was removed");
    assert_eq!((tree.check(), tree.len().unwrap()), (vec![], keys));
    for (key, version) in (0..keys).zip(&versions) {
        let held = tree.get(I::key_ref(&I::key(key))).unwrap();
        assert_eq!(held, Some(value(version.load(SeqCst))));
    }
}

#[test]
fn each_value_is_removed_by_one_thread() {
    struct Run(Cell);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let rounds = if self.0.codec == Codec::Words { 10_000 } else { 2_000 };
            removals::<I>(self.0, 24, rounds);
        }
    }
    suites::CONCURRENCY.sampled().into_iter().for_each(|cell| cell.codec.visit(Run(cell)));
}

/// Keys that are present throughout must be in every scan, whatever changes around them.
#[test]
fn scans_miss_nothing_that_stays() {
    small().for_each(scans);
}

fn scans(shape: impl Plant) {
    let scratch = Scratch::new();
    let pool = shape.pool(&scratch);
    let tree: Tree<u64, u64> = shape.create(&pool, "t").unwrap();
    let stay = 2000;
    for i in 0..stay {
        tree.insert(i * 10, i).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let churn: Vec<_> = (1..THREADS)
            .map(|thread| {
                let tree = &tree;
                scope.spawn(move || {
                    for round in 0..6 {
                        for i in 0..stay {
                            let key = i * 10 + thread * 3 - round % 2;
                            tree.insert(key, key).unwrap();
                        }
                        for i in 0..stay {
                            tree.remove(i * 10 + thread * 3 - round % 2).unwrap();
                        }
                    }
                })
            })
            .collect();
        let scan = scope.spawn(|| {
            while !done.load(SeqCst) {
                let forward = tree.iter().map(Result::unwrap).map(|(key, _)| key).filter(|key| key % 10 == 0);
                assert!(forward.eq((0..stay).map(|i| i * 10)));
                let backward =
                    tree.iter().map(Result::unwrap).rev().map(|(key, _)| key).filter(|key| key % 10 == 0);
                assert!(backward.eq((0..stay).rev().map(|i| i * 10)));
            }
        });
        churn.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, SeqCst);
        scan.join().unwrap();
    });
    assert_eq!(tree.check(), []);
}
