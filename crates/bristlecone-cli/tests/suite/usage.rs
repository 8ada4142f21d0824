//! Help, and errors of wrong usage.

use serde_json::{Value, json};

use crate::common::Bench;

#[test]
fn wrong_usage_is_told_apart() {
    let bench = Bench::new();
    let help = bench.run("");
    assert!(help.code == 2 && help.stdout.is_empty() && help.stderr.contains("Usage"), "{help:?}");
    bench.run("fly").refused(2, "--help");
    bench.run("create").refused(2, "--help");
    for size in ["0", "-1", "8X", "99999999T"] {
        bench.run(&format!("create @p --size={size}")).refused(2, "--help");
    }
    bench.run("create @p --size 4096T").refused(2, "possible");
    bench.run("create @p --tree t --design oak").refused(2, "--help");
    bench.run("create @p --tree t --key int").refused(2, "--help");
    bench.run("create @p --tree t --option block_bytes").refused(2, "--help");
    bench.run("create @p --tree t --option height=3").refused(2, "no option \"height\"");
    bench
        .run("create @p --tree t --design sstree --option max_subnodes=9")
        .refused(2, "max_subnodes must be 1 to 5");
    bench.run("create @p --key u64").refused(2, "--tree");
    assert!(!bench.path("p").exists(), "what fails leaves no pool behind");
    bench.run("create @p --max-bytes 64M").ok();
    bench.run("create @p").refused(2, "exists already");
    bench.run("resize @p --max-bytes 4T").refused(2, "in place to 494 GiB only: use `bristlecone copy`");
    bench.run("create @p --tree t --size 32M").refused(2, "drop --size");
    bench.run("create @p --size 128M").refused(2, "raise the maximum with `bristlecone resize`");
    bench.run("create @p --tree t").ok();
    bench.run("create @p --tree t").refused(2, "exists already");
    bench.run("put @p t").refused(2, "--help");
    bench.run("put @p t a 1 --new --existing").refused(2, "--help");
    bench.run("load @p t - --columns 0,1").refused(2, "--help");
    bench.run("create @p --tree n --key u64 --value u64").ok();
    bench.run("put @p n x 1").refused(2, "key: \"x\" is not a number");
    bench.run("put @p n -1 1").refused(2, "found; to pass '-1' as a value, use '-- -1' (--help says more)");
    bench.run("put @p n -- -1 1").refused(2, "\"-1\" is not a number");
    bench.run("put @p n 1 18446744073709551616").refused(2, "value: ");
    bench.run("del @p n 1 y").refused(2, "key: ");
    bench.run("put @p t -- --dashed value").ok();
}

#[test]
fn what_is_not_there_is_told_apart() {
    let bench = Bench::new();
    for command in ["info @p", "info @p t", "check @p", "get @p t k", "scan @p t", "dump @p t", "drop @p t"] {
        bench.run(command).refused(4, "create it first");
    }
    bench.run("create @p").ok();
    bench.run("get @p t k").refused(4, "the pool is empty");
    bench.run("create @p --tree oak").ok();
    for command in [
        "get @p t k",
        "put @p t k v",
        "del @p t k",
        "scan @p t",
        "dump @p t",
        "drop @p t",
        "check @p t",
        "info @p t",
    ] {
        bench.run(command).refused(4, "the pool has oak");
    }
    let error = bench.run("get @p t k --json");
    let said: Value = serde_json::from_str(&error.stderr).unwrap();
    assert_eq!((error.code, &said["exit"]), (4, &json!(4)));
}

