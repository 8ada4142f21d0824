//! Damaged pools: what can be read is saved into a new one, what cannot is counted.

use std::collections::BTreeMap;

use crate::common::{Cell, Items, Noise, Plant, Scratch, Visit, suites};
use bristlecone::{Design, Error, Native, Pool, Salvage, Tree, TreeSpec};
use bristlecone_cells::by_effort;
use bristlecone_pm::{OpenOptions, PoolFile};

const KEYS: u64 = 5000;
const CHUNKS: usize = 2 << 20;

fn key(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn text(i: u64) -> (String, Vec<u8>) {
    (format!("key {i:05}"), vec![i as u8; i as usize % 60])
}

/// Those that read damaged leaves one by one.
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

/// What became of the trees of words and of texts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Saved {
    words: u64,
    texts: u64,
    /// Items that were removed before the damage, and are there again.
    back: u64,
    /// Items that never were.
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
            for (found, i) in tree.iter() {
                match i % 5 {
                    _ if i >= KEYS || found != key(i) => saved.strange += 1,
                    0 => saved.back += 1,
                    _ => saved.words += 1,
                }
            }
        } else {
            let tree = pool.tree_options("texts").open::<(&str, u64), &[u8]>().unwrap();
            assert_eq!(tree.check(), []);
            // Checksums keep out what never was.
            for ((name, i), value) in tree.iter() {
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
        // One copy serves, but what is wrong with the other one is told.
        let of_copy = salvage.findings.iter().filter(|finding| finding.location.starts_with("superblock"));
        assert!(of_copy.count() == 1 && !salvage.is_whole(), "{salvage:?}");
    }
    let mut bytes = whole.clone();
    bytes[..8192].fill(0);
    assert_eq!(salvage(&bytes).1, ALL);
}

/// Where the words of the pool are that hold this one.
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
            // In the middle of the key: the first copy may be left of a removed item.
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
        assert_eq!((tree.lost, tree.findings.len() as u64), (lost, lost));
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

/// The subnodes of the tree of words: places of their `next`.
fn subnodes(bytes: &[u8]) -> Vec<usize> {
    let chunk = places(bytes, key(77))[0] / CHUNKS * CHUNKS;
    let all = (chunk..chunk + CHUNKS).step_by(256);
    all.filter(|&at| bytes[at..at + 8] != [0; 8]).collect()
}

#[test]
fn a_broken_leaf_costs_little_more_than_itself() {
    let whole = healthy(Design::SsTree);
    let subnodes = subnodes(&whole);
    let mut noise = Noise(43);
    let mut sum = [0; 3];
    let rounds = by_effort(12, 60, 60_u64);
    for round in 0..rounds {
        let mut bytes = whole.clone();
        let at = subnodes[noise.below(subnodes.len() as u64) as usize];
        match round % 6 {
            0 => bytes[at] ^= 1 << noise.below(8),
            1 => bytes[at..at + 8].copy_from_slice(&noise.next().to_le_bytes()),
            2 => bytes[at + 8 + noise.below(8) as usize] ^= 1 << noise.below(8),
            3 => bytes[at..at + 64].fill(0xff),
            4 => bytes[at..at + 256].fill_with(|| noise.next() as u8),
            _ => {
                // Its chain leads to another leaf's subnode.
                let other = subnodes[noise.below(subnodes.len() as u64) as usize] as u64;
                bytes[at..at + 8].copy_from_slice(&other.to_le_bytes());
            }
        }
        let (salvage, saved) = salvage(&bytes);
        let lost = ALL.words - saved.words;
        // A bit of a bitmap that went off looks like a removal, one word that went wrong like a word.
        let told = !salvage.is_whole() || lost <= u64::from([2, 3].contains(&(round % 6)));
        assert!(saved.texts == ALL.texts && lost <= 42 && told, "round {round}: {saved:?} {salvage:?}");
        // Keys and values of one word have no checksum: noise may pass for an item.
        let noise = [3, 4].contains(&(round % 6));
        assert!(saved.back <= 14 && saved.strange <= if noise { 14 } else { 1 }, "round {round}: {saved:?}");
        sum = [sum[0] + lost, sum[1] + saved.back, sum[2] + saved.strange];
    }
    println!("{rounds} broken leaves: {} items lost, {} came back, {} are made up", sum[0], sum[1], sum[2]);
}

