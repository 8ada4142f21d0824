//! Transactions: serializable under any concurrent changes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bristlecone::{Error, Pool};

use crate::{Scratch, mix, pairs};

#[test]
pub fn a_transaction_sees_what_it_wrote_and_others_only_the_end() {
    for (design, _) in pairs() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = pool.tree_options("t").design(design).create::<u64, String>().unwrap();
        (0..10).for_each(|key| _ = tree.insert(key, "old").unwrap());
        let seen = pool.transaction(|tx| {
            tx.insert(&tree, 20, "new")?;
            tx.remove(&tree, 3)?;
            tx.insert(&tree, 4, "new")?;
            assert_eq!((tx.get(&tree, 20)?.as_deref(), tx.get(&tree, 3)?), (Some("new"), None));
            assert!(tx.contains_key(&tree, 4)? && !tx.contains_key(&tree, 11)?);
            assert_eq!(
                (tree.get(20).unwrap(), tree.get(3).unwrap()),
                (None, Some("old".to_owned())),
                "seen before its time"
            );
            Ok(tx
                .range(&tree, 2..)
                .map(Result::unwrap)
                .map(|(key, value)| (key, value == "new"))
                .collect::<Vec<_>>())
        });
        let expected =
            [(2, false), (4, true), (5, false), (6, false), (7, false), (8, false), (9, false), (20, true)];
        assert_eq!(seen.unwrap(), expected, "{design}");
        assert_eq!((tree.get(20).unwrap().as_deref(), tree.get(3).unwrap()), (Some("new"), None));
        let backward: Vec<u64> =
            pool.transaction(|tx| tx.range(&tree, ..5).rev().map(|item| Ok(item?.0)).collect()).unwrap();
        assert_eq!(backward, [4, 2, 1, 0]);
        // Like a loop that removes each item it reads.
        pool.transaction(|tx| {
            for item in tx.range(&tree, ..10) {
                tx.remove(&tree, item?.0)?;
            }
            Ok(())
        })
        .unwrap();
        assert!(tree.iter().map(Result::unwrap).map(|(key, _)| key).eq([20]));
    }
}

#[test]
pub fn an_error_a_panic_and_a_rollback_change_nothing() {
    let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    tree.insert(1, 1).unwrap();
    let failed: Result<(), Error> = pool.transaction(|tx| {
        tx.insert(&tree, 1, 2)?;
        Err(Error::KeyExists)
    });
    assert!(matches!(failed, Err(Error::KeyExists)));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        pool.transaction(|tx| {
            tx.remove(&tree, 1)?;
            assert!(tree.is_empty().unwrap(), "on purpose");
            Ok(())
        })
    }));
    assert!(panicked.is_err());
    let given_up = pool.transaction(|tx| {
        tx.insert(&tree, 1, 3)?;
        tx.rollback();
        Ok("given up")
    });
    assert_eq!(given_up.unwrap(), "given up");
    let nested = pool.transaction(|tx| {
        tx.insert(&tree, 1, 4)?;
        pool.transaction(|inner| inner.insert(&tree, 2, 2))
    });
    assert!(nested.unwrap_err().to_string().starts_with("nested transactions"));
    let other = elsewhere.open();
    let foreign = other.tree::<u64, u64>("t").unwrap();
    let mixed = pool.transaction(|tx| {
        tx.insert(&tree, 1, 5)?;
        tx.range(&foreign, ..).try_for_each(|item| item.map(drop))
    });
    assert!(matches!(mixed, Err(Error::Invalid { .. })), "an error of an iterator got lost");
    // A transaction in another pool is not nested.
    pool.transaction(|_| other.transaction(|tx| tx.insert(&foreign, 1, 1))).unwrap();
    assert!(tree.iter().map(Result::unwrap).eq([(1, 1)]) && foreign.len().unwrap() == 1);
    pool.transaction(|tx| tx.insert(&tree, 1, 6)).unwrap();
    assert_eq!(tree.get(1).unwrap(), Some(6));
}

#[test]
pub fn who_never_gets_through_is_told() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let tries = AtomicU64::new(0);
    let refused = pool.transaction(|tx| {
        let seen = tx.get(&tree, 1)?;
        // Bypasses the transaction.
        tree.insert(1, tries.fetch_add(1, Relaxed))?;
        tx.insert(&tree, 2, seen.unwrap_or(0))
    });
    assert!(matches!(refused, Err(Error::Conflict)));
    assert_eq!((tries.into_inner(), tree.get(2).unwrap()), (256, None));
    // Reads without changes are consistent, which the second call guarantees, and need nothing more.
    let calls = AtomicU64::new(0);
    let read = pool.transaction(|tx| {
        let first = tx.get(&tree, 1)?;
        tree.insert(1, 300 + calls.fetch_add(1, Relaxed))?;
        Ok([first, tx.get(&tree, 1)?])
    });
    assert_eq!((read.unwrap(), calls.into_inner(), tree.get(1).unwrap()), ([Some(300); 2], 2, Some(301)));
}

