//! Heap memory must be freed: reads, scans and whole lives of pools, repeatedly.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use bristlecone::{KeepIndex, Tree};
use bristlecone_pm::sync::epoch::settle;

use crate::common::*;

/// The heap, with the number of its bytes in use.
struct Counted;

static IN_USE: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static HEAP: Counted = Counted;

// SAFETY: the system's heap does it all.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Runs something repeatedly.
///
/// # Panics
///
/// Panics if each run leaves bytes in use, as many as there are keys, or more.
fn gives_back(cell: &Cell, what: &str, mut once: impl FnMut()) {
    const TIMES: usize = 8;
    let mut least = || {
        let after = (0..TIMES).map(|_| {
            once();
            settle(|| false);
            IN_USE.load(Relaxed)
        });
        after.min().expect("it was done")
    };
    // The first runs create what is kept for later ones; objects that wait for an epoch may be a few nodes of
    // a queue.
    let kept = -least() + least();
    assert!(kept < TIMES as i64 * KEYS as i64, "{cell}: {kept} bytes are in use after {what}, {TIMES} times");
}

const KEYS: u64 = 1500;

/// Every way to read a tree, including those that end early.
fn read<I: Items>(tree: &Tree<I::K, I::V>) {
    let keys: Vec<_> = (0..KEYS).map(I::key).collect();
    let lent: Vec<_> = keys.iter().map(I::key_ref).collect();
    let (from, to) = (keys[40].clone().min(keys[70].clone()), keys[40].clone().max(keys[70].clone()));
    let (from, to) = (I::key_ref(&from), I::key_ref(&to));
    for key in &lent {
        assert_eq!(tree.get(*key).unwrap().is_some(), tree.contains_key(*key).unwrap());
        tree.get_with(*key, |_| ()).unwrap();
    }
    let (mut values, mut there) = (vec![], vec![]);
    tree.get_many(&lent, &mut values).unwrap();
    tree.contains_many(&lent, &mut there).unwrap();
    let all = tree.iter().map(Result::unwrap).count();
    assert_eq!(all as u64, tree.len().unwrap());
    assert_eq!(tree.iter().map(Result::unwrap).rev().count(), all);
    assert_eq!(
        (tree.keys().map(Result::unwrap).count(), tree.values().map(Result::unwrap).count()),
        (all, all)
    );
    assert!(
        tree.range(from..to).map(Result::unwrap).rev().count()
            == tree.range(from..to).map(Result::unwrap).count()
    );
    for taken in [1, 7, 40, 100] {
        let mut ends = tree.range(from..).map(Result::unwrap);
        (0..taken).for_each(|at| drop(if at % 3 == 0 { ends.next_back() } else { ends.next() }));
        let mut left = taken;
        tree.for_each_in(from.., |_, _| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    }
    let ends = [tree.first_key_value().unwrap(), tree.last_key_value().unwrap()];
    assert!(ends[0].as_ref().map(|(key, _)| key) < ends[1].as_ref().map(|(key, _)| key));
    assert_eq!(tree.check(), []);
}

#[test]
fn every_cell_gives_back_what_it_takes_of_the_heap() {
    struct Run(Cell);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let Self(cell) = self;
            println!("{cell}");
            let scratch = Scratch::new();
            let pool = cell.pool(&scratch);
            let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
            for at in 0..KEYS {
                tree.upsert(I::key_ref(&I::key(at)), I::value_ref(&I::value(at))).unwrap();
            }
            gives_back(&cell, "reads", || read::<I>(&tree));
            drop(tree);
            pool.close().unwrap();
            gives_back(&cell, "a pool's life", || {
                let pool = scratch.in_cell(&cell).keep_index(KeepIndex::Never).open(&scratch.0).unwrap();
                let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
                for at in 0..KEYS {
                    let (key, value) = (I::key(at), I::value(at + 1));
                    tree.insert(I::key_ref(&key), I::value_ref(&value)).unwrap();
                    if at % 3 == 0 {
                        assert!(tree.remove(I::key_ref(&key)).unwrap().is_some());
                    }
                }
                drop(tree);
                pool.close().unwrap();
            });
        }
    }
    if is_alone("heap::every_cell_gives_back_what_it_takes_of_the_heap") {
        suites::HEAP.sampled().into_iter().for_each(|cell| cell.codec.visit(Run(cell)));
    }
}
