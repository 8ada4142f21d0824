//! Each state that a kill may leave, of the pool and of its index in shared memory. A kill keeps all stores of all
//! threads, so the states are those of the two files before each access to shared memory. The scenario runs once and
//! records them; then each is opened: with the index, and once more without it, so that nothing is left on the medium
//! that a recovery from the leaves would see differently.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions as FileOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::panic::catch_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use bristlecone::lab::{AnyMedium, pool_on_any};
use bristlecone::{Design, Domain, KeepIndex, Medium, Native, Pool, Tree};
use bristlecone_matrix::by_level;
use bristlecone_pm::sync::wait::simulate_steps;
use bristlecone_pm::{CreateOptions, OpenOptions, PoolFile, Step, failpoint};
use rustix::fs::{SeekFrom, seek};

use crate::common::{Codec, Configuration, Items, Noise, Plant, Scratch, Visit, segment_of, share};
use crate::operation::{Model, Operation, apply, is_equal};

/// Number that stands for the build of the library.
const BUILD: u64 = 7;
const PAGE: u64 = 4096;
/// Operations of a scenario that are recorded.
const RECORDED: usize = 24;

type Page = [u8; PAGE as usize];

/// The pages of a file for which there is memory, by number.
type Pages = HashMap<u64, Box<Page>>;

/// A file, the number of its page, and what that became; `None`: a hole.
type Written = (usize, u64, Option<Box<Page>>);

/// Both files: the pool, and its index in shared memory.
struct Recorder {
    files: [File; 2],
    lens: [u64; 2],
    pages: [Pages; 2],
    /// The changed pages of each point, and the number of operations that were complete.
    points: Vec<(usize, [u64; 2], Vec<Written>)>,
    done: usize,
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

impl Recorder {
    fn record(&mut self) {
        let mut changed = Vec::new();
        for at in 0..2 {
            let file = &self.files[at];
            let len = file.metadata().unwrap().len();
            self.lens[at] = len;
            let mut seen = Vec::new();
            let mut next = 0;
            while let Ok(data) = seek(file, SeekFrom::Data(next)) {
                let hole = seek(file, SeekFrom::Hole(data)).unwrap();
                for number in data / PAGE..hole.div_ceil(PAGE) {
                    let mut page = Box::new([0; PAGE as usize]);
                    file.read_at(&mut page[..], number * PAGE).unwrap();
                    seen.push(number);
                    let before = self.pages[at].get(&number);
                    let is_new = before.is_none_or(|before| **before != *page);
                    if is_new {
                        changed.push((at, number, Some(page.clone())));
                        self.pages[at].insert(number, page);
                    }
                }
                next = hole;
            }
            seen.sort_unstable();
            let gone: Vec<u64> =
                self.pages[at].keys().filter(|number| seen.binary_search(number).is_err()).copied().collect();
            for number in gone {
                self.pages[at].remove(&number);
                changed.push((at, number, None));
            }
        }
        if !changed.is_empty() {
            self.points.push((self.done, self.lens, changed));
        }
    }
}

/// Records the present state, if it is another one.
fn point() {
    RECORDER.with(|recorder| {
        // Not while it records: that takes locks of this process.
        if let Ok(mut recorder) = recorder.try_borrow_mut() {
            recorder.iter_mut().for_each(Recorder::record);
        }
    });
}

/// The native medium, with a point before each store.
struct Points(Native);

impl Medium for Points {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        self.0.load(cell, order)
    }
    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        point();
        self.0.store(cell, value, order);
    }
    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        point();
        self.0.compare_exchange(cell, current, new)
    }
    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step) {
        self.0.flush_lines(start, bytes, step);
    }
    fn drain(&self, step: Step) {
        self.0.drain(step);
    }
    fn order_line(&self) {
        self.0.order_line();
    }
}

/// A scenario: the keys that are there before, and the operations that are recorded.
struct Scenario {
    name: &'static str,
    before: Vec<u64>,
    operations: Vec<Operation>,
}

/// Number of keys of all scenarios.
const KEYS: u64 = 4000;

