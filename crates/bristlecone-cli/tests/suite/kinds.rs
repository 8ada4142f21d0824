//! Trees of every kind: entries are returned unchanged and in order, also through dumps.

use bristlecone::Pool;
use serde_json::{Value, json};

use crate::common::Bench;

/// Returns each kind with three of its values, in ascending order, and their JSON.
fn kinds() -> Vec<(&'static str, [&'static str; 3], Value)> {
    vec![
        ("bool", ["false", "true", "true"], json!([false, true, true])),
        ("char", ["a", "ü", "\u{10ffff}"], json!(["a", "ü", "\u{10ffff}"])),
        ("u8", ["0", "7", "255"], json!([0, 7, 255])),
        ("u16", ["0", "7", "65535"], json!([0, 7, 65535])),
        ("u32", ["0", "7", "4294967295"], json!([0, 7, 4294967295u32])),
        ("u64", ["0", "9007199254740993", "18446744073709551615"], json!([0, 9007199254740993u64, u64::MAX])),
        (
            "u128",
            ["0", "7", "340282366920938463463374607431768211455"],
            json!(["0", "7", u128::MAX.to_string()]),
        ),
        ("i8", ["-128", "0", "127"], json!([-128, 0, 127])),
        ("i16", ["-32768", "0", "32767"], json!([-32768, 0, 32767])),
        ("i32", ["-2147483648", "0", "7"], json!([-2147483648, 0, 7])),
        ("i64", ["-9223372036854775808", "-1", "7"], json!([i64::MIN, -1, 7])),
        (
            "i128",
            ["-170141183460469231731687303715884105728", "-1", "7"],
            json!([i128::MIN.to_string(), "-1", "7"]),
        ),
        ("f32", ["-inf", "0.1", "1e30"], json!(["-inf", 0.1, 1e30])),
        ("f64", ["-2e-7", "0.1", "NaN"], json!([-2e-7, 0.1, "NaN"])),
        ("str", ["", "a b", "tab\there"], json!(["", "a b", "tab\there"])),
        ("bytes", ["\\x00", "a\\xff", "b"], json!(["\\x00", "a\\xff", "b"])),
        ("[u8; 2]", ["\\x00\\x01", "ab", "\\xff\\xff"], json!(["\\x00\\x01", "ab", "\\xff\\xff"])),
        ("()", ["()", "()", "()"], json!([null, null, null])),
        ("Option<i64>", ["null", "-1", "7"], json!([null, -1, 7])),
        ("Option<str>", ["null", "\"\"", "\"null\""], json!([null, "", "null"])),
        ("Option<Option<u8>>", ["null", "[null]", "[7]"], json!([null, [null], [7]])),
        ("(str, u64)", ["[\"a\",7]", "[\"a\",8]", "[\"b\",0]"], json!([["a", 7], ["a", 8], ["b", 0]])),
        ("(u8,)", ["[0]", "[1]", "[255]"], json!([[0], [1], [255]])),
        (
            "(Option<f32>, (bool, bytes))",
            ["[null,[true,\"\\\\x00\"]]", "[-1.5,[false,\"x\"]]", "[0.1,[false,\"\"]]"],
            json!([[null, [true, "\\x00"]], [-1.5, [false, "x"]], [0.1, [false, ""]]]),
        ),
    ]
}

