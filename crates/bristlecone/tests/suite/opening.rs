//! Opening and creating: concurrently, in pools without space, and after damage to the pool's own
//! data of a tree; reads that verify checksums of records.

use std::os::unix::fs::FileExt;
use std::sync::Barrier;

use bristlecone::{Design, Error, Key, Pool, Tree, Value};

use crate::common::{CONFIGURATIONS, Configuration, Scratch, defaults};

/// Threads that open or create one pool: each gets it, or the error that it is in use.
#[test]
fn racing_openers_of_a_new_pool_get_it_or_find_it_in_use() {
    const THREADS: usize = 4;
    for round in 0..50 {
        let scratch = Scratch::new();
        let (start, end) = (Barrier::new(THREADS), Barrier::new(THREADS));
        let open = || {
            start.wait();
            let opened = scratch.try_open();
            // The winner keeps it until all others have tried.
            end.wait();
            opened.map(drop)
        };
        let opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let got = opened.iter().filter(|opened| opened.is_ok()).count();
        let in_use = opened.iter().filter(|opened| matches!(opened, Err(Error::InUse { .. }))).count();
        assert_eq!((got, in_use), (1, THREADS - 1), "round {round}: {opened:?}");
        scratch.open().close().unwrap();
    }
}

#[test]
fn racing_openers_of_a_new_tree_all_get_it() {
    const THREADS: u64 = 4;
    let scratch = Scratch::new();
    let pool = scratch.open();
    for round in 0..100 {
        let (name, start) = (format!("t{round}"), Barrier::new(THREADS as usize));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (pool, name, start) = (&pool, &name, &start);
                scope.spawn(move || {
                    start.wait();
                    let tree: Tree<u64, u64> = pool.tree(name).unwrap();
                    tree.insert(thread, round).unwrap();
                });
            }
        });
        let tree: Tree<u64, u64> = pool.tree(&name).unwrap();
        assert_eq!(tree.len().unwrap(), THREADS);
        drop(tree);
        pool.drop_tree(&name).unwrap();
    }
}

/// Creating a tree in a full pool fails and changes nothing.
#[test]
fn a_tree_that_finds_no_room_is_not_there() {
    for shape in CONFIGURATIONS {
        let scratch = Scratch::new();
        let options = Pool::options().max_bytes(8 << 20).create(true);
        let pool = options.open(&scratch.0).unwrap();
        let mut made = Vec::new();
        let error = loop {
            let name = format!("t{}", made.len());
            match shape.tree(&pool, &name).create::<u64, u64>() {
                Ok(tree) => drop(tree),
                Err(error) => break error,
            }
            made.push(name);
        };
        assert!(matches!(error, Error::PoolFull { .. }), "{shape:?}: {error}");
        assert!(!made.is_empty() && made.len() <= 4, "{shape:?}: {made:?}");
        let sound = |pool: &Pool| {
            assert_eq!(pool.check(), [], "{shape:?}");
            let mut names: Vec<_> = pool.trees().unwrap().into_iter().map(|tree| tree.spec.name).collect();
            names.sort();
            assert_eq!(names, made, "{shape:?}");
            made.iter().for_each(|name| assert_eq!(pool.check_tree(name).unwrap(), (0, vec![]), "{shape:?}"));
        };
        sound(&pool);
        pool.simulate_crash();
        sound(&Pool::options().read_only(true).open(&scratch.0).unwrap());
        let pool = options.open(&scratch.0).unwrap();
        sound(&pool);
        pool.drop_tree(&made[0]).unwrap();
        drop(shape.tree(&pool, "again").create::<u64, u64>().unwrap());
        assert_eq!(pool.check_tree("again").unwrap(), (0, vec![]), "{shape:?}");
    }
}

/// A tree's items, for keys and values of either form.
trait Item: Key + Value {
    fn item<R>(number: u64, use_it: impl FnOnce(<Self as Key>::Ref<'_>, <Self as Value>::Ref<'_>) -> R) -> R;
}

impl Item for u64 {
    fn item<R>(number: u64, use_it: impl FnOnce(u64, u64) -> R) -> R {
        use_it(number, number)
    }
}

