//! Processes that are killed under load, with followers, and opened again. `BRISTLECONE_KILL_ROUNDS` sets the number of
//! kills of each configuration: `BRISTLECONE_KILL_ROUNDS=100000 cargo test --release -p bristlecone --test restart kills::`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bristlecone::{Design, KeepIndex, Pool, Tree};
use bristlecone_matrix::by_level;
use bristlecone_matrix::process::{self, Process};

use crate::aside;
use crate::common::{Codec, Configuration, Items, Noise, Plant, Scratch, Visit, defaults, small};
use crate::operation::{Model, Operation, Part, apply, is_equal};

const TEST: &str = "kills::what_is_acknowledged_is_found_with_the_index_of_the_killed_process";
const WRITERS: u64 = 3;
/// Threads of a killed process: writers, and one that changes the directory.
const THREADS: usize = WRITERS as usize + 1;
const KEYS: u64 = 2000;

/// The operations of a writer in a life.
fn operations(life: u64, writer: u64) -> impl Iterator<Item = Operation> {
    let mut noise = Noise((life * WRITERS + writer + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let filling = life % 3 != 2;
    std::iter::from_fn(move || {
        let kind = noise.below(20);
        let fills = noise.below(10) < if filling { 7 } else { 2 };
        let mut part = || (noise.below(KEYS) * WRITERS + writer, noise.next());
        let mut some = || (0..5).map(|_| part()).collect::<BTreeMap<_, _>>().into_iter();
        Some(match (kind, fills) {
            (0, true) => Operation::Many(some().collect()),
            (0, false) => Operation::RemoveMany(some().map(|(key, _)| key).collect()),
            (1, _) => Operation::Batch(
                some().map(|(key, value)| (key, (fills || value % 4 == 0).then_some(value))).collect(),
            ),
            (2, true) => some().next().map(|(key, value)| Operation::Swap(key, value))?,
            (_, true) => some().next().map(|(key, value)| Operation::Write(key, value))?,
            (_, false) => some().next().map(|(key, _)| Operation::Remove(key))?,
        })
    })
}

fn open(scratch: &Scratch) -> Pool {
    let options = Pool::options().max_bytes(256 << 20).create(true).keep_index(KeepIndex::Always);
    options.open(&scratch.0).unwrap()
}

/// Writes until it is killed, and says which writer's step is complete.
struct Writer(Configuration, u64, Scratch);

impl Visit for Writer {
    fn visit<I: Items>(self) {
        let Self(configuration, life, scratch) = self;
        let pool = open(&scratch);
        let tree: Tree<I::K, I::V> = configuration.open(&pool, "t").unwrap();
        aside::remove(&pool);
        process::say("open");
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (pool, tree) = (&pool, &tree);
                scope.spawn(move || {
                    for operation in operations(life, writer) {
                        operation.run::<I>(pool, tree);
                        process::say(&writer.to_string());
                    }
                });
            }
            aside::change::<I>(configuration, &pool, |_| process::say(&WRITERS.to_string()));
        });
    }
}

/// Kills writers, each in the pool that the last one left.
struct Kills(Configuration);

impl Visit for Kills {
    fn visit<I: Items>(self) {
        let Self(configuration) = self;
        let scratch = Scratch::new();
        let pool = open(&scratch);
        drop(configuration.create::<I::K, I::V>(&pool, "t").unwrap());
        pool.close().unwrap();
        let rounds = std::env::var("BRISTLECONE_KILL_ROUNDS")
            .map_or_else(|_| by_level(6, 40, 1000), |rounds| rounds.parse().unwrap());
        let mut noise = Noise(u64::from(std::process::id()) | 1);
        let mut expected = Expected::default();
        let (name, path) = (configuration.to_string(), scratch.0.to_str().unwrap().to_owned());
        let (mut kept, mut followed) = (0, 0);
        for life in 0..rounds {
            let mut writer =
                Process::start(TEST, &[&life.to_string(), &name, &codec_of::<I>().to_string(), &path]);
            writer.expect("open");
            // Its lookups end with the life of the writer, whatever they meet.
            let follower: Tree<I::K, I::V> = Pool::follow(&scratch.0).unwrap().tree("t").unwrap();
            let mut acknowledged = [0; THREADS];
            let looked = std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    (0..KEYS).cycle().map_while(|key| follower.get(I::key_ref(&I::key(key))).ok()).count()
                });
                let said = writer.kill_after(Duration::from_micros(2000 + noise.below(20_000)));
                for line in &said {
                    let writer = line.parse::<usize>();
                    acknowledged[writer.unwrap_or_else(|_| panic!("{name}, life {life}: {said:#?}"))] += 1;
                }
                reader.join().unwrap()
            });
            followed += looked;
            expected.note(life, acknowledged);
            // Every other time the next writer takes over from the killed one.
            if life % 2 == 1 {
                kept += usize::from(verify::<I>(configuration, &scratch, life, &mut expected));
            }
        }
        let openings = rounds as usize / 2;
        println!("{name} {}: {kept} of {openings} openings with the index", codec_of::<I>());
        assert!(followed > 0, "{name}: no lookup of a follower");
        let is_taken_over = matches!(configuration.design, Design::NbTree | Design::SsTree);
        // A follower in the middle of a lookup may prevent it.
        assert!(!is_taken_over || kept * 2 > openings, "{name}: {kept} of {openings}");
    }
}

