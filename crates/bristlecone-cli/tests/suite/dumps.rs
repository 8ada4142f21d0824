//! Dumps that describe their trees, and loads that detect incomplete dumps.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Bench, Ran};
use crate::signals::interrupt;

/// A pool with a tree of each of three designs, one of them empty.
fn pool(bench: &Bench) {
    bench.run("create @p --size 64M --tree ages --value u64 --design sstree --option max_subnodes=4").ok();
    bench.run_on("load @p ages -", b"Methuselah\t4857\nPrometheus\t4862\ntab\\there\t0\n", &[]).ok();
    bench.run("create @p --tree raw --key bytes --value bytes --design nbtree").ok();
    bench.run_on("load @p raw -", b"\\x00\\xff,\"\\n\t\\r\\x1b\na\t{\"bristlecone_end\":1}\n", &[]).ok();
    bench.run("create @p --tree none --key u64 --design wotree").ok();
}

/// Returns the descriptions of a pool's trees, without their space.
fn described(bench: &Bench, pool: &str) -> Vec<Value> {
    let info = bench.run(&format!("info @{pool} --json")).json();
    info["trees"].as_array().unwrap().clone()
}

#[test]
fn a_dump_of_all_makes_the_same_pool() {
    let bench = Bench::new();
    pool(&bench);
    for (number, format) in ["--format tsv", "--format csv", "--format json", "--json"].iter().enumerate() {
        let (file, copy) = (format!("dump-{number}"), format!("copy-{number}"));
        bench.run(&format!("dump @p --all {format} --output @{file}")).ok();
        bench.run(&format!("create @{copy} --size 64M")).ok();
        assert_eq!(
            bench.run(&format!("load @{copy} @{file} --json")).json(),
            json!({"lines": 5, "added": 5, "replaced": 0, "unchanged": 0, "bad": 0, "trees": 3}),
            "{format}"
        );
        assert_eq!(described(&bench, &copy), described(&bench, "p"), "{format}");
        let again = bench.run(&format!("dump @{copy} --all {format}")).ok();
        assert_eq!(again, std::fs::read_to_string(bench.path(&file)).unwrap());
        // From a pipe it is loaded as it arrives.
        let piped = bench.run_on(&format!("load @{copy} - --json"), again.as_bytes(), &[]).json();
        assert_eq!((&piped["unchanged"], &piped["trees"]), (&json!(5), &json!(3)));
    }
    let said = bench.run("load @copy-0 @dump-0").ok();
    assert_eq!(said, "3 trees, 5 entries: 0 added, 5 unchanged\n");
}

#[test]
fn a_dump_says_what_its_tree_is() {
    let bench = Bench::new();
    pool(&bench);
    let dump = bench.run("dump @p ages").ok();
    let lines: Vec<&str> = dump.lines().collect();
    let header: Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(header["bristlecone_dump"], 1);
    let said = (&header["tree"], &header["key"], &header["value"], &header["design"], &header["entries"]);
    assert_eq!(said, (&json!("ages"), &json!("str"), &json!("u64"), &json!("sstree"), &json!(3)));
    assert_eq!((&header["options"]["max_subnodes"], &header["format"]), (&json!(4), &json!("tsv")));
    let trailer: Value = serde_json::from_str(lines[4]).unwrap();
    assert_eq!((&trailer["bristlecone_end"], &trailer["entries"]), (&json!("ages"), &json!(3)));
    assert_eq!(bench.run("dump @p ages --no-header").ok(), lines[1..4].join("\n") + "\n");
    bench.file("ages", &dump);
    // Under another name, with another design; kinds are unchanged unless they are given.
    bench.run("load @p old @ages --design lodgetree").ok();
    assert_eq!(described(&bench, "p")[2]["design"], "lodgetree");
    bench.run("load @p raw @ages").refused(2, "keys of kind bytes, not str");
    bench.run("load @p texts @ages --value str").ok();
    assert_eq!(bench.run("get @p texts Methuselah").ok(), "4857\n");
    bench.run("load @p t @ages --columns 1,2").refused(2, "the input is a dump");
    bench.run("load @p t @ages --header").refused(2, "the input is a dump");
    bench.run("dump @p --all --output @all").ok();
    bench.run("load @p t @all").refused(2, "has 5 trees");
    let all = std::fs::read(bench.path("all")).unwrap();
    bench.run_on("load @p t -", &all, &[]).refused(2, "has 5 trees");
    bench.run("dump @p").refused(2, "--help");
    bench.run("dump @p ages --all").refused(2, "--help");
    bench.run("dump @p --all --no-header").refused(2, "--help");
    bench.run_on("load @p -", b"a\t1\n", &[]).refused(2, "name the tree");
}

