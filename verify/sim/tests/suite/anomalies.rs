//! Changes of several keys, in a hand-written structure: once correct, and once with each of the classic anomalies.
//!
//! A change of several keys is first written to a log, in one record, and then to the keys; open redoes it. One lock
//! orders everything. Each bug omits one thing.

use bristlecone_pm::sync::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;

use bristlecone_pm::sync::wait;
use bristlecone_pm::{Persist, Word};
use bristlecone_sim::{
    Access, Answer, Memory, Mode, Operation, Plan, Progress, Registers, Report, Schedules, Seen, Sim,
    explore_schedules,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anomaly {
    None,
    /// A transaction writes a value computed from one that another transaction has replaced meanwhile.
    LostUpdate,
    /// A transaction does not check whether keys or ranges that it only read were changed meanwhile.
    WriteSkew,
    /// A transaction reads each key at a different point in time, and does not check for changes.
    ReadSkew,
    /// A change of several keys has no record.
    TornBatch,
    /// A snapshot reads each key at a different point in time.
    LateWrite,
    /// A record stays after its change, until the next one overwrites it.
    ReplayOverNewer,
}

const ANOMALIES: [Anomaly; 6] = [
    Anomaly::LostUpdate,
    Anomaly::WriteSkew,
    Anomaly::ReadSkew,
    Anomaly::TornBatch,
    Anomaly::LateWrite,
    Anomaly::ReplayOverNewer,
];

const KEYS: u64 = 4;
const LINE_WORDS: usize = 8;
/// The first line of the log: its number of keys, followed by a key and its word in each line.
const LOG: usize = KEYS as usize;

type Items = BTreeMap<u64, u64>;

/// Keys in a line each, which holds the value plus one, and a log.
#[derive(Debug, Clone, Copy)]
struct Ledger(Anomaly);

struct Live {
    sim: Sim,
    anomaly: Anomaly,
    lock: AtomicBool,
    /// Number of changes of each key.
    versions: [AtomicU64; KEYS as usize],
}

struct Locked<'a>(&'a AtomicBool);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Live {
    fn words(&self, line: usize, words: usize) -> &[Word] {
        self.sim.memory().words(line * LINE_WORDS, words)
    }

