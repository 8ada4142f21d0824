//! Pools that are only read: the file stays unchanged, byte for byte, in any state.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use crate::common::{Cell, Items, Noise, Plant, Scratch, Visit, defaults, suites};
use bristlecone::{Design, Error, Pool, Tree};

const KEYS: u64 = 20_000;

fn fill(pool: &Pool) -> (Tree<u64, u64>, Tree<&'static str, &'static [u8]>) {
    let options = |name| pool.tree_options(name).design(Design::SsTree);
    let words = options("words").create::<u64, u64>().unwrap();
    let texts = options("texts").create::<&str, &[u8]>().unwrap();
    let mut noise = Noise(29);
    for i in 0..KEYS {
        words.insert(noise.next(), i).unwrap();
        texts.insert(&format!("key {i:05}"), &vec![i as u8; i as usize % 40]).unwrap();
    }
    (words, texts)
}

fn read_only(scratch: &Scratch) -> Pool {
    Pool::options().read_only(true).open(&scratch.0).unwrap()
}

/// Reads and checks everything; every kind of write must fail.
fn visit(pool: &Pool) {
    assert_eq!(pool.check(), []);
    let words = pool.tree::<u64, u64>("words").unwrap();
    let texts = pool.tree::<&str, &[u8]>("texts").unwrap();
    assert_eq!((words.len().unwrap(), words.check()), (KEYS, vec![]));
    assert_eq!((texts.len().unwrap(), texts.check()), (KEYS, vec![]));
    assert_eq!(words.iter().map(Result::unwrap).count() as u64, KEYS);
    assert_eq!(texts.get("key 00039").unwrap(), Some(vec![39; 39]));
    let refused = [
        words.insert(1, 1).map(drop),
        words.try_insert(1, 1).map_err(Error::from),
        words.update(1, 1).map(drop),
        words.remove(1).map(drop),
        words.compare_and_swap(1, Some(1), None).map_err(Error::from),
        words.compare_and_swap(1, None, None).map_err(Error::from),
        words.compare_and_swap(1, Some(1), Some(2)).map_err(Error::from),
        texts.insert("x", b"y").map(drop),
        texts.remove("key 00039").map(drop),
        pool.prefault(1 << 20),
        pool.tree_options("new").create::<u64, u64>().map(drop),
    ];
    assert!(refused.iter().all(|answer| matches!(answer, Err(Error::ReadOnly))), "{refused:?}");
    assert!(matches!(pool.tree::<u64, u64>("new"), Err(Error::NoSuchTree { .. })));
    assert_eq!((words.len().unwrap(), texts.len().unwrap()), (KEYS, KEYS));
    drop((words, texts));
    assert!(matches!(pool.drop_tree("words"), Err(Error::ReadOnly)));
}

#[test]
fn after_a_clean_close_and_after_a_crash_the_file_is_left_as_it_is() {
    for crash in [false, true] {
        let scratch = Scratch::new();
        let pool = scratch.open();
        drop(fill(&pool));
        if crash {
            pool.simulate_crash()
        } else {
            pool.close().unwrap()
        }
        std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(0o400)).unwrap();
        let before = std::fs::read(&scratch.0).unwrap();
        for _ in 0..2 {
            let pool = read_only(&scratch);
            assert_eq!((pool.info().was_clean, pool.info().read_only), (!crash, true));
            visit(&pool);
            pool.close().unwrap();
        }
        assert!(std::fs::read(&scratch.0).unwrap() == before, "reading changed the file");
    }
}

#[test]
fn recovery_that_changes_much_stays_in_memory() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let (words, _) = fill(&pool);
    let empty = pool.tree::<u64, u64>("empty").unwrap();
    drop((words, empty));
    pool.simulate_crash();
    // Every leaf of "words" is changed as by a crash during the reclamation of its tail, and the
    // superblock as by a torn last update: that of the second copy, before its checksum.
    let mut bytes = std::fs::read(&scratch.0).unwrap();
    bytes[4096 + 96..4096 + 104].fill(0);
    let mut tags = 0;
    for at in (2 << 20..bytes.len()).step_by(256) {
        let next = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        if (2 << 20..bytes.len()).contains(&next)
            && next.is_multiple_of(256)
            && bytes[next..next + 8] == [0xff; 8]
        {
            bytes[next..next + 8].fill(0);
            tags += 1;
        }
    }
    assert!(tags > 100, "{tags} leaves have a tail");
    std::fs::write(&scratch.0, &bytes).unwrap();
    let pool = read_only(&scratch);
    visit(&pool);
    assert!(pool.tree::<u64, u64>("empty").unwrap().is_empty().unwrap());
    drop(pool);
    assert!(std::fs::read(&scratch.0).unwrap() == bytes, "recovery changed the file");
    visit_writable(&scratch);
}

