//! Damaged pools: opening and reading return an error or data, in bounded time, and never panic.

use crate::common::{Cell, CopiedJournal, Items, Noise, Plant, Scratch, Visit, small, suites};
use bristlecone::{Design, Error, Pool, Result, Tree};
use bristlecone_pm::Geometry;

/// A pool with two trees; returns its bytes up to the end of its last chunk.
fn healthy(scratch: &Scratch) -> Vec<u8> {
    let pool = scratch.without_index().max_bytes(64 << 20).open(&scratch.0).unwrap();
    let options = |name| pool.tree_options(name).design(Design::SsTree);
    let words = options("words").create::<u64, u64>().unwrap();
    let texts = options("texts").create::<&str, &[u8]>().unwrap();
    for i in 0..3000_u64 {
        words.insert(i.wrapping_mul(0x9e37_79b9_7f4a_7c15), i).unwrap();
        texts.insert(&format!("key {i}"), &vec![7; i as usize % 50]).unwrap();
    }
    drop((words, texts, pool));
    std::fs::read(&scratch.0).unwrap()
}

/// Opens everything, reads everything, checks everything.
fn visit(scratch: &Scratch) -> Result<()> {
    let pool = Pool::options().recovery_threads(2).open(&scratch.0)?;
    pool.check();
    let words = pool.tree_options("words").open::<u64, u64>()?;
    let texts = pool.tree_options("texts").open::<&str, &[u8]>()?;
    let seen = words.iter().count() + texts.iter().count() + texts.iter().rev().count();
    let readable = words.readable(..).count() + texts.readable(..).count() + texts.readable(..).rev().count();
    assert!(seen.max(readable) < 50_000, "{seen}, {readable} items of 9000");
    for i in 0..50_u64 {
        let _ = (words.get(i), texts.get(&format!("key {i}")));
    }
    if texts.check().is_empty() && words.check().is_empty() {
        texts.insert("new", b"written later")?;
        assert_eq!(texts.get("new").unwrap(), Some(b"written later".to_vec()));
    }
    Ok(())
}

/// Visits a damaged pool; only an error of a known kind may result.
fn survives(scratch: &Scratch, bytes: &[u8], what: &str) {
    std::fs::write(&scratch.0, bytes).unwrap();
    is_known(visit(scratch), what);
}

/// Fails unless the result is `Ok`, or an error that describes the damage.
fn is_known(visited: Result<()>, what: &str) {
    match visited {
        Ok(())
        | Err(
            Error::Corrupted { .. }
            | Error::Newer { .. }
            | Error::NotAPool { .. }
            | Error::NoSuchTree { .. }
            | Error::Mismatch { .. },
        ) => {}
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Returns the used places of a pool of this size: the header, and the used slots of each chunk.
fn occupied(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len()).step_by(8).filter(|&at| bytes[at..at + 8] != [0; 8]).collect()
}

#[test]
fn every_kind_of_damage_is_survived() {
    let scratch = Scratch::new();
    let whole = healthy(&scratch);
    let places = occupied(&whole);
    let mut noise = Noise(17);
    for round in 0..400 {
        survives(&scratch, &damaged(&whole, &places, round, &mut noise), &format!("round {round}"));
    }
}

/// A pool with damage of the round's kind, in some of the places.
fn damaged(whole: &[u8], places: &[usize], round: u64, noise: &mut Noise) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..=noise.below(3) {
        let at = places[noise.below(places.len() as u64) as usize];
        match round % 6 {
            0 => bytes[at] ^= 1 << noise.below(8),
            1 => bytes[at..at + 8].fill(0),
            2 => bytes[at..at + 8].copy_from_slice(&noise.next().to_le_bytes()),
            3 => bytes[at..at + 8].fill(0xff),
            4 => {
                let other = places[noise.below(places.len() as u64) as usize];
                let (line, target) = (at / 64 * 64, other / 64 * 64);
                bytes.copy_within(line..line + 64, target);
            }
            _ => {
                let page = at / 4096 * 4096;
                bytes[page..page + 4096].fill_with(|| noise.next() as u8);
            }
        }
    }
    bytes
}

