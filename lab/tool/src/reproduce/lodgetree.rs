//! The figures of the LodgeTree paper.

use serde_json::Value;

use super::figure::Kind::{Counted, Timed};
use super::figure::{Figure, Paper, Row, Scale, X, title};
use super::run::Run;
use super::sstree::sizes;
use super::take;
use super::take::Take::{At, Curve, Ratio, Saved};

pub const PAPER: Paper = Paper {
    name: "lodgetree",
    title: "LodgeTree: a last-level distributed and surrogate buffer tree for non-volatile memory",
    figures,
};

const LOADED: u64 = 50_000_000;
const OTHERS: [&str; 4] = ["fastfair", "dptree", "betree", "pactree"];
const SLICES: u64 = 40;

fn figures(scale: Scale) -> Vec<Figure> {
    let mut figures = vec![flushes(scale), over_time(scale), throughput(scale), tails(scale), writers(scale)];
    figures.extend([
        splits(scale),
        log_entries(scale),
        zipf(scale),
        recovery(scale),
        memory(scale),
        ablations(scale),
    ]);
    figures
}

fn all() -> impl Iterator<Item = &'static str> {
    ["lodgetree"].into_iter().chain(OTHERS)
}

fn count(design: &str, keys: u64, threads: u64) -> Run {
    Run::count(design, keys).and("--threads", threads)
}

fn flushes(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let run = |design: &str| count(design, keys, 1).load().and("--slices", SLICES);
    let rows = ["lodgetree", "dptree", "betree"].map(|design| {
        Row::new(title(design), X::None, ("slowest insert", "ns"), run(design), Curve(slowest))
    });
    let growth = |design: &str, row: fn(Row) -> Row| {
        row(Row::new(
            title(design),
            X::None,
            ("slowest insert, last slice to first", ""),
            run(design),
            At("slowest_growth"),
        ))
    };
    Figure::new("1", "the slowest insert, over time", Counted, "share of the inserts in %")
        .logarithmic()
        .rows(rows)
        .rows([growth("lodgetree", |row| row), growth("dptree", |row| row.paper_about(156.0, "\u{a7}II-B: 9 ms to 1.4 s"))])
        .rows([growth("betree", |row| row)])
        .note("On the virtual clock of one thread. What takes longest of a slice of inserts is the flush of a buffer: a node's for LodgeTree, all \
               that is buffered for DPTree, and for the B\u{3b5}-tree a cascade from the root down. The paper's figure has DPTree alone.")
}

fn slowest(report: &Value) -> Vec<(f64, f64)> {
    take::slices(report, "slowest_ns")
}

fn over_time(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let rows = ["lodgetree", "dptree", "betree", "fastfair"].map(|design| {
        let run = count(design, keys, 1).load().and("--slices", SLICES);
        Row::new(title(design), X::None, ("inserts, 1 thread", "M/s"), run, Curve(slice_mops))
    });
    Figure::new("2", "throughput of one thread, over time", Counted, "share of the inserts in %")
        .rows(rows)
        .note("On the virtual clock.")
}

fn slice_mops(report: &Value) -> Vec<(f64, f64)> {
    take::slices(report, "mops")
}

/// The workloads of figures 11 and 12, and the paper's maximum ratio to the others' throughput.
const WORKLOADS: [(&str, &str, f64); 5] = [
    ("insert", "insert=1", 2.5),
    ("search", "get=1", 4.7),
    ("insert hot", "insert=1", 2.9),
    ("1:1", "insert=50,get=50", 3.0),
    ("1:2", "insert=34,get=66", 3.0),
];

fn workload(design: &str, keys: u64, threads: u64, name: &str, mix: &str) -> Run {
    let run = count(design, keys, threads).mix(mix);
    if name == "insert hot" { run.and("--distribution", "hotspot:0.2:0.8") } else { run }
}

fn throughput(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let mut rows = Vec::new();
    for (name, mix, most) in WORKLOADS {
        for design in all() {
            let run = workload(design, keys, 32, name, mix);
            rows.push(Row::new(
                title(design),
                name,
                ("throughput, 32 threads", "M/s"),
                run,
                At("throughput/32/mops"),
            ));
        }
        for other in OTHERS {
            let series = format!("LodgeTree to {}", title(other));
            let run = |design| workload(design, keys, 32, name, mix);
            let row =
                Row::new(series, name, ("times as fast", ""), run("lodgetree"), Ratio("throughput/32/mops"));
            rows.push(row.against(run(other)).paper_range(1.0, most, "\u{a7}IV-B, up to"));
        }
    }
    Figure::new("11", "throughput of five workloads", Counted, "workload")
        .rows(rows)
        .note("On the virtual clock of 32 threads, which has no locks. PACTree stands in for ROART, which is a radix tree \
               like PACTree's index; the baseline's index is a tree in DRAM.")
}

