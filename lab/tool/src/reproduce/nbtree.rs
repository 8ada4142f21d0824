//! The figures of the NBTree paper.

use super::figure::Kind::{Counted, Timed};
use super::figure::{Figure, Paper, Row, Scale, X, title};
use super::run::{Run, threads_here};
use super::take::Take::{At, Quotient, Ratio};

pub const PAPER: Paper = Paper {
    name: "nbtree",
    title: "NBTree: a Lock-free PM-friendly Persistent B+-Tree for eADR-enabled PM Systems",
    figures,
};

const INITIAL: u64 = 16_000_000;
const OTHERS: [&str; 4] = ["wbtree", "fptree", "fastfair", "utree"];

fn figures(scale: Scale) -> Vec<Figure> {
    let mut figures = vec![overhead(scale), space(scale), domains_counted(scale)];
    figures.extend([
        base_latency(scale),
        base_throughput(scale),
        skewed(scale),
        skewness(scale),
        write_ratio(scale),
    ]);
    figures.extend([domains_timed(scale), redis(scale)]);
    figures
}

/// A design of table 1: flushes, lines written and lines read, each of an insert, a delete and an update; `None` where
/// the paper has an order of growth.
type Costs = (&'static str, [[Option<f64>; 3]; 3]);

fn overhead(scale: Scale) -> Figure {
    const fn all(insert: f64, delete: f64, update: f64) -> [Option<f64>; 3] {
        [Some(insert), Some(delete), Some(update)]
    }
    const NONE: [Option<f64>; 3] = [None; 3];
    let table: [Costs; 5] = [
        ("nbtree", [all(1.0, 1.0, 1.0), all(1.0, 1.0, 1.0), all(1.0, 1.0, 1.0)]),
        ("wbtree", [all(4.0, 3.0, 3.0), all(3.0, 2.0, 2.0), NONE]),
        ("fptree", [all(3.0, 1.0, 3.0), all(3.0, 1.0, 3.0), all(3.0, 3.0, 3.0)]),
        ("fastfair", [[None, None, Some(1.0)], [None, None, Some(1.0)], NONE]),
        ("utree", [all(2.0, 1.0, 1.0), all(2.0, 2.0, 1.0), all(2.0, 2.0, 2.0)]),
    ];
    let keys = scale.keys(INITIAL);
    // So few that hardly any delete finds a key already deleted.
    let run = |design: &str, mix: &str| {
        Run::count(design, keys).operations((keys / 20).max(1)).mix(mix).and("--threads", 1)
    };
    const OPERATIONS: [(&str, &str); 3] =
        [("insert", "insert=1"), ("delete", "remove=1"), ("update", "update=1")];
    const METRICS: [(&str, [&str; 3]); 3] = [
        (
            "flushes",
            ["per_operation/insert/flushes", "per_operation/remove/flushes", "per_operation/update/flushes"],
        ),
        (
            "lines written",
            [
                "per_operation/insert/lines_written",
                "per_operation/remove/lines_written",
                "per_operation/update/lines_written",
            ],
        ),
        (
            "lines read",
            [
                "per_operation/insert/lines_read",
                "per_operation/remove/lines_read",
                "per_operation/update/lines_read",
            ],
        ),
    ];
    let mut rows = Vec::new();
    for (at, (metric, paths)) in METRICS.into_iter().enumerate() {
        for (design, costs) in table {
            for ((operation, mix), (path, cost)) in
                OPERATIONS.into_iter().zip(paths.into_iter().zip(costs[at]))
            {
                let row = Row::new(title(design), operation, (metric, "lines"), run(design, mix), At(path));
                rows.push(cost.map_or(row.clone(), |cost| row.paper(cost, "table 1")));
            }
        }
    }
    Figure::new("table-1", "what an operation costs the medium", Counted, "operation")
        .rows(rows)
        .note("Averages, with what splits and merges cost; the table has an operation that splits nothing. NV-Tree, RNTree and BzTree \
               have no baseline here.")
}

fn space(scale: Scale) -> Figure {
    let keys = scale.keys_in_space(INITIAL);
    let run = |design: &str| Run::count(design, keys).mix("insert=1").and("--threads", 1);
    let mut rows = Vec::new();
    for (phase, pm, dram) in [
        ("16M keys", "phases/load/space/pm_bytes_per_key", "phases/load/space/dram_bytes_per_key"),
        ("32M keys", "phases/mix/space/pm_bytes_per_key", "phases/mix/space/dram_bytes_per_key"),
    ] {
        for design in ["nbtree"].into_iter().chain(OTHERS) {
            rows.push(Row::new(title(design), phase, ("bytes of the medium", "B/key"), run(design), At(pm)));
            rows.push(Row::new(title(design), phase, ("bytes of DRAM", "B/key"), run(design), At(dram)));
        }
        let ratio = Row::new("NBTree", phase, ("medium to DRAM", ""), run("nbtree"), Quotient(pm, dram));
        rows.push(ratio.paper_about(7.0, "\u{a7}6.3"));
    }
    Figure::new("7", "space", Counted, "after")
        .rows(rows)
        .note("Names of positions are those of the full scale; a smaller scale has as many keys before, and twice as many after.")
}

fn domains_counted(scale: Scale) -> Figure {
    let keys = scale.keys(INITIAL);
    let run = |design: &str, domain: &str| {
        let run = Run::count(design, keys).mix("insert=1,remove=1,update=1").and("--threads", 1);
        run.and("--domain", domain).and("--cache", scale.cache(INITIAL, 42 << 20))
    };
    let mut rows = Vec::new();
    for (operation, flushes, bytes) in [
        ("insert", "per_operation/insert/flushes", "per_operation/insert/device_bytes_written"),
        ("delete", "per_operation/remove/flushes", "per_operation/remove/device_bytes_written"),
        ("update", "per_operation/update/flushes", "per_operation/update/device_bytes_written"),
    ] {
        for (domain, name) in [("adr", "NBTree, ADR"), ("eadr", "NBTree, eADR")] {
            let row = Row::new(name, operation, ("flushes", "lines"), run("nbtree", domain), At(flushes));
            rows.push(row.paper(if domain == "adr" { 1.0 } else { 0.0 }, "\u{a7}6.5"));
            rows.push(Row::new(
                name,
                operation,
                ("bytes to the device", "B"),
                run("nbtree", domain),
                At(bytes),
            ));
        }
    }
    Figure::new("11", "ADR and eADR", Counted, "operation")
        .rows(rows)
        .note("The processor's cache is made smaller with the keys, so that it holds as much of the tree as the paper's 42 MB do.")
}

/// Returns a run of every operation, one after the other.
fn micro(design: &str, keys: u64, threads: u64, layers: u64) -> Run {
    let run = Run::bench(design, keys).and("--threads", threads);
    if design == "nbtree" { run.option("layers", layers) } else { run }
}

const OPERATIONS: [(&str, &str, &str); 4] = [
    ("insert", "phases/insert/mops", "phases/insert/latency_ns/p50"),
    ("update", "phases/update/mops", "phases/update/latency_ns/p50"),
    ("delete", "phases/remove/mops", "phases/remove/latency_ns/p50"),
    ("search", "phases/get/mops", "phases/get/latency_ns/p50"),
];

const IN_SHARED_MEMORY: &str =
    "Shared memory stands in for persistent memory, with flushes. Fewer threads than the paper's 56.";

fn base_latency(scale: Scale) -> Figure {
    let keys = scale.keys(INITIAL);
    let row = |design| {
        move |(operation, _, path)| {
            Row::new(title(design), operation, ("median latency", "ns"), micro(design, keys, 1, 2), At(path))
        }
    };
    Figure::new("5", "latency of base operations, one thread", Timed, "operation")
        .rows(["nbtree"].into_iter().chain(OTHERS).flat_map(|design| OPERATIONS.map(row(design))))
        .note("The paper's plot has means with eADR, and no numbers in its text. Shared memory stands in for persistent memory, with flushes.")
}

fn base_throughput(scale: Scale) -> Figure {
    let keys = scale.keys(INITIAL);
    let threads = threads_here();
    let run = |design: &str, layers| micro(design, keys, threads, layers);
    let row = |design| {
        move |(operation, path, _)| {
            Row::new(title(design), operation, ("throughput", "M/s"), run(design, 2), At(path))
        }
    };
    // Ratios to the others: from the nearest to the farthest of all in the paper.
    let ranges = [(1.6, 7.5), (1.5, 5.0), (2.0, 4.9), (1.6, 5.1)];
    let mut ratios = Vec::new();
    for ((operation, path, _), (least, most)) in OPERATIONS.into_iter().zip(ranges) {
        for other in OTHERS {
            let series = format!("NBTree to {}", title(other));
            let row = Row::new(series, operation, ("times as fast", ""), run("nbtree", 2), Ratio(path));
            ratios.push(row.against(run(other, 2)).paper_range(least, most, "\u{a7}6.3"));
        }
    }
    let layers = |(operation, path, _)| {
        let row =
            Row::new("NBTree to NBTree-SL", operation, ("times as fast", ""), run("nbtree", 2), Ratio(path));
        let row = row.against(run("nbtree", 1));
        if operation == "insert" {
            row.paper(2.4, "\u{a7}6.3")
        } else {
            row.paper_range(1.0, 1.29, "\u{a7}6.3")
        }
    };
    Figure::new("6", "throughput of base operations", Timed, "operation")
        .rows(["nbtree"].into_iter().chain(OTHERS).flat_map(|design| OPERATIONS.map(row(design))))
        .rows(ratios)
        .rows(OPERATIONS.map(layers))
        .note(IN_SHARED_MEMORY)
}

/// NBTree, and its variants with locks instead of the lock-free parts.
const LOCKING: [(&str, u64); 3] = [("NBTree", 0), ("NBTree-W", 1), ("NBTree-WR", 2)];

/// Returns a run of gets and upserts of skewed keys.
fn ycsb(design: &str, keys: u64, threads: u64, writes: u64, theta: f64) -> Run {
    let mix = match writes {
        0 => "get=1".to_owned(),
        100 => "upsert=1".to_owned(),
        writes => format!("get={},upsert={writes}", 100 - writes),
    };
    let run = Run::bench(design, keys).and("--threads", threads).mix(&mix);
    if theta > 0.0 { run.and("--distribution", format!("zipf:{theta}")) } else { run }
}

const THROUGHPUT: (&str, &str) = ("throughput", "M/s");
const MOPS: &str = "phases/mix/mops";
const P99: &str = "phases/mix/latency_ns/p99";

fn skewed(scale: Scale) -> Figure {
    let keys = scale.keys(INITIAL);
    let run = |locking, threads| ycsb("nbtree", keys, threads, 50, 0.99).option("locking", locking);
    let mut rows = Vec::new();
    for threads in [1, 2, 4] {
        for (name, locking) in LOCKING {
            rows.push(Row::new(name, threads, THROUGHPUT, run(locking, threads), At(MOPS)));
            rows.push(Row::new(name, threads, ("p99 latency", "ns"), run(locking, threads), At(P99)));
        }
        for other in OTHERS {
            let run = ycsb(other, keys, threads, 50, 0.99);
            rows.push(Row::new(title(other), threads, THROUGHPUT, run.clone(), At(MOPS)));
            rows.push(Row::new(title(other), threads, ("p99 latency", "ns"), run, At(P99)));
        }
    }
    const FEW: &str = "the paper's is of 56 threads, which meet in hot leaves";
    let ratio = |series: &str, a, b| {
        Row::new(series, X::None, ("times as fast on 4 threads", ""), run(a, 4), Ratio(MOPS))
            .against(run(b, 4))
    };
    rows.push(ratio("NBTree to NBTree-W", 0, 1).paper(5.5, "\u{a7}6.4").remark(FEW));
    rows.push(ratio("NBTree-W to NBTree-WR", 1, 2).paper(1.8, "\u{a7}6.4").remark(FEW));
    Figure::new("8", "Zipf 0.99, half reads and half upserts, over threads", Timed, "threads")
        .rows(rows)
        .note(IN_SHARED_MEMORY)
}

fn skewness(scale: Scale) -> Figure {
    let keys = scale.keys(INITIAL);
    let mut rows = Vec::new();
    for theta in [0.5, 0.7, 0.8, 0.9, 0.99] {
        for (name, locking) in LOCKING {
            let run = ycsb("nbtree", keys, 4, 50, theta).option("locking", locking);
            rows.push(Row::new(name, theta, THROUGHPUT, run.clone(), At(MOPS)));
            rows.push(Row::new(name, theta, ("p99 latency", "ns"), run, At(P99)));
        }
    }
    Figure::new("9a", "half reads and half upserts, over skewness (9c: p99)", Timed, "skewness")
        .rows(rows)
        .note(IN_SHARED_MEMORY)
}

fn write_ratio(scale: Scale) -> Figure {
    let keys = scale.keys(INITIAL);
    let mut rows = Vec::new();
    for writes in [0, 25, 50, 75, 100] {
        for (name, locking) in LOCKING {
            let run = ycsb("nbtree", keys, 4, writes, 0.99).option("locking", locking);
            rows.push(Row::new(name, writes, THROUGHPUT, run.clone(), At(MOPS)));
            rows.push(Row::new(name, writes, ("p99 latency", "ns"), run, At(P99)));
        }
    }
    Figure::new("9b", "Zipf 0.99 over the share of upserts (9d: p99)", Timed, "upserts in %")
        .rows(rows)
        .note(IN_SHARED_MEMORY)
}

fn domains_timed(scale: Scale) -> Figure {
    let keys = scale.keys(INITIAL);
    let run = |design: &str, domain: &str| {
        let run = Run::timed_in(design, keys, domain).and("--threads", threads_here());
        run.mix("get=50,upsert=50").and("--distribution", "zipf:0.99")
    };
    let mut rows = Vec::new();
    for design in ["nbtree", "fastfair", "utree", "fptree"] {
        for domain in ["adr", "eadr"] {
            rows.push(Row::new(title(design), domain, THROUGHPUT, run(design, domain), At(MOPS)));
        }
        let row = Row::new(
            title(design),
            X::None,
            ("times as fast with eADR", ""),
            run(design, "eadr"),
            Ratio(MOPS),
        );
        rows.push(row.against(run(design, "adr")));
    }
    Figure::new("12", "ADR and eADR, Zipf 0.99, half reads and half upserts", Timed, "persistence")
        .rows(rows)
        .note(IN_SHARED_MEMORY)
}

fn redis(scale: Scale) -> Figure {
    const THROUGHPUT: (&str, &str) = ("throughput", "K/s");
    const KOPS: [(u64, &str); 2] = [(1, "pipelines/1/kops"), (16, "pipelines/16/kops")];
    let keys = scale.keys(INITIAL);
    let run = |design: &str| Run::redis(design, keys, "a").operations(keys).with_bytes(64);
    let mut rows = Vec::new();
    for design in ["nbtree", "sstree", "cclbtree", "lodgetree", "wotree", "hash"] {
        for (pipeline, path) in KOPS {
            let row = Row::new(title(design), pipeline, THROUGHPUT, run(design), At(path));
            rows.push(match (design, pipeline) {
                ("nbtree", 1) => row.paper(1719.4, "\u{a7}6.6").remark(
                    "the paper's server has 28 threads; this one has one, and shares the processors with its client",
                ),
                _ => row,
            });
        }
    }
    for (pipeline, path) in KOPS {
        let row =
            Row::new("NBTree to Redis' hash", pipeline, ("times as fast", ""), run("nbtree"), Ratio(path));
        rows.push(row.against(run("hash")));
    }
    Figure::new("6.6", "Redis, YCSB A", Timed, "commands in a pipeline").rows(rows).note(
        "The paper replaces the index of a Redis of many threads by each tree, and has NBTree at 1.13 to 1.53 times the others, which are \
         no designs of pools. Here maps of the module hold the records, and each command is durable for a killed server; Redis' hash has no file.",
    )
}