impl Item for &'static [u8] {
    fn item<R>(number: u64, use_it: impl FnOnce(&[u8], &[u8]) -> R) -> R {
        let text = format!("record {number:06}");
        use_it(text.as_bytes(), text.as_bytes())
    }
}

const ITEMS: u64 = 300;
const BROKEN: u64 = 123;

fn fill<K: Item, V: Item>(shape: Configuration, pool: &Pool) {
    let tree: Tree<K, V> = shape.tree(pool, "t").create().unwrap();
    for number in 0..ITEMS {
        K::item(number, |key, _| V::item(number, |_, value| tree.insert(key, value).map(drop))).unwrap();
    }
}

/// Flips a bit of the stored bytes of a record, in the first such place, or in the last.
fn break_record(scratch: &Scratch, number: u64, last: bool) {
    let bytes = std::fs::read(&scratch.0).unwrap();
    let text = format!("record {number:06}");
    // Records begin with a word and are aligned to words.
    let mut places = (0..bytes.len()).step_by(8).filter(|&at| bytes[at..].starts_with(text.as_bytes()));
    let at = if last { places.next_back() } else { places.next() }.expect("the record is there");
    let file = std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap();
    file.write_all_at(b"R", at as u64).unwrap();
}

fn a_broken_record_is_an_error<K: Item, V: Item>(shape: Configuration)
where
    <K as Key>::Owned: std::fmt::Debug,
    <V as Value>::Owned: std::fmt::Debug,
{
    let mut told = 0;
    for last in [false, true] {
        let scratch = Scratch::new();
        let pool = scratch.open();
        fill::<K, V>(shape, &pool);
        let tree: Tree<K, V> = pool.tree("t").unwrap();
        let get =
            |tree: &Tree<K, V>, number| K::item(number, |key, _| tree.get(key).map(|found| found.is_some()));
        assert!((0..ITEMS).all(|number| get(&tree, number).unwrap()), "{shape:?}");
        assert!(!get(&tree, ITEMS).unwrap(), "{shape:?}");
        assert_eq!(tree.range(..).map(Result::unwrap).count() as u64, ITEMS, "{shape:?}");
        assert_eq!(tree.range(..).rev().map(Result::unwrap).count() as u64, ITEMS, "{shape:?}");
        // While the tree is open nothing is recovered from the damaged record.
        break_record(&scratch, BROKEN, last);
        // One of the records may be that of a fence, with which a lookup still finds the key.
        match get(&tree, BROKEN) {
            Err(Error::Corrupted { .. }) => told += 1,
            found => assert!(
                shape.design == Design::LodgeTree && found.unwrap(),
                "{shape:?}, last {last}: damage is served as absence"
            ),
        }
        let found: Vec<_> = tree.range(..).collect();
        assert!(found.len() as u64 <= BROKEN + 1, "{shape:?}: {} items", found.len());
        assert!(matches!(found.last(), Some(Err(Error::Corrupted { .. }))), "{shape:?}");
        assert!(found.iter().rev().skip(1).all(Result::is_ok), "{shape:?}");
        let behind = tree.range(..).rev().take_while(Result::is_ok).count() as u64;
        assert!(behind < ITEMS - BROKEN, "{shape:?}: {behind} items from the end");
        // An item in another leaf is readable.
        assert!(get(&tree, 0).unwrap() && get(&tree, ITEMS - 1).unwrap(), "{shape:?}");
        // A range that does not include its leaf is complete.
        let few = K::item(ITEMS - 1, |from, _| tree.range(from..).map(Result::unwrap).count());
        assert_eq!(few, 1, "{shape:?}");
        assert!(!tree.check().is_empty(), "{shape:?}");
    }
    assert!(told > 0, "{shape:?}: a lookup meets no broken record");
}

