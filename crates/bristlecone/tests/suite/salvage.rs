//! Damaged pools: readable items are saved into a new pool, unreadable ones are counted.

mod nodes;

use std::collections::BTreeMap;

use crate::common::{Cell, Items, Noise, Plant, Scratch, Visit, suites};
use bristlecone::{Design, Error, Native, Pool, Salvage, Tree, TreeSpec};
use bristlecone_matrix::by_level;
use bristlecone_pm::{OpenOptions, PoolFile};

const KEYS: u64 = 5000;
const CHUNKS: usize = 2 << 20;

fn key(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn text(i: u64) -> (String, Vec<u8>) {
    (format!("key {i:05}"), vec![i as u8; i as usize % 60])
}

/// Designs that read damaged leaves one by one.
const DESIGNS: [Design; 3] = [Design::SsTree, Design::NbTree, Design::WoTree];

/// A pool with two trees, and its bytes.
fn healthy(design: Design) -> Vec<u8> {
    let scratch = Scratch::new();
    let pool = scratch.without_index().max_bytes(64 << 20).open(&scratch.0).unwrap();
    let words = pool.tree_options("words").design(design).create::<u64, u64>().unwrap();
    let texts = pool.tree_options("texts").design(design).create::<(&str, u64), &[u8]>().unwrap();
    for i in 0..KEYS {
        words.insert(key(i), i).unwrap();
        let (name, value) = text(i);
        texts.insert((&name, i), &value).unwrap();
    }
    for i in (0..KEYS).step_by(5) {
        words.remove(key(i)).unwrap();
        texts.remove((&text(i).0, i)).unwrap();
    }
    assert_eq!((words.check(), texts.check()), (vec![], vec![]));
    drop((words, texts));
    pool.close().unwrap();
    std::fs::read(&scratch.0).unwrap()
}

/// Result for the trees of words and of texts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Saved {
    words: u64,
    texts: u64,
    /// Number of items that were removed before the damage, and reappeared.
    back: u64,
    /// Number of items that never existed.
    strange: u64,
}

const ALL: Saved = Saved { words: KEYS / 5 * 4, texts: KEYS / 5 * 4, back: 0, strange: 0 };

fn salvage(bytes: &[u8]) -> (Salvage, Saved) {
    let (from, to) = (Scratch::new(), Scratch::new());
    std::fs::write(&from.0, bytes).unwrap();
    let salvage = Pool::options().salvage(&from.0, &to.0).unwrap();
    assert!(std::fs::read(&from.0).unwrap() == bytes, "the damaged pool was changed");
    let pool = to.options().create(false).open(&to.0).unwrap();
    assert!(pool.info().was_clean);
    let mut saved = Saved::default();
    for tree in &salvage.trees {
        if tree.name == "words" {
            let tree = pool.tree_options("words").open::<u64, u64>().unwrap();
            assert_eq!(tree.check(), []);
            for (found, i) in tree.iter().map(Result::unwrap) {
                match i % 5 {
                    _ if i >= KEYS || found != key(i) => saved.strange += 1,
                    0 => saved.back += 1,
                    _ => saved.words += 1,
                }
            }
        } else {
            let tree = pool.tree_options("texts").open::<(&str, u64), &[u8]>().unwrap();
            assert_eq!(tree.check(), []);
            // Checksums exclude items that never existed.
            for ((name, i), value) in tree.iter().map(Result::unwrap) {
                assert_eq!((name, value), text(i));
                *if i % 5 == 0 { &mut saved.back } else { &mut saved.texts } += 1;
            }
        }
    }
    assert_eq!(salvage.items().0, saved.words + saved.texts + saved.back + saved.strange);
    (salvage, saved)
}

#[test]
fn a_pool_without_fault_is_copied() {
    for design in DESIGNS {
        let (salvage, saved) = salvage(&healthy(design));
        assert!(salvage.is_whole(), "{salvage:?}");
        assert_eq!(saved, ALL);
    }
}

#[test]
fn one_superblock_is_enough_and_none_is_survived() {
    let whole = healthy(Design::SsTree);
    for copies in [&[0][..], &[4096], &[0, 4096]] {
        let mut bytes = whole.clone();
        copies.iter().for_each(|&copy| bytes[copy + 56] ^= 0x40);
        let (salvage, saved) = salvage(&bytes);
        assert_eq!(saved, ALL);
        // One valid copy suffices, but damage of the other one is reported.
        let of_copy = salvage.issues.iter().filter(|issue| issue.location.starts_with("superblock"));
        assert!(of_copy.count() == 1 && !salvage.is_whole(), "{salvage:?}");
    }
    let mut bytes = whole.clone();
    bytes[..8192].fill(0);
    assert_eq!(salvage(&bytes).1, ALL);
}

