//! Single entries and scans.

use std::io::Read;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::common::Bench;

const DESIGNS: [&str; 5] = ["sstree", "nbtree", "cclbtree", "lodgetree", "wotree"];

#[test]
fn entries_go_in_and_come_out() {
    let bench = Bench::new();
    bench.run("create @p --tree t --key str --value u64").ok();
    assert_eq!(bench.run("put @p t pine 0").ok(), "added\n");
    assert_eq!(bench.run("put @p t pine 18446744073709551615").ok(), "replaced\n");
    assert_eq!(bench.run("get @p t pine").ok(), "18446744073709551615\n");
    bench.run("put @p t pine 1 --new").refused(1, "has a value already");
    bench.run("put @p t fir 1 --existing").refused(4, "has no value");
    bench.run("put @p t fir 1 --new").ok();
    bench.run("put @p t fir 2 --existing").ok();
    let lines = bench.run("get @p t fir pine --json").ok();
    let values: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(values, [json!({"key": "fir", "value": 2}), json!({"key": "pine", "value": u64::MAX})]);
    let found = bench.run("get @p t fir yew elm");
    assert_eq!(found.stdout, "2\n");
    found.refused(4, "yew and 1 other key");
    assert_eq!(bench.run("del @p t fir --json").json(), json!({"removed": 1, "absent": 0}));
    let none = bench.run("del @p t fir");
    assert!(none.stderr.ends_with("1 key had no value\n"), "{none:?}");
    bench.run("put @p t fir 1").ok();
    bench.run("del @p t fir yew").refused(4, "1 key had no value; the others are removed");
    bench.run("get @p t fir").refused(4, "fir has no value");
}