/// Scenarios in which leaves and nodes split, merge, empty and are replaced. `key` returns a key's number by its rank.
fn scenarios(key: impl Fn(u64) -> u64) -> Vec<Scenario> {
    let mut noise = Noise(0x5eed);
    let mixed = (0..3 * RECORDED).map(|_| match noise.below(8) {
        0..3 => Operation::Write(key(noise.below(150)), noise.next()),
        3..5 => Operation::Remove(key(noise.below(150))),
        5 => Operation::Many((0..5).map(|_| (key(noise.below(150)), noise.next())).collect()),
        6 => Operation::RemoveMany((0..5).map(|_| key(noise.below(150))).collect()),
        _ => Operation::Write(key(noise.below(KEYS)), noise.next()),
    });
    let mixed = mixed.collect();
    let batches = (0..RECORDED).map(|_| {
        let parts = (0..5).map(|_| (key(noise.below(150)), (noise.below(3) > 0).then(|| noise.next())));
        Operation::Batch(parts.collect::<BTreeMap<_, _>>().into_iter().collect())
    });
    let batches = batches.collect();
    let writes = |ranks: std::ops::Range<u64>| ranks.map(|rank| Operation::Write(key(rank), rank)).collect();
    let end = 300 + RECORDED as u64;
    vec![
        Scenario { name: "mixed", before: (0..100).map(|rank| key(2 * rank)).collect(), operations: mixed },
        Scenario {
            name: "batches",
            before: (0..100).map(|rank| key(2 * rank)).collect(),
            operations: batches,
        },
        Scenario { name: "ascending", before: (0..300).map(&key).collect(), operations: writes(300..end) },
        Scenario {
            name: "descending",
            before: (end..end + 300).rev().map(&key).collect(),
            operations: (300..end).rev().map(|rank| Operation::Write(key(rank), rank)).collect(),
        },
        Scenario {
            name: "inside",
            before: (0..150).map(|rank| key(26 * rank)).collect(),
            operations: writes(1301..1301 + RECORDED as u64),
        },
        Scenario {
            name: "emptying",
            before: (0..100).map(&key).collect(),
            operations: (30..30 + 2 * RECORDED as u64).map(|rank| Operation::Remove(key(rank))).collect(),
        },
    ]
}

/// Returns the numbers of keys in the order of the keys.
fn in_order<I: Items>() -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..KEYS).collect();
    numbers.sort_by_cached_key(|&number| I::key(number));
    numbers
}

struct Explore {
    configuration: Configuration,
    domain: Domain,
    /// The first point of a scenario that is tried; a quick run tries every N-th one from there on.
    first: usize,
}

fn medium(domain: Domain) -> AnyMedium {
    Box::new(Points(Native::new(domain)))
}

fn open_pool(path: &PathBuf, keep: KeepIndex) -> Pool {
    let file = PoolFile::open(path, &OpenOptions::default(), medium).unwrap();
    file.keep_index(keep, BUILD);
    file.drop_unfinished_trees();
    pool_on_any(file).unwrap()
}

/// Verifies that a tree has the items of a model, of which some parts of the last operation may be there; returns
/// the model with these parts.
fn settled<I: Items>(
    tree: &Tree<I::K, I::V>,
    model: &Model,
    pending: Option<&Operation>,
    when: &str,
) -> Model {
    assert_eq!(tree.check(), [], "{when}");
    let mut now = model.clone();
    for part in pending.map(Operation::parts).unwrap_or_default() {
        let found = tree.get(I::key_ref(&I::key(part.0))).unwrap();
        if found == part.1.map(I::value) {
            apply(&mut now, part);
        }
    }
    if let Some(Operation::Batch(parts)) = pending {
        let mut all = model.clone();
        parts.iter().for_each(|&part| apply(&mut all, part));
        assert!(now == *model || now == all, "{when}: a part of a batch");
    }
    assert!(is_equal::<I>(tree, &now), "{when}: other items");
    assert_eq!(tree.len().unwrap(), now.len() as u64, "{when}: number of items");
    now
}

/// More operations, which meet whatever the kill left.
fn go_on<I: Items>(pool: &Pool, tree: &Tree<I::K, I::V>, model: &mut Model, seed: u64) {
    let mut noise = Noise(seed | 1);
    for _ in 0..60 {
        let key = noise.below(430);
        let part = (key, (noise.below(3) > 0).then(|| noise.next()));
        match part.1 {
            Some(value) => Operation::Write(key, value).run::<I>(pool, tree),
            None => Operation::Remove(key).run::<I>(pool, tree),
        }
        apply(model, part);
    }
}

