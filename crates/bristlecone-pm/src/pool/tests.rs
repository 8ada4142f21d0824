//! Opening after every kind of damage, and the state after a crash of the pool itself.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::layout::{DIRECTORY_OFFSET, Descriptor, ENTRY_BYTES, SUPERBLOCK_WORDS};
use super::*;
use crate::{Native, Persist, failpoint};

/// Nodes of one design, and of another.
pub(crate) const NODES: SlotKind = SlotKind::new(1);
pub(super) const OTHER_NODES: SlotKind = SlotKind::new(8);

/// Classifies slots in place of a higher layer.
pub(super) fn part_of(kind: SlotKind) -> Option<Part> {
    match kind {
        NODES | OTHER_NODES => Some(Part::Leaf),
        SlotKind::LOG => Some(Part::Log),
        SlotKind::KEY_RECORD | SlotKind::VALUE_RECORD => Some(Part::Other),
        _ => None,
    }
}

pub(super) struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/dev/shm/bristlecone-pm-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    pub fn create(&self) -> Arc<PoolFile<Native>> {
        let options = CreateOptions { max_bytes: 8 << 20, domain: None, chunk_bytes: None };
        PoolFile::create(&self.0, &options, Native::new).unwrap()
    }

    pub fn open(&self) -> Result<Arc<PoolFile<Native>>> {
        PoolFile::open(&self.0, &OpenOptions::default(), Native::new)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(super) fn spec(name: &str) -> TreeSpec {
    TreeSpec {
        name: name.into(),
        design: 1,
        key_kind: "u64".into(),
        value_kind: "bytes".into(),
        expire_after_ms: 0,
        params: [256, 3, 512, 1, 0, 0, 0, 0],
    }
}

#[test]
fn trees_and_chunks_are_there_again() {
    let scratch = Scratch::new("again");
    let pool = scratch.create();
    let tree = pool.create_tree(&spec("a")).unwrap();
    let chunk = pool.chunk_alloc(tree.id, NODES, 256, u64::MAX).unwrap();
    assert!(matches!(pool.create_tree(&spec("a")), Err(Error::TreeExists { .. })));
    drop(pool);
    let pool = scratch.open().unwrap();
    assert!(!pool.info().was_clean);
    assert_eq!(pool.trees().unwrap(), std::slice::from_ref(&tree));
    assert_eq!(pool.chunks_of(tree.id), [chunk]);
    pool.close().unwrap();
    drop(pool);
    let pool = scratch.open().unwrap();
    assert!(pool.info().was_clean);
    pool.drop_tree(tree.id).unwrap();
    assert_eq!(pool.chunk_counts(), (1, 1, 4));
    assert!(pool.check().is_empty());
}

#[test]
fn an_interrupted_drop_is_finished() {
    let scratch = Scratch::new("drop");
    let pool = scratch.create();
    let tree = pool.create_tree(&spec("a")).unwrap();
    pool.chunk_alloc(tree.id, NODES, 256, u64::MAX).unwrap();
    pool.at::<Word>(DIRECTORY_OFFSET).store(pool.medium(), layout::ENTRY_DROPPING);
    drop(pool);
    let pool = scratch.open().unwrap();
    assert!(pool.trees().unwrap().is_empty());
    assert_eq!(pool.chunk_counts().0, 1);
}

#[test]
fn a_second_opener_learns_which_process_has_the_pool() {
    let scratch = Scratch::new("twice");
    let pool = scratch.create();
    assert!(matches!(scratch.open(), Err(Error::InUse { pid: Some(pid) }) if pid == std::process::id()));
    drop(pool);
    scratch.open().unwrap();
    let mode = std::fs::metadata(&scratch.0).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_full_pool_is_an_error_until_a_chunk_is_freed() {
    let scratch = Scratch::new("full");
    let pool = scratch.create();
    let tree = pool.create_tree(&spec("a")).unwrap().id;
    let chunks: Vec<_> = (0..4).map(|_| pool.chunk_alloc(tree, NODES, 256, u64::MAX).unwrap()).collect();
    assert!(matches!(pool.chunk_alloc(tree, NODES, 256, u64::MAX), Err(Error::PoolFull { .. })));
    let dirty = pool.at::<Word>(chunks[2].offset + 512);
    dirty.store(pool.medium(), 77);
    pool.chunk_free(chunks[2].id);
    assert_eq!(pool.chunk_alloc(tree, NODES, 256, u64::MAX).unwrap(), chunks[2]);
    assert_eq!(dirty.load(pool.medium()), 0, "tags of a used chunk are cleared");
}

#[test]
fn every_flipped_header_bit_is_an_error_or_harmless() {
    let scratch = Scratch::new("flips");
    let pool = scratch.create();
    let tree = pool.create_tree(&spec("a")).unwrap();
    pool.chunk_alloc(tree.id, NODES, 256, u64::MAX).unwrap();
    drop(pool);
    let whole = std::fs::read(&scratch.0).unwrap();
    let descriptors = (DIRECTORY_OFFSET + 256 * ENTRY_BYTES) as usize;
    let superblock = 0..SUPERBLOCK_WORDS * 8;
    let entry = DIRECTORY_OFFSET as usize..DIRECTORY_OFFSET as usize + 248;
    for byte in superblock.chain(entry).chain(descriptors..descriptors + 40) {
        for bit in 0..8 {
            let mut broken = whole.clone();
            broken[byte] ^= 1 << bit;
            // Both copies, because the other one would repair it.
            if byte < SUPERBLOCK_WORDS * 8 {
                broken[byte + 4096] ^= 1 << bit;
            }
            std::fs::write(&scratch.0, &broken[..]).unwrap();
            match scratch.open() {
                Ok(pool) => {
                    assert_eq!(pool.trees().unwrap(), std::slice::from_ref(&tree), "byte {byte} bit {bit}")
                }
                Err(Error::Corrupted { .. } | Error::Newer { .. } | Error::NotAPool { .. }) => {}
                Err(error) => panic!("byte {byte} bit {bit}: {error}"),
            }
        }
    }
}

#[test]
fn one_torn_superblock_is_healed_by_the_other() {
    let scratch = Scratch::new("torn");
    drop(scratch.create());
    let whole = std::fs::read(&scratch.0).unwrap();
    for copy in [0, 4096] {
        let mut torn = whole.clone();
        torn[copy + 80..copy + 104].fill(0xab);
        std::fs::write(&scratch.0, &torn).unwrap();
        scratch.open().unwrap();
    }
}

#[test]
fn truncated_foreign_and_random_files_are_refused() {
    let scratch = Scratch::new("foreign");
    let pool = scratch.create();
    let tree = pool.create_tree(&spec("a")).unwrap();
    pool.chunk_alloc(tree.id, NODES, 256, u64::MAX).unwrap();
    drop(pool);
    let whole = std::fs::read(&scratch.0).unwrap();
    for len in [0, 1, 63, 4096, 8192, 8193, 1 << 20, (2 << 20) - 1, 2 << 20, (4 << 20) - 4096] {
        std::fs::write(&scratch.0, &whole[..len]).unwrap();
        let error = scratch.open().unwrap_err();
        let typed = matches!(error, Error::NotAPool { .. } | Error::Corrupted { .. });
        assert!(typed, "{len} bytes: {error}");
    }
    let mut noise = 1_u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (noise >> 56) as u8
    })
    .take(1 << 20)
    .collect();
    std::fs::write(&scratch.0, random).unwrap();
    assert!(matches!(scratch.open(), Err(Error::NotAPool { .. })));
    let open = |path| PoolFile::open(Path::new(path), &OpenOptions::default(), Native::new);
    assert!(matches!(open("/dev/shm/no-such-pool"), Err(Error::NotFound { .. })));
    let missing = open("/dev/shm/no/such/pool").unwrap_err().to_string();
    assert!(missing.contains("opening the folder /dev/shm/no/such"), "{missing}");
    assert!(matches!(
        PoolFile::open(Path::new("/dev"), &OpenOptions::default(), Native::new),
        Err(Error::NotAPool { .. })
    ));
}

