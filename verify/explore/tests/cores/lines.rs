//! Lines that operations of every design take from other cores.

use bristlecone::{Design, Tree};
use bristlecone_matrix::{CONFIGURATIONS, Codec, Configuration, Items, Visit};
use bristlecone_pm::sync::{AtomicU64, Ordering::Relaxed};

use super::bench::{Bench, Cost, KEYS, THREADS, absent, get, insert, remove, scan, skewed, uniform, update};

/// Operations of a thread.
const EACH: u64 = 500;

/// Maximum numbers of an operation, on average: lines that it takes from other cores by stores, and movements of the line
/// that moves most, in DRAM and outside of leaves.
type Most = [f64; 2];

/// Movements from which on most operations write the line. Rows beyond it are open; a line that is mended fails its row.
const CONTENDED: f64 = 0.4;

/// The limits of a design with words or byte strings: of insert, update and remove.
const MOST: &[(Design, Codec, [Most; 3])] = &[
    (Design::SsTree, Codec::Words, [[4.8, 0.1], [2.3, 0.05], [2.4, 0.05]]),
    (Design::SsTree, Codec::Texts, [[4.8, 0.12], [6.0, 0.4], [1.2, 0.1]]),
    (Design::NbTree, Codec::Words, [[4.9, 0.1], [2.4, 0.05], [2.4, 0.05]]),
    (Design::NbTree, Codec::Texts, [[7.2, 0.15], [6.1, 0.4], [1.6, 0.06]]),
    (Design::CclBTree, Codec::Words, [[3.9, 0.3], [3.1, 0.3], [3.4, 0.15]]),
    (Design::CclBTree, Codec::Texts, [[3.4, 0.35], [5.0, 0.3], [3.8, 0.4]]),
    (Design::LodgeTree, Codec::Words, [[9.8, 0.1], [9.6, 0.1], [9.2, 0.1]]),
    (Design::LodgeTree, Codec::Texts, [[9.8, 0.25], [12.0, 0.4], [12.0, 0.25]]),
    (Design::WoTree, Codec::Words, [[4.1, 0.12], [2.6, 0.1], [2.5, 0.1]]),
    (Design::WoTree, Codec::Texts, [[4.6, 0.4], [5.6, 0.4], [2.0, 0.25]]),
];

/// Maximum number of lines that a get of a word takes. The hints of CCL-BTree's index change where a bucket lies in two
/// nodes.
fn most_of_get(design: Design) -> f64 {
    if design == Design::CclBTree { 0.06 } else { 0.0 }
}

/// Maximum number of lines that an operation takes which pins an epoch: the thread's own participant, after other threads
/// have read it to end an epoch. A scan pins one for each leaf.
const PINS: f64 = 0.2;
const PINS_OF_SCAN: f64 = 0.75;

fn default_of(design: Design) -> &'static Configuration {
    CONFIGURATIONS.iter().find(|one| one.design == design).unwrap()
}

/// Checks that no line but the leaves' moves more often than that.
fn check_hottest(what: &str, cost: &Cost, most: f64) -> Result<(), String> {
    match cost.hottest() {
        hottest if hottest > most => {
            Err(format!("{what}: a line moves {hottest:.3} times an operation: {:#?}", cost.hot[0]))
        }
        hottest if most > CONTENDED && hottest < most / 2.0 => {
            Err(format!("{what}: a line moves {hottest:.3} times an operation: lower its limit of {most}"))
        }
        _ => Ok(()),
    }
}

struct Lines(&'static Configuration, [Most; 3], Codec);

impl Visit for Lines {
    fn visit<I: Items>(self) {
        let Self(configuration, most, codec) = self;
        let mut bench = Bench::<I>::new(configuration);
        let named = |what: &str| format!("{configuration:?} {codec}: {what}");
        // Lookups learn where keys are, and then store nothing.
        for (name, choose) in [("uniform", uniform as fn(u64) -> u64), ("skewed", skewed), ("one key", |_| 7)]
        {
            bench.each(EACH, choose, get::<I>);
            let cost = bench.each(EACH, choose, get::<I>);
            println!("{}", show(&named(&format!("get {name}")), &cost));
            // Words are read in place. A record is protected by an epoch.
            let most = if codec == Codec::Words { most_of_get(configuration.design) } else { PINS };
            assert!(cost.written() <= most, "{}: {:#?}", named(name), cost.hot);
        }
        bench.each(EACH / 10, uniform, scan::<I>);
        let scans = bench.each(EACH / 10, uniform, scan::<I>);
        println!("{}", show(&named("scan"), &scans));
        assert!(scans.written() <= PINS_OF_SCAN, "{}: {:#?}", named("scan"), scans.hot);
        let costs = [
            ("insert", bench.each(EACH, absent, insert::<I>)),
            ("update", bench.each(EACH, uniform, update::<I>)),
            ("remove", bench.each(KEYS, |number| number, remove::<I>)),
        ];
        for ((what, cost), [lines, hottest]) in costs.iter().zip(most) {
            println!("{}", show(&named(what), cost));
            check_hottest(&named(what), cost, hottest).unwrap();
            assert!(cost.written() <= lines, "{}: {:.3} lines, {lines} at most", named(what), cost.written());
        }
    }
}

fn show(what: &str, cost: &Cost) -> String {
    format!("{what}: {:.3} lines written, hottest {:.3}", cost.written(), cost.hottest())
}

fn lines_of(design: Design) {
    for &(_, codec, most) in MOST.iter().filter(|(of, ..)| *of == design) {
        codec.visit(Lines(default_of(design), most, codec));
    }
}

#[test]
fn lookups_store_nothing_and_writes_take_few_lines_sstree() {
    lines_of(Design::SsTree);
}

#[test]
fn lookups_store_nothing_and_writes_take_few_lines_nbtree() {
    lines_of(Design::NbTree);
}

#[test]
fn lookups_store_nothing_and_writes_take_few_lines_cclbtree() {
    lines_of(Design::CclBTree);
}

#[test]
fn lookups_store_nothing_and_writes_take_few_lines_lodgetree() {
    lines_of(Design::LodgeTree);
}

#[test]
fn lookups_store_nothing_and_writes_take_few_lines_wotree() {
    lines_of(Design::WoTree);
}

#[test]
fn a_line_that_every_operation_writes_is_found() {
    let counter = Box::new(AtomicU64::new(0));
    let mut bench = Bench::<bristlecone_matrix::Words>::new(default_of(Design::NbTree));
    let run = |tree: &Tree<u64, u64>, number| {
        update::<bristlecone_matrix::Words>(tree, number);
        counter.fetch_add(1, Relaxed);
    };
    let cost = bench.each(EACH, uniform, run);
    assert_eq!(counter.load(Relaxed), EACH * THREADS as u64);
    assert!(check_hottest("counter", &cost, CONTENDED).is_err(), "{:.3}", cost.hottest());
}

#[test]
fn every_design_is_in_the_table() {
    for codec in [Codec::Words, Codec::Texts] {
        assert!(Design::ALL.iter().all(|design| MOST.iter().any(|row| (row.0, row.1) == (*design, codec))));
    }
}
