//! The figures of the WO-tree paper.

use super::figure::Kind::{Counted, Timed};
use super::figure::{Figure, Paper, Row, Scale, X, title};
use super::run::Run;
use super::take::Take::{At, More, Saved, Scaled};

pub const PAPER: Paper = Paper {
    name: "wotree",
    title: "WO-tree: Write-Optimized B+ Tree Index Technology for Persistent Memory",
    figures,
};

const DESIGNS: [&str; 4] = ["wotree", "native", "wbtree", "fastfair"];
const OTHERS: [&str; 3] = ["native", "wbtree", "fastfair"];
const NODES: [u64; 4] = [4, 8, 16, 32];
const NODE: u64 = 16;
/// Default delay of a write (\u{a7}5.1).
const DELAY_NS: u64 = 400;
const INSERTED: u64 = 300_000;
const LOADED: u64 = 1_000_000;

fn figures(scale: Scale) -> Vec<Figure> {
    let mut figures = vec![inserts_counted(scale), deletes_counted(scale), inserts_delayed(scale)];
    figures.extend([deletes_timed(scale), searches(scale)]);
    figures.extend([threads_insert(scale), threads_delete(scale), threads_search(scale), mixes(scale)]);
    figures
}

/// Returns a row for WO-tree's saving relative to another tree.
fn saves(
    other: &str,
    x: impl Into<X>,
    what: &'static str,
    run: &dyn Fn(&str) -> Run,
    path: &'static str,
) -> Row {
    let series = format!("WO-tree against {}", title(other));
    Row::new(series, x, (what, "%"), run("wotree"), Saved(path)).against(run(other))
}

const FLUSHES: (&str, &str) = ("flushes an operation", "lines");

fn inserts_counted(scale: Scale) -> Figure {
    let keys = scale.keys(INSERTED);
    let run =
        |design: &str, lines| Run::count(design, keys).option("node_lines", lines).load().and("--threads", 1);
    const PATH: &str = "per_operation/insert/flushes";
    let row = |design| move |lines| Row::new(title(design), lines, FLUSHES, run(design, lines), At(PATH));
    let saved = |(other, percent, remark)| {
        saves(other, X::None, "flushes saved", &|design| run(design, NODE), PATH)
            .paper(percent, "\u{a7}5.3.1")
            .remark(remark)
    };
    const LESS: &str =
        "ours commits with the line that has the bitmap and the slot array, and logs no leaf writes";
    let logged = |lines| run("wotree", lines).option("log_leaves", 1);
    let saved_logged = |(other, percent)| {
        let series = format!("WO-tree that logs leaf writes, against {}", title(other));
        Row::new(series, X::None, ("flushes saved", "%"), logged(NODE), Saved(PATH))
            .against(run(other, NODE))
            .paper(percent, "\u{a7}5.3.1")
    };
    Figure::new("10a", "flushes of inserts over node sizes", Counted, "node size in lines")
        .rows(DESIGNS.into_iter().flat_map(|design| NODES.map(row(design))))
        .rows(NODES.map(|lines| Row::new("WO-tree, logs leaf writes", lines, FLUSHES, logged(lines), At(PATH))))
        .rows([("native", 84.7, ""), ("wbtree", 22.2, LESS), ("fastfair", 30.8, LESS)].map(saved))
        .rows([("native", 84.7), ("wbtree", 22.2), ("fastfair", 30.8)].map(saved_logged))
        .note("Inserts of a load into an empty tree, as in the paper. The paper's WO-tree writes a log record before each leaf \
               write; ours does with the option log_leaves.")
}

fn deletes_counted(scale: Scale) -> Figure {
    let keys = scale.keys(LOADED);
    let run = |design: &str, lines| {
        let run = Run::count(design, keys).option("node_lines", lines).operations(keys * 3 / 10);
        run.mix("remove=1").and("--threads", 1)
    };
    const PATH: &str = "per_operation/remove/flushes";
    let row = |design| move |lines| Row::new(title(design), lines, FLUSHES, run(design, lines), At(PATH));
    let saved = |(other, percent, remark)| {
        saves(other, X::None, "flushes saved", &|design| run(design, NODE), PATH)
            .paper(percent, "\u{a7}5.3.2")
            .remark(remark)
    };
    const MOVES: &str = "the paper's native tree flushes about 125 lines a delete, as if every entry that moves were \
                         logged and flushed by itself; ours logs a delete once";
    Figure::new("11a", "flushes of deletes over node sizes", Counted, "node size in lines")
        .rows(DESIGNS.into_iter().flat_map(|design| NODES.map(row(design))))
        .rows([("native", 99.2, MOVES), ("fastfair", 61.4, "ours commits without a log record")].map(saved))
        .rows([saves("wbtree", X::None, "flushes saved", &|design| run(design, NODE), PATH)])
        .note("Three in ten of the keys are picked at random; those picked twice cost nothing the second time, in any tree.")
}

