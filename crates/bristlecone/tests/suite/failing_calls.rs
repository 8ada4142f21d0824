//! System calls that fail, one at a time: while a pool and a tree are created, opened after a crash, grown, dropped,
//! closed and salvaged. The result is an error that says so, or success. Acknowledged writes are present after
//! another opening, a tree exists completely or not at all, and no descriptor, mapping or lock is left behind.
//!
//! The library calls a hook before each system call (`bristlecone_pm::failpoint`), which returns the failure. A call
//! that a signal interrupts is repeated.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Configuration, CopiedJournal, Plant, Scratch, is_alone, share, small};
use bristlecone::{Domain, Error, Pool, Result, Tree};
use bristlecone_pm::{Geometry, failpoint};
use rustix::io::Errno;

/// Small chunks, so that a few items need many.
const GEOMETRY: Geometry = Geometry { chunk_bytes: 64 << 10, chunks_max: 200, trees_max: 3 };
/// Number of existing items of a pool, and of items inserted then.
const ITEMS: u64 = 700;
/// Errors of system calls.
const ANSWERS: [Errno; 5] = [Errno::NOSPC, Errno::IO, Errno::NOMEM, Errno::MFILE, Errno::INTR];
/// Calls that are repeated if a signal interrupts them.
const AGAIN: [&str; 9] =
    ["flock", "ftruncate", "fallocate", "populate", "msync", "fsync", "fdatasync", "rename", "unlink"];

fn key(number: u64) -> String {
    format!("key {number:05}")
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; [20, 100, 400][number as usize % 3]]
}

type Texts = Tree<&'static str, &'static [u8]>;

/// A pool with a tree in the state after a crash.
struct Site {
    shape: Configuration,
    domain: Domain,
    scratch: Scratch,
    before: Vec<u8>,
    journal: CopiedJournal,
}

/// The acknowledged operations.
#[derive(Default)]
struct Told {
    items: BTreeSet<u64>,
    /// Whether the tree `u` was created, and whether it was dropped.
    created: Option<bool>,
    dropped: Option<bool>,
    errors: Vec<Error>,
}

impl Told {
    fn of<T>(&mut self, done: Result<T>) -> Option<T> {
        done.map_err(|error| self.errors.push(error)).ok()
    }
}

impl Site {
    fn new(shape: Configuration, domain: Domain, directory: &str) -> Self {
        let scratch = Scratch::within(directory);
        if domain == Domain::Journal {
            let Geometry { chunk_bytes, chunks_max, .. } = GEOMETRY;
            let options = Pool::options().domain(domain).chunk_bytes(chunk_bytes);
            let options = options.max_bytes(chunk_bytes * chunks_max).create_new(true);
            options.open(&scratch.0).unwrap().close().unwrap();
        } else {
            scratch.format(GEOMETRY);
        }
        let journal = CopiedJournal::of(&scratch.0);
        let site = Self { shape, domain, scratch, before: Vec::new(), journal };
        let pool = site.open().unwrap();
        let tree: Texts = shape.create(&pool, "t").unwrap();
        (0..ITEMS).for_each(|number| drop(tree.insert(&key(number), &value(number)).unwrap()));
        drop(tree);
        pool.simulate_crash();
        let journal = CopiedJournal::of(&site.scratch.0);
        Self { before: std::fs::read(&site.scratch.0).unwrap(), journal, ..site }
    }

    /// Restores the state after the crash.
    fn put_back(&self) {
        std::fs::write(&self.scratch.0, &self.before).unwrap();
        self.journal.put_back(&self.scratch.0);
    }

    fn open(&self) -> Result<Pool> {
        Pool::options().domain(self.domain).recovery_threads(1).open(&self.scratch.0)
    }

    /// Opens the pool after the crash, lets its tree grow, creates and drops another one, and closes the pool. If a
    /// step fails, the rest is attempted nevertheless.
    fn live(&self) -> Told {
        let mut told = Told { items: (0..ITEMS).collect(), ..Told::default() };
        let Some(pool) = told.of(self.open()) else { return told };
        if let Some(tree) = told.of(self.shape.open::<&str, &[u8]>(&pool, "t")) {
            for number in ITEMS..2 * ITEMS {
                if told.of(tree.insert(&key(number), &value(number))).is_some() {
                    told.items.insert(number);
                }
            }
        }
        let created = told.of(self.shape.create::<&str, &[u8]>(&pool, "u"));
        told.created = Some(created.is_some());
        if let Some(tree) = created {
            told.of(tree.insert("here", b"now"));
            drop(tree);
            told.dropped = Some(told.of(pool.drop_tree("u")).is_some());
        }
        told.of(pool.close().map_err(Error::from));
        told
    }

