//! Common test support: a pool file that is removed at the end, and reproducible noise.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use bristlecone::{
    CasError, Design, KeepIndex, Key, Native, Pool, PoolOptions, Result, Tree, TryInsertError, Value,
};
use bristlecone_baselines::{AnyDesign, Baseline};
pub use bristlecone_matrix::{
    CONFIGURATIONS, Cell, Codec, Configuration, CopiedJournal, Items, Visit, by_level, lose_pages,
    remove_pool, suites,
};
use bristlecone_pm::{Domain, Geometry, PoolFile, Region};

/// Returns this run's share of the given items: one of twelve in a quick run, different ones each day, at
/// least one.
pub fn share<T>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    bristlecone_matrix::share(all, 12)
}

/// Every design with its default options.
pub fn defaults() -> impl Iterator<Item = Configuration> {
    CONFIGURATIONS.iter().copied().filter(|shape| shape.options.is_empty())
}

/// Every design with the smallest leaves, without configurations that need small logs.
pub fn small() -> impl Iterator<Item = Configuration> {
    let names = ["sstree-1", "nbtree-7", "cclbtree-4-wide", "lodgetree-3-wide", "wotree-2"];
    assert_eq!(names.len(), Design::ALL.len(), "a design has no small shape");
    names.into_iter().map(|name| Configuration::named(name).expect("it is in the table"))
}

/// Returns the existing value that prevented an insert.
///
/// # Panics
///
/// Panics if the operation failed.
pub fn inserted<T>(done: std::result::Result<(), TryInsertError<T>>) -> Option<T> {
    done.err().map(|present| present.into_present().unwrap())
}

/// Returns the value found instead of the expected one.
///
/// # Panics
///
/// Panics if the operation failed.
pub fn swapped<T>(done: std::result::Result<(), CasError<T>>) -> std::result::Result<(), Option<T>> {
    done.map_err(|differs| differs.into_found().unwrap())
}

/// A baseline with a node size; it stores words only.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    baseline: Baseline,
    node_lines: u64,
}

/// Baselines in a size that splits immediately and in one that papers use; with enough time, in all of these.
pub fn baselines() -> impl Iterator<Item = Beside> {
    const SIZES: &[u64] = &[2, 16, 4, 32];
    let sizes = &SIZES[..by_level(2, 4, 4)];
    let of = move |&baseline| sizes.iter().map(move |&node_lines| Beside { baseline, node_lines });
    Baseline::ALL.iter().flat_map(of)
}

/// Baselines in the size that splits immediately.
pub fn small_baselines() -> impl Iterator<Item = Beside> {
    baselines().filter(|beside| beside.node_lines == 2)
}

/// A configuration of trees.
pub trait Plant: Copy + std::fmt::Debug + Send + Sync {
    fn create<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>>;
    fn open<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>>;

    /// Opens the pool for its trees, and creates it if necessary.
    fn pool(&self, scratch: &Scratch) -> Pool {
        scratch.open()
    }

    /// Ends a pool, whose trees are closed, as a crash does.
    fn crash(&self, pool: Pool, _: &Scratch) {
        pool.simulate_crash();
    }
}

impl Plant for Cell {
    fn create<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        self.configuration.create(pool, name)
    }

    fn open<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        self.configuration.open(pool, name)
    }

    fn pool(&self, scratch: &Scratch) -> Pool {
        let is_new = !scratch.0.exists();
        let pool = scratch.in_cell(self).keep_index(KeepIndex::Always).open(&scratch.0).unwrap();
        for number in (0..self.pool_size.beside).filter(|_| is_new) {
            let design = Design::ALL[number as usize % Design::ALL.len()];
            let beside = pool.tree_options(&format!("beside {number}")).design(design);
            let tree = beside.create::<&str, u64>().unwrap();
            (0..50).for_each(|at| assert_eq!(tree.insert(&format!("key {at}"), at).unwrap(), None));
        }
        pool
    }

    /// Of a pool with a journal, every other crash is a power failure, which takes the pool's pages with it.
    fn crash(&self, pool: Pool, scratch: &Scratch) {
        static CRASHES: AtomicUsize = AtomicUsize::new(0);
        pool.simulate_crash();
        if self.has_journal() && CRASHES.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            lose_pages(&scratch.0);
        }
    }
}

impl Plant for Configuration {
    fn create<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        self.tree(pool, name).create()
    }

    fn open<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        self.tree(pool, name).open()
    }
}

impl Plant for Beside {
    fn create<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        let options = [("node_lines".to_owned(), self.node_lines)];
        AnyDesign::Baseline(self.baseline).create::<_, _, Native>(pool, name, &options)
    }

    fn open<K: Key, V: Value>(&self, pool: &Pool, name: &str) -> Result<Tree<K, V>> {
        AnyDesign::Baseline(self.baseline).open::<_, _, Native>(pool, name)
    }
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The domain of pools that this thread creates with [`Scratch::options`], if not the detected one.
    pub static DOMAIN: std::cell::Cell<Option<Domain>> = const { std::cell::Cell::new(None) };
}

pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        Self::within("/dev/shm")
    }

    pub fn within(directory: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            PathBuf::from(format!("{directory}/bristlecone-test-{}-{number}.pool", std::process::id()));
        let _ = std::fs::remove_file(&path);
        Self(path)
    }

    pub fn options(&self) -> PoolOptions {
        let options = Pool::options().max_bytes(256 << 20).create(true);
        match DOMAIN.get() {
            Some(domain) => options.domain(domain),
            None => options,
        }
    }

    /// Options for opening a pool whose file is damaged after its close: a saved index would not read its
    /// leaves again.
    pub fn without_index(&self) -> PoolOptions {
        self.options().keep_index(KeepIndex::Never)
    }

    /// Options for opening the pool of a cell.
    pub fn in_cell(&self, cell: &Cell) -> PoolOptions {
        self.options().max_bytes(cell.pool_size.bytes()).domain(cell.domain)
    }

    /// Creates an empty pool with a geometry that options cannot express: the header is the whole file.
    pub fn format(&self, geometry: Geometry) {
        let (region, medium) = (Region::memory(geometry.max_bytes()).unwrap(), Native::new(Domain::Process));
        let made = PoolFile::create_in(region, geometry, Domain::Process, medium).unwrap();
        let header = made.words(0, geometry.header_bytes() as usize / 8);
        let header: Vec<u8> = header.iter().flat_map(|word| word.load(made.medium()).to_le_bytes()).collect();
        std::fs::write(&self.0, header).unwrap();
    }

    pub fn open(&self) -> Pool {
        self.try_open().unwrap()
    }

    pub fn try_open(&self) -> Result<Pool> {
        self.options().open(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let reader = Pool::options().read_only(true).open(&self.0);
        if let Ok(pool) = reader {
            let _ = std::fs::remove_file(segment_of(&pool));
        }
        remove_pool(&self.0);
    }
}

/// Returns the path of a pool's shared index file.
pub fn segment_of(pool: &Pool) -> PathBuf {
    PathBuf::from(format!("/dev/shm/bristlecone-{}-3", pool.info().uuid))
}

/// xorshift64.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

const ALONE: &str = "BRISTLECONE_TEST_ALONE";

/// Runs a test in a separate process; returns whether this is that process. It has its own limits, and no
/// thread of another test delays the release of memory.
pub fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--nocapture", "--test-threads=1", test]).env(ALONE, "1");
    let ran = child.output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let passed = ran.status.success() && said.contains("1 passed");
    assert!(passed, "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    println!("{said}");
    false
}
