//! Reproduces the paper's figure 11: the effect of deletes and updates on the space of a tree.

use bristlecone_pm::{CHUNK_BYTES, Domain, Geometry, Native, PoolFile, Region, TreeSpec};
use bristlecone_random::mix;

use super::{Parameters, SsTree, SsTreeOptions};
use crate::index::parts::codec::Inline;
use crate::index::testing::{WordTree, of_words};
use crate::index::{Inspect, Open, WriteMode};

const KEYS: u64 = 400_000;

/// Returns the bytes of subnodes for each key loaded, before and after the paper's mixed operations: twice as
/// many as keys, a fifth of them deletes and the others updates.
fn around_deletes_and_updates(move_items: u64) -> (f64, f64) {
    let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max: 64, trees_max: 2 };
    let medium = Native::new(Domain::Process);
    let region = Region::memory(geometry.max_bytes()).unwrap();
    let pool = PoolFile::create_in(region, geometry, Domain::Process, medium).unwrap();
    let options = SsTreeOptions { move_items, ..SsTreeOptions::default() };
    let spec = TreeSpec::new("t", 1, "u64", "u64").with_params(options.to_words());
    let entry = pool.create_tree(&spec).unwrap();
    let tree = SsTree::<Inline, Native>::open(&pool, of_words(&entry), options, 1).unwrap();
    let bytes = || (tree.subnodes.stats().live_slots * options.subnode_bytes) as f64 / KEYS as f64;
    (1..=KEYS).for_each(|i| assert_eq!(tree.write_word(mix(i), i, WriteMode::New).unwrap(), None));
    let loaded = bytes();
    for number in 1..=2 * KEYS {
        let key = mix(1 + mix(number) % KEYS);
        if mix(number ^ 1 << 40).is_multiple_of(5) {
            tree.remove_word(key).unwrap();
        } else {
            tree.write_word(key, number, WriteMode::Update).unwrap();
        }
    }
    assert_eq!(tree.check(), []);
    (loaded, bytes())
}

#[test]
fn deletes_and_updates_shrink_a_tree() {
    let (loaded, shrunk) = around_deletes_and_updates(1);
    let (still, kept) = around_deletes_and_updates(0);
    println!(
        "bytes of subnodes a key: {loaded:.2}, then {shrunk:.2}; without moves {still:.2}, then {kept:.2}"
    );
    // The paper: 21 B, and 8.6 % less.
    assert!((20.5..22.5).contains(&loaded) && loaded == still, "{loaded} B a key");
    assert!(shrunk <= 0.914 * loaded, "from {loaded} to {shrunk}");
    assert!(kept > shrunk, "moving is what gives space back: {kept}, {shrunk}");
}
