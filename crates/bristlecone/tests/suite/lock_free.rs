//! No operation on a leaf of NBTree waits for another one. A thread is stopped at every access to
//! the medium and at every named step, one run each. Meanwhile another thread completes every kind
//! of operation on the same leaf, through many splits. Then the first one continues.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bristlecone::lab::{AnyMedium, pool_on_any};
use bristlecone::{Design, Domain, Medium, Native, Tree};
use bristlecone_pm::{Geometry, PoolFile, Region, Step};

use crate::common::{inserted, swapped};

const GEOMETRY: Geometry = Geometry { chunk_bytes: 64 << 10, chunks_max: 8, trees_max: 1 };
/// Slots of the leaves.
const SLOTS: u64 = 7;
/// The key of the stopped thread's operation.
const KEY: u64 = 103;
/// Time after which the other thread counts as waiting.
const PATIENCE: Duration = Duration::from_secs(100);

thread_local! {
    /// Number of accesses until this thread stops; zero for threads that never do.
    static LEFT: Cell<u64> = const { Cell::new(0) };
}

/// Stops a thread at its n-th access, until it is told to continue.
struct Parking {
    native: Native,
    seen: Mutex<(Sender<Step>, Receiver<()>)>,
}

impl Parking {
    fn pass(&self, step: Step) {
        if LEFT.get() > 0 {
            LEFT.set(LEFT.get() - 1);
            if LEFT.get() == 0 {
                let ends = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                ends.0.send(step).unwrap();
                ends.1.recv().unwrap();
            }
        }
    }
}

impl Medium for Parking {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.pass("a load");
        self.native.load(cell, order)
    }

    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        self.pass("a store");
        self.native.store(cell, value, order);
    }

    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        self.pass("a compare-and-swap");
        self.native.compare_exchange(cell, current, new)
    }

    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step) {
        self.pass(step);
        self.native.flush_lines(start, bytes, step);
    }

    fn drain(&self, step: Step) {
        self.pass(step);
        self.native.drain(step);
    }

    fn order_line(&self) {
        self.native.order_line();
    }

    fn reached(&self, step: Step) {
        self.pass(step);
    }
}

type Words = Tree<u64, u64>;

/// The stopped thread's operation on [`KEY`], and the leaf's contents before.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    /// Keys of the leaf; others have their own leaves.
    keys: &'static [u64],
    /// Keys that were removed.
    removed: &'static [u64],
    act: fn(&Words),
    /// The resulting value of the key.
    after: Option<u64>,
}

const FULL: &[u64] = &[100, 101, 102, 103, 104, 105, 106];
const FULL_WITHOUT: &[u64] = &[100, 101, 102, 104, 105, 106, 107];
const NEW: u64 = 9;

const CASES: &[Case] = &[
    Case { name: "get", keys: FULL, removed: &[], act: |t| _ = t.get(KEY).unwrap(), after: Some(KEY) },
    Case {
        name: "scan",
        keys: FULL,
        removed: &[],
        act: |t| _ = t.iter().map(Result::unwrap).count(),
        after: Some(KEY),
    },
    Case {
        name: "scan back",
        keys: FULL,
        removed: &[],
        act: |t| _ = t.iter().map(Result::unwrap).rev().count(),
        after: Some(KEY),
    },
    Case {
        name: "update",
        keys: FULL,
        removed: &[],
        act: |t| _ = t.update(KEY, NEW).unwrap(),
        after: Some(NEW),
    },
    Case {
        name: "upsert",
        keys: FULL,
        removed: &[],
        act: |t| _ = t.insert(KEY, NEW).unwrap(),
        after: Some(NEW),
    },
    Case {
        name: "swap",
        keys: FULL,
        removed: &[],
        act: |t| _ = swapped(t.compare_and_swap(KEY, Some(KEY), Some(NEW))),
        after: Some(NEW),
    },
    Case { name: "remove", keys: FULL, removed: &[], act: |t| _ = t.remove(KEY).unwrap(), after: None },
    Case {
        name: "remove if",
        keys: FULL,
        removed: &[],
        act: |t| _ = swapped(t.compare_and_swap(KEY, Some(KEY), None)),
        after: None,
    },
    Case {
        name: "insert",
        keys: &[100, 102, 104],
        removed: &[],
        act: |t| _ = t.insert(KEY, NEW).unwrap(),
        after: Some(NEW),
    },
    Case {
        name: "insert new",
        keys: &[100, 102, 104],
        removed: &[],
        act: |t| _ = inserted(t.try_insert(KEY, NEW)),
        after: Some(NEW),
    },
    Case {
        name: "split",
        keys: FULL_WITHOUT,
        removed: &[],
        act: |t| _ = t.insert(KEY, NEW).unwrap(),
        after: Some(NEW),
    },
    Case {
        name: "rewrite",
        keys: FULL_WITHOUT,
        removed: &[100, 101, 105, 106, 107],
        act: |t| _ = t.insert(KEY, NEW).unwrap(),
        after: Some(NEW),
    },
    Case {
        name: "free",
        keys: FULL,
        removed: &[100, 101, 102, 104, 105, 106],
        act: |t| _ = t.remove(KEY).unwrap(),
        after: None,
    },
];

