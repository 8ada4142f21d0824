//! Damaged words: each kind of word that format.md lists, in every design, codec and small pool, gets every value
//! that could mislead, one at a time. The result is an error of a known kind, an issue of `check`, or the correct
//! items. A read-only pool may serve a tree that recovery refuses; then `check` has issues, checked reads return the
//! correct items or an error, and an open for writing is refused. Where format.md has no checksum, at most as many items as the word affects may differ: `places` and
//! `nodes` list the exceptions, each with its kind of word. Nothing may panic, hang or grow without bound, and
//! neither `check` nor salvage may report damaged data as sound.
//!
//! A daily run tries a word or two of each kind, and unless it is quick covers every kind; `BRISTLECONE_CELLS`
//! tries more of the named cells, and `BRISTLECONE_WORDS=N` sets the number of words of each kind.

mod nodes;
mod places;
mod site;

use std::collections::BTreeMap;
use std::time::Instant;

use self::places::Place;
use self::site::{Deep, Outcome, Site};
use crate::common::{Cell, Items, Noise, Visit, is_alone, suites};
use bristlecone::Design;
use bristlecone_matrix::{TestLevel, by_level, seed};

/// Of this many values one is followed by writes and another opening, and one by salvage.
const LIVES: usize = 16;
const SALVAGES: usize = 48;
/// Memory limit of the process in bytes.
const MEMORY_BYTES: u64 = 1 << 30;
/// At most one of this many wrong words of log entries may pass unnoticed by chance.
const CHANCES: usize = 24;

/// Number of outcomes by kind of word.
type Counts = BTreeMap<&'static str, BTreeMap<Outcome, usize>>;

struct Sweep<'c> {
    cell: Cell,
    seed: u64,
    counts: &'c mut Counts,
    failures: &'c mut Vec<String>,
}

impl Visit for Sweep<'_> {
    fn visit<I: Items>(self) {
        let asked = std::env::var("BRISTLECONE_WORDS").ok().map(|words| words.parse().unwrap());
        let words: usize = asked.unwrap_or_else(|| by_level(1, 2, 8));
        let mut site = Site::<I>::new(self.cell);
        let mut kinds: BTreeMap<&str, Vec<Place>> = BTreeMap::new();
        site.places().into_iter().for_each(|place| kinds.entry(place.kind).or_default().push(place));
        let (mut noise, mut tried) = (Noise(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), 0);
        for places in kinds.values() {
            let from = noise.below(places.len() as u64) as usize;
            let step = places.len().div_ceil(words);
            for place in places.iter().cycle().skip(from).step_by(step).take(words.min(places.len())) {
                for value in site.values(*place, places, &mut noise) {
                    tried += 1;
                    let deep = match tried {
                        _ if tried % SALVAGES == 0 => Some(Deep::Salvage),
                        _ if tried % LIVES == 0 => Some(Deep::Live),
                        _ => None,
                    };
                    let count = self.counts.entry(place.kind).or_default();
                    match site.attempt(*place, value, deep) {
                        Ok(outcome) => *count.entry(outcome).or_default() += 1,
                        Err(what) => {
                            let Place { kind, at, .. } = place;
                            let old = site.pages.word(*at);
                            self.failures.push(format!(
                                "{}: {kind} at {at:#x}: {old:#x} -> {value:#x}: {what}",
                                self.cell
                            ));
                        }
                    }
                }
            }
        }
    }
}

