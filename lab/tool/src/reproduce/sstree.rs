//! The figures of the SSTree paper.

use super::figure::Kind::{Counted, Timed};
use super::figure::{Figure, Paper, Row, Scale, X, remark_of, title};
use super::run::{Run, threads_here};
use super::take::Take::{At, More, Ratio, SavedWithin, Scaled};

pub const PAPER: Paper = Paper {
    name: "sstree",
    title: "SSTree: Optimizing Structural Modification Operation for B+-Tree on Byte-Addressable Devices",
    figures,
};

const LOADED: u64 = 100_000_000;
const OTHERS: [&str; 3] = ["lbtree", "utree", "pactree"];
/// 80 % of the operations on 20 % of the keys (\u{a7}IV-B).
const SKEWED: &str = "hotspot:0.2:0.8";

fn figures(scale: Scale) -> Vec<Figure> {
    let mut figures = vec![writes(scale), tails(scale), reads(scale)];
    figures.extend([lines_written(scale), lines_read(scale), space(scale)]);
    figures.extend([subnodes(scale), movement(scale), recovery(scale)]);
    figures
}

fn all() -> impl Iterator<Item = &'static str> {
    ["sstree"].into_iter().chain(OTHERS)
}

/// Returns a timed run on one thread per processor of this machine.
fn bench(design: &str, keys: u64) -> Run {
    Run::bench(design, keys).and("--threads", threads_here())
}

/// Returns the loads and writes of figures 6 and 7: their names, their runs, and the phase.
fn workloads(design: &str, keys: u64) -> [(&'static str, Run, &'static str); 5] {
    let run = || bench(design, keys);
    [
        ("uniform load", run().load(), "load"),
        ("sequential load", run().and("--distribution", "sequential").load(), "load"),
        ("insert", run().mix("insert=1"), "mix"),
        ("skewed update", run().mix("update=1").and("--distribution", SKEWED), "mix"),
        ("delete", run().operations(keys * 2 / 5).mix("remove=1"), "mix"),
    ]
}

fn mops(phase: &str) -> &'static str {
    if phase == "load" { "phases/load/mops" } else { "phases/mix/mops" }
}

const FEWER: &str =
    "Fewer threads than the paper's 32, and shared memory with flushes instead of persistent memory.";
const THROUGHPUT: (&str, &str) = ("throughput", "M/s");

fn writes(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let mut rows = Vec::new();
    for design in all() {
        rows.extend(
            workloads(design, keys)
                .map(|(name, run, phase)| Row::new(title(design), name, THROUGHPUT, run, At(mops(phase)))),
        );
    }
    for other in OTHERS {
        let ours = workloads("sstree", keys).into_iter().zip(workloads(other, keys));
        for ((name, run, phase), (_, against, _)) in ours {
            let series = format!("SSTree to {}", title(other));
            let row = Row::new(series, name, ("times as fast", ""), run, Ratio(mops(phase))).against(against);
            const PLACE: &str = "\u{a7}IV-B";
            rows.push(match (name, other) {
                ("uniform load" | "insert", _) => row.paper_range(1.2, 2.7, PLACE),
                ("sequential load", _) => row.paper_range(2.0, 4.4, PLACE),
                ("skewed update", "utree") => row.paper(1.14, PLACE),
                ("skewed update", "pactree") => row.paper(1.7, PLACE),
                ("skewed update", _) => row.paper(1.6, PLACE),
                _ => row,
            });
        }
    }
    Figure::new("6", "throughput of writes", Timed, "workload").rows(rows).note(FEWER)
}

