//! No space, in the pool or on its medium: an error after bounded work, and nothing changed, now or after a
//! crash. All other operations continue, and once there is space again, so do writes, without reopening the pool.
//!
//! A full medium is simulated by a limit on the file size, in a separate process, so that no reader of another
//! test delays the release of memory. With
//! `unshare -m sh -c 'mount -t tmpfs none /dev/shm && BRISTLECONE_NO_ROOM_TMPFS=1 SUITE no_room'`, a file system
//! is filled instead, in its own mount namespace; SUITE is the program that cargo made of these tests.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::{CONFIGURATIONS, Configuration, Noise, Scratch, is_alone, share};
use crate::crash_at_every_store::Ending;
use bristlecone::lab::pool_on_any;
use bristlecone::{Error, Key, Native, Pool, Tree, Value};
use bristlecone_pm::{Geometry, OpenOptions, PoolFile};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Small chunks, so that a few items fill many.
const CHUNK_BYTES: u64 = 64 << 10;
/// Number of available chunks.
const CHUNKS: u64 = 18;
/// Number of additional chunks available later.
const MORE_CHUNKS: u64 = 100;

/// The part that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Pool,
    Medium,
}

/// Limits the size of files, or of the file system.
pub fn limit(bytes: Option<u64>) {
    if std::env::var_os("BRISTLECONE_NO_ROOM_TMPFS").is_some() {
        let size = format!("remount,size={}", bytes.unwrap_or(1 << 30));
        assert!(Command::new("mount").args(["-o", &size, "/dev/shm"]).status().unwrap().success());
        return;
    }
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes, maximum }).unwrap();
}

/// A pool with one tree, and its contents.
struct Site<K: Key, V: Value> {
    scratch: Scratch,
    shape: Configuration,
    full: Full,
    key: fn(u64) -> K::Owned,
    key_ref: for<'a> fn(&'a K::Owned) -> K::Ref<'a>,
    value: fn(u64) -> V::Owned,
    value_ref: for<'a> fn(&'a V::Owned) -> V::Ref<'a>,
    accesses: Arc<AtomicU64>,
    model: BTreeMap<K::Owned, V::Owned>,
    /// Number of the next key that was not attempted.
    next: u64,
}

struct Open<K: Key, V: Value> {
    pool: Pool,
    tree: Tree<K, V>,
}

impl<K: Key, V: Value> Site<K, V>
where
    K::Owned: Ord + Clone + Debug,
    V::Owned: PartialEq + Clone + Debug,
{
    /// Creates a pool, and limits the medium if that is to be full.
    fn create(&self) -> Open<K, V> {
        let chunks_max = if self.full == Full::Pool { CHUNKS } else { 8 * CHUNKS };
        let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max, trees_max: 2 };
        self.scratch.format(geometry);
        if self.full == Full::Medium {
            limit(Some(geometry.header_bytes() + CHUNKS * CHUNK_BYTES));
        }
        let pool = self.open_pool(false);
        let tree = self.shape.tree(&pool, "t").create().unwrap();
        Open { pool, tree }
    }

    fn open_pool(&self, read_only: bool) -> Pool {
        let medium = |domain| Ending::never(Native::new(domain), &self.accesses).boxed();
        let path = &self.scratch.0;
        let file = if read_only {
            PoolFile::open_read_only(path, medium)
        } else {
            PoolFile::open(path, &OpenOptions::default(), medium)
        };
        pool_on_any(file.unwrap()).unwrap()
    }

    fn open(&self, read_only: bool) -> Open<K, V> {
        let pool = self.open_pool(read_only);
        let tree = self.shape.tree(&pool, "t").open().unwrap();
        Open { pool, tree }
    }

    /// Writes the next key; returns whether there was space.
    fn insert(&mut self, tree: &Tree<K, V>) -> bool {
        let (key, value) = ((self.key)(self.next), (self.value)(self.next));
        self.next += 1;
        let (key_ref, value_ref) = ((self.key_ref)(&key), (self.value_ref)(&value));
        let done = match self.next % 3 {
            0 => tree.upsert(key_ref, value_ref).map(|()| None),
            1 => tree.insert(key_ref, value_ref),
            _ => match tree.try_insert(key_ref, value_ref) {
                Ok(()) => Ok(None),
                Err(refused) => refused.into_present().map(Some),
            },
        };
        match done {
            Ok(old) => {
                assert_eq!(old, None);
                self.model.insert(key, value);
                true
            }
            Err(error) => {
                self.assert_full(&error);
                assert_eq!(tree.get((self.key_ref)(&key)).unwrap(), None);
                false
            }
        }
    }

    fn assert_full(&self, error: &Error) {
        let right = match self.full {
            Full::Pool => matches!(error, Error::PoolFull { .. }),
            Full::Medium => error.is_no_room() && !matches!(error, Error::PoolFull { .. }),
        };
        assert!(right, "{:?} {:?}: {error}", self.shape, self.full);
    }

    /// Verifies that the tree holds exactly the acknowledged items.
    fn compare(&self, tree: &Tree<K, V>) {
        assert_eq!(
            (tree.len().unwrap(), tree.check()),
            (self.model.len() as u64, vec![]),
            "{:?}",
            self.shape
        );
        assert!(tree.iter().map(Result::unwrap).eq(self.model.clone()), "{:?} {:?}", self.shape, self.full);
    }

    /// Inserts until there is no space, and continues for a while.
    fn fill(&mut self, tree: &Tree<K, V>) {
        while self.insert(tree) {}
        let before = self.accesses.load(Relaxed);
        let done = (0..FURTHER).filter(|_| self.insert(tree)).count();
        let accesses = self.accesses.load(Relaxed) - before;
        println!(
            "{:?} {:?}: {} items, {done} more, {accesses} accesses",
            self.shape,
            self.full,
            self.model.len()
        );
        assert!(accesses < FURTHER * ACCESSES, "{:?}: {accesses} accesses", self.shape);
    }
}

