//! `kill -9`: a child process writes and acknowledges through a pipe, and is killed at a random time; everything
//! acknowledged must be found. Rounds continue with the same pool.
//!
//! This tests recovery, not flushes: caches survive a kill. The simulator tests flushes.
//!
//! Rounds are distributed to cells, at least three to each:
//! `BRISTLECONE_KILL_ROUNDS=10000 cargo test --release -p bristlecone --test suite kill::` runs longer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::common::{Cell, Items, Noise, Plant, Scratch, Visit, lose_pages, suites};
use bristlecone::{Domain, Key, Tree, Value};
use bristlecone_matrix::by_level;
use bristlecone_matrix::process::{self, Process};

const WRITERS: u64 = 3;
const KEYS: u64 = 3000;
const TEST: &str = "kill::everything_acknowledged_is_found";

/// One step of one writer, the same in the child that executes it and the parent that checks it.
enum Step {
    Insert(u64, u64),
    Remove(u64),
}

impl Step {
    fn take<I: Items>(&self, tree: &Tree<I::K, I::V>) {
        match *self {
            Self::Insert(key, value) => {
                tree.upsert(I::key_ref(&I::key(key)), I::value_ref(&I::value(value))).unwrap();
            }
            Self::Remove(key) => drop(tree.remove(I::key_ref(&I::key(key))).unwrap()),
        }
    }

    /// Returns the key, and its value after the step.
    fn outcome<I: Items>(&self) -> (<I::K as Key>::Owned, Option<<I::V as Value>::Owned>) {
        match *self {
            Self::Insert(key, value) => (I::key(key), Some(I::value(value))),
            Self::Remove(key) => (I::key(key), None),
        }
    }

    /// Applies the step to a model.
    fn note<I: Items>(&self, model: &mut BTreeMap<<I::K as Key>::Owned, <I::V as Value>::Owned>) {
        match self.outcome::<I>() {
            (key, Some(value)) => drop(model.insert(key, value)),
            (key, None) => drop(model.remove(&key)),
        }
    }
}

/// The endless steps of a writer in a round, by numbers of keys and values. Writers have disjoint keys.
fn steps(round: u64, writer: u64) -> impl Iterator<Item = Step> {
    let mut noise = Noise((round * WRITERS + writer + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let filling = round % 3 != 2;
    std::iter::from_fn(move || {
        let key = noise.below(KEYS) * WRITERS + writer;
        let filled = noise.below(10) < if filling { 7 } else { 2 };
        Some(if filled { Step::Insert(key, noise.next()) } else { Step::Remove(key) })
    })
}

/// The child: writes until it is killed. A line with a writer's number acknowledges the writer's next step.
struct Child {
    cell: Cell,
    round: u64,
    scratch: Scratch,
}

impl Visit for Child {
    fn visit<I: Items>(self) {
        let pool = self.cell.pool(&self.scratch);
        let tree: Tree<I::K, I::V> = self.cell.open(&pool, "t").unwrap();
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let tree = &tree;
                scope.spawn(move || {
                    for step in steps(self.round, writer) {
                        step.take::<I>(tree);
                        process::say(&writer.to_string());
                    }
                });
            }
        });
    }
}

/// The parent: kills children of one cell, and verifies their acknowledged steps.
struct Parent {
    cell: Cell,
    rounds: u64,
}

/// Number of acknowledged steps of all cells.
static ACKNOWLEDGED: AtomicUsize = AtomicUsize::new(0);

impl Visit for Parent {
    fn visit<I: Items>(self) {
        let Self { cell, rounds } = self;
        println!("{cell}");
        let scratch = Scratch::new();
        let pool = cell.pool(&scratch);
        drop(cell.create::<I::K, I::V>(&pool, "t").unwrap());
        drop(pool);
        let mut noise = Noise(u64::from(std::process::id()) | 1);
        let mut model = BTreeMap::new();
        for round in 0..rounds {
            let life = Duration::from_micros(3000 + noise.below(30_000));
            let acks = kill_one(&scratch, &cell, round, life);
            ACKNOWLEDGED.fetch_add(acks.iter().sum(), Relaxed);
            // In every third round the power fails, too.
            if cell.has_journal() && round % 3 == 1 {
                lose_pages(&scratch.0);
            }
            verify::<I>(&scratch, &cell, round, acks, &mut model);
        }
    }
}

#[test]
fn everything_acknowledged_is_found() {
    if let Some([round, name, pool]) = process::role().as_deref() {
        let cell = suites::KILL.cells().into_iter().find(|cell| cell.to_string() == *name).unwrap();
        let (round, scratch) = (round.parse().unwrap(), Scratch(PathBuf::from(pool)));
        return cell.codec.visit(Child { cell, round, scratch });
    }
    let cells = suites::KILL.sampled();
    let rounds = std::env::var("BRISTLECONE_KILL_ROUNDS")
        .map_or_else(|_| by_level(20, 60, 1000), |rounds| rounds.parse().unwrap());
    let rounds = u64::div_ceil(rounds, cells.len() as u64).max(3);
    cells.iter().for_each(|&cell| cell.codec.visit(Parent { cell, rounds }));
    let (steps, rounds) = (ACKNOWLEDGED.load(Relaxed), rounds as usize * cells.len());
    assert!(steps > rounds * 100, "{steps} steps in {rounds} rounds prove little");
}

