//! Released space: no tree's chunks are released, and all released space can be allocated again.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use rustix::io::Errno;

use super::tests::NODES;
use super::*;
use crate::{Native, failpoint};

struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        Self(PathBuf::from(format!("/dev/shm/bristlecone-pm-{}-{name}", std::process::id())))
    }

    fn create(&self) -> Arc<PoolFile<Native>> {
        let options = CreateOptions { max_bytes: 1 << 30, domain: None, chunk_bytes: None };
        PoolFile::create(&self.0, &options, Native::new).unwrap()
    }

    fn open(&self) -> Arc<PoolFile<Native>> {
        PoolFile::open(&self.0, &OpenOptions::default(), Native::new).unwrap()
    }

    /// Returns the size of the file behind the header, and the bytes that the file system allocated
    /// to all of it.
    fn bytes(&self, pool: &PoolFile<Native>) -> (u64, u64) {
        let (file, header) = (self.0.metadata().unwrap(), pool.geometry.header_bytes());
        (file.len() - header, file.blocks() * 512)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn tree(pool: &PoolFile<Native>) -> TreeId {
    pool.create_tree(&TreeSpec::new("t", 1, "u64", "u64")).unwrap().id
}

/// Takes `chunks` chunks, and stores each chunk's number in every page.
fn fill(pool: &PoolFile<Native>, tree: TreeId, chunks: usize) -> Vec<u32> {
    let one = |_| {
        let chunk = pool.chunk_alloc(tree, NODES, 256, 0).unwrap();
        pages(pool, chunk.id).for_each(|word| word.store(pool.medium(), u64::from(chunk.id) + 1));
        chunk.id
    };
    (0..chunks).map(one).collect()
}

fn pages(pool: &PoolFile<Native>, id: u32) -> impl Iterator<Item = &Word> {
    (0..CHUNK_BYTES).step_by(4096).map(move |at| pool.at::<Word>(pool.chunk_offset(id) + at))
}

fn holds(pool: &PoolFile<Native>, id: u32, value: u64) -> bool {
    pages(pool, id).all(|word| word.load(pool.medium()) == value)
}

#[test]
fn what_is_free_is_given_back_and_can_be_had_again() {
    let file = File::new("trim");
    let pool = file.create();
    let owner = tree(&pool);
    let ids = fill(&pool, owner, 12);
    let freed = [1, 4, 5, 6, 10, 11];
    freed.iter().for_each(|at| pool.chunk_free(ids[*at]));
    assert_eq!(file.bytes(&pool).0, 12 * CHUNK_BYTES);
    assert!(pool.trim(true).unwrap() >= freed.len() as u64 * CHUNK_BYTES);
    // The last two are truncated, the others are holes.
    assert_eq!(file.bytes(&pool).0, 10 * CHUNK_BYTES);
    assert!(file.bytes(&pool).1 < 7 * CHUNK_BYTES);
    assert_eq!(pool.chunk_counts(), (4, 10, pool.chunks_max()));
    assert_eq!(pool.trim(true).unwrap(), 0);
    let is_kept = |pool: &PoolFile<Native>| {
        (0..12).filter(|at| !freed.contains(at)).all(|at| holds(pool, ids[at], u64::from(ids[at]) + 1))
    };
    assert!(is_kept(&pool) && pool.check().is_empty());
    drop(pool);

    // Whether the descriptors say so or a crash undid that.
    let pool = file.open();
    assert!(is_kept(&pool) && pool.check().is_empty() && pool.chunk_counts().0 == 4);
    let again = fill(&pool, owner, 6);
    assert!(again.iter().all(|id| holds(&pool, *id, u64::from(*id) + 1)) && is_kept(&pool));
    assert_eq!(file.bytes(&pool).0, 12 * CHUNK_BYTES);
    drop(pool);
    assert!(is_kept(&file.open()));
}

#[test]
fn a_crash_amid_a_trim_leaves_chunks_free() {
    let file = File::new("trim-crash");
    let pool = file.create();
    let owner = tree(&pool);
    let ids = fill(&pool, owner, 6);
    ids[2..].iter().for_each(|id| pool.chunk_free(*id));
    // After step 2, before step 3; and the file may end anywhere behind the last chunk with an
    // owner.
    assert!(pool.region.punch(pool.chunk_offset(ids[3]), CHUNK_BYTES).unwrap());
    pool.region.shrink(pool.chunk_offset(ids[5])).unwrap();
    drop(pool);
    let pool = file.open();
    assert_eq!((pool.check(), pool.chunk_counts().0), (vec![], 3));
    let again = fill(&pool, owner, 4);
    assert!(ids[..2].iter().chain(&again).all(|id| holds(&pool, *id, u64::from(*id) + 1)));
}

#[test]
fn a_file_system_that_refuses_keeps_what_is_free() {
    let file = File::new("trim-refused");
    let pool = file.create();
    let owner = tree(&pool);
    let ids = fill(&pool, owner, 6);
    [0, 2, 4].iter().for_each(|at| pool.chunk_free(ids[*at]));
    for (after, errno, fails) in [(0, Errno::OPNOTSUPP, false), (1, Errno::IO, true), (2, Errno::IO, true)] {
        failpoint::refuse(after, errno);
        assert_eq!(pool.trim(false).is_err(), fails, "{after} {errno}");
        failpoint::cease();
        assert_eq!(pool.chunk_counts().0, 3);
    }
    let again = fill(&pool, owner, 3);
    assert_eq!((again.len(), pool.chunk_counts().0), (3, 0));
    assert!([1, 3, 5].iter().all(|at| holds(&pool, ids[*at], u64::from(ids[*at]) + 1)));
}

#[test]
fn a_close_gives_back_what_was_freed_but_for_a_reserve() {
    let file = File::new("trim-close");
    let pool = file.create();
    let owner = tree(&pool);
    let ids = fill(&pool, owner, 40);
    pool.prefault(3 * CHUNK_BYTES).unwrap();
    ids.iter().rev().for_each(|id| pool.chunk_free(*id));
    pool.close().unwrap();
    drop(pool);
    let pool = file.open();
    // 64 MiB, the unused chunks, and some pages of the header.
    assert_eq!(file.bytes(&pool).1 / CHUNK_BYTES, 32 + 3);
    let again = fill(&pool, owner, 43);
    assert!(again.iter().all(|id| holds(&pool, *id, u64::from(*id) + 1)));
    pool.close().unwrap();
}

#[test]
fn what_was_given_back_is_not_given_back_again() {
    let file = File::new("trim-once");
    let pool = file.create();
    let owner = tree(&pool);
    let ids = fill(&pool, owner, 41);
    ids[..40].iter().for_each(|id| pool.chunk_free(*id));
    assert!(pool.trim(false).unwrap() >= 40 * CHUNK_BYTES);
    drop(pool);
    let pool = file.open();
    failpoint::refuse(0, Errno::IO);
    pool.close().unwrap();
    assert!(failpoint::cease(), "a close without anything to give back asks the system for nothing");
}

#[test]
fn threads_that_take_chunks_while_others_are_given_back_get_whole_ones() {
    let file = File::new("trim-threads");
    let pool = file.create();
    let owner = tree(&pool);
    std::thread::scope(|scope| {
        let worker = || {
            for round in 0..60 {
                let ids = fill(&pool, owner, 1 + round % 4);
                assert!(ids.iter().all(|id| holds(&pool, *id, u64::from(*id) + 1)));
                ids.iter().for_each(|id| pool.chunk_free(*id));
            }
        };
        scope.spawn(worker);
        scope.spawn(worker);
        (0..60).for_each(|_| _ = pool.trim(false).unwrap());
    });
    assert!(pool.check().is_empty());
    pool.trim(true).unwrap();
    assert_eq!(pool.chunk_counts(), (0, 0, pool.chunks_max()));
}
