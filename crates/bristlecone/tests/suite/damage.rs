//! Damaged words: each kind of word of a design's nodes takes every value that could mislead, one at a
//! time. Opening and checking answer with an error or a finding, or everything is right; only where
//! FORMAT.md has no checksum may items be wrong, and then no more of them than the word is of. Nothing
//! panics or hangs, what was opened can be worked with, and salvage does not call a loss whole.
//!
//! A design lists its kinds of words in one function; everything else is the same for all. Every shape and kind of
//! word is swept, with one in [`SHARE`] of its values: which one depends on `BRISTLECONE_SEED`, or on the day.
//! `BRISTLECONE_CELLS=all` tries every value.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::common::{Plant, SHAPES, Scratch, Shape};
use bristlecone::{Design, Domain, Error, Key, Pool, Result, Tree, Value};
use bristlecone_cells::seed;

/// Items that are written at first, of which every fifth is removed.
const ITEMS: u64 = 300;
/// More than any tree holds here.
const MANY: usize = 10_000;
/// How long one look at a pool may take.
const PATIENCE: Duration = Duration::from_secs(20);
const CHUNK_BYTES: usize = 2 << 20;
/// Of so many values for a word one is tried.
const SHARE: u64 = 6;
const DESCRIPTORS: usize = 73_728;
const MAX_BYTES: u64 = 64 << 20;

/// A kind of word, and one of its places.
#[derive(Clone, Debug)]
struct Place {
    kind: &'static str,
    /// Offset in the file.
    at: usize,
    /// Items that may be missing, wrong or back again without a word said.
    harm: usize,
}

/// What keys and values are.
trait Items {
    type K: Key;
    type V: Value;

    fn insert(tree: &Tree<Self::K, Self::V>, number: u64) -> Result<()>;
    fn remove(tree: &Tree<Self::K, Self::V>, key: &[u8]) -> Result<bool>;
    fn get(tree: &Tree<Self::K, Self::V>, key: &[u8]) -> Option<Vec<u8>>;
    /// Keys in their order.
    fn item(item: (<Self::K as Key>::Owned, <Self::V as Value>::Owned)) -> (Vec<u8>, Vec<u8>);
}

struct Words;

fn number_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().unwrap())
}

impl Items for Words {
    type K = u64;
    type V = u64;

    fn insert(tree: &Tree<u64, u64>, number: u64) -> Result<()> {
        // NBTree keeps some values of a word in records.
        let value = if number.is_multiple_of(7) { 0xa5c3_96e1_0000_0000 + number } else { number };
        tree.insert(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), value).map(drop)
    }

    fn remove(tree: &Tree<u64, u64>, key: &[u8]) -> Result<bool> {
        Ok(tree.remove(number_of(key))?.is_some())
    }

    fn get(tree: &Tree<u64, u64>, key: &[u8]) -> Option<Vec<u8>> {
        tree.get(number_of(key)).map(|value| value.to_be_bytes().to_vec())
    }

    fn item((key, value): (u64, u64)) -> (Vec<u8>, Vec<u8>) {
        (key.to_be_bytes().to_vec(), value.to_be_bytes().to_vec())
    }
}

struct Texts;

impl Items for Texts {
    type K = &'static [u8];
    type V = &'static [u8];

    fn insert(tree: &Tree<Self::K, Self::V>, number: u64) -> Result<()> {
        let key = format!("key {:05}", number * 7919 % 10_007);
        tree.insert(key.as_bytes(), &vec![number as u8; number as usize % 40]).map(drop)
    }

    fn remove(tree: &Tree<Self::K, Self::V>, key: &[u8]) -> Result<bool> {
        Ok(tree.remove(key)?.is_some())
    }

    fn get(tree: &Tree<Self::K, Self::V>, key: &[u8]) -> Option<Vec<u8>> {
        tree.get(key)
    }