    /// Compares the contents of a pool with the acknowledged operations.
    fn compare(&self, told: &Told, what: &str) {
        let pool = self.open().unwrap_or_else(|error| panic!("{what}: opened again: {error}"));
        assert_eq!(pool.check(), [], "{what}");
        let tree: Texts = self.shape.open(&pool, "t").unwrap();
        assert_eq!(tree.check(), [], "{what}");
        for number in 0..2 * ITEMS {
            match tree.get(&key(number)).unwrap() {
                // A write that returned an error may be present only if its durability was in doubt.
                None => assert!(!told.items.contains(&number), "{what}: {number} is lost"),
                found => assert_eq!(found, Some(value(number)), "{what}"),
            }
        }
        drop(tree);
        match self.shape.open::<&str, &[u8]>(&pool, "u") {
            Ok(tree) => {
                assert!(told.created.is_some() && told.dropped != Some(true), "{what}: u is back");
                assert_eq!(tree.check(), [], "{what}");
            }
            Err(Error::NoSuchTree { .. }) => {
                assert!(told.created != Some(true) || told.dropped.is_some(), "{what}: u is lost");
            }
            Err(error) => panic!("{what}: u: {error}"),
        }
        pool.close().unwrap();
    }
}

/// Returns the number of the process's descriptors and mappings of pools.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains("bristlecone-test")).count();
    (std::fs::read_dir("/proc/self/fd").unwrap().count(), mapped)
}

/// Returns whether an error includes that of the system call.
fn is_clear(error: &Error) -> bool {
    matches!(error, Error::Io { .. } | Error::MediumFull { .. } | Error::DurabilityLost) || error.is_no_room()
}

/// Number of failures of each call.
type Counts = BTreeMap<&'static str, usize>;

/// Runs something with each of its calls failing in turn: all of the first `dense` ones, and of the others fewer and
/// fewer.
fn refuse_each(counts: &mut Counts, dense: usize, mut run: impl FnMut(usize, Errno) -> bool) {
    for answer in share(ANSWERS) {
        let mut nth = 0;
        while !run(nth, answer) {
            *counts.entry(failpoint::refused().unwrap()).or_default() += 1;
            nth += 1 + nth.saturating_sub(dense) / 8;
        }
        assert!(nth > 0, "no call was refused");
    }
}

/// Asserts that errors occur only with a cause, and include it.
fn assert_clear(errors: &[Error], answer: Errno, what: &str) {
    let again = answer == Errno::INTR && failpoint::refused().is_some_and(|call| AGAIN.contains(&call));
    assert!(!again || errors.is_empty(), "{what}: {errors:?}");
    for error in errors {
        assert!(is_clear(error), "{what}: {error:?}");
    }
}

fn lives(directory: &str, domains: &[Domain], shapes: impl IntoIterator<Item = Configuration>) {
    let mut counts = Counts::new();
    for shape in shapes {
        for &domain in domains {
            let site = Site::new(shape, domain, directory);
            refuse_each(&mut counts, 60, |nth, answer| {
                site.put_back();
                let free = held();
                failpoint::refuse(nth, answer);
                let told = site.live();
                let untouched = failpoint::cease();
                let what = format!("{shape:?} {domain} {answer:?} {nth} ({:?})", failpoint::refused());
                assert_eq!(held(), free, "{what}: something is left open");
                assert_clear(&told.errors, answer, &what);
                assert!(!untouched || told.errors.is_empty(), "{what}");
                site.compare(&told, &what);
                untouched
            });
        }
    }
    println!("{directory}: {counts:?}");
}

#[test]
fn opening_growing_dropping_and_closing_in_memory() {
    if is_alone("failing_calls::opening_growing_dropping_and_closing_in_memory") {
        lives("/dev/shm", &[Domain::Process, Domain::Msync], small());
    }
}