fn tails(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let percentiles = |phase| {
        if phase == "load" {
            [
                ("p50", "phases/load/latency_ns/p50"),
                ("p99", "phases/load/latency_ns/p99"),
                ("p99.9", "phases/load/latency_ns/p999"),
                ("p99.999", "phases/load/latency_ns/p99999"),
            ]
        } else {
            [
                ("p50", "phases/mix/latency_ns/p50"),
                ("p99", "phases/mix/latency_ns/p99"),
                ("p99.9", "phases/mix/latency_ns/p999"),
                ("p99.999", "phases/mix/latency_ns/p99999"),
            ]
        }
    };
    let every = |run: Run| run.and("--timed-one-in", 4);
    let mut rows = Vec::new();
    for at in [1, 2, 3] {
        for design in all() {
            let (name, run, phase) = workloads(design, keys)[at].clone();
            let metric =
                ["latency of a sequential load", "latency of inserts", "latency of skewed updates"][at - 1];
            debug_assert!(["sequential load", "insert", "skewed update"].contains(&name));
            rows.extend(percentiles(phase).map(|(label, path)| {
                Row::new(title(design), label, (metric, "ns"), every(run.clone()), At(path))
            }));
        }
    }
    for other in OTHERS {
        let (_, ours, _) = workloads("sstree", keys)[2].clone();
        let (_, theirs, _) = workloads(other, keys)[2].clone();
        let shorter = |label, path| {
            let series = format!("{} to SSTree", title(other));
            Row::new(series, label, ("times as long, inserts", ""), every(theirs.clone()), Ratio(path))
                .against(every(ours.clone()))
        };
        rows.push(shorter("p99", "phases/mix/latency_ns/p99").paper_range(1.9, 3.5, "\u{a7}IV-B"));
        rows.push(shorter("p99.9", "phases/mix/latency_ns/p999").paper_range(1.8, 57.0, "\u{a7}IV-B"));
        rows.push(shorter("p99.999", "phases/mix/latency_ns/p99999").paper_range(1.8, 62.0, "\u{a7}IV-B"));
    }
    Figure::new("7", "latency of writes", Timed, "percentile").logarithmic().rows(rows).note(
        "Fewer threads than the paper's 32. One operation in four is timed by itself. On a machine with other work the far tail is \
         that work's; figure 9 counts what an operation costs.",
    )
}

fn reads(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let get = |design: &str| bench(design, keys).mix("get=1");
    let scan = |design: &str| bench(design, keys).operations((keys / 10).max(1)).mix("scan=1");
    let mut rows = Vec::new();
    for design in all() {
        rows.push(Row::new(title(design), "search", THROUGHPUT, get(design), At(MIX)));
        rows.push(Row::new(title(design), "scan of 100", THROUGHPUT, scan(design), At(MIX)));
    }
    for other in OTHERS {
        let series = format!("SSTree to {}", title(other));
        let ratio = |name, run, against| {
            Row::new(series.clone(), name, ("times as fast", ""), run, Ratio(MIX)).against(against)
        };
        let search = ratio("search", get("sstree"), get(other));
        rows.push(if other == "pactree" { search } else { search.paper_range(0.96, 1.0, "\u{a7}IV-B") });
        rows.push(ratio("scan of 100", scan("sstree"), scan(other)).paper_range(1.1, 6.0, "\u{a7}IV-B"));
    }
    Figure::new("8", "throughput of uniform reads", Timed, "workload").rows(rows).note(FEWER)
}

const MIX: &str = "phases/mix/mops";

/// The writes of figure 9: their names, mixes, and paths in the report.
const OPERATIONS: [(&str, &str, [&str; 2]); 3] = [
    ("insert", "insert=1", ["per_operation/insert/flushes", "per_operation/insert/lines_written"]),
    ("update", "update=1", ["per_operation/update/flushes", "per_operation/update/lines_written"]),
    ("delete", "remove=1", ["per_operation/remove/flushes", "per_operation/remove/lines_written"]),
];

/// SSTree, and its variant as in the paper: only the head's fingerprints are in DRAM.
const MODES: [(&str, u64); 2] = [("SSTree", 0), ("SSTree, paper mode", 1)];

fn count(design: &str, keys: u64) -> Run {
    Run::count(design, keys).and("--threads", 1)
}