/// Returns the offsets of the words of the pool with this value.
fn places(bytes: &[u8], word: u64) -> Vec<usize> {
    let range = (CHUNKS..bytes.len()).step_by(8);
    range.filter(|&at| bytes[at..at + 8] == word.to_le_bytes()).collect()
}

#[test]
fn a_broken_record_costs_its_item() {
    let wholes = DESIGNS.map(healthy);
    let mut noise = Noise(41);
    for round in 0..10 {
        let mut bytes = wholes[round % DESIGNS.len()].clone();
        let mut broken = std::collections::BTreeSet::new();
        for _ in 0..5 {
            let i = noise.below(KEYS);
            let name = text(i).0;
            // In the middle of the key: the first copy may belong to a removed item.
            for at in (CHUNKS..bytes.len() - 16).step_by(8) {
                if bytes[at..].starts_with(name.as_bytes()) {
                    bytes[at + 5] ^= 1 << noise.below(8);
                    broken.insert(i);
                }
            }
        }
        let lost = broken.iter().filter(|&i| i % 5 != 0).count() as u64;
        let (salvage, saved) = salvage(&bytes);
        assert_eq!(saved, Saved { texts: ALL.texts - lost, ..ALL }, "{salvage:?}");
        let tree = salvage.trees.iter().find(|tree| tree.name == "texts").unwrap();
        assert_eq!((tree.lost, tree.issues.len() as u64), (lost, lost));
    }
}

#[test]
fn a_key_out_of_its_leafs_range_is_not_believed() {
    for design in DESIGNS {
        let whole = healthy(design);
        let mut bytes = whole.clone();
        let broken = places(&whole, key(77)).len();
        for at in places(&whole, key(77)) {
            bytes[at + 7] ^= 0x80;
        }
        assert!(broken > 0);
        let (salvage, saved) = salvage(&bytes);
        assert_eq!(saved, Saved { words: ALL.words - 1, ..ALL }, "{salvage:?}");
        assert_eq!(salvage.items().1, 1, "{salvage:?}");
    }
}

#[test]
fn a_broken_directory_entry_costs_its_tree_only() {
    let whole = healthy(Design::SsTree);
    let entry = |i: usize| 8192 + 256 * i;
    let mut bytes = whole.clone();
    bytes[entry(0) + 90] ^= 1;
    let (report, saved) = salvage(&bytes);
    assert_eq!(saved, Saved { words: 0, ..ALL });
    assert!(report.issues.iter().any(|issue| issue.location == "directory entry 0"), "{report:?}");
    assert!(report.issues.iter().any(|issue| issue.location.starts_with("chunk")), "{report:?}");
    for state in [0, 7, 0xff] {
        let mut bytes = whole.clone();
        bytes[entry(1)] = state;
        let (report, saved) = salvage(&bytes);
        assert_eq!(saved, ALL, "state {state}: {report:?}");
        assert_eq!(report.issues.len(), 1);
    }
}

#[test]
fn a_lost_chunk_and_a_file_cut_short_leave_the_rest() {
    for design in DESIGNS {
        let whole = healthy(design);
        let mut bytes = whole.clone();
        bytes[8192 + 256 * 256] ^= 0x70;
        let (report, saved) = salvage(&bytes);
        assert!(saved.words + saved.texts > 0 && !report.is_whole());
        let mut seen = BTreeMap::new();
        for chunks in 1..whole.len() / CHUNKS {
            let (report, saved) = salvage(&whole[..chunks * CHUNKS + 5000]);
            assert!(!report.is_whole());
            seen.insert(chunks, saved.words + saved.texts);
        }
        assert!(seen.values().is_sorted() && *seen.values().max().unwrap() > KEYS / 2, "{seen:?}");
    }
}

/// A file that ends before its first chunk has a directory at most: each tree is listed, and none has
/// items.
#[test]
fn a_file_that_ends_within_its_header_names_its_trees() {
    for design in DESIGNS {
        let whole = healthy(design);
        for len in [40_000, 20_000, 8200, 8192] {
            let (report, saved) = salvage(&whole[..len]);
            let told = report.issues.iter().any(|issue| issue.what.contains("ends within it"));
            assert!(told && !report.is_whole(), "{design}, {len} bytes: {report:?}");
            assert_eq!(saved.words + saved.texts, 0, "{design}, {len} bytes");
        }
    }
}

