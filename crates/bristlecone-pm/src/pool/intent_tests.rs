//! Renamed and replaced trees, the bytes of an intent, and pools whose maximum is raised.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::layout::{
    DIRECTORY_OFFSET, ENTRY_BYTES, INTENT_OFFSET, SUPERBLOCK_STRIDE, SUPERBLOCK_WORDS, Superblock,
};
use super::tests::{NODES, Scratch, part_of, spec};
use super::*;
use crate::Native;

type Pool = Arc<PoolFile<Native>>;

fn names(pool: &Pool) -> Vec<String> {
    pool.trees().unwrap().into_iter().map(|tree| tree.spec.name).collect()
}

fn leaf(pool: &Pool) -> impl Fn(&TreeEntry) -> Result<Chunk> {
    |entry| pool.chunk_alloc(entry.id, NODES, 256, u64::MAX)
}

#[test]
fn rename_gives_a_tree_the_new_name_and_nothing_else() {
    let scratch = Scratch::new("rename");
    let pool = scratch.create();
    let (first, chunk) = pool.create_tree_with(&spec("a name of more than two words"), leaf(&pool)).unwrap();
    pool.create_tree(&spec("b")).unwrap();
    pool.anchor(first.id).store(pool.medium(), 77);
    let longest = "x".repeat(64);
    for (from, to) in [("a name of more than two words", "c"), ("c", &longest), (&longest, "ä")] {
        pool.rename_tree(from, to).unwrap();
        assert_eq!(names(&pool), [to, "b"]);
    }
    drop(pool);
    let pool = scratch.open().unwrap();
    let renamed = pool.find_tree("ä").unwrap().unwrap();
    assert_eq!(renamed, TreeEntry { id: first.id, spec: spec("ä") });
    assert_eq!(pool.chunks_of(first.id), [chunk]);
    assert_eq!(pool.root(first.id).unwrap(), Some(77), "it is still one that had leaves, and its root");
    assert!(pool.check().is_empty());
}

#[test]
fn rename_refuses_what_cannot_be_and_changes_nothing() {
    let scratch = Scratch::new("rename-refused");
    let pool = scratch.create();
    pool.create_tree(&spec("a")).unwrap();
    pool.create_tree(&spec("b")).unwrap();
    let before = std::fs::read(&scratch.0).unwrap();
    assert!(matches!(pool.rename_tree("a", "b"), Err(Error::TreeExists { name }) if name == "b"));
    assert!(matches!(pool.rename_tree("c", "d"), Err(Error::NoSuchTree { name }) if name == "c"));
    assert!(matches!(pool.rename_tree("c", "c"), Err(Error::NoSuchTree { .. })));
    assert!(matches!(pool.rename_tree("a", &"x".repeat(65)), Err(Error::TooLong { what: "tree name", .. })));
    for name in ["", "a\nb", "\0", "\u{7f}", "\u{85}"] {
        assert!(matches!(pool.rename_tree("a", name), Err(Error::Invalid { .. })), "{name:?}");
        assert!(matches!(pool.create_tree(&spec(name)), Err(Error::Invalid { .. })), "{name:?}");
    }
    pool.rename_tree("a", "a").unwrap();
    assert!(std::fs::read(&scratch.0).unwrap() == before, "a byte has changed");
    drop(pool);
    let reader = PoolFile::open_read_only(&scratch.0, Native::new).unwrap();
    assert!(matches!(reader.rename_tree("a", "c"), Err(Error::ReadOnly)));
    let replaced = reader.replace_tree_with(TreeId(0), leaf(&reader));
    assert!(matches!(replaced, Err(Error::ReadOnly)));
}

/// Threads that list trees during a rename see the tree under one of both names.
#[test]
fn rename_is_atomic_for_other_threads() {
    let scratch = Scratch::new("rename-threads");
    let pool = scratch.create();
    let both = ["a name of several words", "another name of the same"];
    pool.create_tree(&spec(both[0])).unwrap();
    std::thread::scope(|scope| {
        let renamer = scope.spawn(|| {
            for round in 0..500 {
                pool.rename_tree(both[round % 2], both[(round + 1) % 2]).unwrap();
            }
        });
        while !renamer.is_finished() {
            let names = names(&pool);
            assert!(names.len() == 1 && both.contains(&&*names[0]), "{names:?}");
        }
    });
}

