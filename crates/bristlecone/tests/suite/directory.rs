//! Trees that are renamed or cleared, their names, and the options of pools.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bristlecone::{Design, Domain, Error, Pool, Tree};
use bristlecone_pm::failpoint;

use crate::common::{CONFIGURATIONS, Items, Plant, Scratch, Visit, defaults, suites};

fn names(pool: &Pool) -> Vec<String> {
    pool.trees().unwrap().into_iter().map(|tree| tree.spec.name).collect()
}

fn is_full(tree: &Tree<u64, u64>, keys: u64) -> bool {
    tree.iter().map(Result::unwrap).eq((0..keys).map(|key| (key, key + 1))) && tree.check().is_empty()
}

#[test]
fn a_renamed_tree_keeps_its_handles_and_its_items() {
    for shape in CONFIGURATIONS {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree: Tree<u64, u64> = shape.create(&pool, "first").unwrap();
        (0..300).for_each(|key| _ = tree.insert(key, key + 1).unwrap());
        pool.rename_tree("first", "second").unwrap();
        (300..600).for_each(|key| _ = tree.insert(key, key + 1).unwrap());
        assert!(is_full(&tree, 600), "{shape:?}");
        assert!(matches!(pool.tree_options("first").open::<u64, u64>(), Err(Error::NoSuchTree { .. })));
        let again: Tree<u64, u64> = shape.open(&pool, "second").unwrap();
        again.insert(600, 601).unwrap();
        assert!(is_full(&tree, 601), "it is one tree");
        // The old name is free.
        let other: Tree<u64, u64> = shape.create(&pool, "first").unwrap();
        assert!(other.is_empty().unwrap());
        assert!(matches!(pool.rename_tree("first", "second"), Err(Error::TreeExists { .. })));
        drop((tree, again, other));
        pool.simulate_crash();
        let pool = scratch.open();
        assert_eq!(names(&pool), ["second", "first"]);
        assert!(is_full(&shape.open(&pool, "second").unwrap(), 601), "{shape:?}");
        assert!(pool.check().is_empty());
    }
}

/// Threads that open a tree by name while it is renamed must find it under one of both names.
#[test]
fn a_tree_that_is_renamed_is_found_under_one_name() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    pool.tree::<u64, u64>("a").unwrap().insert(1, 2).unwrap();
    let is_found = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let renamer = scope.spawn(|| {
            // Longer if the other thread is not scheduled.
            for round in (0..100_000).take_while(|&round| round < 300 || !is_found.load(Relaxed)) {
                let (from, to) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
                pool.rename_tree(from, to).unwrap();
            }
        });
        while !renamer.is_finished() {
            for name in ["a", "b"] {
                match pool.tree_options(name).open::<u64, u64>() {
                    Ok(tree) => {
                        assert_eq!(tree.get(1).unwrap(), Some(2));
                        is_found.store(true, Relaxed);
                    }
                    Err(Error::NoSuchTree { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    assert!(is_found.load(Relaxed));
}

#[test]
fn a_cleared_tree_is_empty_and_as_it_was_made() {
    struct Run(bristlecone_matrix::Cell);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let scratch = Scratch::new();
            let pool = self.0.pool(&scratch);
            let tree: Tree<I::K, I::V> = self.0.create(&pool, "t").unwrap();
            for number in 0..500 {
                let (key, value) = (I::key(number), I::value(number));
                tree.upsert(I::key_ref(&key), I::value_ref(&value)).unwrap();
            }
            // A tree that replaces another one has another directory entry.
            let specs = || {
                let trees = pool.trees().unwrap().into_iter();
                trees.map(|tree| (tree.spec.name.clone(), tree.spec)).collect::<BTreeMap<_, _>>()
            };
            let before = specs();
            assert!(matches!(pool.clear_tree("t"), Err(Error::TreeInUse { name }) if name == "t"));
            assert!(tree.get(I::key_ref(&I::key(7))).unwrap().is_some());
            drop(tree);
            for _ in 0..2 {
                pool.clear_tree("t").unwrap();
                assert_eq!(specs(), before);
                let tree: Tree<I::K, I::V> = self.0.open(&pool, "t").unwrap();
                assert_eq!(
                    (tree.len().unwrap(), tree.iter().map(Result::unwrap).next().is_none(), tree.check()),
                    (0, true, vec![])
                );
                let (key, value) = (I::key(7), I::value(8));
                tree.try_insert(I::key_ref(&key), I::value_ref(&value)).unwrap();
            }
            self.0.crash(pool, &scratch);
            let pool = self.0.pool(&scratch);
            let tree: Tree<I::K, I::V> = self.0.open(&pool, "t").unwrap();
            assert_eq!((tree.len().unwrap(), tree.check(), pool.check()), (1, vec![], vec![]));
        }
    }
    suites::MODEL.sampled().into_iter().for_each(|cell| cell.codec.visit(Run(cell)));
}

/// Clearing frees the space, repeatedly.
#[test]
fn a_tree_that_is_cleared_often_leaves_room_for_others() {
    for shape in defaults() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        for round in 0..20 {
            let tree: Tree<u64, u64> =
                if round == 0 { shape.create(&pool, "t") } else { shape.open(&pool, "t") }.unwrap();
            (0..20_000).for_each(|key| tree.upsert(key, key).unwrap());
            drop(tree);
            pool.clear_tree("t").unwrap();
        }
        let info = pool.info();
        assert!(info.file_bytes < 32 << 20, "{shape:?}: {} bytes", info.file_bytes);
    }
}

/// A system call that fails while a tree is cleared must leave all of its items.
#[test]
fn a_tree_that_cannot_be_cleared_has_its_items() {
    for shape in defaults() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree: Tree<u64, u64> = shape.create(&pool, "t").unwrap();
        (0..100).for_each(|key| _ = tree.insert(key, key + 1).unwrap());
        drop(tree);
        let mut refused = 0;
        for nth in 0.. {
            failpoint::refuse(nth, rustix::io::Errno::NOSPC);
            let cleared = pool.clear_tree("t");
            let untouched = failpoint::cease();
            let tree: Tree<u64, u64> = shape.open(&pool, "t").unwrap();
            match cleared {
                Ok(()) => assert!(tree.is_empty().unwrap() && tree.check().is_empty()),
                Err(error) => {
                    assert!(error.is_no_room(), "{error}");
                    assert!(is_full(&tree, 100), "{shape:?}");
                    refused += 1;
                }
            }
            if untouched || tree.is_empty().unwrap() {
                break;
            }
        }
        assert!(refused > 0 || pool.info().chunks_free > 0, "{shape:?}");
    }
}