#[test]
fn entries_expire() {
    let bench = Bench::new();
    for design in DESIGNS {
        let tree = |command: &str| bench.run(&command.replace("@t", design));
        tree(&format!("create @p --tree @t --design {design} --key str --value Expiring<u64>")).ok();
        assert_eq!(tree("put @p @t ada 7 --ttl 1h").ok(), "added\n");
        let ada = tree("get @p @t ada --json").json();
        assert_eq!(ada["value"]["value"], json!(7), "{design}");
        assert!(ada["value"]["expires_ms"].as_u64().unwrap() > 1_700_000_000_000, "{design}");
        assert_eq!(tree(r#"put @p @t eve {"value":8,"expires_ms":1}"#).ok(), "added\n");
        assert_eq!(tree(r#"put @p @t bob {"value":9}"#).ok(), "added\n");
        tree("get @p @t eve").refused(4, "eve has no value");
        assert_eq!(tree("get @p @t bob").ok(), "{\"value\":9}\n");
        assert_eq!(tree("scan @p @t --keys").ok(), "ada\nbob\n");
        assert_eq!(tree("scan @p @t --count").ok(), "2\n");
        assert_eq!(tree("scan @p @t --reverse --limit 1 --keys").ok(), "bob\n");
        // Expired entries keep their space until they are removed.
        assert_eq!(tree("info @p @t --json").json()["trees"][0]["entries"], json!(3), "{design}");
        tree("put @p @t eve 1 --ttl 1h --existing").refused(4, "has no value");
        tree("put @p @t ada 1 --ttl 1h --new").refused(1, "has a value already");
        tree("del @p @t eve").refused(4, "had no value");
        tree(r#"put @p @t eve {"value":8,"expires_ms":1}"#).ok();
        tree("put @p @t eve 5 --ttl 1d --new").ok();
        tree("put @p @t eve 6 --ttl 1d --existing").ok();
        assert_eq!(tree("get @p @t eve --json").json()["value"]["value"], json!(6), "{design}");
        tree(r#"put @p @t eve {"value":8,"expires_ms":1}"#).ok();
        assert_eq!(tree("del @p @t --expired --json").json(), json!({"removed": 1, "absent": 0}), "{design}");
        assert_eq!(tree("info @p @t --json").json()["trees"][0]["entries"], json!(2), "{design}");
        assert_eq!(tree("del @p @t --expired").ok(), "removed 0 entries\n");
        for wrong in ["--ttl 0", "--ttl 1w", "--ttl -1s"] {
            tree(&format!("put @p @t x 1 {wrong}")).refused(2, "");
        }
        for wrong in ["7", "{}", r#"{"value":1,"expires_ms":0}"#, r#"{"value":1,"x":1}"#, r#"{"value":-1}"#] {
            tree(&format!("put @p @t x {wrong}")).refused(2, "");
        }
        tree("del @p @t ada --expired").refused(2, "");
        tree("del @p @t").refused(2, "");
    }
    bench.run("create @p --tree plain --key str --value u64").ok();
    bench
        .run("put @p plain x 1 --ttl 1h")
        .refused(2, "times are for trees with values of kind Expiring<…>, and plain has u64");
    assert_eq!(bench.run("del @p plain --expired").ok(), "removed 0 entries\n");
}

#[test]
fn a_range_is_removed_in_one_step() {
    let bench = Bench::new();
    for design in DESIGNS {
        let tree = |command: &str| bench.run(&command.replace("@t", design));
        tree(&format!("create @p --tree @t --design {design} --key str --value u64")).ok();
        for key in ["a", "ab", "abc", "b", "c", "d", "-x"] {
            tree(&format!("put @p @t -- {key} 1")).ok();
        }
        assert_eq!(tree("del @p @t --prefix ab").ok(), "removed 2 entries\n", "{design}");
        let removed = tree("del @p @t --from b --to d --json").json();
        assert_eq!(removed, json!({"removed": 2, "absent": 0}), "{design}");
        assert_eq!(tree("scan @p @t --keys").ok(), "-x\na\nd\n", "{design}");
        assert_eq!(tree("del @p @t --to -y").ok(), "removed 1 entry\n", "{design}");
        assert_eq!(tree("del @p @t --from e").ok(), "removed 0 entries\n", "{design}");
        for wrong in ["a --from b", "--prefix a --to b", "--expired --from a", "a --prefix b", ""] {
            tree(format!("del @p @t {wrong}").trim_end()).refused(2, "");
        }
        assert_eq!(tree("scan @p @t --keys").ok(), "a\nd\n", "{design}");
    }
    bench.run("create @p --tree numbers --key i64 --value u64").ok();
    bench.run("put @p numbers -- -5 1").ok();
    bench.run("del @p numbers --prefix 1").refused(2, "--prefix is for keys of kind str and bytes");
    bench.run("del @p numbers --from x").refused(2, "--from");
    assert_eq!(bench.run("del @p numbers --from -5").ok(), "removed 1 entry\n");
}

#[test]
fn every_kind_holds_its_whole_domain() {
    let bench = Bench::new();
    let long = "x".repeat(4096);
    let words = ["0", "1", "18446744073709551615"];
    let texts = ["a", " ", "tab\tnewline\n\\", "grüße", long.as_str()];
    let bytes = ["a", "\\x00\\xff\\t\\n\\\\", "\\x00"];
    let kinds: [(&str, &[&str]); 3] = [("u64", &words), ("str", &texts), ("bytes", &bytes)];
    for (key_kind, keys) in kinds {
        for (value_kind, values) in kinds {
            bench
                .run(&format!(
                    "create @p --tree {key_kind}-{value_kind} --key {key_kind} --value {value_kind}"
                ))
                .ok();
            for (key, value) in keys.iter().zip(values.iter().cycle()) {
                bench.run_on(&format!("put @p {key_kind}-{value_kind}"), b"", &[key, value]).ok();
                let found = bench.run_on(&format!("get @p {key_kind}-{value_kind}"), b"", &[key]).ok();
                assert_eq!(found.strip_suffix('\n'), Some(*value));
            }
        }
    }
    bench.run_on("put @p str-str", b"", &["empty", ""]).ok();
    assert_eq!(bench.run("get @p str-str empty").ok(), "\n");
    assert_eq!(bench.run("check @p --json").json()["ok"], true);
}

#[test]
fn scans_have_bounds_and_directions() {
    let bench = Bench::new();
    bench.run("create @p --tree t --value u64").ok();
    bench.run_on("load @p t - --format keys", b"a\nab\nabc\nb\nba\nc\n", &[]).ok();
    let keys = |arguments: &str| bench.run(&format!("scan @p t --keys {arguments}")).ok().replace('\n', " ");
    assert_eq!(keys(""), "a ab abc b ba c ");
    assert_eq!(keys("--reverse"), "c ba b abc ab a ");
    assert_eq!(keys("--from ab --to b"), "ab abc ");
    assert_eq!(keys("--from ab --to ba --reverse --limit 2"), "b abc ");
    assert_eq!(keys("--prefix ab"), "ab abc ");
    assert_eq!(keys("--prefix a --reverse"), "abc ab a ");
    assert_eq!(keys("--limit 0"), "");
    assert_eq!(keys("--from b --to a"), "");
    assert_eq!(keys("--from z"), "");
    assert_eq!(bench.run("scan @p t --limit 1").ok(), "a\t1\n");
    assert_eq!(bench.run("scan @p t --count").ok(), "6\n");
    assert_eq!(bench.run("scan @p t --count --prefix b --json").json(), json!({"entries": 2}));
    assert_eq!(bench.run("scan @p t --limit 1 --json").json(), json!({"key": "a", "value": 1}));
    bench.run("create @p --tree n --key u64").ok();
    bench.run("scan @p n --prefix 1").refused(2, "--from and --to");
    bench.run("scan @p n --from x").refused(2, "--from: \"x\" is not a number");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let bench = Bench::new();
    bench.run("create @p").ok();
    let input: String = (0..200_000).map(|key| format!("{key}\n")).collect();
    bench.run_on("load @p t - --format keys --key u64 --value u64", input.as_bytes(), &[]).ok();
    for command in ["dump @p t", "scan @p t", "dump @p t --json"] {
        let mut child = bench.command(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 4];
        child.stdout.take().unwrap().read_exact(&mut line).unwrap();
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    }
    assert_eq!(bench.run("info @p --json").json()["closed_cleanly"], true);
}
