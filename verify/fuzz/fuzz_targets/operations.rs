//! Operations on a tree of any cell of the table or of any baseline, against `BTreeMap`, with crashes and closes in
//! between. What a crash leaves here is everything that was stored: which stores survive is the explorer's matter.

#![no_main]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use bristlecone::{Domain, Key, Native, Pool, Result, Tree, Value};
use bristlecone_baselines::{AnyDesign, Baseline};
use bristlecone_matrix::{Cell, Items, Visit, Words, lose_pages, remove_pool, suites};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Step {
    Insert(u8, u16),
    InsertNew(u8, u16),
    Update(u8, u16),
    Swap(u8, u16, u16),
    Remove(u8),
    RemoveIf(u8, u16),
    /// Consecutive keys: enough to fill and to empty nodes.
    InsertMany(u8, u8),
    RemoveMany(u8, u8),
    Scan(u8, u8),
    Crash,
    Close,
}

#[derive(Arbitrary, Debug)]
struct Run {
    /// The cell of this number, or one of the baselines.
    of: Of,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Of {
    Cell(u16),
    Baseline(u8),
}

/// Returns an item of a tree without damage.
fn sound<T>(item: Result<T>) -> T {
    item.expect("the tree is sound")
}

static CELLS: LazyLock<Vec<Cell>> = LazyLock::new(|| suites::FUZZ.cells());

type Model<I> = BTreeMap<<<I as Items>::K as Key>::Owned, <<I as Items>::V as Value>::Owned>;

/// A tree and what it should hold.
struct Twin<I: Items> {
    design: AnyDesign,
    domain: Domain,
    path: PathBuf,
    open: Option<(Pool, Tree<I::K, I::V>)>,
    model: Model<I>,
}

impl<I: Items> Twin<I> {
    fn run(design: AnyDesign, options: &[(&str, u64)], domain: Domain, steps: &[Step]) {
        let path = PathBuf::from(format!("/dev/shm/bristlecone-fuzz-{}.pool", std::process::id()));
        remove_pool(&path);
        let pool = Pool::options().max_bytes(64 << 20).domain(domain).create_new(true);
        let pool = pool.open(&path).expect("a pool in shared memory");
        let options: Vec<_> = options.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let tree = design.create::<_, _, Native>(&pool, "t", &options).expect("a tree");
        let mut twin = Self { design, domain, path, open: Some((pool, tree)), model: BTreeMap::new() };
        steps.iter().for_each(|step| twin.step(step));
        twin.compare();
        twin.reopen(true);
        twin.compare();
    }

    fn tree(&self) -> &Tree<I::K, I::V> {
        &self.open.as_ref().expect("it is open").1
    }

    fn reopen(&mut self, crash: bool) {
        let (pool, tree) = self.open.take().expect("it is open");
        drop(tree);
        if crash {
            pool.simulate_crash();
            // Every other crash is a power failure, which a journal survives.
            if self.domain == Domain::Journal && self.model.len() % 2 == 0 {
                lose_pages(&self.path);
            }
        } else {
            pool.close().expect("nothing is in use")
        }
        let pool = Pool::options().domain(self.domain).open(&self.path).expect("the pool is sound");
        let tree = self.design.open::<_, _, Native>(&pool, "t").expect("the tree is sound");
        self.open = Some((pool, tree));
        self.compare();
    }

    fn compare(&self) {
        let tree = self.tree();
        assert_eq!(tree.check(), []);
        assert_eq!(tree.len().expect("the tree is sound"), self.model.len() as u64);
        let pairs = || self.model.iter().map(|(key, value)| (key.clone(), value.clone()));
        assert!(tree.iter().map(sound).eq(pairs()));
        assert!(tree.iter().map(sound).rev().eq(pairs().rev()));
    }

    fn insert(&mut self, number: u64, value: u64) {
        let (key, new) = (I::key(number), I::value(value));
        if number.is_multiple_of(2) {
            self.tree().upsert(I::key_ref(&key), I::value_ref(&new)).expect("there is room");
            self.model.insert(key, new);
            return;
        }
        let old = self.tree().insert(I::key_ref(&key), I::value_ref(&new)).expect("there is room");
        assert_eq!(old, self.model.insert(key, new));
    }

