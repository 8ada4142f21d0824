//! One flipped bit in a log: the tree opens for reading, shows all items but one, never answers a checked read with
//! anything else than what was written, and takes writes again once it is repaired.

use std::collections::BTreeMap;

use crate::common::{Noise, Plant, Scratch, Shape, small};
use bristlecone::{Design, Error, Pool, Tree};

const CHUNK: usize = 2 << 20;
const DESCRIPTORS: usize = 73_728;
const KEYS: u64 = 600;
/// The kind of slots of the log of CCL-BTree and LodgeTree.
const LOG: u64 = 9;
/// Of this many words one is damaged.
const PLACES_EACH: usize = 16;

type Texts = Tree<&'static str, &'static [u8]>;
type Truth = BTreeMap<String, Vec<u8>>;

fn text(n: u64) -> String {
    format!("key {:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn fill(shape: Shape) -> (Vec<u8>, Truth) {
    let scratch = Scratch::new();
    let pool = scratch.without_index().max_bytes(64 << 20).open(&scratch.0).unwrap();
    let tree: Texts = shape.create(&pool, "t").unwrap();
    let (mut truth, mut noise) = (Truth::new(), Noise(5));
    for n in 0..3 * KEYS {
        let key = text(noise.below(KEYS));
        if n % 7 == 6 {
            tree.remove(&key).unwrap();
            truth.remove(&key);
        } else {
            let value = n.to_le_bytes().repeat(3);
            tree.upsert(&key, &value).unwrap();
            truth.insert(key, value);
        }
    }
    drop(tree);
    pool.close().unwrap();
    (std::fs::read(&scratch.0).unwrap(), truth)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Words of the tree's chunks of a kind that are in use, some of them.
fn words(bytes: &[u8], kind: u64) -> Vec<usize> {
    let descriptor = |chunk: usize| word(bytes, DESCRIPTORS + 8 * chunk);
    let chunks = (0..bytes.len() / CHUNK - 1).filter(|chunk| descriptor(*chunk) & 0xffff == kind << 8 | 2);
    let used = |at: &usize| ![0, u64::MAX].contains(&word(bytes, *at));
    chunks
        .flat_map(|chunk| {
            let start = (chunk + 1) * CHUNK;
            let first = (start..start + CHUNK).step_by(8).filter(used).take(40);
            first.chain((start + 320..start + CHUNK).step_by(8 * 37).filter(used).take(60))
        })
        .collect()
}

/// What reads of a damaged pool say.
struct Said {
    /// Items that lookups and a scan show as they were written.
    right: usize,
    scanned: usize,
    /// Whether the tree was opened from what salvage reads of it.
    is_damaged: bool,
    /// Whether a check finds anything.
    is_found: bool,
}

/// Reads everything; with `exact`, no checked read may answer with anything that was not written last.
fn read(scratch: &Scratch, shape: Shape, truth: &Truth, exact: bool, what: &str) -> Said {
    let pool = Pool::options().read_only(true).open(&scratch.0).unwrap();
    assert!(pool.info().read_only && pool.trees().unwrap().len() == 1);
    let tree: Texts = shape.open(&pool, "t").unwrap_or_else(|error| panic!("{what}: {error}"));
    let is_damaged = !tree.damage().is_empty();
    let mut right = 0;
    for n in 0..KEYS + 50 {
        let key = text(n);
        let wanted = truth.get(&key).cloned();
        right += usize::from(wanted.is_some() && tree.get(&key) == wanted);
        match tree.try_get(&key) {
            Ok(found) => assert!(!exact || found == wanted, "{what}: {key} is {found:?}, not {wanted:?}"),
            Err(Error::Corrupted { .. }) => {}
            Err(error) => panic!("{what}: {error}"),
        }
    }
    let same = |(key, value): &(String, Vec<u8>)| truth.get(key) == Some(value);
    let scanned = tree.iter().filter(same).count();
    for down in [false, true] {
        let mut range = tree.try_range(..);
        let mut next = || if down { range.next_back() } else { range.next() };
        let mut wanted: Vec<_> = truth.iter().collect();
        if !down {
            wanted.reverse();
        }
        loop {
            match (next(), wanted.pop()) {
                (None, None) => break,
                (Some(Err(Error::Corrupted { .. })), _) => break,
                (Some(Ok((key, value))), Some(item)) if (&key, &value) == item => {}
                (found, wanted) => {
                    assert!(!exact, "{what}: {found:?}, not {wanted:?}");
                    break;
                }
            }
        }
    }
    let is_found = !tree.check().is_empty() || !pool.check().is_empty();
    assert!(is_found || !is_damaged, "{what}: a check finds nothing");
    assert!(matches!(tree.upsert("new", b"x"), Err(Error::ReadOnly)), "{what}");
    Said { right, scanned, is_damaged, is_found }
}

/// Flips bits of words of a kind. Each time at most `lost` items are not shown.
fn flip(shape: Shape, kind: u64, exact: bool, lost: usize) {
    let (mut bytes, truth) = fill(shape);
    let (scratch, mut noise) = (Scratch::new(), Noise(kind));
    let places: Vec<usize> = words(&bytes, kind).into_iter().step_by(PLACES_EACH).collect();
    let (mut damaged, mut found) = (0, 0);
    for at in &places {
        let byte = at + noise.below(8) as usize;
        let bit = 1 << noise.below(8);
        let what = format!("{shape:?}: bit {bit:#x} of byte {byte:#x}, kind {kind}");
        bytes[byte] ^= bit;
        std::fs::write(&scratch.0, &bytes).unwrap();
        let said = read(&scratch, shape, &truth, exact, &what);
        let least = truth.len() - lost.min(truth.len());
        assert!(said.right >= least && said.scanned >= least, "{what}: {} {}", said.right, said.scanned);
        found += usize::from(said.is_found);
        if said.is_damaged {
            damaged += 1;
            if damaged % 8 == 1 {
                repair(&scratch, shape, &truth, lost, &what);
            }
        }
        bytes[byte] ^= bit;
    }
    println!(
        "{shape:?}, kind {kind}: {} flips, {found} found, {damaged} read from what was saved",
        places.len()
    );
    assert!(kind != LOG || damaged > 0, "{shape:?}: no flip of the log was noticed");
}

/// Writes are refused with an error until the tree is repaired, and then work.
fn repair(scratch: &Scratch, shape: Shape, truth: &Truth, lost: usize, what: &str) {
    let pool = scratch.without_index().open(&scratch.0).unwrap();
    let refused: Result<Texts, _> = shape.open(&pool, "t");
    assert!(matches!(refused, Err(Error::Corrupted { .. })), "{what}: it opens for writing");
    pool.simulate_crash();
    let saved = Scratch::new();
    let salvage = Pool::options().salvage(&scratch.0, &saved.0).unwrap();
    let pool = saved.open();
    let tree: Texts = shape.open(&pool, "t").unwrap();
    assert!(tree.len() + lost as u64 >= truth.len() as u64, "{what}: {salvage:?}");
    tree.upsert("new", b"x").unwrap();
    assert_eq!((tree.try_get("new").unwrap().as_deref(), tree.check()), (Some(&b"x"[..]), vec![]));
}

#[test]
fn a_flipped_bit_of_a_log_leaves_the_tree_readable() {
    for shape in small().filter(|shape| [Design::CclBTree, Design::LodgeTree].contains(&shape.design)) {
        flip(shape, LOG, true, 1);
    }
}
