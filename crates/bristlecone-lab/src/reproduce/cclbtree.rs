//! The figures of the CCL-BTree paper.

use serde_json::Value;

use super::figure::Kind::{Counted, Timed};
use super::figure::Take::{At, Curve, Quotient, Ratio, Saved, Scaled};
use super::figure::{Figure, Paper, Row, Scale, X, title};
use super::run::{self, Run, threads_here};
use super::sstree::sizes;

pub const PAPER: Paper = Paper {
    name: "cclbtree",
    title: "CCL-BTree: A Crash-Consistent Locality-Aware B+-Tree for Reducing XPBuffer-Induced Write Amplification",
    figures,
};

const LOADED: u64 = 50_000_000;
const OTHERS: [&str; 7] = ["fptree", "fastfair", "dptree", "utree", "lbtree", "pactree", "flatstore"];
const THREADS: u64 = 48;

fn figures(scale: Scale) -> Vec<Figure> {
    let mut figures =
        vec![device(scale), amplification_uniform(scale), amplification_skewed(scale), scans(scale)];
    figures.extend([
        latencies(scale),
        techniques(scale),
        collection(scale),
        batches(scale),
        thresholds(scale),
    ]);
    figures.extend([
        skewness(scale),
        lengths(scale),
        values(scale),
        domains(scale),
        recovery(scale),
        space(scale),
    ]);
    figures.extend([datasets(scale), logs(scale)]);
    figures
}

fn all() -> impl Iterator<Item = &'static str> {
    ["cclbtree"].into_iter().chain(OTHERS)
}

/// Counts with one appender of the log, which is what the bytes of media writes depend on least.
fn count(design: &str, keys: u64, threads: u64) -> Run {
    Run::count(design, keys).and("--threads", threads)
}

fn device(scale: Scale) -> Figure {
    let writes = scale.keys(5_000_000);
    let threads = [1, 12, 24, 36, 48];
    let us = |series: String, threads, lines, media_lines| {
        let run = Run::probe(lines, media_lines, threads, writes);
        Row::new(series, threads, ("time of a write", "us"), run, At("us"))
    };
    let lines = (1..=4)
        .flat_map(|n| threads.map(|threads| us(format!("{n} of a media line's 4 lines"), threads, n, 1)));
    let media =
        (2..=4).flat_map(|n| threads.map(|threads| us(format!("{n} whole media lines"), threads, 4, n)));
    let ratio = |series: &str, (lines, media_lines)| {
        let row = Row::new(
            series,
            X::None,
            ("times one line's, 48 threads", ""),
            Run::probe(lines, media_lines, THREADS, writes),
            Ratio("us"),
        );
        row.against(Run::probe(1, 1, THREADS, writes))
    };
    Figure::new("2", "what the device's time depends on", Counted, "threads")
        .rows(lines.chain(media))
        .rows([ratio("4 lines of 1 media line", (4, 1)).paper_about(1.0, "\u{a7}2.2"), ratio("4 media lines", (4, 4)).paper_about(4.0, "\u{a7}2.2")])
        .note("On the virtual clock of the device model. The paper says in words that beyond 36 threads the time does not depend on \
               the lines of a media line, and grows linearly with media lines.")
}

const CLI: (&str, &str) = ("CLI-amplification", "B/B");
const XBI: (&str, &str) = ("XBI-amplification", "B/B");

/// Returns rows of both amplifications.
fn amplification(run: &dyn Fn(&str) -> Run, ours: f64, others: f64, dptree: Option<f64>) -> Vec<Row> {
    let mut rows = Vec::new();
    for design in all() {
        rows.push(Row::new(title(design), X::None, CLI, run(design), At("cli_amplification")));
        let row = Row::new(title(design), X::None, XBI, run(design), At("xbi_amplification"));
        rows.push(match (design, dptree) {
            ("cclbtree", _) => row.paper(ours, "\u{a7}2.3").remark("ours collects its log at twice the paper's threshold, and splits into leaves that it fills further"),
            ("dptree", Some(dptree)) => row.paper(dptree, "\u{a7}5.1"),
            _ => row.paper_about(others, "\u{a7}2.3, the mean of all others"),
        });
    }
    rows
}

fn amplification_uniform(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let run = |design: &str| count(design, keys, THREADS).mix("insert=1");
    Figure::new("3", "write amplification of uniform upserts of new keys", Counted, "")
        .rows(amplification(&run, 10.2, 37.1, Some(43.2)))
        .note("Half of the keys are there, and the other half is added, as in the paper.")
}

