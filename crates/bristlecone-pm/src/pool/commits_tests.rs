//! Records of the commit log across reopens, byte by byte, and chunks that are set aside.

use super::layout::{COMMITS_OWNER, Descriptor, PART_HEADER_BYTES, SUPERBLOCK_STRIDE};
use super::tests::{NODES, Scratch, part_of, spec};
use super::*;
use crate::Native;

/// Bytes of a slot of the log.
const SLOT_BYTES: usize = (CHUNK_BYTES / 16) as usize;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

/// Returns bit 2 of the incompatible features, in both copies of the superblock.
fn bits(scratch: &Scratch) -> [bool; 2] {
    let bytes = std::fs::read(&scratch.0).unwrap();
    [0, SUPERBLOCK_STRIDE as usize].map(|copy| word(&bytes, copy + 24) & 4 != 0)
}

#[test]
fn a_record_is_there_until_it_is_done() {
    let scratch = Scratch::new("commits");
    let pool = scratch.create();
    assert_eq!((bits(&scratch), pool.commit_chunks()), ([false; 2], 0));
    let (small, large) = (b"a record".to_vec(), vec![7; 2 * SLOT_BYTES]);
    drop(pool.commit_space(5).unwrap());
    assert_eq!((bits(&scratch), pool.commit_chunks()), ([true; 2], 1));
    let mut first = pool.commit_space(small.len()).unwrap();
    let mut second = pool.commit_space(large.len()).unwrap();
    first.commit(&small).unwrap();
    second.commit(&large).unwrap();
    let number = first.sequence();
    assert_eq!((number as u32, second.sequence()), (2, number + 1));
    assert_eq!(pool.pending_commits(), [(number, small.clone()), (number + 1, large.clone())]);
    assert!(matches!(pool.close(), Err(Error::DurabilityLost)), "closed with a record under way");
    first.done().unwrap();
    assert_eq!(pool.pending_commits(), [(number + 1, large.clone())]);
    drop(second);
    drop(pool);
    // A crash.
    let reader = PoolFile::open_read_only(&scratch.0, Native::new).unwrap();
    assert_eq!(reader.pending_commits(), [(number + 1, large.clone())]);
    reader.end_commits().unwrap();
    assert!(reader.pending_commits().is_empty());
    drop(reader);
    let pool = scratch.open().unwrap();
    assert_eq!(pool.pending_commits(), [(number + 1, large)]);
    assert!(matches!(pool.close(), Err(Error::Invalid { .. })), "closed before the commit was applied");
    assert!(pool.check().is_empty());
    pool.end_commits().unwrap();
    assert!(pool.pending_commits().is_empty() && pool.commit_chunks() == 0);
    // The next log begins in the slots of the last one.
    let mut again = pool.commit_space(small.len()).unwrap();
    assert!(pool.pending_commits().is_empty(), "an old record is back");
    assert!(again.sequence() >> 32 > number >> 32, "the number of an old record is used again");
    again.commit(&small).unwrap();
    again.done().unwrap();
    pool.close().unwrap();
    assert_eq!((bits(&scratch)[1] && bits(&scratch)[0], pool.commit_chunks()), (false, 0));
    drop(pool);
    let pool = scratch.open().unwrap();
    assert!(pool.was_clean() && pool.pending_commits().is_empty());
}

