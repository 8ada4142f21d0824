//! Processes that are killed under load, with followers, and opened again. `BRISTLECONE_KILL_ROUNDS` sets the number of
//! kills of each configuration: `BRISTLECONE_KILL_ROUNDS=100000 cargo test --release -p bristlecone --test restart kills::`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bristlecone::{Design, KeepIndex, Pool, Tree};
use bristlecone_matrix::by_level;
use bristlecone_matrix::process::{self, Process};

use crate::common::{Codec, Configuration, Items, Noise, Plant, Scratch, Visit, defaults, small};

const TEST: &str = "kills::what_is_acknowledged_is_found_with_the_index_of_the_killed_process";
const WRITERS: u64 = 3;
const KEYS: u64 = 2000;

/// A key of a writer, and its value after a step.
type Step = (u64, Option<u64>);

/// The steps of a writer in a life.
fn steps(life: u64, writer: u64) -> impl Iterator<Item = Step> {
    let mut noise = Noise((life * WRITERS + writer + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let filling = life % 3 != 2;
    std::iter::from_fn(move || {
        let key = noise.below(KEYS) * WRITERS + writer;
        let fills = noise.below(10) < if filling { 7 } else { 2 };
        Some((key, fills.then(|| noise.next())))
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
        process::say("open");
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let tree = &tree;
                scope.spawn(move || {
                    for (key, value) in steps(life, writer) {
                        let key = I::key(key);
                        match value {
                            Some(value) => {
                                tree.upsert(I::key_ref(&key), I::value_ref(&I::value(value))).unwrap()
                            }
                            None => drop(tree.remove(I::key_ref(&key)).unwrap()),
                        }
                        process::say(&writer.to_string());
                    }
                });
            }
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
        let (mut model, mut maybe) = (BTreeMap::new(), BTreeMap::new());
        let (name, path) = (configuration.to_string(), scratch.0.to_str().unwrap().to_owned());
        let (mut kept, mut followed) = (0, 0);
        for life in 0..rounds {
            let mut writer =
                Process::start(TEST, &[&life.to_string(), &name, &codec_of::<I>().to_string(), &path]);
            writer.expect("open");
            // Its lookups end with the life of the writer, whatever they meet.
            let follower: Tree<I::K, I::V> = Pool::follow(&scratch.0).unwrap().tree("t").unwrap();
            let mut acknowledged = [0; WRITERS as usize];
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
            note(life, acknowledged, &mut model, &mut maybe);
            // Every other time the next writer takes over from the killed one.
            if life % 2 == 1 {
                kept += usize::from(verify::<I>(configuration, &scratch, life, &mut model, &mut maybe));
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

/// The items of acknowledged steps, and values that keys may have instead, of steps that kills interrupted.
type Model = BTreeMap<u64, u64>;
type Maybe = BTreeMap<u64, Vec<Option<u64>>>;

fn apply(model: &mut Model, (key, value): Step) {
    match value {
        Some(value) => drop(model.insert(key, value)),
        None => drop(model.remove(&key)),
    }
}

/// Notes the acknowledged steps of a life, and the interrupted one of each writer.
fn note(life: u64, acknowledged: [usize; WRITERS as usize], model: &mut Model, maybe: &mut Maybe) {
    for writer in 0..WRITERS {
        let mut steps = steps(life, writer);
        for step in steps.by_ref().take(acknowledged[writer as usize]) {
            maybe.remove(&step.0);
            apply(model, step);
        }
        let (key, value) = steps.next().unwrap();
        maybe.entry(key).or_default().push(value);
    }
}

/// Opens the pool and compares it with the model; returns whether the index was used.
fn verify<I: Items>(
    configuration: Configuration,
    scratch: &Scratch,
    life: u64,
    model: &mut Model,
    maybe: &mut Maybe,
) -> bool {
    let pool = open(scratch);
    let tree: Tree<I::K, I::V> = configuration.open(&pool, "t").unwrap();
    let is_kept = pool.info().index_was_kept;
    let when = format!("{configuration}, life {life}");
    assert_eq!(tree.check(), [], "{when}");
    for (key, values) in std::mem::take(maybe) {
        let found = tree.get(I::key_ref(&I::key(key))).unwrap();
        if let Some(&value) = values.iter().find(|value| value.map(I::value) == found) {
            apply(model, (key, value));
        }
    }
    let items: BTreeMap<_, _> = model.iter().map(|(&key, &value)| (I::key(key), I::value(value))).collect();
    assert!(tree.iter().map(Result::unwrap).eq(items), "{when}: other items");
    assert_eq!(tree.len().unwrap(), model.len() as u64, "{when}: number of items");
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
