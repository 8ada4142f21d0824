//! `count`: its reports, their repeatability, and rejected arguments.

use crate::common::Bench;
use bristlecone_baselines::AnyDesign;
use serde_json::Value;

#[track_caller]
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

const FIGURES: [&str; 6] = [
    "flushes",
    "lines_written",
    "lines_read",
    "device_bytes_written",
    "media_bytes_written",
    "media_bytes_read",
];

#[test]
fn count_json_has_every_operation_and_part() {
    let bench = Bench::new();
    let report = bench.run("count --records 20k --mix insert=1,update=1,remove=1,get=1 --json").json();
    let kinds: Vec<&str> = report["per_operation"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(kinds, ["insert", "get", "update", "remove"]);
    for kind in kinds {
        let operation = &report["per_operation"][kind];
        assert!((4000.0..6000.0).contains(&number(&operation["operations"])), "{operation}");
        for figure in FIGURES {
            let parts = ["leaf", "log", "other"].map(|part| number(&operation[part][figure]));
            let sum: f64 = parts.iter().sum();
            assert!((sum - number(&operation[figure])).abs() < 1e-9, "{kind}.{figure}: {parts:?}");
        }
        let writes = kind != "get";
        for figure in ["flushes", "fences", "lines_written", "media_bytes_written"] {
            assert_eq!(number(&operation[figure]) > 0.0, writes, "{kind}.{figure}");
        }
        assert!(number(&operation["lines_read"]) > 0.0, "{kind}");
    }
    let (cli, xbi) = (number(&report["cli_amplification"]), number(&report["xbi_amplification"]));
    assert!(cli > 1.0 && xbi > cli, "lines of 64 B, media lines of 256 B: {cli}, {xbi}");
    for (name, all) in [("cli_amplification", cli), ("xbi_amplification", xbi)] {
        let parts = ["leaf", "log", "other"].map(|part| number(&report["written"][part][name]));
        assert!((parts.iter().sum::<f64>() - all).abs() < 1e-9, "{name}: {parts:?}");
    }
    let phases = report["phases"].as_array().unwrap();
    let names: Vec<&str> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["load", "mix"]);
    assert_eq!(
        (&phases[1]["per_operation"], &phases[0]["found"]),
        (&report["per_operation"], &20_000.into())
    );
    assert!(number(&report["space"]["pm_bytes_per_key"]) > 16.0);
    assert!(number(&report["space"]["dram_bytes_per_key"]) > 0.0);
    assert_eq!((&report["profile"], &report["domain"]), (&"optane".into(), &"adr".into()));
    assert_eq!(report["parameters"]["media_line_bytes"], 256);
    assert_eq!(report["background"]["flushes"], 0);
}

