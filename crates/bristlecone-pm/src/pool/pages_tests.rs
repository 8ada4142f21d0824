//! Trees whose entries are in pages of the directory.

use super::layout::{Descriptor, SUPERBLOCK_STRIDE, page_owner};
use super::tests::{NODES, Scratch, part_of, spec};
use super::*;
use crate::Native;

/// Creates trees `0..count`.
fn fill(pool: &PoolFile<Native>, count: usize) {
    for tree in 0..count {
        pool.create_tree_with(&spec(&tree.to_string()), |_| Ok(())).unwrap();
    }
}

fn create(scratch: &Scratch, max_bytes: u64) -> Arc<PoolFile<Native>> {
    PoolFile::create(&scratch.0, &CreateOptions { max_bytes, domain: None, chunk_bytes: None }, Native::new)
        .unwrap()
}

fn names(pool: &PoolFile<Native>) -> Vec<String> {
    pool.trees().unwrap().into_iter().map(|tree| tree.spec.name).collect()
}

/// Returns bit 3 of the incompatible features, which versions without pages refuse, in both copies of the superblock.
fn bits(scratch: &Scratch) -> [bool; 2] {
    let bytes = std::fs::read(&scratch.0).unwrap();
    [0, SUPERBLOCK_STRIDE as usize].map(|copy| bytes[copy + 24] & 8 != 0)
}

#[test]
fn trees_that_the_header_has_no_entry_for_are_in_a_page() {
    let scratch = Scratch::new("pages");
    let pool = create(&scratch, 64 << 20);
    fill(&pool, 256);
    assert_eq!((bits(&scratch), pool.directory_chunks()), ([false; 2], 0), "the header has 256 entries");
    pool.create_tree(&spec("256")).unwrap();
    assert_eq!((bits(&scratch), pool.directory_chunks()), ([true; 2], 1));
    for tree in 257..600 {
        pool.create_tree(&spec(&tree.to_string())).unwrap();
    }
    assert!(matches!(pool.create_tree(&spec("599")), Err(Error::TreeExists { .. })));
    let last = pool.find_tree("599").unwrap().unwrap();
    assert_eq!((last.id, pool.directory_chunks()), (TreeId(599), 1));
    let chunk = pool.chunk_alloc(last.id, NODES, 256, 0).unwrap();
    pool.anchor(last.id).store(pool.medium(), chunk.offset);
    pool.drop_tree(pool.find_tree("300").unwrap().unwrap().id).unwrap();
    pool.rename_tree("301", "renamed").unwrap();
    let (again, ()) = pool.replace_tree_with(TreeId(302), |_| Ok(())).unwrap();
    assert_eq!((again.id, &*again.spec.name), (TreeId(300), "302"), "the first free entry is used");
    assert!(pool.find_tree("300").unwrap().is_none() && pool.find_tree("301").unwrap().is_none());
    assert_eq!(pool.find_tree("302").unwrap(), Some(again.clone()));
    let before = names(&pool);
    assert!(pool.check().is_empty());
    drop(pool);
    // A crash.
    let reader = PoolFile::open_read_only(&scratch.0, Native::new).unwrap();
    assert_eq!(names(&reader), before);
    drop(reader);
    let pool = scratch.open().unwrap();
    assert_eq!((names(&pool), pool.directory_chunks()), (before, 1));
    assert_eq!(pool.find_tree("599").unwrap().unwrap().id, last.id);
    assert_eq!((pool.root(last.id).unwrap(), pool.chunks_of(last.id)), (Some(chunk.offset), vec![chunk]));
    assert_eq!(pool.find_tree("renamed").unwrap().unwrap().id, TreeId(301));
    assert_eq!(pool.create_tree(&spec("300")).unwrap().id, TreeId(302));
    assert!(pool.check().is_empty());
    pool.close().unwrap();
    assert_eq!(bits(&scratch), [true; 2]);
}

