//! Opening and creating with partial, shared, missing, irregular and sparse files, and with every
//! word of a header damaged.

use std::fs::OpenOptions as FileOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::layout::{DIRECTORY_OFFSET, ENTRY_BYTES, ENTRY_DROPPING, SUPERBLOCK_STRIDE, SUPERBLOCK_WORDS};
use super::tests::{NODES, OTHER_NODES, Scratch, part_of, spec};
use super::*;
use crate::{Native, failpoint};

fn write_word(scratch: &Scratch, offset: u64, word: u64) {
    let file = FileOptions::new().write(true).open(&scratch.0).unwrap();
    file.write_all_at(&word.to_le_bytes(), offset).unwrap();
}

fn blocks(scratch: &Scratch) -> u64 {
    std::fs::metadata(&scratch.0).unwrap().blocks()
}

/// The process that took the lock has died, but something keeps the file open for a moment, as
/// after a kill.
#[test]
fn the_lock_of_a_process_that_is_gone_is_waited_for() {
    let scratch = Scratch::new("left");
    let options = CreateOptions { max_bytes: 8 << 20, domain: None, chunk_bytes: None };
    drop(PoolFile::create(&scratch.0, &options, Native::new).unwrap());
    let kept = FileOptions::new().read(true).open(&scratch.0).unwrap();
    let taken = Command::new("flock").args(["--exclusive", "0"]).stdin(kept.try_clone().unwrap()).status();
    assert!(taken.unwrap().success());
    let begun = Instant::now();
    let released = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(kept);
    });
    let pool = PoolFile::open(&scratch.0, &OpenOptions::default(), Native::new).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(200));
    released.join().unwrap();
    // Open does not wait for the lock of a living process.
    let begun = Instant::now();
    let refused = PoolFile::open(&scratch.0, &OpenOptions::default(), Native::new).unwrap_err();
    assert!(matches!(refused, Error::InUse { pid } if pid == Some(std::process::id())), "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(4));
    drop(pool);
}

/// The process that created a file may have been killed before the file's name was durable.
#[test]
fn the_name_of_a_pool_that_was_not_closed_is_synced() {
    for (domain, closed, expected) in [
        (Domain::Adr, false, true),
        (Domain::Msync, false, true),
        (Domain::Adr, true, false),
        (Domain::Process, false, false),
    ] {
        let scratch = Scratch::new("name");
        let options = CreateOptions { max_bytes: 8 << 20, domain: Some(domain), chunk_bytes: None };
        let pool = PoolFile::create(&scratch.0, &options, Native::new).unwrap();
        if closed {
            pool.close().unwrap();
        }
        drop(pool);
        let bytes = std::fs::read(&scratch.0).unwrap();
        let options = OpenOptions { domain: Some(domain), max_bytes: None };
        let mut is_synced = false;
        for call in 0.. {
            std::fs::write(&scratch.0, &bytes).unwrap();
            failpoint::refuse(call, rustix::io::Errno::IO);
            let opened = PoolFile::open(&scratch.0, &options, Native::new);
            let is_over = failpoint::cease();
            if failpoint::refused() == Some("fsync") {
                is_synced = true;
                assert!(matches!(opened, Err(Error::Io { .. })));
                assert!(std::fs::read(&scratch.0).unwrap() == bytes, "the pool was changed");
            }
            if is_over {
                break;
            }
        }
        assert_eq!(is_synced, expected, "{domain}, closed: {closed}");
    }
}

/// A pool with a maximum of 64 TiB: its descriptors take 256 MiB, of which a small pool needs one
/// page.
#[test]
fn a_pool_backs_the_descriptors_of_the_chunks_it_has_and_no_others() {
    let scratch = Scratch::new("sparse");
    let options = CreateOptions { max_bytes: 64 << 40, domain: None, chunk_bytes: None };
    let pool = PoolFile::create(&scratch.0, &options, Native::new).unwrap();
    let first_page = pool.geometry.descriptors_offset();
    let backed = |at| backing::data(pool.region.as_file().unwrap(), at, at + 8).next().is_some();
    assert!(backed(0) && backed(SUPERBLOCK_STRIDE) && backed(DIRECTORY_OFFSET));
    let tree = pool.create_tree(&spec("a")).unwrap().id;
    for id in 0..600 {
        // A chunk of the next page of descriptors is the first to need that page.
        assert_eq!(backed(first_page + id * 8), id < 512 * pool.chunk_counts().1.div_ceil(512), "{id}");
        pool.chunk_alloc(tree, NODES, 256, 0).unwrap();
        assert!(backed(first_page + id * 8), "{id}");
        // The contents of the chunks do not matter here.
        let chunk = pool.chunk_offset(id as u32);
        rustix::fs::fallocate(
            pool.region.as_file().unwrap(),
            rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE,
            chunk,
            pool.chunk_bytes(),
        )
        .unwrap();
    }
    drop(pool);
    // Reading allocates nothing.
    let before = blocks(&scratch);
    let pool = PoolFile::open_read_only(&scratch.0, Native::new).unwrap();
    assert_eq!(pool.chunks_of(tree).len(), 600);
    assert_eq!(pool.at::<Word>(pool.chunk_offset(599)).load(pool.medium()), 0);
    assert!(pool.check().is_empty());
    drop(pool);
    drop(PoolFile::open_damaged(&scratch.0, part_of, Native::new).unwrap());
    assert_eq!(blocks(&scratch), before, "reading took space");
}