#[test]
fn opening_growing_dropping_and_closing_in_files() {
    if is_alone("failing_calls::opening_growing_dropping_and_closing_in_files") {
        lives(std::env::temp_dir().to_str().unwrap(), &[Domain::Process], small());
    }
}

#[test]
fn opening_growing_dropping_and_closing_with_a_journal() {
    if is_alone("failing_calls::opening_growing_dropping_and_closing_with_a_journal") {
        lives("/dev/shm", &[Domain::Journal], share(small()));
    }
}

/// A pool whose creation failed does not exist, and does not prevent the next creation.
#[test]
fn creating_a_pool_with_a_tree() {
    if !is_alone("failing_calls::creating_a_pool_with_a_tree") {
        return;
    }
    let mut counts = Counts::new();
    for shape in small() {
        let scratch = Scratch::new();
        let beside = scratch.0.with_extension("");
        let create = |told: &mut Told| {
            let options = Pool::options().max_bytes(16 << 20).create_new(true).domain(Domain::Process);
            let pool = told.of(options.open(&scratch.0))?;
            let tree: Texts = told.of(shape.create(&pool, "t"))?;
            if told.of(tree.insert(&key(0), &value(0))).is_some() {
                told.items.insert(0);
            }
            drop(tree);
            told.of(pool.close().map_err(Error::from))
        };
        refuse_each(&mut counts, 60, |nth, answer| {
            let free = held();
            failpoint::refuse(nth, answer);
            let mut told = Told::default();
            create(&mut told);
            let untouched = failpoint::cease();
            let what = format!("{shape:?} {answer:?} {nth} ({:?})", failpoint::refused());
            assert_eq!(held(), free, "{what}: something is left open");
            assert_clear(&told.errors, answer, &what);
            if scratch.0.exists() {
                let pool = Pool::options().open(&scratch.0).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(pool.check(), [], "{what}");
                match shape.open::<&str, &[u8]>(&pool, "t") {
                    Ok(tree) => {
                        assert!((told.items.len() as u64..2).contains(&tree.len().unwrap()), "{what}")
                    }
                    Err(Error::NoSuchTree { .. }) => assert!(told.items.is_empty(), "{what}"),
                    Err(error) => panic!("{what}: {error}"),
                }
            }
            let _ = std::fs::remove_file(&scratch.0);
            let named = beside.file_name().unwrap().to_str().unwrap();
            let left = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name());
            let left: Vec<_> = left.filter(|name| name.to_str().unwrap().contains(named)).collect();
            assert!(left.is_empty(), "{what}: {left:?}");
            untouched
        });
    }
    println!("{counts:?}");
}

/// A failed salvage leaves no pool, and a successful one is complete.
#[test]
fn salvaging_a_pool() {
    if !is_alone("failing_calls::salvaging_a_pool") {
        return;
    }
    let mut counts = Counts::new();
    for shape in small() {
        let (site, to) = (Site::new(shape, Domain::Process, "/dev/shm"), Scratch::new());
        refuse_each(&mut counts, 12, |nth, answer| {
            let free = held();
            failpoint::refuse(nth, answer);
            let salvaged = Pool::options().max_bytes(64 << 20).salvage(&site.scratch.0, &to.0);
            let untouched = failpoint::cease();
            let what = format!("{shape:?} {answer:?} {nth} ({:?})", failpoint::refused());
            assert_eq!(held(), free, "{what}: something is left open");
            match salvaged {
                Ok(salvage) => {
                    assert!(salvage.items().0 == ITEMS || !salvage.is_whole(), "{what}: {salvage:?}");
                    assert!(!untouched || salvage.is_whole(), "{what}: {salvage:?}");
                    let pool = Pool::options().open(&to.0).unwrap();
                    assert_eq!(
                        (pool.check(), pool.check_tree("t").unwrap()),
                        (vec![], (salvage.items().0, vec![]))
                    );
                }
                Err(error) => {
                    assert_clear(&[error], answer, &what);
                    assert!(!to.0.exists(), "{what}: half of it is there");
                }
            }
            let _ = std::fs::remove_file(&to.0);
            untouched
        });
        assert_eq!(std::fs::read(&site.scratch.0).unwrap(), site.before, "{shape:?}: salvage only reads");
    }
    println!("{counts:?}");
}
