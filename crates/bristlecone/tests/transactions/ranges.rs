//! Removal of ranges: one commit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bristlecone::{Design, Domain, Error, Pool, Result, Tree, leave_range_in_part};

use bristlecone_matrix::process::{self, Process};
use bristlecone_random::mix;

use super::{Scratch, pairs};

/// A thread inserts ascending keys, another one removes all keys again and again, and a third one takes snapshots. Each
/// snapshot has all keys from some one on: otherwise it shows a part of a removal.
#[test]
pub fn a_range_is_removed_at_one_moment() {
    for &design in Design::ALL {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = pool.tree_options("t").design(design).create::<u64, u64>().unwrap();
        // Outside of the range.
        tree.insert(u64::MAX, 0).unwrap();
        let (keys, ended, removed) = (4000, AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..keys).for_each(|key| _ = tree.insert(key, key).unwrap());
                ended.store(true, Relaxed);
            });
            scope.spawn(|| {
                while !ended.load(Relaxed) {
                    removed.fetch_add(tree.remove_range(..keys).unwrap(), Relaxed);
                }
            });
            scope.spawn(|| {
                while !ended.load(Relaxed) {
                    let found: Vec<u64> = shown(&pool, &tree);
                    assert!(found.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{design}: {found:?}");
                }
            });
        });
        let left = tree.count(..keys).unwrap();
        assert_eq!(removed.into_inner() + left, keys, "{design}: an item was counted twice, or never");
        assert_eq!(tree.remove_range(..keys).unwrap(), left);
        assert_eq!((tree.len().unwrap(), tree.check()), (1, vec![]), "{design}");
    }
}

/// Returns the keys that a snapshot has, but for the largest one.
fn shown(pool: &Pool, tree: &Tree<u64, u64>) -> Vec<u64> {
    let view = pool.snapshot().unwrap();
    let keys = view.tree(tree).range(..u64::MAX).map(|item| item.map(|(key, _)| key));
    keys.collect::<Result<_>>().unwrap()
}

#[test]
pub fn snapshots_show_a_removed_range_and_those_beyond_their_bounds_are_given_up() {
    for &design in Design::ALL {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = pool.tree_options("t").design(design).create::<&str, &str>().unwrap();
        let key = |at: u64| format!("{at:04}");
        (0..1000).for_each(|at| _ = tree.insert(&key(at), "value").unwrap());
        let whole = pool.snapshot().unwrap();
        let bounded = [pool.snapshot_within(20_000).unwrap(), pool.snapshot_within(10 << 20).unwrap()];
        assert_eq!(tree.remove_range("0100".."0900").unwrap(), 800, "{design}");
        assert!(matches!(bounded[0].tree(&tree).get("0500"), Err(Error::SnapshotTooOld)), "{design}");
        assert_eq!(bounded[0].bytes(), 0, "{design}");
        for view in [&whole, &bounded[1]] {
            assert!(view.tree(&tree).iter().map(|item| item.unwrap().0).eq((0..1000).map(key)), "{design}");
            assert_eq!(view.tree(&tree).get("0500").unwrap().as_deref(), Some("value"), "{design}");
        }
        // A snapshot of now, with items that are written later.
        let now = pool.snapshot().unwrap();
        tree.insert("0500", "again").unwrap();
        tree.clear().unwrap();
        assert_eq!((now.tree(&tree).len().unwrap(), now.tree(&tree).get("0500").unwrap()), (200, None));
        assert_eq!(whole.tree(&tree).len().unwrap(), 1000, "{design}");
        assert!(tree.is_empty().unwrap() && tree.check().is_empty(), "{design}");
    }
}

#[test]
pub fn a_transaction_that_read_a_removed_key_conflicts() {
    for (design, other) in pairs() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = pool.tree_options("t").design(design).create::<u64, u64>().unwrap();
        let copy = pool.tree_options("copy").design(other).create::<u64, u64>().unwrap();
        // By the counts of locks, and in a snapshot.
        for reads in [1, 40] {
            (0..100).for_each(|key| _ = tree.insert(key, key).unwrap());
            let tx = pool.begin_transaction().unwrap();
            (0..reads).for_each(|key| assert_eq!(tx.get(&tree, key + 30).unwrap(), Some(key + 30)));
            tx.insert(&copy, 1, 1).unwrap();
            assert_eq!(tree.remove_range(10..90).unwrap(), 80);
            assert!(matches!(tx.commit(), Err(Error::Conflict)), "{design}, {reads} reads");
            assert!(copy.is_empty().unwrap(), "{design}, {reads} reads");
            // A range of keys that the removal did not have is unchanged.
            let tx = pool.begin_transaction().unwrap();
            assert_eq!(tx.range(&tree, 90..).count(), 10);
            tx.insert(&copy, 2, 2).unwrap();
            assert_eq!(tree.remove_range(..90).unwrap(), 10);
            tx.commit().unwrap();
            copy.clear().unwrap();
        }
    }
}