fn amplification_skewed(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let run = |design: &str| {
        let run = count(design, keys, THREADS).mix("upsert=1").and("--distribution", "zipf:0.9");
        run.and("--cache", scale.cache(LOADED, 36 << 20))
    };
    Figure::new("4", "write amplification of Zipf 0.9 upserts", Counted, "")
        .rows(amplification(&run, 3.7, 12.4, None))
}

fn scans(scale: Scale) -> Figure {
    let keys = scale.keys(2 * LOADED);
    let mut rows = Vec::new();
    for design in all() {
        for length in [50, 100, 200, 400] {
            let run =
                Run::bench(design, keys).and("--threads", threads_here()).operations((keys / 40).max(1));
            let run = run.mix("scan=1").and("--scan-length", length);
            rows.push(Row::new(title(design), length, ("scans", "M/s"), run, At(MIX)));
        }
    }
    Figure::new("5", "range queries over their size", Timed, "entries").rows(rows).note(
        "Fewer threads than the paper's 48. There FlatStore, whose entries lie in the order of their writes, is up to 5.59 times slower.",
    )
}

const MIX: &str = "phases/mix/mops";

fn latencies(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let mut rows = Vec::new();
    for design in all() {
        for (metric, mix) in [("latency of inserts", "insert=1"), ("latency of searches", "get=1")] {
            let run = count(design, keys, THREADS).mix(mix);
            let curve = if mix == "get=1" { searches_cdf } else { inserts_cdf };
            rows.push(Row::new(title(design), X::None, (metric, "ns"), run, Curve(curve)));
        }
    }
    Figure::new("12", "distribution of latencies, 48 threads", Counted, "percentile").logarithmic().rows(rows).note(
        "On the virtual clock: what the device makes an operation wait for, without locks and without what other tenants do.",
    )
}

fn inserts_cdf(report: &Value) -> Vec<(f64, f64)> {
    run::cdf(run::at(report, "throughput/48/latency_ns/insert"))
}

fn searches_cdf(report: &Value) -> Vec<(f64, f64)> {
    run::cdf(run::at(report, "throughput/48/latency_ns/get"))
}

fn techniques(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    const ALL: &str = "xbi_amplification";
    const LEAF: &str = "written/leaf/xbi_amplification";
    const LOG: &str = "written/log/xbi_amplification";
    const CLOCK: &str = "throughput/48/mops";
    let run = |options: &[(&str, u64)], mix: &str| {
        let run = options
            .iter()
            .fold(count("cclbtree", keys, THREADS), |run, (name, value)| run.option(name, *value));
        run.option("log_percent", 20).mix(mix)
    };
    const BASE: &[(&str, u64)] = &[("batch", 0)];
    const NODE: &[(&str, u64)] = &[("log_all", 1)];
    const LOGGED: &[(&str, u64)] = &[];
    let mut rows = Vec::new();
    for (name, options) in [("Base", BASE), ("+BNode", NODE), ("+WLog", LOGGED)] {
        for (metric, path) in [
            ("XBI-amplification, leaves", LEAF),
            ("XBI-amplification, log", LOG),
            ("XBI-amplification, all", ALL),
        ] {
            rows.push(Row::new(name, X::None, (metric, "B/B"), run(options, "insert=1"), At(path)));
        }
        for (operation, mix) in
            [("insert", "insert=1"), ("update", "upsert=1"), ("delete", "remove=1"), ("search", "get=1")]
        {
            rows.push(Row::new(
                name,
                operation,
                ("throughput, 48 threads", "M/s"),
                run(options, mix),
                At(CLOCK),
            ));
        }
    }
    let saved = |series, what: &[(&str, u64)], than: &[(&str, u64)], path, percent| {
        let row = Row::new(series, X::None, ("media writes saved", "%"), run(what, "insert=1"), Saved(path));
        row.against(run(than, "insert=1")).paper(percent, "\u{a7}5.2")
    };
    const GROWS: &str = "ours fills leaves further before they split, so that splits write less";
    rows.extend([
        saved("+BNode against Base, leaves", NODE, BASE, LEAF, 63.9),
        saved("+BNode against Base, all", NODE, BASE, ALL, 36.9).remark(GROWS),
        saved("+WLog against +BNode, log", LOGGED, NODE, LOG, 26.5),
        saved("+WLog against Base, all", LOGGED, BASE, ALL, 44.1).remark(GROWS),
    ]);
    Figure::new("13", "what each technique saves", Counted, "operation")
        .rows(rows)
        .note("With the paper's threshold of the log, 20 %; throughput on the virtual clock. The paper's ideal, without splits, is 60.4 %.")
}

