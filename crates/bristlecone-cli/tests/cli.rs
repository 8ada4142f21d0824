//! Every command, and what it answers to wrong input.

mod common;

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bristlecone::Pool;
use common::{Bench, Ran};
use serde_json::{Value, json};

#[test]
fn a_pool_says_what_it_is() {
    let bench = Bench::new();
    assert!(bench.run("create @p --size 64M").ok().contains("domain process"));
    let info = bench.run("info @p --json").json();
    assert_eq!(info["domain"], "process");
    assert_eq!(info["closed_cleanly"], true);
    assert_eq!(info["trees"], 0);
    assert!(info["max_bytes"].as_u64().unwrap() >= 64 << 20);
    assert!(info["file_bytes"].as_u64().unwrap() < 16 << 20, "it begins small");
    assert!(bench.run("info @p").ok().contains("tmpfs") || !std::path::Path::new("/dev/shm").is_dir());
    let created =
        bench.run("create @p --tree t --key u64 --value bytes --option max_subnodes=4 --json").json();
    assert_eq!(created["created"], false);
    let tree = bench.run("trees @p --json").json();
    assert_eq!((&tree["name"], &tree["key"], &tree["value"]), (&json!("t"), &json!("u64"), &json!("bytes")));
    assert_eq!((&tree["entries"], &tree["options"]["max_subnodes"]), (&json!(0), &json!(4)));
    assert!(bench.run("trees @p").ok().contains("sstree"));
    assert!(bench.run("check @p").ok().contains("everything is as it must be"));
    assert_eq!(bench.run("check @p t --json").json()["ok"], true);
    bench.run("drop @p t").ok();
    assert_eq!(bench.run("trees @p").ok(), "no trees\n");
}

#[test]
fn domains_are_taken_as_they_are_given() {
    let bench = Bench::new();
    let said = bench.run("create @p --size 64M --domain adr").ok();
    assert!(said.contains("domain adr") && said.contains("nothing survives a power failure"), "{said}");
    assert_eq!(bench.run("info @p --domain eadr --json").json()["domain"], "eadr");
    bench.run("create @q --domain dram").refused(2, "--help");
}

#[test]
fn an_ordinary_file_holds_a_pool_too() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pool = directory.path().join("p");
    let pool = pool.to_str().unwrap();
    let bench = Bench::new();
    let made = bench.run(&format!("create {pool} --size 64M --tree t --json")).json();
    let memory = made["domain"] == "process";
    assert!(made["domain"] == "msync" || memory, "{made}");
    bench.run(&format!("put {pool} t a 1")).ok();
    assert_eq!(bench.run(&format!("get {pool} t a")).ok(), "1\n");
}

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
    bench.run("del @p t fir").refused(4, "1 key had no value");
    bench.run("get @p t fir").refused(4, "fir has no value");
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
            let text = bench.run(&format!("dump @p {tree} --format {format}")).ok();
            bench.run(&format!("dump @p {tree} --format {format} --output @{file}")).ok();
            assert_eq!(std::fs::read_to_string(bench.path(&file)).unwrap(), text);
            bench.run(&format!("load @p {file} @{file} --key {kind} --value {kind}")).ok();
            assert_eq!(bench.run(&format!("dump @p {file} --format {format}")).ok(), text);
        }
    }
    assert_eq!(bench.run("dump @p t --json").ok().lines().count(), 5);
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
    bench.run("load @p t @in.csv --option max_subnodes=4").refused(2, "option max_subnodes 3, not 4");
    bench.run("load @p new @absent").refused(4, "absent");
    assert!(!bench.run("trees @p").ok().contains("new"), "a mistyped file name creates no tree");
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
        .refused(7, "line 1: a quoted field without an end");
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
    bench.run("create @p --tree t --key i128").refused(2, "--help");
    bench.run("create @p --tree t --option max_subnodes").refused(2, "--help");
    bench.run("create @p --tree t --option height=3").refused(2, "no option \"height\"");
    bench.run("create @p --tree t --option max_subnodes=9").refused(2, "max_subnodes must be 1 to 4");
    bench.run("create @p --key u64").refused(2, "--tree");
    assert!(!bench.path("p").exists(), "what fails leaves no pool behind");
    bench.run("create @p --size 64M").ok();
    bench.run("create @p").refused(2, "exists already");
    bench.run("create @p --tree t --size 32M").refused(2, "leave --size out");
    bench.run("create @p --tree t --size 64M").ok();
    bench.run("create @p --tree t").refused(2, "exists already");
    bench.run("put @p t").refused(2, "--help");
    bench.run("put @p t a 1 --new --existing").refused(2, "--help");
    bench.run("load @p t - --columns 0,1").refused(2, "--help");
    bench.run("create @p --tree n --key u64 --value u64").ok();
    bench.run("put @p n x 1").refused(2, "key: \"x\" is not a number");
    bench.run("put @p n -1 1").refused(2, "--help");
    bench.run("put @p n -- -1 1").refused(2, "\"-1\" is not a number");
    bench.run("put @p n 1 18446744073709551616").refused(2, "value: ");
    bench.run("del @p n 1 y").refused(2, "key: ");
    bench.run("put @p t -- --dashed value").ok();
}