impl Explore {
    /// Runs a scenario; returns its recorded points, and the path of the index.
    fn record<I: Items>(&self, scenario: &Scenario, scratch: &Scratch) -> (Recorder, PathBuf) {
        let options =
            CreateOptions { max_bytes: 64 << 20, domain: Some(self.domain), chunk_bytes: Some(4096) };
        let file = PoolFile::create(&scratch.0, &options, medium).unwrap();
        file.keep_index(KeepIndex::Always, BUILD);
        let pool = pool_on_any(file).unwrap();
        let index = segment_of(&pool);
        let tree: Tree<I::K, I::V> = self.configuration.create(&pool, "t").unwrap();
        for &key in &scenario.before {
            Operation::Write(key, key).run::<I>(&pool, &tree);
        }
        let open = |path| FileOptions::new().read(true).open(path).unwrap();
        let files = [open(&scratch.0), open(&index)];
        let recorder =
            Recorder { files, lens: [0; 2], pages: Default::default(), points: Vec::new(), done: 0 };
        RECORDER.set(Some(recorder));
        simulate_steps(Some(|_| point()));
        point();
        for operation in &scenario.operations {
            operation.run::<I>(&pool, &tree);
            RECORDER.with_borrow_mut(|recorder| recorder.as_mut().unwrap().done += 1);
        }
        point();
        simulate_steps(None);
        let recorder = RECORDER.take().unwrap();
        drop(tree);
        pool.simulate_crash();
        (recorder, index)
    }
}

/// The files of a point.
struct Image {
    pages: [Pages; 2],
    lens: [u64; 2],
}

impl Image {
    fn write(&self, paths: [&PathBuf; 2]) {
        for (at, path) in paths.into_iter().enumerate() {
            // In place: an index whose pool has another inode is removed by any process that opens a pool.
            let file = FileOptions::new().create(true).truncate(true).write(true).open(path).unwrap();
            file.set_permissions(Permissions::from_mode(0o644)).unwrap();
            file.set_len(self.lens[at]).unwrap();
            for (number, page) in &self.pages[at] {
                let end = (self.lens[at] - number * PAGE).min(PAGE) as usize;
                file.write_all_at(&page[..end], number * PAGE).unwrap();
            }
            // From now on it can be an index.
            file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        }
    }
}

impl Visit for Explore {
    fn visit<I: Items>(self) {
        let numbers = in_order::<I>();
        for scenario in scenarios(|rank| numbers[rank as usize]) {
            let scratch = Scratch::new();
            let (recorder, index) = self.record::<I>(&scenario, &scratch);
            let mut image = Image { pages: Default::default(), lens: [0; 2] };
            let stride = recorder.points.len().div_ceil(by_level(150, 1500, usize::MAX)).max(1);
            assert!(self.first == 0 || stride <= FIRST_POINTS, "every {stride}-th point only");
            let (mut tried, mut warm) = (0, 0);
            for (number, (done, lens, changed)) in recorder.points.iter().enumerate() {
                image.lens = *lens;
                for (at, page, bytes) in changed {
                    match bytes {
                        Some(bytes) => _ = image.pages[*at].insert(*page, bytes.clone()),
                        None => _ = image.pages[*at].remove(page),
                    }
                }
                if number % stride != self.first {
                    continue;
                }
                tried += 1;
                image.write([&scratch.0, &index]);
                let when = format!(
                    "{:?} {:?} {} point {number} after {done} operations",
                    self.configuration, self.domain, scenario.name
                );
                warm += usize::from(self.reopen::<I>(&scenario, *done, &scratch.0, &index, &when));
            }
            println!(
                "{} {:?} {}: {tried} of {} points, {warm} warm",
                self.configuration,
                self.domain,
                scenario.name,
                recorder.points.len()
            );
            let is_taken_over = matches!(self.configuration.design, Design::NbTree | Design::SsTree);
            assert_eq!(
                warm,
                if is_taken_over { tried } else { 0 },
                "{:?} {}",
                self.configuration,
                scenario.name
            );
        }
    }
}

