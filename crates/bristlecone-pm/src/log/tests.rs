//! Chunks on machines with several nodes.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::*;
use crate::{Domain, Geometry, Native, Region, TreeSpec};

thread_local!(static PROCESSOR: Cell<usize> = const { Cell::new(0) });

/// A log of one entry a chunk, on a machine of two nodes with two processors each.
fn log_on_two_nodes(chunks_max: u64) -> Log<Native> {
    let geometry = Geometry { chunk_bytes: 4096, chunks_max, trees_max: 1 };
    let region = Region::memory(geometry.max_bytes()).unwrap();
    let pool = PoolFile::create_in(region, geometry, Domain::Process, Native::new(Domain::Process)).unwrap();
    let spec = TreeSpec {
        name: "t".into(),
        design: 3,
        key_kind: "u64".into(),
        value_kind: "u64".into(),
        params: [0; 8],
    };
    let tree = pool.create_tree(&spec).unwrap().id;
    let (mut log, _) = Log::open(&pool, tree, Some(1));
    log.nodes = Nodes::of(vec![0, 0, 1, 1], || PROCESSOR.get(), |_| None);
    log
}

/// Appends an entry on a processor; the number of its chunk.
fn append(log: &Log<Native>, processor: usize) -> Option<u32> {
    PROCESSOR.set(processor);
    let spot = log.reserve(|_| true)?;
    let chunk = spot.chunk();
    spot.append(&LogEntry { sequence: 1, removed: false, key: 2, value: 3 }, None);
    Some(chunk)
}

#[test]
fn chunks_are_used_again_by_threads_of_their_node() {
    let log = log_on_two_nodes(64);
    let mut near = [BTreeSet::new(), BTreeSet::new()];
    for n in 0..8 {
        near[n % 2].insert(append(&log, [1, 2][n % 2]).unwrap());
    }
    let old = log.turn(1);
    // Of those in use a quarter is kept, and one.
    (0..20).for_each(|_| _ = append(&log, 0).unwrap());
    log.recycle(old);
    PROCESSOR.set(3);
    let free = log.chunks_free();
    assert_eq!(free, 3);
    let again: BTreeSet<_> = (0..free).map(|_| append(&log, 3).unwrap()).collect();
    assert!(again.is_subset(&near[1]), "{again:?} of {near:?}");
    // What is left is far from here: the pool has others.
    assert!(log.chunks_free() == 0 && !near[0].contains(&append(&log, 3).unwrap()));
    assert!(near[0].contains(&append(&log, 0).unwrap()));
}

#[test]
fn a_full_pool_gives_what_is_far_away() {
    let log = log_on_two_nodes(8);
    (0..5).for_each(|_| _ = append(&log, 0).unwrap());
    log.recycle(log.turn(1));
    let take = || log.pool.chunk_alloc(log.owner, SlotKind::Subnode, 256, 0);
    while take().is_ok() {}
    PROCESSOR.set(2);
    assert_eq!(log.chunks_free(), 0, "the free one is far from here");
    assert!(append(&log, 2).is_some() && append(&log, 2).is_none());
}