#[test]
fn replace_puts_a_tree_in_the_place_of_another_or_leaves_it() {
    let scratch = Scratch::new("replace");
    let pool = scratch.create();
    let (old, _) = pool.create_tree_with(&spec("a"), leaf(&pool)).unwrap();
    (0..2).for_each(|_| _ = leaf(&pool)(&old).unwrap());
    let failed = pool.replace_tree_with(old.id, |entry| {
        leaf(&pool)(entry)?;
        Err::<(), _>(Error::invalid("not this time"))
    });
    assert!(matches!(failed, Err(Error::Invalid { .. })));
    assert_eq!((pool.chunks_of(old.id).len(), pool.chunk_counts().0), (3, 1));
    let (new, chunk) = pool.replace_tree_with(old.id, leaf(&pool)).unwrap();
    assert_eq!((pool.trees().unwrap(), new.spec.clone()), (vec![new.clone()], spec("a")));
    assert_eq!((pool.chunks_of(new.id), pool.chunk_counts().0), (vec![chunk], 3));
    let gone = pool.replace_tree_with(old.id, leaf(&pool));
    assert!(matches!(gone, Err(Error::NoSuchTree { .. })));
    drop(pool);
    let pool = scratch.open().unwrap();
    assert_eq!(pool.trees().unwrap(), [new]);
    assert!(pool.check().is_empty());
}

