//! `bench`: its reports, and removal of its files.

use crate::common::Bench;
use bristlecone::Design;
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
    assert_eq!(report["recovery"]["keys"], 10_000, "with the keys of insert_many");
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
        // Everything except the work of the last slice.
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
    for shapes in
        ["--key bytes:8-40", "--key urls", "--value bytes:0-100", "--key bytes:16 --value bytes:200-300"]
    {
        run(shapes);
    }
    run("--option max_subnodes=4 --rounds 2 --recovery-threads 1 --prefault 4M --operations 3k");
}

#[test]
fn bench_against_volatile_maps_runs_the_same_phases_in_turns() {
    let bench = Bench::new();
    let mut arguments =
        "bench --records 3k --threads 2 --rounds 3 --pool @p --against ferntree,congee,scc,skiplist,btreemap"
            .to_owned();
    let mut wanted = vec!["ferntree", "congee", "scc", "skiplist", "btreemap"];
    if cfg!(feature = "rivals") {
        arguments.push_str(",masstree");
        wanted.push("masstree");
    }
    let report = bench.run(&format!("{arguments} --json")).json();
    let maps = report["against"].as_array().unwrap();
    let names: Vec<&str> = maps.iter().map(|map| map["name"].as_str().unwrap()).collect();
    assert_eq!(names, wanted);
    let all = phases(&report);
    for map in maps {
        // Two threads of a skip list miss keys that are being replaced.
        let replaces =
            |name: &str| map["name"] == "skiplist" && matches!(name, "update" | "zipf" | "upsert_many");
        let wanted: Vec<_> = all.iter().filter(|(name, _)| !replaces(name)).cloned().collect();
        assert_eq!(phases(map), wanted);
        for phase in map["phases"].as_array().unwrap() {
            assert_eq!(
                (&phase["found"], &phase["wrong"]),
                (&phase["operations"], &0.into()),
                "{}",
                map["name"]
            );
            assert!(phase["ratio"].as_f64().unwrap() > 0.0);
        }
        assert!(map["skipped"].as_array().unwrap().iter().any(|skipped| skipped["phase"] == "recovery"));
        assert!(map["durability"].as_str().unwrap().contains("volatile"));
        assert!(map["pages"]["resident_bytes"].is_u64());
    }
    let first: Vec<&str> =
        report["order"].as_array().unwrap().iter().map(|order| order[0].as_str().unwrap()).collect();
    assert_eq!(first, ["sstree", "ferntree", "congee"], "each is the first in its turn");
    assert_eq!(
        (&report["page_supply"], &report["lost"]),
        (&"as it is touched, for all".into(), &Value::Array(vec![]))
    );
    let load = &report["phases"][0];
    assert_eq!(load["mops_rounds"].as_array().unwrap().len(), 3);
    assert!(load["latency_ns"]["slowest_100"].as_u64().unwrap() > 0 && load["latency_ns"]["cdf"].is_array());
    let said = bench.run(&format!("{arguments} --key bytes:8-16")).ok();
    for part in [
        "congee skips everything: its keys and values are words",
        "skiplist skips update, zipf, upsert_many: it removes and inserts",
        "memory is supplied as it is touched, for all",
        "which store begins changes",
        "btreemap survives nothing",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[cfg(feature = "rivals")]
#[test]
fn bench_against_masstree_keeps_words_and_bytes() {
    let bench = Bench::new();
    let run = "bench --records 3k --threads 2 --pool @p --against masstree";
    let mixed = "--mix get=3,upsert=2,insert_new=1,remove=2,scan=1 --operations 20k";
    for shapes in
        ["", "--key bytes:8-40", "--key urls", "--value bytes:0-40", "--key bytes:256 --value bytes:0-300"]
    {
        let report = bench.run(&format!("{run} {shapes} --json")).json();
        let theirs = &report["against"][0];
        assert_eq!(phases(theirs), phases(&report), "{shapes}");
        for phase in theirs["phases"].as_array().unwrap() {
            assert_eq!((&phase["found"], &phase["wrong"]), (&phase["operations"], &0.into()), "{shapes}");
        }
        let report = bench.run(&format!("{run} {shapes} {mixed} --json")).json();
        let phases = report["against"][0]["phases"].as_array().unwrap();
        assert!(phases.iter().all(|phase| phase["wrong"] == 0), "{shapes}: {phases:?}");
    }
    let said = bench.run(&format!("{run} --key bytes:8-257")).ok();
    assert!(said.contains("masstree skips everything: its keys have at most 256 bytes"), "{said}");
}

#[test]
fn bench_dependent_reads_and_counters_are_said_to_be_so() {
    let bench = Bench::new();
    let run = bench.run("bench --records 3k --threads 1 --pool @p --preset ycsb-c --dependent --perf");
    let said = run.ok();
    assert!(said.contains("depends on the value before it"), "{said}");
    // Many machines have no counters, or do not permit reading them.
    assert!(said.contains("cycles") || said.contains("perf_event_open"), "{said}");
    let report =
        bench.run("bench --records 3k --threads 1 --pool @p --preset ycsb-c --dependent --json").json();
    assert_eq!((&report["dependent"], &report["phases"][1]["found"]), (&true.into(), &3000.into()));
}

#[test]
fn bench_of_lists_runs_every_combination() {
    let bench = Bench::new();
    let lists = "bench --records 1k,2k --design sstree,nbtree --preset load,ycsb-c --threads 1,2 --pool @p";
    let rows = bench.run(&format!("{lists} --csv")).ok();
    let rows: Vec<Vec<&str>> = rows.lines().map(|line| line.split(',').collect()).collect();
    let (head, rows) = rows.split_first().unwrap();
    assert!(rows.iter().all(|row| row.len() == head.len()), "{rows:?}");
    // The preset load has one phase, ycsb-c two.
    assert_eq!(rows.len(), 2 * 2 * (1 + 2) * 2);
    let column = |name: &str| head.iter().position(|column| *column == name).unwrap();
    let mops = column("mops");
    assert!(rows.iter().all(|row| row[mops].parse::<f64>().unwrap() > 0.0));
    let said: std::collections::HashSet<_> = rows
        .iter()
        .map(|row| ["store", "records", "preset", "threads", "phase"].map(|name| row[column(name)]))
        .collect();
    assert_eq!(said.len(), rows.len());
    let reports = bench
        .run("bench --records 1k --design sstree,wotree --preset load --threads 1 --pool @p --json")
        .ok();
    assert_eq!(reports.lines().count(), 2, "one record for each run");
}

#[test]
fn bench_takes_keys_and_operations_from_files() {
    let bench = Bench::new();
    let words: Vec<u8> =
        [3000u64].into_iter().chain((0..3000).map(|key| key * key)).flat_map(u64::to_le_bytes).collect();
    std::fs::write(bench.path("keys"), &words).unwrap();
    let sosd = format!("--keys sosd:{}", bench.path("keys").display());
    let report =
        bench.run(&format!("bench --records 2k --operations 500 --threads 2 --pool @p --json {sosd}")).json();
    assert_eq!((phases(&report).len(), &report["recovery"]["keys"]), (10, &2500.into()));
    bench
        .run(&format!("bench --records 2k --pool @p {sosd}"))
        .refused(2, "3000 different keys, and the phases take 6000");
    std::fs::write(bench.path("keys"), &words[..words.len() - 3]).unwrap();
    bench.run(&format!("bench --records 2k --operations 1k --pool @p {sosd}")).refused(7, "truncated");
    for set in ["dense", "clustered", "lognormal", "timestamps"] {
        bench
            .run(&format!("bench --records 2k --threads 2 --pool @p --keys {set} --scan-length 50-400"))
            .ok();
    }
    let trace: String = (0..500)
        .map(|key| format!("INSERT usertable user{key} [ f=1 ]\nREAD usertable user7 [ <all> ]\n"))
        .collect();
    std::fs::write(bench.path("trace"), &trace).unwrap();
    let trace = format!("--trace {}", bench.path("trace").display());
    for threads in [1, 2] {
        let report = bench.run(&format!("bench --threads {threads} --pool @p --json {trace}")).json();
        // Key 7 is read before it is inserted.
        assert_eq!(phases(&report), [("load".to_owned(), 1), ("trace".to_owned(), 1000)]);
        assert_eq!(report["phases"][1]["wrong"], 0);
    }
    std::fs::write(bench.path("trace"), "READ usertable user1 [ <all> ]\nREAD usert").unwrap();
    bench.run(&format!("bench --pool @p {trace}")).refused(7, "line 2: it ends amid the line");
    let pibench = "-n 2000 -p 1000 -t 2 -k 8 -v 16 -r 0.8 -i 0.1 -u 0.1 --distribution SELFSIMILAR --skew 0.2 --latency_sampling 0.1";
    let report = bench.run(&format!("bench {pibench} --pool_path @p --pool_size 1G --json")).json();
    assert_eq!(phases(&report), [("load".to_owned(), 2000), ("mix".to_owned(), 1000)]);
    assert_eq!(report["timed_one_in"], 10);
}

/// Compiles the wrapper of `wrapper.cpp` with a macro defined; `None`: there is no compiler.
fn wrapper(bench: &Bench, name: &str, macro_name: &str) -> Option<String> {
    let library = bench.path(name);
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/wrapper.cpp");
    let arguments = ["-shared", "-fPIC", "-O1", &format!("-D{macro_name}"), "-o"];
    match std::process::Command::new("g++").args(arguments).arg(&library).arg(source).status() {
        Ok(done) => {
            assert!(done.success(), "the wrapper does not compile");
            Some(library.display().to_string())
        }
        Err(error) => {
            println!("skipped: g++: {error}");
            None
        }
    }
}

#[test]
fn bench_against_a_wrapper_for_pibench_calls_it() {
    let bench = Bench::new();
    let run = "bench --records 3k --threads 2 --pool @p --json --against";
    for (name, edition) in [("new.so", "NEW"), ("old.so", "OLD")] {
        let Some(library) = wrapper(&bench, name, edition) else { return };
        let report = bench.run(&format!("{run} {library}")).json();
        let theirs = &report["against"][0];
        assert_eq!(theirs["name"], &name[..3]);
        assert_eq!(phases(theirs), phases(&report), "{edition}");
        for phase in theirs["phases"].as_array().unwrap() {
            assert_eq!((&phase["found"], &phase["wrong"]), (&phase["operations"], &0.into()), "{edition}");
        }
    }
}

#[test]
fn bench_fails_where_a_store_loses_keys() {
    let bench = Bench::new();
    let Some(library) = wrapper(&bench, "loses.so", "LOSES") else { return };
    let run =
        bench.run(&format!("bench --records 3k --threads 2 --pool @p --preset ycsb-c --against {library}"));
    run.refused(1, "operations found their key");
    assert!(!bench.path("p").exists());
}

#[test]
fn bench_against_a_follower_reads_what_the_tree_reads() {
    let bench = Bench::new();
    for design in Design::ALL {
        let run = format!("bench --design {design} --records 3k --threads 2 --rounds 2 --pool @p --json");
        let report = bench.run(&format!("{run} --against follower")).json();
        let follower = &report["against"][0];
        let names: Vec<_> = phases(follower).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["get", "scan", "get_many"], "{design}");
        for phase in follower["phases"].as_array().unwrap() {
            assert_eq!((&phase["found"], &phase["wrong"]), (&phase["operations"], &0.into()), "{design}");
        }
        assert!(follower["skipped"].to_string().contains("a follower reads"), "{}", follower["skipped"]);
    }
    let run = "bench --records 10 --pool @p --preset bank --against follower";
    bench.run(run).refused(2, "has no part in the preset bank");
}

#[test]
fn bench_against_what_is_no_wrapper_is_refused_in_one_line() {
    let bench = Bench::new();
    let run =
        |library: &str| bench.run(&format!("bench --records 1k --threads 1 --pool @p --against {library}"));
    bench.file("text.so", "no library");
    run(&bench.path("text.so").display().to_string()).refused(2, "text.so");
    run("/no/such.so").refused(2, "/no/such.so");
    let libc = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let libc =
        libc.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| path.contains("libc.so"));
    if let Some(libc) = libc {
        run(libc).refused(2, "no function create_tree");
    }
    let Some(library) = wrapper(&bench, "one.so", "ONE") else { return };
    run(&library).refused(2, "create_tree returned nothing");
    bench
        .run(&format!("bench --records 1k --pool @p --value bytes:4-9 --against {library}"))
        .refused(2, "one length each");
    for (name, feature) in [("redb", "rivals"), ("masstree", "rivals"), ("lmdb", "rivals-c")] {
        if !cfg!(feature = "rivals") && !cfg!(feature = "rivals-c") {
            run(name).refused(2, &format!("--features {feature}"));
        }
    }
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
        "--keys books",
        "--scan-length 0",
        "--latency_sampling 2",
        "--trace t --records 10",
    ] {
        bench.run(&format!("bench {wrong}")).refused(2, "--help");
    }
    bench.run("bench --records 10 --prefault 4M --against scc").refused(2, "for all or for none");
    bench.run("bench --records 0").refused(2, "1 or more");
    bench.run("bench --records 10 --option max_subnodes=7 --pool @p").refused(2, "max_subnodes");
    assert!(!bench.path("p").exists());
    bench.file("p", "mine");
    bench.run("bench --records 10 --pool @p").refused(2, "exists already");
    assert_eq!(std::fs::read_to_string(bench.path("p")).unwrap(), "mine");
}
