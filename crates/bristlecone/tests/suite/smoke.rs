//! A short test of each design, in all its configurations: operations compared with `BTreeMap` with closes and
//! crashes in between, and threads. The long tests cover all designs; this one shows quickly that one is broken.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::common::{CONFIGURATIONS, Noise, Plant, Scratch, inserted, swapped};
use bristlecone::{Design, Key, Pool, Tree, Value};

/// Maps numbers to keys and values.
struct Items<K: Key, V: Value> {
    key: fn(u64) -> K::Owned,
    value: fn(u64) -> V::Owned,
    key_ref: for<'a> fn(&'a K::Owned) -> K::Ref<'a>,
    value_ref: for<'a> fn(&'a V::Owned) -> V::Ref<'a>,
    /// Number of times that the tree is closed, or crashes, and is opened again.
    epochs: usize,
}

type Model<K, V> = BTreeMap<<K as Key>::Owned, <V as Value>::Owned>;

impl<K: Key, V: Value> Items<K, V>
where
    K::Owned: Ord + Debug,
    V::Owned: PartialEq + Debug,
{
    /// One operation, and its effect on the model.
    fn step(&self, tree: &Tree<K, V>, model: &mut Model<K, V>, noise: &mut Noise, key: u64, removals: u64) {
        let (own, new) = ((self.key)(key), (self.value)(noise.below(500)));
        let (key, value) = ((self.key_ref)(&own), (self.value_ref)(&new));
        let held = model.get(&own).cloned();
        match noise.below(10) {
            0 if removals > 1 => {
                let expected = held.clone().unwrap_or_else(|| new.clone());
                let expected = Some((self.value_ref)(&expected));
                let removed = swapped(tree.compare_and_swap(key, expected, None));
                assert_eq!(removed, if model.remove(&own).is_some() { Ok(()) } else { Err(None) });
            }
            roll if roll < removals => assert_eq!(tree.remove(key).unwrap(), model.remove(&own)),
            6 => {
                assert_eq!(inserted(tree.try_insert(key, value)), held);
                model.entry(own.clone()).or_insert(new.clone());
            }
            7 => {
                assert_eq!(tree.update(key, value).unwrap(), held);
                model.entry(own.clone()).and_modify(|old| *old = new.clone());
            }
            8 => {
                let expected = held.clone().unwrap_or_else(|| new.clone());
                let expected = Some((self.value_ref)(&expected));
                let swapped = swapped(tree.compare_and_swap(key, expected, Some(value)));
                assert_eq!(swapped, if held.is_some() { Ok(()) } else { Err(None) });
                model.entry(own.clone()).and_modify(|old| *old = new.clone());
            }
            9 => {
                tree.upsert(key, value).unwrap();
                model.insert(own.clone(), new.clone());
            }
            _ => assert_eq!(tree.insert(key, value).unwrap(), model.insert(own.clone(), new.clone())),
        }
        assert_eq!(tree.get((self.key_ref)(&own)).unwrap(), model.get(&own).cloned());
    }

    fn compare(&self, tree: &Tree<K, V>, model: &Model<K, V>) {
        assert_eq!(tree.check(), []);
        let pairs = || model.iter().map(|(key, value)| (key.clone(), value.clone()));
        assert!(
            tree.iter().map(Result::unwrap).eq(pairs())
                && tree.iter().map(Result::unwrap).rev().eq(pairs().rev())
        );
        assert_eq!(tree.len().unwrap(), model.len() as u64);
        for (key, value) in pairs() {
            assert_eq!(tree.get((self.key_ref)(&key)).unwrap(), Some(value));
        }
    }

    fn alone(&self, shape: impl Plant, pool: Pool, scratch: &Scratch) {
        let (mut model, mut noise) = (Model::<K, V>::new(), Noise(7));
        let mut tree: Tree<K, V> = shape.create(&pool, "t").unwrap();
        let mut pool = pool;
        for epoch in 0..self.epochs {
            for _ in 0..600 {
                let key = noise.below(300);
                self.step(&tree, &mut model, &mut noise, key, [2, 5, 1][epoch % 3]);
            }
            self.compare(&tree, &model);
            drop(tree);
            if epoch % 2 == 0 {
                pool.simulate_crash()
            } else {
                pool.close().unwrap()
            }
            pool = scratch.open();
            tree = shape.open(&pool, "t").unwrap();
            self.compare(&tree, &model);
        }
        for key in std::mem::take(&mut model).into_keys() {
            tree.remove((self.key_ref)(&key)).unwrap().unwrap();
        }
        self.compare(&tree, &model);
    }

    /// Threads own every third key each, in the same leaves.
    fn together(&self, shape: impl Plant, pool: &Pool) {
        let tree: Tree<K, V> = shape.create(pool, "shared").unwrap();
        let work = |thread: u64| {
            let (mut model, mut noise) = (Model::<K, V>::new(), Noise(thread + 1));
            for round in 0..900 {
                let key = noise.below(60) * 3 + thread;
                self.step(&tree, &mut model, &mut noise, key, [1, 6, 2][round / 300]);
                if round % 50 == 0 {
                    assert!(tree.iter().map(Result::unwrap).is_sorted_by(|a, b| a.0 < b.0));
                    assert!(tree.iter().map(Result::unwrap).rev().is_sorted_by(|a, b| a.0 > b.0));
                }
            }
            model
        };
        let mut all = Model::<K, V>::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || work(thread))).collect();
            threads.into_iter().for_each(|thread| all.extend(thread.join().unwrap()));
        });
        self.compare(&tree, &all);
    }

    fn run(&self, design: Design) {
        for &shape in CONFIGURATIONS.iter().filter(|shape| shape.design == design) {
            let scratch = Scratch::new();
            self.alone(shape, scratch.open(), &scratch);
            self.together(shape, &scratch.open());
        }
    }
}

fn words(design: Design) {
    let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Items::<u64, u64> { key: spread, value: |n| n, key_ref: |k| *k, value_ref: |v| *v, epochs: 6 }
        .run(design);
}

/// After each opening WO-tree checks every record slot for use.
fn texts(design: Design) {
    let key = |n: u64| format!("{}{n}", ["", "a/long/prefix/that/is/shared/", "z"][n as usize % 3]);
    let value = |n: u64| vec![n as u8; n as usize % 200];
    Items::<&str, &[u8]> { key, value, key_ref: |k| k, value_ref: |v| v, epochs: 2 }.run(design);
}

macro_rules! designs {
    ($($name:ident: $design:expr;)+) => {
        $(
            mod $name {
                use super::*;

                #[test]
                fn words_hold_what_a_map_holds() {
                    super::words($design);
                }

                #[test]
                fn texts_hold_what_a_map_holds() {
                    super::texts($design);
                }
            }
        )+

        #[test]
        fn every_design_is_here() {
            assert_eq!([$($design),+], Design::ALL);
        }
    };
}

designs! {
    sstree: Design::SsTree;
    nbtree: Design::NbTree;
    cclbtree: Design::CclBTree;
    lodgetree: Design::LodgeTree;
    wotree: Design::WoTree;
}