/// Damaged trees of every cell: opening, reading and checking must end, and report their issues.
#[test]
fn every_cell_may_be_damaged() {
    const KEYS: u64 = 600;
    struct Run(Cell, u64);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let Self(cell, seed) = self;
            println!("{cell}");
            let scratch = Scratch::new();
            let pool = cell.pool(&scratch);
            let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
            for at in 0..KEYS {
                tree.upsert(I::key_ref(&I::key(at)), I::value_ref(&I::value(at % 6))).unwrap();
            }
            drop((tree, pool));
            let (whole, journal) = (std::fs::read(&scratch.0).unwrap(), CopiedJournal::of(&scratch.0));
            let (places, mut noise) = (occupied(&whole), Noise(seed));
            for round in 0..6 {
                journal.put_back(&scratch.0);
                std::fs::write(&scratch.0, damaged(&whole, &places, round, &mut noise)).unwrap();
                let visited = scratch.in_cell(&cell).create(false).open(&scratch.0).and_then(|pool| {
                    pool.check();
                    let tree: Tree<I::K, I::V> = cell.open(&pool, "t")?;
                    let seen = tree.iter().count() + tree.iter().rev().count();
                    let readable = tree.readable(..).count() + tree.readable(..).rev().count();
                    assert!(seen.max(readable) as u64 <= 40 * KEYS, "{seen}, {readable} items of {KEYS}");
                    (0..50).for_each(|at| drop(tree.get(I::key_ref(&I::key(at)))));
                    tree.check();
                    Ok(())
                });
                is_known(visited, &format!("{cell}, round {round}"));
            }
        }
    }
    for (seed, cell) in suites::CORRUPTION.sampled().into_iter().enumerate() {
        cell.codec.visit(Run(cell, 19 + seed as u64));
    }
}

#[test]
fn every_word_of_a_leaf_may_be_anything() {
    let scratch = Scratch::new();
    let whole = healthy(&scratch);
    let first = (2 << 20..whole.len()).step_by(256).find(|&at| whole[at..at + 8] == [0xff; 8]).unwrap();
    for word in (first..first + 64).step_by(8) {
        for value in [0, 1, 8, u64::MAX, u64::MAX - 1, first as u64, first as u64 + 8, 1 << 47, 2 << 20] {
            let mut bytes = whole.clone();
            bytes[word..word + 8].copy_from_slice(&value.to_le_bytes());
            survives(&scratch, &bytes, &format!("word {word:#x} = {value:#x}"));
        }
    }
}

#[test]
fn truncation_anywhere_is_an_error() {
    let scratch = Scratch::new();
    let whole = healthy(&scratch);
    for len in (0..whole.len()).step_by(300_007) {
        std::fs::write(&scratch.0, &whole[..len]).unwrap();
        let error = visit(&scratch).unwrap_err();
        assert!(matches!(error, Error::Corrupted { .. } | Error::NotAPool { .. }), "{len}: {error}");
    }
}

/// A key whose record is damaged so that it equals another one of its leaf must be reported: it
/// must not be mistaken for the result of two inserts of one key.
#[test]
fn a_key_that_reads_like_another_one_is_told() {
    const KEYS: u64 = 24;
    let key = |at: u64| format!("key {at:02}");
    for shape in small() {
        let scratch = Scratch::new();
        scratch.format(Geometry { chunk_bytes: 4096, chunks_max: 64, trees_max: 2 });
        let pool = Pool::options().open(&scratch.0).unwrap();
        let tree: Tree<&str, u64> = shape.create(&pool, "t").unwrap();
        (0..KEYS).for_each(|at| assert_eq!(tree.insert(&key(at), at).unwrap(), None));
        drop((tree, pool));
        let whole = std::fs::read(&scratch.0).unwrap();
        // A record: its length, a checksum, its bytes.
        let is_record = |place: usize, key: &str| {
            whole[place..place + 4] == (key.len() as u32).to_le_bytes()
                && whole[place + 8..].starts_with(key.as_bytes())
        };
        let mut told = 0;
        for (at, other) in (0..KEYS).flat_map(|at| (0..KEYS).map(move |other| (at, other))) {
            let (own, new) = (key(at), key(other));
            let places =
                (0..whole.len() - 16).step_by(8).filter(|&place| at != other && is_record(place, &own));
            for place in places {
                let mut bytes = whole.clone();
                bytes[place + 8..place + 8 + own.len()].copy_from_slice(new.as_bytes());
                std::fs::write(&scratch.0, bytes).unwrap();
                let opened = Pool::options().read_only(true).recovery_threads(1).open(&scratch.0);
                let looked = opened.and_then(|pool| {
                    let tree: Tree<&str, u64> = shape.open(&pool, "t")?;
                    let right =
                        tree.readable(..).filter_map(Result::ok).eq((0..KEYS).map(|at| (key(at), at)));
                    Ok((tree.check(), right))
                });
                match looked {
                    Err(Error::Corrupted { .. }) => told += 1,
                    Err(error) => panic!("{shape:?}: {error}"),
                    Ok((issues, right)) => {
                        assert!(right || !issues.is_empty(), "{shape:?}: {own} as {new}");
                        told += usize::from(!issues.is_empty());
                    }
                }
            }
        }
        assert!(told as u64 >= KEYS * (KEYS - 1), "{shape:?}: {told} times");
    }
}
