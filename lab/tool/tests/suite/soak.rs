//! `soak`: correct code survives it, errors are found and minimised, and it ends at Ctrl-C.

use std::process::Stdio;
use std::time::Duration;

use bristlecone::Pool;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Bench, Ran};

#[test]
fn soak_rounds_pass_and_leave_no_files() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("pools")).unwrap();
    let day = bristlecone_matrix::seed();
    println!("seed {}", day * 1000);
    let said = bench.run(&format!("soak --seed {} --rounds 60 --dir @pools --json", day * 1000)).ok();
    // Lines of progress come before the last one.
    let report: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let count = |name: &str| report[name].as_u64().unwrap();
    assert!(count("rounds") == 60 && count("cells") > 40 && count("kills") > 150, "{report}");
    assert!(count("acknowledged") > 10_000 && count("keys_compared") > 10_000, "{report}");
    assert!(count("reopens") > count("kills") / 2 && count("kills_in_opening") > 10, "{report}");
    assert_eq!(std::fs::read_dir(bench.path("pools")).unwrap().count(), 0);
}

/// A run with a deliberate error, and the run of the smallest round that it prints.
fn is_found(flaw: &str) {
    let bench = Bench::new();
    let failed = bench.run(&format!("soak --seed 1 --rounds 100 --jobs 1 --dir @ --flaw {flaw} --json"));
    assert_eq!(failed.code, 1, "{failed:?}");
    let failure: Value = serde_json::from_str(failed.stdout.lines().next().unwrap()).unwrap();
    let text = |name: &str| failure[name].as_str().unwrap_or_else(|| panic!("no {name}: {failure}"));
    println!("{}: {}", text("failure"), text("again"));
    assert!(text("failure").contains("key "), "{failure}");
    // The remaining pool is consistent, except for its contents.
    let pool = text("pool");
    let left = Pool::options().open(pool).unwrap();
    let trees = left.trees().unwrap();
    let checked = trees.iter().flat_map(|tree| left.check_tree(&tree.spec.name).unwrap().1);
    let issues: Vec<_> = left.check().into_iter().chain(checked).collect();
    assert!(issues.is_empty(), "{issues:?}");
    drop(left);
    let model: Value =
        serde_json::from_str(&std::fs::read_to_string(pool.replace(".pool", ".json")).unwrap()).unwrap();
    assert!(model.as_array().unwrap().iter().any(|key| key["acknowledged"]["version"] != 0), "{model}");
    let again = text("again").strip_prefix("bristlecone-lab ").unwrap().to_owned();
    assert!(again.contains("--rounds 1"), "{again}");
    for small in ["--lives 1", "--threads 1"] {
        assert!(again.contains(small), "{again}");
    }
    let oftener = again.replace("--repeat 20", "--repeat 400");
    let repeated: Ran = bench.run(&format!("{oftener} --dir @"));
    assert!(repeated.code == 1 && repeated.stdout.contains("FAILED in life"), "{repeated:?}");
}

#[test]
fn soak_early_acknowledgement_is_found() {
    is_found("early-acknowledgement");
}

#[test]
fn soak_skipped_write_is_found() {
    is_found("skipped-write");
}

#[test]
fn soak_key_lost_by_an_open_is_found() {
    is_found("lost-key");
}

#[test]
fn soak_interrupt_ends_the_run() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("pools")).unwrap();
    let mut command = bench.command("soak --seed 7 --jobs 1 --dir @pools");
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    kill_process(Pid::from_child(&run), Signal::INT).unwrap();
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(said.contains(" in ") && said.contains("no failure; --seed "), "{said}");
    assert!(output.stderr.is_empty(), "{output:?}");
    assert_eq!(std::fs::read_dir(bench.path("pools")).unwrap().count(), 0);
}

#[test]
fn soak_wrong_arguments_are_refused() {
    let bench = Bench::new();
    bench.run("soak --minutes 1 --rounds 1").refused(2, "cannot be used with");
    bench.run("soak --rounds 0").refused(2, "--help");
    bench.run("soak --threads 9 --rounds 1").refused(2, "--help");
    bench.run("soak --only fly --rounds 1").refused(2, "compare-and-swap");
    bench.run("soak --rounds 1 --dir @absent").refused(2, "no such directory");
    let help = bench.run("soak --help").ok();
    assert!(help.contains("What is compared") && !help.contains("--flaw"), "{help}");
}