#[test]
fn any_damage_is_survived() {
    let wholes = DESIGNS.map(healthy);
    let occupied = wholes.each_ref().map(|whole| -> Vec<usize> {
        (0..whole.len()).step_by(8).filter(|&at| whole[at..at + 8] != [0; 8]).collect()
    });
    let mut noise = Noise(47);
    for round in 0..by_level(24, 100, 100) {
        let design = round % DESIGNS.len();
        let (mut bytes, occupied) = (wholes[design].clone(), &occupied[design]);
        for _ in 0..=noise.below(20) {
            let at = occupied[noise.below(occupied.len() as u64) as usize];
            match round / DESIGNS.len() % 4 {
                0 => bytes[at] ^= 1 << noise.below(8),
                1 => bytes[at..at + 8].copy_from_slice(&noise.next().to_le_bytes()),
                2 => bytes[at..at + 8].fill(0xff),
                _ => bytes[at / 4096 * 4096..][..4096].fill_with(|| noise.next() as u8),
            }
        }
        let (from, to) = (Scratch::new(), Scratch::new());
        std::fs::write(&from.0, &bytes).unwrap();
        match Pool::options().salvage(&from.0, &to.0) {
            Ok(_) => drop(to.options().create(false).open(&to.0).unwrap()),
            Err(Error::NotAPool { .. } | Error::Newer { .. }) => assert!(!to.0.exists()),
            Err(error) => panic!("round {round}: {error}"),
        }
    }
}

/// Unknown kinds are reported; everything else is saved.
#[test]
fn a_tree_of_an_unknown_kind_costs_no_other() {
    let (from, to) = (Scratch::new(), Scratch::new());
    let pool = from.open();
    pool.tree::<u64, u64>("known").unwrap().insert(1, 2).unwrap();
    pool.close().unwrap();
    let file = PoolFile::open(&from.0, &OpenOptions::default(), Native::new).unwrap();
    let unknown = [("of a kind", Design::SsTree as u32, "decimal"), ("of a design", 999, "u64")];
    for (name, design, kind) in unknown {
        let spec = TreeSpec::new(name, design, kind.to_owned(), "u64".to_owned());
        file.create_tree_with(&spec, |_| Ok(())).unwrap();
    }
    file.close().unwrap();
    drop(file);
    let salvage = Pool::options().salvage(&from.0, &to.0).unwrap();
    assert!(!salvage.is_whole());
    for tree in salvage.trees {
        let said: Vec<_> = tree.issues.iter().map(|issue| issue.what.as_str()).collect();
        let refused = said.iter().any(|said| said.contains("not saved"));
        assert_eq!(
            (tree.kept, refused),
            if tree.name == "known" { (1, false) } else { (0, true) },
            "{said:?}"
        );
    }
    assert_eq!(to.open().tree::<u64, u64>("known").unwrap().get(1).unwrap(), Some(2));
}

#[test]
fn what_is_no_pool_or_in_use_is_refused() {
    let (from, to) = (Scratch::new(), Scratch::new());
    std::fs::write(&from.0, vec![b'x'; 1 << 20]).unwrap();
    assert!(matches!(Pool::options().salvage(&from.0, &to.0), Err(Error::NotAPool { .. })));
    std::fs::remove_file(&from.0).unwrap();
    let pool = from.open();
    assert!(matches!(Pool::options().salvage(&from.0, &to.0), Err(Error::InUse { .. })));
    drop(pool);
    std::fs::write(&to.0, b"mine").unwrap();
    assert!(matches!(Pool::options().salvage(&from.0, &to.0), Err(Error::Exists { .. })));
    assert_eq!(std::fs::read(&to.0).unwrap(), b"mine");
}

/// An undamaged pool is saved completely, with any trees.
#[test]
fn every_cell_is_copied() {
    struct Run(Cell);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let Self(cell) = self;
            println!("{cell}");
            let (from, to) = (Scratch::new(), Scratch::new());
            let pool = cell.pool(&from);
            let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
            for at in 0..2000 {
                tree.upsert(I::key_ref(&I::key(at)), I::value_ref(&I::value(at))).unwrap();
            }
            (0..2000).step_by(5).for_each(|at| drop(tree.remove(I::key_ref(&I::key(at))).unwrap()));
            let contents: Vec<_> = tree.iter().map(Result::unwrap).collect();
            drop(tree);
            pool.close().unwrap();
            let salvage = Pool::options().salvage(&from.0, &to.0).unwrap();
            assert!(salvage.is_whole(), "{salvage:?}");
            let pool = to.options().create(false).open(&to.0).unwrap();
            let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
            assert_eq!(tree.check(), []);
            assert!(tree.iter().map(Result::unwrap).eq(contents));
        }
    }
    suites::SALVAGE.sampled().into_iter().for_each(|cell| cell.codec.visit(Run(cell)));
}
