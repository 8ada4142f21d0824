//! `crash`: its reports, and rejected arguments.

use std::process::Stdio;
use std::time::{Duration, Instant};

use bristlecone_matrix::{TestLevel, takes};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::Bench;

#[test]
fn crash_json_has_the_counts_of_an_exploration() {
    let report = Bench::new().run("crash --design pool --scenario chunks --json").json();
    let names: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    for name in [
        "scenarios",
        "crash_points",
        "images",
        "nested_images",
        "truncated_points",
        "failures",
        "mutations",
        "schedules",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    // In each mode: entries in the header alone, and in pages of the directory, too.
    assert_eq!(report["scenarios"], 6);
    assert!(report["images"].as_u64().unwrap() > 100 && report["nested_images"].as_u64().unwrap() > 100);
    assert_eq!(report["failures"].as_array().unwrap().len(), 0);
    let depths = report["by_depth"].as_array().unwrap();
    let sum = |count: &str| depths.iter().map(|depth| depth[count].as_u64().unwrap()).sum::<u64>();
    assert_eq!((depths.len(), report["truncated_points"].as_u64().unwrap()), (2, sum("sampled")));
    assert_eq!(depths[0]["crash_points"], report["crash_points"]);
    assert!(sum("crash_points") > report["crash_points"].as_u64().unwrap());
    let modes: Vec<_> =
        report["by_scenario"].as_array().unwrap().iter().map(|row| row["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["prefix", "subset", "eadr", "prefix", "subset", "eadr"]);
}

#[test]
fn crash_counts_depend_on_the_seed_and_not_on_the_workers() {
    let bench = Bench::new();
    let counts = |arguments: &str| {
        let report = bench.run(&format!("crash --design pool --scenario drop --json {arguments}")).json();
        (report["images"].clone(), report["nested_images"].clone(), report["opened"].clone())
    };
    // Three rounds, so that no two workers share one.
    let alone = counts("--threads 1 --budget 64 --seed 5");
    assert_eq!(counts("--threads 3 --budget 64 --seed 5"), alone);
    assert_ne!(counts("--threads 3 --budget 64 --seed 6"), alone);
}

#[test]
fn crash_without_json_prints_scenarios_and_mutations() {
    let said = Bench::new().run("crash --design pool --mode subset --budget 64 --mutations").ok();
    assert!(said.contains("pool/creation/subset"), "{said}");
    // Survival of every crash is reported only if every one was decided.
    let all = said.lines().find(|line| line.starts_with("all ")).unwrap();
    let verdict = said.lines().find(|line| line.contains("images opened in")).unwrap();
    assert_eq!(verdict.ends_with("every crash survived"), all.ends_with(" 0"), "{said}");
    let decided = "crash --design pool --scenario two-threads --mode prefix --depth 1";
    assert!(Bench::new().run(decided).ok().contains("every crash survived"));
    let killed = said.lines().find(|line| line.contains("mutations killed")).unwrap();
    assert!(killed.starts_with("56 of 56 "), "{killed}");
    let row = said.lines().find(|line| line.starts_with("remove fence \"pool chunk_alloc.1\"")).unwrap();
    assert!(row.contains("pool/"), "{row}");
}

#[test]
fn crash_mutation_without_notice_fails_the_run() {
    // One scenario alone closes no pool after a drop.
    let ran = Bench::new().run("crash --design pool --mode prefix --scenario two-threads --mutations");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stdout.contains("SURVIVED"), "{ran:?}");
}

#[test]
fn crash_schedules_are_counted() {
    let crash = "crash --design sstree --scenario creation --mode prefix --budget 1 --depth 1 --schedules";
    let report = Bench::new().run(&format!("{crash} 40 --json")).json();
    let shapes = report["scenarios"].as_u64().unwrap();
    assert_eq!(report["schedules"].as_u64().unwrap(), 40 * shapes);
    let said = Bench::new().run(&format!("{crash} 40")).ok();
    assert!(said.contains("sstree-words-3/schedules") && said.contains("40 schedules"), "{said}");
    let survived = "crash --replay v3/sstree-words-3/schedules/subset/5.1/33";
    let said = Bench::new().run(survived).ok();
    assert!(said.contains("survived"), "{said}");
}

#[test]
fn crash_without_memory_samples_points_and_reports_it() {
    let bench = Bench::new();
    let said = bench.run("crash --design pool --scenario creation --mode subset --memory 100k").ok();
    assert!(said.contains("sampled for want of memory"), "{said}");
    let said = bench.run("crash --design pool --scenario creation --mode prefix").ok();
    assert!(!said.contains("memory"), "{said}");
}

/// Runs the tool and sends it a signal, later each time until its report names the expected point.
fn interrupted(arguments: &str, signal: Signal, there: impl Fn(&str) -> bool) -> String {
    let bench = Bench::new();
    for delay in (0..).map(|doubled| Duration::from_millis(50) * 2_u32.pow(doubled)) {
        let mut command = bench.command(arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(delay);
        kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
        let asked = Instant::now();
        let ended = child.wait_with_output().unwrap();
        assert!(asked.elapsed() < Duration::from_secs(60), "it goes on");
        let said = String::from_utf8(ended.stdout).unwrap();
        match ended.status.code() {
            // It did not listen yet, or was not there yet.
            None => continue,
            Some(130) if !there(&said) => continue,
            code => assert_eq!(code, Some(130), "interrupted too late: {said}"),
        }
        return said;
    }
    unreachable!("delays do not end")
}

#[test]
fn crash_interrupted_does_not_report_that_every_crash_survived() {
    let rounds = "crash --design pool --depth 3 --budget 1M --threads 2";
    let schedules =
        "crash --design native --scenario creation --mode prefix --depth 1 --budget 1 --schedules 100M";
    let mutations =
        "crash --design sstree --scenario delete --mode subset --budget 1 --depth 1 --threads 1 --mutations";
    for (arguments, said_at_the_end) in [
        (rounds, "--seed 0 --from pool/"),
        (schedules, "interrupted: schedules are not finished"),
        (mutations, "interrupted: mutations are not finished"),
    ] {
        for signal in [Signal::INT, Signal::TERM] {
            let said = interrupted(arguments, signal, |said| said.contains(said_at_the_end));
            assert!(!said.contains("survived") && said.contains(": no failure so far\n"), "{said}");
            assert!(said.lines().last().unwrap().starts_with("interrupted: "), "{said}");
        }
    }
}

fn rounds_of(report: &Value) -> Vec<Value> {
    report["by_scenario"].as_array().unwrap().clone()
}

fn name_of(round: &Value) -> String {
    let part = |name: &str| round[name].as_str().unwrap();
    format!("{}/{}/{}", part("subject"), part("scenario"), part("mode"))
}

#[test]
fn crash_from_goes_on_where_a_run_was_interrupted() {
    let crash = "crash --design pool --depth 3 --budget 1M --threads 2 --json";
    let said = interrupted(crash, Signal::INT, |said| !said.contains("\"next\":null"));
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["interrupted"], true);
    let next = report["next"].as_str().unwrap();
    let bench = Bench::new();
    let crash = "crash --design pool --depth 1 --budget 4 --json";
    let whole = rounds_of(&bench.run(crash).json());
    let first = whole.iter().position(|round| name_of(round) == next).unwrap();
    assert!(rounds_of(&report).len() >= first, "rounds before {next} are missing: {said}");
    let rest = bench.run(&format!("{crash} --from {next}")).json();
    assert_eq!(rest["interrupted"], false);
    assert_eq!(rounds_of(&rest), whole[first..]);
}

#[test]
fn crash_from_runs_the_rest_of_the_whole() {
    let bench = Bench::new();
    let crash = "crash --design pool --budget 64 --seed 5 --threads 1 --json";
    let whole = rounds_of(&bench.run(crash).json());
    for first in [1, whole.len() / 2, whole.len() - 1] {
        let rest = bench.run(&format!("{crash} --from {}", name_of(&whole[first]))).json();
        assert_eq!(rounds_of(&rest), whole[first..], "from {}", name_of(&whole[first]));
    }
}

#[test]
fn crash_wrong_arguments_are_refused_in_one_line() {
    let bench = Bench::new();
    bench.run("crash --budget 0").refused(2, "--budget must be 1 or more");
    bench.run("crash --design pool --scenario fly").refused(2, "there is chunks, creation,");
    bench.run("crash --mode never").refused(2, "there is prefix, subset, eadr");
    bench.run("crash --design oak").refused(2, "unknown design");
    bench.run("crash --replay v0/pool/drop/prefix/0.8/1").refused(2, "of version v0");
    bench.run("crash --replay nonsense").refused(2, "is not a case");
    bench.run("crash --replay v3/oak/drop/prefix/0.8/1").refused(2, "unknown subject");
    bench.run("crash --replay v3/pool/fly/prefix/0.8/1").refused(2, "unknown scenario");
    bench.run("crash --replay v3/pool/drop/prefix/0.8/1").refused(2, "no crash point at event 1");
    bench.run("crash --replay v3/pool/schedules/prefix/0.1/1").refused(2, "no threads share pool");
    bench.run("crash --replay v3/sstree-words-3/schedules/prefix/0.1/1/2").refused(2, "has one number");
    bench.run("crash --from pool/drop").refused(2, "no round");
}

/// The tool and the tests try the same mutations: steps that only threads or full pools need are
/// detected, too.
#[test]
fn crash_mutations_of_a_whole_design_are_all_noticed() {
    if !takes(TestLevel::Ci, "mutations of a whole design, by the tool") {
        return;
    }
    let crash = "crash --design nbtree --mode subset --budget 16 --depth 1 --mutations --json";
    let report = Bench::new().run(crash).json();
    let mutations = &report["mutations"];
    assert_eq!(mutations["survivors"].as_array().unwrap().len(), 0, "{mutations}");
    let table = mutations["table"].as_array().unwrap();
    assert!(
        table.iter().all(|row| row["killed_by"].is_string() != row["explained"].is_string()),
        "{mutations}"
    );
    let by_schedules =
        table.iter().filter(|row| row["killed_by"].as_str().is_some_and(|by| by.starts_with("schedules/")));
    assert!(by_schedules.count() > 2 && mutations["killed"].as_u64().unwrap() >= 50, "{mutations}");
}

#[test]
fn crash_forever_runs_the_turns_that_its_seeds_draw() {
    let bench = Bench::new();
    let forever = |rest: &str| bench.run(&format!("crash --forever --threads 1 --json {rest}")).json();
    let counts = |report: &Value| {
        ["turns", "images", "opened", "lives", "schedules", "failures"]
            .map(|name| report[name].as_u64().unwrap())
    };
    let both = counts(&forever("--seed 6 --turns 2"));
    let [first, second] = [counts(&forever("--seed 6 --turns 1")), counts(&forever("--seed 7 --turns 1"))];
    assert_eq!(both, std::array::from_fn(|at| first[at] + second[at]));
    assert!(both[0] == 2 && both[1] > 0 && both[4] > 0 && both[5] == 0, "{both:?}");
    bench.run("crash --forever --design nbtree").refused(2, "cannot be used with");
    bench.run("crash --turns 1").refused(2, "--forever");
}
