//! Pools: their descriptions, their locations, and access by several processes.

use std::process::Stdio;
use std::time::{Duration, Instant};

use bristlecone::Pool;
use serde_json::{Value, json};

use crate::common::{Bench, Ran};
use crate::signals::interrupt;

#[test]
fn a_pool_says_what_it_is() {
    let bench = Bench::new();
    assert!(bench.run("create @p --size 64M").ok().contains("domain process"));
    let info = bench.run("info @p --json").json();
    assert_eq!(info["domain"], "process");
    assert_eq!(info["closed_cleanly"], true);
    assert_eq!(info["trees"], json!([]));
    assert!(info["max_bytes"].as_u64().unwrap() >= 64 << 20);
    assert!(info["file_bytes"].as_u64().unwrap() < 16 << 20, "it begins small");
    assert!(bench.run("info @p").ok().contains("tmpfs") || !std::path::Path::new("/dev/shm").is_dir());
    let created = bench
        .run("create @p --tree t --key u64 --value bytes --design sstree --option max_subnodes=4 --json")
        .json();
    assert_eq!(created["created"], false);
    let tree = &bench.run("info @p --json").json()["trees"][0];
    assert_eq!((&tree["name"], &tree["key"], &tree["value"]), (&json!("t"), &json!("u64"), &json!("bytes")));
    assert_eq!((&tree["entries"], &tree["options"]["max_subnodes"]), (&json!(0), &json!(4)));
    assert!(bench.run("info @p").ok().contains("sstree"));
    assert!(bench.run("check @p").ok().contains(": ok"));
    assert_eq!(bench.run("check @p t --json").json()["ok"], true);
    bench.run("drop @p t").ok();
    assert!(bench.run("info @p").ok().ends_with("trees      0\n"));
}

#[test]
fn a_larger_maximum_is_given() {
    let bench = Bench::new();
    let max = || bench.run("info @p --json").json()["max_bytes"].as_u64().unwrap();
    bench.run("create @p --size 64M").ok();
    assert!(bench.run("resize @p --size 128M").ok().contains("a pool of up to 130 MiB"));
    assert!(max() >= 128 << 20);
    bench.run("create @p --size 256M --tree t").refused(2, "bristlecone resize");
    assert!(max() < 256 << 20);
    bench.run("create @p --tree t").ok();
    bench.run("resize @p --max-bytes 256M").ok();
    assert!(max() >= 256 << 20);
    bench.run("resize @p --max-bytes 64M").refused(2, "cannot be reduced in place");
    bench.run("resize @p --max-bytes 1000T").refused(2, "");
    assert!(bench.run("check @p").ok().starts_with("1 tree"));
}

#[test]
fn trees_are_renamed_and_cleared() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree t").ok();
    bench.run("put @p t pine 1").ok();
    bench.run("create @p --tree other").ok();
    assert_eq!(bench.run("rename @p t trees").ok(), "t is trees now\n");
    assert_eq!(bench.run("get @p trees pine").ok(), "1\n");
    bench.run("rename @p t again").refused(4, "the pool has other, trees");
    bench.run("rename @p trees other").refused(2, "exists already");
    bench.run("rename @p trees").refused(2, "--help");
    bench.run_on("rename @p trees", b"", &[""]).refused(2, "");
    assert_eq!(bench.run("clear @p trees").ok(), "cleared trees\n");
    assert_eq!(bench.run("scan @p trees --count").ok(), "0\n");
    bench.run("clear @p t").refused(4, "no tree named");
    assert_eq!(bench.run("check @p --json").json()["trees"], 2);
}

#[test]
fn domains_are_taken_as_they_are_given() {
    let bench = Bench::new();
    let said = bench.run("create @p --size 64M --domain adr").ok();
    assert!(said.contains("domain adr") && said.contains("nothing survives a power failure"), "{said}");
    assert_eq!(bench.run("create @e --size 64M --domain eadr --json").json()["domain"], "eadr");
    bench.run("create @p --tree t --domain eadr").ok();
    bench.run("put @p t a 1 --domain msync").ok();
    bench.run("check @p --domain adr").refused(2, "--repair");
    bench.run("check @p --rate 1M").refused(2, "--read-all");
    bench.run("check @p t --read-all").refused(2, "--help");
    bench.run("check @p --read-all --repair @q").refused(2, "--help");
    bench.run("create @q --domain dram").refused(2, "--help");
}

#[test]
fn an_ordinary_file_holds_a_pool_too() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let pool = directory.path().join("p");
    let pool = pool.to_str().unwrap();
    let bench = Bench::new();
    for (pool, options, domain) in
        [(pool.to_owned(), "", "journal"), (format!("{pool}2"), " --domain msync", "msync")]
    {
        let made = bench.run(&format!("create {pool} --size 64M --tree t --json{options}")).json();
        let memory = options.is_empty() && made["domain"] == "process";
        assert!(made["domain"] == domain || memory, "{made}");
        assert_eq!(made["journal"].is_string(), made["domain"] == "journal", "{made}");
        bench.run(&format!("put {pool} t a 1")).ok();
        assert_eq!(bench.run(&format!("get {pool} t a")).ok(), "1\n");
    }
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
    assert!(bench.run("check @q").ok().contains(": ok"));
    // The directory entry: the tree is lost, and the pool has no other.
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
    assert_ne!(bench.run("create /dev/full").code, 0);
}