/// Runs a child for a while after its first acknowledgement; returns the number of steps of each writer that it
/// acknowledged before it was killed.
fn kill_one(scratch: &Scratch, cell: &Cell, round: u64, life: Duration) -> [usize; WRITERS as usize] {
    let pool = scratch.0.to_str().unwrap();
    let mut child = Process::start(TEST, &[&round.to_string(), &cell.to_string(), pool]);
    let first = child.hear();
    let mut acks = [0; WRITERS as usize];
    for line in first.into_iter().chain(child.kill_after(life)) {
        let writer: Option<usize> = line.parse().ok().filter(|writer| *writer < acks.len());
        acks[writer.unwrap_or_else(|| panic!("the child failed: {line}"))] += 1;
    }
    acks
}

/// Every acknowledged step must be present; of each writer, the next one may be present as well.
fn verify<I: Items>(
    scratch: &Scratch,
    cell: &Cell,
    round: u64,
    acks: [usize; WRITERS as usize],
    model: &mut BTreeMap<<I::K as Key>::Owned, <I::V as Value>::Owned>,
) {
    let pool = cell.pool(scratch);
    assert!(!pool.info().was_clean);
    let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
    assert_eq!(tree.check(), []);
    for writer in 0..WRITERS {
        let mut steps = steps(round, writer);
        for _ in 0..acks[writer as usize] {
            steps.next().unwrap().note::<I>(model);
        }
        let next = steps.next().unwrap();
        let (key, value) = next.outcome::<I>();
        if tree.get(I::key_ref(&key)).unwrap() == value {
            next.note::<I>(model);
        }
    }
    expect::<I>(&tree, model, &format!("{cell}, round {round}"));
}

/// Verifies that a tree has the contents of a model.
fn expect<I: Items>(
    tree: &Tree<I::K, I::V>,
    model: &BTreeMap<<I::K as Key>::Owned, <I::V as Value>::Owned>,
    when: &str,
) {
    let found: BTreeMap<_, _> = tree.iter().map(Result::unwrap).collect();
    let wrong = found.keys().chain(model.keys()).filter(|key| found.get(*key) != model.get(*key));
    let wrong: Vec<_> = wrong.map(|key| (key, model.get(key), tree.get(I::key_ref(key)).unwrap())).collect();
    assert!(wrong.is_empty(), "{when}: key, due, found: {wrong:?}");
}

/// Threads that write enough to empty logs and reuse records of keys, then a crash between operations.
struct Lives(Cell, u64);

/// Number of lives of a tree, and of steps of each writer in each.
const LIVES: u64 = 3;
const STEPS: usize = 4000;

impl Visit for Lives {
    fn visit<I: Items>(self) {
        let Self(cell, rounds) = self;
        // Fewer where each operation syncs a page.
        let steps_taken = if cell.domain == Domain::Msync { STEPS / 10 } else { STEPS };
        for round in 0..rounds {
            let scratch = Scratch::new();
            let pool = cell.pool(&scratch);
            drop(cell.create::<I::K, I::V>(&pool, "t").unwrap());
            drop(pool);
            let mut model = BTreeMap::new();
            for life in 0..LIVES {
                let pool = cell.pool(&scratch);
                let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
                let when = format!("{cell}, round {round}, life {life}");
                expect::<I>(&tree, &model, &when);
                let steps = |writer| steps(round * LIVES + life, writer).take(steps_taken);
                std::thread::scope(|scope| {
                    for writer in 0..WRITERS {
                        let tree = &tree;
                        scope.spawn(move || steps(writer).for_each(|step| step.take::<I>(tree)));
                    }
                });
                (0..WRITERS).flat_map(steps).for_each(|step| step.note::<I>(&mut model));
                expect::<I>(&tree, &model, &format!("{when}, before the crash"));
                drop(tree);
                cell.crash(pool, &scratch);
            }
            let pool = cell.pool(&scratch);
            expect::<I>(
                &cell.open(&pool, "t").unwrap(),
                &model,
                &format!("{cell}, round {round}, at the end"),
            );
        }
    }
}

/// `BRISTLECONE_KILL_ROUNDS` sets the rounds of each cell; the default is one or two.
#[test]
fn what_threads_wrote_in_long_lives_is_found_after_a_crash() {
    let rounds = std::env::var("BRISTLECONE_KILL_ROUNDS")
        .map_or_else(|_| by_level(1, 2, 8), |rounds| rounds.parse().unwrap());
    suites::KILL.sampled().iter().for_each(|&cell| cell.codec.visit(Lives(cell, rounds)));
}
