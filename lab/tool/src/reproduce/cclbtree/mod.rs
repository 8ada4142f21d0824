//! The figures of the CCL-BTree paper.

mod other_sizes;

use serde_json::Value;

use crate::reproduce::figure::Kind::Counted;
use crate::reproduce::figure::{Figure, Paper, Row, Scale, X, remark_of, title};
use crate::reproduce::run::Run;
use crate::reproduce::take;
use crate::reproduce::take::Take::{At, Curve, More, Quotient, Ratio, Saved, Scaled};

pub const PAPER: Paper = Paper {
    name: "cclbtree",
    title: "CCL-BTree: A Crash-Consistent Locality-Aware B+-Tree for Reducing XPBuffer-Induced Write Amplification",
    figures,
};

const LOADED: u64 = 50_000_000;

const OTHERS: [&str; 7] = ["fptree", "fastfair", "dptree", "utree", "lbtree", "pactree", "flatstore"];

const THREADS: u64 = 48;

fn figures(scale: Scale) -> Vec<Figure> {
    let mut figures = vec![
        device(scale),
        amplification_uniform(scale),
        amplification_skewed(scale),
        other_sizes::scans(scale),
    ];
    figures.extend([
        latencies(scale),
        techniques(scale),
        collection(scale),
        batches(scale),
        thresholds(scale),
    ]);
    figures.extend([
        other_sizes::skewness(scale),
        other_sizes::lengths(scale),
        other_sizes::values(scale),
        other_sizes::domains(scale),
        other_sizes::recovery(scale),
        other_sizes::space(scale),
    ]);
    figures.extend([other_sizes::datasets(scale), other_sizes::logs(scale)]);
    figures
}

fn all() -> impl Iterator<Item = &'static str> {
    ["cclbtree"].into_iter().chain(OTHERS)
}