fn tails(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    const INSERTS: [(&str, &str); 5] = [
        ("p99", "throughput/32/latency_ns/insert/p99"),
        ("p99.9", "throughput/32/latency_ns/insert/p999"),
        ("p99.99", "throughput/32/latency_ns/insert/p9999"),
        ("p99.999", "throughput/32/latency_ns/insert/p99999"),
        ("slowest 100", "throughput/32/latency_ns/insert/slowest_100"),
    ];
    const SEARCHES: [(&str, &str); 5] = [
        ("p99", "throughput/32/latency_ns/get/p99"),
        ("p99.9", "throughput/32/latency_ns/get/p999"),
        ("p99.99", "throughput/32/latency_ns/get/p9999"),
        ("p99.999", "throughput/32/latency_ns/get/p99999"),
        ("slowest 100", "throughput/32/latency_ns/get/slowest_100"),
    ];
    let mut rows = Vec::new();
    for (name, mix, _) in WORKLOADS {
        let metric = match name {
            "insert" => "latency of inserts",
            "search" => "latency of searches",
            "insert hot" => "latency of hot inserts",
            "1:1" => "latency of inserts, 1:1",
            _ => "latency of inserts, 1:2",
        };
        for design in all() {
            let run = workload(design, keys, 32, name, mix);
            for (label, path) in if name == "search" { SEARCHES } else { INSERTS } {
                let row = Row::new(title(design), label, (metric, "ns"), run.clone(), At(path));
                let said = name == "insert" && label == "p99.999";
                rows.push(match (design, said) {
                    ("lodgetree", true) => row.paper(16_060.0, "\u{a7}IV-C"),
                    ("fastfair", true) => row
                        .paper(486_600.0, "\u{a7}IV-C")
                        .remark("the clock has no locks, which its writers wait for"),
                    _ => row,
                });
            }
        }
    }
    Figure::new("12", "tails of five workloads", Counted, "percentile")
        .logarithmic()
        .rows(rows)
        .note("On the virtual clock of 32 threads: waits for the device, without locks and other tenants.")
}

fn writers(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let run = |design: &str| count(design, keys, 32).mix("insert=1");
    let rows = ["lodgetree", "dptree", "fastfair"].map(|design| {
        let row = Row::new(
            title(design),
            X::None,
            ("threads that write", ""),
            run(design),
            At("throughput/32/writing_mean"),
        );
        if design == "lodgetree" { row.paper_about(4.0, "\u{a7}IV-D") } else { row }
    });
    let shares = ["lodgetree", "dptree", "fastfair"].map(|design| {
        Row::new(title(design), X::None, ("share of the time", "%"), run(design), Curve(writing))
    });
    Figure::new("13", "threads that write to the medium at the same time", Counted, "threads that write")
        .rows(shares)
        .rows(rows)
        .note("On the virtual clock of 32 threads: a thread writes from its first flush to the end of the fence.")
}

fn writing(report: &Value) -> Vec<(f64, f64)> {
    let shares = take::at(report, "throughput/32/writing").and_then(Value::as_array);
    let shares = shares.into_iter().flatten().enumerate();
    shares.filter_map(|(threads, share)| Some((threads as f64, share.as_f64()? * 100.0))).collect()
}

fn splits(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let run = |nodes, threads| {
        let run = count("lodgetree", keys, threads)
            .option("split_nodes", nodes)
            .operations(keys * 2)
            .mix("insert=1");
        run.and("--distribution", "hotspot:0.2:0.8")
    };
    let mut rows = Vec::new();
    for (threads, path, tail, paper) in [
        (1, "throughput/1/mops", "throughput/1/latency_ns/insert/p99999", Some(12.0)),
        (8, "throughput/8/mops", "throughput/8/latency_ns/insert/p99999", None),
        (32, "throughput/32/mops", "throughput/32/latency_ns/insert/p99999", Some(45.0)),
    ] {
        for (name, nodes) in [("multiple split", 4), ("double split", 2)] {
            rows.push(Row::new(name, threads, ("hot inserts", "M/s"), run(nodes, threads), At(path)));
            rows.push(Row::new(name, threads, ("p99.999", "ns"), run(nodes, threads), At(tail)));
        }
        let row = Row::new(
            "multiple split",
            threads,
            ("more than with the double split", "%"),
            run(4, threads),
            super::take::Take::More(path),
        );
        let row = row.against(run(2, threads));
        rows.push(match paper {
            Some(percent) => row.paper(percent, "\u{a7}IV-D").remark(
                "the clock has no threads that meet in hot nodes, which is what the paper's gain is from",
            ),
            None => row,
        });
    }
    Figure::new("14", "multiple and double split", Counted, "threads")
        .rows(rows)
        .note("On the virtual clock.")
}

