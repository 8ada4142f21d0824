//! The write-ahead log alone, which trees share.

use std::collections::BTreeSet;
use std::sync::Arc;

use bristlecone_pm::{Durable, Geometry, Log, LogEntry, Persist, PoolFile, TreeId, TreeSpec};
use bristlecone_sim::{Budget, Memory, Scenario, Sim, System};

use super::{Proof, Steps};

const GEOMETRY: Geometry = Geometry { chunk_bytes: 4096, chunks_max: 8, trees_max: 1 };
/// The second one straddles two lines after its key, the fifth one before; the seventh ends one.
const ENTRIES: usize = 8;
/// Copies that are fenced together. The two after them share a line, in which they end.
const BATCH: usize = 5;
/// Generations of a chunk.
const GENERATIONS: usize = 127;

/// Entries in one chunk, until it is recycled.
#[derive(Debug, Clone, Copy)]
pub struct Entries;

/// An operation on a log.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Appends an entry of this number.
    Append(u64),
    /// Reserves space for an entry that is never written.
    Reserve,
    /// Recycles all entries.
    Recycle,
    /// Returns free chunks of the log to the pool.
    Release,
    /// Copies all entries to another chunk, some at a time, and recycles the old ones.
    Collect,
}

/// An open log.
#[derive(Debug)]
pub struct Live {
    sim: Sim,
    log: Log<Sim>,
    entries: BTreeSet<u64>,
}

fn entry(number: u64) -> LogEntry {
    LogEntry { sequence: number, removed: number % 2 == 1, key: number + 1000, value: number + 2000 }
}

impl Live {
    fn of(sim: &Sim, pool: &Arc<PoolFile<Sim>>, owner: TreeId) -> Result<Self, String> {
        let (log, chunks) = Log::open(pool, owner, Some(ENTRIES));
        let found: Result<Vec<_>, _> = chunks.iter().flat_map(|chunk| log.entries(chunk)).collect();
        // No crash may leave a damaged log.
        let found = found.map_err(|error| error.to_string())?;
        if let Some(torn) = found.iter().find(|found| **found != entry(found.sequence)) {
            return Err(format!("no thread wrote {torn:?}"));
        }
        log.seal(chunks);
        Ok(Self { sim: sim.clone(), log, entries: found.iter().map(|entry| entry.sequence).collect() })
    }
}

impl System for Entries {
    type Op = Op;
    type State = BTreeSet<u64>;
    type Live = Live;

    fn memory(&self) -> Memory {
        Memory::of_pool(&GEOMETRY)
    }

    fn create(&self, sim: &Sim) -> Result<Live, String> {
        let pool = PoolFile::create_in(sim.region(), GEOMETRY, sim.domain(), sim.clone());
        let pool = pool.map_err(|error| error.to_string())?;
        let spec = TreeSpec::new("t", 3, "u64", "u64");
        let tree = pool.create_tree(&spec).map_err(|error| error.to_string())?;
        Live::of(sim, &pool, tree.id)
    }

    fn open(&self, sim: &Sim) -> Result<Option<Live>, String> {
        let pool = PoolFile::open_in(sim.region(), sim.domain(), sim.clone());
        let pool = pool.map_err(|error| error.to_string())?;
        let trees = pool.trees().map_err(|error| error.to_string())?;
        Live::of(sim, &pool, trees[0].id).map(Some)
    }

    fn abandon(&self, live: Live) {
        drop(live);
    }

    fn fresh(&self) -> BTreeSet<u64> {
        BTreeSet::new()
    }

    fn predict(&self, state: &mut BTreeSet<u64>, op: &Op) -> String {
        match op {
            Op::Append(number) => _ = state.insert(*number),
            Op::Reserve | Op::Release | Op::Collect => {}
            Op::Recycle => state.clear(),
        }
        String::new()
    }

