//! Crashes of the baselines whose inner nodes are in DRAM, schedules of several threads, and the necessity of each
//! flush and fence: without a pool's other trees, so that it takes seconds. `bristlecone-lab` explores all of them in
//! pools.

use std::collections::BTreeMap;
use std::ops::Bound::Unbounded;
use std::sync::Arc;

use bristlecone::Error;
use bristlecone::lab::{Batch, ExternalDesign, Index, Inline, WriteMode};
use bristlecone_baselines::{Baseline, UNNOTICED};
use bristlecone_pm::{Geometry, OpenOptions, PoolFile, TreeSpec};
use bristlecone_sim::{
    Access, Answer, Budget, Memory, Mode, Operation, Prepared, Progress, Registers, Report, Scenario,
    Schedules, Seen, Sim, Site, Subject, System, explore_rounds, explore_schedules, mutate_rounds, rounds,
};

const GEOMETRY: Geometry = Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 2 };

/// A tree alone in its pool.
#[derive(Clone, Copy, Debug)]
struct Alone {
    baseline: Baseline,
    node_lines: u64,
}

struct Live {
    file: Arc<PoolFile<Sim>>,
    tree: Arc<dyn Index<Inline, Inline>>,
}

/// An operation on a key, optionally on a separate thread.
#[derive(Clone, Copy, Debug)]
struct Op {
    key: u64,
    access: Access,
    elsewhere: bool,
}

fn text(error: Error) -> String {
    error.to_string()
}

impl Live {
    fn act(&self, key: u64, access: Access) -> Result<Seen, String> {
        let tree = &self.tree;
        let mut held = None;
        let done = match access {
            Access::Get => tree.get(key, &mut |value| held = Some(value)).map(|_| held),
            Access::Insert(value) => tree.write(key, value, WriteMode::Upsert),
            Access::Upsert(value) => {
                return tree.upsert(key, value).map(|()| Seen::Done).or_else(refused);
            }
            Access::InsertNew(value) => tree.write(key, value, WriteMode::New),
            Access::Update(value) => tree.write(key, value, WriteMode::Update),
            Access::Swap(expected, new) => match tree.compare_and_swap(key, expected, new) {
                Ok(Ok(())) => return Ok(Seen::Swapped),
                Ok(Err(held)) => Ok(held),
                Err(error) => Err(error),
            },
            Access::Discard => return tree.remove(key).map(|_| Seen::Done).or_else(refused),
            Access::Remove => tree.remove(key),
            Access::RemoveIf(expected) => match tree.remove_if(key, expected) {
                Ok(Ok(())) => return Ok(Seen::Removed),
                Ok(Err(held)) => Ok(held),
                Err(error) => Err(error),
            },
        };
        done.map(Seen::Value).or_else(refused)
    }

    /// Verifies the tree, and reads it in both directions.
    fn read(&self) -> Result<BTreeMap<u64, u64>, String> {
        let issues = (self.file.check(), self.tree.check());
        if !issues.0.is_empty() || !issues.1.is_empty() {
            return Err(format!("{issues:?}"));
        }
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        let mut batch = Batch::default();
        while self.tree.scan_forward((Unbounded, Unbounded), &mut batch) {
            forward.extend(batch.entries.drain(..).rev());
        }
        let mut batch = Batch::default();
        while self.tree.scan_backward((Unbounded, Unbounded), &mut batch) {
            backward.extend(batch.entries.drain(..).rev());
        }
        backward.reverse();
        if forward != backward || self.tree.len().ok() != Some(forward.len() as u64) {
            return Err(format!("{forward:?}, but backwards {backward:?}"));
        }
        Ok(forward.into_iter().collect())
    }
}

fn refused(error: Error) -> Result<Seen, String> {
    if error.is_no_room() { Ok(Seen::Refused) } else { Err(text(error)) }
}

impl System for Alone {
    type Op = Op;
    type State = BTreeMap<u64, u64>;
    type Live = Live;

    fn memory(&self) -> Memory {
        Memory::of_pool(&GEOMETRY)
    }

    fn create(&self, sim: &Sim) -> Result<Live, String> {
        let file = PoolFile::create_in(sim.region(), GEOMETRY, sim.domain(), sim.clone()).map_err(text)?;
        let params = self.baseline.parse(&[("node_lines".to_owned(), self.node_lines)]).map_err(text)?;
        let spec = TreeSpec::new("t", self.baseline.code(), "u64", "u64").with_params(params);
        let created = file.create_tree_with(&spec, |entry| self.baseline.open(&file, entry));
        let (_, tree) = created.map_err(text)?;
        Ok(Live { file, tree: tree.typed().map_err(text)? })
    }