#[test]
fn a_pool_holds_65536_trees() {
    let scratch = Scratch::new("pages-all");
    let pool = create(&scratch, 64 << 20);
    fill(&pool, 1 << 16);
    let full = pool.create_tree(&spec("one more")).unwrap_err();
    assert!(matches!(&full, Error::Invalid { .. }) && full.to_string().contains("65536 trees"), "{full}");
    assert_eq!((pool.directory_chunks(), pool.live_trees().count()), (8, 1 << 16));
    pool.drop_tree(TreeId(40_000)).unwrap();
    assert_eq!(pool.create_tree(&spec("one more")).unwrap().id, TreeId(40_000));
    pool.close().unwrap();
    drop(pool);
    let pool = scratch.open().unwrap();
    assert_eq!(pool.find_tree("65535").unwrap().unwrap().id, TreeId(65_535));
    assert_eq!(pool.find_tree("one more").unwrap().unwrap().id, TreeId(40_000));
    assert!(pool.check().is_empty());
}

/// A directory whose chunks say what cannot be is an error, and salvage keeps the trees whose entries are there.
#[test]
fn pages_that_are_missing_or_twice_there_are_damage() {
    let scratch = Scratch::new("pages-damage");
    let pool = create(&scratch, 64 << 20);
    fill(&pool, 256 + 8192 + 8);
    let (begun, free) = (pool.chunk_counts().1, pool.chunk_counts().0);
    assert_eq!((begun, free, pool.directory_chunks()), (2, 0, 2));
    // A chunk that a tree owns.
    let spare = pool.chunk_alloc(TreeId(0), NODES, 256, 0).unwrap().id;
    let page =
        |page| Descriptor::Owned { owner: page_owner(page), kind: SlotKind::DIRECTORY, slot_bytes: 256 };
    let descriptors = [0, 1, spare].map(|id| pool.geometry.descriptors_offset() + u64::from(id) * 8);
    drop(pool);
    let whole = std::fs::read(&scratch.0).unwrap();
    for (at, descriptor, kept) in [
        // The first page is missing: its trees are.
        (0, Descriptor::Free, 256 + 8),
        // A chunk of a tree is a second first page, or a page with none before it.
        (2, page(0), 256 + 8192 + 8),
        (2, page(7), 256 + 8192 + 8),
    ] {
        let mut bytes = whole.clone();
        let start = descriptors[at] as usize;
        bytes[start..start + 8].copy_from_slice(&descriptor.encode().to_le_bytes());
        std::fs::write(&scratch.0, bytes).unwrap();
        let opened = scratch.open();
        assert!(matches!(opened, Err(Error::Corrupted { .. })), "{descriptor:?}: {opened:?}");
        let saved = PoolFile::open_damaged(&scratch.0, part_of, Native::new).unwrap();
        assert!(!saved.issues.is_empty());
        assert_eq!(saved.pool.trees().unwrap().len(), kept, "{descriptor:?}");
    }
    std::fs::write(&scratch.0, whole).unwrap();
    assert_eq!(scratch.open().unwrap().live_trees().count(), 256 + 8192 + 8);
}

/// A chunk that a page is made of may have had any bytes.
#[test]
fn entries_of_a_page_are_free_whatever_its_chunk_held() {
    let geometry = Geometry { chunk_bytes: 4096, chunks_max: 8, trees_max: 1 };
    let region = Region::memory(geometry.max_bytes()).unwrap();
    let pool = PoolFile::create_in(region, geometry, Domain::Process, Native::new(Domain::Process)).unwrap();
    let tree = pool.create_tree(&spec("first")).unwrap().id;
    let chunk = pool.chunk_alloc(tree, NODES, 64, 0).unwrap();
    pool.words(chunk.offset, 512).iter().for_each(|word| word.store(pool.medium(), 1));
    pool.chunk_free(chunk.id);
    pool.create_tree(&spec("second")).unwrap();
    assert!(pool.is_page(chunk.id));
    assert_eq!(names(&pool), ["first", "second"]);
    for more in 0..8 * 16 {
        match pool.create_tree(&spec(&more.to_string())) {
            Ok(_) => {}
            Err(error) => {
                assert!(error.is_no_room(), "{error}");
                assert_eq!(more, 8 * 16 - 1, "each chunk holds 16 entries");
            }
        }
    }
    assert!(pool.check().is_empty());
}