/// A crash at any point of a removal that is committed: the next opening, a reading one, and salvage remove the rest.
#[test]
pub fn a_range_left_in_part_is_removed_by_the_next_opening() {
    for &design in Design::ALL {
        for removed in [0, 1, 37, 80] {
            let scratch = Scratch::new();
            let pool = scratch.open();
            let tree = pool.tree_options("t").design(design).create::<u64, u64>().unwrap();
            (0..100).for_each(|key| _ = tree.insert(key, key).unwrap());
            let left = leave_range_in_part(&pool, &tree, 10..=89, removed);
            assert!(matches!(left, Err(Error::DurabilityLost)), "{design}");
            assert_eq!(tree.count(10..90).unwrap(), 80 - removed, "{design}");
            // It may be in the tree until then.
            assert!(matches!(tree.insert(50, 1), Err(Error::DurabilityLost)), "{design}");
            let has_journal = pool.info().domain == Domain::Journal;
            drop(tree);
            pool.simulate_crash();
            let is_right = |tree: &Tree<u64, u64>, by: &str| {
                let keys = tree.keys().map(Result::unwrap);
                assert!(keys.eq((0..10).chain(90..100)), "{design}, {removed} removed, {by}");
                assert!(tree.check().is_empty(), "{design}, {by}");
            };
            // Without an entry of the journal: its pages are right only after a kill.
            if !has_journal {
                let reader = Pool::options().read_only(true).open(&scratch.0).unwrap();
                is_right(&reader.tree("t").unwrap(), "a reading opening");
                drop(reader);
                let saved = Scratch::new();
                let salvage = Pool::options().salvage(&scratch.0, &saved.0).unwrap();
                assert!(salvage.is_whole() && salvage.items() == (20, 0), "{design}: {salvage:?}");
                is_right(&Pool::open(&saved.0).unwrap().tree("t").unwrap(), "salvage");
            }
            let pool = scratch.open();
            let tree: Tree<u64, u64> = pool.tree("t").unwrap();
            is_right(&tree, "an opening");
            (0..100).for_each(|key| _ = tree.insert(key, key + 1).unwrap());
            drop(tree);
            pool.simulate_crash();
            // The record does not count a second time.
            assert_eq!(scratch.open().tree::<u64, u64>("t").unwrap().len().unwrap(), 100, "{design}");
        }
    }
}

/// Environment variable that marks the process to be killed.
const KILLED: &str = "ranges::a_range_is_there_or_gone_after_every_kill";
/// Number of keys that are written and removed together.
const TOGETHER: u64 = 300;

fn tree_of(pool: &Pool, design: Design) -> Tree<u64, u64> {
    let options = pool.tree_options(design.name()).design(design);
    options.open().or_else(|_| options.create()).unwrap()
}

/// A process is killed while it writes keys by a batch and removes them as a range, in a tree of each design. Each tree
/// has all of its keys, with one value, or none.
#[test]
pub fn a_range_is_there_or_gone_after_every_kill() {
    if let Some([path]) = process::role().as_deref() {
        let pool = Pool::options().open(path).unwrap();
        process::say("open");
        std::thread::scope(|scope| {
            for &design in Design::ALL {
                let (pool, tree) = (&pool, tree_of(&pool, design));
                scope.spawn(move || {
                    for round in 0.. {
                        let mut batch = pool.batch();
                        (0..TOGETHER).for_each(|key| _ = batch.insert(&tree, key * 3, round));
                        batch.commit().unwrap();
                        assert_eq!(tree.remove_range(..TOGETHER * 3).unwrap(), TOGETHER);
                    }
                });
            }
        });
    }
    let scratch = Scratch::new();
    let pool = scratch.open();
    Design::ALL.iter().for_each(|design| _ = tree_of(&pool, *design).insert(u64::MAX, 1).unwrap());
    drop(pool);
    let mut found = [0; 2];
    for round in 0..8_u64 {
        let mut victim = Process::start(KILLED, &[scratch.0.to_str().unwrap()]);
        victim.expect("open");
        victim.kill_after(Duration::from_millis(50 + mix(round) % 100));
        let pool = scratch.open();
        for &design in Design::ALL {
            let tree = tree_of(&pool, design);
            let values: Vec<u64> = tree.range(..TOGETHER * 3).map(|item| item.unwrap().1).collect();
            assert!(
                values.is_empty() || values == vec![values[0]; TOGETHER as usize],
                "{design}: {values:?}"
            );
            found[usize::from(values.is_empty())] += 1;
            assert_eq!((tree.get(u64::MAX).unwrap(), tree.check()), (Some(1), vec![]), "{design}");
        }
        assert!(pool.check().is_empty());
    }
    assert!(found.iter().all(|count| *count > 0), "only one state was seen: {found:?}");
}