#[test]
fn what_is_no_pool_is_told_apart() {
    let bench = Bench::new();
    bench.file("empty", "");
    bench.file("text", "x".repeat(100_000));
    for name in ["empty", "text"] {
        bench.run(&format!("info @{name}")).refused(5, "not a Bristlecone pool");
        bench.run(&format!("create @{name}")).refused(2, "exists already");
    }
    bench.run("create @p --tree t").ok();
    let whole = std::fs::read(bench.path("p")).unwrap();
    bench.file("short", &whole[..whole.len() / 1000 * 4]);
    let short = bench.run("check @short");
    assert!([0, 1, 5].contains(&short.code), "{short:?}");
    let mut damaged = whole.clone();
    damaged[..8192].iter_mut().skip(16).for_each(|byte| *byte ^= 0xa5);
    bench.file("damaged", &damaged);
    bench.run("info @damaged").refused(5, "corrupted");
    let directory = bench.path("");
    let ran = bench.run(&format!("info {}", directory.display()));
    assert!(ran.code != 0 && ran.stderr.lines().count() == 1, "{ran:?}");
}

#[test]
fn help_and_completions() {
    let bench = Bench::new();
    let help = bench.run("--help").ok();
    assert!(help.contains("Exit codes:") && help.contains("130"));
    for command in [
        "shell", "top", "demo", "create", "info", "check", "put", "get", "del", "scan", "load", "dump",
        "drop", "rename", "clear", "copy", "resize", "journal",
    ] {
        assert!(help.contains(command), "{command}");
        assert!(bench.run(&format!("{command} --help")).ok().contains("--json"), "{command}");
    }
    for hidden in ["demo-writer", "  man ", "  completions "] {
        assert!(!help.contains(hidden), "{hidden}");
    }
    for removed in ["trees", "stat", "scrub", "backup", "trim"] {
        bench.run(&format!("{removed} @p")).refused(2, "unrecognized subcommand");
    }
    assert_eq!(bench.run("help").ok(), help);
    let scan = bench.run("scan --help").ok();
    assert_eq!(bench.run("help scan").ok(), scan);
    assert!(scan.contains("Examples:\n  bristlecone scan "), "{scan}");
    bench.run("help fly").refused(2, "--help");
    bench.run("scan @p t --limmit 1").refused(2, "'--limit'");
    bench.run("sacn @p t").refused(2, "'scan'");
    assert!(bench.run("--version").ok().contains(env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = bench.run(&format!("completions {shell}")).ok();
        assert!(script.contains("bristlecone") && script.contains("skip-bad"), "{shell}");
    }
    bench.run("completions cobol").refused(2, "--help");
}

#[test]
fn manual_pages() {
    let bench = Bench::new();
    bench.run("man").refused(2, "<DIR>");
    bench.run("man @pages").refused(4, "no folder");
    std::fs::create_dir(bench.path("pages")).unwrap();
    assert!(bench.run("man @pages").ok().starts_with("32 pages in "));
    let read = |name: &str| std::fs::read_to_string(bench.path("pages").join(name)).unwrap();
    let page = read("bristlecone.1");
    assert!(page.starts_with(".ie") && page.contains(".TH") && page.contains("bristlecone\\-scan"), "{page}");
    assert!(!page.contains("bristlecone\\-man"), "{page}");
    let scan = read("bristlecone-scan.1");
    assert!(scan.contains("\\-\\-prefix") && scan.contains(".SH EXAMPLES\n  bristlecone scan "), "{scan}");
    assert!(scan.contains(concat!("\"bristlecone ", env!("CARGO_PKG_VERSION"), "\"")), "{scan}");
    for name in ["bristlecone.1", "bristlecone-create.1", "bristlecone-shell.1", "bristlecone-resize.1"] {
        assert!(read(name).contains(".SH NAME"), "{name}");
    }
    let show = read("bristlecone-journal-archive.1");
    assert!(
        show.contains("\\-\\-keep\\-days") && show.contains(".SH EXAMPLES\n  bristlecone journal archive "),
        "{show}"
    );
    assert!(!bench.path("pages/bristlecone-demo-writer.1").exists());
}

#[test]
fn statistics_add_up() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree t --value u64 --design sstree").ok();
    let lines: String = (0..3000).map(|key| format!("{}{key}\t{key}\n", "k".repeat(key % 100))).collect();
    bench.run_on("load @p t -", lines.as_bytes(), &[]).ok();
    bench.run("create @p --tree n --key u64 --value u64 --design nbtree").ok();
    let stat = bench.run("info @p --space --json").json();
    let space = &stat["bytes"];
    let bytes = |name: &str| space[name].as_u64().unwrap();
    assert_eq!(
        bytes("leaves") + bytes("logs") + bytes("records") + bytes("free") + bytes("own"),
        bytes("file"),
        "{space}"
    );
    let (n, t) = (&stat["trees"][0], &stat["trees"][1]);
    assert_eq!((&n["name"], &n["entries"], &n["keys"]["min"]), (&json!("n"), &json!(0), &Value::Null));
    assert_eq!((&t["name"], &t["entries"], &t["keys"]["min"]), (&json!("t"), &json!(3000), &json!(1)));
    let histogram = t["keys"]["histogram"].as_array().unwrap();
    assert_eq!(histogram.iter().map(|bucket| bucket["count"].as_u64().unwrap()).sum::<u64>(), 3000);
    assert_eq!(t["values"]["histogram"], json!([{ "from": 8, "to": 8, "count": 3000 }]));
    assert!(t["leaf_bytes"].as_u64() > Some(0) && t["record_bytes"].as_u64() > Some(0), "{t}");
    let text = bench.run("info @p --space").ok();
    for part in ["leaves", "records", "file", "t: sstree, str -> u64", "3,000", "keys: 1 to 1", "####"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let space = text.split("\nspace ").nth(1).unwrap();
    assert!(space.lines().all(|line| line.chars().count() <= 100), "{text}");
    let tree = bench.run("info @p t --space").ok();
    assert!(tree.contains("t: sstree") && !tree.contains("n: nbtree") && !tree.contains("uuid"), "{tree}");
    assert_eq!(bench.run("info @p t --space --json").json()["trees"].as_array().unwrap().len(), 1);
    bench.run("info @p oak --space").refused(4, "the pool has n, t");
    let plain = bench.run("info @p t --json").json();
    assert_eq!((&plain["bytes"], &plain["trees"][0]["keys"]), (&Value::Null, &Value::Null));
}

#[test]
fn statistics_count_each_leaf_of_every_design() {
    let bench = Bench::new();
    bench.run("create @p --size 64M").ok();
    let lines: String = (0..3000).map(|key| format!("{}\t{key}\n", key * 7919 % 3001)).collect();
    for design in bristlecone::Design::ALL {
        bench.run(&format!("create @p --tree {design} --key u64 --value u64 --design {design}")).ok();
        bench.run_on(&format!("load @p {design} -"), lines.as_bytes(), &[]).ok();
    }
    let stat = bench.run("info @p --space --json").json();
    for tree in stat["trees"].as_array().unwrap() {
        let buckets = tree["leaves_by_entries"].as_array().unwrap();
        let sum = |of: &dyn Fn(&Value) -> u64| buckets.iter().map(of).sum::<u64>();
        let part = |bucket: &Value, name: &str| bucket[name].as_u64().unwrap();
        let leaves = sum(&|bucket| part(bucket, "count"));
        // Empty leaves are in no bucket.
        assert!(buckets.len() > 1 && (2..=tree["leaves"].as_u64().unwrap()).contains(&leaves), "{tree}");
        let [least, most] =
            ["from", "to"].map(|end| sum(&|bucket| part(bucket, "count") * part(bucket, end)));
        assert!(least <= 3000 && 3000 <= most, "{tree}");
    }
    assert_eq!(stat["trees"].as_array().unwrap().len(), bristlecone::Design::ALL.len());
    let text = bench.run("info @p --space").ok();
    assert_eq!(text.matches("leaves by number of entries").count(), bristlecone::Design::ALL.len(), "{text}");
}
