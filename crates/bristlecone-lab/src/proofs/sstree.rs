//! SSTree: what recovery frees, another thread uses at once.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_pm::Geometry;
use bristlecone_sim::{Budget, Scenario};

use super::{Proof, Steps, insert, scenario};
use crate::targets::TreeOp::{self, Elsewhere, Remove};
use crate::targets::{TreePool, Words};

/// Items of a full leaf: three subnodes of six.
const FULL: u64 = 18;

/// Returns a pool of small leaves, with so many subnodes to a chunk that the first free one is used next.
pub fn small() -> TreePool<Words> {
    TreePool {
        geometry: Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 },
        design: Design::SsTree.into(),
        options: vec![("subnode_bytes", 128), ("max_subnodes", 3), ("inner_bytes", 256)],
        items: PhantomData,
    }
}

/// Returns a scenario: of two full leaves the first one loses some items, the last of them in the operation. Recovery frees
/// what has become empty, and a thread that fences nothing for it splits the other leaf into that.
fn freed(name: &'static str, gone: impl DoubleEndedIterator<Item = u64> + Clone) -> Scenario<TreeOp> {
    let remove = |at: u64| Remove("t", at * 10);
    let mut removed: Vec<_> = gone.map(remove).collect();
    let last = removed.pop().expect("an item goes");
    let setup = (0..2 * FULL).map(|at| insert(at * 10)).chain(removed);
    scenario(name, setup, [last], vec![Elsewhere(Box::new(insert(FULL * 10 + 5)))])
}

/// Returns scenarios in which recovery frees a leaf's only subnode, its last one, and one in the middle.
pub fn reuses() -> Vec<Scenario<TreeOp>> {
    let all = freed("freed-head", 0..FULL);
    let tail = freed("freed-tail", FULL - FULL / 3..FULL);
    let both = freed("freed-tails", FULL / 3..FULL);
    vec![all, tail, both]
}

/// Groups of steps, each with what notices a change there.
pub(super) fn proofs() -> Vec<Proof> {
    let budget = Budget { continuation_crashes: 1, depth: 1, ..Budget::of(64) };
    vec![Proof::by_crashes(Steps::Starting("sstree recover"), budget, || (small(), reuses()))]
}
