//! Figures over other lengths, skews, sizes, domains and data sets.

use super::{LOADED, THREADS, XBI, all, count};
use crate::reproduce::figure::Kind::{Counted, Timed};
use crate::reproduce::figure::{Figure, Row, Scale, X, remark_of, title};
use crate::reproduce::run::{Run, threads_here};
use crate::reproduce::sstree::sizes;
use crate::reproduce::take::Take::{At, Ratio};

pub fn scans(scale: Scale) -> Figure {
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

pub fn skewness(scale: Scale) -> Figure {
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

pub fn lengths(scale: Scale) -> Figure {
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

pub fn values(scale: Scale) -> Figure {
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

pub fn domains(scale: Scale) -> Figure {
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

pub fn recovery(scale: Scale) -> Figure {
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

pub fn space(scale: Scale) -> Figure {
    let keys = scale.keys_in_space(1_000_000_000);
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
            .paper(pm, "\u{a7}5.4")
            .remark(remark_of(design)),
        );
        let row = Row::new(
            title(design),
            X::None,
            ("DRAM", "B/key"),
            run(design, 8),
            At("space/dram_bytes_per_key"),
        );
        rows.push(row.paper(dram, "\u{a7}5.4").remark(remark_of(design)));
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

pub fn datasets(scale: Scale) -> Figure {
    let keys = scale.keys(200_000_000);
    let mut rows = Vec::new();
    // The data set that each generator imitates, according to its documentation.
    for (set, shape) in [
        ("dense", "like amzn and facebook"),
        ("clustered", "like osm"),
        ("timestamps", "like wiki"),
        ("lognormal", "log-normal"),
    ] {
        for design in all() {
            let run = count(design, keys, 96).and("--keys", set).load();
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

pub fn logs(scale: Scale) -> Figure {
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
                    .remark(super::CLOCKED),
            );
        }
    }
    Figure::new("table-3", "against log-structured stores", Counted, "operation")
        .rows(rows)
        .note("RocksDB is a rival of the command bench, not a design that can be counted.")
}
