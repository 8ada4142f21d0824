//! A full pool: an error without any other change; removals free space again.

use crate::common::{
    CONFIGURATIONS, Cell, Codec, Items, Noise, Plant, Scratch, Visit, is_alone, lose_pages, share, suites,
};
use bristlecone::{Design, Domain, Error, Pool, RestoreTo, Standby, Tree};

const POOL_BYTES: u64 = 12 << 20;

fn small() -> (Scratch, Pool) {
    let scratch = Scratch::new();
    let pool = scratch.options().max_bytes(POOL_BYTES).open(&scratch.0).unwrap();
    (scratch, pool)
}

/// Inserts until the pool is full; returns the number of keys.
fn fill(tree: &Tree<u64, u64>, key: impl Fn(u64) -> u64) -> u64 {
    for i in 0.. {
        match tree.insert(key(i), i) {
            Ok(old) => assert_eq!(old, None),
            Err(Error::PoolFull { .. }) => return i,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("pools are finite")
}

#[test]
fn everything_acknowledged_stays_and_removals_make_room() {
    let (scratch, pool) = small();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let filled = fill(&tree, key);
    assert!(filled > 300_000, "{filled} keys in {POOL_BYTES} bytes");
    assert_eq!((tree.len().unwrap(), tree.check()), (filled, vec![]));
    for i in 0..filled {
        assert_eq!(tree.get(key(i)).unwrap(), Some(i));
        assert_eq!(tree.update(key(i), i + 1).unwrap(), Some(i), "updates in place go on");
    }
    for i in 0..filled {
        assert_eq!(tree.remove(key(i)).unwrap(), Some(i + 1));
    }
    assert_eq!(tree.check(), []);
    let info = pool.info();
    assert!(info.chunks_free + 2 >= info.chunks, "{} of {} chunks are free", info.chunks_free, info.chunks);
    let again = fill(&tree, |i| key(i).rotate_left(7));
    assert!(again * 10 > filled * 9, "{again} keys fit after {filled}");
    drop(tree);
    pool.simulate_crash();
    let tree = scratch.open().tree::<u64, u64>("t").unwrap();
    assert_eq!((tree.len().unwrap(), tree.check()), (again, vec![]));
}

#[test]
fn records_that_do_not_fit_leave_no_trace() {
    let (scratch, pool) = small();
    let tree = pool.tree::<&str, &[u8]>("t").unwrap();
    let mut noise = Noise(3);
    let mut held = std::collections::BTreeMap::new();
    let mut refused = 0;
    for round in 0..20_000_u64 {
        let key = format!("key {:05}", noise.below(4000));
        let value = vec![round as u8; [10, 100, 4000, 60_000][noise.below(4) as usize]];
        if noise.below(8) == 0 {
            assert_eq!(tree.remove(&key).unwrap(), held.remove(&key));
            continue;
        }
        match tree.insert(&key, &value) {
            Ok(old) => assert_eq!(old, held.insert(key, value)),
            Err(Error::PoolFull { .. }) => {
                refused += 1;
                assert_eq!(tree.get(&key).unwrap(), held.get(&key).cloned());
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 100, "the pool was full {refused} times only");
    assert_eq!(tree.check(), []);
    drop((tree, pool));
    let tree = scratch.open().tree::<&str, &[u8]>("t").unwrap();
    assert_eq!(tree.check(), []);
    assert!(tree.iter().map(Result::unwrap).eq(held));
}

#[test]
fn dropping_a_tree_gives_everything_back() {
    let (_scratch, pool) = small();
    for round in 0..5 {
        let tree = pool.tree::<u64, u64>("t").unwrap();
        let filled = fill(&tree, |i| i);
        assert!(filled > 300_000, "{filled} keys in round {round}");
        drop(tree);
        pool.drop_tree("t").unwrap();
        assert_eq!(pool.info().chunks, pool.info().chunks_free);
    }
}

/// A restored pool has its items in another order than the full one: it gets the space that they take then.
#[test]
fn a_full_pool_is_restored_after_a_power_failure() {
    fn run<I: Items>(design: Design) {
        let scratch = Scratch::new();
        let options = || {
            let options = Pool::options().domain(Domain::Journal).max_bytes(2 << 20).chunk_bytes(64 << 10);
            options.create(true).open(&scratch.0)
        };
        let pool = options().unwrap();
        let tree = pool.tree_options("t").design(design).create::<I::K, I::V>().unwrap();
        let put = |at: u64| {
            let (key, value) = (I::key(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8), I::value(at));
            tree.insert(I::key_ref(&key), I::value_ref(&value))
        };
        let refused = pool.deferred(|| Ok((0..).find_map(|at| put(at).err()).unwrap())).unwrap();
        assert!(refused.is_no_room(), "{design}: {refused}");
        let items = tree.len().unwrap();
        assert!(items > 100, "{design}: {items} items");
        let archive = scratch.0.with_extension("archive");
        let mut archiver = pool.archive(&archive).unwrap();
        while archiver.copy().unwrap() {}
        drop((archiver, tree));
        pool.simulate_crash();
        lose_pages(&scratch.0);
        let is_whole = |pool: &Pool, by: &str| {
            let tree = pool.tree::<I::K, I::V>("t").unwrap();
            assert_eq!((tree.len().unwrap(), tree.check()), (items, vec![]), "{design}, {by}");
        };
        is_whole(&options().unwrap(), "the next opening");
        let [restored, copy] = [Scratch::new(), Scratch::new()];
        Pool::options().restore(&restored.0, &archive, RestoreTo::End).unwrap();
        is_whole(&Pool::open(&restored.0).unwrap(), "a restore");
        Standby::open(&copy.0, &archive).unwrap().promote().unwrap();
        is_whole(&Pool::open(&copy.0).unwrap(), "a standby");
        std::fs::remove_dir_all(archive).unwrap();
    }
    struct Run(Design);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            run::<I>(self.0);
        }
    }
    for &design in Design::ALL {
        Codec::ALL.iter().for_each(|codec| codec.visit(Run(design)));
    }
}

/// Logs of five entries fill a pool of 32 chunks long before its items would. If they have no space to be copied
/// together, buffered items are flushed to their leaves, and the logs are freed.
#[test]
fn logs_of_few_entries_give_their_room_back() {
    let scratch = Scratch::new();
    let pool = scratch.options().max_bytes(64 << 20).open(&scratch.0).unwrap();
    let options =
        [("node_slots", 6), ("leaf_slots", 3), ("log_entries", 5), ("inner_bytes", 256), ("split_nodes", 3)];
    let tree = pool.tree_options("t").design(Design::LodgeTree);
    let tree = options.iter().fold(tree, |tree, (name, value)| tree.option(name, *value));
    let tree = tree.create::<&str, &[u8]>().unwrap();
    for round in 0..40 {
        for at in 0..if round < 3 { 151 } else { 255_u64 } {
            let (key, value) = (format!("{:05}", 151 + at), vec![round; at as usize]);
            if at % 2 == 1 {
                tree.upsert(&key, &value).unwrap();
            } else {
                tree.insert(&key, &value).unwrap();
            }
        }
    }
    assert_eq!((tree.len().unwrap(), tree.check()), (255, vec![]));
}

/// A pool of each cell is filled: a failed write changes nothing, acknowledged writes survive, also a crash, and
/// removals free space.
#[test]
fn every_cell_may_be_full() {
    struct Run(Cell);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let Self(cell) = self;
            println!("{cell}");
            let scratch = Scratch::new();
            let pool = cell.pool(&scratch);
            let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
            // The longest values: words would take too long.
            let value = |at: u64| I::value(at * 8 + 7);
            let put = |tree: &Tree<_, _>, at| tree.insert(I::key_ref(&I::key(at)), I::value_ref(&value(at)));
            let mut filled = 0;
            // In a pool with a journal many writes share a sync.
            let fill = || loop {
                match put(&tree, filled) {
                    Ok(old) => assert_eq!(old, None),
                    Err(error) => return Ok(error),
                }
                filled += 1;
            };
            let full = pool.deferred(fill).unwrap();
            assert!(matches!(full, Error::PoolFull { .. }), "{full}");
            println!("{filled} keys fill it");
            assert_eq!(
                (tree.len().unwrap(), tree.check(), tree.get(I::key_ref(&I::key(filled))).unwrap()),
                (filled, vec![], None)
            );
            drop(tree);
            cell.crash(pool, &scratch);
            let pool = cell.pool(&scratch);
            let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
            assert_eq!((tree.len().unwrap(), tree.check()), (filled, vec![]));
            (0..filled)
                .for_each(|at| assert_eq!(tree.get(I::key_ref(&I::key(at))).unwrap(), Some(value(at))));
            let again = || {
                for at in (0..filled).filter(|at| at % 4 != 0) {
                    assert_eq!(tree.remove(I::key_ref(&I::key(at)))?, Some(value(at)));
                }
                assert_eq!(tree.check(), []);
                for at in (0..filled / 4).filter(|at| at % 4 != 0) {
                    assert_eq!(put(&tree, at)?, None);
                }
                Ok(())
            };
            pool.deferred(again).unwrap();
            assert_eq!(tree.check(), []);
        }
    }
    if is_alone("full_pool::every_cell_may_be_full") {
        suites::FULL_POOL.sampled().into_iter().for_each(|cell| cell.codec.visit(Run(cell)));
    }
}

