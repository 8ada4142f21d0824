//! A tree on simulated cores, and the counts of its operations.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bristlecone::lab::AnyMedium;
use bristlecone::{Domain, Key, Pool, Tree};
use bristlecone_baselines::part_of;
use bristlecone_device::Layout;
use bristlecone_device::cores::{CoreTally, Cores, Hot, Machine, SimulatorHeap};
use bristlecone_explore::targets::medium_pool;
use bristlecone_matrix::{Configuration, Items};
use bristlecone_pm::{CHUNK_BYTES, Geometry, Region};
use bristlecone_random::mix;

#[global_allocator]
static HEAP: SimulatorHeap = SimulatorHeap::new();

pub const THREADS: usize = 8;
/// Keys that each thread loads.
pub const KEYS: u64 = 1500;
const KIND: u8 = 1;

/// The counts of one kind of operation.
pub struct Cost {
    pub tally: CoreTally,
    pub hot: Vec<Hot>,
}

impl Cost {
    /// Returns lines per operation that were taken from other cores by stores.
    pub fn written(&self) -> f64 {
        self.tally.shared_writes as f64 / self.tally.operations as f64
    }

    /// Returns how often the line moved that moved most, per operation, among lines in DRAM and of the pool's own.
    pub fn hottest(&self) -> f64 {
        let shared = self.hot.iter().filter(|line| !line.place.starts_with("leaf"));
        shared.map(|line| line.moved).max().unwrap_or(0) as f64 / self.tally.operations as f64
    }
}

/// A tree of a codec on simulated cores. Fields are dropped in order: the tree before the cores that it runs on.
pub struct Bench<I: Items> {
    tree: Box<Tree<I::K, I::V>>,
    _pool: Pool,
    cores: Cores,
    /// Runs of one process share the simulated heap: one at a time.
    _one: MutexGuard<'static, ()>,
}

impl<I: Items> Bench<I> {
    /// Creates a tree, and loads it.
    pub fn new(configuration: &Configuration) -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max: 256, trees_max: 2 };
        let region = Region::memory(geometry.max_bytes()).unwrap();
        let layout = Layout { geometry, part_of };
        let cores = Cores::new(&Machine::ICELAKE, THREADS, (&region, layout), Domain::Adr, true).unwrap();
        let pool = medium_pool(cores.medium(), region, geometry, Domain::Adr).unwrap();
        let options = configuration.options.iter().map(|(name, value)| ((*name).to_owned(), *value));
        let mut options: Vec<_> = options.collect();
        if configuration.design == bristlecone::Design::CclBTree {
            options.push(("collector_threads".to_owned(), 0));
        }
        let design = bristlecone_baselines::AnyDesign::Library(configuration.design);
        let tree = Box::new(design.create::<_, _, AnyMedium>(&pool, "t", &options).unwrap());
        let mut bench = Self { tree, _pool: pool, cores, _one: one };
        bench.each(KEYS, |number| number, insert::<I>);
        bench
    }

    /// Executes an operation on keys chosen by `choose` from the numbers of all operations, on every thread.
    pub fn each(
        &mut self,
        operations: u64,
        choose: impl Fn(u64) -> u64,
        run: impl Fn(&Tree<I::K, I::V>, u64),
    ) -> Cost {
        self.cores.run(|simulated, thread| {
            for at in 0..operations {
                // Threads have different keys, in an order different from the keys'.
                let number = choose(thread as u64 * operations + at);
                // Odd numbers: keys that follow each other only by chance.
                simulated.operation(KIND, || run(&self.tree, 7 + 2 * number));
            }
        });
        let outcome = self.cores.take(64);
        Cost { tally: outcome.tallies[KIND], hot: outcome.hot }
    }
}

/// Returns one of the loaded keys.
pub fn uniform(number: u64) -> u64 {
    mix(number) % (KEYS * THREADS as u64)
}

/// Returns one of the loaded keys, by a power law: the k-th with a probability of about 1/k.
pub fn skewed(number: u64) -> u64 {
    let share = (mix(number) >> 11) as f64 / (1_u64 << 53) as f64;
    mix(((KEYS * THREADS as u64) as f64).powf(share) as u64) % (KEYS * THREADS as u64)
}

/// Returns a key that is not loaded.
pub fn absent(number: u64) -> u64 {
    KEYS * THREADS as u64 + number
}

pub fn insert<I: Items>(tree: &Tree<I::K, I::V>, number: u64) {
    let (key, value) = (I::key(number), I::value(number));
    tree.upsert(I::key_ref(&key), I::value_ref(&value)).unwrap();
}

pub fn get<I: Items>(tree: &Tree<I::K, I::V>, number: u64) {
    let key = I::key(number);
    assert!(tree.get_with(I::key_ref(&key), |_| ()).unwrap().is_some());
}

pub fn update<I: Items>(tree: &Tree<I::K, I::V>, number: u64) {
    let (key, value) = (I::key(number), I::value(number + 1));
    assert!(tree.update(I::key_ref(&key), I::value_ref(&value)).unwrap().is_some());
}

pub fn remove<I: Items>(tree: &Tree<I::K, I::V>, number: u64) {
    let key = I::key(number);
    assert!(tree.remove(I::key_ref(&key)).unwrap().is_some());
}

pub fn scan<I: Items>(tree: &Tree<I::K, I::V>, number: u64) {
    let key = I::key(number);
    let from = <I::K as Key>::lend(&key);
    assert!(tree.range(from..).take(20).map(Result::unwrap).count() > 0);
}
