//! Every operation compared with `BTreeMap`, over every kind of key and value, with the pool closed
//! or crashed in between.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::ControlFlow;

use crate::common::{
    Cell, Configuration, Items, Noise, Plant, Scratch, Visit, baselines, defaults, inserted, share, small,
    suites, swapped,
};
use crate::external_design::Toy;
use bristlecone::lab::TreeDesign;
use bristlecone::{Design, Error, KEY_BYTES_MAX, Key, Native, Pool, Result, Tree, VALUE_BYTES_MAX, Value};
use bristlecone_random::mix;

/// A tree and its model: `key` and `value` make arguments from numbers.
struct Twin<K: Key, V: Value, S = Configuration> {
    key: fn(u64) -> K::Owned,
    value: fn(u64) -> V::Owned,
    key_ref: for<'a> fn(&'a K::Owned) -> K::Ref<'a>,
    value_ref: for<'a> fn(&'a V::Owned) -> V::Ref<'a>,
    shape: S,
}

impl<K: Key, V: Value, S: Plant> Twin<K, V, S>
where
    K::Owned: Ord + Debug,
    V::Owned: PartialEq + Debug,
{
    fn run(&self, keys: u64, rounds: u64, seed: u64) {
        let scratch = Scratch::new();
        let mut noise = Noise(seed);
        let mut model = BTreeMap::new();
        for epoch in 0..8 {
            let pool = self.shape.pool(&scratch);
            let tree: Result<Tree<K, V>> =
                if epoch == 0 { self.shape.create(&pool, "twin") } else { self.shape.open(&pool, "twin") };
            let tree = tree.unwrap();
            self.compare(&tree, &model);
            for round in 0..rounds {
                // Epochs fill, churn and empty the tree in turn.
                self.step(&tree, &mut model, &mut noise, keys, round, [7, 4, 1, 5][epoch % 4]);
                if round.is_multiple_of(16) {
                    self.group(&tree, &mut model, &mut noise, keys);
                }
            }
            self.compare(&tree, &model);
            drop(tree);
            if epoch % 2 == 0 { pool.close().unwrap() } else { self.shape.crash(pool, &scratch) }
        }
        let pool = self.shape.pool(&scratch);
        let tree: Tree<K, V> = self.shape.open(&pool, "twin").unwrap();
        for (key, value) in std::mem::take(&mut model) {
            assert_eq!(tree.remove((self.key_ref)(&key)).unwrap(), Some(value));
        }
        self.compare(&tree, &model);
        assert_eq!((tree.len().unwrap(), tree.iter().map(Result::unwrap).next()), (0, None));
        self.step(&tree, &mut model, &mut noise, keys, 1, 10);
        self.compare(&tree, &model);
    }

    fn step(
        &self,
        tree: &Tree<K, V>,
        model: &mut BTreeMap<K::Owned, V::Owned>,
        noise: &mut Noise,
        keys: u64,
        round: u64,
        inserts: u64,
    ) {
        let own = (self.key)(noise.below(keys));
        let key = || (self.key_ref)(&own);
        let new = (self.value)(noise.next());
        let value = || (self.value_ref)(&new);
        let present = model.get(&own).cloned();
        match noise.below(10) {
            roll if roll < inserts && round.is_multiple_of(4) => {
                tree.upsert(key(), value()).unwrap();
                model.insert(own.clone(), new.clone());
            }
            roll if roll < inserts && round.is_multiple_of(2) => {
                assert_eq!(tree.insert(key(), value()).unwrap(), model.insert(own.clone(), new.clone()));
            }
            roll if roll < inserts => {
                assert_eq!(inserted(tree.try_insert(key(), value())), present);
                model.entry(own.clone()).or_insert(new.clone());
            }
            roll if roll < 7 && round.is_multiple_of(3) => {
                let expected = present.clone().filter(|_| round.is_multiple_of(2)).unwrap_or(new.clone());
                let removed = swapped(tree.compare_and_swap(key(), Some((self.value_ref)(&expected)), None));
                if present.as_ref() == Some(&expected) {
                    assert_eq!(removed, Ok(()));
                    model.remove(&own);
                } else {
                    assert_eq!(removed, Err(present));
                }
            }
            roll if roll < 7 => {
                assert_eq!(tree.remove(key()).unwrap(), model.remove(&own));
            }
            7 => {
                assert_eq!(tree.update(key(), value()).unwrap(), present);
                model.entry(own.clone()).and_modify(|old| *old = new.clone());
            }
            8 => {
                let wrong = (self.value)(noise.next());
                let expected = match noise.below(4) {
                    0 => None,
                    1 => Some(wrong),
                    _ => present.clone(),
                };
                let becomes = Some(new.clone()).filter(|_| noise.below(4) > 0);
                let [expects, to] = [&expected, &becomes].map(|item| item.as_ref().map(self.value_ref));
                let swapped = swapped(tree.compare_and_swap(key(), expects, to));
                assert_eq!(swapped, if present == expected { Ok(()) } else { Err(present.clone()) });
                if present == expected {
                    model.remove(&own);
                    model.extend(becomes.map(|value| (own.clone(), value)));
                }
            }
            _ => self.scan(tree, model, noise, keys),
        }
        assert_eq!(tree.get(key()).unwrap(), model.get(&own).cloned());
        assert_eq!(tree.contains_key(key()).unwrap(), model.contains_key(&own));
    }

    /// Several keys at a time, none to many: adjacent or arbitrary, and some of them twice.
    fn group(
        &self,
        tree: &Tree<K, V>,
        model: &mut BTreeMap<K::Owned, V::Owned>,
        noise: &mut Noise,
        keys: u64,
    ) {
        let (count, near) = ([0, 1, 2, 5, 16, 17, 40][noise.below(7) as usize], noise.below(2) == 0);
        let first = noise.below(keys);
        let mut draw = || (if near { first + noise.below(30) } else { noise.below(keys) }, noise.next());
        let drawn: Vec<_> = (0..count).map(|_| draw()).collect();
        let items: Vec<_> =
            drawn.iter().map(|(key, value)| ((self.key)(*key), (self.value)(*value))).collect();
        let borrowed: Vec<_> =
            items.iter().map(|(key, value)| ((self.key_ref)(key), (self.value_ref)(value))).collect();
        let borrowed_keys: Vec<_> = borrowed.iter().map(|(key, _)| *key).collect();
        // The previous contents must be overwritten.
        let mut seen = vec![None, None];
        match noise.below(4) {
            0 => {
                tree.insert_many(&borrowed, &mut seen).unwrap();
                let due = items.iter().map(|(key, value)| model.insert(key.clone(), value.clone()));
                assert_eq!(seen, due.collect::<Vec<_>>());
            }
            1 => {
                tree.upsert_many(&borrowed).unwrap();
                model.extend(items.iter().cloned());
            }
            2 => {
                tree.remove_many(&borrowed_keys, &mut seen).unwrap();
                let due = items.iter().map(|(key, _)| model.remove(key));
                assert_eq!(seen, due.collect::<Vec<_>>());
            }
            _ => {}
        }
        let due: Vec<_> = items.iter().map(|(key, _)| model.get(key).cloned()).collect();
        tree.get_many(&borrowed_keys, &mut seen).unwrap();
        assert_eq!(seen, due);
        let (mut there, mut places) = (vec![true], Vec::new());
        tree.contains_many(&borrowed_keys, &mut there).unwrap();
        assert!(there.iter().copied().eq(due.iter().map(Option::is_some)));
        tree.get_many_with(&borrowed_keys, |at, _| places.push(at)).unwrap();
        assert!(places.into_iter().eq((0..count as usize).filter(|at| there[*at])));
    }

    fn scan(&self, tree: &Tree<K, V>, model: &BTreeMap<K::Owned, V::Owned>, noise: &mut Noise, keys: u64) {
        let ends = [(self.key)(noise.below(keys)), (self.key)(noise.below(keys))];
        let (from, to) = if ends[0] <= ends[1] { (&ends[0], &ends[1]) } else { (&ends[1], &ends[0]) };
        let want = model.range(from..to).map(|(k, v)| (k.clone(), v.clone()));
        let range = || tree.range((self.key_ref)(from)..(self.key_ref)(to)).map(Result::unwrap);
        assert!(range().take(60).eq(want.clone().take(60)));
        assert!(range().rev().take(60).eq(want.clone().rev().take(60)));
        let mut seen = Vec::new();
        let most = noise.below(100) as usize;
        tree.for_each_in((self.key_ref)(from)..(self.key_ref)(to), |key, _| {
            seen.push(tree.get(key).unwrap());
            if seen.len() > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        assert!(seen.into_iter().eq(want.clone().map(|(_, value)| Some(value)).take(most + 1)));
        let (mut ours, mut theirs) = (range(), want);
        for _ in 0..80 {
            if noise.below(2) == 0 {
                assert_eq!(ours.next(), theirs.next());
            } else {
                assert_eq!(ours.next_back(), theirs.next_back());
            }
        }
        assert_eq!(tree.range((self.key_ref)(to)..(self.key_ref)(from)).map(Result::unwrap).next(), None);
    }

    fn compare(&self, tree: &Tree<K, V>, model: &BTreeMap<K::Owned, V::Owned>) {
        assert_eq!(tree.check(), [], "{:?}", self.shape);
        assert_eq!(tree.len().unwrap(), model.len() as u64);
        let pairs = || model.iter().map(|(k, v)| (k.clone(), v.clone()));
        assert!(tree.iter().map(Result::unwrap).eq(pairs()));
        assert!(tree.iter().map(Result::unwrap).rev().eq(pairs().rev()));
        assert_eq!(tree.first_key_value().unwrap(), pairs().next());
        assert_eq!(tree.last_key_value().unwrap(), pairs().next_back());
    }
}

/// The toy, as large as the model needs it.
impl Plant for Toy {
    fn create<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        TreeDesign::create::<_, _, Native>(*self, pool, name, &[("items".to_owned(), 2000)])
    }

    fn open<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        TreeDesign::open::<_, _, Native>(*self, pool, name)
    }
}

