//! CCL-BTree's figures: media writes, counted by the device model, and their effect on the clock of many
//! threads.

use bristlecone::lab::part_of;
use bristlecone::{Design, Domain, Tree};
use bristlecone_device::{Counted, Device, Layout, Processor, Profile, Traffic};
use bristlecone_explore::targets::device_pool;
use bristlecone_matrix::{TestLevel, by_level, takes};
use bristlecone_pm::{CHUNK_BYTES, Geometry, Part, Region};
use bristlecone_random::mix;

/// Number of keys of a tree.
fn keys() -> u64 {
    by_level(100_000, 300_000, 300_000)
}

const THREADS: usize = 48;
const WRITE: u8 = 1;

/// A tree of 8-byte keys and values on a device.
struct Bench {
    device: Device,
    tree: Tree<u64, u64>,
}

impl Bench {
    /// Creates it with writers that collect the log themselves, so that runs repeat.
    fn ccl(options: &[(&str, u64)]) -> Self {
        Self::in_chunks(CHUNK_BYTES, options)
    }

    fn in_chunks(chunk_bytes: u64, options: &[(&str, u64)]) -> Self {
        let geometry = Geometry { chunk_bytes, chunks_max: 64 * CHUNK_BYTES / chunk_bytes, trees_max: 2 };
        let region = Region::memory(geometry.max_bytes()).unwrap();
        let domain = Domain::Adr;
        let device = Device::new(
            &region,
            Layout { geometry, part_of },
            domain,
            Profile::OPTANE,
            Processor::default(),
            &[THREADS],
        );
        let pool = device_pool(&device, region, geometry, domain).unwrap();
        let tree = pool.tree_options("t").design(Design::CclBTree).option("collector_threads", 0);
        let tree = options.iter().fold(tree, |tree, (name, value)| tree.option(name, *value));
        Self { device, tree: tree.create().unwrap() }
    }

    fn write(&self, keys: impl Iterator<Item = u64>) -> Counted {
        for key in keys {
            self.device.operation(WRITE, || (self.tree.upsert(mix(key), key).unwrap(), 16));
        }
        self.device.take()
    }

    /// Loads the keys.
    fn loaded(self) -> Self {
        self.write(0..keys());
        self
    }

    /// Returns the cost of each of an equal number of further inserts.
    fn inserts(self) -> Cost {
        let loaded = self.loaded();
        loaded.write(keys()..2 * keys()).into()
    }
}

/// Bytes of media writes of an operation; inserts per second.
#[derive(Clone, Copy, Debug)]
struct Cost {
    leaf: f64,
    log: f64,
    all: f64,
    rate: f64,
}

impl From<Counted> for Cost {
    fn from(counted: Counted) -> Self {
        let operations = counted.tallies[WRITE].operations as f64;
        let sum = counted.tallies.sum();
        let each = |traffic: Traffic| traffic.media_bytes_written as f64 / operations;
        Self {
            leaf: each(sum.part(Part::Leaf)),
            log: each(sum.part(Part::Log)),
            all: each(sum.total()),
            rate: operations / counted.times[0].seconds,
        }
    }
}

fn within(what: &str, found: f64, due: f64, tolerance: f64) {
    println!("{what}: {found:.2}, due {due:.2}");
    assert!((found / due - 1.0).abs() <= tolerance, "{what}: {found:.2}, due {due:.2}");
}

/// N items are logged for each item that is written to the leaf, together with these, in one media line.
#[test]
fn cclbtree_upserts_write_what_the_papers_formula_says() {
    for batch in [1, 2, 4] {
        // No split, and no collection: the formula includes neither.
        let bench = Bench::ccl(&[("batch", batch), ("log_percent", 1000)]).loaded();
        let cost: Cost = bench.write((0..3 * keys()).map(|i| i * 7919 % keys())).into();
        let n = batch as f64;
        within(&format!("N = {batch}"), cost.all, (256.0 + 24.0 * n) / (n + 1.0), 0.03);
    }
}

/// The paper's 187, 150, 133, 123 and 118 bytes are upper limits for ours, which are 14 to 26 % fewer.
#[test]
fn cclbtree_inserts_write_at_most_what_the_papers_do() {
    if !takes(TestLevel::Ci, "media writes of inserts into CCL-BTree") {
        return;
    }
    let paper = [187.0, 150.0, 133.0, 123.0, 118.0];
    let mut last = f64::INFINITY;
    for (batch, paper) in (1..).zip(paper) {
        let cost = Bench::ccl(&[("batch", batch)]).inserts();
        println!("N = {batch}: {cost:.2?}, the paper's {paper}");
        assert!(cost.all <= paper && cost.all < last, "N = {batch}: {cost:?}");
        last = cost.all;
    }
}

