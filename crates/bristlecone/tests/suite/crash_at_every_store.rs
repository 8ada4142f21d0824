//! Operations that are interrupted at every store in turn: first an operation, then the recovery from it, then
//! the recovery from that. The process continues, but its medium accepts no more stores. The next open finds
//! the contents of the file at that time, as after a kill.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::common::{Cell, Noise, Scratch, share, suites};
use bristlecone::lab::{AnyMedium, pool_on_any};
use bristlecone::{Design, Error, Key, Medium, Native, Pool, Result, Tree, Value};
use bristlecone_pm::{CreateOptions, OpenOptions, PoolFile, Step};

thread_local! {
    /// Called by the thread before each load.
    pub static AT_LOAD: RefCell<Option<Box<dyn FnMut()>>> = const { RefCell::new(None) };
}

/// A medium that accepts a number of stores and then no more: it unwinds, as if the process ended there.
pub struct Ending {
    native: Native,
    end: End,
    left: Arc<AtomicU64>,
    ended: AtomicBool,
    /// Number of loads, flushes and fences so far.
    accesses: Arc<AtomicU64>,
    /// Every step that was ever flushed, except that of opening.
    steps: Arc<Mutex<BTreeSet<Step>>>,
}

/// When a medium ends: after a number of stores, and if a step was flushed, a number of stores later.
#[derive(Clone, Copy)]
pub struct End {
    stores: u64,
    step: Option<(Step, u64)>,
}

impl End {
    const NEVER: Self = Self { stores: u64::MAX, step: None };
}

/// The panic payload, which bypasses the panic hook.
struct Ended;

impl Ending {
    /// Returns a medium that never ends, and counts its accesses.
    pub fn never(native: Native, accesses: &Arc<AtomicU64>) -> Self {
        let (left, accesses) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::clone(accesses));
        Self { native, end: End::NEVER, left, ended: AtomicBool::new(false), accesses, steps: Arc::default() }
    }

    /// Returns it as the medium that all of these tests share.
    pub fn boxed(self) -> AnyMedium {
        Box::new(self)
    }

    fn store_or_end(&self) -> bool {
        if self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return true;
        }
        // Only once: stores during unwinding are discarded.
        if !self.ended.swap(true, Relaxed) {
            resume_unwind(Box::new(Ended));
        }
        false
    }
}

impl Medium for Ending {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.accesses.fetch_add(1, Relaxed);
        AT_LOAD.with_borrow_mut(|at_load| at_load.iter_mut().for_each(|act| act()));
        self.native.load(cell, order)
    }

    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        if self.store_or_end() {
            self.native.store(cell, value, order);
        }
    }

    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        if self.store_or_end() { self.native.compare_exchange(cell, current, new) } else { Err(current) }
    }

    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step) {
        self.accesses.fetch_add(1, Relaxed);
        if step != "pool superblock" {
            self.steps.lock().unwrap().insert(step);
        }
        if let Some((_, stores)) = self.end.step.filter(|(wanted, _)| *wanted == step) {
            self.left.fetch_min(stores, Relaxed);
        }
        self.native.flush_lines(start, bytes, step);
    }

    fn drain(&self, step: Step) {
        self.accesses.fetch_add(1, Relaxed);
        self.native.drain(step);
    }

    fn order_line(&self) {
        self.native.order_line();
    }
}

type Words = Tree<u64, u64>;
type Texts = Tree<&'static str, &'static [u8]>;

/// A pool with two trees of one configuration, to be opened on a medium that ends.
struct Site {
    scratch: Scratch,
    cell: Cell,
    /// Number of stores that the last medium would still have accepted.
    left: Arc<AtomicU64>,
    steps: Arc<Mutex<BTreeSet<Step>>>,
}

impl Site {
    fn new(cell: Cell) -> Self {
        let site = Self { scratch: Scratch::new(), cell, left: Arc::default(), steps: Arc::default() };
        drop(site.open(End::NEVER).unwrap());
        site
    }

