//! Trees that are filled and emptied repeatedly must reuse their space, in the pool and in DRAM.

use bristlecone::{Design, Tree};

use crate::common::{Scratch, defaults};

const KEYS: u64 = 4000;
const ROUNDS: usize = 6;

/// Fills a tree and empties it, in a different order each round; returns its space when full, in bytes of the
/// pool and of DRAM.
fn taken(tree: &Tree<u64, u64>, round: usize) -> [u64; 2] {
    let step = [1, 7, 3999][round % 3];
    let key = |at: u64| at * step % KEYS;
    (0..KEYS).for_each(|at| _ = tree.insert(key(at), at).unwrap());
    let stats = tree.stats().unwrap();
    (0..KEYS).for_each(|at| _ = tree.remove(key(at)).unwrap());
    assert_eq!((tree.len().unwrap(), tree.iter().map(Result::unwrap).count()), (0, 0));
    [stats.pm_bytes, stats.dram_bytes]
}

#[test]
fn what_went_is_used_again() {
    for shape in defaults() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree: Tree<u64, u64> = shape.tree(&pool, "t").create().unwrap();
        let rounds: Vec<_> = (0..ROUNDS).map(|round| taken(&tree, round)).collect();
        for kind in 0..2 {
            // Compares the third round with the last one, which both follow a round of each order.
            let [before, after] = [2, 5].map(|round| rounds[round][kind]);
            // A buffer of CCL-BTree belongs to a leaf's position in its chunk, and blocks use all positions in
            // turn.
            let places = if shape.design == Design::CclBTree { rounds[5][0] / 4 } else { 0 };
            assert!(after <= (before + before / 4).max(places), "{shape:?}: {rounds:?}");
        }
    }
}