fn word(number: u64) -> u64 {
    [0, u64::MAX, 1, u64::MAX - 1, 1 << 63][number as usize % 5] ^ number.wrapping_mul(3) << (number % 8)
}

fn text(number: u64) -> String {
    // One-byte keys, long common prefixes, and prefixes of each other.
    let stem = ["", "a", "path/that/is/shared/by/very/many/keys/", "\0"][number as usize % 4];
    format!("{stem}{}", "xyz".repeat(number as usize % 7) + &(number / 7).to_string())
}

#[test]
fn every_cell_holds_what_a_map_holds() {
    struct Run(Cell, u64);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let Self(shape, seed) = self;
            let (key_ref, value_ref) = (I::key_ref, I::value_ref);
            let twin = Twin::<I::K, I::V, Cell> { key: I::key, value: I::value, key_ref, value_ref, shape };
            twin.run(2000, 4000, seed);
        }
    }
    for (seed, cell) in suites::MODEL.sampled().into_iter().enumerate() {
        println!("{cell}");
        cell.codec.visit(Run(cell, 0x1234_5678 + seed as u64));
    }
}

#[test]
fn baselines_keep_words_too() {
    for (seed, shape) in share(baselines()).into_iter().enumerate() {
        let twin = Twin::<u64, u64, _> { key: word, value: word, key_ref: |k| *k, value_ref: |v| *v, shape };
        twin.run(6000, 12_000, 0x8765_4321 + seed as u64);
    }
}