    fn open(&self, end: End) -> Result<(Pool, Words, Texts)> {
        self.left.store(end.stores, Relaxed);
        let medium = |domain| {
            let ending = Ending {
                native: Native::new(domain),
                end,
                left: Arc::clone(&self.left),
                ended: AtomicBool::new(false),
                accesses: Arc::default(),
                steps: Arc::clone(&self.steps),
            };
            ending.boxed()
        };
        let (path, domain) = (&self.scratch.0, Some(self.cell.domain));
        let file = if path.exists() {
            PoolFile::open(path, &OpenOptions { domain, max_bytes: None }, medium)?
        } else {
            PoolFile::create(
                path,
                &CreateOptions { max_bytes: self.cell.pool_size.bytes(), domain, chunk_bytes: None },
                medium,
            )?
        };
        let pool = pool_on_any(file).unwrap();
        let (words, texts) = (self.tree(&pool, "words")?, self.tree(&pool, "texts")?);
        Ok((pool, words, texts))
    }

    fn tree<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        let options = self.cell.configuration.tree(pool, name);
        match options.open() {
            Err(Error::NoSuchTree { .. }) => options.create(),
            opened => opened,
        }
    }
}

fn sites() -> impl Iterator<Item = Site> {
    share(suites::CUT_SHORT.sampled_of_each_design()).into_iter().map(Site::new)
}

/// All acknowledged changes, and the one that may have happened.
#[derive(Default)]
struct Model {
    words: BTreeMap<u64, u64>,
    texts: BTreeMap<String, Vec<u8>>,
    pending: Option<Operation>,
}

#[derive(Clone)]
enum Operation {
    Word(u64, Option<u64>),
    Text(String, Option<Vec<u8>>),
}

impl Model {
    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Word(key, Some(value)) => drop(self.words.insert(key, value)),
            Operation::Word(key, None) => drop(self.words.remove(&key)),
            Operation::Text(key, Some(value)) => drop(self.texts.insert(key, value)),
            Operation::Text(key, None) => drop(self.texts.remove(&key)),
        }
    }

    /// Works until the medium ends.
    fn work(&mut self, words: &Words, texts: &Texts, filling: bool, noise: &mut Noise) {
        loop {
            let (key, value) = (noise.below(1000), noise.next());
            let kept = (noise.below(10) != 0) == filling;
            let operation = match noise.below(3) {
                0 => {
                    let value = kept.then(|| vec![value as u8; value as usize % 90]);
                    Operation::Text(format!("some key {key:04}"), value)
                }
                _ => Operation::Word(key, kept.then_some(value)),
            };
            self.pending = Some(operation.clone());
            match &operation {
                Operation::Word(key, Some(value)) => drop(words.insert(*key, *value).unwrap()),
                Operation::Word(key, None) => drop(words.remove(*key).unwrap()),
                Operation::Text(key, Some(value)) => drop(texts.insert(key, value).unwrap()),
                Operation::Text(key, None) => drop(texts.remove(key).unwrap()),
            }
            self.pending = None;
            self.apply(operation);
        }
    }

    /// Verifies that the trees hold all acknowledged changes, and the interrupted operation atomically or not
    /// at all.
    fn compare(&mut self, words: &Words, texts: &Texts) {
        assert_eq!((words.check(), texts.check()), (vec![], vec![]));
        let same = |model: &Self| {
            words.iter().map(Result::unwrap).eq(model.words.iter().map(|(key, value)| (*key, *value)))
                && texts.iter().map(Result::unwrap).eq(model.texts.clone())
        };
        if !same(self) {
            let pending = self.pending.take().expect("an operation was interrupted, or all is there");
            self.apply(pending);
            assert!(same(self), "something else was changed");
        }
        self.pending = None;
    }
}

const ROUNDS: usize = 100;
/// Number of stores that mark a pool as in use, which every opening makes.
const OPENING: u64 = 13;

/// Runs until the medium ends; returns `None` if it did.
fn until_the_end<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|thrown| assert!(thrown.is::<Ended>(), "a panic")).ok()
}