impl Explore {
    /// Opens the files of a point; returns whether the index was used.
    fn reopen<I: Items>(
        &self,
        scenario: &Scenario,
        done: usize,
        path: &PathBuf,
        index: &PathBuf,
        when: &str,
    ) -> bool {
        let mut model: Model = scenario.before.iter().map(|&key| (key, key)).collect();
        scenario.operations[..done]
            .iter()
            .flat_map(Operation::parts)
            .for_each(|part| apply(&mut model, part));
        let pending = scenario.operations.get(done);
        let pool = open_pool(path, KeepIndex::Always);
        let tree: Tree<I::K, I::V> = self.configuration.open(&pool, "t").unwrap();
        let is_warm = pool.info().index_was_kept;
        let mut model = settled::<I>(&tree, &model, pending, when);
        go_on::<I>(&pool, &tree, &mut model, done as u64 + 1);
        settled::<I>(&tree, &model, None, &format!("{when}, later"));
        drop(tree);
        if done % 2 == 1 {
            // Records that the kill left behind are free again.
            pool.close().unwrap();
            let pool = open_pool(path, KeepIndex::Always);
            let tree: Tree<I::K, I::V> = self.configuration.open(&pool, "t").unwrap();
            assert!(
                pool.info().index_was_kept || self.configuration.design == Design::WoTree,
                "{when}: after a close"
            );
            settled::<I>(&tree, &model, None, &format!("{when}, closed"));
            go_on::<I>(&pool, &tree, &mut model, done as u64 + 2);
            drop(tree);
            pool.simulate_crash();
            return self.recovered::<I>(&model, path, index, is_warm, when);
        }
        // What the medium has is the same.
        pool.simulate_crash();
        self.recovered::<I>(&model, path, index, is_warm, when)
    }

    /// Recovers the pool without the index.
    fn recovered<I: Items>(
        &self,
        model: &Model,
        path: &PathBuf,
        index: &PathBuf,
        is_warm: bool,
        when: &str,
    ) -> bool {
        let _ = fs::remove_file(index);
        let pool = open_pool(path, KeepIndex::Never);
        let opened = self.configuration.open::<I::K, I::V>(&pool, "t");
        let tree = opened.unwrap_or_else(|error| panic!("{when}, recovered: {error}"));
        settled::<I>(&tree, model, None, &format!("{when}, recovered"));
        is_warm
    }
}

/// Small leaves and default ones, in every design, or in the one that `BRISTLECONE_DESIGN` names.
fn configurations() -> impl Iterator<Item = Configuration> {
    let all = crate::common::small().chain(crate::common::defaults());
    let only = std::env::var("BRISTLECONE_DESIGN").ok();
    all.filter(move |shape| only.as_ref().is_none_or(|only| shape.design.name() == only))
}

#[test]
fn every_store_is_a_point_where_a_kill_loses_nothing() {
    let _alone = crate::alone();
    for configuration in share(configurations()) {
        for codec in [Codec::Words, Codec::Texts] {
            for domain in [Domain::Process, Domain::Adr] {
                codec.visit(Explore { configuration, domain, first: 0 });
            }
        }
    }
}

/// Steps whose omission must be noticed, each with a configuration of the small ones and a codec.
const STEPS: &[(&str, &str, Codec)] = &[
    ("index change.1", "nbtree-7", Codec::Words),
    ("index change.1", "sstree-1", Codec::Texts),
    ("index takeover.1", "nbtree-7", Codec::Texts),
    ("index takeover.1", "sstree-1", Codec::Words),
    ("nbtree uncounted", "nbtree-7", Codec::Words),
    ("nbtree takeover.4", "nbtree-7", Codec::Words),
    ("nbtree takeover.4 link", "nbtree-7", Codec::Words),
    ("nbtree takeover.4 replace", "nbtree-7", Codec::Words),
    ("nbtree takeover.6", "nbtree-7", Codec::Words),
    ("sstree announce", "sstree-1", Codec::Words),
    ("sstree announce head", "sstree-3", Codec::Words),
    ("sstree takeover.3", "sstree-1", Codec::Words),
    ("sstree takeover.4", "sstree-1", Codec::Words),
];

/// At least the N of a quick run, so that together these tries have all points.
const FIRST_POINTS: usize = 12;

#[test]
fn omitted_steps_are_noticed() {
    let _alone = crate::alone();
    let only = std::env::var("BRISTLECONE_STEP").ok();
    let mut unnoticed = Vec::new();
    for &(step, name, codec) in
        share(STEPS).into_iter().filter(|(step, ..)| only.as_ref().is_none_or(|only| only == step))
    {
        // A step may matter at few points. One quick try may skip all of them.
        let noticed = (0..FIRST_POINTS).find(|&first| {
            failpoint::omit(Some(step));
            let explored = catch_unwind(|| {
                let configuration = Configuration::named(name).unwrap();
                codec.visit(Explore { configuration, domain: Domain::Process, first });
            });
            failpoint::omit(None);
            simulate_steps(None);
            RECORDER.take();
            explored.is_err()
        });
        match noticed {
            None => unnoticed.push((step, name)),
            Some(first) => println!("{step} in {name}: noticed, from point {first} on"),
        }
    }
    assert_eq!(unnoticed, [], "steps that no point needs");
}