    fn open(&self, sim: &Sim) -> Result<Option<Live>, String> {
        let options = OpenOptions { domain: Some(sim.domain()), max_bytes: None };
        let file = match PoolFile::open_in_with(sim.region(), &options, sim.clone()) {
            Ok(file) => file,
            Err(Error::Corrupted { location, .. }) if location == "superblock" => return Ok(None),
            Err(error) => return Err(text(error)),
        };
        let Some(entry) = file.trees().map_err(text)?.pop() else { return Ok(None) };
        let tree = self.baseline.open(&file, &entry).and_then(|tree| tree.typed()).map_err(text)?;
        Ok(Some(Live { file, tree }))
    }

    fn abandon(&self, live: Live) {
        drop(live);
    }

    fn fresh(&self) -> Self::State {
        BTreeMap::new()
    }

    fn predict(&self, state: &mut Self::State, op: &Op) -> String {
        let (after, seen) = op.access.on(state.get(&op.key).copied());
        match after {
            Some(value) => _ = state.insert(op.key, value),
            None => _ = state.remove(&op.key),
        }
        format!("{seen:?}")
    }

    fn apply(&self, live: &mut Live, op: &Op) -> Result<String, String> {
        let act = || live.act(op.key, op.access);
        let seen = match op.elsewhere {
            false => act(),
            true => std::thread::scope(|scope| {
                scope.spawn(|| bristlecone_sim::guarded(act)).join().map_err(|_| "a panic elsewhere")?
            }),
        };
        seen.map(|seen| format!("{seen:?}"))
    }

    fn observe(&self, live: &Live) -> Result<Self::State, String> {
        live.read()
    }
}

impl Registers for Alone {
    type Live = Live;

    fn memory(&self) -> Memory {
        System::memory(self)
    }

    fn create(&self, sim: &Sim) -> Result<Live, String> {
        System::create(self, sim)
    }

    fn open(&self, sim: &Sim) -> Result<Live, String> {
        System::open(self, sim)?.ok_or_else(|| "nothing is there any more".to_owned())
    }

    fn act(&self, live: &Live, operation: &Operation) -> Result<Answer, String> {
        match operation {
            Operation::On(key, access) => Ok(Answer::One(live.act(*key, *access)?)),
            Operation::Scan(_) => {
                let (mut items, mut batch) = (Vec::new(), Batch::default());
                while live.tree.scan_forward((Unbounded, Unbounded), &mut batch) {
                    items.extend(batch.entries.drain(..).rev());
                }
                Ok(Answer::All(items.into_iter().collect()))
            }
            other => Err(format!("no plan of these has {other:?}")),
        }
    }

    fn contents(&self, live: &Live) -> Result<BTreeMap<u64, u64>, String> {
        live.read()
    }
}

fn on(key: u64, access: Access) -> Op {
    Op { key, access, elsewhere: false }
}

fn inserts(keys: impl Iterator<Item = u64>) -> Vec<Op> {
    keys.map(|key| on(key, Access::Insert(key))).collect()
}

fn elsewhere(ops: Vec<Op>) -> Vec<Op> {
    ops.into_iter().map(|op| Op { elsewhere: true, ..op }).collect()
}

/// Operations on small leaves: every operation and structure change, and then again by other threads.
fn scenarios() -> Vec<Scenario<Op>> {
    let removes = |keys: &[u64]| keys.iter().map(|key| on(*key, Access::Remove)).collect::<Vec<_>>();
    let scenario = |name, setup, ops| {
        let mut then = elsewhere(inserts([1, 3, 5, 6, 7].into_iter()));
        then.extend(removes(&[3, 56, 12]));
        then.extend(inserts(80..92));
        Scenario { name, creation: name == "creation", setup, ops, then }
    };
    let fourth = |keys: u64| inserts((0..keys).map(|key| key * 4));
    let shuffled = |keys: u64| inserts((0..keys).map(move |at| at * 7 % keys));
    let churn = (0..20).map(|at| match at % 4 {
        3 => on(at % 5, Access::Remove),
        _ => on(at * 3 % 5, Access::Insert(90 + at)),
    });
    let updates = [4, 8, 0].map(|key| on(key, Access::Update(50 + key)));
    // Segments of a log have eight entries. The first one's last four keys are copied when the fifth begins, and then
    // another thread uses its space.
    let lasting = (100..104).chain([1; 28]).map(|key| on(key, Access::Insert(key)));
    let others = elsewhere((0..5).map(|at| on(1, Access::Insert(80 + at))).collect());
    let emptied: Vec<_> = removes(&[12, 16, 20, 8]).into_iter().chain(inserts(41..43)).collect();
    // Another thread reuses the leaf that recovery freed, far from its former place.
    let elsewhere_again = Scenario {
        then: elsewhere(inserts(45..48)),
        ..scenario("empty-elsewhere", fourth(12), emptied.clone())
    };
    // A trimmed log has no changes of the leaves that became empty, nor of those before them.
    let elsewhere_long = (0..72).map(|at| on(60 + at % 6, Access::Insert(at)));
    let long_ago: Vec<_> =
        fourth(12).into_iter().chain(removes(&[12, 16, 20, 8])).chain(elsewhere_long).collect();
    let emptied_again =
        Scenario { then: elsewhere(inserts(82..96)), ..scenario("emptied", long_ago, inserts(80..82)) };
    // Items that stay in a leaf that splits get slots of the moved ones.
    let first = inserts([1, 2, 3, 5, 6, 7].into_iter());
    let split_again = Scenario {
        then: vec![on(4, Access::Insert(99))],
        ..scenario("split-first", inserts((0..10).map(|key| key * 8)), first)
    };
    vec![
        scenario("creation", Vec::new(), inserts(0..2)),
        scenario("insert", Vec::new(), shuffled(8)),
        scenario("move", shuffled(5), inserts(20..30)),
        scenario("split", shuffled(16), inserts(16..28)),
        scenario("update", fourth(6), updates.to_vec()),
        scenario("delete", shuffled(20), removes(&[0, 7, 14, 1, 8, 15, 2, 9, 16, 3, 10])),
        scenario("empty", fourth(12), emptied),
        elsewhere_again,
        emptied_again,
        split_again,
        scenario("log", inserts((0..40).map(|at| at * 7 % 5)), churn.collect()),
        scenario(
            "clean",
            lasting.collect(),
            vec![on(1, Access::Insert(70))].into_iter().chain(others).collect(),
        ),
        scenario(
            "blocks",
            fourth(28),
            inserts([70].into_iter()).into_iter().chain(elsewhere(removes(&[56, 60, 64]))).collect(),
        ),
    ]
}