#[test]
fn what_is_not_there_is_told_apart() {
    let bench = Bench::new();
    for command in ["info @p", "trees @p", "check @p", "get @p t k", "scan @p t", "dump @p t", "drop @p t"] {
        bench.run(command).refused(4, "create it first");
    }
    bench.run("create @p").ok();
    bench.run("get @p t k").refused(4, "the pool has none");
    bench.run("create @p --tree oak").ok();
    for command in
        ["get @p t k", "put @p t k v", "del @p t k", "scan @p t", "dump @p t", "drop @p t", "check @p t"]
    {
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
fn a_damaged_pool_is_saved_into_a_new_one() {
    let bench = Bench::new();
    bench.run("create @p --tree t --key u64 --value str").ok();
    let input: String = (0..2000).map(|key| format!("{key}\tvalue of {key}\n")).collect();
    bench.run_on("load @p t -", input.as_bytes(), &[]).ok();
    assert_eq!(bench.run("check @p --repair @whole --json").json()["kept"], 2000);
    assert_eq!(bench.run("dump @whole t").ok(), bench.run("dump @p t").ok());
    bench.run("check @p --repair @whole").refused(2, "exists already");
    bench.run("check @p t --repair @q").refused(2, "--help");
    bench.run("check @absent --repair @q").refused(4, "create it first");
    let mut bytes = std::fs::read(bench.path("p")).unwrap();
    let broken = bytes.windows(13).position(|window| window == b"value of 1234").unwrap();
    bytes[broken] = b'V';
    bench.file("p", &bytes);
    assert_eq!(bench.run("check @p").code, 1);
    let saved = bench.run("check @p --repair @q");
    assert_eq!((saved.code, saved.stderr.as_str()), (1, ""), "{saved:?}");
    assert!(saved.stdout.contains("t: 1,999 entries saved, 1 lost"), "{saved:?}");
    bench.run("get @q t 1234").refused(4, "no value");
    assert!(bench.run("check @q").ok().contains("everything is as it must be"));
    // The directory entry: the tree is lost, and nothing else is to be had.
    bytes[8192 + 100] ^= 1;
    bench.file("p", &bytes);
    bench.run("check @p").refused(5, "check --repair");
    let saved: Value = serde_json::from_str(&bench.run("check @p --repair @r --json").stdout).unwrap();
    assert_eq!((&saved["ok"], &saved["kept"]), (&json!(false), &json!(0)));
    bench.file("text", "x".repeat(100_000));
    bench.run("check @text --repair @s").refused(5, "not a Bristlecone pool");
    assert!(!bench.path("s").exists());
}

#[test]
fn a_place_that_cannot_hold_a_pool_is_told() {
    let bench = Bench::new();
    bench.run("create /sys/bristlecone.pool").refused(1, "/sys/bristlecone.pool");
    bench.run("create @no/such/directory/p").refused(4, "no/such/directory");
    assert_ne!(bench.run("create /dev/full").code, 0);
}

#[test]
fn a_pool_that_cannot_be_written_can_be_read() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};
    let bench = Bench::new();
    bench.run("create @p --tree t").ok();
    bench.run("put @p t pine 1").ok();
    // Root may write anything: the tool runs as somebody else then.
    let set = |name: &str, mode| {
        std::fs::set_permissions(bench.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::copy(env!("CARGO_BIN_EXE_bristlecone"), bench.path("tool")).unwrap();
    set("", 0o755);
    set("tool", 0o755);
    set("p", 0o444);
    let before = std::fs::read(bench.path("p")).unwrap();
    let run = |arguments: &str| {
        let mut command = bench.command_of(&bench.path("tool"), arguments);
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        Ran::of(command, b"")
    };
    assert_eq!(run("get @p t pine").ok(), "1\n");
    assert_eq!(run("scan @p t --count").ok(), "1\n");
    assert_eq!(run("info @p --json").json()["read_only"], true);
    assert_eq!(run("check @p --json").json()["ok"], true);
    assert!(run("trees @p").ok().contains("1 entry"));
    assert_eq!(run("dump @p t").ok(), "pine\t1\n");
    for command in ["put @p t fir 2", "del @p t pine", "drop @p t", "load @p t -", "create @p --tree u"] {
        run(command).refused(1, "Permission denied");
    }
    assert!(std::fs::read(bench.path("p")).unwrap() == before, "reading changed the file");
}

#[test]
fn a_pool_is_left_as_it_is_when_asked_to() {
    let bench = Bench::new();
    let pool = Pool::options().max_bytes(64 << 20).create(true).open(bench.path("p")).unwrap();
    pool.tree::<&str, &str>("t").unwrap().insert("pine", "1").unwrap();
    pool.simulate_crash();
    let before = std::fs::read(bench.path("p")).unwrap();
    for command in ["get @p t pine", "check @p", "dump @p t", "scan @p t", "trees @p", "info @p"] {
        bench.run(&format!("{command} --read-only")).ok();
    }
    assert!(bench.run("info @p --read-only").ok().contains("closed     no"));
    assert!(std::fs::read(bench.path("p")).unwrap() == before, "reading changed the file");
    let reader = Pool::options().read_only(true).open(bench.path("p")).unwrap();
    assert_eq!(bench.run("get @p t pine --read-only").ok(), "1\n");
    bench.run("get @p t pine").refused(3, "in use by process");
    drop(reader);
    bench.run("put @p t pine 1 --read-only").refused(2, "--help");
}

#[test]
fn a_pool_in_use_is_told_with_its_holder() {
    let bench = Bench::new();
    let pool = Pool::options().max_bytes(64 << 20).create(true).open(bench.path("p")).unwrap();
    for command in ["info @p", "put @p t a b", "check @p", "load @p t -", "create @p --tree t"] {
        bench.run(command).refused(3, &format!("in use by process {}", std::process::id()));
    }
    drop(pool);
    bench.run("info @p").ok();
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
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let asked = Instant::now();
    let ended = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10), "it does not wait for input that does not come");
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!(String::from_utf8_lossy(&ended.stderr).contains("2 lines are in"), "{ended:?}");
    assert_eq!(bench.run("info @p --json").json()["closed_cleanly"], true);
    assert_eq!(bench.run("scan @p t").ok(), "a\t1\nb\t2\n", "half a line is no line");
}