#[test]
fn a_checked_read_of_a_broken_value_is_an_error() {
    CONFIGURATIONS.iter().for_each(|&shape| a_broken_record_is_an_error::<u64, &'static [u8]>(shape));
}

#[test]
fn a_checked_read_of_a_broken_key_is_an_error() {
    CONFIGURATIONS.iter().for_each(|&shape| a_broken_record_is_an_error::<&'static [u8], u64>(shape));
}

#[test]
fn a_checked_read_of_a_broken_key_or_value_is_an_error() {
    defaults().for_each(a_broken_record_is_an_error::<&'static [u8], &'static [u8]>);
}

/// Offset of the directory and descriptors in a pool of this size.
const ENTRY: u64 = 8192;
const DESCRIPTORS: u64 = 73_728;

/// Each word of a tree's entry and of its chunks' descriptors, damaged in many ways: opening or
/// checking reports it, or all items are readable.
fn a_damaged_word_is_an_error_or_harmless<K: Item, V: Item>(design: Design) -> u64
where
    <K as Key>::Owned: std::fmt::Debug,
    <V as Value>::Owned: std::fmt::Debug,
{
    let shape = defaults().find(|shape| shape.design == design).unwrap();
    let scratch = Scratch::new();
    let pool = scratch.open();
    fill::<K, V>(shape, &pool);
    pool.close().unwrap();
    let whole = std::fs::read(&scratch.0).unwrap();
    let at = |offset: u64| u64::from_le_bytes(whole[offset as usize..][..8].try_into().unwrap());
    // The root and the descriptor's own state have no checksum: see docs/format.md.
    let entry = (0..31).map(|word| ENTRY + word * 8);
    let chunks = (whole.len() as u64 >> 21) - 1;
    let file = std::fs::OpenOptions::new().write(true).open(&scratch.0).unwrap();
    let mut damaged = 0;
    for offset in entry.chain((0..chunks).map(|id| DESCRIPTORS + id * 8)) {
        let (word, next) = (at(offset), at(offset + 8));
        let bits = (0..64).map(|bit| word ^ 1 << bit);
        let wrong = [0, 1, 2, 3, u64::MAX, next, word << 8, word.wrapping_add(1 << 40), word ^ 0xff00];
        for wrong in wrong.into_iter().chain(bits).filter(|wrong| *wrong != word) {
            let kind = |word: u64| (word & 0xff == 2).then_some(word >> 8 & 0xff);
            let log_as_records = kind(word) == Some(9) && matches!(kind(wrong), Some(2 | 3));
            let without_checksum = wrong == 1 || log_as_records;
            if offset >= DESCRIPTORS && without_checksum || offset == ENTRY && wrong == 2 {
                continue;
            }
            damaged += 1;
            file.write_all_at(&wrong.to_le_bytes(), offset).unwrap();
            let case = format!("{design} at {offset:#x}: {word:#x} became {wrong:#x}");
            let Ok(pool) = Pool::options().read_only(true).open(&scratch.0) else { continue };
            if !pool.check().is_empty()
                || !matches!(pool.check_tree("t"), Ok((_, issues)) if issues.is_empty())
            {
                continue;
            }
            let tree = pool.tree_options("t").open::<K, V>();
            let Ok(tree) = tree else { continue };
            assert_eq!(tree.range(..).filter(Result::is_ok).count() as u64, ITEMS, "{case}");
            assert_eq!(tree.len().unwrap(), ITEMS, "{case}");
        }
        file.write_all_at(&at(offset).to_le_bytes(), offset).unwrap();
    }
    damaged
}

#[test]
fn a_damaged_word_of_what_a_pool_keeps_of_a_tree_is_told() {
    for &design in Design::ALL {
        let mut damaged = a_damaged_word_is_an_error_or_harmless::<u64, u64>(design);
        damaged += a_damaged_word_is_an_error_or_harmless::<&'static [u8], &'static [u8]>(design);
        assert!(damaged > 4000, "{design}: {damaged}");
    }
}

#[test]
fn a_missing_folder_is_told_apart_from_a_missing_pool() {
    let scratch = Scratch::new();
    let path = scratch.0.join("pool");
    for opened in [Pool::open(&path), Pool::create(&path), Pool::options().read_only(true).open(&path)] {
        let error = opened.unwrap_err();
        assert!(error.to_string().contains("opening the folder"), "{error}");
    }
    assert!(matches!(Pool::open(&scratch.0), Err(Error::NotFound { .. })));
}
