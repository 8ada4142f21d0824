//! NBTree in a full pool: removals free space, although every slot of a leaf belongs to its key until the leaf
//! is replaced, and a replacement needs a block.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::common::{CONFIGURATIONS, Configuration, Scratch, is_alone};
use bristlecone::{Design, Error, Key, Native, Pool, Tree, Value};
use bristlecone_pm::{Domain, Geometry, OpenOptions, PoolFile, Region};

const GEOMETRY: Geometry = Geometry { chunk_bytes: 64 << 10, chunks_max: 14, trees_max: 2 };
/// Number of writes attempted in a full pool.
const FURTHER: u64 = 200;
/// Number of slots such that some leaves have no dead slot left when half of the keys are removed: to grow,
/// they need two blocks.
const FEW_SLOTS: u64 = 128;

struct Site<K: Key, V: Value> {
    scratch: Scratch,
    shape: Configuration,
    key: fn(u64) -> K::Owned,
    key_ref: for<'a> fn(&'a K::Owned) -> K::Ref<'a>,
    value: fn(u64) -> V::Owned,
    value_ref: for<'a> fn(&'a V::Owned) -> V::Ref<'a>,
    model: BTreeMap<K::Owned, V::Owned>,
    next: u64,
}

impl<K: Key, V: Value> Site<K, V>
where
    K::Owned: Ord + Clone + Debug,
    V::Owned: PartialEq + Clone + Debug,
{
    fn pool(&self) -> Pool {
        if !self.scratch.0.exists() {
            let region = Region::memory(GEOMETRY.max_bytes()).unwrap();
            let medium = Native::new(Domain::Process);
            let made = PoolFile::create_in(region, GEOMETRY, Domain::Process, medium).unwrap();
            let header = made.words(0, GEOMETRY.header_bytes() as usize / 8);
            let bytes: Vec<u8> =
                header.iter().flat_map(|word| word.load(made.medium()).to_le_bytes()).collect();
            std::fs::write(&self.scratch.0, bytes).unwrap();
        }
        Pool::on(PoolFile::open(&self.scratch.0, &OpenOptions::default(), Native::new).unwrap(), 1).unwrap()
    }

    /// Writes the next key; returns whether there was space.
    fn insert(&mut self, tree: &Tree<K, V>) -> bool {
        let (key, value) = ((self.key)(self.next), (self.value)(self.next));
        self.next += 1;
        match tree.insert((self.key_ref)(&key), (self.value_ref)(&value)) {
            Ok(old) => {
                assert_eq!(old, None);
                self.model.insert(key, value);
                true
            }
            Err(error) => {
                assert!(matches!(error, Error::PoolFull { .. }), "{error}");
                assert_eq!(tree.get((self.key_ref)(&key)).unwrap(), None);
                false
            }
        }
    }

    fn compare(&self, tree: &Tree<K, V>) {
        assert_eq!(
            (tree.len().unwrap(), tree.check()),
            (self.model.len() as u64, vec![]),
            "{:?}",
            self.shape
        );
        assert!(tree.iter().map(Result::unwrap).eq(self.model.clone()), "{:?}", self.shape);
    }

    fn run(mut self) {
        let pool = self.pool();
        let tree: Tree<K, V> = self.shape.tree(&pool, "t").create().unwrap();
        while self.insert(&tree) {}
        (0..FURTHER).for_each(|_| _ = self.insert(&tree));
        self.compare(&tree);
        drop(tree);
        pool.simulate_crash();
        let pool = self.pool();
        let tree: Tree<K, V> = self.shape.tree(&pool, "t").open().unwrap();
        let keys: Vec<_> = self.model.keys().step_by(2).cloned().collect();
        for key in &keys {
            assert_eq!(tree.remove((self.key_ref)(key)).unwrap(), self.model.remove(key));
        }
        let later = keys.len() as u64 / 2;
        let refused = (0..later).filter(|_| !self.insert(&tree)).count() as u64;
        println!("{:?}: {} gone, {refused} of {later} refused", self.shape, keys.len());
        let few = self.shape.options.contains(&("block_bytes", FEW_SLOTS));
        assert!(refused <= if few { later / 10 } else { 0 }, "{:?}: {refused} of {later}", self.shape);
        self.compare(&tree);
        drop(tree);
        pool.simulate_crash();
        let pool = self.pool();
        self.compare(&self.shape.tree(&pool, "t").open().unwrap());
    }
}

fn configurations() -> impl Iterator<Item = Configuration> {
    CONFIGURATIONS.iter().copied().filter(|shape| shape.design == Design::NbTree)
}

/// Distinct keys in scrambled order.
fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn nbtree_of_words_writes_again_once_half_is_gone() {
    if !is_alone("nbtree_full::nbtree_of_words_writes_again_once_half_is_gone") {
        return;
    }
    for shape in configurations() {
        let site: Site<u64, u64> = Site {
            scratch: Scratch::new(),
            shape,
            key: scattered,
            key_ref: |key| *key,
            value: |n| n,
            value_ref: |value| *value,
            model: BTreeMap::new(),
            next: 0,
        };
        site.run();
    }
}

#[test]
fn nbtree_of_texts_writes_again_once_half_is_gone() {
    if !is_alone("nbtree_full::nbtree_of_texts_writes_again_once_half_is_gone") {
        return;
    }
    for shape in configurations() {
        let site: Site<&str, &[u8]> = Site {
            scratch: Scratch::new(),
            shape,
            key: |n| format!("{:016x}", scattered(n)),
            key_ref: |key| key,
            value: |n| vec![n as u8; 30],
            value_ref: |value| value,
            model: BTreeMap::new(),
            next: 0,
        };
        site.run();
    }
}
