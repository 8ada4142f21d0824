//! Pools in memory without a file.

use bristlecone::{BackupOptions, Design, Error, Pool, Tree};

use crate::common::Scratch;

#[test]
fn a_temporary_pool_serves_every_design_and_leaves_nothing() {
    let named =
        |name: &std::fs::DirEntry| name.file_name().to_string_lossy().contains("bristlecone-temporary");
    let count = || std::fs::read_dir("/dev/shm").unwrap().flatten().filter(named).count();
    let before = count();
    for design in Design::ALL.iter().copied() {
        let pool = Pool::options().max_bytes(64 << 20).temporary().unwrap();
        assert_eq!(pool.info().path, None);
        let texts: Tree<&str, &str> = pool.tree_options("texts").design(design).create().unwrap();
        for number in 0..2000 {
            texts.insert(&format!("{number:05}"), &"x".repeat(number % 50)).unwrap();
        }
        assert_eq!(texts.iter().map(Result::unwrap).count(), 2000);
        let snapshot = pool.snapshot().unwrap();
        texts.clear().unwrap();
        drop(snapshot);
        pool.trim().unwrap();
        assert!(pool.check().is_empty() && texts.check().is_empty(), "{design}");
        drop(texts);
        pool.close().unwrap();
    }
    assert_eq!(count(), before);
}

/// Each is a pool of its own, and a copy of one is an ordinary pool.
#[test]
fn temporary_pools_are_apart_and_can_be_copied_to_files() {
    let [one, other] = [(); 2].map(|()| Pool::temporary().unwrap());
    one.tree::<u64, u64>("t").unwrap().insert(1, 2).unwrap();
    assert!(other.trees().unwrap().is_empty());
    let scratch = Scratch::new();
    one.backup(&scratch.0, BackupOptions::default()).unwrap();
    drop(one);
    let copy = Pool::open(&scratch.0).unwrap();
    assert_eq!(copy.tree::<u64, u64>("t").unwrap().get(1).unwrap(), Some(2));
}

#[test]
fn a_temporary_pool_has_a_maximum_and_no_options_of_files() {
    let small = Pool::options().max_bytes(8 << 20).temporary().unwrap();
    let tree = small.tree::<u64, &[u8]>("t").unwrap();
    let full = (0..).find_map(|key| tree.insert(key, &[7; 4096]).err()).unwrap();
    assert!(matches!(full, Error::PoolFull { .. }), "{full}");
    for options in [
        Pool::options().create(true),
        Pool::options().create_new(true),
        Pool::options().read_only(true),
        Pool::options().max_bytes(0),
        Pool::options().recovery_threads(0),
    ] {
        assert!(matches!(options.temporary(), Err(Error::Invalid { .. })), "{options:?}");
    }
}