/// The leaves of an NBTree of words: places of their blocks.
fn blocks(bytes: &[u8]) -> Vec<usize> {
    let chunk = places(bytes, key(77))[0] / CHUNKS * CHUNKS;
    (chunk..chunk + CHUNKS).step_by(1024).filter(|&at| bytes[at] & 3 == 1).collect()
}

/// A broken header costs nothing, since no other leaf has the keys.
#[test]
fn a_broken_block_costs_what_is_broken_of_it() {
    let whole = healthy(Design::NbTree);
    let blocks = blocks(&whole);
    let mut noise = Noise(53);
    let mut sum = [0; 3];
    let rounds = by_effort(16, 80, 80_u64);
    for round in 0..rounds {
        let mut bytes = whole.clone();
        let at = blocks[noise.below(blocks.len() as u64) as usize];
        let other = blocks[noise.below(blocks.len() as u64) as usize] as u64;
        let put = |bytes: &mut Vec<u8>, at: usize, word: u64| {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        };
        match round % 8 {
            // One bit of the state, of the stamp, of an item.
            0 => bytes[at + noise.below(8) as usize] ^= 1 << noise.below(8),
            1 => bytes[at + 8 + noise.below(8) as usize] ^= 1 << noise.below(8),
            2 => bytes[at + 16 + noise.below(1008) as usize] ^= 1 << noise.below(8),
            // A state that is none, an origin that is another leaf, a stamp that never was.
            3 => put(&mut bytes, at, noise.next() | 3),
            4 => put(&mut bytes, at, other | 1),
            5 => put(&mut bytes, at + 8, noise.next()),
            // A line of zeros, and a block of noise.
            6 => bytes[at..at + 64].fill(0),
            _ => bytes[at..at + 1024].fill_with(|| noise.next() as u8),
        }
        let (salvage, saved) = salvage(&bytes);
        let lost = ALL.words - saved.words;
        let allowed = [0, 0, 1, 0, 0, 0, 3, 63][round as usize % 8];
        assert!(saved.texts == ALL.texts && lost <= allowed, "round {round}: {saved:?} {salvage:?}");
        // Noise may pass for items, and an item of a leaf that broke off may have been removed.
        let made_up = if round % 8 == 7 { 63 } else { 1 };
        assert!(saved.back == 0 && saved.strange <= made_up, "round {round}: {saved:?} {salvage:?}");
        sum = [sum[0] + lost, sum[1] + saved.back, sum[2] + saved.strange];
    }
    println!("{rounds} broken blocks: {} items lost, {} came back, {} are made up", sum[0], sum[1], sum[2]);
}

/// The nodes of a WO-tree of words that have a kind: 1 for leaves, 2 for inner nodes.
fn nodes(bytes: &[u8], kind: u8) -> Vec<usize> {
    let chunk = places(bytes, key(77))[0] / CHUNKS * CHUNKS;
    (chunk..chunk + CHUNKS).step_by(1024).filter(|&at| bytes[at + 7] >> 4 == kind).collect()
}

/// Leaves are found whatever leads to them.
#[test]
fn broken_inner_nodes_cost_nothing() {
    let whole = healthy(Design::WoTree);
    let (inner, leaves) = (nodes(&whole, 2), nodes(&whole, 1));
    assert!(inner.len() > 1 && leaves.len() > 50, "{} inner nodes, {} leaves", inner.len(), leaves.len());
    let mut noise = Noise(59);
    for (round, &node) in inner.iter().cycle().take(inner.len() * 6).enumerate() {
        let mut bytes = whole.clone();
        match round / inner.len() {
            0 => bytes[node..node + 1024].fill(0),
            1 => bytes[node..node + 1024].fill_with(|| noise.next() as u8),
            2 => bytes[node..node + 64].fill(0xff),
            3 => bytes[node + 40 + 16 * noise.below(20) as usize] ^= 1 << noise.below(8),
            4 => bytes[node + 8 + noise.below(16) as usize] ^= 0x10,
            // And every leaf's way to the next one.
            _ => leaves.iter().for_each(|&leaf| bytes[leaf + 64..leaf + 80].fill_with(|| noise.next() as u8)),
        }
        let (salvage, saved) = salvage(&bytes);
        assert_eq!((saved, salvage.items().1), (ALL, 0), "round {round}: {salvage:?}");
    }
}