    fn apply(&self, live: &mut Live, op: &Op) -> Result<String, String> {
        match op {
            Op::Append(number) => {
                let spot = live.log.reserve(|_| true).ok_or("no room for an entry")?;
                spot.append(&entry(*number), None);
                live.entries.insert(*number);
            }
            Op::Reserve => drop(live.log.reserve(|_| true).ok_or("no room for an entry")?),
            Op::Release => _ = live.log.release_free(),
            Op::Collect => {
                let old = live.log.rotate().1;
                let entries: Vec<_> = live.entries.iter().copied().collect();
                for batch in entries.chunks(BATCH) {
                    let mut copies = live.log.copies();
                    for number in batch {
                        if !copies.reserve(|_| true) {
                            return Err("no room for a copy".to_owned());
                        }
                        copies.append(&entry(*number));
                    }
                    let Durable { .. } = live.sim.fence(copies.flush(), "log copies");
                }
                live.log.recycle(old);
            }
            Op::Recycle => {
                live.log.recycle(live.log.rotate().1);
                live.entries.clear();
            }
        }
        Ok(String::new())
    }

    fn observe(&self, live: &Live) -> Result<BTreeSet<u64>, String> {
        Ok(live.entries.clone())
    }
}

/// Returns a scenario: entries are appended, and the log is recycled. At most one chunk has entries, so that this
/// is one step.
fn rounds() -> Scenario<Op> {
    let round = |first| (first..first + 8).map(Op::Append).chain([Op::Recycle]);
    Scenario {
        name: "rounds",
        creation: false,
        setup: vec![],
        ops: (0..3).flat_map(|n| round(10 * n)).collect(),
        then: vec![Op::Recycle],
    }
}

/// Returns scenarios: copies are written to another chunk, and several chunks hold entries; or to a chunk that was
/// freed, and again has old entries of its first generation.
fn copies() -> [Scenario<Op>; 2] {
    let scenario = |name, setup, ops| Scenario { name, creation: false, setup, ops, then: vec![] };
    let appends = |entries: std::ops::Range<u64>| entries.map(Op::Append);
    let setup = appends(0..6).collect();
    let ops = [Op::Collect].into_iter().chain(appends(6..12)).chain([Op::Collect, Op::Append(12)]);
    let full = appends(0..8).chain([Op::Collect, Op::Recycle, Op::Release]).chain(appends(8..15));
    [
        scenario("copies", setup, ops.collect()),
        scenario("given-back-to-copies", full.collect(), vec![Op::Collect, Op::Append(15), Op::Collect]),
    ]
}

/// Returns a scenario: entries of a chunk's first generation stay in it until its generations repeat.
fn generations(name: &'static str, between: Op) -> Scenario<Op> {
    let setup = (2..GENERATIONS).flat_map(|_| [between, Op::Recycle]);
    let setup = [Op::Append(1), Op::Append(2), Op::Recycle].into_iter().chain(setup);
    let ops = vec![between, Op::Recycle, Op::Append(4), Op::Recycle, Op::Append(5)];
    Scenario { name, creation: false, setup: setup.collect(), ops, then: vec![Op::Recycle] }
}

/// Returns a scenario: a chunk that was freed has the first generation again, and old entries of it. Each new
/// entry invalidates the next one, in the same line or in another.
fn given_back() -> Scenario<Op> {
    let setup = (0..8).map(Op::Append).chain([Op::Recycle, Op::Release]);
    let ops = (8..16).map(Op::Append).chain([Op::Recycle, Op::Release, Op::Append(16), Op::Recycle]);
    Scenario {
        name: "given-back",
        creation: false,
        setup: setup.collect(),
        ops: ops.collect(),
        then: vec![Op::Recycle],
    }
}

/// Returns the scenarios of a log.
pub fn scenarios() -> Vec<Scenario<Op>> {
    let unused = generations("unused", Op::Reserve);
    let appends = [rounds(), given_back(), generations("generations", Op::Append(3)), unused];
    appends.into_iter().chain(copies()).collect()
}

/// Returns the budget of each of them.
pub fn budget() -> Budget {
    Budget { continuation_crashes: 1, ..Budget::of(256) }
}

/// Returns the proofs of every step of the log in each of the scenarios.
pub(super) fn proofs() -> Vec<Proof> {
    let of = |number| {
        let only = move || (Entries, vec![scenarios().swap_remove(number)]);
        Proof::by_crashes(Steps::Starting("log"), budget(), only)
    };
    (0..scenarios().len()).map(of).collect()
}