/// Counts with one appender of the log: few keys would never fill 48 logs of at least 2 MiB each.
fn count(design: &str, keys: u64, threads: u64) -> Run {
    Run::count(design, keys).and("--threads", threads).and("--writers", 1)
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

/// The reason why ours writes less.
const SPLITS: &str = "updates, which split nothing, write what the paper's formula says (lab/docs/PERFORMANCE.md); the rest is splits, and copies of \
                      the log";

const CLI: (&str, &str) = ("CLI-amplification", "B/B");

const XBI: (&str, &str) = ("XBI-amplification", "B/B");

/// Returns rows of both amplifications.
fn amplification(run: &dyn Fn(&str) -> Run, ours: f64, others: f64, dptree: Option<f64>) -> Vec<Row> {
    let mut rows = Vec::new();
    for design in all() {
        rows.push(Row::new(title(design), X::None, CLI, run(design), At("cli_amplification")));
        let row = Row::new(title(design), X::None, XBI, run(design), At("xbi_amplification"));
        rows.push(match (design, dptree) {
            ("cclbtree", _) => row.paper(ours, "\u{a7}2.3").remark(SPLITS),
            ("dptree", Some(dptree)) => row.paper(dptree, "\u{a7}5.1"),
            _ => row.paper_about(others, "\u{a7}2.3, the mean of all others").remark(remark_of(design)),
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
    take::cdf(take::at(report, "throughput/48/latency_ns/insert/cdf"))
}

fn searches_cdf(report: &Value) -> Vec<(f64, f64)> {
    take::cdf(take::at(report, "throughput/48/latency_ns/get/cdf"))
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
    let faster = |series, mix, what: &[(&str, u64)], than: &[(&str, u64)], percent, place| {
        let row = Row::new(series, X::None, ("more operations a second", "%"), run(what, mix), More(CLOCK));
        row.against(run(than, mix)).paper(percent, place)
    };
    rows.extend([
        faster("+BNode against Base, inserts", "insert=1", NODE, BASE, 35.9, "\u{a7}5.2, the mean of writes"),
        faster("+BNode against Base, searches", "get=1", NODE, BASE, 6.5, "\u{a7}5.2"),
        faster(
            "+WLog against +BNode, inserts",
            "insert=1",
            LOGGED,
            NODE,
            8.3,
            "\u{a7}5.2, the mean of writes",
        ),
    ]);
    const GROWS: &str = "the ideal without splits is 60.4 %; splits add 25 B to an insert of Base here";
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
    const INSERTS: (&str, &str) = ("inserts, 48 threads", "M/s");
    const SEARCHES: (&str, &str) = ("searches, 48 threads", "M/s");
    const MEDIA: (&str, &str) = ("media writes of an insert", "B");
    const HITS: (&str, &str) = ("searches that a buffer answers", "%");
    const CLOCK: &str = "throughput/48/mops";
    let insert = |batch| {
        count("cclbtree", keys, THREADS).option("batch", batch).option("log_percent", 20).mix("insert=1")
    };
    let search = |batch| count("cclbtree", keys, THREADS).option("batch", batch).mix("get=1");
    // Like the table, but in bytes per insert instead of gigabytes of 50M, hits in percent of 50M, bytes per key
    // instead of gigabytes of 100M.
    let paper = [
        (1, [27.4, 187.0, 39.9, 9.8, 4.7, 27.1]),
        (2, [30.6, 150.0, 41.1, 18.8, 5.9, 27.7]),
        (3, [31.6, 133.0, 42.9, 28.4, 7.4, 29.6]),
        (4, [32.9, 123.0, 43.7, 35.2, 8.2, 28.3]),
        (5, [33.3, 118.0, 44.4, 43.4, 9.3, 28.1]),
    ];
    let mut rows = Vec::new();
    for (batch, [inserts, media, searches, hits, dram, pm]) in paper {
        let row = |metric, run, take| Row::new("CCL-BTree", batch, metric, run, take);
        rows.extend([
            row(INSERTS, insert(batch), At(CLOCK)).paper(inserts, "table 1").remark(CLOCKED),
            row(MEDIA, insert(batch), At("per_operation/insert/media_bytes_written"))
                .paper(media, "table 1")
                .remark(SPLITS),
            row(SEARCHES, search(batch), At(CLOCK)).paper(searches, "table 1").remark(CLOCKED),
            row(HITS, search(batch), Scaled("per_operation/get/reading_nothing", 100.0))
                .paper(hits, "table 1"),
            row(("DRAM", "B/key"), insert(batch), At("phases/mix/space/dram_bytes_per_key"))
                .paper_about(dram, "table 1"),
            row(("medium", "B/key"), insert(batch), At("phases/mix/space/pm_bytes_per_key"))
                .paper_about(pm, "table 1"),
        ]);
    }
    Figure::new("table-1", "sensitivity to N_batch", Counted, "N_batch").rows(rows).note(
        "Throughput on the virtual clock. The pool grows by chunks of 2 MiB, which weigh more on few keys.",
    )
}

/// The reason why ours is faster than the paper's.
const CLOCKED: &str =
    "on the virtual clock there are no locks, and an operation takes 300 ns besides the device";

fn thresholds(scale: Scale) -> Figure {
    let keys = scale.keys_in_space(LOADED);
    let run = |percent| {
        let run = count("cclbtree", keys, THREADS).option("log_percent", percent).mix("insert=1");
        run.and("--slices", SLICES)
    };
    // Megabytes of 100M keys.
    let paper = [
        (10, 31.5, 8.253),
        (15, 31.7, 7.646),
        (20, 31.6, 7.008),
        (25, 31.7, 8.578),
        (30, 31.5, 9.301),
        (35, 31.9, 9.655),
    ];
    let mut rows = Vec::new();
    for (percent, mops, peak) in paper {
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
        let row = Row::new(
            "CCL-BTree",
            percent,
            ("inserts, 48 threads", "M/s"),
            run(percent),
            At("throughput/48/mops"),
        );
        rows.push(row.paper(mops, "table 2").remark(CLOCKED));
    }
    Figure::new("table-2", "sensitivity to the threshold of the log", Counted, "TH_log in %")
        .rows(rows)
        .note("Throughput on the virtual clock.")
}

/// Number of slices of a phase that is shown over time.
const SLICES: u64 = 40;

fn collection(scale: Scale) -> Figure {
    let keys = scale.keys_in_space(LOADED);
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
    take::slices(report, "mops")
}

fn slice_log(report: &Value) -> Vec<(f64, f64)> {
    take::slices(report, "log_bytes")
}