/// Damage in the range: nothing is removed, and the pool stays usable.
#[test]
pub fn damage_in_a_range_changes_nothing() {
    for &design in Design::ALL {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = pool.tree_options("t").design(design).create::<&str, &str>().unwrap();
        let key = |at: u64| format!("{at:020}");
        let value = |at: u64| format!("<the value of {at:08}>");
        (0..1000).for_each(|at| _ = tree.insert(&key(at), &value(at)).unwrap());
        drop(tree);
        pool.close().unwrap();
        crate::snapshots::damage(&scratch, &[500]);
        let pool = scratch.open();
        let tree: Tree<&str, &str> = pool.tree("t").unwrap();
        let (from, to) = (key(400), key(600));
        let refused = tree.remove_range(&from[..]..&to[..]);
        assert!(matches!(refused, Err(Error::Corrupted { .. })), "{design}: {refused:?}");
        assert!(matches!(tree.clear(), Err(Error::Corrupted { .. })), "{design}");
        assert_eq!(tree.len().unwrap(), 1000, "{design}");
        // Beside the damage, and without it.
        assert_eq!(tree.remove_range(..&from[..]).unwrap(), 400, "{design}");
        tree.retain_in(&from[..]..&to[..], |_, _| false).unwrap();
        assert_eq!(tree.remove_range(..).unwrap(), 400, "{design}");
        assert!(tree.check().is_empty() && tree.is_empty().unwrap(), "{design}");
    }
}

/// A full pool: the removal of a range succeeds as a whole, or changes nothing.
#[test]
pub fn a_full_pool_removes_a_range_whole_or_not_at_all() {
    for &design in Design::ALL {
        for has_log in [false, true] {
            let scratch = Scratch::new();
            let options = crate::domains::options().max_bytes(16 << 20).create(true);
            let pool = options.chunk_bytes(64 << 10).open(&scratch.0).unwrap();
            let tree = pool.tree_options("t").design(design).create::<u64, &[u8]>().unwrap();
            if has_log {
                (0..2).for_each(|key| _ = tree.insert(key, b"").unwrap());
                assert_eq!(tree.remove_range(..).unwrap(), 2, "{design}");
            }
            let mut keys = 0;
            for bytes in [9000, 90, 8] {
                while match tree.insert(keys * 7 % 100_003, &vec![keys as u8; bytes]) {
                    Ok(_) => true,
                    Err(error) => !error.is_no_room(),
                } {
                    keys += 1;
                }
            }
            let before: Vec<_> = tree.iter().map(Result::unwrap).collect();
            match tree.remove_range(1000..50_000) {
                Ok(removed) => assert_eq!(removed + tree.len().unwrap(), before.len() as u64, "{design}"),
                Err(error) => {
                    assert!(!has_log && error.is_no_room(), "{design}, with a log: {has_log}: {error}");
                    assert!(tree.iter().map(Result::unwrap).eq(before), "{design}");
                    // Single removals need no space.
                    tree.drain(1000..50_000).for_each(|item| _ = item.unwrap());
                }
            }
            assert_eq!(tree.count(1000..50_000).unwrap(), 0, "{design}");
            assert!(tree.check().is_empty() && pool.check().is_empty(), "{design}");
            match tree.clear() {
                Ok(()) => {}
                // No whole chunk has become free for the log.
                Err(error) => {
                    assert!(!has_log && error.is_no_room(), "{design}, with a log: {has_log}: {error}");
                    tree.retain(|_, _| false).unwrap();
                }
            }
            assert!(tree.is_empty().unwrap() && tree.check().is_empty(), "{design}");
        }
    }
}
