//! Pools with a journal: all configurations and codecs, restored from the files beside them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bristlecone::{Domain, Durability, Error, Pool, PoolOptions, Tree};

use crate::common::{Cell, Items, Noise, Plant, Scratch, Visit, lose_pages, suites};

/// A folder for a journal, which is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn beside(scratch: &Scratch) -> Self {
        Self(scratch.0.with_extension("files"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn options(scratch: &Scratch, cell: &Cell, folder: &Folder) -> PoolOptions {
    scratch.in_cell(cell).domain(Domain::Journal).journal(&folder.0).durability(Durability::Memory)
}

#[test]
fn every_configuration_is_restored() {
    struct Run(Cell);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let Self(cell) = self;
            let scratch = Scratch::new();
            let folder = Folder::beside(&scratch);
            let pool = options(&scratch, &cell, &folder).open(&scratch.0).unwrap();
            drop::<Tree<I::K, I::V>>(cell.create(&pool, "t").unwrap());
            pool.close().unwrap();
            let (mut model, mut noise) = (BTreeMap::new(), Noise(5));
            for round in 0..6 {
                let pool = options(&scratch, &cell, &folder).open(&scratch.0).unwrap();
                assert_eq!(pool.info().was_clean, round == 0 || round % 3 == 1, "{cell}, round {round}");
                let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
                let found: Vec<_> = tree.iter().collect::<bristlecone::Result<_>>().unwrap();
                let expected = model.iter().map(|(key, value)| (I::key(*key), I::value(*value)));
                let mut expected: Vec<_> = expected.collect();
                expected.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap());
                assert_eq!(found.len(), expected.len(), "{cell}, round {round}");
                assert!(found.iter().all(|item| expected.contains(item)), "{cell}, round {round}");
                assert!(tree.check().is_empty(), "{cell}");
                for _ in 0..60 {
                    let (key, value) = (noise.below(200), noise.below(1 << 20));
                    if noise.below(4) == 0 {
                        tree.remove(I::key_ref(&I::key(key))).unwrap();
                        model.remove(&key);
                    } else if noise.below(3) == 0 {
                        let mut batch = pool.batch();
                        batch.insert(&tree, I::key_ref(&I::key(key)), I::value_ref(&I::value(value)));
                        batch.commit().unwrap();
                        model.insert(key, value);
                    } else {
                        tree.upsert(I::key_ref(&I::key(key)), I::value_ref(&I::value(value))).unwrap();
                        model.insert(key, value);
                    }
                }
                if round == 2 {
                    pool.checkpoint().unwrap();
                }
                drop(tree);
                match round % 3 {
                    0 => pool.close().unwrap(),
                    // The next opening takes over what is in the ring.
                    1 => pool.simulate_crash(),
                    _ => {
                        pool.sync().unwrap();
                        pool.simulate_crash();
                        lose_pages(&scratch.0);
                    }
                }
            }
        }
    }
    suites::MODEL.sampled().into_iter().for_each(|cell| cell.codec.visit(Run(cell)));
}

#[test]
fn a_pool_with_a_journal_is_followed_and_copied() {
    let scratch = Scratch::new();
    let folder = Folder::beside(&scratch);
    let pool = scratch.options().domain(Domain::Journal).journal(&folder.0).open(&scratch.0).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let follower = Pool::follow(&scratch.0).unwrap();
    let followed = follower.tree::<u64, u64>("t").unwrap();
    tree.upsert(1, 2).unwrap();
    assert_eq!(followed.get(1).unwrap(), Some(2));
    let copy = Scratch::new();
    pool.backup(&copy.0, bristlecone::BackupOptions::new()).unwrap();
    assert_eq!(Pool::open(&copy.0).unwrap().tree::<u64, u64>("t").unwrap().len().unwrap(), 1);
    drop((tree, followed, follower));
    pool.close().unwrap();
    let missing = Pool::options().journal(scratch.0.with_extension("elsewhere")).open(&scratch.0);
    assert!(matches!(missing, Err(Error::Io { .. })));
}
