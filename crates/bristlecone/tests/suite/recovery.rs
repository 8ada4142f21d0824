//! Reopening: the same tree with any number of threads, however often opening is interrupted.

use crate::common::{Cell, Items, Noise, Plant, Scratch, Visit, suites};
use bristlecone::Tree;

#[test]
fn any_number_of_threads_finds_the_same_tree() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let words = pool.tree::<u64, u64>("words").unwrap();
    let texts = pool.tree::<&str, &[u8]>("texts").unwrap();
    let mut noise = Noise(11);
    for round in 0..200_000_u64 {
        let key = noise.below(100_000);
        if round % 4 == 3 {
            words.remove(key).unwrap();
        } else {
            words.insert(key, round).unwrap();
        }
        if round % 8 == 0 {
            texts.insert(&format!("a/long/prefix/{key}"), &round.to_le_bytes()).unwrap();
        }
    }
    let contents = (
        words.iter().map(Result::unwrap).collect::<Vec<_>>(),
        texts.iter().map(Result::unwrap).collect::<Vec<_>>(),
    );
    let first = (words.stats().unwrap().leaves, texts.stats().unwrap().leaves);
    drop((words, texts));
    pool.simulate_crash();
    for threads in [1, 2, 3, 8] {
        let pool = scratch.options().recovery_threads(threads).open(&scratch.0).unwrap();
        assert!(!pool.info().was_clean);
        let words: Tree<u64, u64> = pool.tree("words").unwrap();
        let texts: Tree<&str, &[u8]> = pool.tree("texts").unwrap();
        assert_eq!((words.check(), texts.check()), (vec![], vec![]));
        assert!(words.iter().map(Result::unwrap).eq(contents.0.iter().copied()));
        assert!(texts.iter().map(Result::unwrap).eq(contents.1.iter().cloned()));
        assert_eq!((words.stats().unwrap().leaves, texts.stats().unwrap().leaves), first);
        drop((words, texts));
        pool.simulate_crash();
    }
}

#[test]
fn a_clean_close_is_seen_and_a_crash_too() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    pool.tree::<u64, u64>("t").unwrap().insert(1, 2).unwrap();
    pool.close().unwrap();
    let pool = scratch.open();
    assert!(pool.info().was_clean);
    pool.simulate_crash();
    let pool = scratch.open();
    assert!(!pool.info().was_clean);
    drop(pool);
    let pool = scratch.open();
    assert!(pool.info().was_clean, "dropping the last handle closes");
    assert_eq!(pool.tree::<u64, u64>("t").unwrap().get(1).unwrap(), Some(2));
}

/// After a crash during inserts, replacements and removals, recovery finds the same tree with one thread
/// and with several.
#[test]
fn any_number_of_threads_finds_the_same_tree_in_every_cell() {
    struct Run(Cell);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let Self(cell) = self;
            println!("{cell}");
            let scratch = Scratch::new();
            let pool = cell.pool(&scratch);
            let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
            let mut noise = Noise(13);
            for round in 0..6000 {
                let key = I::key(noise.below(4000));
                if round % 4 == 3 {
                    tree.remove(I::key_ref(&key)).unwrap();
                } else {
                    tree.upsert(I::key_ref(&key), I::value_ref(&I::value(round))).unwrap();
                }
            }
            let contents: Vec<_> = tree.iter().map(Result::unwrap).collect();
            drop(tree);
            cell.crash(pool, &scratch);
            for threads in [1, 3, 8] {
                let pool = scratch.in_cell(&cell).recovery_threads(threads).open(&scratch.0).unwrap();
                let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
                assert_eq!(
                    (tree.check(), tree.len().unwrap()),
                    (vec![], contents.len() as u64),
                    "{threads} threads"
                );
                assert!(tree.iter().map(Result::unwrap).eq(contents.iter().cloned()), "{threads} threads");
                drop(tree);
                cell.crash(pool, &scratch);
            }
        }
    }
    suites::RECOVERY.sampled().into_iter().for_each(|cell| cell.codec.visit(Run(cell)));
}