/// Every kind of operation on the leaf, with its expected result; splits and frees leaves often.
fn everything(tree: &Words, model: &mut BTreeMap<u64, u64>) {
    for round in 0..3_u64 {
        for (&key, &value) in model.iter() {
            assert_eq!(tree.get(key).unwrap(), Some(value), "get {key}");
        }
        for key in (90..120).filter(|key| *key != KEY) {
            let value = key * 1000 + round;
            assert_eq!(tree.update(key, value).unwrap(), model.get(&key).copied(), "update {key}");
            if let Some(old) = model.get_mut(&key) {
                *old = value;
            }
            assert_eq!(tree.insert(key, value + 1).unwrap(), model.insert(key, value + 1), "insert {key}");
            assert_eq!(inserted(tree.try_insert(key, 1)), Some(value + 1), "try_insert {key}");
            tree.compare_and_swap(key, Some(value + 1), Some(value)).unwrap();
            model.insert(key, value);
        }
        let expected: Vec<_> = model.iter().map(|(key, value)| (*key, *value)).collect();
        let others = |items: &mut dyn Iterator<Item = (u64, u64)>| {
            items.filter(|item| item.0 != KEY).collect::<Vec<_>>()
        };
        assert_eq!(others(&mut tree.iter().map(Result::unwrap)), expected);
        let mut back = others(&mut tree.iter().map(Result::unwrap).rev());
        back.reverse();
        assert_eq!(back, expected);
        for key in (90..120).filter(|key| *key != KEY && (round == 1 || key % 3 != round)) {
            assert_eq!(tree.remove(key).unwrap(), model.remove(&key), "remove {key}");
        }
    }
}

/// The same with the key of the stopped thread, whose change may or may not have happened.
fn contend(tree: &Words, before: Option<u64>, after: Option<u64>) {
    let found = tree.get(KEY).unwrap();
    assert!(found == before || found == after, "{found:?}");
    assert_eq!(tree.insert(KEY, 77).unwrap(), found);
    tree.compare_and_swap(KEY, Some(77), Some(78)).unwrap();
    assert_eq!(tree.update(KEY, 79).unwrap(), Some(78));
    assert_eq!(tree.remove(KEY).unwrap(), Some(79));
    assert_eq!(
        (tree.get(KEY).unwrap(), tree.update(KEY, 1).unwrap(), tree.remove(KEY).unwrap()),
        (None, None, None)
    );
    tree.try_insert(KEY, 80).unwrap();
    assert_eq!(tree.get(KEY).unwrap(), Some(80));
}

