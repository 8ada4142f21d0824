//! The presets of `bench` with atomic changes of several keys.

use crate::common::Bench;
use serde_json::Value;

/// Returns a store's report of a run of the bank.
#[track_caller]
fn assert_bank(store: &Value, kills: u64) {
    assert!(store["transfers_per_second"].as_f64().unwrap() > 0.0, "{store}");
    assert_eq!((&store["total_is_constant"], &store["sums_wrong"]), (&true.into(), &0.into()), "{store}");
    // At least one at the end of each round, and one after each kill.
    assert!(store["sums_checked"].as_u64().unwrap() > kills, "{store}");
    assert_eq!(store["kills"], kills, "{store}");
    assert!(store["transfers_before_kills"].as_u64().unwrap() > 0, "{store}");
    assert!(
        store["conflicts"].is_u64() && store["reopen_and_sum_seconds"].as_f64().unwrap() > 0.0,
        "{store}"
    );
    assert!(store["durability"].as_str().unwrap().contains("survives"), "{store}");
}

#[test]
fn bank_keeps_its_total_beside_sums_and_over_kills() {
    let bench = Bench::new();
    for design in ["sstree", "wotree"] {
        let report = bench
            .run(&format!(
                "bench --preset bank --records 100 --operations 3k --threads 2 --kills 2 --domain adr --pool @p --design {design} --json"
            ))
            .json();
        assert_bank(&report, 2);
        assert_eq!((&report["preset"], &report["design"]), (&"bank".into(), &design.into()));
        assert_eq!((&report["records"], &report["operations"]), (&100.into(), &3000.into()));
        assert!(report["against"].is_null());
    }
    assert!(std::fs::read_dir(bench.path("p").parent().unwrap()).unwrap().all(|entry| {
        let name = entry.unwrap().file_name();
        !name.to_string_lossy().starts_with('p')
    }));
}

#[test]
fn bank_runs_designs_beside_each_other_in_turns() {
    let bench = Bench::new();
    let arguments =
        "bench --preset bank --records 50 --operations 500 --threads 2 --rounds 2 --pool @p --against nbtree";
    let report = bench.run(&format!("{arguments} --json")).json();
    assert_bank(&report, 2);
    let against = report["against"].as_array().unwrap();
    assert_eq!((against.len(), &against[0]["name"]), (1, &"nbtree".into()));
    assert_bank(&against[0], 2);
    assert_eq!(report["order"], serde_json::json!([["sstree", "nbtree"], ["nbtree", "sstree"]]));
    let said = bench.run(arguments).ok();
    for part in ["sstree: ", "nbtree: ", "transfers a second", "all of them right", "survives"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn batch_writes_as_many_words_in_both_ways() {
    let bench = Bench::new();
    let report = bench
        .run("bench --preset batch --records 2k --operations 5003 --threads 2 --rounds 3 --domain adr --pool @p --against cclbtree --json")
        .json();
    assert_eq!(
        (&report["preset"], &report["group"], &report["lost"]),
        (&"batch".into(), &16.into(), &0.into())
    );
    for store in [&report, &report["against"][0]] {
        for name in ["inserts_per_second", "batched_per_second", "speedup"] {
            assert!(store[name].as_f64().unwrap() > 0.0, "{name} of {store}");
        }
        assert_eq!(store["batched_per_second_rounds"].as_array().unwrap().len(), 3);
    }
    let said =
        bench.run("bench --preset batch --records 100 --operations 1k --group 7 --threads 1 --pool @p").ok();
    assert!(said.contains("words a second one by one"), "{said}");
}

#[test]
fn snapshot_shows_what_was_and_says_what_it_costs() {
    let bench = Bench::new();
    let sizes = "--records 2k --operations 1k --threads 1 --rounds 2 --pool @p";
    let report =
        bench.run(&format!("bench --preset snapshot {sizes} --domain adr --against nbtree --json")).json();
    for design in [&report, &report["against"][0]] {
        assert_eq!(design["lost"], 0, "{design}");
        let names =
            ["update", "get", "snapshot_get", "scan", "snapshot_scan"].map(|name| format!("{name}_ns"));
        let ratios = ["update_after_batch", "update_beside_snapshot", "snapshot_get", "snapshot_scan"];
        for name in names.iter().map(String::as_str).chain(ratios) {
            assert!(design[name].as_f64().unwrap() > 0.0, "{name} of {design}");
        }
    }
    let said = bench.run(&format!("bench --preset snapshot {sizes}")).ok();
    assert!(said.contains("times as long on a snapshot"), "{said}");
    bench.run("bench --preset snapshot --threads 2 --pool @p").refused(2, "is about one thread");
    bench.run("bench --preset snapshot --design lbtree --pool @p").refused(2, "lbtree has no part");
}

#[test]
fn bank_and_batch_refuse_what_they_have_no_use_for() {
    let bench = Bench::new();
    bench.run("bench --preset bank --value bytes:8 --pool @p").refused(2, "words for keys and values");
    bench.run("bench --preset bank --csv --pool @p").refused(2, "--csv is not for the preset bank");
    bench.run("bench --preset batch --perf --pool @p").refused(2, "--perf is not for the preset batch");
    bench.run("bench --preset bank --records 1 --pool @p").refused(2, "two accounts");
    bench.run("bench --preset bank --against btreemap --pool @p").refused(2, "btreemap has no part");
    bench.run("bench --preset bank --design lbtree --pool @p").refused(2, "lbtree has no part");
    bench.run("count --preset batch").refused(2, "are for bench");
}

#[cfg(feature = "rivals")]
#[test]
fn bank_and_batch_take_stores_that_change_several_keys_in_one_step() {
    let bench = Bench::new();
    let sizes = "--records 50 --operations 100 --threads 2 --domain adr --pool @p --json";
    let lmdb = if cfg!(feature = "lmdb") { ",lmdb" } else { "" };
    let rocksdb = if cfg!(feature = "rocksdb") { ",rocksdb" } else { "" };
    let against = format!("--against redb,fjall{lmdb}{rocksdb}");
    let report = bench.run(&format!("bench --preset bank {sizes} {against}")).json();
    assert_bank(&report, 1);
    report["against"].as_array().unwrap().iter().for_each(|store| assert_bank(store, 1));
    let report = bench.run(&format!("bench --preset batch {sizes} {against}")).json();
    assert!(report["against"].as_array().unwrap().iter().all(|store| store["lost"] == 0), "{report}");
    bench.run("bench --preset bank --against masstree --pool @p").refused(2, "masstree has no part");
}