fn log_entries(scale: Scale) -> Figure {
    let keys = scale.keys_in_space(LOADED);
    let run = |design: &str| count(design, keys, 4).load().and("--slices", SLICES);
    let rows = ["lodgetree", "dptree"].into_iter().flat_map(|design| {
        [
            Row::new(title(design), X::None, ("log", "B"), run(design), Curve(slice_log)),
            Row::new(
                title(design),
                X::None,
                ("log entries that are needed", ""),
                run(design),
                Curve(slice_needed),
            ),
        ]
    });
    Figure::new("15", "the log over time, four threads", Counted, "share of the inserts in %").rows(rows)
}

fn slice_log(report: &Value) -> Vec<(f64, f64)> {
    take::slices(report, "log_bytes")
}

fn slice_needed(report: &Value) -> Vec<(f64, f64)> {
    take::slices(report, "log_entries_needed")
}

fn zipf(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let run = |theta: f64| {
        let run = count("lodgetree", keys, 32).mix("upsert=1").and("--cache", scale.cache(LOADED, 22 << 20));
        if theta > 0.0 { run.and("--distribution", format!("zipf:{theta}")) } else { run }
    };
    const CLOCK: &str = "throughput/32/mops";
    let rows = [0.0, 0.5, 0.7, 0.9, 0.99]
        .map(|theta| Row::new("LodgeTree", theta, ("throughput, 32 threads", "M/s"), run(theta), At(CLOCK)));
    let ratio = Row::new("Zipf 0.99 to uniform", X::None, ("times as fast", ""), run(0.99), Ratio(CLOCK))
        .against(run(0.0));
    Figure::new("17", "upserts over skewness", Counted, "skewness (0: uniform)")
        .rows(rows)
        .rows([ratio.paper(1.65, "\u{a7}IV-D").remark("the paper does not name its parameter")])
        .note("On the virtual clock.")
}

fn recovery(scale: Scale) -> Figure {
    let mut rows = Vec::new();
    for keys in sizes(scale.keys(LOADED)) {
        for threads in [1, 2, 4] {
            let run =
                Run::bench("lodgetree", keys).and("--threads", 1).and("--recovery-threads", threads).load();
            let series = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
            rows.push(Row::new(series, keys, ("recovery", "s"), run, At("recovery/seconds")));
        }
    }
    Figure::new("18a", "recovery over sizes and threads", Timed, "keys")
        .rows(rows)
        .note("The paper has 0.87 to 5.55 s on one thread, and 0.17 to 2.10 s on 32, of sizes that its text does not name.")
}

fn memory(scale: Scale) -> Figure {
    let keys = scale.keys_in_space(LOADED);
    let run = |design: &str| count(design, keys, 1).load();
    const PATH: &str = "space/dram_bytes_per_key";
    let rows = ["lodgetree", "dptree", "betree"]
        .map(|design| Row::new(title(design), X::None, ("DRAM", "B/key"), run(design), At(PATH)));
    let saved = |(other, percent)| {
        let series = format!("LodgeTree against {}", title(other));
        Row::new(series, X::None, ("DRAM saved", "%"), run("lodgetree"), Saved(PATH))
            .against(run(other))
            .paper(percent, "\u{a7}IV-E")
    };
    Figure::new("18b", "DRAM", Counted, "").rows(rows).rows([("dptree", 81.4), ("betree", 65.5)].map(saved))
}

fn ablations(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let run = |writers: u64, options: &[(&str, u64)]| {
        let run = count("lodgetree", keys, 32).and("--writers", writers).mix("insert=1");
        options.iter().fold(run, |run, (name, value)| run.option(name, *value))
    };
    type Variant = (&'static str, u64, &'static [(&'static str, u64)]);
    let variants: [Variant; 4] = [
        ("LodgeTree", 32, &[]),
        ("one log for all threads", 1, &[]),
        ("every write logged, flushes of one leaf", 32, &[("flush_leaves", 1)]),
        ("whole buffers flushed", 32, &[("flush_leaves", 36)]),
    ];
    let mut rows = Vec::new();
    for (name, writers, options) in variants {
        for (metric, unit, path) in [
            ("media writes of an insert", "B", "per_operation/insert/media_bytes_written"),
            ("flushes of an insert", "lines", "per_operation/insert/flushes"),
            ("fences of an insert", "", "per_operation/insert/fences"),
            ("inserts, 32 threads", "M/s", "throughput/32/mops"),
            ("p99.999 of inserts", "ns", "throughput/32/latency_ns/insert/p99999"),
        ] {
            rows.push(Row::new(name, X::None, (metric, unit), run(writers, options), At(path)));
        }
    }
    Figure::new("ablations", "what each technique is worth", Counted, "")
        .rows(rows)
        .note("Not a figure of the paper: its three techniques, each left out. On the virtual clock.")
}
