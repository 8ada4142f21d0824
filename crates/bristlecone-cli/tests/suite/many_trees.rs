//! A pool with a tree for each of 10,000 tenants.

use std::time::Instant;

use bristlecone::{Design, Pool};

use crate::common::Bench;

const TREES: u64 = 10_000;
const ENTRIES: u64 = 3;

fn name(tree: u64) -> String {
    format!("tenant-{tree}")
}

/// Creates trees of all designs in turn, each with a few entries.
fn fill(pool: &Pool, trees: std::ops::Range<u64>) {
    for tree in trees {
        let design = Design::ALL[tree as usize % Design::ALL.len()];
        let entries = pool.tree_options(&name(tree)).design(design).create::<u64, u64>().unwrap();
        (0..ENTRIES).for_each(|entry| entries.upsert(entry, tree).unwrap());
    }
}

#[test]
fn ten_thousand_small_trees_take_at_most_100_mib() {
    let bench = Bench::new();
    bench.run("create @p --chunk-size 4K").ok();
    bench.run("create @p --chunk-size 8K --tree t").refused(2, "drop --chunk-size");
    bench.run("create @q --chunk-size 5000").refused(2, "powers of two from 4 KiB to 2 MiB");
    bench.run("create @q --chunk-size 4M").refused(2, "powers of two from 4 KiB to 2 MiB");
    let pool = Pool::open(bench.path("p")).unwrap();
    fill(&pool, 0..TREES);
    pool.close().unwrap();
    let begun = Instant::now();
    let pool = Pool::open(bench.path("p")).unwrap();
    let (opened, info) = (begun.elapsed(), pool.info());
    println!("{TREES} trees: {} bytes, opened in {opened:?}", info.file_bytes);
    assert!(info.file_bytes <= 100 << 20 && info.chunk_bytes == 4096, "{info:?}");
    assert_eq!(pool.trees().unwrap().len() as u64, TREES);
    for tree in (0..TREES).step_by(97) {
        let entries = pool.tree::<u64, u64>(&name(tree)).unwrap();
        assert!(
            entries.iter().map(Result::unwrap).eq((0..ENTRIES).map(|entry| (entry, tree))),
            "tree {tree}"
        );
    }
    pool.simulate_crash();
    let last = name(TREES - 1);
    assert_eq!(bench.run(&format!("get @p {last} 1")).ok(), format!("{}\n", TREES - 1));
    bench.run(&format!("put @p {last} 7 8")).ok();
    bench.run(&format!("drop @p {}", name(5_000))).ok();
    bench.run(&format!("rename @p {} another", name(6_000))).ok();
    assert_eq!(bench.run("get @p another 2").ok(), "6000\n");
    assert_eq!(Pool::open(bench.path("p")).unwrap().trees().unwrap().len() as u64, TREES - 1);
}

/// More trees than the header of a pool has entries for, and than a copy keeps open.
#[test]
fn hundreds_of_trees_are_checked_and_copied() {
    let bench = Bench::new();
    bench.run("create @p --chunk-size 4K").ok();
    let pool = Pool::open(bench.path("p")).unwrap();
    fill(&pool, 0..400);
    pool.simulate_crash();
    assert!(bench.run("check @p").ok().starts_with("400 trees"));
    assert_eq!(bench.run("info @p --json").json()["trees"].as_array().unwrap().len(), 400);
    bench.run("copy @p @copy").ok();
    assert!(bench.run("check @copy").ok().starts_with("400 trees"));
    assert_eq!(bench.run(&format!("get @copy {} 2", name(399))).ok(), "399\n");
}

#[test]
fn thousands_of_trees_are_open_together() {
    let bench = Bench::new();
    bench.run("create @p --chunk-size 4K").ok();
    let pool = Pool::open(bench.path("p")).unwrap();
    let trees: Vec<_> = (0..4_000)
        .map(|tree| {
            let design = Design::ALL[tree % Design::ALL.len()];
            let tree = pool.tree_options(&name(tree as u64)).design(design).create::<u64, u64>().unwrap();
            tree.insert(1, 2).unwrap();
            tree
        })
        .collect();
    assert!(trees.iter().all(|tree| tree.get(1).unwrap() == Some(2)));
}
