//! Operations on a tree of any design, against `BTreeMap`, with crashes and closes in between. What a
//! crash leaves here is everything that was stored: which stores survive is the explorer's matter.

#![no_main]

use std::collections::BTreeMap;
use std::path::PathBuf;

use arbitrary::Arbitrary;
use bristlecone::{Domain, Key, Pool, Tree, Value};
use bristlecone_baselines::Contender;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Step {
    Insert(u8, u16),
    InsertNew(u8, u16),
    Update(u8, u16),
    Swap(u8, u16, u16),
    Remove(u8),
    /// So many keys from one on: enough to fill and to empty nodes.
    InsertMany(u8, u8),
    RemoveMany(u8, u8),
    Scan(u8, u8),
    Crash,
    Close,
}

#[derive(Arbitrary, Debug)]
struct Run {
    design: u8,
    /// Keys and values out of line.
    strings: bool,
    steps: Vec<Step>,
}

/// The smallest nodes, so that each change of structure comes at once.
fn small(design: Contender) -> Vec<(String, u64)> {
    let options: &[(&str, u64)] = match design.name() {
        "sstree" => &[("subnode_bytes", 128), ("max_subnodes", 3), ("inner_bytes", 256)],
        "nbtree" => &[("block_bytes", 128), ("inner_bytes", 256)],
        "cclbtree" => {
            &[("leaf_slots", 4), ("log_entries", 5), ("inner_bytes", 256), ("collector_threads", 0)]
        }
        "lodgetree" => &[
            ("node_slots", 6),
            ("leaf_slots", 3),
            ("log_entries", 5),
            ("inner_bytes", 256),
            ("split_nodes", 3),
        ],
        _ => &[("node_lines", 2)],
    };
    options.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

/// A tree and what it should hold, by numbers.
struct Twin<K: Key, V: Value> {
    design: Contender,
    path: PathBuf,
    open: Option<(Pool, Tree<K, V>)>,
    model: BTreeMap<u64, u64>,
    key: fn(u64) -> K::Owned,
    value: fn(u64) -> V::Owned,
    key_ref: for<'a> fn(&'a K::Owned) -> K::Ref<'a>,
    value_ref: for<'a> fn(&'a V::Owned) -> V::Ref<'a>,
}