/// Returns a timed run with nodes of `lines` lines on `threads` threads.
fn bench(design: &str, keys: u64, lines: u64, threads: u64) -> Run {
    Run::bench(design, keys).option("node_lines", lines).and("--threads", threads)
}

/// Returns microseconds per operation, from the seconds of a phase of `operations` operations.
fn each(path: &'static str, operations: u64) -> super::take::Take {
    Scaled(path, 1e6 / operations as f64)
}

const EMULATED: &str =
    "Every flushed line takes longer by a delay that the processor waits for, as in the paper's emulator.";

fn inserts_delayed(scale: Scale) -> Figure {
    let keys = scale.keys(INSERTED);
    let run = |design: &str, delay| bench(design, keys, NODE, 1).and("--delay", delay).load();
    const PATH: &str = "phases/load/seconds";
    let row = |design| {
        move |delay| {
            Row::new(title(design), delay, ("time of an insert", "us"), run(design, delay), each(PATH, keys))
        }
    };
    let saved = |(other, percent)| {
        saves(other, X::None, "time saved at 300 ns", &|design| run(design, 300), PATH)
            .paper(percent, "\u{a7}5.3.1")
    };
    Figure::new("10b", "time of inserts over extra write latency", Timed, "extra write latency in ns")
        .rows(DESIGNS.into_iter().flat_map(|design| [300, 400, 500, 600].map(row(design))))
        .rows([("native", 71.0), ("wbtree", 22.5), ("fastfair", 43.3)].map(saved))
        .note(EMULATED)
}

fn deletes_timed(scale: Scale) -> Figure {
    let (keys, removed) = (scale.keys(LOADED), scale.keys(LOADED) * 3 / 10);
    let run = |design: &str, lines| {
        bench(design, keys, lines, 1).operations(removed).mix("remove=1").and("--delay", DELAY_NS)
    };
    const PATH: &str = "phases/mix/seconds";
    let row = |design| {
        move |lines| {
            Row::new(
                title(design),
                lines,
                ("time of a delete", "us"),
                run(design, lines),
                each(PATH, removed),
            )
        }
    };
    let saved = |(other, percent)| {
        saves(other, X::None, "time saved at 16 lines", &|design| run(design, NODE), PATH)
            .paper(percent, "\u{a7}5.3.2")
    };
    Figure::new("11b", "time of deletes over node sizes", Timed, "node size in lines")
        .rows(DESIGNS.into_iter().flat_map(|design| NODES.map(row(design))))
        .rows([("native", 91.0), ("wbtree", 2.6), ("fastfair", 50.5)].map(saved))
        .note(EMULATED)
}

fn searches(scale: Scale) -> Figure {
    let (keys, searched) = (scale.keys(LOADED), scale.keys(LOADED) * 3 / 10);
    let run = |design: &str, lines| bench(design, keys, lines, 1).operations(searched).mix("get=1");
    const PATH: &str = "phases/mix/seconds";
    let row = |design| {
        move |lines| {
            Row::new(
                title(design),
                lines,
                ("time of a search", "us"),
                run(design, lines),
                each(PATH, searched),
            )
        }
    };
    let more = |(other, percent)| {
        let series = format!("WO-tree against {}", title(other));
        let row = Row::new(series, X::None, ("time added at 16 lines", "%"), run("wotree", NODE), More(PATH));
        row.against(run(other, NODE)).paper(percent, "\u{a7}5.3.3").remark(AHEAD)
    };
    const AHEAD: &str = "ours prefetches all lines of a node at once and takes no lock, so that it is ahead where the paper's is not";
    Figure::new("12", "time of searches over node sizes", Timed, "node size in lines")
        .rows(DESIGNS.into_iter().flat_map(|design| NODES.map(row(design))))
        .rows([("native", 2.74), ("wbtree", 1.64)].map(more))
        .note("Reads take as long as in DRAM, as in the paper.")
}

const THREADS: [u64; 3] = [1, 2, 4];
const SHARED: &str = "Where a machine has fewer processors than there are threads, these take turns.";

/// Returns WO-tree's saving on 1, 2 and 4 threads, beside the paper's.
fn saved_by_threads(
    what: &'static str,
    run: &dyn Fn(&str, u64) -> Run,
    path: &'static str,
    paper: [[f64; 3]; 3],
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (other, percents) in OTHERS.into_iter().zip(paper) {
        for (threads, percent) in THREADS.into_iter().zip(percents) {
            let row = saves(other, threads, what, &|design| run(design, threads), path);
            rows.push(row.paper(percent, "\u{a7}5.3.4"));
        }
    }
    rows
}

