//! `scale`: its report, its repeatability, and rejected arguments.

use crate::common::Bench;
use serde_json::Value;

const SMALL: &str = "scale --design nbtree -n 2k -t 1,4 --mix get=1,upsert=1 --distribution zipf:0.99";

fn scaling(report: &Value) -> &Vec<Value> {
    report["phases"].as_array().unwrap().last().unwrap()["scaling"].as_array().unwrap()
}

#[test]
fn scale_json_has_each_number_of_threads_and_repeats_itself() {
    let bench = Bench::new();
    let report = bench.run(&format!("{SMALL} --json")).json();
    let threads: Vec<_> = scaling(&report).iter().map(|run| run["threads"].as_u64().unwrap()).collect();
    assert_eq!((threads, &report["machine"]["name"]), (vec![1, 4], &"icelake2s-optane".into()));
    for run in scaling(&report) {
        assert!(run["mops"].as_f64().unwrap() > 0.0, "{run}");
        assert!(run["per_operation"]["upsert"]["steps"].as_f64().unwrap() > 1.0, "{run}");
        let moves = run["per_operation"]["upsert"]["transfers"].as_f64().unwrap();
        assert_eq!(moves > 0.0, run["threads"] == 4, "lines move between cores only: {run}");
    }
    let again = bench.run(&format!("{SMALL} --json")).json();
    assert_eq!(scaling(&again), scaling(&report));
}

#[test]
fn scale_preload_takes_no_virtual_time_and_smaller_caches_miss_more() {
    let bench = Bench::new();
    let run = |more: &str| {
        bench.run(&format!("scale --design nbtree -n 20k -p 2k -t 2 --mix get=1 {more} --json")).json()
    };
    let loaded = run("");
    let names = |report: &Value| {
        let phases = report["phases"].as_array().unwrap().iter();
        phases.map(|phase| phase["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&loaded), &loaded["preload"]),
        (vec!["load".to_owned(), "mix".to_owned()], &false.into())
    );
    let preloaded = run("--preload");
    assert_eq!((names(&preloaded), &preloaded["preload"]), (vec!["mix".to_owned()], &true.into()));
    let misses =
        |report: &Value| scaling(report)[0]["per_operation"]["get"]["device_reads"].as_f64().unwrap();
    let smaller = run("--caches-for 200M");
    assert!(misses(&loaded) < 0.1, "all of it is in the caches: {}", misses(&loaded));
    assert!(misses(&smaller) > 0.3, "{}", misses(&smaller));
    assert!(misses(&preloaded) > 0.3, "caches are cold: {}", misses(&preloaded));
}

#[test]
fn scale_validation_compares_throughput_and_conflicts_of_threads() {
    let bench = Bench::new();
    let run = "scale --validate --design nbtree,sstree -n 2k -p 2k --rounds 1 --json";
    if std::thread::available_parallelism().unwrap().get() < 2 {
        bench.run(&format!("{run} -t 2")).refused(2, "times up to 1");
        return;
    }
    let said = bench.run(&format!("{run} -t 2")).ok();
    let rows: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of =
        |what: &str| rows.iter().filter(|row| row[what].as_f64().is_some_and(|found| found >= 0.0)).count();
    assert_eq!((of("timed_ratio"), of("conflicts"), of("simulated_conflicts")), (14, 14, 14));
    let writes = rows.iter().filter(|row| row["conflicts"].is_number() && row["phase"] == "load");
    for row in writes {
        let (found, simulated) = (&row["conflicts"], &row["simulated_conflicts"]);
        assert!(found.as_f64() > Some(0.01) && simulated.as_f64() > Some(0.01), "{row}");
    }
}

#[test]
fn scale_refuses_bad_input_in_one_line() {
    let bench = Bench::new();
    let refused = |arguments: &str, said: &str| {
        let ran = bench.run(&format!("scale -n 1k {arguments}"));
        assert_eq!((ran.code, ran.stderr.lines().count()), (2, 1), "{arguments}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{arguments}: {}", ran.stderr);
    };
    // More threads than the directory or the machine holds.
    refused("-t 129", "the directory of the model holds 1 to 128 threads");
    refused("-t 0", "the directory of the model holds 1 to 128 threads");
    refused("-t 97", "97 threads: icelake2s-optane runs 96 at the same time");
    refused("--set cores=64", "256 threads of all cores: the directory holds 128");
    // Machines with missing or impossible numbers.
    refused("--profile i486", "no machine \"i486\"");
    refused("--profile @none.toml", "none.toml");
    refused("--set llc_ns", "--set llc_ns: expected NAME=VALUE");
    refused("--set llc_ns=-1", "llc_ns = -1");
    refused("--set llc_ns=nan", "llc_ns = NaN");
    refused("--set llc_ns=500", "llc_ns = 500: dram_ns = 85 at most");
    refused("--set read_ns=-1", "read_ns = -1");
    refused("--set l2_bytes=1000", "l2_bytes = 1000");
    for (content, said) in [
        ("cores = 4", "no base: name the machine"),
        ("base = \"zen4-dram\"\ncores =", "machine.toml"),
        ("base = \"zen4-dram\"\ncores = 0", "cores = 0: 1 to 128"),
        ("base = \"zen4-dram\"\npause_ns = inf", "pause_ns = inf"),
        ("base = \"zen4-dram\"\nspeed = 3", "no parameter \"speed\""),
    ] {
        bench.file("machine.toml", content);
        refused("--profile @machine.toml", said);
    }
    // Designs with threads of their own, and runs that simulate or compare nothing.
    refused("--design cclbtree --option collector_threads=1", "only 0 can be counted");
    refused("--design none", "none");
    refused("--preload --preset load", "--preload leaves nothing to simulate");
    refused("--caches-for 999", "--caches-for 999: at least as many keys as are loaded");
    refused("--preset bank", "bank, batch and snapshot are for bench");
    refused("--validate -t 1", "two or more with --design");
    refused("--validate -t 128 --design nbtree,sstree", "--validate times up to");
    refused("--rounds 3", "--validate");
}