#[test]
fn a_chunk_has_its_owner_only_once_the_file_durably_has_the_chunk() {
    let scratch = Scratch::new("length");
    let options = CreateOptions { max_bytes: 8 << 20, domain: Some(Domain::Msync), chunk_bytes: None };
    let pool = PoolFile::create(&scratch.0, &options, Native::new).unwrap();
    let tree = pool.create_tree(&spec("a")).unwrap();
    let page = |offset: u64| (pool.region.base().addr() + offset as usize) & !4095;
    let alloc = || pool.chunk_alloc(tree.id, NODES, 1 << 20, 1);
    for id in 0..3 {
        let _ = failpoint::synced();
        let chunk = alloc().unwrap();
        let descriptor = page(pool.geometry.descriptors_offset() + id * 8);
        assert_eq!(failpoint::synced(), [(page(chunk.offset + (2 << 20) - 8), 4096), (descriptor, 4096)]);
    }
    // A reused chunk: its first word is cleared, too, before the descriptor.
    pool.chunk_free(1);
    let _ = failpoint::synced();
    let chunk = alloc().unwrap();
    let (first, last) = (page(chunk.offset), page(chunk.offset + (2 << 20) - 8));
    assert_eq!(
        failpoint::synced(),
        [(first, 4096), (last, 4096), (page(pool.geometry.descriptors_offset()), 4096)]
    );
}