fn visit_writable(scratch: &Scratch) {
    let pool = scratch.open();
    let words = pool.tree::<u64, u64>("words").unwrap();
    assert_eq!((words.len().unwrap(), words.check()), (KEYS, vec![]));
    words.insert(1, 1).unwrap();
}

#[test]
fn readers_share_a_pool_and_exclude_writers() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    drop(fill(&pool));
    let refused = Pool::options().read_only(true).open(&scratch.0);
    assert!(matches!(refused, Err(Error::InUse { pid: Some(pid) }) if pid == std::process::id()));
    pool.close().unwrap();
    let readers = [read_only(&scratch), read_only(&scratch), read_only(&scratch)];
    std::thread::scope(|scope| readers.iter().for_each(|pool| drop(scope.spawn(|| visit(pool)))));
    assert!(matches!(scratch.try_open(), Err(Error::InUse { .. })));
    drop(readers);
    scratch.open();
}

#[test]
fn a_pool_cannot_be_created_read_only() {
    let scratch = Scratch::new();
    let asked = Pool::options().read_only(true).create(true).open(&scratch.0);
    assert!(matches!(asked, Err(Error::Invalid { .. })));
    assert!(!scratch.0.exists());
    assert!(matches!(Pool::options().read_only(true).open(&scratch.0), Err(Error::NotFound { .. })));
}

/// Reading a pool that was closed, or left by a crash, must return all items, and leave its file
/// unchanged.
#[test]
fn every_cell_is_read_without_a_change() {
    struct Run(Cell, bool);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let Self(cell, crash) = self;
            println!("{cell}, crash: {crash}");
            let scratch = Scratch::new();
            let pool = cell.pool(&scratch);
            let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
            for at in 0..2000 {
                tree.upsert(I::key_ref(&I::key(at)), I::value_ref(&I::value(at))).unwrap();
                if at % 3 == 2 {
                    tree.remove(I::key_ref(&I::key(at / 2))).unwrap();
                }
            }
            let contents: Vec<_> = tree.iter().map(Result::unwrap).collect();
            drop(tree);
            if crash {
                pool.simulate_crash()
            } else {
                pool.close().unwrap()
            }
            let before = std::fs::read(&scratch.0).unwrap();
            let pool = read_only(&scratch);
            let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
            assert_eq!((pool.check(), tree.check()), (vec![], vec![]));
            assert!(tree.iter().map(Result::unwrap).eq(contents));
            let refused = tree.insert(I::key_ref(&I::key(1)), I::value_ref(&I::value(1)));
            assert!(matches!(refused, Err(Error::ReadOnly)), "{refused:?}");
            drop((tree, pool));
            assert!(std::fs::read(&scratch.0).unwrap() == before, "reading changed the file");
        }
    }
    for (at, cell) in suites::READ_ONLY.sampled().into_iter().enumerate() {
        cell.codec.visit(Run(cell, at % 2 == 0));
    }
}

/// In shared memory even a read of a hole would allocate a page. A sparse copy is read, and salvaged,
/// without that.
#[test]
fn holes_are_read_without_a_page() {
    const PAGE: usize = 4096;
    for shape in defaults() {
        let (scratch, whole, to) = (Scratch::new(), Scratch::new(), Scratch::new());
        let pool = whole.without_index().open(&whole.0).unwrap();
        let tree = shape.create::<u64, &[u8]>(&pool, "t").unwrap();
        // Chunks that are partly written, and some that are free again.
        let gone = shape.create::<&str, u64>(&pool, "gone").unwrap();
        for at in 0..500 {
            tree.insert(at, &at.to_le_bytes()).unwrap();
            gone.insert(&format!("{at:01000}"), at).unwrap();
        }
        let contents: Vec<_> = tree.iter().map(Result::unwrap).collect();
        drop((tree, gone));
        pool.drop_tree("gone").unwrap();
        pool.close().unwrap();
        let bytes = std::fs::read(&whole.0).unwrap();
        let file = File::create(&scratch.0).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        let written = bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0));
        written.for_each(|(at, page)| file.write_all_at(page, (at * PAGE) as u64).unwrap());
        let blocks = || file.metadata().unwrap().blocks();
        let before = blocks();
        assert!(before * 512 < bytes.len() as u64 / 2, "{shape}: {before} blocks of {} bytes", bytes.len());

        let pool = read_only(&scratch);
        let tree = shape.open::<u64, &[u8]>(&pool, "t").unwrap();
        assert_eq!((pool.check(), tree.check()), (vec![], vec![]));
        assert!(tree.iter().map(Result::unwrap).eq(contents.clone()));
        drop((tree, pool));
        assert_eq!(blocks(), before, "{shape}: reading took pages");

        Pool::options().salvage(&scratch.0, &to.0).unwrap();
        assert_eq!(blocks(), before, "{shape}: salvage took pages");
        let tree = shape.open::<u64, &[u8]>(&to.open(), "t").unwrap();
        assert!(tree.iter().map(Result::unwrap).eq(contents));
    }
}