#[test]
fn recovery_is_cut_short_at_every_store() {
    for site in sites() {
        let (mut model, mut noise) = (Model::default(), Noise(53));
        let (mut cuts, mut changed) = (0, 0);
        for round in 0..ROUNDS {
            if cuts > ROUNDS * 2 * OPENING as usize {
                // Recoveries of many stores: enough of them were tested.
                break;
            }
            // Steps in turn, the rare ones as often as the others.
            let steps: Vec<Step> = site.steps.lock().unwrap().iter().copied().collect();
            let step = steps.get(round % steps.len()).map(|step| (*step, noise.below(6)));
            let worked = until_the_end(|| {
                let (_pool, words, texts) = site.open(End { stores: 6000, step }).unwrap();
                model.work(&words, &texts, round % 6 < 3, &mut noise);
            });
            assert!(worked.is_none());
            // One store further each time, until recovery completes.
            for stores in 0.. {
                let opened = until_the_end(|| {
                    let opened = site.open(End { stores, step: None });
                    let (pool, ..) = opened
                        .unwrap_or_else(|error| panic!("round {round}, after {stores} stores: {error}"));
                    pool.simulate_crash();
                });
                if opened.is_some() {
                    changed += u64::from(stores > OPENING);
                    break;
                }
                cuts += 1;
            }
            let (_pool, words, texts) = site.open(End::NEVER).unwrap();
            model.compare(&words, &texts);
        }
        println!("{:?}: {cuts} recoveries cut short, {changed} had something to do", site.cell);
        assert!(cuts >= ROUNDS * OPENING as usize, "{cuts} recoveries were cut short");
        // Designs whose recovery only reads have nothing to do.
        assert!(
            changed > 3 || site.cell.configuration.design != Design::SsTree,
            "{changed} had something to do"
        );
    }
}

/// The life of a tree: the number of stores made before it was created, used and dropped, and after it was
/// gone; and the number of acknowledged items.
#[derive(Default)]
struct Life {
    begun: Vec<u64>,
    acknowledged: u64,
}

const LIFE_ITEMS: u64 = 20;

impl Life {
    /// Creates a tree, uses it and drops it, until the medium ends.
    fn of(site: &Site, stores: u64) -> Self {
        let mut life = Self::default();
        until_the_end(|| {
            let (pool, ..) = site.open(End { stores, step: None }).unwrap();
            let made = || stores - site.left.load(Relaxed);
            life.begun.push(made());
            let tree = site.tree::<u64, u64>(&pool, "new").unwrap();
            life.begun.push(made());
            for key in 0..LIFE_ITEMS {
                assert_eq!(tree.insert(key, key).unwrap(), None);
                life.acknowledged += 1;
            }
            drop(tree);
            life.begun.push(made());
            pool.drop_tree("new").unwrap();
            life.begun.push(made());
        });
        life
    }
}

#[test]
fn creating_and_dropping_a_tree_is_all_or_nothing() {
    for site in sites() {
        // The chunks are used from here on: preparing them is most of the stores.
        Life::of(&site, u64::MAX);
        let begun = Life::of(&site, u64::MAX).begun;
        let [.., end] = begun[..] else { unreachable!("it came to its end") };
        let taken = |pool: &Pool| pool.info().chunks - pool.info().chunks_free;
        let others = taken(&site.open(End::NEVER).unwrap().0);
        // How often a tree was absent and present, by the interrupted operation.
        let mut found = [[0; 2]; 4];
        let near = |at: u64| begun.iter().any(|begun| at.abs_diff(*begun) < 75);
        for stores in (0..end).filter(|at| near(*at) || at % 499 == 0) {
            let life = Life::of(&site, stores);
            let (pool, ..) = site.open(End::NEVER).unwrap();
            assert_eq!(pool.check(), []);
            let opened = site.cell.configuration.tree(&pool, "new").open::<u64, u64>();
            found[life.begun.len()][usize::from(opened.is_ok())] += 1;
            match opened {
                Ok(tree) => {
                    assert_eq!(tree.check(), []);
                    assert!(
                        tree.iter().map(Result::unwrap).eq((0..tree.len().unwrap()).map(|key| (key, key)))
                    );
                    let pending = u64::from(life.begun.len() == 2);
                    assert!((life.acknowledged..=life.acknowledged + pending).contains(&tree.len().unwrap()));
                    drop(tree);
                    pool.drop_tree("new").unwrap();
                }
                Err(error) => assert!(matches!(error, Error::NoSuchTree { .. }), "{error}"),
            }
            assert_eq!(taken(&pool), others, "after {stores} stores: chunks that no tree has are taken");
        }
        let [opening, creating, using, dropping] = found;
        println!("{:?}: not there and there: {found:?}", site.cell);
        // Its creation ends with the store that commits it, and its drop begins with one that revokes it.
        assert!(opening[0] >= OPENING && opening[1] == 0, "{opening:?}");
        assert!(creating[0] > 30 && creating[1] == 0, "{creating:?}");
        assert!(using[0] == 0 && using[1] > LIFE_ITEMS, "{using:?}");
        assert!(dropping[0] >= 2 && dropping[1] == 1, "{dropping:?}");
    }
}