fn run(threads: u64, work: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
pub fn no_update_is_lost() {
    for (design, _) in pairs() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = pool.tree_options("t").design(design).create::<&str, u64>().unwrap();
        run(3, |_| {
            for _ in 0..300 {
                let count = |tx: &bristlecone::Transaction| {
                    let held = tx.get(&tree, "count")?.unwrap_or(0);
                    tx.insert(&tree, "count", held + 1)
                };
                while let Err(error) = pool.transaction(count) {
                    assert!(matches!(error, Error::Conflict), "{error}");
                }
            }
        });
        assert_eq!(tree.get("count").unwrap(), Some(900), "{design}");
    }
}

/// Keys are read one by one, more than there are counts for, and a range last. The closure sees a consistent state
/// each time it is called, also when it is called again.
#[test]
pub fn what_a_transaction_reads_is_of_one_moment() {
    const KEYS: u64 = 24;
    for (design, other) in pairs() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = |name: &str, design| pool.tree_options(name).design(design).create::<u64, u64>().unwrap();
        let trees = [tree("one", design), tree("other", other)];
        let home = |key: u64| &trees[(key % 2) as usize];
        (0..KEYS).for_each(|key| _ = home(key).insert(key, 100).unwrap());
        let done = AtomicU64::new(0);
        let move_one = |round: u64| {
            let (from, to) = (mix(round) % KEYS, mix(round ^ 0xabcd) % KEYS);
            let moved = pool.transaction(|tx| {
                let get = |key: u64| Ok::<u64, Error>(tx.get(home(key), key)?.unwrap_or(0));
                let (left, right) = (get(from)?, get(to)?);
                if from != to && left > 0 {
                    tx.insert(home(from), from, left - 1)?;
                    tx.insert(home(to), to, right + 1)?;
                }
                Ok(())
            });
            assert!(matches!(moved, Ok(()) | Err(Error::Conflict)), "{moved:?}");
        };
        let sum = |by_range: bool| {
            let calls = AtomicU64::new(0);
            pool.transaction(|tx| {
                calls.fetch_add(1, Relaxed);
                // Some one by one, the others by ranges.
                let singles = if by_range { 8 } else { KEYS };
                let mut sum = 0;
                for key in 0..singles {
                    sum += tx.get(home(key), key)?.unwrap_or(0);
                }
                for tree in trees.iter().filter(|_| by_range) {
                    sum += tx.range(tree, singles..).map(|item| Ok(item?.1)).sum::<Result<u64, Error>>()?;
                }
                assert_eq!(sum, KEYS * 100, "{design}");
                Ok(sum)
            })
            .map(|sum| assert_eq!(sum, KEYS * 100, "{design}"))
            .unwrap();
            assert!(calls.into_inner() <= 2, "{design}: reads alone were tried a third time");
        };
        run(4, |thread| match thread {
            0 | 1 => {
                (0..1500).for_each(|round| move_one(round * 4 + thread));
                done.fetch_add(1, Relaxed);
            }
            _ => {
                while done.load(Relaxed) < 2 {
                    sum(thread == 3);
                }
            }
        });
        sum(false);
        sum(true);
    }
}

/// A closure that continues after a conflict is called again nevertheless.
#[test]
pub fn a_closure_that_drops_a_conflict_is_called_again() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    (0..2).for_each(|key| _ = tree.insert(key, 0).unwrap());
    let (calls, conflicts) = (AtomicU64::new(0), pool.metrics().unwrap().conflicts);
    let seen = pool.transaction(|tx| {
        let first = tx.get(&tree, 0)?;
        if calls.fetch_add(1, Relaxed) == 0 {
            (0..2).for_each(|key| tree.upsert(key, 1).unwrap());
            assert!(matches!(tx.get(&tree, 1), Err(Error::Conflict)));
            assert!(matches!(tx.contains_key(&tree, 7), Err(Error::Conflict)), "what was outrun stays so");
        }
        Ok((first, tx.get(&tree, 1).unwrap_or(None)))
    });
    assert_eq!((seen.unwrap(), calls.into_inner()), ((Some(1), Some(1)), 2));
    assert_eq!(pool.metrics().unwrap().conflicts, conflicts + 1);
    // Nor does a range hide it.
    let calls = AtomicU64::new(0);
    let seen = pool.transaction(|tx| {
        let first = tx.get(&tree, 0)?;
        if calls.fetch_add(1, Relaxed) == 0 {
            (0..2).for_each(|key| tree.upsert(key, 2).unwrap());
        }
        Ok((first, tx.range(&tree, ..).filter_map(Result::ok).collect::<Vec<_>>()))
    });
    assert_eq!((seen.unwrap(), calls.into_inner()), ((Some(2), vec![(0, 2), (1, 2)]), 2));
}

