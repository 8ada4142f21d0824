//! A key of NBTree that is updated each time a thread that replaces its leaf has carried its value
//! over.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use bristlecone::lab::{AnyMedium, pool_on_any};
use bristlecone::{Design, Domain, Medium, Native, Tree};
use bristlecone_pm::{Geometry, PoolFile, Region, Step};

const GEOMETRY: Geometry = Geometry { chunk_bytes: 64 << 10, chunks_max: 8, trees_max: 1 };
/// Number of slots of the leaf.
const SLOTS: u64 = 7;
const HOT: u64 = 3;
/// A thread that copies this often would never end.
const WITHOUT_END: u64 = 1000;
/// Maximum number of copies: before writers are asked to stop, and once more for each of them.
const ROUNDS_MAX: u64 = 8;

thread_local! {
    /// Whether this thread replaces the leaf.
    static REPLACES: Cell<bool> = const { Cell::new(false) };
}

/// Lets another thread update the key before each possible seal.
#[derive(Clone)]
struct Meddling {
    native: Arc<Native>,
    /// Requests an update, and receives its completion.
    update: Arc<Mutex<(Sender<u64>, Receiver<()>)>>,
    rounds: Arc<AtomicU64>,
}

impl Meddling {
    fn meddle(&self) {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed) + 1;
        if round <= WITHOUT_END {
            let update = self.update.lock().unwrap();
            update.0.send(round).unwrap();
            update.1.recv().unwrap();
        }
    }
}

impl Medium for Meddling {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.native.load(cell, order)
    }

    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        self.native.store(cell, value, order);
    }

    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        self.native.compare_exchange(cell, current, new)
    }

    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step) {
        self.native.flush_lines(start, bytes, step);
        if step == "nbtree sync.2" && REPLACES.get() {
            self.meddle();
        }
    }

    fn drain(&self, step: Step) {
        self.native.drain(step);
    }

    fn order_line(&self) {
        self.native.order_line();
    }

    fn reached(&self, step: Step) {
        if step == "nbtree sync.1" && REPLACES.get() && self.rounds.load(Ordering::Relaxed) == 0 {
            self.meddle();
        }
    }
}

#[test]
fn nbtree_replaces_a_leaf_whose_value_changes_all_the_time() {
    let ((ask, asked), (tell, told)) = (channel(), channel());
    let update = Arc::new(Mutex::new((ask, told)));
    let medium = Meddling { native: Arc::new(Native::new(Domain::Adr)), update, rounds: Arc::default() };
    let meddling = medium.clone();
    let medium: AnyMedium = Box::new(medium);
    let region = Region::memory(GEOMETRY.max_bytes()).unwrap();
    let pool = PoolFile::create_in(region, GEOMETRY, Domain::Adr, medium).unwrap();
    let pool = pool_on_any(pool).unwrap();
    let options = pool.tree_options("t").design(Design::NbTree).option("block_bytes", 128);
    let tree: Tree<u64, u64> = options.create().unwrap();
    (0..SLOTS).for_each(|key| assert_eq!(tree.insert(key, key).unwrap(), None));
    let updates = std::thread::spawn({
        let tree = tree.clone();
        move || {
            let mut last = HOT;
            for value in asked {
                assert_eq!(tree.update(HOT, value).unwrap(), Some(last));
                last = value;
                tell.send(()).unwrap();
            }
            last
        }
    });
    REPLACES.set(true);
    assert_eq!(tree.insert(SLOTS, SLOTS).unwrap(), None);
    REPLACES.set(false);
    let rounds = meddling.rounds.load(Ordering::Relaxed);
    // The updating thread receives the end of the requests.
    *meddling.update.lock().unwrap() = (channel().0, channel().1);
    let last = updates.join().unwrap();
    assert!((2..=ROUNDS_MAX).contains(&rounds), "redrafted {rounds} times");
    assert_eq!(
        (tree.get(HOT).unwrap(), tree.get(SLOTS).unwrap(), tree.len().unwrap()),
        (Some(last), Some(SLOTS), SLOTS + 1)
    );
    assert_eq!(tree.check(), []);
}