#[test]
fn count_twice_with_one_seed_is_the_same() {
    let bench = Bench::new();
    let run = |seed: u64| {
        bench.run(&format!("count --records 5k --preset ycsb-a --threads 1,4 --seed {seed} --json")).ok()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn count_profile_and_domain_change_the_figures() {
    let bench = Bench::new();
    let run = |arguments: &str| bench.run(&format!("count --mix update=1 --json {arguments}")).json();
    let written = |report: &Value| number(&report["per_operation"]["update"]["media_bytes_written"]);
    let lines = |report: &Value| number(&report["per_operation"]["update"]["lines_written"]);
    // More than the buffers of each device hold.
    let runs = ["nvdimm --records 50k", "optane --records 50k", "cxl-ssd --records 600k"]
        .map(|profile| run(&format!("--profile {profile}")));
    assert!(runs.iter().map(written).is_sorted(), "{:?}", runs.each_ref().map(written));
    assert_eq!(lines(&runs[0]), lines(&runs[1]), "the tree does the same");
    let eadr = run("--domain eadr --records 50k");
    let update = &eadr["per_operation"]["update"];
    assert_eq!((number(&update["flushes"]), number(&update["fences"]) > 0.0), (0.0, true));
    assert!(number(&eadr["cli_amplification"]) < number(&runs[1]["cli_amplification"]));
    // A cache too small to keep lines for long writes the lines that eADR leaves in it, and reads
    // more.
    let small = run("--domain eadr --cache 64K --records 50k");
    assert!(number(&small["cli_amplification"]) > number(&eadr["cli_amplification"]));
    let read = |report: &Value| number(&report["per_operation"]["update"]["media_bytes_read"]);
    assert!(read(&small) > read(&eadr));
}

#[test]
fn count_threads_each_get_a_throughput() {
    let bench = Bench::new();
    let report = bench.run("count --records 20k --mix insert=1 --threads 1,3,48 --writers 1 --json").json();
    let curve = report["throughput"].as_array().unwrap();
    let threads: Vec<u64> = curve.iter().map(|point| point["threads"].as_u64().unwrap()).collect();
    let mops: Vec<f64> = curve.iter().map(|point| number(&point["mops"])).collect();
    assert_eq!(threads, [1, 3, 48]);
    assert!(mops[1] > 2.5 * mops[0] && mops[2] > mops[1] && mops[2] < 48.0 * mops[0], "{mops:?}");
    let p99 = |at: usize| curve[at]["latency_ns"]["insert"]["p99"].as_u64().unwrap();
    assert!(p99(0) > 300 && p99(1) >= p99(0) && p99(2) > p99(0), "{:?}", [p99(0), p99(1), p99(2)]);
}

#[test]
fn count_deals_operations_to_as_many_writers_as_the_clock_has_threads() {
    let bench = Bench::new();
    let run = |arguments: &str| {
        bench.run(&format!("count --design lodgetree --records 20k --mix insert=1 --json {arguments}")).json()
    };
    let both = run("--threads 1,8");
    for (at, alone) in [(0, "--threads 1 --writers 1"), (1, "--threads 8 --writers 8")] {
        let alone = run(alone);
        assert_eq!(both["throughput"][at], alone["throughput"][0], "a run of its own for each");
        if at == 0 {
            assert_eq!(both["per_operation"], alone["per_operation"], "what is counted is of the first");
        }
    }
}

#[test]
fn count_of_every_design_is_the_same_twice() {
    let bench = Bench::new();
    for design in AnyDesign::all() {
        let run = || bench.run(&format!("count --design {design} --records 3k --threads 1,4 --json")).ok();
        assert_eq!(run(), run(), "{design}");
    }
    bench.run("count --design cclbtree --option collector_threads=1 --records 3k").refused(2, "no clock");
}

#[test]
fn count_devices_are_changed_by_files_and_parameters() {
    let bench = Bench::new();
    std::fs::write(bench.path("slow.toml"), "name = \"slow\"\nbase = \"optane\"\nmedia_write_ns = 1110\n")
        .unwrap();
    let run = |arguments: &str| {
        bench.run(&format!("count --records 5k --mix update=1 --threads 48 --json {arguments}")).json()
    };
    let mops = |report: &Value| number(&report["throughput"][0]["mops"]);
    let plain = run("");
    let slow = run(&format!("--profile {}", bench.path("slow.toml").display()));
    assert_eq!((&slow["profile"], &slow["parameters"]["media_write_ns"]), (&"slow".into(), &1110.0.into()));
    assert!(mops(&slow) < 0.2 * mops(&plain), "{} {}", mops(&slow), mops(&plain));
    assert_eq!(slow["per_operation"], plain["per_operation"]);
    assert_eq!(mops(&run("--model media_write_ns=1110")), mops(&slow));
    for model in ["reflush_ns=5000", "line_ns=200", "write_slowdown=0.1", "shared_queue=true"] {
        assert!(mops(&run(&format!("--model {model}"))) < mops(&plain), "{model}");
    }
    let read = |report: &Value| number(&report["per_operation"]["update"]["media_bytes_read"]);
    assert!(read(&run("--model clwb_evicts=true")) > read(&plain), "what is flushed is read again");
    let rows = bench.run("count --records 2k --preset ycsb-a --csv").ok();
    assert_eq!(rows.lines().count(), 1 + 3, "{rows}");
    std::fs::write(bench.path("wrong.toml"), "modules = 0\n").unwrap();
    bench.run(&format!("count --profile {}", bench.path("wrong.toml").display())).refused(2, "modules = 0");
    bench.run("count --model speed=9").refused(2, "no parameter");
}

#[test]
fn count_without_json_prints_tables() {
    let bench = Bench::new();
    let said = bench.run("count --records 2k --threads 1,4").ok();
    for part in [
        "sstree on a model of optane, domain adr",
        "load      insert",
        "scan",
        "(XBI)",
        "Mop/s",
        "p99.999",
        "B/key",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert!(said.lines().all(|line| line.chars().count() <= 110), "{said}");
}

#[test]
fn count_runs_every_preset_and_shape() {
    let bench = Bench::new();
    for arguments in [
        "--preset load",
        "--preset ycsb-b --distribution hotspot:0.2:0.8",
        "--preset ycsb-d --operations 3k",
        "--preset ycsb-e --key bytes:8-40",
        "--preset ycsb-f --value bytes:0-100 --distribution sequential",
        "--mix insert_new=1,upsert=1,scan=1 --key bytes:16 --value bytes:200 --option max_subnodes=4",
        "--mix insert=1,remove=1 --key urls",
    ] {
        let report = bench.run(&format!("count --records 2k --threads 2 --json {arguments}")).json();
        assert!(!report["per_operation"].as_object().unwrap().is_empty(), "{arguments}");
    }
    let report = bench.run("count --records 2k --preset ycsb-c --json").json();
    assert_eq!(report["xbi_amplification"], Value::Null, "nothing was written");
}

#[test]
fn count_wrong_arguments_are_refused() {
    let bench = Bench::new();
    for wrong in [
        "--design oak",
        "--profile dram",
        "--domain process",
        "--threads 0",
        "--threads 1,x",
        "--cache none",
        "--mix get=1 --preset micro",
        "--pool p",
    ] {
        bench.run(&format!("count {wrong}")).refused(2, "--help");
    }
    bench.run("count --records 0").refused(2, "1 or more");
    bench.run("count --records 10 --option max_subnodes=7").refused(2, "max_subnodes");
    bench.run("count --records 10 --option height=7").refused(2, "height");
    bench.run("count --records 900T").refused(2, "--help");
}
