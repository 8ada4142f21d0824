//! `reproduce` and `results`: their files, continuation by a second call, and rejected arguments.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Bench, Ran};
use serde_json::Value;

/// Measures the smallest figure of a paper.
const SMALL: &str = "reproduce wotree --figure 10a --scale 1000 --out @out";

fn results(bench: &Bench) -> Vec<Value> {
    let text = std::fs::read_to_string(bench.path("out").join("results.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn reproduce_leaves_results_and_a_page_that_a_second_call_keeps() {
    let bench = Bench::new();
    let said = bench.run(SMALL).ok();
    assert!(said.contains("WO-tree against native B+-tree: flushes saved"), "{said}");
    assert!(said.contains("paper 84.7"), "{said}");
    let first = results(&bench);
    let fields = [
        "paper",
        "figure",
        "series",
        "design",
        "x",
        "metric",
        "kind",
        "unit",
        "value",
        "paper_value",
        "deviation",
        "remark",
        "rounds",
        "min",
        "max",
        "arguments",
        "version",
        "commit",
        "compiler",
        "build",
        "machine",
        "date",
    ];
    for result in &first {
        assert!(fields.iter().all(|field| result.get(field).is_some()), "{result}");
        assert_eq!(
            (&result["paper"], &result["figure"], &result["kind"]),
            (&"wotree".into(), &"10a".into(), &"counted".into())
        );
        assert!(result["value"].as_f64().unwrap() > 0.0, "{result}");
    }
    let page = std::fs::read_to_string(bench.path("out").join("report.html")).unwrap();
    assert!(
        page.contains("<svg class=\"plot\"") && page.contains("class=\"paper ring"),
        "no plot, or no mark"
    );
    let outside = ["http:", "https:", "src=", "@import"];
    assert!(outside.iter().all(|word| !page.contains(word)), "the page needs something else");
    let again = bench.run(SMALL).ok();
    assert!(again.contains("1 of 1 figures are there already"), "{again}");
    assert_eq!(results(&bench), first);
    // At another scale the numbers are replaced.
    bench.run("reproduce wotree --figure 10a --scale 2000 --out @out").ok();
    let other = results(&bench);
    assert_eq!(other.len(), first.len());
    assert!(other.iter().zip(&first).all(|(new, old)| new["arguments"] != old["arguments"]));
    // The arguments of a number measure it again.
    let line = other[0]["arguments"][0].as_str().unwrap();
    let report = bench.run(&format!("{line} --json")).json();
    assert_eq!(report["per_operation"]["insert"]["flushes"], other[0]["value"]);
    let tables = bench.run("results @out/results.jsonl").ok();
    assert!(tables.contains("### 10a: ") && tables.contains("| 84.7 |"), "{tables}");
}

#[test]
fn reproduce_goes_on_where_a_call_was_cut_off() {
    let bench = Bench::new();
    bench.run(SMALL).ok();
    let path = bench.path("out").join("results.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let kept = text.lines().count() / 2;
    let cut: String = text.lines().take(kept).map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, format!("{cut}{{\"paper\":\"wo")).unwrap();
    let said = bench.run(SMALL).ok();
    assert!(!said.contains("already"), "{said}");
    let dates = |results: &[Value]| results.iter().map(|result| result["value"].clone()).collect::<Vec<_>>();
    let before: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(dates(&results(&bench)), dates(&before));
}

#[test]
fn reproduce_of_what_is_not_there_lists_what_is() {
    let bench = Bench::new();
    let refused = |arguments: &str, code: i32| {
        let ran = bench.run(arguments);
        assert_eq!((ran.code, ran.stderr.lines().count()), (code, 1), "{arguments}: {}", ran.stderr);
        ran.stderr
    };
    let line = refused("reproduce lbtree --out @out", 2);
    assert!(line.contains("sstree, nbtree, cclbtree, lodgetree, wotree or all"), "{line}");
    let line = refused("reproduce nbtree --figure 99 --out @out", 2);
    assert!(line.contains("no figure \"99\" of nbtree: ") && line.contains("9a"), "{line}");
    assert!(refused("reproduce all --scale huge --out @out", 2).contains("quick, full"));
    let line = refused("reproduce cclbtree --figure 18 --scale full --out @out", 6);
    assert!(line.contains("of memory") && line.contains("would fit"), "{line}");
    assert!(!bench.path("out").exists(), "nothing was begun");
    bench.file("taken", "x");
    assert!(refused("reproduce wotree --figure 10a --scale 1000 --out @taken/out", 1).contains("taken/out"));
    std::fs::create_dir(bench.path("out")).unwrap();
    bench.file("out/results.jsonl", "{}\n");
    let line = refused(SMALL, 7);
    assert!(line.contains("results.jsonl is damaged at line 1"), "{line}");
    assert!(refused("results @out/results.jsonl", 7).contains("damaged at line 1"));
    assert!(refused("results @nothing", 4).contains("nothing"));
    let listed = bench.run("reproduce all --list").ok();
    assert!(
        ["sstree     table-II", "wotree     10a", "lodgetree  15"].iter().all(|row| listed.contains(row)),
        "{listed}"
    );
}

/// The smallest run of a server, and the figure of such runs.
const REDIS: &str = "redis --design hash --records 1000 --operations 1000";
const OF_REDIS: &str = "reproduce nbtree --figure 6.6 --scale 1000 --rounds 1 --out @out";

#[test]
fn redis_without_a_server_or_a_module_says_what_to_do_and_the_figure_says_it_too() {
    let bench = Bench::new();
    let without = |arguments: &str, name: &str, value: &str| {
        let mut command = bench.command(arguments);
        command.env_remove("BRISTLECONE_REDIS_SERVER").env(name, value);
        Ran::of(command, b"")
    };
    without(REDIS, "PATH", "/none").refused(4, "BRISTLECONE_REDIS_SERVER");
    let module = "cargo build --release --lib --examples";
    let mut command = bench.command(REDIS);
    command.env("BRISTLECONE_REDIS_SERVER", "/none/server").env("BRISTLECONE_REDIS_MODULES", "/none");
    Ran::of(command, b"").refused(4, module);
    bench.run("redis --design fptree").refused(2, "--design fptree");
    let said = without(OF_REDIS, "PATH", "/none").ok();
    assert!(said.contains("not measured: neither redis-server nor valkey-server is on PATH"), "{said}");
    let results = results(&bench);
    assert!(results.len() > 10 && results.iter().all(|result| result["value"].is_null()), "{results:?}");
    // Missing measurements are tried again.
    let again = without(OF_REDIS, "PATH", "/none").ok();
    assert!(!again.contains("already"), "{again}");
}

#[test]
fn redis_of_a_server_that_fails_reports_its_last_words_and_leaves_nothing() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("built/examples")).unwrap();
    bench.file("built/libbristlecone_redis.so", "");
    let program = |name: &str, text: &str| {
        let path = bench.file(name, format!("#!/bin/sh\n{text}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    program("built/examples/ycsb", "echo it broke >&2; exit 1");
    let server = program("server", "echo the pool is in use; exit 1");
    let run = |server: &Path| {
        let mut command = bench.command(REDIS);
        command.env("BRISTLECONE_REDIS_SERVER", server).env("BRISTLECONE_REDIS_MODULES", bench.path("built"));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let folder = Path::new("/dev/shm").join(format!("bristlecone-lab-redis-{}", child.id()));
        let ran = Ran::ended(child);
        assert!(!folder.exists(), "{} is left", folder.display());
        ran
    };
    run(&server).refused(1, "the server does not start: the pool is in use");
    run(&bench.path("none")).refused(4, "none");
    // If a real one exists, it runs, and the driver's figures count.
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let real = std::env::split_paths(&paths).map(|folder| folder.join("redis-server"));
    let Some(real) = real.into_iter().find(|path| path.is_file()) else {
        eprintln!("skipped in part: there is no redis-server");
        return;
    };
    run(&real).refused(1, "the driver failed: it broke");
    program("built/examples/ycsb", "echo 50000");
    let said = run(&real).ok();
    assert!(said.contains("hash, YCSB A, 16 in a pipeline: 50.0 K operations a second"), "{said}");
}
