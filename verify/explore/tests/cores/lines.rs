//! Lines that operations of every design take from other cores.

use bristlecone::{Design, Tree};
use bristlecone_matrix::{CONFIGURATIONS, Codec, Configuration, Items, Visit};
use bristlecone_pm::sync::{AtomicU64, Ordering::Relaxed};

use super::bench::{Bench, Cost, KEYS, THREADS, absent, get, insert, remove, scan, skewed, uniform, update};

/// Operations of a thread.
const EACH: u64 = 500;

/// Maximum numbers of lines that an operation on words takes from other cores by stores: get, insert, update, remove. A
/// write of byte strings takes up to twice as many.
/// The hints of CCL-BTree's index change where a bucket lies in two nodes.
const MOST: &[(Design, [f64; 4])] = &[
    (Design::SsTree, [0.0, 6.0, 6.0, 6.0]),
    (Design::NbTree, [0.0, 6.0, 6.0, 6.0]),
    (Design::CclBTree, [0.06, 6.0, 6.0, 6.0]),
    (Design::LodgeTree, [0.0, 10.0, 12.0, 12.0]),
    (Design::WoTree, [0.0, 6.0, 6.0, 6.0]),
];

/// Maximum number of lines that an operation takes which pins an epoch: the thread's own participant, after other threads
/// have read it to end an epoch.
const PINS: f64 = 0.25;

/// Maximum movements of one line per operation, in DRAM and outside of leaves: of words, and of byte strings. A line that
/// every operation writes moves almost once an operation. The table of chunks of a heap is such a line for updates of byte
/// strings, and CCL-BTree's list of keys that were set aside for their removal: both are open, as are its hints.
const HOTTEST: [f64; 2] = [0.15, 1.5];
const HOTTEST_OF_HINTS: f64 = 0.4;

fn default_of(design: Design) -> &'static Configuration {
    CONFIGURATIONS.iter().find(|one| one.design == design).unwrap()
}

/// Checks that no line but the leaves' moves with every operation.
fn check_hottest(what: &str, cost: &Cost, most: f64) -> Result<(), String> {
    match cost.hottest() {
        hottest if hottest <= most => Ok(()),
        hottest => Err(format!("{what}: a line moves {hottest:.3} times an operation: {:#?}", cost.hot[0])),
    }
}

struct Lines(&'static Configuration, [f64; 4], Codec);

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
            let most = if codec == Codec::Words { most[0] } else { PINS };
            assert!(cost.written() <= most, "{}: {:#?}", named(name), cost.hot);
        }
        bench.each(EACH / 10, uniform, scan::<I>);
        let scans = bench.each(EACH / 10, uniform, scan::<I>);
        println!("{}", show(&named("scan"), &scans));
        assert!(scans.written() <= 3.0 * PINS, "{}: {:#?}", named("scan"), scans.hot);
        let costs = [
            ("insert", bench.each(EACH, absent, insert::<I>)),
            ("update", bench.each(EACH, uniform, update::<I>)),
            ("remove", bench.each(KEYS, |number| number, remove::<I>)),
        ];
        let is_words = codec == Codec::Words;
        let hottest = match configuration.design {
            Design::CclBTree if is_words => HOTTEST_OF_HINTS,
            _ => HOTTEST[usize::from(!is_words)],
        };
        for ((what, cost), most) in costs.iter().zip(&most[1..]) {
            println!("{}", show(&named(what), cost));
            check_hottest(&named(what), cost, hottest).unwrap();
            let most = if is_words { *most } else { 2.0 * most };
            assert!(cost.written() <= most, "{}: {:.3} lines, {most} at most", named(what), cost.written());
        }
    }
}

fn show(what: &str, cost: &Cost) -> String {
    format!("{what}: {:.3} lines written, hottest {:.3}", cost.written(), cost.hottest())
}

fn lines_of(design: Design) {
    let most = MOST.iter().find(|(of, _)| *of == design).unwrap().1;
    for codec in [Codec::Words, Codec::Texts] {
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
    assert!(check_hottest("counter", &cost, HOTTEST[0]).is_err(), "{:.3}", cost.hottest());
}

#[test]
fn every_design_is_in_the_table() {
    assert!(Design::ALL.iter().all(|design| MOST.iter().any(|(of, _)| of == design)));
}