fn threads_insert(scale: Scale) -> Figure {
    let keys = scale.keys(INSERTED);
    let run = |design: &str, threads| bench(design, keys, NODE, threads).and("--delay", DELAY_NS).load();
    const PATH: &str = "phases/load/seconds";
    let row = |design| {
        move |threads| {
            Row::new(
                title(design),
                threads,
                ("time of an insert", "us"),
                run(design, threads),
                each(PATH, keys),
            )
        }
    };
    let paper = [[83.5, 84.3, 87.2], [17.6, 27.3, 27.1], [40.6, 44.7, 46.2]];
    Figure::new("13a", "time of inserts over threads", Timed, "threads")
        .rows(DESIGNS.into_iter().flat_map(|design| THREADS.map(row(design))))
        .rows(saved_by_threads("time saved", &run, PATH, paper))
        .note(SHARED)
}

fn threads_delete(scale: Scale) -> Figure {
    let (keys, removed) = (scale.keys(LOADED), scale.keys(LOADED) * 3 / 10);
    let run = |design: &str, threads| {
        bench(design, keys, NODE, threads).operations(removed).mix("remove=1").and("--delay", DELAY_NS)
    };
    const PATH: &str = "phases/mix/seconds";
    let row = |design| {
        move |threads| {
            Row::new(
                title(design),
                threads,
                ("time of a delete", "us"),
                run(design, threads),
                each(PATH, removed),
            )
        }
    };
    let paper = [[89.6, 89.4, 90.5], [4.9, 7.5, 28.1], [56.0, 55.0, 53.7]];
    Figure::new("13b", "time of deletes over threads", Timed, "threads")
        .rows(DESIGNS.into_iter().flat_map(|design| THREADS.map(row(design))))
        .rows(saved_by_threads("time saved", &run, PATH, paper))
        .note(SHARED)
}

fn threads_search(scale: Scale) -> Figure {
    let (keys, searched) = (scale.keys(LOADED), scale.keys(LOADED) * 3 / 10);
    let run = |design: &str, threads| bench(design, keys, NODE, threads).operations(searched).mix("get=1");
    const PATH: &str = "phases/mix/mops";
    let row = |design| {
        move |threads| Row::new(title(design), threads, ("searches", "M/s"), run(design, threads), At(PATH))
    };
    let paper = [[-9.0, 12.5, 24.1], [-5.9, 25.0, 29.5], [13.6, 4.3, 12.8]];
    let mut rows = Vec::new();
    for (other, percents) in OTHERS.into_iter().zip(paper) {
        for (threads, percent) in THREADS.into_iter().zip(percents) {
            let series = format!("WO-tree against {}", title(other));
            let row = Row::new(series, threads, ("more searches", "%"), run("wotree", threads), More(PATH));
            rows.push(row.against(run(other, threads)).paper(percent, "\u{a7}5.3.4"));
        }
    }
    Figure::new("13c", "searches over threads", Timed, "threads")
        .rows(DESIGNS.into_iter().flat_map(|design| THREADS.map(row(design))))
        .rows(rows)
        .note(SHARED)
}

fn mixes(scale: Scale) -> Figure {
    const MIXES: [(&str, &str); 3] =
        [("30/70", "get=30,insert=70"), ("50/50", "get=50,insert=50"), ("70/30", "get=70,insert=30")];
    let keys = scale.keys(LOADED);
    let run = |design: &str, mix: &str| {
        bench(design, keys, NODE, 4).operations(keys).mix(mix).and("--delay", DELAY_NS)
    };
    const PATH: &str = "phases/mix/seconds";
    let row = |design| {
        move |(name, mix)| {
            Row::new(title(design), name, ("time of an operation", "us"), run(design, mix), each(PATH, keys))
        }
    };
    let paper = [[72.6, 73.3, 60.6], [11.5, 17.7, 34.2], [26.4, 30.8, 19.2]];
    let mut saved = Vec::new();
    for (other, percents) in OTHERS.into_iter().zip(paper) {
        for ((name, mix), percent) in MIXES.into_iter().zip(percents) {
            saved.push(
                saves(other, name, "time saved", &|design| run(design, mix), PATH)
                    .paper(percent, "\u{a7}5.3.5"),
            );
        }
    }
    Figure::new("14", "mixes of reads and inserts on four threads", Timed, "reads/writes")
        .rows(DESIGNS.into_iter().flat_map(|design| MIXES.map(row(design))))
        .rows(saved)
        .note(SHARED)
}