/// A dump in a file that is cut anywhere, or has any changed bit in its entries, is not loaded at
/// all.
#[test]
fn a_cut_or_changed_dump_is_refused() {
    let bench = Bench::new();
    pool(&bench);
    let dump = bench.run("dump @p --all").ok().into_bytes();
    // Within the first header it looks like plain text; without its last line end it is complete.
    for cut in (20..dump.len() - 1).step_by(37) {
        bench.file("cut", &dump[..cut]);
        bench.run("create @q --size 64M").ok();
        let ran = bench.run("load @q @cut");
        assert_eq!(ran.code, 7, "{cut}: {ran:?}");
        assert!(bench.run("info @q").ok().ends_with("trees      0\n"), "{cut}");
        let piped = bench.run_on("load @q -", &dump[..cut], &[]);
        assert_eq!(piped.code, 7, "{cut}: {piped:?}");
        std::fs::remove_file(bench.path("q")).unwrap();
    }
    bench.run("create @q --size 64M").ok();
    let text = String::from_utf8(dump).unwrap();
    let changed = text.replacen("4857", "4858", 1);
    bench.file("changed", &changed);
    bench.run("load @q @changed").refused(7, "checksum differs; nothing is loaded");
    bench
        .run_on("load @q -", changed.as_bytes(), &[])
        .refused(7, "checksum differs; 3 lines before it are in");
    let without = text.replacen("Methuselah\t4857\n", "", 1);
    bench.file("without", without);
    bench.run("load @q @without").refused(7, "has 2 entries here, and 3 were written");
    let newer = text.replacen("{\"bristlecone_dump\":1,", "{\"bristlecone_dump\":9,", 1);
    bench.file("newer", newer);
    bench.run("load @q @newer").refused(7, "version 9");
    bench.file("twice", format!("{text}{text}"));
    bench.run("load @q @twice").refused(7, "tree 1 of 3 where tree 4 was to come");
    bench.file("more", format!("{text}a\t1\n"));
    bench.run("load @q @more").refused(7, "after the end of a dump");
}

#[test]
fn json_is_read_back_without_a_header_too() {
    let bench = Bench::new();
    pool(&bench);
    let text = bench.run("scan @p raw --json").ok();
    assert_eq!(text, bench.run("dump @p raw --json --no-header").ok());
    let load = "load @p again - --key bytes --value bytes";
    assert_eq!(bench.run_on(load, text.as_bytes(), &[]).ok(), "2 entries: 2 added\n");
    assert_eq!(bench.run("scan @p again --json").ok(), text);
    bench.file("in.jsonl", "{\"value\":7,\"key\":\"x\"}\n");
    bench.run("load @p ages @in.jsonl").ok();
    assert_eq!(bench.run("get @p ages x").ok(), "7\n");
    for (wrong, what) in [
        ("{\"key\":\"x\"}", "not a JSON object with key and value"),
        ("{\"key\":\"x\",\"value\":\"y\"}", "value: \"y\" is not a number"),
        ("{\"key\":7,\"value\":7}", "key: \"7\" is not of kind str"),
        ("7", "not a JSON object"),
    ] {
        bench.run_on("load @p ages - --format json", wrong.as_bytes(), &[]).refused(7, what);
    }
}

#[test]
fn ctrl_c_ends_a_dump_which_is_not_whole_then() {
    let bench = Bench::new();
    bench.run("create @p").ok();
    let input: String = (0..200_000).map(|key| format!("{key}\n")).collect();
    bench.run_on("load @p t - --format keys --key u64 --value u64", input.as_bytes(), &[]).ok();
    for command in ["dump @p t", "scan @p t"] {
        let mut child = bench.command(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It waits for its reader by then.
        std::thread::sleep(Duration::from_millis(200));
        interrupt(&child);
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let ended = Ran::ended(child);
        ended.refused(130, "interrupted");
        assert!(text.lines().count() < 200_000);
        if command.starts_with("dump") {
            bench.file("cut", text);
            bench.run("load @p copy @cut").refused(7, "ends early");
        }
    }
}