#[test]
fn a_chunk_whose_file_cannot_be_made_to_have_it_gets_no_owner() {
    let mut lost = 0;
    for nth in 0.. {
        let scratch = Scratch::new("no-length");
        let options = CreateOptions { max_bytes: 8 << 20, domain: Some(Domain::Msync), chunk_bytes: None };
        let pool = PoolFile::create(&scratch.0, &options, Native::new).unwrap();
        let tree = pool.create_tree(&spec("a")).unwrap();
        failpoint::refuse(nth, rustix::io::Errno::IO);
        let made = pool.chunk_alloc(tree.id, NODES, 256, 1);
        if failpoint::cease() {
            break;
        }
        if let Err(error) = made {
            lost += u32::from(matches!(error, Error::DurabilityLost));
            assert_eq!(pool.descriptor(0).load(pool.medium()), Descriptor::Fresh.encode(), "{error}");
            assert_eq!(pool.chunks_available(), 4, "{error}");
        }
    }
    assert_eq!(lost, 1);
}

#[test]
fn a_file_may_end_before_chunks_that_no_tree_owned() {
    let scratch = Scratch::new("end");
    let pool = scratch.create();
    let tree = pool.create_tree(&spec("a")).unwrap();
    let alloc = |pool: &PoolFile<Native>| pool.chunk_alloc(tree.id, NODES, 256, u64::MAX).unwrap();
    let chunks = [alloc(&pool), alloc(&pool), alloc(&pool)];
    pool.at::<Word>(chunks[2].offset).store(pool.medium(), 77);
    pool.chunk_free(2);
    drop(pool);
    let cut =
        |bytes| std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap().set_len(bytes).unwrap();
    cut(chunks[2].offset + 4096);
    let pool = scratch.open().unwrap();
    assert_eq!(pool.chunks_of(tree.id), chunks[..2]);
    assert_eq!(alloc(&pool), chunks[2]);
    assert_eq!(pool.at::<Word>(chunks[2].offset).load(pool.medium()), 0);
    drop(pool);
    // A chunk with an owner may hold data, and the file durably included it.
    cut(chunks[2].offset + 4096);
    let error = scratch.open().unwrap_err();
    assert!(matches!(&error, Error::Corrupted { what, .. } if what.contains("truncated")), "{error}");
}

#[test]
fn what_a_closed_pool_left_to_sync_is_nothing_to_another_one() {
    let scratch = [Scratch::new("left"), Scratch::new("healthy")];
    let options = CreateOptions { max_bytes: 8 << 20, domain: Some(Domain::Msync), chunk_bytes: None };
    let create = |scratch: &Scratch| PoolFile::create(&scratch.0, &options, Native::new).unwrap();
    let healthy = create(&scratch[1]);
    let left = create(&scratch[0]);
    let word = left.at::<Word>(DIRECTORY_OFFSET);
    // Like an operation that stops at an error between its flush and its fence.
    let _ = left.medium().flush(word, "test");
    drop(left);
    healthy.create_tree(&spec("a")).unwrap();
    healthy.health().unwrap();
    healthy.close().unwrap();
}

#[test]
fn failing_system_calls_are_errors_and_leave_nothing() {
    let scratch = Scratch::new("fault");
    let mut refused = 0;
    for nth in 0.. {
        failpoint::refuse(nth, rustix::io::Errno::NOMEM);
        let options = CreateOptions { max_bytes: 8 << 20, domain: None, chunk_bytes: None };
        let made = PoolFile::create(&scratch.0, &options, Native::new);
        // MAP_SYNC is tried before an ordinary mapping: if it fails, nothing changes.
        let untouched = failpoint::cease();
        match made {
            Ok(_) if untouched => break,
            Ok(_) => std::fs::remove_file(&scratch.0).unwrap(),
            Err(_) => {
                refused += 1;
                assert!(!scratch.0.exists(), "half a pool is left");
            }
        }
    }
    assert!(refused >= 4, "only {refused} calls were refused");
    let pool = scratch.open().unwrap();
    let tree = pool.create_tree(&spec("a")).unwrap().id;
    for nth in 0..3 {
        failpoint::refuse(nth, rustix::io::Errno::NOSPC);
        let chunk = pool.chunk_alloc(tree, NODES, 256, u64::MAX);
        assert!(failpoint::cease() || chunk.is_err());
    }
    assert!(pool.chunk_alloc(tree, NODES, 256, u64::MAX).is_ok());
    assert!(pool.check().is_empty());
}