fn codec_of<I: Items>() -> Codec {
    let name = std::any::type_name::<I>();
    *Codec::ALL.iter().find(|codec| name.ends_with(&format!("{codec:?}"))).unwrap()
}

/// The items that a killed process must have left.
#[derive(Default)]
struct Expected {
    /// The items of acknowledged operations.
    model: Model,
    /// Values that keys may have instead, of operations that kills interrupted.
    maybe: BTreeMap<u64, Vec<Option<u64>>>,
    /// Batches that kills interrupted, of whose keys no other operation is known that may have taken effect.
    batches: Vec<Vec<Part>>,
    /// Number of acknowledged changes of the directory in the last life.
    aside: usize,
}

impl Expected {
    /// Notes the acknowledged operations of a life, and the interrupted one of each writer.
    fn note(&mut self, life: u64, acknowledged: [usize; THREADS]) {
        self.aside = acknowledged[WRITERS as usize];
        for writer in 0..WRITERS {
            let mut operations = operations(life, writer);
            for part in operations.by_ref().take(acknowledged[writer as usize]).flat_map(|done| done.parts())
            {
                self.maybe.remove(&part.0);
                self.forget_batches(part.0);
                apply(&mut self.model, part);
            }
            let interrupted = operations.next().unwrap();
            // Whether an operation that an earlier kill interrupted changed the key, the tree cannot tell then.
            let is_clear = interrupted.parts().iter().all(|part| !self.maybe.contains_key(&part.0));
            for (key, value) in interrupted.parts() {
                self.forget_batches(key);
                self.maybe.entry(key).or_default().push(value);
            }
            if let Operation::Batch(parts) = interrupted
                && is_clear
            {
                self.batches.push(parts);
            }
        }
    }

    fn forget_batches(&mut self, key: u64) {
        self.batches.retain(|parts| parts.iter().all(|part| part.0 != key));
    }

    /// Decides from the tree which interrupted operations took effect.
    fn settle<I: Items>(&mut self, tree: &Tree<I::K, I::V>, when: &str) {
        let before = self.model.clone();
        for (key, values) in std::mem::take(&mut self.maybe) {
            let found = tree.get(I::key_ref(&I::key(key))).unwrap();
            if let Some(&value) = values.iter().find(|value| value.map(I::value) == found) {
                apply(&mut self.model, (key, value));
            }
        }
        for parts in std::mem::take(&mut self.batches) {
            let is =
                |model: &Model| parts.iter().filter(|(key, value)| model.get(key).copied() == *value).count();
            let is_whole = is(&self.model) == parts.len() || is(&self.model) == is(&before);
            assert!(is_whole, "{when}: a part of a batch: {parts:?}");
        }
    }
}

/// Opens the pool and compares it with the model; returns whether the index was used. Every other time, compares it
/// also after a recovery from the leaves.
fn verify<I: Items>(
    configuration: Configuration,
    scratch: &Scratch,
    life: u64,
    expected: &mut Expected,
) -> bool {
    let when = format!("{configuration}, life {life}");
    let pool = open(scratch);
    let tree: Tree<I::K, I::V> = configuration.open(&pool, "t").unwrap();
    let is_kept = pool.info().index_was_kept;
    expected.settle::<I>(&tree, &when);
    let compare = |pool: &Pool, tree: &Tree<I::K, I::V>, when: &str| {
        assert_eq!(tree.check(), [], "{when}");
        assert!(is_equal::<I>(tree, &expected.model), "{when}: other items");
        assert_eq!(tree.len().unwrap(), expected.model.len() as u64, "{when}: number of items");
        aside::verify::<I>(configuration, pool, expected.aside, when);
    };
    compare(&pool, &tree, &when);
    drop(tree);
    if life % 4 == 1 {
        pool.close().unwrap();
        return is_kept;
    }
    pool.simulate_crash();
    let pool = scratch.without_index().open(&scratch.0).unwrap();
    let tree: Tree<I::K, I::V> = configuration.open(&pool, "t").unwrap();
    compare(&pool, &tree, &format!("{when}, recovered"));
    drop(tree);
    pool.close().unwrap();
    is_kept
}

#[test]
fn what_is_acknowledged_is_found_with_the_index_of_the_killed_process() {
    let _alone = crate::alone();
    if let Some([life, name, codec, path]) = process::role().as_deref() {
        let configuration = Configuration::named(name).unwrap();
        let codec = *Codec::ALL.iter().find(|known| known.to_string() == *codec).unwrap();
        return codec.visit(Writer(configuration, life.parse().unwrap(), Scratch(PathBuf::from(path))));
    }
    let only = std::env::var("BRISTLECONE_DESIGN").ok();
    let is_wanted = |shape: &Configuration| only.as_ref().is_none_or(|only| shape.design.name() == only);
    for configuration in small().chain(defaults()).filter(is_wanted) {
        for codec in [Codec::Words, Codec::Texts] {
            codec.visit(Kills(configuration));
        }
    }
}