/// An interrupted rename, word by word.
#[test]
fn the_intent_is_golden() {
    let scratch = Scratch::new("intent");
    let pool = scratch.create();
    pool.create_tree_with(&spec("a"), leaf(&pool)).unwrap();
    drop(pool);
    let before = std::fs::read(&scratch.0).unwrap();
    let pool = scratch.open().unwrap();
    pool.rename_tree("a", "fair").unwrap();
    pool.close().unwrap();
    drop(pool);
    let after = std::fs::read(&scratch.0).unwrap();
    let word =
        |bytes: &[u8], at: u64| u64::from_le_bytes(bytes[at as usize..at as usize + 8].try_into().unwrap());
    let entry = &after[DIRECTORY_OFFSET as usize..][..ENTRY_BYTES as usize];
    let intent = &after[INTENT_OFFSET as usize..][..96];
    assert_eq!(word(intent, 0), u64::from(u32::MAX) << 32);
    assert_eq!((word(intent, 8), word(intent, 16)), (word(entry, 8), word(entry, 80)));
    assert_eq!((word(intent, 16), word(intent, 24)), (0x0105_0304, u64::from_le_bytes(*b"fair\0\0\0\0")));
    assert_eq!(intent[24..88], entry[88..152]);
    assert_eq!(word(intent, 88), u64::from(crc32c::crc32c(&intent[..88])));
    assert_eq!([24, SUPERBLOCK_STRIDE + 24].map(|at| word(&after, at)), [1, 1], "the bit is gone");

    // The intent beside the unchanged entry, and the superblock's bit that makes it count.
    let mut cut_short = before.clone();
    cut_short[INTENT_OFFSET as usize..][..96].copy_from_slice(intent);
    for copy in [0, SUPERBLOCK_STRIDE as usize] {
        let superblock = &mut cut_short[copy..copy + SUPERBLOCK_WORDS * 8];
        superblock[24] = 3;
        let crc = crc32c::crc32c(&superblock[..96]);
        superblock[96..100].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(&scratch.0, &cut_short).unwrap();
    let reader = PoolFile::open_read_only(&scratch.0, Native::new).unwrap();
    assert_eq!(names(&reader), ["fair"]);
    drop(reader);
    assert!(std::fs::read(&scratch.0).unwrap() == cut_short, "reading has changed the file");
    assert_eq!(names(&scratch.open().unwrap()), ["fair"]);
    // A crash directly after that. Neither copy revives the change if the other one is damaged.
    let recovered = std::fs::read(&scratch.0).unwrap();
    assert_eq!([24, SUPERBLOCK_STRIDE + 24].map(|at| word(&recovered, at)), [1, 1]);
    assert_eq!(names(&scratch.open().unwrap()), ["fair"], "and once more");

    // An unreadable intent: the salvage open still finds the tree.
    for byte in [0, 8, 24, 90] {
        let mut broken = cut_short.clone();
        broken[INTENT_OFFSET as usize + byte] ^= 4;
        std::fs::write(&scratch.0, &broken).unwrap();
        let error = scratch.open().unwrap_err();
        assert!(matches!(&error, Error::Corrupted { location, .. } if location == "intent"), "{error}");
        let Damaged { pool, issues, .. } = PoolFile::open_damaged(&scratch.0, part_of, Native::new).unwrap();
        assert_eq!((names(&pool), &*issues[0].location), (vec!["a".to_owned()], "intent"));
    }
}

fn open_for(scratch: &Scratch, max_bytes: u64) -> Result<Pool> {
    PoolFile::open(&scratch.0, &OpenOptions { domain: None, max_bytes: Some(max_bytes) }, Native::new)
}

#[test]
fn a_larger_maximum_is_had_or_refused() {
    let scratch = Scratch::new("raise");
    let pool = scratch.create();
    let tree = pool.create_tree(&spec("a")).unwrap();
    let alloc = |pool: &Pool| pool.chunk_alloc(tree.id, NODES, 256, u64::MAX);
    (0..4).for_each(|_| _ = alloc(&pool).unwrap());
    assert!(matches!(alloc(&pool), Err(Error::PoolFull { .. })));
    let (small, header) = (pool.max_bytes(), pool.geometry.header_bytes());
    drop(pool);
    // An equal or smaller maximum changes nothing.
    for max_bytes in [1, 8 << 20] {
        assert_eq!(open_for(&scratch, max_bytes).unwrap().max_bytes(), small);
    }
    let pool = open_for(&scratch, 64 << 20).unwrap();
    assert_eq!(pool.max_bytes(), header + (64 << 20));
    let more: Vec<_> = (4..32).map(|_| alloc(&pool).unwrap()).collect();
    assert!(matches!(alloc(&pool), Err(Error::PoolFull { .. })));
    drop(pool);
    // The next open finds it, also after a crash of either superblock.
    let whole = std::fs::read(&scratch.0).unwrap();
    for copy in [0, SUPERBLOCK_STRIDE as usize] {
        let mut torn = whole.clone();
        torn[copy + 80..copy + 104].fill(0xab);
        std::fs::write(&scratch.0, &torn).unwrap();
        let pool = scratch.open().unwrap();
        assert_eq!((pool.max_bytes(), &pool.chunks_of(tree.id)[4..]), (header + (64 << 20), &more[..]));
    }
    // Up to the size of the header, but no further.
    let possible = (header - pool_offset(&scratch)) / 8 * CHUNK_BYTES;
    for refused in [possible + 1, 1 << 40, u64::MAX] {
        match open_for(&scratch, refused) {
            Err(Error::MaximumFixed { asked, possible: found }) => {
                assert_eq!((asked, found), (refused, possible));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(scratch.open().unwrap().max_bytes(), header + (64 << 20));
    }
    assert_eq!(open_for(&scratch, possible).unwrap().max_bytes(), header + possible);
    assert!(scratch.open().unwrap().check().is_empty());
}

fn pool_offset(scratch: &Scratch) -> u64 {
    scratch.open().unwrap().geometry.descriptors_offset()
}

/// A crash between or during the two superblocks of a raise damages nothing.
#[test]
fn a_raise_that_was_cut_short_is_no_damage() {
    let scratch = Scratch::new("raise-cut");
    drop(scratch.create());
    drop(scratch.open().unwrap());
    let superblocks = |bytes: &[u8]| [bytes[..104].to_vec(), bytes[4096..4200].to_vec()];
    let small = std::fs::read(&scratch.0).unwrap();
    drop(open_for(&scratch, 64 << 20).unwrap());
    let large = std::fs::read(&scratch.0).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap();
    let sequence = |copy: &[u8]| u64::from_le_bytes(copy[80..88].try_into().unwrap());
    let [first, second] = superblocks(&small).map(|copy| sequence(&copy));
    let order = if first < second { [0, 1] } else { [1, 0] };
    for (copy, other) in [(order[0], &small), (order[1], &large)] {
        const CHECKSUM: usize = SUPERBLOCK_WORDS - 1;
        for kept in 0..1_u32 << CHECKSUM {
            let (mut torn, new) = (superblocks(&small)[copy].clone(), &superblocks(&large)[copy]);
            for word in (0..CHECKSUM).filter(|word| kept >> word & 1 == 1) {
                torn[word * 8..word * 8 + 8].copy_from_slice(&new[word * 8..word * 8 + 8]);
            }
            // Before the first step is durable no other word changes; before the last step the
            // other words are present.
            if kept != 0 {
                torn[CHECKSUM * 8..].fill(0xff);
            }
            let mut copies = superblocks(other);
            copies[copy] = torn;
            let words = copies.map(|bytes| {
                Superblock::from_words(std::array::from_fn(|at| {
                    u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap())
                }))
            });
            let (contents, damage) = Contents::of(words, Access::Write).unwrap();
            assert_eq!(damage, None, "copy {copy}, words {kept:#b}");
            assert!([4, 32].contains(&contents.geometry.chunks_max));
        }
    }
    let second = order[1];
    file.write_all_at(&superblocks(&small)[second], second as u64 * SUPERBLOCK_STRIDE).unwrap();
    let info = scratch.open().unwrap().info();
    assert_eq!((info.issues, info.max_bytes >> 20), (vec![], 66));
}