/// Stops at the n-th access. Returns `None` if there are fewer.
fn stop_at(case: Case, domain: Domain, n: u64) -> Option<Step> {
    let (to_main, from_victim) = channel();
    let (to_victim, from_main) = channel();
    let medium = Parking { native: Native::new(domain), seen: Mutex::new((to_main, from_main)) };
    let medium: AnyMedium = Box::new(medium);
    let region = Region::memory(GEOMETRY.max_bytes()).unwrap();
    let pool = pool_on_any(PoolFile::create_in(region, GEOMETRY, domain, medium).unwrap()).unwrap();
    let options = pool.tree_options("t").design(Design::NbTree).option("block_bytes", 128);
    let tree: Arc<Words> = Arc::new(options.create().unwrap());
    // An ascending load leaves full leaves behind, so the leaf with the tested keys begins with the
    // first of them, and is the last one unless it is full.
    let mut model = BTreeMap::new();
    let right = if case.keys.len() as u64 == SLOTS { 1000..1000 + SLOTS } else { 0..0 };
    let keys = (0..SLOTS).chain(case.keys.iter().copied()).chain(right);
    for key in keys {
        tree.insert(key, key).unwrap();
        model.insert(key, key);
    }
    for key in case.removed {
        tree.remove(*key).unwrap();
        model.remove(key);
    }
    let before = model.remove(&KEY);

    let victim = std::thread::spawn({
        let tree = Arc::clone(&tree);
        move || {
            LEFT.set(n);
            (case.act)(&tree);
            LEFT.replace(0) == 0
        }
    });
    let step = loop {
        match from_victim.recv_timeout(Duration::from_millis(1)) {
            Ok(step) => break Some(step),
            Err(RecvTimeoutError::Disconnected) => panic!("the medium is gone"),
            Err(RecvTimeoutError::Timeout) if victim.is_finished() => break from_victim.try_recv().ok(),
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    if let Some(step) = step {
        let (done, ended) = channel();
        std::thread::spawn({
            let tree = Arc::clone(&tree);
            move || {
                // A check may see the stopped thread's intermediate state, and must end.
                drop(tree.check());
                everything(&tree, &mut model);
                contend(&tree, before, case.after);
                done.send(model).unwrap();
            }
        });
        match ended.recv_timeout(PATIENCE) {
            Ok(others) => model = others,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{case:?}, {domain:?}: a thread waits for the stopped one at access {n}, {step}")
            }
            Err(RecvTimeoutError::Disconnected) => {
                panic!("{case:?}, {domain:?}: a thread was at access {n}, {step}")
            }
        }
        to_victim.send(()).unwrap();
    }
    assert_eq!(victim.join().unwrap(), step.is_some());
    let last = tree.get(KEY).unwrap();
    assert!(last == case.after || step.is_some() && last == Some(80), "{case:?}, access {n}: {last:?}");
    model.extend(last.map(|value| (KEY, value)));
    assert!(
        tree.iter().map(Result::unwrap).eq(model.iter().map(|(key, value)| (*key, *value))),
        "{case:?}, access {n}"
    );
    assert_eq!(tree.check(), [], "{case:?}, access {n}");
    step
}

fn stop_everywhere(domain: Domain) -> BTreeSet<Step> {
    let mut steps = BTreeSet::new();
    for case in CASES {
        let passed = (1..).map_while(|n| stop_at(*case, domain, n));
        let (mut count, before) = (0, steps.len());
        passed.for_each(|step| {
            count += 1;
            steps.insert(step);
        });
        println!("{}: stopped at {count} accesses, {} new steps", case.name, steps.len() - before);
        assert!(count >= 2, "{} has {count} accesses", case.name);
    }
    steps
}

#[test]
fn no_thread_waits_for_a_stopped_one() {
    let steps = stop_everywhere(Domain::Adr);
    // Every step of the protocol that a single operation can execute.
    for step in [
        "insert.2", "insert.3", "update.2", "update.3", "copy.1", "copy.2", "sync.1", "link.1", "link.2",
        "link.3", "free.1", "free.2", "free.3",
    ] {
        assert!(steps.contains(format!("nbtree {step}").as_str()), "{step} is not among {steps:?}");
    }
}

#[test]
fn no_thread_waits_for_a_stopped_one_where_visible_is_durable() {
    stop_everywhere(Domain::Eadr);
}
