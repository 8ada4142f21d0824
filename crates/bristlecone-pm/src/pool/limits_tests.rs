//! Limits of pools, ranges and chunks.

use std::sync::Arc;

use super::tests::NODES;
use super::*;
use crate::Native;

fn small() -> Arc<PoolFile<Native>> {
    let geometry = Geometry { chunk_bytes: 4096, chunks_max: 4, trees_max: 2 };
    let region = Region::memory(geometry.max_bytes()).unwrap();
    PoolFile::create_in(region, geometry, Domain::Process, Native::new(Domain::Process)).unwrap()
}

#[test]
fn pools_of_nothing_and_of_too_much_are_refused_and_leave_no_file() {
    for max_bytes in [0, 1 << 48, 1 << 50, u64::MAX] {
        let path = PathBuf::from(format!("/dev/shm/bristlecone-pm-{}-limits", std::process::id()));
        let options = CreateOptions { max_bytes, domain: None, chunk_bytes: None };
        let refused = PoolFile::create(&path, &options, Native::new);
        let left = std::fs::remove_file(&path).is_ok();
        assert!(matches!(refused, Err(Error::Invalid { .. })) && !left, "{max_bytes:#x}");
    }
}

#[test]
fn a_limit_stops_growth_and_can_be_moved() {
    let pool = small();
    let full = |chunks: u64| {
        let taken = pool.take_unspared_chunk();
        let max_bytes = pool.geometry.header_bytes() + chunks * 4096;
        assert!(matches!(taken, Err(Error::PoolFull { max_bytes: at }) if at == max_bytes), "{taken:?}");
        assert_eq!(pool.chunks_available(), 0);
    };
    pool.set_limit(4097);
    assert_eq!(pool.chunks_available(), 2);
    let first = pool.take_unspared_chunk().unwrap();
    pool.take_unspared_chunk().unwrap();
    full(2);
    // Below what the file has: what is freed is used again.
    pool.set_limit(0);
    full(0);
    pool.chunk_free(first);
    assert_eq!(pool.take_unspared_chunk().unwrap(), first);
    // Above the maximum, which holds.
    pool.set_limit(u64::MAX);
    pool.take_unspared_chunk().unwrap();
    pool.take_unspared_chunk().unwrap();
    full(4);
}

#[test]
fn a_pool_holds_words_behind_its_header_and_before_its_end() {
    let pool = small();
    let (first, end) = (pool.chunk_offset(0), pool.region.len());
    assert_eq!(first, pool.geometry.header_bytes());
    for (offset, bytes, holds) in [
        (first, 8, true),
        (first, end - first, true),
        (first, end - first + 8, false),
        (first, end, false),
        (first, u64::MAX, false),
        (first - 8, 8, false),
        (0, 8, false),
        (first + 4, 8, false),
        (end - 8, 8, true),
        (end - 8, 16, false),
        (end, 0, true),
        (end, 8, false),
        (end + 8, 0, false),
        (u64::MAX - 7, 8, false),
    ] {
        assert_eq!(pool.holds(offset, bytes), holds, "{bytes} bytes at {offset:#x}");
    }
}

/// In a chunk that was used before, the first words of all tagged slots are cleared, and nothing
/// else.
#[test]
fn a_chunk_that_was_used_has_as_many_clear_words_as_it_should() {
    const SLOT_BYTES: u64 = 192;
    let slots = 4096 / SLOT_BYTES;
    for (tags, clear) in [(0, 0), (1, 1), (5, 5), (slots, slots), (slots + 1, slots), (u64::MAX, slots)] {
        let pool = small();
        let spec = TreeSpec {
            name: "t".into(),
            design: 1,
            key_kind: "u64".into(),
            value_kind: "u64".into(),
            expire_after_ms: 0,
            params: [0; 8],
        };
        let tree = pool.create_tree(&spec).unwrap().id;
        let alloc = |tags| pool.chunk_alloc(tree, NODES, SLOT_BYTES as u32, tags).unwrap();
        let used = alloc(0);
        let words = || (0..512).map(|word| pool.at::<Word>(used.offset + word * 8));
        words().for_each(|word| word.store(pool.medium(), 7));
        pool.chunk_free(used.id);
        assert_eq!(alloc(tags), used);
        let cleared: Vec<u64> = (0..)
            .step_by(8)
            .zip(words())
            .filter(|(_, word)| word.load(pool.medium()) == 0)
            .map(|(at, _)| at)
            .collect();
        assert_eq!(cleared, (0..clear).map(|slot| slot * SLOT_BYTES).collect::<Vec<_>>(), "{tags} tags");
    }
}