#[test]
fn names_that_cannot_be_are_refused_with_what_could() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    for name in ["", "a\tb", "\n", "\u{0}", "\u{7f}"] {
        let error = pool.tree::<u64, u64>(name).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{name:?}: {error}");
        assert!(!error.to_string().contains(char::is_control), "{error:?}");
    }
    let long = "ä".repeat(33);
    let error = pool.tree::<u64, u64>(&long).unwrap_err();
    assert!(matches!(error, Error::TooLong { what: "tree name", bytes: 66, max_bytes: 64 }));
    assert_eq!(names(&pool), [""; 0]);
    for name in ["ä".repeat(32).as_str(), " ", "a/b", "日本"] {
        drop(pool.tree::<u64, u64>(name).unwrap());
    }
    assert_eq!(pool.trees().unwrap().len(), 4);
}

#[test]
fn a_pool_of_almost_nothing_says_what_it_lacks() {
    let scratch = Scratch::new();
    let create = |bytes| Pool::options().max_bytes(bytes).create(true).open(&scratch.0);
    assert!(matches!(create(0), Err(Error::Invalid { .. })));
    assert!(!scratch.0.exists());
    let pool = create(1).unwrap();
    for design in Design::ALL {
        let made = pool.tree_options(design.name()).design(*design).create::<&str, &str>();
        match made.and_then(|tree| tree.insert("key", "value")) {
            Ok(old) => assert_eq!(old, None),
            Err(error) => assert!(matches!(error, Error::PoolFull { .. }), "{design}: {error}"),
        }
    }
    drop(pool);
    assert!(matches!(create(0), Err(Error::Invalid { .. })), "an existing pool, too");
    let threads = Pool::options().recovery_threads(0).open(&scratch.0);
    assert!(matches!(threads, Err(Error::Invalid { what }) if what.contains("thread")));
}

#[test]
fn a_larger_maximum_is_had_or_refused_but_never_ignored() {
    let scratch = Scratch::new();
    let options = |bytes| Pool::options().max_bytes(bytes).domain(Domain::Process);
    let pool = options(8 << 20).create_new(true).open(&scratch.0).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let fill =
        |tree: &Tree<u64, u64>, from| (from..).find(|&key| tree.insert(key, key + 1).is_err()).unwrap();
    let few = fill(&tree, 0);
    drop(tree);
    pool.close().unwrap();
    let reader = options(20 << 20).read_only(true).open(&scratch.0);
    assert!(matches!(reader, Err(Error::Invalid { what }) if what.contains("for writing")));
    drop(options(1 << 20).read_only(true).open(&scratch.0).unwrap());

    let pool = options(20 << 20).create(true).open(&scratch.0).unwrap();
    let max_bytes = pool.info().max_bytes;
    assert!(max_bytes >= 20 << 20);
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let many = fill(&tree, few);
    assert!(many > 2 * few, "{many} items after {few}");
    drop(tree);
    pool.simulate_crash();
    let error = options(1 << 41).open(&scratch.0).unwrap_err();
    assert!(matches!(error, Error::MaximumFixed { asked, .. } if asked == 1 << 41), "{error}");
    for bytes in [1, 20 << 20] {
        let pool = options(bytes).open(&scratch.0).unwrap();
        assert_eq!(pool.info().max_bytes, max_bytes);
        assert!(is_full(&pool.tree("t").unwrap(), many));
    }
}