    fn item(item: (Vec<u8>, Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
        item
    }
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn set_word(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// The slots of one kind, as FORMAT.md numbers them: where each begins, and their size.
fn slots(bytes: &[u8], kind: u64) -> (Vec<usize>, usize) {
    let (mut found, mut size) = (Vec::new(), 0);
    for chunk in 0..bytes.len() / CHUNK_BYTES - 1 {
        let descriptor = word(bytes, DESCRIPTORS + 8 * chunk);
        if descriptor & 0xff == 2 && descriptor >> 8 & 0xff == kind {
            size = (descriptor >> 40) as usize * 8;
            let first = (chunk + 1) * CHUNK_BYTES;
            found.extend((0..CHUNK_BYTES / size).map(|slot| first + slot * size));
        }
    }
    (found, size)
}

fn option(shape: &Shape, name: &str, default: u64) -> u64 {
    shape.options.iter().find(|(found, _)| *found == name).map_or(default, |(_, value)| *value)
}

/// The words of subnodes.
fn sstree_words(shape: &Shape, bytes: &mut [u8]) -> Vec<Place> {
    const SUBNODES: u64 = 1;
    const BITS: u64 = (1 << 56) - 1;
    let (subnodes, size) = slots(bytes, SUBNODES);
    let per_subnode = (size - 32) / 16;
    let leaf_items = per_subnode * option(shape, "max_subnodes", 3) as usize;
    let staged_here = option(shape, "delegate_fingerprints", 0) == 0;
    let named: BTreeSet<u64> = subnodes.iter().map(|&at| word(bytes, at)).collect();
    let mut places = Vec::new();
    let mut place = |kind, at, harm| places.push(Place { kind, at, harm });
    for &head in &subnodes {
        let next = word(bytes, head);
        if next == 0 {
            place("next of a free subnode", head, leaf_items);
            continue;
        }
        if named.contains(&(head as u64)) {
            place(if next == u64::MAX { "next of a tail" } else { "next within" }, head, leaf_items);
            place("bitmap of an overflow subnode", head + 8, 0);
            continue;
        }
        place(if next == u64::MAX { "next of a single head" } else { "next of a head" }, head, leaf_items);
        let bitmap = word(bytes, head + 8);
        place(if bitmap > BITS { "bitmap that stages" } else { "bitmap" }, head + 8, leaf_items);
        if bitmap > BITS && staged_here {
            // Another key there looks as if the slot had lost it.
            place("staged key", head + 16, 1);
            place("staged value", head + 24, 0);
        }
        for slot in 0..per_subnode {
            let (key, taken) = (head + 32 + 16 * slot, bitmap >> slot & 1 != 0);
            place(if taken { "key" } else { "key of an empty slot" }, key, usize::from(taken));
            place(if taken { "value" } else { "value of an empty slot" }, key + 8, usize::from(taken));
        }
    }
    places
}

/// The words of blocks, one of which is being replaced.
fn nbtree_words(shape: &Shape, bytes: &mut [u8]) -> Vec<Place> {
    const BLOCKS: u64 = 4;
    const SEALED: u64 = 1;
    let (blocks, size) = slots(bytes, BLOCKS);
    let head = if option(shape, "layers", 2) == 1 { 96 } else { 16 };
    let cells: Vec<usize> = (head..size).step_by(16).collect();
    let is_leaf = |bytes: &[u8], at: usize| word(bytes, at) & 3 == 1;
    let old = *blocks.iter().filter(|&&at| is_leaf(bytes, at)).nth(3).unwrap();
    let draft = *blocks.iter().find(|&&at| bytes[at..at + size].iter().all(|byte| *byte == 0)).unwrap();
    // As the first leaf of a tree that does not grow: it replaces no block.
    let first = *blocks.iter().filter(|&&at| is_leaf(bytes, at)).nth(1).unwrap();
    set_word(bytes, first, 1);
    let youngest = blocks.iter().map(|&at| word(bytes, at + 8)).max().unwrap();
    bytes.copy_within(old..old + size, draft);
    set_word(bytes, draft, old as u64 | 1);
    set_word(bytes, draft + 8, youngest + 1);
    for &cell in &cells {
        if word(bytes, old + cell + 8) != 0 {
            set_word(bytes, old + cell + 8, (draft + cell + 8) as u64 | SEALED);
        }
    }
    let mut places = Vec::new();
    let mut place = |kind, at, harm| places.push(Place { kind, at, harm });
    for &block in &blocks {
        let state = word(bytes, block);
        let (is_old, is_draft) = (block == old, block == draft);
        let kinds = match state & 3 {
            0 => ("state of a free block", "birth of a free block"),
            2 => ("state of a replaced block", "birth of a replaced block"),
            _ if is_old => ("state of a block being replaced", "birth of a block being replaced"),
            _ if is_draft => ("state of a draft", "birth of a draft"),
            _ if state == 1 => ("state of a first leaf", "birth of a first leaf"),
            _ => ("state of a leaf", "birth of a leaf"),
        };
        place(kinds.0, block, cells.len());
        place(kinds.1, block + 8, cells.len());
        if head > 16 && state & 3 == 1 {
            (16..head).step_by(8).for_each(|at| place("metadata", block + at, 0));
        }
        for &cell in cells.iter().filter(|_| state & 3 == 1) {
            let value = word(bytes, block + cell + 8);
            let kinds = match value {
                0 => ("key of an empty slot", "value of an empty slot", 0),
                _ if is_old => ("key of a sealed slot", "seal", 1),
                _ if is_draft => ("key in a draft", "value in a draft", 1),
                1..=0xffff_ffff_ffff => ("key of a record", "record of a value", 1),
                _ => ("key", "value", 1),
            };
            place(kinds.0, block + cell, kinds.2);
            // An empty slot that gets a value is an item.
            place(kinds.1, block + cell + 8, 1);
        }
    }
    places
}

/// Lists the words of a design's nodes, and may bring the pool into a state that a crash leaves.
type WordsOf = fn(&Shape, &mut [u8]) -> Vec<Place>;

/// What a word may be replaced by: by what it could be taken for, and by what it cannot be.
fn values(bytes: &[u8], place: &Place, others: &[&Place]) -> BTreeSet<u64> {
    let (own, at) = (word(bytes, place.at), place.at as u64);
    let mut values = BTreeSet::from([0, 1, 2, 3, 8, u64::MAX, u64::MAX - 1, own ^ 1, own ^ 2]);
    // Other bytes of the same structure, and of the one beside it.
    values.extend([own.wrapping_add(4), own.wrapping_add(8), own.wrapping_sub(8), own.wrapping_add(16)]);
    values.extend([at, at + 8, at & !63, at & !63 | 1, (at & !63) + 1024, (at & !63) + 1025, at | 1]);
    // Beside its place, and beyond the pool.
    values.extend([word(bytes, place.at + 8), word(bytes, place.at - 8), word(bytes, place.at + 16)]);
    values.extend([MAX_BYTES, MAX_BYTES | 1, bytes.len() as u64, 1 << 47, 1 << 47 | 1, 1 << 48, 1 << 63]);
    // Bytes and bits of their own: what is staged, and a sign of life.
    values.extend([own ^ 1 << 56, own ^ 5 << 56, own | 0xff << 56, own & !(0xff << 56), own ^ 0b101]);
    values.extend([(1 << 62) - 3, ((1 << 62) - 3) << 2 | 2, 1 << 48 | 2]);
    values.extend(others.iter().map(|other| word(bytes, other.at)));
    values.remove(&own);
    values
}

enum Looked {
    Refused(Error),
    /// What is there; whether something was found wrong.
    Opened(Contents, bool),
}

/// Opens a tree, checks it and reads it in every way.
fn look<T: Items>(pool: &Pool) -> std::result::Result<Looked, String> {
    let tree = match pool.tree_options("t").open::<T::K, T::V>() {
        Ok(tree) => tree,
        Err(error @ (Error::Corrupted { .. } | Error::Newer { .. })) => return Ok(Looked::Refused(error)),
        Err(error) => return Err(format!("opened with {error}")),
    };
    let wrong = !tree.check().is_empty() || !pool.check().is_empty();
    let items: Vec<_> = tree.iter().take(MANY).map(T::item).collect();
    let mut back: Vec<_> = tree.iter().rev().take(MANY).map(T::item).collect();
    back.reverse();
    let found: Vec<_> = items.iter().map(|(key, _)| T::get(&tree, key)).collect();
    if items.len() == MANY {
        return Err("items without end".to_owned());
    }
    if !wrong {
        let agree = items.iter().zip(found).all(|((_, value), found)| found.as_ref() == Some(value));
        let ordered = items.is_sorted_by(|a, b| a.0 < b.0);
        if !agree || !ordered || items != back || tree.len() != items.len() as u64 {
            return Err(format!("a check that lies: {agree} {ordered} {} items", items.len()));
        }
    }
    Ok(Looked::Opened(items.into_iter().collect(), wrong))
}

/// Items that are not in both.
fn differing(one: &Contents, other: &Contents) -> usize {
    let keys: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    keys.into_iter().filter(|key| one.get(*key) != other.get(*key)).count()
}

/// Works with a pool that was opened without a finding, and opens it again.
fn live<T: Items>(scratch: &Scratch, found: &Contents) -> std::result::Result<(), String> {
    let told = |error: Error| format!("life does not go on: {error}");
    let pool = Pool::options().recovery_threads(1).open(&scratch.0).map_err(told)?;
    let tree: Tree<T::K, T::V> = pool.tree_options("t").open().map_err(told)?;
    let mut model = found.clone();
    for key in found.keys().step_by(2) {
        if !T::remove(&tree, key).map_err(told)? {
            return Err("a key that was there cannot be removed".to_owned());
        }
        model.remove(key);
    }
    (2 * ITEMS..3 * ITEMS).try_for_each(|number| T::insert(&tree, number)).map_err(told)?;
    let findings = tree.check();
    if !findings.is_empty() {
        return Err(format!("life brings findings: {findings:?}"));
    }
    let after: Contents = tree.iter().map(T::item).collect();
    if !model.iter().all(|(key, value)| after.get(key) == Some(value)) {
        return Err("what was not touched changed".to_owned());
    }
    drop(tree);
    pool.close().map_err(told)?;
    let pool = Pool::options().recovery_threads(1).open(&scratch.0).map_err(told)?;
    match look::<T>(&pool)? {
        Looked::Opened(again, false) if again == after => Ok(()),
        Looked::Opened(..) => Err("opened again, it is another tree".to_owned()),
        Looked::Refused(error) => Err(format!("opened again: {error}")),
    }
}

/// Salvages a pool; what is lost is told, but for what no checksum tells.
fn salvage<T: Items>(scratch: &Scratch, whole: &Contents, harm: usize) -> std::result::Result<(), String> {
    let to = Scratch::new();
    let salvage = Pool::options().salvage(&scratch.0, &to.0).map_err(|error| format!("salvage: {error}"))?;
    let pool = Pool::options().recovery_threads(1).open(&to.0).map_err(|error| error.to_string())?;
    match look::<T>(&pool)? {
        Looked::Opened(saved, false) if salvage.is_whole() && differing(&saved, whole) > 2 * harm => {
            Err(format!("salvage lies: {} items differ, and nothing is said", differing(&saved, whole)))
        }
        Looked::Opened(_, false) => Ok(()),
        _ => Err("what was salvaged is damaged".to_owned()),
    }
}

/// Tries one value in one place. `first`: also what follows from it.
fn attempt<T: Items>(
    scratch: &Scratch,
    bytes: &[u8],
    whole: &Contents,
    place: &Place,
    value: u64,
    first: bool,
) -> std::result::Result<(), String> {
    let begun = Instant::now();
    let file = std::fs::File::options().write(true).open(&scratch.0).unwrap();
    file.write_all_at(&value.to_le_bytes(), place.at as u64).unwrap();
    let tried = catch_unwind(AssertUnwindSafe(|| {
        // Nothing of the file changes.
        let pool = Pool::options().read_only(true).recovery_threads(1).open(&scratch.0);
        let looked = look::<T>(&pool.map_err(|error| error.to_string())?)?;
        if first {
            salvage::<T>(scratch, whole, place.harm)?;
        }
        match looked {
            Looked::Opened(found, false) => {
                let differ = differing(&found, whole);
                // A wrong key is one item less and another one more.
                if differ > 2 * place.harm {
                    return Err(format!("{differ} items differ, and nothing is said"));
                }
                if first {
                    let copy = Scratch::new();
                    std::fs::copy(&scratch.0, &copy.0).unwrap();
                    live::<T>(&copy, &found)?;
                }
                Ok(())
            }
            Looked::Opened(_, true) | Looked::Refused(Error::Corrupted { .. }) => Ok(()),
            Looked::Refused(error) => Err(error.to_string()),
        }
    }));
    file.write_all_at(&bytes[place.at..place.at + 8], place.at as u64).unwrap();
    tried.unwrap_or_else(|_| Err("a panic".to_owned()))?;
    if begun.elapsed() > PATIENCE { Err(format!("it took {:?}", begun.elapsed())) } else { Ok(()) }
}

/// A pool with one tree, closed; and the bytes of its file.
fn healthy<T: Items>(scratch: &Scratch, shape: &Shape) -> Vec<u8> {
    let options = Pool::options().max_bytes(MAX_BYTES).domain(Domain::Adr).create(true).recovery_threads(1);
    let pool = options.open(&scratch.0).unwrap();
    let tree: Tree<T::K, T::V> = shape.create(&pool, "t").unwrap();
    (0..ITEMS).for_each(|number| T::insert(&tree, number).unwrap());
    let keys: Vec<_> = tree.iter().map(|item| T::item(item).0).collect();
    keys.iter().step_by(5).for_each(|key| assert!(T::remove(&tree, key).unwrap()));
    // The last change of many leaves is an insert.
    (ITEMS..ITEMS + ITEMS / 10).for_each(|number| T::insert(&tree, number).unwrap());
    drop(tree);
    pool.close().unwrap();
    std::fs::read(&scratch.0).unwrap()
}

/// Tries values in a place of each kind, another one each time; gives the kinds.
fn sweep<T: Items>(shape: &Shape, nth: usize, words_of: WordsOf) -> BTreeSet<&'static str> {
    let share = if std::env::var("BRISTLECONE_CELLS").is_ok_and(|asked| asked == "all") { 1 } else { SHARE };
    let scratch = Scratch::new();
    let mut bytes = healthy::<T>(&scratch, shape);
    let contents = |scratch: &Scratch| {
        let pool = Pool::options().read_only(true).open(&scratch.0).unwrap();
        match look::<T>(&pool).unwrap() {
            Looked::Opened(contents, false) => contents,
            _ => panic!("{shape:?}: the healthy pool is damaged"),
        }
    };
    let whole = contents(&scratch);
    let places = words_of(shape, &mut bytes);
    std::fs::write(&scratch.0, &bytes).unwrap();
    assert_eq!(contents(&scratch), whole, "{shape:?}: what a crash leaves");
    let mut kinds: BTreeMap<&str, Vec<&Place>> = BTreeMap::new();
    places.iter().for_each(|place| kinds.entry(place.kind).or_default().push(place));
    let mut failures = Vec::new();
    let (mut tried, mut met) = (0, 0);
    for of_kind in kinds.values() {
        let at = nth * 7 % of_kind.len();
        let place = of_kind[at];
        for value in values(&bytes, place, &[of_kind[(at + 1) % of_kind.len()], of_kind[at / 2]]) {
            met += 1;
            if !(seed() + nth as u64 + met).is_multiple_of(share) {
                continue;
            }
            tried += 1;
            if let Err(what) = attempt::<T>(&scratch, &bytes, &whole, place, value, tried % 3 == 0) {
                failures.push(format!("{} at {:#x} = {value:#x}: {what}", place.kind, place.at));
            }
        }
    }
    println!("{shape:?}: {tried} of {met} values for words of {} kinds", kinds.len());
    assert!(tried >= kinds.len(), "{shape:?}: {tried} values for {} kinds", kinds.len());
    assert!(failures.is_empty(), "{shape:?}, {tried} tried:\n{}", failures.join("\n"));
    kinds.into_keys().collect()
}

/// Sweeps all shapes of a design, both kinds of items; every kind of word must have been there.
fn sweep_design(design: Design, words_of: WordsOf, kinds: &[&str]) {
    let mut met = BTreeSet::new();
    for (nth, shape) in SHAPES.iter().filter(|shape| shape.design == design).enumerate() {
        met.extend(sweep::<Words>(shape, nth, words_of));
        met.extend(sweep::<Texts>(shape, nth + 1, words_of));
    }
    let wanted: BTreeSet<_> = kinds.iter().copied().collect();
    assert_eq!(met, wanted);
}

#[test]
fn sstree_any_word_may_be_anything() {
    let kinds = [
        "bitmap",
        "bitmap of an overflow subnode",
        "bitmap that stages",
        "key",
        "key of an empty slot",
        "next of a free subnode",
        "next of a head",
        "next of a single head",
        "next of a tail",
        "next within",
        "staged key",
        "staged value",
        "value",
        "value of an empty slot",
    ];
    sweep_design(Design::SsTree, sstree_words, &kinds);
}

#[test]
fn nbtree_any_word_may_be_anything() {
    let kinds = [
        "birth of a block being replaced",
        "birth of a draft",
        "birth of a first leaf",
        "birth of a free block",
        "birth of a leaf",
        "birth of a replaced block",
        "key",
        "key in a draft",
        "key of a record",
        "key of a sealed slot",
        "key of an empty slot",
        "metadata",
        "record of a value",
        "seal",
        "state of a block being replaced",
        "state of a draft",
        "state of a first leaf",
        "state of a free block",
        "state of a leaf",
        "state of a replaced block",
        "value",
        "value in a draft",
        "value of an empty slot",
    ];
    sweep_design(Design::NbTree, nbtree_words, &kinds);
}