/// Explores crashes in nodes of these numbers of lines, then schedules. Removes each flush and fence not in `left`, and
/// expects detection.
fn explored(baseline: Baseline, lines: &[u64], left: &[&str]) {
    let prepared = |node_lines: &u64| Prepared {
        name: format!("{baseline}-{node_lines}"),
        system: Alone { baseline, node_lines: *node_lines },
        scenarios: scenarios(),
    };
    let subjects: Vec<_> = lines.iter().map(prepared).collect();
    let modes = [Mode::Prefix, Mode::Subset];
    let all = rounds(subjects.iter().map(|subject| subject as &dyn Subject), &modes);
    let budget = Budget { threads: 2, continuation_crashes: 4, ..Budget::of(16) };
    let progress = Progress::default();
    let reports = explore_rounds(&all, budget, &progress, &|_, report| println!("{report}"));
    let reports: Vec<_> = reports.into_iter().flatten().collect();
    let mut total = Report::default();
    reports.iter().for_each(|report| total.merge(report.clone()));
    println!("{baseline}: {total}");
    total.assert_clean();
    assert_eq!(reports.len(), all.len());

    for node_lines in lines {
        let alone = Alone { baseline, node_lines: *node_lines };
        let wanted = Schedules { seed: 7, first: 0, count: 300, modes: Mode::ALL.to_vec(), threads: 2 };
        let report = explore_schedules(&alone, &wanted, &progress);
        println!("{baseline}: {report}");
        report.assert_clean();
        assert_eq!(report.schedules, 300);
    }

    let rounds: Vec<_> =
        all.into_iter().zip(reports).filter(|(round, _)| round.mode == Mode::Subset).collect();
    let wanted = |site: &Site| {
        let step = site.to_string();
        !site.is_of_pool() && site.is_named() && !left.iter().any(|left| step.contains(left))
    };
    let budget = Budget { threads: 2, continuation_crashes: 1, ..Budget::of(32) };
    let table = mutate_rounds(&rounds, budget, &wanted, &progress, &|_| {}).explained_by(UNNOTICED);
    println!("{table}");
    assert!(table.survivors().is_empty() && table.killed() > 0, "{table}");
}

#[test]
fn lbtree_survives_and_needs_every_flush() {
    explored(Baseline::LbTree, &[2, 4, 8], &["create"]);
}

#[test]
fn fptree_survives_and_needs_every_flush() {
    // Fingerprints share the bitmap's line; only other threads read the result of the end of a split.
    explored(Baseline::FpTree, &[2, 4], &["create", "insert.1", "update.1", "split.5"]);
}

#[test]
fn utree_survives_and_needs_every_flush() {
    explored(Baseline::UTree, &[2], &["create"]);
}

#[test]
fn flatstore_survives_and_needs_every_flush() {
    explored(Baseline::FlatStore, &[2], &[]);
}

#[test]
fn dptree_survives_and_needs_every_flush() {
    // The log has its own proofs.
    explored(Baseline::DpTree, &[2], &["create", "log "]);
}

#[test]
fn betree_survives_and_needs_every_flush() {
    // The log has its own proofs.
    explored(Baseline::BeTree, &[2], &["create", "log "]);
}

#[test]
fn pactree_survives_and_needs_every_flush() {
    explored(Baseline::PacTree, &[2, 4], &["create"]);
}