fn batches(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    // Bytes an insert from the gigabytes of 50M; hits a search from the millions of 50M.
    let paper = [
        (1, 187.0, 9.8, 4.7),
        (2, 150.0, 18.8, 5.9),
        (3, 133.0, 28.4, 7.4),
        (4, 123.0, 35.2, 8.2),
        (5, 118.0, 43.4, 9.3),
    ];
    let insert = |batch| {
        count("cclbtree", keys, THREADS).option("batch", batch).option("log_percent", 20).mix("insert=1")
    };
    let search = |batch| count("cclbtree", keys, THREADS).option("batch", batch).mix("get=1");
    let mut rows = Vec::new();
    for (batch, media, hits, dram) in paper {
        let row = Row::new(
            "CCL-BTree",
            batch,
            ("media writes of an insert", "B"),
            insert(batch),
            At("per_operation/insert/media_bytes_written"),
        );
        rows.push(row.paper(media, "table 1").remark(LESS));
        let row = Row::new(
            "CCL-BTree",
            batch,
            ("searches that a buffer answers", "%"),
            search(batch),
            Scaled("per_operation/get/reading_nothing", 100.0),
        );
        rows.push(row.paper(hits, "table 1").remark(KEPT));
        let row = Row::new(
            "CCL-BTree",
            batch,
            ("DRAM", "B/key"),
            insert(batch),
            At("phases/mix/space/dram_bytes_per_key"),
        );
        rows.push(row.paper_about(dram, "table 1, of 100M keys"));
        rows.push(Row::new(
            "CCL-BTree",
            batch,
            ("inserts, 48 threads", "M/s"),
            insert(batch),
            At("throughput/48/mops"),
        ));
        rows.push(Row::new(
            "CCL-BTree",
            batch,
            ("searches, 48 threads", "M/s"),
            search(batch),
            At("throughput/48/mops"),
        ));
    }
    const LESS: &str =
        "what is beyond the paper's formula is splits and copies of the log, of which ours has fewer";
    const KEPT: &str = "of ours, what was flushed is forgotten with the next write to its place";
    Figure::new("table-1", "sensitivity to N_batch", Counted, "N_batch")
        .rows(rows)
        .note("Throughput on the virtual clock.")
}

fn thresholds(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let run = |percent| {
        let run = count("cclbtree", keys, THREADS).option("log_percent", percent).mix("insert=1");
        run.and("--slices", SLICES)
    };
    // Megabytes of 100M keys.
    let paper = [(10, 8.253), (15, 7.646), (20, 7.008), (25, 8.578), (30, 9.301), (35, 9.655)];
    let mut rows = Vec::new();
    for (percent, peak) in paper {
        let row = Row::new(
            "CCL-BTree",
            percent,
            ("peak of the log", "B/key"),
            run(percent),
            Quotient("log_bytes_peak", "phases/mix/space/keys"),
        );
        rows.push(
            row.paper_about(peak, "table 2, of 100M keys").remark("a log is a chunk of 2 MiB at least"),
        );
        rows.push(Row::new(
            "CCL-BTree",
            percent,
            ("inserts, 48 threads", "M/s"),
            run(percent),
            At("throughput/48/mops"),
        ));
    }
    Figure::new("table-2", "sensitivity to the threshold of the log", Counted, "TH_log in %")
        .rows(rows)
        .note("Throughput on the virtual clock.")
}

/// Slices of a phase that is shown over time.
const SLICES: u64 = 40;

