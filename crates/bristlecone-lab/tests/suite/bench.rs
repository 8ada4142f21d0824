//! `bench`: what it reports, and that it leaves nothing behind.

use crate::common::Bench;
use serde_json::Value;

#[track_caller]
fn phases(report: &Value) -> Vec<(String, u64)> {
    let phase = |phase: &Value| {
        assert!(phase["mops"].as_f64().unwrap() > 0.0 && phase["seconds"].as_f64().unwrap() > 0.0);
        let latency: Vec<u64> = ["p50", "p90", "p99", "p999", "p9999", "p99999", "max"]
            .iter()
            .map(|name| phase["latency_ns"][name].as_u64().unwrap())
            .collect();
        assert!(latency.is_sorted() && latency[0] > 0, "{latency:?}");
        (phase["name"].as_str().unwrap().to_owned(), phase["operations"].as_u64().unwrap())
    };
    report["phases"].as_array().unwrap().iter().map(phase).collect()
}

#[test]
fn bench_micro_reports_every_phase() {
    let bench = Bench::new();
    let report = bench.run("bench --records 5k --threads 2 --domain adr --pool @p --seed 7 --json").json();
    let many = ["get_many", "upsert_many", "insert_many"];
    let names = [&["load", "get", "update", "insert", "scan", "zipf"], &many[..], &["remove"]].concat();
    let operations = [5000, 5000, 5000, 5000, 500, 5000, 5000, 5000, 5000, 5000];
    let wanted: Vec<(String, u64)> = names.iter().map(|name| (*name).to_owned()).zip(operations).collect();
    assert_eq!(phases(&report), wanted);
    assert_eq!((&report["design"], &report["domain"]), (&"sstree".into(), &"adr".into()));
    assert_eq!((report["threads"].as_u64(), report["seed"].as_u64()), (Some(2), Some(7)));
    assert!(report["space"]["pm_bytes_per_key"].as_f64().unwrap() > 16.0);
    assert!(report["space"]["dram_bytes_per_key"].as_f64().unwrap() > 0.0);
    assert_eq!(report["recovery"]["keys"], 5000);
    assert!(report["recovery"]["ns_per_key"].as_f64().unwrap() > 0.0);
    assert_eq!(report["recovery"]["threads"], 2);
    assert!(!bench.path("p").exists());
}

#[test]
fn bench_timeline_adds_up_to_all_operations() {
    let bench = Bench::new();
    let arguments = "--records 200k --threads 2 --domain adr --pool @p --design cclbtree --timeline 1 --json";
    for (timed, one_in) in [("", 64), ("--timed-one-in 1", 1)] {
        let report = bench.run(&format!("bench {arguments} {timed}")).json();
        assert_eq!(report["timed_one_in"], one_in);
        let load = &report["phases"][0];
        assert_eq!(load["timeline"]["slice_seconds"], 0.001);
        let slices = load["timeline"]["mops"][0].as_array().unwrap().iter();
        let slices: Vec<f64> = slices.map(|mops| mops.as_f64().unwrap()).collect();
        let seconds = load["seconds"].as_f64().unwrap();
        assert!((seconds - slices.len() as f64 * 0.001).abs() <= 0.0011, "{} in {seconds} s", slices.len());
        let done: f64 = slices.iter().map(|mops| mops * 1e6 * 0.001).sum();
        // All but what was done in the last slice.
        assert!((100e3..=200e3 + 128.0).contains(&done), "{done} operations in {seconds} s: {slices:?}");
    }
    bench.run("bench --records 2k --pool @p --timeline 10").refused(2, "--json");
}

#[test]
fn bench_runs_every_preset_mix_and_distribution() {
    let bench = Bench::new();
    let run = |arguments: &str| {
        let report =
            bench.run(&format!("bench --records 2k --threads 2 --pool @p --json {arguments}")).json();
        phases(&report).into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    };
    for letter in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(run(&format!("--preset ycsb-{letter}")), "load run");
    }
    assert_eq!(run("--preset load"), "load");
    assert_eq!(run("--mix insert=1,insert_new=1,get=2,update=1,upsert=1,remove=1,scan=1"), "load mix");
    for distribution in ["sequential", "zipf:0.5", "selfsimilar:0.2", "hotspot:0.2:0.8"] {
        run(&format!("--distribution {distribution}"));
    }
    for shapes in ["--key bytes:8-40", "--value bytes:0-100", "--key bytes:16 --value bytes:200-300"] {
        run(shapes);
    }
    run("--option max_subnodes=4 --rounds 2 --recovery-threads 1 --prefault 4M --operations 3k");
}

#[test]
fn bench_against_volatile_maps_runs_the_same_phases() {
    let bench = Bench::new();
    let arguments =
        "bench --records 3k --threads 2 --rounds 3 --pool @p --against ferntree,congee,scc,skiplist";
    let report = bench.run(&format!("{arguments} --json")).json();
    let maps = report["against"].as_array().unwrap();
    let names: Vec<&str> = maps.iter().map(|map| map["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ferntree", "congee", "scc", "skiplist"]);
    for map in maps {
        assert_eq!(phases(map), phases(&report));
        for (of_tree, of_map) in
            report["phases"].as_array().unwrap().iter().zip(map["phases"].as_array().unwrap())
        {
            // A skip list replaces by removing and inserting: a reader in between finds nothing.
            if of_map["name"] != "zipf" || map["name"] != "skiplist" {
                assert_eq!(of_map["found"], of_tree["found"], "{} {}", map["name"], of_map["name"]);
            }
            assert!(of_map["ratio"].as_f64().unwrap() > 0.0);
        }
        assert_eq!(map["skipped"][0]["phase"], "recovery");
    }
    let said = bench.run(&format!("{arguments} --key bytes:8-16")).ok();
    assert!(said.contains("congee skips everything: its keys and values are words"), "{said}");
}

#[test]
fn bench_wrong_arguments_are_refused() {
    let bench = Bench::new();
    for wrong in [
        "--design oak",
        "--records x",
        "--threads 0",
        "--rounds 0",
        "--timed-one-in 0",
        "--mix get",
        "--mix get=1 --preset micro",
        "--preset ycsb-g",
        "--distribution zipf:2",
        "--key str",
        "--key bytes:1-2",
        "--value bytes:9-1",
        "--domain dram",
        "--against btree",
    ] {
        bench.run(&format!("bench {wrong}")).refused(2, "--help");
    }
    bench.run("bench --records 0").refused(2, "1 or more");
    bench.run("bench --records 10 --option max_subnodes=7 --pool @p").refused(2, "max_subnodes");
    assert!(!bench.path("p").exists());
    bench.file("p", "mine");
    bench.run("bench --records 10 --pool @p").refused(2, "exists already");
    assert_eq!(std::fs::read_to_string(bench.path("p")).unwrap(), "mine");
}
