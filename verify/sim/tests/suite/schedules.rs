//! Schedules of threads with a small hand-written structure: once correct, and once with each kind
//! of bug that needs several threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use bristlecone_pm::sync::wait;
use bristlecone_pm::{Durable, Persist, Word};
use bristlecone_sim::{
    Access, Answer, Memory, Mode, Operation, Progress, Registers, Report, Schedules, Seen, Sim, Way,
    explore_schedules,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    None,
    /// A reader returns a value that is not durable yet.
    ReadsBeforeDurable,
    /// The writer returns before its fence, and the next writer's fence does not replace it.
    FenceLeftToOthers,
    /// A writer finds the node, waits for its lock, and does not check again.
    SplitMeanwhile,
    /// A swap compares before it locks.
    ComparesUnlocked,
    /// A new right node is used before it is durable.
    SplitBeforeDurable,
    /// A removal locks its own node, and then the other one.
    LocksInAnyOrder,
}

const BUGS: [Bug; 5] = [
    Bug::ReadsBeforeDurable,
    Bug::FenceLeftToOthers,
    Bug::SplitMeanwhile,
    Bug::ComparesUnlocked,
    Bug::SplitBeforeDurable,
];

const KEYS: usize = 64;
const LINE_WORDS: usize = 8;
/// Keys from here on belong to the right node; 0: it does not exist yet.
const BOUNDARY: usize = 0;
/// The first line of each node: a line for each key, which holds the value plus one.
const NODES: [usize; 2] = [1, 1 + KEYS];

/// Keys in two nodes; the second one is created with the first large key.
#[derive(Debug, Clone, Copy)]
struct ToyRegisters(Bug);

struct Live {
    sim: Sim,
    bug: Bug,
    locks: [AtomicBool; 2],
}

struct Locked<'a>(&'a AtomicBool);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Live {
    fn word(&self, line: usize) -> &Word {
        &self.sim.memory().words(line * LINE_WORDS, 1)[0]
    }

    fn lock(&self, node: usize) -> Locked<'_> {
        let lock = &self.locks[node];
        for round in 0.. {
            if lock.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                break;
            }
            wait::pause(round);
        }
        Locked(lock)
    }

    fn node_of(&self, key: u64) -> usize {
        let boundary = self.word(BOUNDARY).load(&self.sim);
        usize::from(boundary != 0 && key >= boundary)
    }

    fn lock_node(&self, key: u64) -> (usize, Locked<'_>) {
        loop {
            let node = self.node_of(key);
            let locked = self.lock(node);
            if self.bug == Bug::SplitMeanwhile || self.node_of(key) == node {
                return (node, locked);
            }
        }
    }

    fn held(&self, node: usize, key: u64) -> Option<u64> {
        self.word(NODES[node] + key as usize).load(&self.sim).checked_sub(1)
    }

    fn put(&self, node: usize, key: u64, value: Option<u64>) {
        let word = self.word(NODES[node] + key as usize);
        word.store(&self.sim, value.map_or(0, |value| value + 1));
        let flushed = self.sim.flush(word, "put");
        if self.bug != Bug::FenceLeftToOthers {
            let Durable { .. } = self.sim.fence(flushed, "put");
        }
    }

    /// Moves the keys from `boundary` on to the right node. The left node must be locked.
    fn split(&self, boundary: u64) {
        for key in boundary..KEYS as u64 {
            let to = self.word(NODES[1] + key as usize);
            to.store(&self.sim, self.held(0, key).map_or(0, |value| value + 1));
            if self.bug != Bug::SplitBeforeDurable {
                self.sim.persist(to, "split.1");
            }
        }
        self.word(BOUNDARY).store(&self.sim, boundary);
        self.sim.persist(self.word(BOUNDARY), "split.2");
    }

    fn access(&self, key: u64, access: Access) -> Seen {
        if access == Access::Get && self.bug == Bug::ReadsBeforeDurable {
            return Seen::Value(self.held(self.node_of(key), key));
        }
        let unlocked = self.held(self.node_of(key), key);
        let (node, locked) = self.lock_node(key);
        let both = self.bug == Bug::LocksInAnyOrder && access == Access::Remove;
        let other = both.then(|| self.lock(1 - node));
        let held = match self.bug {
            Bug::ComparesUnlocked => unlocked,
            _ => self.held(node, key),
        };
        let (after, seen) = access.on(held);
        if after != held {
            self.put(node, key, after);
        }
        if node == 0 && access == Access::Remove && key > 2 && self.word(BOUNDARY).load(&self.sim) == 0 {
            self.split(key);
        }
        drop((other, locked));
        seen
    }
}

