//! The number of items, requested for the first time while writers are between a change and its
//! count.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::{CONFIGURATIONS, Noise, Scratch};
use bristlecone::Tree;

const THREADS: u64 = 3;
const KEYS: u64 = 2000;
const OPERATIONS: u64 = 1500;

#[test]
fn the_number_of_items_is_right_once_writers_are_done() {
    for shape in CONFIGURATIONS {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree: Tree<u64, u64> = shape.tree(&pool, "t").create().unwrap();
        (0..KEYS).step_by(2).for_each(|key| _ = tree.insert(key, key).unwrap());
        drop((tree, pool));
        for round in 0..4 {
            // The items are counted again after each opening.
            let pool = scratch.open();
            let tree: Tree<u64, u64> = shape.tree(&pool, "t").open().unwrap();
            let done = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (tree, done) = (&tree, &done);
                    scope.spawn(move || {
                        let mut noise = Noise(1 + round * THREADS + thread);
                        for _ in 0..OPERATIONS {
                            let key = noise.below(KEYS);
                            if noise.below(2) == 0 {
                                tree.insert(key, key).unwrap();
                            } else {
                                tree.remove(key).unwrap();
                            }
                        }
                        done.fetch_add(1, Relaxed);
                    });
                }
                while done.load(Relaxed) < THREADS {
                    assert!(tree.len().unwrap() < 2 * KEYS);
                    std::thread::yield_now();
                }
            });
            let found = tree.iter().map(Result::unwrap).count() as u64;
            assert_eq!((tree.len().unwrap(), tree.check()), (found, vec![]), "{shape:?} in round {round}");
        }
    }
}