#[test]
fn a_pool_that_cannot_be_written_can_be_read() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};
    let bench = Bench::new();
    bench.run("create @p --tree t").ok();
    bench.run("put @p t pine 1").ok();
    // Root may write any file: the tool then runs as another user.
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
    assert!(run("info @p").ok().contains("nbtree"));
    assert_eq!(run("dump @p t --no-header").ok(), "pine\t1\n");
    for command in ["put @p t fir 2", "del @p t pine", "drop @p t", "load @p t -", "create @p --tree u"] {
        run(command).refused(1, "Permission denied");
    }
    assert!(std::fs::read(bench.path("p")).unwrap() == before, "reading changed the file");
}

#[test]
fn a_look_at_a_pool_leaves_it_as_it_is() {
    let bench = Bench::new();
    let pool = Pool::options().max_bytes(64 << 20).create(true).open(bench.path("p")).unwrap();
    pool.tree::<&str, &str>("t").unwrap().insert("pine", "1").unwrap();
    pool.simulate_crash();
    let before = std::fs::read(bench.path("p")).unwrap();
    let looks = [
        "get @p t pine",
        "check @p",
        "dump @p t",
        "scan @p t",
        "info @p",
        "info @p --space",
        "shell @p --read-only",
    ];
    for command in looks {
        bench.run(command).ok();
        assert!(std::fs::read(bench.path("p")).unwrap() == before, "{command} changed the file");
    }
    for _ in 0..2 {
        assert!(bench.run("info @p").ok().contains("closed     no"));
    }
    bench.run("get @p t pine --read-only").ok();
    let reader = Pool::options().read_only(true).open(bench.path("p")).unwrap();
    assert_eq!(bench.run("get @p t pine").ok(), "1\n", "there may be several readers");
    bench.run("put @p t pine 2").refused(3, "in use by ");
    drop(reader);
    bench.run("put @p t pine 1 --read-only").refused(2, "--help");
}

#[test]
fn a_pool_in_use_is_told_with_its_holder() {
    let bench = Bench::new();
    let pool = Pool::options().max_bytes(64 << 20).create(true).open(bench.path("p")).unwrap();
    let commands = [
        "put @p t a b",
        "del @p t a",
        "check @p --read-all",
        "copy @p @q",
        "resize @p --trim",
        "load @p t -",
        "create @p --tree t",
        "shell @p",
    ];
    for command in commands {
        bench.run(command).refused(3, &format!("in use by process {}", std::process::id()));
    }
    bench.run("put @p t a b").refused(3, "wait for it with --wait");
    let begun = Instant::now();
    bench.run("put @p t a b --wait=0.3").refused(3, "after 0.3 s of waiting");
    assert!(begun.elapsed() >= Duration::from_millis(300));
    bench.run("info @p --wait=soon").refused(2, "number of seconds");
    bench.run("completions bash --wait").refused(2, "--help");
    drop(pool);
    bench.run("info @p").ok();
}

#[test]
fn a_pool_in_use_can_be_waited_for() {
    let bench = Bench::new();
    let pool = Pool::options().max_bytes(64 << 20).create(true).open(bench.path("p")).unwrap();
    drop(pool.tree::<&str, &str>("t").unwrap());
    let command = bench.command("put @p t a b --wait");
    let (sent, received) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || sent.send(Ran::of(command, b"")).unwrap());
        assert!(received.recv_timeout(Duration::from_millis(1300)).is_err(), "it waits");
        pool.close().unwrap();
        let ran = received.recv().unwrap();
        assert!(ran.code == 0 && ran.stdout == "added\n", "{ran:?}");
        assert!(ran.stderr.lines().count() == 1 && ran.stderr.contains("waiting for"), "{ran:?}");
    });
}

#[test]
fn ctrl_c_ends_a_wait() {
    let bench = Bench::new();
    let _pool = Pool::options().max_bytes(64 << 20).create(true).open(bench.path("p")).unwrap();
    let child = bench.command("put @p t a b --wait=60").stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
}

/// An error about a path names the path.
#[test]
fn a_path_that_cannot_be_is_told() {
    let bench = Bench::new();
    bench.file("file", "x");
    std::fs::create_dir(bench.path("folder")).unwrap();
    std::os::unix::fs::symlink("nowhere", bench.path("link")).unwrap();
    std::os::unix::fs::symlink("loop", bench.path("loop")).unwrap();
    let long = "n".repeat(300);
    for command in ["info", "create", "get", "put", "check", "copy", "resize", "shell", "drop"] {
        let rest = match command {
            "get" => " t k",
            "put" => " t k v",
            "drop" => " t",
            "copy" => " @new",
            "resize" => " --trim",
            _ => "",
        };
        let run = |path: &str| bench.run(&format!("{command} {path}{rest}"));
        run("@no/such/p").refused(4, "no/such: create it first");
        run("@folder").refused(2, "is a folder: name a file in it");
        run("@file/p").refused(2, "a file, not a folder");
        run(&format!("@{long}")).refused(2, "too long");
        if command != "create" {
            run("@p").refused(4, "create it first");
            run("@link").refused(4, "a link to a file that is not there");
            run("@loop").refused(2, "leads to itself");
        }
    }
}