impl<K: Key, V: Value> Twin<K, V>
where
    K::Owned: PartialEq,
    V::Owned: PartialEq + std::fmt::Debug,
{
    fn run(mut self, steps: &[Step]) {
        let options = Pool::options().max_bytes(64 << 20).domain(Domain::Process).create_new(true);
        let pool = options.open(&self.path).expect("a pool in shared memory");
        let tree = self.design.create(&pool, "t", &small(self.design)).expect("a tree");
        self.open = Some((pool, tree));
        steps.iter().for_each(|step| self.step(step));
        self.compare();
        self.reopen(true);
        self.compare();
    }

    fn tree(&self) -> &Tree<K, V> {
        &self.open.as_ref().expect("it is open").1
    }

    fn reopen(&mut self, crash: bool) {
        let (pool, tree) = self.open.take().expect("it is open");
        drop(tree);
        if crash {
            pool.simulate_crash()
        } else {
            pool.close().expect("nothing is in use")
        }
        let pool = Pool::options().open(&self.path).expect("the pool is sound");
        let tree = self.design.open(&pool, "t").expect("the tree is sound");
        self.open = Some((pool, tree));
        self.compare();
    }

    fn compare(&self) {
        let tree = self.tree();
        assert_eq!(tree.check(), []);
        assert_eq!(tree.len(), self.model.len() as u64);
        let pairs = || self.model.iter().map(|(key, value)| ((self.key)(*key), (self.value)(*value)));
        assert!(tree.iter().eq(pairs()));
        assert!(tree.iter().rev().eq(pairs().rev()));
    }

    fn insert(&mut self, key: u64, value: u64) {
        let (own, new) = ((self.key)(key), (self.value)(value));
        if key.is_multiple_of(2) {
            self.tree().upsert((self.key_ref)(&own), (self.value_ref)(&new)).expect("there is room");
            self.model.insert(key, value);
            return;
        }
        let old = self.tree().insert((self.key_ref)(&own), (self.value_ref)(&new)).expect("there is room");
        assert_eq!(old, self.model.insert(key, value).map(self.value));
    }

    fn remove(&mut self, key: u64) {
        let own = (self.key)(key);
        let old = self.tree().remove((self.key_ref)(&own)).expect("removing needs no room");
        assert_eq!(old, self.model.remove(&key).map(self.value));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert(key, value) => self.insert(key.into(), value.into()),
            Step::Remove(key) => self.remove(key.into()),
            Step::InsertMany(from, count) => {
                (0..u64::from(count)).for_each(|at| self.insert(u64::from(from) + at, at))
            }
            Step::RemoveMany(from, count) => {
                (0..u64::from(count)).for_each(|at| self.remove(u64::from(from) + at))
            }
            Step::InsertNew(key, value) => {
                let (own, new) = ((self.key)(key.into()), (self.value)(value.into()));
                let there = self.tree().insert_new((self.key_ref)(&own), (self.value_ref)(&new));
                assert_eq!(
                    there.expect("there is room"),
                    self.model.get(&key.into()).map(|old| (self.value)(*old))
                );
                self.model.entry(key.into()).or_insert(value.into());
            }
            Step::Update(key, value) => {
                let (own, new) = ((self.key)(key.into()), (self.value)(value.into()));
                let old = self.tree().update((self.key_ref)(&own), (self.value_ref)(&new));
                assert_eq!(
                    old.expect("there is room"),
                    self.model.get(&key.into()).map(|old| (self.value)(*old))
                );
                self.model.entry(key.into()).and_modify(|old| *old = value.into());
            }
            Step::Swap(key, expected, value) => {
                let (own, new) = ((self.key)(key.into()), (self.value)(value.into()));
                let held = self.model.get(&key.into()).copied();
                // The value that is there, half of the time.
                let expected = held.filter(|_| value % 2 == 0).unwrap_or(expected.into());
                let asked = (self.value)(expected);
                let value_ref = self.value_ref;
                let swapped =
                    self.tree().compare_and_swap((self.key_ref)(&own), value_ref(&asked), value_ref(&new));
                if held == Some(expected) {
                    assert_eq!(swapped.expect("there is room"), Ok(()));
                    self.model.insert(key.into(), value.into());
                } else {
                    assert_eq!(swapped.expect("there is room"), Err(held.map(self.value)));
                }
            }
            Step::Scan(from, to) => {
                let (from, to) = (u64::from(from.min(to)), u64::from(from.max(to)));
                let (first, end) = ((self.key)(from), (self.key)(to));
                let range = || self.tree().range((self.key_ref)(&first)..(self.key_ref)(&end));
                let pairs = || {
                    self.model.range(from..to).map(|(key, value)| ((self.key)(*key), (self.value)(*value)))
                };
                assert!(range().eq(pairs()) && range().rev().eq(pairs().rev()));
            }
            Step::Crash => self.reopen(true),
            Step::Close => self.reopen(false),
        }
    }
}

impl<K: Key, V: Value> Drop for Twin<K, V> {
    fn drop(&mut self) {
        self.open = None;
        let _ = std::fs::remove_file(&self.path);
    }
}

fuzz_target!(|run: Run| {
    let all: Vec<Contender> = Contender::all().collect();
    let design = all[usize::from(run.design) % all.len()];
    let path = PathBuf::from(format!("/dev/shm/bristlecone-fuzz-{}.pool", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let model = BTreeMap::new();
    if run.strings && !design.is_baseline() {
        let key = |number| format!("{number:05}");
        let value = |number: u64| vec![number as u8; number as usize % 300];
        let (key_ref, value_ref) =
            (String::as_str as fn(&String) -> &str, Vec::as_slice as fn(&Vec<u8>) -> &[u8]);
        Twin::<&str, &[u8]> { design, path, open: None, model, key, value, key_ref, value_ref }
            .run(&run.steps);
    } else {
        let word = |number| number;
        Twin::<u64, u64> {
            design,
            path,
            open: None,
            model,
            key: word,
            value: word,
            key_ref: |k| *k,
            value_ref: |v| *v,
        }
        .run(&run.steps);
    }
});