#[test]
fn a_header_that_cannot_be_read_is_an_error() {
    let scratch = Scratch::new("unreadable");
    drop(scratch.create());
    for nth in 0..2 {
        // The lock comes first.
        failpoint::refuse(1 + nth, rustix::io::Errno::IO);
        let error = scratch.open().unwrap_err();
        assert!(matches!(&error, Error::Io { doing, .. } if doing.contains("header")), "{error}");
    }
    scratch.open().unwrap();
}

#[test]
fn a_pool_is_free_once_it_is_closed_though_a_child_inherited_the_file() {
    let scratch = Scratch::new("inherited");
    let pool = scratch.create();
    let inherited = pool.region.as_file().unwrap().try_clone().unwrap();
    assert!(matches!(scratch.open(), Err(Error::InUse { .. })));
    drop(pool);
    scratch.open().unwrap();
    drop(inherited);
}

#[test]
fn pages_that_cannot_be_read_are_reported_and_passed_over() {
    let scratch = Scratch::new("pages");
    let pool = scratch.create();
    let tree = pool.create_tree(&spec("a")).unwrap();
    let chunk = pool.chunk_alloc(tree.id, NODES, 256, u64::MAX).unwrap();
    pool.at::<Word>(chunk.offset + 8192).store(pool.medium(), 77);
    pool.at::<Word>(chunk.offset + 12288).store(pool.medium(), 88);
    pool.close().unwrap();
    drop(pool);
    // The fourth system call reads the chunk; if that fails, its pages are read one by one.
    failpoint::refuse_many(3, 4, rustix::io::Errno::IO);
    let Damaged { pool, issues, .. } = PoolFile::open_damaged(&scratch.0, part_of, Native::new).unwrap();
    assert!(!failpoint::cease());
    let pages: Vec<_> = (0..3).map(|page| format!("byte {:#x}", chunk.offset + page * 4096)).collect();
    assert_eq!(issues.iter().map(|issue| issue.location.clone()).collect::<Vec<_>>(), pages);
    assert_eq!(pool.at::<Word>(chunk.offset + 8192).load(pool.medium()), 0);
    assert_eq!(pool.at::<Word>(chunk.offset + 12288).load(pool.medium()), 88);
}

#[test]
fn chunks_that_the_medium_has_no_space_for_are_not_available_until_it_has() {
    let scratch = Scratch::new("medium-full");
    let pool = scratch.create();
    let tree = pool.create_tree(&spec("a")).unwrap().id;
    let alloc = || pool.chunk_alloc(tree, NODES, 256, u64::MAX);
    let first = alloc().unwrap();
    assert_eq!(pool.chunks_available(), 3);
    // The file can be extended, but has no blocks there.
    failpoint::refuse(1, rustix::io::Errno::NOSPC);
    assert!(matches!(alloc(), Err(Error::MediumFull { .. })));
    assert_eq!((failpoint::cease(), pool.chunks_available()), (false, 0));
    assert!(matches!(pool.no_room(), Error::MediumFull { .. }));
    // A freed chunk keeps its bytes.
    pool.chunk_free(first.id);
    assert_eq!(pool.chunks_available(), 1);
    assert_eq!(alloc().unwrap(), first);
    // A thread that needs a chunk asks again.
    assert_eq!(alloc().unwrap().id, 1);
    assert_eq!(pool.chunks_available(), 2);
    // A limit on the file's length has the same effect.
    failpoint::refuse(0, rustix::io::Errno::FBIG);
    let error = alloc().unwrap_err();
    assert!(error.is_no_room() && matches!(error, Error::Io { .. }), "{error}");
    // A thread that only queries gets the known state for many calls, and then the current one.
    for calls in 0..2 {
        failpoint::refuse(0, rustix::io::Errno::NOSPC);
        (0..1000).for_each(|_| assert_eq!(pool.chunks_available(), 0));
        assert_eq!(failpoint::cease(), calls == 0, "the medium was asked {calls} times");
    }
    assert!((1..=1024).any(|_| pool.chunks_available() > 0), "it was never asked again");
    assert_eq!(pool.chunks_available(), 2);
    assert!(pool.check().is_empty());
}