#[test]
fn every_kind_is_put_got_scanned_and_removed() {
    let bench = Bench::new();
    bench.run("create @p --size 1G").ok();
    for (number, (kind, values, json)) in kinds().into_iter().enumerate() {
        let design = ["sstree", "nbtree", "cclbtree", "lodgetree", "wotree"][number % 5];
        for (role, other) in [("key", "value"), ("value", "key")] {
            let tree = format!("{role}-{number}");
            let create = format!("create @p --tree {tree} --design {design} --{other} u64 --{role}");
            bench.run_on(&create, b"", &[kind]).ok();
            let entry = |at: usize| {
                let number = at.to_string();
                if role == "key" { [values[at].to_owned(), number] } else { [number, values[at].to_owned()] }
            };
            let line = |at| entry(at).map(|field| field.replace('\t', "\\t")).join("\t") + "\n";
            bench.run_on(&format!("load @p {tree} -"), (line(0) + &line(2)).as_bytes(), &[]).ok();
            let [key, value] = &entry(1);
            // An argument that begins with a dash follows `--`.
            bench.run_on(&format!("put @p {tree} --"), b"", &[key, value]).ok();
            let got = bench.run_on(&format!("get @p {tree} --"), b"", &[key]).ok();
            assert_eq!(got.strip_suffix('\n'), Some(value.as_str()), "{kind}");
            let scanned = bench.run(&format!("scan @p {tree} --json")).ok();
            let scanned: Vec<Value> =
                scanned.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let found: Vec<&Value> = scanned.iter().map(|entry| &entry[role]).collect();
            let mut expected: Vec<&Value> = json.as_array().unwrap().iter().collect();
            if role == "key" {
                expected.dedup();
            }
            assert_eq!(found, expected, "{kind} as {role}");
        }
        let key = values[1];
        let bounded = bench.run_on(&format!("scan @p key-{number} --count --from"), b"", &[key]).ok();
        let below = values.iter().take_while(|value| **value != key).count();
        let distinct = bench.run(&format!("scan @p key-{number} --count")).ok();
        let count = |text: &str| text.trim().parse::<usize>().unwrap();
        assert_eq!(count(&bounded), count(&distinct) - below, "{kind}");
        bench.run_on(&format!("del @p key-{number} --"), b"", &[key]).ok();
    }
    let checked = bench.run("check @p --json").json();
    assert_eq!((&checked["ok"], &checked["skipped"]), (&json!(true), &json!([])));
    for format in ["tsv", "csv", "json"] {
        let dump = bench.run(&format!("dump @p --all --format {format}")).ok();
        bench.run(&format!("create @{format} --size 1G")).ok();
        bench.run_on(&format!("load @{format} -"), dump.as_bytes(), &[]).ok();
        assert_eq!(bench.run(&format!("dump @{format} --all --format {format}")).ok(), dump);
    }
    bench.run("info @p --space --json").ok();
}

#[test]
fn values_of_serde_are_shown_and_kept() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree j --value json").ok();
    bench.run_on("put @p j a", b"", &["{\"x\": [1, null]}"]).ok();
    assert_eq!(bench.run("get @p j a").ok(), "{\"x\": [1, null]}\n");
    assert_eq!(bench.run("get @p j a --json").ok(), "{\"key\":\"a\",\"value\":{\"x\":[1,null]}}\n");
    bench.run_on("put @p j a", b"", &["{x}"]).refused(2, "value: \"{x}\" is not JSON");
    bench.run("create @p --tree q --value postcard").ok();
    bench.run_on("put @p q a", b"", &["\\x01b"]).ok();
    assert_eq!(bench.run("get @p q a").ok(), "\\x01b\n");
    let dump = bench.run("dump @p --all").ok();
    bench.run("create @c --size 64M").ok();
    bench.run_on("load @c -", dump.as_bytes(), &[]).ok();
    assert_eq!(bench.run("dump @c --all").ok(), dump);
    bench.run("create @p --tree k --key json").refused(2, "keys cannot be json");
}

#[test]
fn a_program_and_the_tool_see_the_same_tree() {
    let bench = Bench::new();
    let pool = Pool::options().max_bytes(64 << 20).create(true).open(bench.path("p")).unwrap();
    let odd = pool.tree::<(u64, &str), [u8; 4]>("odd").unwrap();
    odd.insert((7, "oak"), *b"\0abc").unwrap();
    drop(odd);
    pool.close().unwrap();
    assert!(bench.run("info @p").ok().contains("(u64, str)"));
    assert_eq!(bench.run_on("get @p odd", b"", &["[7, \"oak\"]"]).ok(), "\\x00abc\n");
    bench.run_on("put @p odd", b"", &["[8,\"elm\"]", "wxyz"]).ok();
    let pool = Pool::options().open(bench.path("p")).unwrap();
    assert_eq!(pool.tree::<(u64, &str), [u8; 4]>("odd").unwrap().get((8, "elm")).unwrap(), Some(*b"wxyz"));
}

#[test]
fn what_is_not_of_the_kind_is_refused() {
    let bench = Bench::new();
    bench.run("create @p --size 64M").ok();
    bench.run_on("create @p --tree t --value bool --key", b"", &["(str, u8)"]).ok();
    let put =
        |key: &str, value: &str, what: &str| bench.run_on("put @p t", b"", &[key, value]).refused(2, what);
    put("oak", "true", "key: \"oak\" is not JSON");
    put("[\"oak\"]", "true", "is not of kind (str, u8): write it like [\"x\", 7]");
    put("[\"oak\",256]", "true", "\"256\" is not a number of 0 to 255");
    put("[\"oak\",2]", "yes", "value: \"yes\" is not true or false");
    bench.run_on("scan @p t --prefix", b"", &["[\"oak\",2]"]).refused(2, "--from and --to");
    for kind in ["int", "(u8)", "[u8; x]", "[u16; 2]", "Option<json>", "(u8, u8, u8, u8, u8, u8, u8, u8, u8)"]
    {
        bench.run_on("create @p --tree n --key", b"", &[kind]).refused(2, "unknown kind");
    }
}
