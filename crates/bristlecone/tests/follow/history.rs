//! Consistency of reads from a pool that others write to: each key has a value that it had between call and
//! return, and a range contains, in order, every key that is present throughout.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use bristlecone::{Pool, Tree};

use crate::common::{Cell, Items, Noise, Plant, Scratch, Visit, suites};

/// Number of keys of each writer; between them are keys that never change.
const KEYS: u64 = 300;
/// Number of rounds of a writer.
const ROUNDS: u64 = 12;

/// The known versions of a key: current and next. In odd versions the key is absent.
#[derive(Default)]
struct Known {
    begun: AtomicU64,
    done: AtomicU64,
}

fn moving(number: u64) -> u64 {
    2 * number
}

fn resting(number: u64) -> u64 {
    2 * number + 1
}

/// Writes versions of keys in an arbitrary order: present and absent alternately, so that leaves split, merge and
/// are freed.
fn write<I: Items>(tree: &Tree<I::K, I::V>, known: &[Known], seed: u64) {
    let mut noise = Noise(seed | 1);
    for round in 1..=ROUNDS {
        // Remove all keys of a range, so that their leaves are freed; then insert them again.
        let start = noise.below(KEYS);
        for at in 0..KEYS {
            let number = if round.is_multiple_of(3) { noise.below(KEYS) } else { (start + at) % KEYS };
            let of_key = &known[number as usize];
            let version = of_key.done.load(SeqCst) + 1;
            of_key.begun.store(version, SeqCst);
            let key = I::key(moving(number));
            if version.is_multiple_of(2) {
                tree.upsert(I::key_ref(&key), I::value_ref(&I::value(version))).unwrap();
            } else {
                tree.remove(I::key_ref(&key)).unwrap();
            }
            of_key.done.store(version, SeqCst);
        }
    }
}

/// Returns whether a value is that of a key in one of these versions.
fn is_one_of<I: Items>(
    found: Option<&<I::V as bristlecone::Value>::Owned>,
    versions: std::ops::RangeInclusive<u64>,
) -> bool {
    versions.into_iter().any(|version| match found {
        None => !version.is_multiple_of(2),
        Some(found) => version.is_multiple_of(2) && *found == I::value(version),
    })
}

/// Reads until the writer has finished; returns the number of reads.
fn read<I: Items>(tree: &Tree<I::K, I::V>, known: &[Known], over: &AtomicBool, seed: u64) -> u64 {
    let mut noise = Noise(seed | 1);
    let mut reads = 0_u64;
    while !over.load(SeqCst) || reads < 100 {
        reads += 1;
        let number = noise.below(KEYS);
        let of_key = &known[number as usize];
        let key = I::key(moving(number));
        if reads.is_multiple_of(16) {
            let done: Vec<u64> = known.iter().map(|known| known.done.load(SeqCst)).collect();
            let mut items: Vec<_> = match reads % 32 {
                0 => tree.iter().map(Result::unwrap).collect(),
                _ => tree.range(..).rev().map(Result::unwrap).collect(),
            };
            if !reads.is_multiple_of(32) {
                items.reverse();
            }
            assert!(items.is_sorted_by(|a, b| a.0 < b.0), "a range out of order");
            let begun: Vec<u64> = known.iter().map(|known| known.begun.load(SeqCst)).collect();
            for number in 0..KEYS {
                let value =
                    |key| items.binary_search_by(|item| item.0.cmp(&I::key(key))).ok().map(|at| &items[at].1);
                assert_eq!(value(resting(number)), Some(&I::value(number)), "a key that rests");
                let versions = done[number as usize]..=begun[number as usize];
                assert!(is_one_of::<I>(value(moving(number)), versions), "key {number} in a range");
            }
            continue;
        }
        let done = of_key.done.load(SeqCst);
        let found = tree.get(I::key_ref(&key)).unwrap();
        let begun = of_key.begun.load(SeqCst);
        assert!(
            is_one_of::<I>(found.as_ref(), done..=begun),
            "key {number}, versions {done} to {begun}: {found:?}"
        );
    }
    reads
}

struct Lives(Cell);

impl Visit for Lives {
    fn visit<I: Items>(self) {
        let Self(cell) = self;
        println!("{cell}");
        let scratch = Scratch::new();
        let pool = cell.pool(&scratch);
        let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
        for number in 0..KEYS {
            tree.upsert(I::key_ref(&I::key(resting(number))), I::value_ref(&I::value(number))).unwrap();
            tree.upsert(I::key_ref(&I::key(moving(number))), I::value_ref(&I::value(2))).unwrap();
        }
        let known: Vec<Known> =
            (0..KEYS).map(|_| Known { begun: AtomicU64::new(2), done: AtomicU64::new(2) }).collect();
        let follower = Pool::follow(&scratch.0).unwrap();
        let followed: Tree<I::K, I::V> = follower.tree("t").unwrap();
        assert_eq!(followed.len().unwrap(), 2 * KEYS);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|seed| {
                    let (followed, known, over) = (&followed, &known, &over);
                    scope.spawn(move || read::<I>(followed, known, over, seed + 77))
                })
                .collect();
            write::<I>(&tree, &known, 5);
            over.store(true, SeqCst);
            let reads: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
            println!("{reads} reads");
        });
        assert_eq!(followed.len().unwrap(), tree.len().unwrap(), "{cell}");
        assert_eq!(followed.check(), [], "{cell}");
        assert!(followed.iter().map(Result::unwrap).eq(tree.iter().map(Result::unwrap)), "{cell}");
        drop((followed, follower));
        assert_eq!(tree.check(), [], "{cell}");
    }
}

#[test]
fn reads_are_linearizable_and_ranges_whole() {
    let cells = suites::FOLLOW.sampled_of_each_design();
    cells.iter().for_each(|&cell| cell.codec.visit(Lives(cell)));
}
