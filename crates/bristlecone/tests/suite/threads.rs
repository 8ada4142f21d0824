//! Threads that cannot be created, that end, and many threads; and handles dropped in any order.

use std::any::Any;
use std::process::Command;

use crate::common::{CONFIGURATIONS, Plant, Scratch, share, small};
use bristlecone::{Error, Tree};

const CHILD: &str = "BRISTLECONE_THREADS_CHILD";
const KEYS: u64 = 30_000;

/// Runs in a process that cannot create threads, because no memory has space for their stacks.
#[test]
fn without_threads_everything_is_done_by_the_caller() {
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "threads::without_threads_everything_is_done_by_the_caller"]);
        let child = child.env(CHILD, "1").env("RUST_MIN_STACK", (1_u64 << 60).to_string());
        let ran = child.args(["--test-threads=1"]).output().unwrap();
        let said = [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        assert!(ran.status.success() && said[0].contains("1 passed"), "{}{}", said[0], said[1]);
        return;
    }
    assert!(std::thread::Builder::new().spawn(|| {}).is_err(), "a thread with an endless stack");
    for shape in CONFIGURATIONS {
        let scratch = Scratch::new();
        let open = || scratch.options().recovery_threads(4).open(&scratch.0).unwrap();
        let pool = open();
        pool.prefault(8 << 20).unwrap();
        let tree = shape.tree(&pool, "t").create::<u64, u64>().unwrap();
        (0..KEYS).for_each(|key| tree.upsert(key, key).unwrap());
        assert_eq!((tree.len().unwrap(), tree.check()), (KEYS, vec![]));
        drop(tree);
        pool.simulate_crash();
        let pool = open();
        let tree = shape.tree(&pool, "t").open::<u64, u64>().unwrap();
        assert_eq!((tree.len().unwrap(), tree.check()), (KEYS, vec![]));
    }
}

/// Calls `each` with every permutation of `count` objects.
fn orders(count: usize, each: &mut impl FnMut(&[usize])) {
    fn extend(chosen: &mut Vec<usize>, count: usize, each: &mut impl FnMut(&[usize])) {
        if chosen.len() == count {
            return each(chosen);
        }
        for next in 0..count {
            if !chosen.contains(&next) {
                chosen.push(next);
                extend(chosen, count, each);
                chosen.pop();
            }
        }
    }
    extend(&mut Vec::new(), count, each);
}

/// The last handle closes the pool, for any order of the pool, a clone, a tree, its clone and tree options.
#[test]
fn handles_are_dropped_in_any_order() {
    for shape in share(small()) {
        let scratch = Scratch::new();
        let mut tried = 0;
        orders(5, &mut |order| {
            let pool = scratch.open();
            let opened: bristlecone::Result<Tree<u64, u64>> = shape.open(&pool, "t");
            let tree = opened.or_else(|_| shape.create(&pool, "t")).unwrap();
            tree.upsert(tried, tried).unwrap();
            let (clone, options, other) = (pool.clone(), pool.tree_options("t"), tree.clone());
            // An iterator that was started and not finished.
            assert_eq!(other.iter().map(Result::unwrap).next(), Some((0, 0)));
            let mut handles: [Option<Box<dyn Any>>; 5] = [
                Some(Box::new(pool)),
                Some(Box::new(clone)),
                Some(Box::new(tree)),
                Some(Box::new(other)),
                Some(Box::new(options)),
            ];
            for (at, &handle) in order.iter().enumerate() {
                assert!(
                    matches!(scratch.try_open(), Err(Error::InUse { .. })),
                    "{shape:?} {order:?}: closed at {at}"
                );
                handles[handle] = None;
            }
            let pool = scratch.open();
            assert!(pool.info().was_clean, "{shape:?} {order:?}");
            tried += 1;
        });
        let pool = scratch.open();
        let tree = shape.tree(&pool, "t").open::<u64, u64>().unwrap();
        assert_eq!((tried, tree.len().unwrap(), tree.check()), (120, 120, vec![]), "{shape:?}");
    }
}

/// Threads write a few items and end, and others continue: objects deferred by ended threads must not leak.
#[test]
fn threads_end_while_their_trees_live() {
    const ROUNDS: u64 = 40;
    const THREADS: u64 = 8;
    const EACH: u64 = 50;
    for shape in small() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = shape.tree(&pool, "t").create::<u64, u64>().unwrap();
        for round in 0..ROUNDS {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let tree = &tree;
                    scope.spawn(move || {
                        let own = |at: u64| (round * THREADS + thread) * EACH + at;
                        (0..EACH).for_each(|at| assert_eq!(tree.insert(own(at), own(at)).unwrap(), None));
                        // The items of another thread that has ended.
                        let ended = (own(0) + EACH - 1).checked_sub(THREADS * EACH);
                        if let Some(ended) = ended {
                            assert_eq!(tree.remove(ended).unwrap(), Some(ended));
                        }
                    });
                }
            });
        }
        let len = ROUNDS * THREADS * EACH - (ROUNDS - 1) * THREADS;
        assert_eq!((tree.len().unwrap(), tree.check()), (len, vec![]), "{shape:?}");
        drop(tree);
        pool.simulate_crash();
        let pool = scratch.open();
        let tree = shape.tree(&pool, "t").open::<u64, u64>().unwrap();
        assert_eq!(
            (tree.len().unwrap(), tree.iter().map(Result::unwrap).count() as u64, tree.check()),
            (len, len, vec![]),
            "{shape:?}"
        );
    }
}

/// Far more threads than processors, all in one tree: a thread that waits for a preempted one must yield.
#[test]
fn far_more_threads_than_processors() {
    const THREADS: u64 = 64;
    const EACH: u64 = 200;
    for shape in small() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = shape.tree(&pool, "t").create::<u64, u64>().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let tree = &tree;
                scope.spawn(move || {
                    for at in 0..EACH {
                        let key = at * THREADS + thread;
                        assert_eq!(tree.insert(key, thread).unwrap(), None);
                        assert_eq!(tree.get(key).unwrap(), Some(thread));
                        if at % 4 == 3 {
                            assert_eq!(tree.remove(key - THREADS).unwrap(), Some(thread));
                        }
                    }
                });
            }
        });
        let len = THREADS * EACH * 3 / 4;
        assert_eq!(
            (tree.len().unwrap(), tree.iter().map(Result::unwrap).count() as u64, tree.check()),
            (len, len, vec![]),
            "{shape:?}"
        );
    }
}