fn lines_written(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    // As in the paper: fewer deletes than keys, some of which are already deleted.
    let operations = |mix: &str| if mix == "remove=1" { keys * 2 / 5 } else { keys };
    let mut rows = Vec::new();
    for (operation, mix, [flushes, lines]) in OPERATIONS {
        let about = if operation == "insert" { 2.0 } else { 1.0 };
        for (name, mode) in MODES {
            let run = count("sstree", keys)
                .option("delegate_fingerprints", mode)
                .operations(operations(mix))
                .mix(mix);
            let row = Row::new(name, operation, ("flushes", "lines"), run.clone(), At(flushes))
                .paper_about(about, "\u{a7}IV-C");
            rows.push(if operation == "delete" { row } else { row.remark(REMARK) });
            rows.push(Row::new(name, operation, ("lines written", "lines"), run, At(lines)));
        }
        for other in OTHERS {
            rows.push(Row::new(
                title(other),
                operation,
                ("flushes", "lines"),
                count(other, keys).operations(operations(mix)).mix(mix),
                At(flushes),
            ));
            let run = count(other, keys).operations(operations(mix)).mix(mix);
            let row = Row::new(title(other), operation, ("lines written", "lines"), run, At(lines));
            rows.push(row.remark(remark_of(other)));
        }
    }
    const REMARK: &str =
        "ours draws the old leaf together after a split, and moves items when it updates, which saves space";
    Figure::new("9", "lines written by an operation", Counted, "operation")
        .rows(rows)
        .note("The paper measures bytes of the device and gives the numbers in words: about 2 lines an insert and 1 for the others.")
}

fn lines_read(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    // As in the paper: fewer deletes than keys, some of which are already deleted.
    let operations = |mix: &str| if mix == "remove=1" { keys * 2 / 5 } else { keys };
    let mut rows = Vec::new();
    for (operation, mix, path) in [
        ("search", "get=1", "per_operation/get/lines_read"),
        ("insert", "insert=1", "per_operation/insert/lines_read"),
        ("update", "update=1", "per_operation/update/lines_read"),
        ("delete", "remove=1", "per_operation/remove/lines_read"),
    ] {
        for (name, mode) in MODES {
            let run = count("sstree", keys)
                .option("delegate_fingerprints", mode)
                .operations(operations(mix))
                .mix(mix);
            let row = Row::new(name, operation, ("lines read", "lines"), run, At(path))
                .paper_about(2.0, "\u{a7}IV-C");
            rows.push(row.remark(if mode == 0 {
                "all fingerprints stand in DRAM, which saves the head's line"
            } else {
                ""
            }));
        }
        for other in OTHERS {
            let run = count(other, keys).operations(operations(mix)).mix(mix);
            let row = Row::new(title(other), operation, ("lines read", "lines"), run, At(path));
            rows.push(row.remark(remark_of(other)));
        }
    }
    Figure::new("10", "lines read by an operation", Counted, "operation").rows(rows)
}

fn space(scale: Scale) -> Figure {
    let keys = scale.keys_in_space(LOADED);
    // Twice as many operations as keys: a fifth deletes, the rest updates (\u{a7}IV-C).
    let run = |design: &str| count(design, keys).operations(keys * 2).mix("remove=20,update=80");
    const LOAD: [&str; 2] = ["phases/load/space/pm_bytes_per_key", "phases/load/space/dram_bytes_per_key"];
    const PM: [&str; 2] = ["phases/load/space/pm_bytes", "phases/mix/space/pm_bytes"];
    let paper =
        [("sstree", 21.0, 3.56), ("lbtree", 25.1, 2.59), ("utree", 29.8, 24.47), ("pactree", 30.5, 0.0)];
    let mut rows = Vec::new();
    for (design, pm, dram) in paper {
        rows.push(
            Row::new(title(design), X::None, ("medium after the load", "B/key"), run(design), At(LOAD[0]))
                .paper(pm, "\u{a7}IV-C")
                .remark(remark_of(design)),
        );
        rows.push(
            Row::new(title(design), X::None, ("DRAM after the load", "B/key"), run(design), At(LOAD[1]))
                .paper(dram, "\u{a7}IV-C")
                .remark(remark_of(design)),
        );
    }
    for (name, mode) in MODES {
        let run = run("sstree").option("delegate_fingerprints", mode);
        let row = Row::new(name, X::None, ("medium saved by the mix", "%"), run, SavedWithin(PM[1], PM[0]));
        rows.push(row.paper(8.6, "\u{a7}IV-C"));
    }
    for (design, percent) in [("lbtree", 0.0), ("pactree", 20.3)] {
        let row = Row::new(
            title(design),
            X::None,
            ("medium saved by the mix", "%"),
            run(design),
            SavedWithin(PM[1], PM[0]),
        );
        let row = row.paper_about(percent, "\u{a7}IV-C");
        rows.push(if design == "pactree" { row.remark("it does not merge leaves here") } else { row });
    }
    Figure::new("11", "space after the load, and after deletes and updates", Counted, "")
        .rows(rows)
        .note("The pool grows by chunks of 2 MiB, which weigh more on few keys. The paper's numbers are those of 100M keys.")
}