fn collection(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let run = |options: &[(&str, u64)]| {
        let run = count("cclbtree", keys, THREADS).option("log_percent", 20).mix("insert=1");
        options.iter().fold(run, |run, (name, value)| run.option(name, *value)).and("--slices", SLICES)
    };
    let rows = [("locality-aware", run(&[])), ("naive", run(&[("naive_collection", 1)]))];
    let never =
        count("cclbtree", keys, THREADS).option("log_percent", 1000).mix("insert=1").and("--slices", SLICES);
    let rows: Vec<_> = rows.into_iter().chain([("never", never)]).collect();
    let over_time = rows.iter().flat_map(|(name, run)| {
        [
            Row::new(*name, X::None, ("inserts, 48 threads", "M/s"), run.clone(), Curve(slice_mops)),
            Row::new(*name, X::None, ("log", "B"), run.clone(), Curve(slice_log)),
        ]
    });
    let slowest = |(name, run): &(&'static str, Run)| {
        let row = Row::new(
            *name,
            X::None,
            ("slowest slice below the median", "%"),
            run.clone(),
            At("slowest_slice_percent"),
        );
        if *name == "naive" { row.paper(37.5, "\u{a7}5.2") } else { row }
    };
    let claims: Vec<_> = rows.iter().map(slowest).collect();
    Figure::new("14", "throughput while the log is collected", Counted, "share of the inserts in %")
        .rows(over_time)
        .rows(claims)
        .note("On the virtual clock; writers collect, one after the other. A naive collection flushes every buffer at once: its slice stands \
               still for as long as that takes.")
}

fn slice_mops(report: &Value) -> Vec<(f64, f64)> {
    run::slices(report, "mops")
}

fn slice_log(report: &Value) -> Vec<(f64, f64)> {
    run::slices(report, "log_bytes")
}

fn skewness(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let mut rows = Vec::new();
    for theta in [0.5, 0.7, 0.9, 0.99] {
        for design in all() {
            let run = count(design, keys, THREADS)
                .mix("get=50,upsert=50")
                .and("--distribution", format!("zipf:{theta}"));
            let run = run.and("--cache", scale.cache(LOADED, 36 << 20));
            rows.push(Row::new(
                title(design),
                theta,
                ("throughput, 48 threads", "M/s"),
                run,
                At("throughput/48/mops"),
            ));
        }
    }
    Figure::new("15a", "half lookups and half upserts, over skewness", Counted, "skewness")
        .rows(rows)
        .note("On the virtual clock, which has no locks and no aborted transactions.")
}

fn lengths(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let rows = all().map(|design| {
        let run = count(design, keys, 96)
            .and("--key", "bytes:8-128")
            .and("--value", "bytes:8-128")
            .with_bytes(136)
            .mix("insert=1");
        Row::new(title(design), X::None, ("inserts, 96 threads", "M/s"), run, At("throughput/96/mops"))
    });
    Figure::new("15b", "inserts of keys and values of 8 to 128 B", Counted, "")
        .rows(rows)
        .note("On the virtual clock. Baselines have keys and values of 8 B only. The paper's CCL-BTree is ahead by up to 2.47 times.")
}

fn values(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let mut rows = Vec::new();
    for design in ["cclbtree", "sstree", "nbtree", "lodgetree"] {
        for bytes in [64, 128, 256, 512] {
            let run = count(design, keys, 96)
                .and("--value", format!("bytes:{bytes}"))
                .with_bytes(bytes)
                .mix("insert=1");
            rows.push(Row::new(
                title(design),
                bytes,
                ("inserts, 96 threads", "M/s"),
                run.clone(),
                At("throughput/96/mops"),
            ));
            rows.push(Row::new(title(design), bytes, XBI, run, At("xbi_amplification")));
        }
    }
    Figure::new("15c", "inserts over the size of values", Counted, "bytes of a value")
        .rows(rows)
        .note("On the virtual clock. Baselines have values of 8 B only; other designs of the library stand in. The paper's CCL-BTree is ahead \
               by 1.2 to 3.5 times at 512 B.")
}

fn domains(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let run = |design: &str, domain: &str| {
        count(design, keys, 96)
            .mix("insert=1")
            .and("--domain", domain)
            .and("--cache", scale.cache(LOADED, 36 << 20))
    };
    let mut rows = Vec::new();
    for design in all() {
        for domain in ["adr", "eadr"] {
            rows.push(Row::new(
                title(design),
                domain,
                ("inserts, 96 threads", "M/s"),
                run(design, domain),
                At("throughput/96/mops"),
            ));
        }
    }
    let ratio = Row::new(
        "CCL-BTree",
        X::None,
        ("eADR to ADR", ""),
        run("cclbtree", "eadr"),
        Ratio("throughput/96/mops"),
    );
    rows.push(ratio.against(run("cclbtree", "adr")).paper(0.721, "\u{a7}5.4: 32.3 to 44.8 M/s"));
    Figure::new("16", "inserts with eADR", Counted, "persistence")
        .rows(rows)
        .note("On the virtual clock. The processor's cache is made smaller with the keys.")
}

