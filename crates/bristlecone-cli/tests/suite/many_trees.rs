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
    bench.run("create @p --chunk-size 8K --tree t").refused(2, "leave --chunk-size out");
    bench.run("create @q --chunk-size 5000").refused(2, "powers of two from 4 KiB to 2 MiB");
    bench.run("create @q --chunk-size 4M").refused(2, "powers of two from 4 KiB to 2 MiB");
    let pool = Pool::open(bench.path("p")).unwrap();
    fill(&pool, 0..TREES);
    pool.close().unwrap();
    let info = bench.run("info @p --json").json();
    assert_eq!((&info["trees"], &info["chunk_bytes"]), (&TREES.into(), &4096.into()));
    let file_bytes = info["file_bytes"].as_u64().unwrap();
    let begun = Instant::now();
    let pool = Pool::open(bench.path("p")).unwrap();
    println!("{TREES} trees: {file_bytes} bytes, opened in {:?}", begun.elapsed());
    assert!(file_bytes <= 100 << 20, "{file_bytes} bytes");
    for tree in (0..TREES).step_by(97) {
        let entries = pool.tree::<u64, u64>(&name(tree)).unwrap();
        assert!(entries.iter().eq((0..ENTRIES).map(|entry| (entry, tree))), "tree {tree}");
    }
    // A crash.
    pool.simulate_crash();
    assert!(bench.run("check @p").ok().starts_with("10,000 trees"));
    let last = name(TREES - 1);
    assert_eq!(bench.run(&format!("get @p {last} 1")).ok(), format!("{}\n", TREES - 1));
    bench.run(&format!("put @p {last} 7 8")).ok();
    bench.run(&format!("drop @p {}", name(5_000))).ok();
    bench.run(&format!("rename @p {} another", name(6_000))).ok();
    assert_eq!(bench.run("get @p another 2").ok(), "6000\n");
    assert_eq!(bench.run("info @p --json").json()["trees"], TREES - 1);
    bench.run("copy @p @copy").ok();
    assert!(bench.run("check @copy").ok().starts_with("9,999 trees"));
    assert_eq!(bench.run("get @copy another 2").ok(), "6000\n");
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
    assert!(trees.iter().all(|tree| tree.get(1) == Some(2)));
}