/// In a full pool a batch is attempted, and its writes are rolled back. A lookup may see them meanwhile.
#[test]
pub fn what_is_taken_back_no_transaction_has_read() {
    for (design, _) in pairs() {
        let scratch = Scratch::new();
        let pool = crate::domains::options().max_bytes(16 << 20).create(true).open(&scratch.0).unwrap();
        let tree = pool.tree_options("t").design(design).create::<u64, u64>().unwrap();
        let mut keys = 0;
        while keys < 10_000_000 && tree.insert(mix(keys), 0).is_ok() {
            keys += 1;
        }
        let over = AtomicU64::new(0);
        run(2, |thread| match thread {
            0 => {
                for round in 0..100 {
                    let mut batch = pool.batch();
                    (0..8).for_each(|key| _ = batch.insert(&tree, mix(key), 1));
                    // Keys that need space.
                    (0..400).for_each(|key| _ = batch.insert(&tree, mix(keys + round * 400 + key), 1));
                    let refused = batch.commit().unwrap_err();
                    assert!(matches!(refused, Error::PoolFull { .. }), "{design}: {refused}");
                }
                over.store(1, Relaxed);
            }
            _ => {
                while over.load(Relaxed) == 0 {
                    let read = pool.transaction(|tx| tx.get(&tree, mix(3)));
                    assert_eq!(read.unwrap(), Some(0), "{design}: what a refused batch wrote");
                }
            }
        });
        assert_eq!(tree.get(mix(3)).unwrap(), Some(0));
    }
}

/// One or more are on call: each may leave only while another one stays. Ranges or keys are read, and other keys
/// written.
#[test]
pub fn what_is_read_does_not_skew() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let doctors = pool.tree::<u64, bool>("doctors").unwrap();
    for round in 0..400_u64 {
        (0..3).for_each(|doctor| _ = doctors.insert(doctor, true).unwrap());
        run(3, |doctor| {
            let left = pool.transaction(|tx| {
                let on_call = match round % 2 {
                    0 => {
                        let all: Result<Vec<_>, _> = tx.range(&doctors, ..).collect();
                        all?.into_iter().filter(|(_, on_call)| *on_call).count()
                    }
                    _ => {
                        let all: Result<Vec<_>, _> = (0..3).map(|doctor| tx.get(&doctors, doctor)).collect();
                        all?.into_iter().filter(|on_call| *on_call == Some(true)).count()
                    }
                };
                if on_call > 1 {
                    match mix(round + doctor) % 2 {
                        0 => tx.insert(&doctors, doctor, false)?,
                        _ => tx.remove(&doctors, doctor)?,
                    }
                }
                Ok(())
            });
            assert!(matches!(left, Ok(()) | Err(Error::Conflict)));
        });
        assert!(
            doctors.iter().map(Result::unwrap).any(|(_, on_call)| on_call),
            "no doctor is on call in round {round}"
        );
    }
}

/// An absent key is inserted into a range that was read.
#[test]
pub fn phantoms_are_conflicts() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let attempts = AtomicU64::new(0);
    pool.transaction(|tx| {
        let count = tx.range(&tree, 10..20).try_fold(0, |count, item| item.map(|_| count + 1))?;
        if attempts.fetch_add(1, Relaxed) == 0 {
            tree.insert(15, 0)?;
        }
        tx.insert(&tree, 30, count)
    })
    .unwrap();
    assert_eq!((attempts.into_inner(), tree.get(30).unwrap()), (2, Some(1)));
    // An insert beside the read keys is not a conflict.
    let attempts = AtomicU64::new(0);
    pool.transaction(|tx| {
        let first = tx.range(&tree, 10..).next().transpose()?.map(|(key, _)| key);
        assert_eq!(first, Some(15));
        attempts.fetch_add(1, Relaxed);
        tree.insert(9, 0)?;
        tx.insert(&tree, 5, 0)
    })
    .unwrap();
    assert_eq!(attempts.into_inner(), 1);
}

#[test]
pub fn transactions_of_forked_pools_are_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Pool>();
    is_shared::<bristlecone::Snapshot>();
    is_shared::<bristlecone::Batch>();
}