/// The test that the recipe for a new design requires.
#[test]
fn a_toy_design_keeps_words_too() {
    let twin = Twin::<u64, u64, _> { key: word, value: word, key_ref: |k| *k, value_ref: |v| *v, shape: Toy };
    twin.run(1000, 2000, 42);
}

#[test]
fn baselines_refuse_what_they_cannot_keep() {
    for shape in baselines() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        assert!(matches!(shape.create::<&str, u64>(&pool, "t"), Err(Error::Invalid { .. })));
        assert!(matches!(shape.create::<u64, &[u8]>(&pool, "t"), Err(Error::Invalid { .. })));
        assert_eq!(pool.trees().unwrap(), []);
        let tree = shape.create::<u64, u64>(&pool, "t").unwrap();
        // The largest value is the one that FAST & FAIR cannot store.
        match tree.insert(1, u64::MAX) {
            Ok(None) => assert_eq!(tree.get(1).unwrap(), Some(u64::MAX)),
            refused => assert!(matches!(refused, Err(Error::Invalid { .. })) && tree.is_empty().unwrap()),
        }
        tree.insert(u64::MAX, 0).unwrap();
        tree.insert(0, u64::MAX - 1).unwrap();
        assert_eq!((tree.get(u64::MAX).unwrap(), tree.get(0).unwrap()), (Some(0), Some(u64::MAX - 1)));
    }
}

#[test]
fn words_to_words_as_by_default() {
    for shape in defaults() {
        let twin = Twin::<u64, u64> { key: word, value: word, key_ref: |k| *k, value_ref: |v| *v, shape };
        twin.run(6000, 12_000, 77);
    }
}

