//! Dumps and loads, including interrupted ones.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::Bench;
use crate::signals::interrupt;

#[test]
fn what_is_dumped_can_be_loaded() {
    let bench = Bench::new();
    bench.run("create @p --tree t").ok();
    bench.run("create @p --tree b --key bytes --value bytes").ok();
    for (key, value) in
        [("plain", "1"), ("tab\there", "new\nline"), ("quote\"", "a,b"), ("back\\slash", "\r"), ("ü", "")]
    {
        bench.run_on("put @p t", b"", &[key, value]).ok();
    }
    bench.run_on("put @p b", b"", &["\\x00\\xfe,", "\\xff\"\\n"]).ok();
    for format in ["tsv", "csv"] {
        for tree in ["t", "b"] {
            let kind = if tree == "t" { "str" } else { "bytes" };
            let file = format!("{tree}.{format}");
            let text = bench.run(&format!("dump @p {tree} --format {format} --no-header")).ok();
            bench.run(&format!("dump @p {tree} --format {format} --no-header --output @{file}")).ok();
            assert_eq!(std::fs::read_to_string(bench.path(&file)).unwrap(), text);
            bench.run(&format!("load @p {file} @{file} --key {kind} --value {kind}")).ok();
            assert_eq!(bench.run(&format!("dump @p {file} --format {format} --no-header")).ok(), text);
        }
    }
    assert_eq!(bench.run("dump @p t --json --no-header").ok().lines().count(), 5);
    bench.run("dump @p t --output @t.tsv").refused(1, "exists");
}

#[test]
fn a_load_creates_its_tree_and_can_be_repeated() {
    let bench = Bench::new();
    bench.run("create @p").ok();
    bench.file("in.csv", "name,born,height\n\"Prometheus, the tree\",1,244\nHyperion,2,380\n");
    let load = "load @p t @in.csv --header --columns 1,3 --key str --value u64 --json";
    assert_eq!(
        bench.run(load).json(),
        json!({"lines": 2, "added": 2, "replaced": 0, "unchanged": 0, "bad": 0})
    );
    assert_eq!(bench.run_on("get @p t", b"", &["Prometheus, the tree"]).ok(), "244\n");
    assert_eq!(bench.run(load).json()["unchanged"], 2);
    let replaced = bench.run_on("load @p t - --json", b"Hyperion\t381\n", &[]).json();
    assert_eq!(replaced["replaced"], 1);
    bench.run("load @p t @in.csv --value str").refused(2, "values of kind u64, not str");
    bench.run("load @p t @in.csv --option inner_bytes=1024").refused(2, "option inner_bytes 512, not 1024");
    bench.run("load @p new @absent").refused(4, "absent");
    // A mistyped file name creates no tree.
    bench.run("info @p new").refused(4, "no tree named");
}

#[test]
fn a_bad_line_stops_a_load_or_is_skipped() {
    let bench = Bench::new();
    bench.run("create @p --tree t --key u64 --value u64").ok();
    let input = b"1\t10\n2\t20\n3\tthirty\n\n5\t50\t500\n6\t60\n";
    let load = bench.run_on("load @p t -", input, &[]);
    load.refused(7, "line 3: value: \"thirty\" is not a number of 0 to 2^64 - 1; 2 lines before it are in");
    assert_eq!(
        bench.run("scan @p t").ok(),
        "1\t10\n2\t20\n",
        "what stands before the bad line, and nothing else"
    );
    let load = bench.run_on("load @p t - --skip-bad --json", input, &[]);
    assert_eq!(load.code, 0);
    let said = bench.run_on("load @p t - --skip-bad", b"x\t1\n", &[]).stdout;
    assert_eq!(said, "0 entries: 0 added, 1 bad line skipped\n");
    let lines: Vec<&str> = load.stderr.lines().collect();
    assert!(
        lines.len() == 3 && lines[1].contains("line 4: ") && lines[2].contains("line 5: it has 3 columns")
    );
    let tally: Value = serde_json::from_str(&load.stdout).unwrap();
    assert_eq!(tally, json!({"lines": 6, "added": 1, "replaced": 0, "unchanged": 2, "bad": 3}));
    assert_eq!(bench.run("scan @p t --count").ok(), "3\n");
}

#[test]
fn keys_that_no_tree_can_hold_are_bad_lines() {
    let bench = Bench::new();
    bench.run("create @p --tree t").ok();
    let long = "k".repeat(bristlecone::KEY_BYTES_MAX + 1);
    let endless = "x".repeat(3 << 20);
    let input = format!("a\t1\n{long}\t2\n{endless}\t3\nb\t4\n");
    bench.run_on("load @p t -", input.as_bytes(), &[]).refused(7, "line 2: ");
    let load = bench.run_on("load @p t - --skip-bad", input.as_bytes(), &[]);
    assert!(load.code == 0 && load.stderr.contains("line 3: it is longer than"), "{}", load.stderr);
    assert_eq!(bench.run("scan @p t").ok(), "a\t1\nb\t4\n");
    bench.run_on("load @p t -", b"bad\xff\t1\n", &[]).refused(7, "not UTF-8");
    let garbage = [b"\x1b\xff".repeat(5000), b"\t1\n".to_vec()].concat();
    let load = bench.run_on("load @p n - --key u64", &garbage, &[]);
    assert!(load.stderr.len() < 500, "what is wrong is shown in part: {load:?}");
    load.refused(7, "\\xff\"… (10000 bytes) is not a number");
    bench
        .run_on("load @p t - --format csv", b"a,\"1\nb,2\n", &[])
        .refused(7, "line 1: an unterminated quoted field");
}

#[test]
fn a_full_pool_keeps_what_it_has_and_takes_more_after_a_removal() {
    let bench = Bench::new();
    bench.run("create @p --size 8M --tree t --key u64 --value bytes").ok();
    let value = "v".repeat(1000);
    let input: String = (0..20_000).map(|key| format!("{key}\t{value}\n")).collect();
    bench.run_on("load @p t -", input.as_bytes(), &[]).refused(6, "the pool is full");
    let entries: u64 = bench.run("scan @p t --count").ok().trim().parse().unwrap();
    assert!(entries > 1000);
    assert_eq!(bench.run("check @p --json").json()["entries"], entries);
    assert_eq!(bench.run(&format!("get @p t {}", entries - 1)).ok().trim_end(), value);
    let keys: Vec<String> = (0..entries).map(|key| key.to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    bench.run_on("del @p t", b"", &keys).ok();
    bench.run_on("put @p t 1", b"", &[&value]).ok();
}

#[test]
fn ctrl_c_stops_a_load_that_can_go_on_later() {
    use std::io::Write;
    let bench = Bench::new();
    bench.run("create @p --tree t").ok();
    let mut child =
        bench.command("load @p t -").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"a\t1\nb\t2\nc").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    let asked = Instant::now();
    let ended = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10), "it does not wait for input that does not come");
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("2 lines are in"), "{ended:?}");
    assert_eq!(bench.run("info @p --json").json()["closed_cleanly"], true);
    assert_eq!(bench.run("scan @p t").ok(), "a\t1\nb\t2\n", "half a line is no line");
}