    fn lock(&self) -> Locked<'_> {
        let mut round = 0;
        while self.lock.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            wait::pause(round);
            round += 1;
        }
        Locked(&self.lock)
    }

    fn held(&self, key: u64) -> Option<u64> {
        self.words(key as usize, 1)[0].load(&self.sim).checked_sub(1)
    }

    fn items(&self) -> Items {
        (0..KEYS).filter_map(|key| Some((key, self.held(key)?))).collect()
    }

    fn put(&self, key: u64, word: u64) {
        let cell = &self.words(key as usize, 1)[0];
        cell.store(&self.sim, word);
        self.sim.persist(cell, "ledger put");
        self.versions[key as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Changes keys atomically. The lock must be held.
    fn put_together(&self, changes: &BTreeMap<u64, Option<u64>>) {
        let word = |value: &Option<u64>| value.map_or(0, |value| value + 1);
        let begun = &self.words(LOG, 1)[0];
        if self.anomaly != Anomaly::TornBatch && !changes.is_empty() {
            // The old contents belong to another record.
            begun.store(&self.sim, 0);
            self.sim.persist(begun, "ledger log");
            for (at, (key, value)) in changes.iter().enumerate() {
                let entry = self.words(LOG + 1 + at, 2);
                entry[0].store(&self.sim, *key);
                entry[1].store(&self.sim, word(value));
                self.sim.persist(entry, "ledger log");
            }
            begun.store(&self.sim, changes.len() as u64);
            self.sim.persist(begun, "ledger log");
        }
        changes.iter().for_each(|(key, value)| self.put(*key, word(value)));
        if self.anomaly != Anomaly::ReplayOverNewer {
            begun.store(&self.sim, 0);
            self.sim.persist(begun, "ledger done");
        }
    }

    fn recover(&self) {
        let begun = &self.words(LOG, 1)[0];
        for at in 0..begun.load(&self.sim) as usize {
            let entry = self.words(LOG + 1 + at, 2);
            self.put(entry[0].load(&self.sim), entry[1].load(&self.sim));
        }
        begun.store(&self.sim, 0);
        self.sim.persist(begun, "ledger done");
    }

    fn one(&self, key: u64, access: Access) -> Seen {
        let _locked = self.lock();
        let held = self.held(key);
        let (after, seen) = access.on(held);
        if after != held {
            self.put(key, after.map_or(0, |value| value + 1));
        }
        seen
    }

    fn versions(&self) -> [u64; KEYS as usize] {
        std::array::from_fn(|key| self.versions[key].load(Ordering::Relaxed))
    }

    /// Reads, writes, and retries if another thread intervened.
    fn together(&self, scans: bool, each: &[(u64, Access)]) -> Answer {
        loop {
            let apart = match self.anomaly {
                Anomaly::ReadSkew => !each.is_empty(),
                Anomaly::LateWrite => scans && each.is_empty(),
                _ => false,
            };
            let reading = (!apart).then(|| self.lock());
            let versions = self.versions();
            let shown = self.items();
            drop(reading);
            let (mut after, mut changes) = (shown.clone(), BTreeMap::new());
            let mut seen = Vec::new();
            for (key, access) in each {
                let held = after.get(key).copied();
                let (value, due) = access.on(held);
                seen.push(due);
                match value {
                    Some(value) => _ = after.insert(*key, value),
                    None => _ = after.remove(key),
                }
                if !matches!(access, Access::Get) {
                    changes.insert(*key, value);
                }
            }
            let answer = Answer::Together { items: scans.then_some(shown), seen };
            if each.is_empty() {
                return answer;
            }
            let _locked = self.lock();
            let now = self.versions();
            let is_asked = |key: &u64| match self.anomaly {
                Anomaly::LostUpdate | Anomaly::ReadSkew => false,
                Anomaly::WriteSkew => changes.contains_key(key),
                _ => scans || each.iter().any(|(of, _)| of == key),
            };
            if (0..KEYS).filter(is_asked).all(|key| now[key as usize] == versions[key as usize]) {
                self.put_together(&changes);
                return answer;
            }
        }
    }
}

impl Registers for Ledger {
    type Live = Live;

    fn memory(&self) -> Memory {
        Memory::new((LOG + 1 + KEYS as usize) * 64)
    }

    fn create(&self, sim: &Sim) -> Result<Live, String> {
        self.open(sim)
    }

    fn open(&self, sim: &Sim) -> Result<Live, String> {
        let lock = AtomicBool::new(false);
        let live = Live { sim: sim.clone(), anomaly: self.0, lock, versions: Default::default() };
        live.recover();
        Ok(live)
    }

    fn act(&self, live: &Live, operation: &Operation) -> Result<Answer, String> {
        match operation {
            Operation::On(key, access) => Ok(Answer::One(live.one(*key, *access))),
            Operation::Together { scans, each } => Ok(live.together(*scans, each)),
            Operation::Many(each) => {
                Ok(Answer::Many(each.iter().map(|(key, access)| live.one(*key, *access)).collect()))
            }
            Operation::Scan(_) => {
                let _locked = live.lock();
                Ok(Answer::All(live.items()))
            }
        }
    }

    fn plan(&self, draw: &mut dyn FnMut(usize) -> usize) -> Plan {
        let before = (0..KEYS).filter(|_| draw(3) != 0).map(|key| (key, Access::Insert(key))).collect();
        let mut written = 100;
        let mut access = |draw: &mut dyn FnMut(usize) -> usize| {
            written += 1;
            let of_key = [Access::Get, Access::Get, Access::Insert(written), Access::Remove][draw(4)];
            (draw(KEYS as usize) as u64, of_key)
        };
        let mut operation = |draw: &mut dyn FnMut(usize) -> usize| match draw(5) {
            0 => Operation::Together { scans: true, each: Vec::new() },
            1 => {
                let (key, of_key) = access(draw);
                Operation::On(key, of_key)
            }
            kind => {
                let count = 2 + draw(2);
                Operation::Together { scans: kind == 2, each: (0..count).map(|_| access(draw)).collect() }
            }
        };
        let threads = (0..2).map(|_| (0..1 + draw(2)).map(|_| operation(draw)).collect()).collect();
        Plan::new(before, threads)
    }

    fn contents(&self, live: &Live) -> Result<Items, String> {
        Ok(live.items())
    }
}

fn explored(anomaly: Anomaly, count: u64) -> Report {
    let wanted = Schedules { seed: 5, first: 0, count, modes: vec![Mode::Subset], threads: 2 };
    explore_schedules(&Ledger(anomaly), &wanted, &Progress::default())
}

#[test]
fn ledger_without_anomalies_passes_all_schedules() {
    let report = explored(Anomaly::None, 2000);
    report.assert_clean();
    assert_eq!(report.schedules, 2000);
    assert!(report.crash_points > 5000, "{report}");
}

#[test]
fn ledger_with_an_anomaly_is_noticed() {
    for anomaly in ANOMALIES {
        let report = explored(anomaly, 2000);
        println!("{anomaly:?}: {report}");
        assert!(!report.failures.is_empty(), "{anomaly:?} was not noticed");
    }
}