#[test]
fn a_medium_that_is_full_is_an_error_wherever_a_byte_is_backed() {
    let scratch = Scratch::new("nospace");
    let pool = scratch.create();
    let tree = pool.create_tree(&spec("a")).unwrap();
    let chunk = pool.chunk_alloc(tree.id, NODES, 256, u64::MAX).unwrap();
    let descriptors = pool.geometry.descriptors_offset();
    drop(pool);
    // A copy that left out zero blocks.
    let punch = || {
        let file = FileOptions::new().write(true).open(&scratch.0).unwrap();
        let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        for hole in [DIRECTORY_OFFSET + 4096, chunk.offset + 8192] {
            rustix::fs::fallocate(&file, flags, hole, 4096).unwrap();
        }
    };
    // Locks and reads come first, and fail with other errors.
    let mut refused = 0;
    for after in 0..20 {
        punch();
        failpoint::refuse(after, rustix::io::Errno::FAULT);
        let opened = scratch.open();
        failpoint::cease();
        refused += usize::from(matches!(opened, Err(Error::MediumFull { .. })));
    }
    assert_eq!(refused, 4, "opening backs the holes of header and chunk, a page first and then the rest");
    punch();
    let pool = scratch.open().unwrap();
    let file = pool.region.as_file().unwrap();
    assert_eq!(backing::holes(file, 0, descriptors).count(), 0);
    assert_eq!(backing::holes(file, chunk.offset, chunk.offset + pool.chunk_bytes()).count(), 0);
}

