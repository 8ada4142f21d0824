//! The space of SSTree. Lines are counted in `verify/explore/tests/explore/figures.rs`.

use crate::common::Scratch;
use bristlecone::Design;
use bristlecone_random::mix;

const KEYS: u64 = 1_000_000;

#[test]
fn space_after_a_uniform_load_and_after_deleting_everything() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree_options("t").design(Design::SsTree).create::<u64, u64>().unwrap();
    for i in 1..=KEYS {
        tree.insert(mix(i), i).unwrap();
    }
    let stats = tree.stats().unwrap();
    let (pm, dram) = (stats.pm_bytes as f64 / KEYS as f64, stats.dram_bytes as f64 / KEYS as f64);
    println!("{pm:.2} B of the pool and {dram:.2} B of DRAM a key");
    // The paper: 21 and 3.6. Ours is measured in whole chunks.
    assert!(pm <= 24.0, "{pm} bytes of the pool a key");
    assert!(dram <= 5.0, "{dram} bytes of DRAM a key");
    for i in 1..=KEYS {
        assert_eq!(tree.remove(mix(i)).unwrap(), Some(i));
    }
    let info = pool.info();
    assert!(info.chunks_free * 20 >= info.chunks * 18, "{} of {} free", info.chunks_free, info.chunks);
    assert_eq!((tree.stats().unwrap().leaves, tree.check()), (1, vec![]));
}