/// Tries words of a design's cells. At a test level above quick, all of the given kinds must be covered.
fn sweep(design: Design, test: &str, kinds: &[&str]) {
    if !is_alone(test) {
        return;
    }
    let (mut counts, mut failures, begun) = (Counts::new(), Vec::new(), Instant::now());
    let of_design =
        |cells: Vec<Cell>| cells.into_iter().filter(move |cell| cell.configuration.design == design);
    let drawn: Vec<Cell> = of_design(suites::WORDS.sampled()).collect();
    let some_cells =
        TestLevel::of_run() == TestLevel::Quick || std::env::var_os("BRISTLECONE_CELLS").is_some();
    // Kinds that the day's cells do not have are in other cells.
    let others = of_design(suites::WORDS.cells())
        .filter(|cell| drawn.iter().all(|own| own.to_string() != cell.to_string()));
    for (number, cell) in drawn.iter().copied().chain(others).enumerate() {
        let has_all = |counts: &Counts| kinds.iter().all(|kind| counts.contains_key(kind));
        if number >= drawn.len() && (some_cells || has_all(&counts)) {
            break;
        }
        let seed = seed() + number as u64;
        cell.codec.visit(Sweep { cell, seed, counts: &mut counts, failures: &mut failures });
    }
    let of = |outcomes: &BTreeMap<Outcome, usize>, outcome| outcomes.get(&outcome).copied().unwrap_or(0);
    let tried: usize = counts.values().flat_map(BTreeMap::values).sum();
    println!(
        "{design}: {tried} words in {:?}: refused, served, found, right, wrong, wrong by chance",
        begun.elapsed()
    );
    for (kind, outcomes) in &counts {
        use Outcome::{Chance, Found, Refused, Right, Served, Wrong};
        let outcomes = [Refused, Served, Found, Right, Wrong, Chance].map(|outcome| of(outcomes, outcome));
        println!("  {kind}: {outcomes:?}");
        let (all, chance) = (outcomes.iter().sum::<usize>(), outcomes[5]);
        assert!(chance * CHANCES <= all + 2 * CHANCES, "{kind}: {chance} of {all} by chance");
    }
    let missing: Vec<_> = kinds.iter().filter(|kind| !counts.contains_key(*kind)).collect();
    assert!(missing.is_empty() || some_cells, "no {missing:?}");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(memory_bytes() < MEMORY_BYTES, "{} bytes of memory", memory_bytes());
}

/// Returns the peak memory of this process.
fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn sstree_any_word_may_be_anything() {
    let kinds = [
        "bitmap",
        "bitmap of an overflow subnode",
        "bitmap that stages",
        "key",
        "key of an empty slot",
        "next of a free subnode",
        "next of a head",
        "next of a single head",
        "next of a tail",
        "next within",
        "staged key",
        "staged value",
        "value",
    ];
    sweep(Design::SsTree, "damaged_words::sstree_any_word_may_be_anything", &kinds);
}

#[test]
fn nbtree_any_word_may_be_anything() {
    let kinds = [
        "birth of a draft",
        "key",
        "key in a draft",
        "key of a sealed slot",
        "metadata",
        "record of a value",
        "seal",
        "state of a block being replaced",
        "state of a draft",
        "state of a first leaf",
        "state of a free block",
        "state of a leaf",
        "state of a replaced block",
        "value",
        "value in a draft",
    ];
    sweep(Design::NbTree, "damaged_words::nbtree_any_word_may_be_anything", &kinds);
}

#[test]
fn cclbtree_any_word_may_be_anything() {
    let kinds = [
        "behind a log's last entry",
        "fence of a leaf",
        "fingerprints",
        "free leaf",
        "generation",
        "generation again",
        "key",
        "root",
        "stamp of a leaf",
        "stamp of an entry",
        "value",
        "word of a leaf",
    ];
    sweep(Design::CclBTree, "damaged_words::cclbtree_any_word_may_be_anything", &kinds);
}

#[test]
fn lodgetree_any_word_may_be_anything() {
    let kinds = [
        "behind a log's last entry",
        "fence of a leaf",
        "fence of the first leaf",
        "fingerprints",
        "free leaf",
        "generation",
        "generation again",
        "key",
        "next of a leaf",
        "other next of a leaf",
        "root",
        "stamp of a leaf",
        "stamp of an entry",
        "value",
        "word of a leaf",
    ];
    sweep(Design::LodgeTree, "damaged_words::lodgetree_any_word_may_be_anything", &kinds);
}

#[test]
fn wotree_any_word_may_be_anything() {
    let kinds = [
        "bitmap of a leaf",
        "child",
        "end of an inner node",
        "high of a leaf",
        "high of an inner node",
        "key",
        "key of an inner node",
        "kind of a free lane",
        "kind of a record",
        "next of a leaf",
        "next of an inner node",
        "node of a record",
        "owner of a record",
        "root",
        "slot array",
        "state of a leaf",
        "state of an inner node",
        "value",
    ];
    sweep(Design::WoTree, "damaged_words::wotree_any_word_may_be_anything", &kinds);
}
