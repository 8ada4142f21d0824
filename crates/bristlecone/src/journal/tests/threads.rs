//! Several threads, and then the power fails.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bristlecone_random::Generator as Random;

use super::{Scratch, open};
use crate::journal::simulated::Disk;
use crate::{Design, Durability};

const THREADS: u64 = 4;

/// Each thread counts up in its own key, and writes what it has seen of its neighbour's beside it.
#[test]
fn nothing_acknowledged_is_lost_and_no_change_appears_without_those_that_it_saw() {
    for &design in Design::ALL {
        for seed in 0..6 {
            let (scratch, disk) = (Scratch::new(), Disk::new());
            let durability = if seed % 2 == 0 { Durability::Commit } else { Durability::Memory };
            let pool = open(&scratch, &disk, durability).unwrap();
            let tree = pool.tree_options("t").design(design).create::<u64, u64>().unwrap();
            let mut random = Random::new(seed);
            disk.turn_off_at(disk.events() + 20 + random.index(300));
            let acknowledged: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (pool, tree, acknowledged) = (&pool, &tree, &acknowledged);
                    scope.spawn(move || {
                        for count in 1..2000 {
                            let seen = tree.get((thread + 1) % THREADS).unwrap().unwrap_or(0);
                            let done = if count % 3 == 0 {
                                let mut batch = pool.batch();
                                batch.insert(tree, thread, count).insert(tree, 100 + thread, seen);
                                batch.commit()
                            } else {
                                tree.upsert(100 + thread, seen).and_then(|()| tree.upsert(thread, count))
                            };
                            if done.is_err() {
                                return;
                            }
                            if durability == Durability::Commit {
                                acknowledged[thread as usize].store(count, SeqCst);
                            }
                        }
                    });
                }
            });
            drop(tree);
            pool.simulate_crash();
            let kills = random.below(2) == 0;
            let image = if kills { disk.after_kill() } else { disk.after_failure(&mut random) };
            if !kills {
                scratch.scramble_unless_closed();
            }
            let pool = open(&scratch, &image, Durability::Commit).unwrap();
            let tree = pool.tree::<u64, u64>("t").unwrap();
            assert!(tree.check().is_empty());
            for thread in 0..THREADS {
                let found = tree.get(thread).unwrap().unwrap_or(0);
                let least = acknowledged[thread as usize].load(SeqCst);
                assert!(found >= least, "{design}, seed {seed}: {found}, but {least} was acknowledged");
                let seen = tree.get(100 + thread).unwrap().unwrap_or(0);
                let is = tree.get((thread + 1) % THREADS).unwrap().unwrap_or(0);
                assert!(is >= seen, "{design}, seed {seed}: {seen} was seen, but {is} is there");
            }
        }
    }
}

/// A leader that waits for entries must let their writers know that it has made room for them.
#[test]
fn syncs_beside_writers_that_fill_the_ring_do_not_hang() {
    for durability in
        [Durability::Memory, Durability::Commit, Durability::Interval(Duration::from_micros(100))]
    {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        let pool = open(&scratch, &disk, durability).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (tree, done) = (&tree, &done);
                scope.spawn(move || {
                    for count in 0..3000 {
                        tree.upsert(thread, count).unwrap();
                        done.fetch_add(1, SeqCst);
                    }
                });
            }
            // A hang fails, in place of waiting for ever.
            let (done, is_over) = (&done, &is_over);
            scope.spawn(move || {
                let mut last = (0, std::time::Instant::now());
                while !is_over.load(SeqCst) {
                    let now = done.load(SeqCst);
                    if now != last.0 {
                        last = (now, std::time::Instant::now());
                    }
                    if last.1.elapsed() > Duration::from_secs(60) {
                        eprintln!("{durability:?}: no write within a minute after {now}");
                        std::process::abort();
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            while done.load(SeqCst) < THREADS * 3000 {
                pool.sync().unwrap();
            }
            is_over.store(true, SeqCst);
        });
    }
}

/// Drops that are refused make a checkpoint let go of the tree. It must look for the tree again, and have all items.
#[test]
fn a_checkpoint_beside_refused_drops_has_every_item() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Memory).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    pool.deferred(|| (0..3000).try_for_each(|key| tree.upsert(key, key))).unwrap();
    let (is_over, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                refused.fetch_add(pool.drop_tree("t").is_err().into(), SeqCst);
            }
        });
        // On a busy machine the other thread may begin late.
        let checkpoints = (0..10_000).take_while(|number| *number < 20 || refused.load(SeqCst) == 0);
        checkpoints.for_each(|_| pool.checkpoint().unwrap());
        is_over.store(true, SeqCst);
    });
    assert!(refused.load(SeqCst) > 0);
    drop(tree);
    pool.simulate_crash();
    let image = disk.after_failure(&mut Random::new(1));
    scratch.scramble_unless_closed();
    let pool = open(&scratch, &image, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    assert!(tree.range(..).map(Result::unwrap).eq((0..3000).map(|key| (key, key))));
}