/// Number of writes attempted in a full pool.
const FURTHER: u64 = 3000;
/// Maximum average number of accesses of the medium for each of them: whole nodes, but not all of them.
const ACCESSES: u64 = 400;
/// Number of writes that must succeed once there is space.
const LATER: u64 = 2000;

impl<K: Key, V: Value> Site<K, V>
where
    K::Owned: Ord + Clone + Debug,
    V::Owned: PartialEq + Clone + Debug,
{
    /// Existing items can be read, changed and removed without space, except for values in new records.
    fn change(&mut self, tree: &Tree<K, V>, noise: &mut Noise) {
        let keys: Vec<_> = self.model.keys().step_by(self.model.len() / 3000 + 1).cloned().collect();
        let mut refused = [0; 2];
        for key in keys {
            let (key_ref, old) = ((self.key_ref)(&key), self.model[&key].clone());
            assert_eq!(tree.get(key_ref).unwrap(), Some(old.clone()));
            let remove = noise.below(3) == 0;
            let new = (self.value)(noise.next());
            let done =
                if remove { tree.remove(key_ref) } else { tree.update(key_ref, (self.value_ref)(&new)) };
            match done {
                Ok(found) => {
                    assert_eq!(found, Some(old));
                    if remove {
                        self.model.remove(&key);
                    } else {
                        self.model.insert(key, new);
                    }
                }
                Err(error) => {
                    self.assert_full(&error);
                    assert_eq!(tree.get(key_ref).unwrap(), Some(old));
                    refused[usize::from(remove)] += 1;
                }
            }
        }
        println!("  {refused:?} updates and removals refused");
    }

    /// Removes every second key; returns their number.
    fn remove(&mut self, tree: &Tree<K, V>) -> u64 {
        let keys: Vec<_> = self.model.keys().step_by(2).cloned().collect();
        for key in &keys {
            let old = self.model.remove(key);
            assert_eq!(tree.remove((self.key_ref)(key)).unwrap(), old);
        }
        keys.len() as u64
    }

    /// Frees space; returns the number of additional keys that must fit.
    fn make_room(&mut self, tree: &Tree<K, V>, pool: &Pool) -> u64 {
        if self.full == Full::Pool {
            return self.remove(tree) / 4;
        }
        let full = pool.info().file_bytes.max((CHUNKS + 1) * CHUNK_BYTES);
        limit(Some(full + MORE_CHUNKS * CHUNK_BYTES));
        LATER
    }

    fn run(mut self) {
        let start = std::time::Instant::now();
        let mut noise = Noise(31);
        let Open { pool, tree } = self.create();
        self.fill(&tree);
        self.compare(&tree);
        self.change(&tree, &mut noise);
        self.fill(&tree);
        drop(tree);
        pool.simulate_crash();
        // Neither reading nor recovery needs space.
        self.compare(&self.open(true).tree);
        let Open { pool, tree } = self.open(false);
        self.compare(&tree);
        self.fill(&tree);
        self.change(&tree, &mut noise);
        self.compare(&tree);
        let later = self.make_room(&tree, &pool);
        let refused = (0..later).filter(|_| !self.insert(&tree)).count();
        assert_eq!(refused, 0, "{:?} {:?}: there is room again for {later}", self.shape, self.full);
        self.compare(&tree);
        drop(tree);
        pool.simulate_crash();
        self.compare(&self.open(false).tree);
        println!("  {:?}", start.elapsed());
    }
}