    fn remove(&mut self, number: u64) {
        let key = I::key(number);
        let old = self.tree().remove(I::key_ref(&key)).expect("removing needs no room");
        assert_eq!(old, self.model.remove(&key));
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
                let (key, new) = (I::key(key.into()), I::value(value.into()));
                let there = self.tree().try_insert(I::key_ref(&key), I::value_ref(&new));
                let there = there.err().map(|present| present.into_present().expect("there is room"));
                assert_eq!(there, self.model.get(&key).cloned());
                self.model.entry(key).or_insert(new);
            }
            Step::Update(key, value) => {
                let (key, new) = (I::key(key.into()), I::value(value.into()));
                let old = self.tree().update(I::key_ref(&key), I::value_ref(&new));
                assert_eq!(old.expect("there is room"), self.model.get(&key).cloned());
                self.model.entry(key).and_modify(|old| *old = new);
            }
            Step::Swap(key, expected, value) => {
                let (key, new) = (I::key(key.into()), I::value(value.into()));
                let held = self.model.get(&key).cloned();
                // The value that is there, half of the time.
                let expected = held.clone().filter(|_| value % 2 == 0).unwrap_or(I::value(expected.into()));
                let (expects, becomes) = (I::value_ref(&expected), I::value_ref(&new));
                let swapped = self.tree().compare_and_swap(I::key_ref(&key), Some(expects), Some(becomes));
                let swapped = swapped.map_err(|differs| differs.into_found().expect("there is room"));
                if held.as_ref() == Some(&expected) {
                    assert_eq!(swapped, Ok(()));
                    self.model.insert(key, new);
                } else {
                    assert_eq!(swapped, Err(held));
                }
            }
            Step::RemoveIf(key, expected) => {
                let key = I::key(key.into());
                let held = self.model.get(&key).cloned();
                // The value that is there, half of the time.
                let other = I::value(expected.into());
                let expected = held.clone().filter(|_| expected % 2 == 0).unwrap_or(other);
                let expects = Some(I::value_ref(&expected));
                let removed = self.tree().compare_and_swap(I::key_ref(&key), expects, None);
                let removed = removed.map_err(|differs| differs.into_found().expect("removing needs no room"));
                if held.as_ref() == Some(&expected) {
                    assert_eq!(removed, Ok(()));
                    self.model.remove(&key);
                } else {
                    assert_eq!(removed, Err(held));
                }
            }
            Step::Scan(from, to) => {
                let mut ends = [I::key(from.into()), I::key(to.into())];
                ends.sort();
                let [from, to] = ends;
                let range = || self.tree().range(I::key_ref(&from)..I::key_ref(&to)).map(sound);
                let pairs = || self.model.range(&from..&to).map(|(key, value)| (key.clone(), value.clone()));
                assert!(range().eq(pairs()) && range().rev().eq(pairs().rev()));
            }
            Step::Crash => self.reopen(true),
            Step::Close => self.reopen(false),
        }
    }
}

impl<I: Items> Drop for Twin<I> {
    fn drop(&mut self) {
        self.open = None;
        remove_pool(&self.path);
    }
}

struct InCell<'a>(Cell, &'a [Step]);

impl Visit for InCell<'_> {
    fn visit<I: Items>(self) {
        let Self(Cell { configuration, domain, .. }, steps) = self;
        Twin::<I>::run(configuration.design.into(), configuration.options, domain, steps);
    }
}

fuzz_target!(|run: Run| {
    match run.of {
        Of::Cell(number) => {
            let cell = CELLS[usize::from(number) % CELLS.len()];
            cell.codec.visit(InCell(cell, &run.steps));
        }
        Of::Baseline(number) => {
            let baseline = Baseline::ALL[usize::from(number) % Baseline::ALL.len()];
            Twin::<Words>::run(baseline.into(), &[("node_lines", 2)], Domain::Process, &run.steps);
        }
    }
});