#[test]
fn trees_of_other_kinds_are_left_to_programs() {
    let bench = Bench::new();
    let pool = Pool::options().max_bytes(64 << 20).create(true).open(bench.path("p")).unwrap();
    drop(pool.tree::<(u64, &str), [u8; 4]>("odd").unwrap());
    pool.close().unwrap();
    assert!(bench.run("trees @p").ok().contains("odd"));
    bench.run("get @p odd k").refused(2, "the tool opens u64, str and bytes");
    assert_eq!(bench.run("check @p --json").json()["skipped"], json!(["odd"]));
}

#[test]
fn help_and_completions() {
    let bench = Bench::new();
    let help = bench.run("--help").ok();
    assert!(help.contains("Exit codes:") && help.contains("130"));
    for command in [
        "demo",
        "create",
        "info",
        "trees",
        "check",
        "put",
        "get",
        "del",
        "scan",
        "load",
        "dump",
        "drop",
        "bench",
        "completions",
    ] {
        assert!(help.contains(command), "{command}");
        assert!(bench.run(&format!("{command} --help")).ok().contains("--json"), "{command}");
    }
    assert!(!help.contains("demo-writer"));
    assert!(bench.run("--version").ok().contains(env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = bench.run(&format!("completions {shell}")).ok();
        assert!(script.contains("bristlecone") && script.contains("skip-bad"), "{shell}");
    }
    bench.run("completions cobol").refused(2, "--help");
}