#[test]
fn the_log_is_golden_and_damage_is_no_record() {
    let scratch = Scratch::new("commits-golden");
    let pool = scratch.create();
    let record: Vec<u8> = (0..SLOT_BYTES + 100).map(|at| at as u8).collect();
    let mut space = pool.commit_space(record.len()).unwrap();
    space.commit(&record).unwrap();
    let chunk = pool.chunks_of(TreeId(COMMITS_OWNER))[0];
    assert_eq!((chunk.kind, chunk.slot_bytes as usize), (SlotKind::COMMITS, SLOT_BYTES));
    let owned =
        Descriptor::Owned { owner: COMMITS_OWNER, kind: SlotKind::COMMITS, slot_bytes: chunk.slot_bytes };
    assert_eq!(owned.encode(), 0x0040_00ff_ffff_1402);
    drop(space);
    drop(pool);
    let bytes = std::fs::read(&scratch.0).unwrap();
    let parts: Vec<usize> = (0..16)
        .map(|slot| chunk.offset as usize + slot * SLOT_BYTES)
        .filter(|slot| word(&bytes, *slot) != 0)
        .collect();
    let superblock_sequence =
        [0, SUPERBLOCK_STRIDE as usize].map(|at| word(&bytes, at + 80)).into_iter().max().unwrap();
    let mut joined = vec![Vec::new(); 2];
    for &slot in &parts {
        let [sequence, part, len, checksum] = [0, 8, 16, 24].map(|at| word(&bytes, slot + at));
        let payload = &bytes[slot + PART_HEADER_BYTES as usize..][..len as usize];
        assert_eq!((sequence, part >> 32), (superblock_sequence << 32 | 1, 2));
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[slot..slot + 24]), payload);
        assert_eq!(checksum, u64::from(crc));
        joined[part as u32 as usize] = payload.to_vec();
    }
    assert_eq!((parts.len(), joined.concat()), (2, record));
    for at in [parts[0], parts[0] + 9, parts[1] + 17, parts[1] + 25, parts[0] + 40, parts[1] + 100] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 2;
        std::fs::write(&scratch.0, damaged).unwrap();
        let pool = scratch.open().unwrap();
        assert!(pool.pending_commits().is_empty(), "byte {at}");
        pool.end_commits().unwrap();
    }
}

#[test]
fn salvage_finds_the_log_and_a_log_without_its_bit_is_damage() {
    let scratch = Scratch::new("commits-salvage");
    let pool = scratch.create();
    let mut space = pool.commit_space(3).unwrap();
    space.commit(b"abc").unwrap();
    let number = space.sequence();
    drop(space);
    drop(pool);
    let Damaged { pool, issues, .. } = PoolFile::open_damaged(&scratch.0, part_of, Native::new).unwrap();
    assert!(issues.is_empty(), "{issues:?}");
    assert_eq!(pool.pending_commits(), [(number, b"abc".to_vec())]);
    drop(pool);
    let mut bytes = std::fs::read(&scratch.0).unwrap();
    for copy in [0, SUPERBLOCK_STRIDE as usize] {
        bytes[copy + 24] &= !4;
        let crc = crc32c::crc32c(&bytes[copy..copy + 96]);
        bytes[copy + 96..copy + 100].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(&scratch.0, bytes).unwrap();
    assert!(matches!(scratch.open(), Err(Error::Corrupted { .. })));
}

#[test]
fn chunks_are_set_aside_for_one_thread_and_for_others_once_it_is_through() {
    let scratch = Scratch::new("set-aside");
    let pool = scratch.create();
    let tree = pool.create_tree(&spec("a")).unwrap().id;
    let take = || pool.chunk_alloc(tree, NODES, 256, 0);
    let elsewhere = || std::thread::scope(|scope| scope.spawn(|| take().is_ok()).join().unwrap());
    assert_eq!(pool.chunks_available(), 4);
    assert!(matches!(pool.set_aside(5), Err(Error::PoolFull { .. })));
    assert_eq!((pool.chunks_available(), pool.chunk_counts().0), (4, 4), "a refusal kept some");
    let aside = pool.set_aside(2).unwrap();
    assert_eq!(pool.chunks_available(), 4);
    let seen = std::thread::scope(|scope| scope.spawn(|| pool.chunks_available()).join().unwrap());
    assert_eq!(seen, 2);
    assert!(elsewhere() && elsewhere() && !elsewhere(), "what is set aside was taken");
    take().unwrap();
    assert!(!elsewhere());
    drop(aside);
    assert_eq!(pool.chunks_available(), 1);
    assert!(elsewhere() && take().is_err());
    assert_eq!((pool.chunks_available(), pool.chunk_counts()), (0, (0, 4, 4)));
}