/// The paper: buffers save 63.9 % of the media writes of leaves; logging only what stays in a buffer saves
/// 26.5 % of those of the log. In total it reports 44 %.
#[test]
fn cclbtree_each_technique_saves_media_writes() {
    if !takes(TestLevel::Ci, "what each technique of CCL-BTree saves") {
        return;
    }
    let base = Bench::ccl(&[("batch", 0)]).inserts();
    // With the paper's TH_log.
    let buffered = Bench::ccl(&[("log_all", 1), ("log_percent", 20)]).inserts();
    let full = Bench::ccl(&[("log_percent", 20)]).inserts();
    println!("{base:.2?}\n{buffered:.2?}\n{full:.2?}");
    let saved = |less: f64, more: f64| 100.0 * (1.0 - less / more);
    let leaf = saved(buffered.leaf, base.leaf);
    assert!((leaf - 63.9).abs() <= 5.0, "{leaf:.1} % of the leaves' media writes");
    let log = saved(full.log, buffered.log);
    assert!((log - 26.5).abs() <= 5.0, "{log:.1} % of the log's media writes");
    let all = saved(full.all, base.all);
    assert!(all >= 44.0, "{all:.1} % of all media writes");
}

/// Media bytes for each byte that the user writes, of which the paper has about 10, and DRAM.
#[test]
fn cclbtree_amplification_and_space_hold() {
    let bench = Bench::ccl(&[]).loaded();
    let uniform: Cost = bench.write(keys()..2 * keys()).into();
    let (uniform, dram) =
        (uniform.all / 16.0, bench.tree.stats().unwrap().dram_bytes as f64 / (2 * keys()) as f64);
    println!("{uniform:.2} times as much as was written, {dram:.2} B of DRAM a key");
    assert!(uniform <= 10.2, "{uniform} times as much as was written");
    assert!(dram <= 6.5, "{dram} bytes of DRAM a key");
}

/// Ranks by Zipf's law, after Gray et al., *Quickly Generating Billion-Record Synthetic Databases*
/// (SIGMOD 1994), as in YCSB.
fn zipf(count: u64, theta: f64) -> impl Iterator<Item = u64> {
    let zeta: f64 = (1..=count).map(|rank| (rank as f64).powf(-theta)).sum();
    let of_two = 1.0 + 0.5_f64.powf(theta);
    let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - of_two / zeta);
    (1_u64..).map(move |n| {
        let unit = (mix(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 11) as f64 / (1_u64 << 53) as f64;
        match unit * zeta {
            first if first < 1.0 => 0,
            second if second < of_two => 1,
            _ => ((count as f64 * (eta * unit - eta + 1.0).powf(1.0 / (1.0 - theta))) as u64).min(count - 1),
        }
    })
}

/// The paper has 3.7 with Zipf 0.9, and so have we with 10 M keys. Besides leaves and the entries of new
/// writes, collection repeatedly copies buffered items of rarely written leaves. Nothing else is written,
/// although the log continually shrinks and grows.
#[test]
fn cclbtree_skewed_upserts_write_leaves_entries_and_copies() {
    if !takes(TestLevel::Ci, "skewed upserts into CCL-BTree") {
        return;
    }
    let upserts = |options: &[(&str, u64)]| -> Cost {
        let bench = Bench::in_chunks(1 << 16, options).loaded();
        let cost = bench.write(zipf(keys(), 0.9).take(2 * keys() as usize)).into();
        println!("{options:?}: {cost:.2?}, {} B a key", bench.tree.stats().unwrap().pm_bytes / keys());
        cost
    };
    let uncollected = upserts(&[("log_percent", 1000)]);
    let collected = upserts(&[]);
    assert!(uncollected.all / 16.0 <= 3.7, "{uncollected:?}");
    assert!((collected.leaf / uncollected.leaf - 1.0).abs() < 0.01, "collection writes no leaves");
    let other = collected.all - collected.leaf - collected.log;
    assert!(other <= 0.5 && collected.all / 16.0 <= 4.0, "{collected:?}");
}

/// 48 threads on the clock of an Optane device: collecting the log has almost no cost, unless it stops the
/// writers.
#[test]
fn cclbtree_inserts_of_many_threads_are_ahead_on_the_clock() {
    if !takes(TestLevel::Ci, "CCL-BTree on the clock of many threads") {
        return;
    }
    let collected = Bench::ccl(&[]).inserts();
    let uncollected = Bench::ccl(&[("log_percent", 1000)]).inserts();
    let naive = Bench::ccl(&[("naive_collection", 1)]).inserts();
    println!("{collected:.2?}\nuncollected {uncollected:.2?}\nnaive {naive:.2?}");
    let cost = |of: Cost| 100.0 * (1.0 - of.rate / uncollected.rate);
    println!("collection costs {:.1} %, the naive one {:.1} %", cost(collected), cost(naive));
    assert!(cost(collected) <= 5.0 && cost(naive) >= 20.0);
}