fn words(shape: Configuration, full: Full) -> Site<u64, u64> {
    Site {
        scratch: Scratch::new(),
        shape,
        full,
        key: |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        key_ref: |key| *key,
        value: |n| n,
        value_ref: |value| *value,
        accesses: Arc::default(),
        model: BTreeMap::new(),
        next: 0,
    }
}

fn texts(shape: Configuration, full: Full) -> Site<&'static str, &'static [u8]> {
    Site {
        scratch: Scratch::new(),
        shape,
        full,
        key: |n| format!("key {:07}", n.wrapping_mul(0x9e37_79b9) % 10_000_000),
        key_ref: |key| key,
        value: |n| vec![n as u8; [30, 45, 100][n as usize % 3]],
        value_ref: |value| value,
        accesses: Arc::default(),
        model: BTreeMap::new(),
        next: 0,
    }
}

/// Runs it with every configuration, and fails with a list of all failures.
fn each_shape(run: impl Fn(Configuration)) {
    let fails = |shape: &&Configuration| {
        let failed = catch_unwind(AssertUnwindSafe(|| run(**shape))).is_err();
        limit(None);
        failed
    };
    let failed: Vec<_> = share(CONFIGURATIONS).into_iter().filter(fails).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn words_in_a_full_pool() {
    if is_alone("no_space::words_in_a_full_pool") {
        each_shape(|shape| words(shape, Full::Pool).run());
    }
}

#[test]
fn texts_in_a_full_pool() {
    if is_alone("no_space::texts_in_a_full_pool") {
        each_shape(|shape| texts(shape, Full::Pool).run());
    }
}

#[test]
fn words_on_a_full_medium() {
    if is_alone("no_space::words_on_a_full_medium") {
        each_shape(|shape| words(shape, Full::Medium).run());
    }
}

#[test]
fn texts_on_a_full_medium() {
    if is_alone("no_space::texts_on_a_full_medium") {
        each_shape(|shape| texts(shape, Full::Medium).run());
    }
}

const THREADS: u64 = 4;
/// Number of failures for lack of space of each thread.
const REFUSED: usize = 200;

/// Several threads run out of space together: each key is present, or its write failed.
fn together(shape: Configuration, full: Full) {
    let mut site = words(shape, full);
    let Open { pool, tree } = site.create();
    let accepted: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let (site, tree) = (&site, &tree);
        let work = |thread| {
            move || {
                let (mut accepted, mut refused) = (Vec::new(), 0);
                for n in (thread..).step_by(THREADS as usize) {
                    match tree.insert((site.key)(n), n) {
                        Ok(old) => {
                            assert_eq!(old, None);
                            accepted.push(n);
                        }
                        Err(error) => {
                            site.assert_full(&error);
                            refused += 1;
                        }
                    }
                    if refused == REFUSED {
                        break;
                    }
                }
                accepted
            }
        };
        let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    site.model = accepted.into_iter().flatten().map(|n| ((site.key)(n), n)).collect();
    site.compare(&tree);
    drop(tree);
    pool.simulate_crash();
    let Open { tree, .. } = site.open(false);
    site.compare(&tree);
}

#[test]
fn several_threads_in_a_full_pool() {
    each_shape(|shape| together(shape, Full::Pool));
}

#[test]
fn several_threads_on_a_full_medium() {
    if is_alone("no_space::several_threads_on_a_full_medium") {
        each_shape(|shape| together(shape, Full::Medium));
    }
}