#[test]
fn a_broken_leaf_of_a_wotree_costs_what_is_broken_of_it() {
    let whole = healthy(Design::WoTree);
    let leaves = nodes(&whole, 1);
    let mut noise = Noise(61);
    let mut sum = [0; 3];
    let rounds = by_effort(14, 70, 70_u64);
    for round in 0..rounds {
        let mut bytes = whole.clone();
        let at = leaves[noise.below(leaves.len() as u64) as usize];
        match round % 7 {
            // One bit of the bitmap, of the slot array, of an item.
            0 => bytes[at + noise.below(6) as usize] ^= 1 << noise.below(8),
            1 => bytes[at + 8 + noise.below(8) as usize] ^= 1 << noise.below(8),
            2 => bytes[at + 80 + noise.below(880) as usize] ^= 1 << noise.below(8),
            // A state that is none, and one of an inner node.
            3 => bytes[at + 7] |= 0xf0,
            4 => bytes[at..at + 8].copy_from_slice(&(2_u64 << 60 | 40).to_le_bytes()),
            // A line of zeros, and a leaf of noise.
            5 => bytes[at..at + 64].fill(0),
            _ => bytes[at..at + 1024].fill_with(|| noise.next() as u8),
        }
        let (salvage, saved) = salvage(&bytes);
        let lost = ALL.words - saved.words;
        // A bit that is set of a slot that was never taken says that an item of zeros is there.
        let allowed = [1, 0, 1, 0, 0, 1, 55][round as usize % 7];
        assert!(saved.texts == ALL.texts && lost <= allowed, "round {round}: {saved:?} {salvage:?}");
        assert!(!salvage.is_whole() || [2].contains(&(round % 7)), "round {round}: {salvage:?}");
        // What was removed stands in its slot as it did; where no bitmap tells it may come back.
        let (back, strange) = [(1, 1), (0, 0), (0, 1), (0, 0), (0, 0), (55, 1), (0, 55)][round as usize % 7];
        assert!(saved.back <= back && saved.strange <= strange, "round {round}: {saved:?} {salvage:?}");
        sum = [sum[0] + lost, sum[1] + saved.back, sum[2] + saved.strange];
    }
    println!("{rounds} broken leaves: {} items lost, {} came back, {} are made up", sum[0], sum[1], sum[2]);
}

#[test]
fn a_broken_directory_entry_costs_its_tree_only() {
    let whole = healthy(Design::SsTree);
    let entry = |i: usize| 8192 + 256 * i;
    let mut bytes = whole.clone();
    bytes[entry(0) + 90] ^= 1;
    let (report, saved) = salvage(&bytes);
    assert_eq!(saved, Saved { words: 0, ..ALL });
    assert!(report.findings.iter().any(|finding| finding.location == "directory entry 0"), "{report:?}");
    assert!(report.findings.iter().any(|finding| finding.location.starts_with("chunk")), "{report:?}");
    for state in [0, 7, 0xff] {
        let mut bytes = whole.clone();
        bytes[entry(1)] = state;
        let (report, saved) = salvage(&bytes);
        assert_eq!(saved, ALL, "state {state}: {report:?}");
        assert_eq!(report.findings.len(), 1);
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

#[test]
fn any_damage_is_survived() {
    let wholes = DESIGNS.map(healthy);
    let occupied = wholes.each_ref().map(|whole| -> Vec<usize> {
        (0..whole.len()).step_by(8).filter(|&at| whole[at..at + 8] != [0; 8]).collect()
    });
    let mut noise = Noise(47);
    for round in 0..by_effort(24, 100, 100) {
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

/// What this version does not know is reported; everything else is saved.
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
        let said: Vec<_> = tree.findings.iter().map(|finding| finding.what.as_str()).collect();
        let refused = said.iter().any(|said| said.contains("not saved"));
        assert_eq!(
            (tree.kept, refused),
            if tree.name == "known" { (1, false) } else { (0, true) },
            "{said:?}"
        );
    }
    assert_eq!(to.open().tree::<u64, u64>("known").unwrap().get(1), Some(2));
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

/// A pool without fault is saved whole, whatever its trees are.
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
            let contents: Vec<_> = tree.iter().collect();
            drop(tree);
            pool.close().unwrap();
            let salvage = Pool::options().salvage(&from.0, &to.0).unwrap();
            assert!(salvage.is_whole(), "{salvage:?}");
            let pool = to.options().create(false).open(&to.0).unwrap();
            let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
            assert_eq!(tree.check(), []);
            assert!(tree.iter().eq(contents));
        }
    }
    suites::SALVAGE.drawn().into_iter().for_each(|cell| cell.codec.visit(Run(cell)));
}
