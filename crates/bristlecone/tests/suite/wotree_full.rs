//! WO-tree in a full pool: several threads change it until there is no space, another tree allocates
//! chunks meanwhile, and then the machine crashes. Splits need space at several levels together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::{CONFIGURATIONS, Configuration, Noise, Scratch, share};
use bristlecone::{Design, Error, Key, Pool, Tree, Value};

const THREADS: u64 = 3;
/// Number of failed writes after which a thread stops.
const REFUSED: u64 = 150;

/// Maps numbers to keys and values.
struct Codec<K: Key, V: Value> {
    key: fn(u64) -> K::Owned,
    key_ref: for<'a> fn(&'a K::Owned) -> K::Ref<'a>,
    value: fn(u64) -> V::Owned,
    value_ref: for<'a> fn(&'a V::Owned) -> V::Ref<'a>,
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::PoolFull { .. })
}

/// Inserts more than it removes, until the pool was full often enough. Acknowledged items must be
/// present.
fn work<K: Key, V: Value>(
    tree: &Tree<K, V>,
    codec: &Codec<K, V>,
    thread: u64,
    held: &mut BTreeMap<u64, u64>,
) {
    let mut noise = Noise(thread + 1);
    let mut refused = 0;
    for round in 0.. {
        let number = noise.below(1 << 20) * THREADS + thread;
        let key = (codec.key)(number);
        if noise.below(8) == 0 || refused % 16 == 15 {
            let first = held.range(number..).next().or_else(|| held.iter().next()).map(|(number, _)| *number);
            let Some(first) = first else { continue };
            let old = tree.remove((codec.key_ref)(&(codec.key)(first))).unwrap();
            assert!(old.is_some());
            held.remove(&first);
            refused += u64::from(refused % 16 == 15);
            continue;
        }
        match tree.insert((codec.key_ref)(&key), (codec.value_ref)(&(codec.value)(round))) {
            Ok(_) => _ = held.insert(number, round),
            Err(error) if is_full(&error) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        if refused >= REFUSED {
            return;
        }
    }
}

fn assert_holds<K: Key, V: Value>(
    tree: &Tree<K, V>,
    codec: &Codec<K, V>,
    held: &BTreeMap<u64, u64>,
    what: &str,
) where
    V::Owned: PartialEq + std::fmt::Debug,
{
    assert_eq!((tree.check(), tree.len().unwrap()), (vec![], held.len() as u64), "{what}");
    for (number, value) in held {
        let key = (codec.key)(*number);
        assert_eq!(
            tree.get((codec.key_ref)(&key)).unwrap(),
            Some((codec.value)(*value)),
            "{what}: key {number}"
        );
    }
    assert_eq!(
        (tree.iter().map(Result::unwrap).count(), tree.iter().map(Result::unwrap).rev().count()),
        (held.len(), held.len()),
        "{what}"
    );
}

fn full<K: Key, V: Value>(shape: &Configuration, pool_bytes: u64, codec: &Codec<K, V>)
where
    V::Owned: PartialEq + std::fmt::Debug,
{
    let scratch = Scratch::new();
    let pool: Pool = scratch.options().max_bytes(pool_bytes).open(&scratch.0).unwrap();
    let mut held: Vec<BTreeMap<u64, u64>> = (0..THREADS).map(|_| BTreeMap::new()).collect();
    let mut all = BTreeMap::new();
    {
        let tree: Tree<K, V> = shape.tree(&pool, "t").create().unwrap();
        let other = pool.tree_options("other").design(Design::SsTree).create::<u64, u64>().unwrap();
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for (thread, held) in held.iter_mut().enumerate() {
                let (tree, done) = (&tree, &done);
                scope.spawn(move || {
                    work(tree, codec, thread as u64, held);
                    done.fetch_add(1, Relaxed);
                });
            }
            // The other tree allocates chunks as long as there are any, and frees some.
            for n in 0.. {
                if done.load(Relaxed) == THREADS {
                    break;
                }
                if other.insert(n, n).is_err_and(|error| is_full(&error)) {
                    (n.saturating_sub(20_000)..n).for_each(|n| _ = other.remove(n).unwrap());
                }
            }
        });
        held.iter().for_each(|held| all.extend(held));
        assert_holds(&tree, codec, &all, "before the crash");
    }
    pool.simulate_crash();
    let pool = scratch.options().max_bytes(pool_bytes).open(&scratch.0).unwrap();
    let tree: Tree<K, V> = shape.tree(&pool, "t").open().unwrap();
    assert_holds(&tree, codec, &all, "after the crash");
    // Space becomes free: that of another tree, and that of items removed here.
    pool.drop_tree("other").unwrap();
    let gone: Vec<_> = all.keys().copied().filter(|number| number % 3 != 0).collect();
    for number in gone {
        assert!(tree.remove((codec.key_ref)(&(codec.key)(number))).unwrap().is_some());
        all.remove(&number);
    }
    for number in 1 << 40..(1 << 40) + 5000 {
        let (key, value) = ((codec.key)(number), (codec.value)(number));
        assert!(tree.insert((codec.key_ref)(&key), (codec.value_ref)(&value)).unwrap().is_none());
        all.insert(number, number);
    }
    assert_holds(&tree, codec, &all, "after life went on");
}

fn configurations() -> Vec<&'static Configuration> {
    share(CONFIGURATIONS.iter().filter(|shape| shape.design == Design::WoTree))
}

#[test]
fn wotree_of_words_in_a_full_pool_keeps_what_it_acknowledged() {
    let codec = Codec::<u64, u64> {
        key: |number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        key_ref: |key| *key,
        value: |number| number,
        value_ref: |value| *value,
    };
    configurations().into_iter().for_each(|shape| full(shape, 12 << 20, &codec));
}

#[test]
fn wotree_of_texts_in_a_full_pool_keeps_what_it_acknowledged() {
    let codec = Codec::<&str, &[u8]> {
        key: |number| format!("{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        key_ref: |key| key,
        value: |number| vec![number as u8; number as usize % 40],
        value_ref: |value| value,
    };
    configurations().into_iter().for_each(|shape| full(shape, 32 << 20, &codec));
}
