//! Pools of small chunks, with more trees than the header of a pool has entries for.

use bristlecone::{Pool, Tree};

use crate::common::{CONFIGURATIONS, Plant, Scratch, defaults, share};

const FEW: u64 = 3;

/// Every design begins with a few chunks, grows beyond them, and frees them.
#[test]
fn trees_of_small_chunks_begin_small_and_grow() {
    let others = share(CONFIGURATIONS.iter().copied().filter(|shape| !shape.options.is_empty()));
    for shape in defaults().chain(others) {
        let scratch = Scratch::new();
        let open = || Pool::options().chunk_bytes(4096).create(true).open(&scratch.0).unwrap();
        let used = |pool: &Pool| pool.info().chunks - pool.info().chunks_free;
        let pool = open();
        for tree in 0..300 {
            // Behind the entries of the header there are those of any shape.
            let name = tree.to_string();
            if tree < 256 {
                pool.tree::<u64, u64>(&name).unwrap().upsert(1, tree).unwrap();
                continue;
            }
            let before = used(&pool);
            let words: Tree<u64, u64> = shape.create(&pool, &name).unwrap();
            (0..FEW).for_each(|key| words.upsert(key, key + tree).unwrap());
            // One is a page of the directory: of 16 entries.
            assert!(used(&pool) - before <= 5, "{shape:?}: {} chunks", used(&pool) - before);
        }
        let grown: Tree<u64, u64> = shape.open(&pool, "299").unwrap();
        (FEW..2000).for_each(|key| grown.upsert(key, key + 299).unwrap());
        drop(grown);
        pool.simulate_crash();
        let pool = open();
        for tree in (0..300).step_by(13) {
            let words = pool.tree::<u64, u64>(&tree.to_string()).unwrap();
            assert_eq!(words.get(1).unwrap(), Some(if tree < 256 { tree } else { tree + 1 }), "{shape:?}");
        }
        let grown: Tree<u64, u64> = shape.open(&pool, "299").unwrap();
        assert!(grown.iter().map(Result::unwrap).eq((0..2000).map(|key| (key, key + 299))), "{shape:?}");
        assert!(grown.check().is_empty() && pool.check().is_empty(), "{shape:?}");
        drop(grown);
        let before = used(&pool);
        pool.drop_tree("299").unwrap();
        assert!(before - used(&pool) >= 8, "{shape:?}: {} chunks freed", before - used(&pool));
        assert_eq!(pool.trees().unwrap().len(), 299);
    }
}