impl Registers for ToyRegisters {
    type Live = Live;

    fn memory(&self) -> Memory {
        Memory::new((1 + 2 * KEYS) * 64)
    }

    fn create(&self, sim: &Sim) -> Result<Live, String> {
        self.open(sim)
    }

    fn open(&self, sim: &Sim) -> Result<Live, String> {
        Ok(Live { sim: sim.clone(), bug: self.0, locks: Default::default() })
    }

    fn act(&self, live: &Live, operation: &Operation) -> Result<Answer, String> {
        Ok(match operation {
            Operation::On(key, access) => Answer::One(live.access(*key, *access)),
            Operation::Many(each) => {
                Answer::Many(each.iter().map(|(key, access)| live.access(*key, *access)).collect())
            }
            Operation::Together { .. } => return Err("not drawn".to_owned()),
            Operation::Scan(_) => Answer::All(
                (0..KEYS as u64)
                    .filter_map(|key| match live.access(key, Access::Get) {
                        Seen::Value(value) => value.map(|value| (key, value)),
                        Seen::Swapped | Seen::Removed | Seen::Done | Seen::Refused => None,
                    })
                    .collect(),
            ),
        })
    }

    fn contents(&self, live: &Live) -> Result<BTreeMap<u64, u64>, String> {
        match self.act(live, &Operation::Scan(Way::Forward))? {
            Answer::All(items) => Ok(items),
            _ => Err("a scan that is none".to_owned()),
        }
    }
}

fn explored(bug: Bug, first: u64, count: u64) -> Report {
    let modes = vec![Mode::Prefix, Mode::Subset];
    let wanted = Schedules { seed: 1, first, count, modes, threads: 2 };
    explore_schedules(&ToyRegisters(bug), &wanted, &Progress::default())
}

#[test]
fn toy_registers_without_bugs_pass_all_schedules() {
    let report = explored(Bug::None, 0, 2000);
    report.assert_clean();
    assert_eq!(report.schedules, 2000);
    // Crashes are nested.
    assert!(report.crash_points > 10_000, "{report}");
}

#[test]
fn toy_registers_with_each_bug_fail_and_fail_again_in_the_same_schedule() {
    for bug in BUGS {
        let report = explored(bug, 0, 4000);
        let failure = report.failures.first().unwrap_or_else(|| panic!("{bug:?} went unnoticed"));
        println!("{bug:?}: {failure}");
        let number = failure.schedule.expect("it was a schedule");
        assert!(failure.to_string().contains("thread 0: "), "{failure}");
        let again = explored(bug, number, 1);
        assert_eq!((again.schedules, again.failures.len()), (1, 1));
        assert_eq!(again.failures[0].what, failure.what);
        explored(Bug::None, number, 1).assert_clean();
    }
}

#[test]
fn schedule_of_threads_that_wait_for_each_other_fails() {
    let failure = (0..4000).find_map(|number| explored(Bug::LocksInAnyOrder, number, 1).failures.pop());
    let failure = failure.expect("no schedule had both locks taken crosswise");
    println!("{failure}");
    assert!(failure.what.contains("steps"), "{failure}");
    explored(Bug::None, failure.schedule.expect("it was a schedule"), 1).assert_clean();
}

#[test]
fn schedule_run_by_more_workers_is_the_same() {
    let counts = |threads| {
        let wanted = Schedules { seed: 3, first: 7, count: 200, modes: vec![Mode::Subset], threads };
        let report = explore_schedules(&ToyRegisters(Bug::FenceLeftToOthers), &wanted, &Progress::default());
        let mut failed: Vec<_> = report.failures.iter().map(ToString::to_string).collect();
        failed.sort();
        (report.schedules, failed)
    };
    assert_eq!(counts(1), counts(3));
}