#[test]
fn a_creation_that_dies_leaves_nothing() {
    // No matter which call fails, no name of a complete or partial pool is left in the directory.
    let directory = std::path::PathBuf::from(format!("/dev/shm/bristlecone-pm-{}-half", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("p");
    let names = || std::fs::read_dir(&directory).unwrap().count();
    for (times, nth) in (1..3).flat_map(|times| (0..16).map(move |nth| (times, nth))) {
        // If the first two calls fail, the file has a temporary name.
        failpoint::refuse_many(nth, times, rustix::io::Errno::OPNOTSUPP);
        let options = CreateOptions { max_bytes: 8 << 20, domain: None, chunk_bytes: None };
        let made = PoolFile::create(&path, &options, Native::new);
        failpoint::cease();
        assert_eq!(names(), usize::from(made.is_ok()), "call {nth}, {times} times: {made:?}");
        if made.is_ok() {
            drop(made);
            drop(PoolFile::open(&path, &OpenOptions::default(), Native::new).unwrap());
            let again = PoolFile::create(&path, &options, Native::new);
            assert!(matches!(again, Err(Error::Exists { .. })));
            std::fs::remove_file(&path).unwrap();
        }
    }
    std::fs::remove_dir(&directory).unwrap();
}

#[test]
fn what_is_no_regular_file_is_no_pool_and_is_not_waited_for() {
    let scratch = Scratch::new("fifo");
    assert!(Command::new("mkfifo").arg(&scratch.0).status().unwrap().success());
    let socket = Scratch::new("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket.0).unwrap();
    for path in [&scratch.0, &socket.0, Path::new("/dev/shm"), Path::new("/dev/null"), Path::new("/dev/zero")]
    {
        let opened = [
            PoolFile::open(path, &OpenOptions::default(), Native::new).err(),
            PoolFile::open_read_only(path, Native::new).err(),
            PoolFile::open_damaged(path, part_of, Native::new).err(),
        ];
        for error in opened {
            assert!(matches!(error, Some(Error::NotAPool { .. })), "{}: {error:?}", path.display());
        }
    }
}

#[test]
fn a_tree_that_cannot_have_its_first_leaf_is_not_created() {
    let scratch = Scratch::new("unit");
    let pool = scratch.create();
    let full = |pool: &PoolFile<Native>| {
        let taken = std::iter::from_fn(|| pool.chunk_alloc(TreeId(0), NODES, 256, 0).ok());
        taken.count()
    };
    pool.create_tree(&spec("a")).unwrap();
    assert_eq!(full(&pool), 4);
    let leaf = |entry: &TreeEntry| pool.chunk_alloc(entry.id, NODES, 256, u64::MAX);
    assert!(matches!(pool.create_tree_with(&spec("b"), leaf), Err(Error::PoolFull { .. })));
    assert_eq!(pool.trees().unwrap().len(), 1);
    // There is space for one of two chunks: it is freed again.
    pool.chunk_free(2);
    let two = |entry: &TreeEntry| leaf(entry).and_then(|_| leaf(entry));
    assert!(pool.create_tree_with(&spec("b"), two).is_err());
    assert_eq!(pool.chunk_counts().0, 1);
    assert!(pool.check().is_empty());
    let (tree, chunk) = pool.create_tree_with(&spec("b"), leaf).unwrap();
    pool.expect_leaves(&tree, part_of).unwrap();
    // A crash before it was live: open frees it, also when reading.
    pool.at::<Word>(DIRECTORY_OFFSET + ENTRY_BYTES).store(pool.medium(), ENTRY_DROPPING);
    drop(pool);
    let pool = PoolFile::open_read_only(&scratch.0, Native::new).unwrap();
    assert_eq!((pool.trees().unwrap().len(), pool.chunk_counts().0), (1, 1));
    drop(pool);
    let pool = scratch.open().unwrap();
    assert_eq!((pool.trees().unwrap().len(), pool.chunk_counts().0), (1, 1));
    // A tree that had a leaf and now has none is damaged, not empty.
    let (tree, again) =
        pool.create_tree_with(&spec("b"), |entry| pool.chunk_alloc(entry.id, NODES, 256, u64::MAX)).unwrap();
    assert_eq!(again, chunk);
    pool.descriptor(chunk.id).store(pool.medium(), 1);
    assert!(matches!(pool.expect_leaves(&tree, part_of), Err(Error::Corrupted { .. })));
}

#[test]
fn a_damaged_copy_of_the_superblock_is_reported_and_a_torn_one_is_not() {
    for copy in [0, 1] {
        let scratch = Scratch::new("copy");
        // Closed once: beside the first copy alone, the second may be a torn write of a creation.
        scratch.create().close().unwrap();
        let whole = std::fs::read(&scratch.0).unwrap();
        let start = copy as usize * SUPERBLOCK_STRIDE as usize;
        let restore = |change: &dyn Fn(&mut [u8])| {
            let mut bytes = whole.clone();
            change(&mut bytes[start..start + SUPERBLOCK_WORDS * 8]);
            std::fs::write(&scratch.0, bytes).unwrap();
        };
        restore(&|bytes| bytes.fill(0));
        for read_only in [true, true, false] {
            let opened =
                if read_only { PoolFile::open_read_only(&scratch.0, Native::new) } else { scratch.open() };
            let pool = opened.unwrap();
            let said = format!("superblock, copy {copy}");
            assert_eq!(pool.info().issues[0].location, said);
            assert_eq!(pool.check()[0].location, said);
        }
        assert!(scratch.open().unwrap().check().is_empty(), "it was written anew");
        // Remains of an update after a crash: some of its words are stored.
        restore(&|bytes| bytes[88] ^= 1);
        assert!(scratch.open().unwrap().check().is_empty());
        restore(&|bytes| bytes[64] ^= 1);
        assert_eq!(scratch.open().unwrap().check().len(), 1);
    }
}

/// Returns wrong values for a word.
fn wrong_values(word: u64, neighbour: u64) -> impl Iterator<Item = u64> {
    [
        0,
        1,
        2,
        3,
        u64::MAX,
        neighbour,
        word ^ 1 << 63,
        word.wrapping_add(1),
        word << 8,
        word | 0xff << 16,
        1 << 32,
    ]
    .into_iter()
    .filter(move |wrong| *wrong != word)
}

/// With a valid checksum, so that only the values themselves can be rejected.
#[test]
fn a_superblock_with_sizes_that_cannot_be_is_refused_at_once() {
    let scratch = Scratch::new("sizes");
    let mut pool_contents = *scratch.create().lock_contents();
    pool_contents.sequence = 7;
    let whole = std::fs::read(&scratch.0).unwrap();
    let sizes = [1 << 16, 1 << 27, 1 << 30, u64::from(u32::MAX), 1 << 32, (1 << 32) + 3, 1 << 40, u64::MAX];
    for chunks_max in sizes {
        for chunk_bytes in [4096, CHUNK_BYTES, 1 << 30] {
            let geometry = Geometry { chunk_bytes, chunks_max, trees_max: TREES_MAX };
            let region = Region::memory(16384).unwrap();
            let contents = superblock::Contents { geometry, ..pool_contents };
            contents.write(&region, &Native::new(Domain::Process));
            let older = superblock::Contents { sequence: 8, ..contents };
            older.write(&region, &Native::new(Domain::Process));
            // SAFETY: the region's first bytes, which are no longer written.
            let header = unsafe { std::slice::from_raw_parts(region.base(), 8192) };
            let mut bytes = whole.clone();
            bytes[..8192].copy_from_slice(header);
            std::fs::write(&scratch.0, &bytes).unwrap();
            // As long as it claims, where that is possible: one hole.
            let header_bytes = chunks_max.saturating_mul(8).saturating_add(4 << 20);
            for len in [bytes.len() as u64, header_bytes.min(16 << 30) + (4 << 20)] {
                FileOptions::new().write(true).open(&scratch.0).unwrap().set_len(len).unwrap();
                let before = blocks(&scratch);
                let opened = PoolFile::open_read_only(&scratch.0, Native::new);
                let damaged = PoolFile::open_damaged(&scratch.0, part_of, Native::new);
                drop((opened, damaged));
                assert!(
                    blocks(&scratch) <= before,
                    "{chunks_max} chunks of {chunk_bytes}: a look took space"
                );
            }
        }
    }
}

/// Each word of superblock, directory and descriptors, wrong in many ways: the result is an error
/// or the previous state. A tree is lost only if its own state word says so.
#[test]
fn every_damaged_word_of_a_header_is_an_error_or_harmless() {
    let scratch = Scratch::new("words");
    let pool = scratch.create();
    let mut trees = Vec::new();
    for (name, kind) in [("a", NODES), ("b", OTHER_NODES)] {
        let leaf = |entry: &TreeEntry| pool.chunk_alloc(entry.id, kind, 256, 0);
        let (tree, chunk) = pool.create_tree_with(&spec(name), leaf).unwrap();
        pool.at::<Word>(chunk.offset).store(pool.medium(), 77);
        trees.push((tree, chunk));
    }
    let records = pool.chunk_alloc(trees[0].0.id, SlotKind::VALUE_RECORD, 64, 0).unwrap();
    pool.at::<Word>(records.offset).store(pool.medium(), 77);
    let descriptors = pool.geometry.descriptors_offset();
    pool.close().unwrap();
    drop(pool);
    let superblock = (0..SUPERBLOCK_WORDS as u64).flat_map(|word| [word * 8, SUPERBLOCK_STRIDE + word * 8]);
    let entries = (0..2 * ENTRY_BYTES / 8).map(|word| DIRECTORY_OFFSET + word * 8);
    let words = superblock.chain(entries).chain((0..4).map(|id| descriptors + id * 8)).collect::<Vec<_>>();
    let whole = std::fs::read(&scratch.0).unwrap();
    let at = |offset: u64| u64::from_le_bytes(whole[offset as usize..][..8].try_into().unwrap());
    let mut damaged = 0;
    for offset in words {
        let state = offset >= DIRECTORY_OFFSET && (offset - DIRECTORY_OFFSET).is_multiple_of(ENTRY_BYTES);
        let root = offset >= DIRECTORY_OFFSET && offset % ENTRY_BYTES == ENTRY_BYTES - 8;
        for wrong in wrong_values(at(offset), at(offset + 8)) {
            // The state has no checksum: this value means that the tree is being dropped.
            if root || offset < descriptors && state && wrong == ENTRY_DROPPING {
                continue;
            }
            let _ = std::fs::remove_file(&scratch.0);
            std::fs::write(&scratch.0, &whole).unwrap();
            write_word(&scratch, offset, wrong);
            damaged += 1;
            let case = format!("byte {offset:#x}: {:#x} became {wrong:#x}", at(offset));
            match scratch.open() {
                Ok(pool) => {
                    let sound = |(tree, chunk): &(TreeEntry, Chunk)| {
                        pool.expect_leaves(tree, part_of).is_ok() && pool.chunks_of(tree.id).contains(chunk)
                    };
                    let lost = trees.iter().filter(|tree| !sound(tree)).count();
                    let names = pool.trees().unwrap();
                    assert_eq!(names.len(), 2, "{case}");
                    // Superblocks are repaired, and this is reported; a descriptor has no checksum.
                    assert!(lost == 0 || offset >= descriptors, "{case}");
                    if offset < DIRECTORY_OFFSET {
                        let torn = offset % SUPERBLOCK_STRIDE >= 80;
                        assert!(torn || pool.check().len() == 1, "{case}: {:?}", pool.check());
                    }
                }
                Err(Error::Corrupted { .. } | Error::Newer { .. } | Error::NotAPool { .. }) => {}
                Err(error) => panic!("{case}: {error}"),
            }
            let saved = PoolFile::open_damaged(&scratch.0, part_of, Native::new);
            assert!(
                matches!(
                    &saved,
                    Ok(_) | Err(Error::Newer { .. } | Error::NotAPool { .. } | Error::Corrupted { .. })
                ),
                "{case}: {saved:?}"
            );
        }
    }
    assert!(damaged > 800, "{damaged}");
}