#[test]
fn bytes_to_strings_as_by_default() {
    fn key(number: u64) -> Vec<u8> {
        text(number).into_bytes()
    }
    for shape in share(defaults()) {
        let twin = Twin::<&[u8], &str> { key, value: text, key_ref: |k| k, value_ref: |v| v, shape };
        twin.run(2000, 6000, 6);
    }
}

#[test]
fn arrays_tuples_and_signed_numbers() {
    for shape in share(small()) {
        let arrays = Twin::<[u8; 12], [u8; 3]> {
            key: |n| {
                let mut key = [7; 12];
                key[..8].copy_from_slice(&word(n).to_be_bytes());
                key
            },
            value: |n| [n as u8; 3],
            key_ref: |k| *k,
            value_ref: |v| *v,
            shape,
        };
        arrays.run(1000, 4000, 8);
        let tuples = Twin::<(&str, u64), i64> {
            key: |n| (text(n % 40), word(n)),
            value: |n| n as i64,
            key_ref: |k| (&k.0, k.1),
            value_ref: |v| *v,
            shape,
        };
        tuples.run(1000, 4000, 9);
        let signed = Twin::<i64, u32> {
            key: |n| n as i64 - 500,
            value: |n| n as u32,
            key_ref: |k| *k,
            value_ref: |v| *v,
            shape,
        };
        signed.run(1000, 4000, 10);
    }
}

/// Orders in which keys arrive: of one series, or of several that lie apart.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    Ascending,
    Descending,
    /// In turns.
    Series,
    DescendingSeries,
    /// One after the other.
    Clusters,
    /// Ascending, except that one in twenty arrives up to 1,000 places later.
    Late,
}

impl Arrival {
    const SERIES: u64 = 200;

    /// Returns the series of all keys and their numbers in it, as they arrive.
    fn keys(self, all: u64) -> Vec<(u64, u64)> {
        if let Self::Late = self {
            let delay =
                |number: u64| if mix(number).is_multiple_of(20) { 1 + mix(!number) % 1000 } else { 0 };
            let mut numbers: Vec<u64> = (0..all).collect();
            numbers.sort_by_key(|number| number + delay(*number));
            return numbers.into_iter().map(|number| (0, number)).collect();
        }
        (0..all).map(|at| self.key(at, all)).collect()
    }

    fn key(self, at: u64, all: u64) -> (u64, u64) {
        let of_series = all / Self::SERIES;
        match self {
            Self::Ascending | Self::Late => (0, at),
            Self::Descending => (0, all - at),
            Self::Series => (at % Self::SERIES, at / Self::SERIES),
            Self::DescendingSeries => (at % Self::SERIES, of_series - at / Self::SERIES),
            // In no order.
            Self::Clusters => (at / of_series * 77 % Self::SERIES, at % of_series),
        }
    }
}

#[test]
fn keys_that_arrive_in_order_fill_leaves() {
    const KEYS: u64 = 200_000;
    for shape in defaults() {
        let load = |arrival: Arrival| {
            let scratch = Scratch::new();
            let pool = scratch.open();
            let options = |name| match shape.design {
                // A collector that has not run yet leaves a longer log.
                Design::CclBTree => shape.tree(&pool, name).option("collector_threads", 0),
                _ => shape.tree(&pool, name),
            };
            let words = options("words").create::<u64, u64>().unwrap();
            let texts = options("texts").create::<String, u64>().unwrap();
            let keys = arrival.keys(KEYS);
            for (i, &(series, number)) in (0..).zip(&keys) {
                assert_eq!(words.insert(series << 32 | number, i).unwrap(), None);
                assert_eq!(texts.insert(&format!("key {series:04}/{number:08}"), i).unwrap(), None);
            }
            assert_eq!((words.check(), texts.check()), (vec![], vec![]));
            assert_eq!(
                (
                    words.iter().map(Result::unwrap).count() as u64,
                    texts.iter().map(Result::unwrap).count() as u64
                ),
                (KEYS, KEYS)
            );
            let stats = [words.stats().unwrap(), texts.stats().unwrap()];
            drop((words, texts));
            // What separates leaves may be no key of the tree.
            pool.simulate_crash();
            let pool = scratch.open();
            let words = pool.tree::<u64, u64>("words").unwrap();
            let texts = pool.tree::<String, u64>("texts").unwrap();
            assert_eq!((words.check(), texts.check()), (vec![], vec![]), "{}, {arrival:?}", shape.design);
            for (i, &(series, number)) in (0..).zip(&keys).step_by(7) {
                assert_eq!(words.get(series << 32 | number).unwrap(), Some(i));
                assert_eq!(texts.get(&format!("key {series:04}/{number:08}")).unwrap(), Some(i));
            }
            stats
        };
        let ascending = load(Arrival::Ascending);
        let bytes = ascending[0].pm_bytes - ascending[0].log_bytes;
        assert!(bytes < 64 * KEYS, "{bytes} bytes of {}", shape.design);
        let others = [
            Arrival::Descending,
            Arrival::Series,
            Arrival::DescendingSeries,
            Arrival::Clusters,
            Arrival::Late,
        ];
        for arrival in others {
            for (ascending, other) in ascending.iter().zip(load(arrival)) {
                println!(
                    "{}, {arrival:?}: {} leaves, ascending {}",
                    shape.design, other.leaves, ascending.leaves
                );
                let most = match arrival {
                    Arrival::Descending | Arrival::Late => ascending.leaves + ascending.leaves / 20,
                    // A series begins and ends within leaves.
                    _ => ascending.leaves + ascending.leaves / 10 + 2 * Arrival::SERIES,
                };
                assert!(other.leaves <= most, "{}, {arrival:?}: {ascending:?}, {other:?}", shape.design);
            }
        }
    }
}