fn recovery(scale: Scale) -> Figure {
    let mut rows = Vec::new();
    let most = scale.keys(1_000_000_000);
    for keys in sizes(most) {
        for threads in [1, 2, 4] {
            let run =
                Run::bench("cclbtree", keys).and("--threads", 1).and("--recovery-threads", threads).load();
            let series = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
            rows.push(Row::new(series, keys, ("recovery", "s"), run.clone(), At("recovery/seconds")));
            if keys == most && threads == 4 {
                let row =
                    Row::new("4 threads", X::None, ("recovery", "ns/key"), run, At("recovery/ns_per_key"));
                rows.push(row.paper(6.2, "\u{a7}5.4, 48 threads"));
            }
        }
    }
    Figure::new("17", "recovery over sizes and threads", Timed, "keys").rows(rows)
}

fn space(scale: Scale) -> Figure {
    let keys = scale.keys(1_000_000_000);
    let run = |design: &str, value: u64| {
        let run = count(design, keys, 1).load();
        if value == 8 { run } else { run.and("--value", format!("bytes:{value}")).with_bytes(value) }
    };
    let paper = [
        ("cclbtree", 28.8, 6.0),
        ("fptree", 26.9, 2.5),
        ("lbtree", 24.2, 2.5),
        ("dptree", 44.9, 9.2),
        ("utree", 29.8, 29.8),
        ("fastfair", 29.1, 0.0),
        ("pactree", 27.1, 0.0),
    ];
    let mut rows = Vec::new();
    for (design, pm, dram) in paper {
        rows.push(
            Row::new(
                title(design),
                X::None,
                ("medium", "B/key"),
                run(design, 8),
                At("space/pm_bytes_per_key"),
            )
            .paper(pm, "\u{a7}5.4"),
        );
        let row = Row::new(
            title(design),
            X::None,
            ("DRAM", "B/key"),
            run(design, 8),
            At("space/dram_bytes_per_key"),
        );
        rows.push(row.paper(dram, "\u{a7}5.4"));
    }
    for value in [8, 64, 256, 512] {
        rows.push(Row::new(
            "CCL-BTree",
            value,
            ("medium over values", "B/key"),
            run("cclbtree", value),
            At("space/pm_bytes_per_key"),
        ));
        rows.push(Row::new(
            "CCL-BTree",
            value,
            ("DRAM over values", "B/key"),
            run("cclbtree", value),
            At("space/dram_bytes_per_key"),
        ));
    }
    Figure::new("18", "space after inserts", Counted, "bytes of a value")
        .rows(rows)
        .note("The pool grows by chunks of 2 MiB, which weigh more on few keys; the paper's numbers are those of a billion.")
}

fn datasets(scale: Scale) -> Figure {
    let keys = scale.keys(200_000_000);
    let mut rows = Vec::new();
    for shape in ["amzn", "osm", "wiki", "facebook"] {
        for design in all() {
            let run = count(design, keys, 96).and("--keys-like", shape).load();
            rows.push(Row::new(
                title(design),
                shape,
                ("inserts, 96 threads", "M/s"),
                run,
                At("throughput/96/mops"),
            ));
        }
    }
    Figure::new("19", "inserts of keys that lie as real ones do", Counted, "data set")
        .rows(rows)
        .note("On the virtual clock. Generators stand in for the data sets. The paper's CCL-BTree is ahead by 1.24 times at least.")
}

fn logs(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let paper = [("flatstore", 36.4, 38.2, 1.1), ("cclbtree", 30.5, 41.1, 4.1)];
    const CLOCK: &str = "throughput/48/mops";
    let mut rows = Vec::new();
    for (design, insert, search, scan) in paper {
        for (operation, mix, operations, mops) in [
            ("insert", "insert=1", keys, insert),
            ("search", "get=1", keys, search),
            ("scan", "scan=1", (keys / 10).max(1), scan),
        ] {
            let run = count(design, keys, THREADS).mix(mix).operations(operations);
            rows.push(
                Row::new(title(design), operation, ("throughput, 48 threads", "M/s"), run, At(CLOCK))
                    .paper(mops, "table 3")
                    .remark(CLOCKED),
            );
        }
    }
    const CLOCKED: &str = "ours is on the virtual clock, without locks";
    Figure::new("table-3", "against log-structured stores", Counted, "operation")
        .rows(rows)
        .note("RocksDB is a rival of the command bench, not a design that can be counted.")
}
