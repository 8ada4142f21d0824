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
}

/// A pool of large chunks is copied to one of small ones, and back.
#[test]
fn a_copy_has_chunks_of_another_size() {
    let bench = Bench::new();
    bench.run("create @large --size 4G").ok();
    let pool = Pool::open(bench.path("large")).unwrap();
    fill(&pool, 0..60);
    let long = pool.tree::<u64, &[u8]>("long").unwrap();
    long.insert(1, &[7; 3064]).unwrap();
    drop(long);
    pool.close().unwrap();
    let bytes = |pool: &str| {
        let info = bench.run(&format!("info @{pool} --json")).json();
        (info["chunk_bytes"].as_u64().unwrap(), info["file_bytes"].as_u64().unwrap(), info["trees"].clone())
    };
    bench.run("copy @large @small --chunk-size 4K").ok();
    bench.run("copy @small @same").ok();
    bench.run("copy @small @again --chunk-size 2M").ok();
    let (chunk_bytes, file_bytes, trees) = bytes("small");
    assert!(chunk_bytes == 4096 && file_bytes < 10 << 20 && trees == 61, "{file_bytes} bytes");
    assert_eq!((bytes("same").0, bytes("again").0), (4096, 2 << 20));
    let dumps = ["large", "small", "same", "again"].map(|pool| bench.run(&format!("dump @{pool}")).ok());
    assert!(dumps.iter().all(|dump| *dump == dumps[0]), "the copies differ");
    bench.run("check @small").ok();
    // What fits no chunk is refused, by every design, and changes nothing.
    let pool = Pool::open(bench.path("small")).unwrap();
    for design in Design::ALL {
        let tree = pool.tree_options(design.name()).design(*design).create::<&str, &str>().unwrap();
        let (fits, long) = ("f".repeat(3064), "l".repeat(4096));
        tree.insert(&*fits, &*fits).unwrap();
        for (key, value) in [("k", &*long), (&*long, "v"), (&*fits, &*long)] {
            let refused = tree.upsert(key, value).unwrap_err();
            assert!(matches!(refused, bristlecone::Error::TooLong { max_bytes: 3064, .. }), "{refused}");
            let refused = pool.transaction(|transaction| transaction.insert(&tree, key, value)).unwrap_err();
            assert!(matches!(refused, bristlecone::Error::TooLong { max_bytes: 3064, .. }), "{refused}");
        }
        assert!(tree.len() == 1 && tree.get(&*fits).as_deref() == Some(&*fits), "{design}");
        assert!(tree.check().is_empty());
    }
    pool.simulate_crash();
    bench.run("check @small").ok();
}