/// Removed keys must take no space, though the pool is never full or reopened.
#[test]
fn keys_that_are_gone_take_no_room() {
    if !is_alone("full_pool::keys_that_are_gone_take_no_room") {
        return;
    }
    const ROUNDS: usize = 40;
    const KEYS: usize = 500;
    for shape in share(CONFIGURATIONS) {
        let scratch = Scratch::new();
        let pool = scratch.options().max_bytes(256 << 20).open(&scratch.0).unwrap();
        let tree = shape.create::<&str, u64>(&pool, "t").unwrap();
        let mut dram = vec![];
        let used: Vec<u64> = (0..ROUNDS)
            .map(|round| {
                // Half a chunk for each few hundred.
                let keys: Vec<_> = (0..KEYS).map(|at| format!("{:04000}", round * KEYS + at)).collect();
                keys.iter().for_each(|key| assert_eq!(tree.insert(key, 1).unwrap(), None));
                keys.iter().for_each(|key| assert_eq!(tree.remove(key).unwrap(), Some(1)));
                let info = pool.info();
                dram.push(tree.stats().unwrap().dram_bytes);
                info.chunks - info.chunks_free
            })
            .collect();
        println!("{shape}: {used:?} chunks in use, {dram:?} bytes of DRAM");
        assert_eq!((tree.len().unwrap(), tree.check()), (0, vec![]), "{shape}");
        // The size of a log with a few entries per chunk depends on when its collector runs; lost space never
        // becomes free again.
        let first = used[..ROUNDS / 4].iter().max().expect("there are rounds");
        let last = used[ROUNDS * 3 / 4..].iter().min().expect("there are rounds");
        assert!(*last <= first + first / 4 + 2, "{shape}: {used:?} chunks in use");
        // Each position of a leaf has its own buffer, which counts from its first use on. In the other designs
        // some separators as long as keys wait for an epoch, in varying numbers.
        if shape.design != Design::CclBTree {
            let halves = [&dram[..ROUNDS / 2], &dram[ROUNDS / 2..]];
            let [before, after] = halves.map(|half| half.iter().max().expect("there are rounds"));
            assert!(*after <= before + 3 * 4096, "{shape}: {dram:?} bytes of DRAM");
        }
    }
}