fn subnodes(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    // The paper's N counts overflow subnodes; the option counts the head, too.
    let option = |run: Run, n: u64| run.option("max_subnodes", n + 1);
    let load = |n| option(bench("sstree", keys), n).and("--distribution", "sequential").load();
    let search = |n| option(bench("sstree", keys), n).mix("get=1").and("--distribution", SKEWED);
    let mut rows = Vec::new();
    for (n, load_mops, search_mops) in [(2, 22.99, 26.74), (3, 25.21, 24.75), (4, 25.54, 22.6)] {
        rows.push(
            Row::new("sequential load", n, THROUGHPUT, load(n), At("phases/load/mops"))
                .paper(load_mops, "table I")
                .remark(CORES),
        );
        rows.push(
            Row::new("skewed search", n, THROUGHPUT, search(n), At(MIX))
                .paper(search_mops, "table I")
                .remark(CORES),
        );
    }
    const CORES: &str = "the paper has 32 threads on persistent memory";
    for (n, load_percent, search_percent) in [(3, 9.0, -7.0), (4, 11.0, -15.0)] {
        let more = |name, run, against, path| {
            Row::new(name, n, ("more than with N = 2", "%"), run, More(path)).against(against)
        };
        rows.push(
            more("sequential load", load(n), load(2), "phases/load/mops").paper(load_percent, "table I"),
        );
        rows.push(more("skewed search", search(n), search(2), MIX).paper(search_percent, "table I"));
    }
    Figure::new("table-I", "sensitivity to overflow subnodes", Timed, "N").rows(rows).note(
        "Fewer threads than the paper's 32, and shared memory with flushes instead of persistent memory. N = 4 cannot be had here: the \
         word by which a leaf changes has bits for the slots of four subnodes, head included.",
    )
}

fn movement(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let many = threads_here();
    let run = |moves, threads| {
        let run = Run::bench("sstree", keys).and("--threads", threads).option("move_items", moves);
        run.mix("update=1").and("--distribution", SKEWED)
    };
    let mut rows = Vec::new();
    for (name, threads, without, with, percent) in
        [("1 thread", 1, 0.74, 0.84, 13.0), ("many threads", many, 17.03, 18.73, 10.0)]
    {
        rows.push(
            Row::new("without movement", name, THROUGHPUT, run(0, threads), At(MIX))
                .paper(without, "table II"),
        );
        rows.push(
            Row::new("with movement", name, THROUGHPUT, run(1, threads), At(MIX)).paper(with, "table II"),
        );
        let more = Row::new("with movement", name, ("more", "%"), run(1, threads), More(MIX))
            .against(run(0, threads));
        rows.push(more.paper(percent, "table II").remark(NEAR));
    }
    const NEAR: &str = "with all fingerprints in DRAM the head is no faster than the rest, so that moving items to it saves space only";
    Figure::new("table-II", "skewed updates with and without movement of items", Timed, "threads")
        .rows(rows)
        .note(FEWER)
}

fn recovery(scale: Scale) -> Figure {
    let mut rows = Vec::new();
    const NS: (&str, &str) = ("recovery", "ns/key");
    for keys in sizes(scale.keys(LOADED)) {
        for threads in [1, 2, 4] {
            let run =
                Run::bench("sstree", keys).and("--threads", 1).and("--recovery-threads", threads).load();
            let series = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
            let row = Row::new(series, keys, NS, run, Scaled("recovery/ns_per_key", 1.0));
            rows.push(if threads == 1 && keys == scale.keys(LOADED) {
                row.paper(27.0, "\u{a7}IV-D")
            } else {
                row
            });
        }
    }
    Figure::new("recovery", "recovery over sizes and threads", Timed, "keys")
        .rows(rows)
        .note("The paper recovers 100M keys in 2.7 s on one thread and in 0.44 s on 32.")
}

/// Returns a quarter, a half and all of `keys`.
pub fn sizes(keys: u64) -> [u64; 3] {
    [keys / 4, keys / 2, keys]
}