#[test]
fn what_cannot_be_stored_is_said_and_changes_nothing() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<&[u8], &[u8]>("t").unwrap();
    let (key, value) = (vec![1; KEY_BYTES_MAX], vec![2; VALUE_BYTES_MAX]);
    tree.insert(&key, &value).unwrap();
    assert_eq!(tree.get(&key).unwrap(), Some(value.clone()));
    assert!(matches!(tree.insert(&vec![1; KEY_BYTES_MAX + 1], b""), Err(Error::TooLong { what: "key", .. })));
    let long = vec![2; VALUE_BYTES_MAX + 1];
    assert!(matches!(tree.insert(b"", &long), Err(Error::TooLong { what: "value", .. })));
    assert_eq!(tree.len().unwrap(), 1);
    tree.insert(b"", b"").unwrap();
    assert_eq!(tree.first_key_value().unwrap(), Some((vec![], vec![])));
}

#[test]
fn types_and_options_are_those_of_the_tree() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    assert!(matches!(pool.tree::<&str, u64>("t"), Err(Error::Mismatch { .. })));
    assert!(matches!(pool.tree::<u64, &[u8]>("t"), Err(Error::Mismatch { .. })));
    let other = pool.tree_options("t").option("inner_bytes", 1024);
    assert!(matches!(other.open::<u64, u64>(), Err(Error::Mismatch { .. })));
    assert!(matches!(pool.tree_options("t").create::<u64, u64>(), Err(Error::TreeExists { .. })));
    for (name, value) in
        [("max_subnodes", 0), ("max_subnodes", 6), ("subnode_bytes", 512), ("inner_bytes", 100), ("fan", 1)]
    {
        let options = pool.tree_options("u").design(Design::SsTree).option(name, value);
        assert!(matches!(options.create::<u64, u64>(), Err(Error::Invalid { .. })), "{name}");
    }
    // More slots than bits of the word that commits.
    let wide = pool.tree_options("u").design(Design::SsTree).option("max_subnodes", 5);
    let error = wide.clone().option("subnode_bytes", 256).create::<u64, u64>().unwrap_err();
    assert!(error.to_string().contains("max_subnodes=5 needs a subnode_bytes of 128 or 192"), "{error}");
    drop(wide.option("subnode_bytes", 192).create::<u64, u64>().unwrap());
    pool.drop_tree("u").unwrap();
    // Two handles share one tree.
    let again = pool.tree::<u64, u64>("t").unwrap();
    again.insert(1, 2).unwrap();
    assert_eq!(tree.get(1).unwrap(), Some(2));
    assert!(matches!(pool.drop_tree("t"), Err(Error::TreeInUse { .. })));
    assert!(matches!(pool.clone().close().map_err(Error::from), Err(Error::TreeInUse { .. })));
    drop((tree, again));
    pool.drop_tree("t").unwrap();
    assert!(matches!(pool.drop_tree("t"), Err(Error::NoSuchTree { .. })));
    assert_eq!(pool.info().chunks, pool.info().chunks_free);
}
