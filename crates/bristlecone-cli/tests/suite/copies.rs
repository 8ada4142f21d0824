//! Copies, sizes and space: a new pool exists completely or not at all, and holds the same entries
//! as the old one.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bristlecone::Design;

use crate::common::{Bench, Ran};
use crate::signals::interrupt;

/// A pool with a tree of each design and pair of codecs.
fn fill(bench: &Bench) {
    bench.run("create @p --size 1G").ok();
    for (number, design) in Design::ALL.iter().enumerate() {
        let (key, value) =
            [("u64", "u64"), ("u64", "str"), ("str", "u64"), ("str", "bytes"), ("i32", "str")][number];
        let create = format!("create @p --tree {design} --design {design} --key {key} --value {value}");
        bench.run(&create).ok();
        let lines: String = (0..3000).map(|n| format!("{n}\t{}\n", n * 7)).collect();
        bench.run_on(&format!("load @p {design} -"), lines.as_bytes(), &[]).ok();
    }
}

fn names(bench: &Bench) -> Vec<String> {
    let entries = std::fs::read_dir(bench.path("")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns each entry of a pool, independent of the designs.
fn entries(bench: &Bench, pool: &str) -> Vec<String> {
    let trees = Design::ALL.iter().map(|design| format!("dump @{pool} {design} --no-header"));
    trees.map(|dump| bench.run(&dump).ok()).collect()
}

#[test]
fn a_copy_has_what_the_pool_has_in_other_designs_and_sizes() {
    let bench = Bench::new();
    fill(&bench);
    let trees = |pool: &str| bench.run(&format!("info @{pool} --json")).json()["trees"].take();
    let copied = bench.run("copy @p @same --json").json();
    assert_eq!((&copied["entries"], copied["trees"].as_array().unwrap().len()), (&15_000.into(), 5));
    assert!(bench.run("copy @p @backup").ok().contains("5 trees with 15,000 entries"));
    bench.run("copy @p @other --design nbtree --tree lodgetree=wotree,node_lines=16 --max-bytes 64M").ok();
    bench.run("copy @other @larger --max-bytes 3T").ok();
    for pool in ["same", "backup", "other", "larger"] {
        assert_eq!(entries(&bench, pool), entries(&bench, "p"), "{pool}");
        assert!(bench.run(&format!("check @{pool}")).ok().contains("15,000 entries"), "{pool}");
        assert_eq!(bench.run(&format!("info @{pool} --json")).json()["closed_cleanly"], true);
    }
    assert_eq!(trees("p"), trees("same"));
    let other = trees("other").to_string();
    assert_eq!((other.matches("\"nbtree\"").count(), other.matches("\"node_lines\":16").count()), (4 + 1, 1));
    let max = |pool: &str| bench.run(&format!("info @{pool} --json")).json()["max_bytes"].as_u64().unwrap();
    assert!(max("other") < 70 << 20 && max("larger") >= 3 << 40 && max("same") >= 1 << 30);
    // It can grow and be written.
    bench.run("put @other sstree 1000000 1").ok();
}

#[test]
fn a_copy_that_cannot_be_leaves_nothing() {
    let bench = Bench::new();
    fill(&bench);
    bench.file("file", "something");
    std::fs::create_dir(bench.path("folder")).unwrap();
    std::os::unix::fs::symlink("nothing", bench.path("link")).unwrap();
    let before = names(&bench);
    bench.run("copy @p @p").refused(2, "exists already");
    bench.run("copy @p @file").refused(2, "exists already");
    bench.run("copy @p @folder").refused(2, "is a folder");
    bench.run("copy @p @link").refused(2, "exists already");
    bench.run("copy @p @no/such/folder").refused(4, "no folder");
    bench.run("copy @none @new").refused(4, "no pool");
    bench.run("copy @file @new").refused(5, "not a Bristlecone pool");
    bench.run("copy @p @new --tree oak=nbtree").refused(4, "no tree named \"oak\": the pool has ");
    bench.run("copy @p @new --tree sstree=oak").refused(2, "unknown design");
    bench.run("copy @p @new --tree sstree=nbtree,oak=1").refused(2, "oak");
    bench.run("copy @p @new --max-bytes 4M").refused(6, "--max-bytes");
    bench.run("copy @p @new --max-bytes 300T").refused(2, "256 TiB");
    let limited = "ulimit -f 8192; \"$0\" copy \"$1/p\" \"$1/new\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, env!("CARGO_BIN_EXE_bristlecone")]).arg(bench.path(""));
    Ran::of(command, b"").refused(6, "new");
    assert_eq!(std::fs::read_to_string(bench.path("file")).unwrap(), "something");
    assert_eq!(names(&bench), before);
    assert!(bench.run("check @p").ok().contains("15,000 entries"));
}

#[test]
fn a_copy_of_a_damaged_pool_is_none() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree t --key u64").ok();
    let lines: String = (0..2000).map(|number| format!("{number}\trecord {number:04}\n")).collect();
    bench.run_on("load @p t -", lines.as_bytes(), &[]).ok();
    assert!(bench.run("check @p --read-all").ok().contains("2,000 entries"));
    let bytes = std::fs::read(bench.path("p")).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(bench.path("p")).unwrap();
    for record in ["record 0007", "record 1234", "record 1999"] {
        let at = bytes.windows(record.len()).rposition(|found| found == record.as_bytes()).unwrap();
        file.write_all_at(b"R", at as u64).unwrap();
    }
    bench.run("copy @p @new").refused(5, "checksum");
    assert_eq!(names(&bench), ["p"]);
    // It continues after damage.
    let scrubbed = bench.run("check @p --read-all --json");
    let found: serde_json::Value = serde_json::from_str(&scrubbed.stdout).unwrap();
    let entries = found["entries"].as_u64().unwrap();
    assert_eq!((scrubbed.code, found["issues"].as_array().unwrap().len()), (1, 3), "{scrubbed:?}");
    assert!((1000..1998).contains(&entries), "{entries}");
    assert!(bench.run("check @p --read-all").stdout.contains("--repair"));
}

#[test]
fn a_pool_that_is_open_is_copied_from_a_shell() {
    let bench = Bench::new();
    bench.run("create @p --tree t --size 64M").ok();
    let script = format!("put oak 7\ncopy {}\nput oak 8\n", bench.path("copy").display());
    assert!(bench.run_on("shell @p t", script.as_bytes(), &[]).ok().contains("1 tree with 1 entry"));
    assert_eq!(bench.run("get @copy t oak").ok(), "7\n");
    assert_eq!(bench.run("get @p t oak").ok(), "8\n");
    let script = format!("copy {}\n", bench.path("p").display());
    bench.run_on("shell @p", script.as_bytes(), &[]).refused(2, "exists already");
    let script = format!("copy {} --design nbtree --max-bytes 1G\n", bench.path("other").display());
    bench.run_on("shell @p", script.as_bytes(), &[]).ok();
    assert_eq!(bench.run("info @other --json").json()["trees"][0]["design"], "nbtree");
    let script = b"check --read-all --rate 50M\n";
    assert!(bench.run_on("shell @p", script, &[]).ok().ends_with("read: ok\n"));
}

#[test]
fn a_pool_grows_in_place_as_far_as_it_can() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --tree t").ok();
    let max = || bench.run("info @p --json").json()["max_bytes"].as_u64().unwrap();
    assert_eq!(
        bench.run("resize @p --max-bytes 256M").ok(),
        format!("{}: a pool of up to 258 MiB\n", bench.path("p").display())
    );
    assert_eq!(bench.run("resize @p --max-bytes 400G --json").json()["max_bytes"].as_u64(), Some(max()));
    assert!(max() >= 400 << 30);
    bench.run("resize @p --max-bytes 256M").refused(2, "bristlecone copy");
    bench.run("resize @p --max-bytes 600G").refused(2, "bristlecone copy");
    bench.run("resize @p").refused(2, "--max-bytes");
    bench.run("resize @p --size 600G --trim").refused(2, "bristlecone copy");
    bench.run("resize @none --max-bytes 1G").refused(4, "no pool");
    assert!(max() >= 400 << 30 && bench.run("check @p").ok().starts_with("1 tree"));
}

#[test]
fn space_is_given_back() {
    let bench = Bench::new();
    bench.run("create @p --tree t --key u64 --value bytes").ok();
    let value = "v".repeat(100_000);
    let lines: String = (0..300).map(|key| format!("{key}\t{value}\n")).collect();
    bench.run_on("load @p t -", lines.as_bytes(), &[]).ok();
    let blocks = || bench.path("p").metadata().unwrap().blocks() * 512;
    let full = blocks();
    bench.run("clear @p t").ok();
    let cleared = blocks();
    assert!(cleared >= full, "what is free is kept");
    let given = bench.run("resize @p --trim --json").json()["given_back_bytes"].as_u64().unwrap();
    assert!(given >= 30_000_000 && blocks() <= cleared - given + (64 << 10), "{given} of {cleared}");
    assert!(bench.run("resize @p --trim").ok().starts_with("0 B released"));
    bench.run_on("load @p t -", lines.as_bytes(), &[]).ok();
    assert!(bench.run("check @p").ok().contains("300 entries"));
    let said = bench.run("resize @p --trim --max-bytes 1100G").ok();
    assert!(said.contains("a pool of up to 1.") && said.contains(" released; the file has "), "{said}");
}

#[test]
fn checks_and_copies_are_interrupted() {
    let bench = Bench::new();
    bench.run("create @p --tree t --key u64 --value bytes").ok();
    let value = "v".repeat(10_000);
    let lines: String = (0..2000).map(|key| format!("{key}\t{value}\n")).collect();
    bench.run_on("load @p t -", lines.as_bytes(), &[]).ok();
    // Twenty megabytes at one per second.
    let begun = Instant::now();
    let mut check = bench.command("check @p --read-all --rate 1M");
    let child = check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    interrupt(&child);
    Ran::ended(child).refused(130, "not everything was read");
    assert!(begun.elapsed() < Duration::from_secs(15));
    let begun = Instant::now();
    assert!(bench.run("check @p --read-all --rate 10M").ok().contains("2,000 entries"));
    assert!(begun.elapsed() > Duration::from_millis(1500), "{:?}", begun.elapsed());
    let child = bench.command("copy @p @new").stderr(Stdio::piped()).spawn().unwrap();
    interrupt(&child);
    let ran = Ran::ended(child);
    assert!(ran.code == 0 || !bench.path("new").exists(), "{ran:?}");
    assert_eq!(names(&bench).len(), if ran.code == 0 { 2 } else { 1 });
}

#[test]
fn a_copy_that_is_killed_is_there_wholly_or_not_at_all() {
    let bench = Bench::new();
    fill(&bench);
    let begun = Instant::now();
    bench.run("copy @p @new").ok();
    let (took, all) = (begun.elapsed(), entries(&bench, "new"));
    std::fs::remove_file(bench.path("new")).unwrap();
    let mut killed = 0;
    for round in 0..20 {
        let mut copy = bench.command("copy @p @new").stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(took * round / 18);
        copy.kill().unwrap();
        killed += u32::from(!copy.wait().unwrap().success());
        if names(&bench) != ["p"] {
            assert_eq!(names(&bench), ["new", "p"], "round {round}");
            assert_eq!(entries(&bench, "new"), all, "round {round}");
            std::fs::remove_file(bench.path("new")).unwrap();
        }
    }
    assert!(killed > 0, "no copy was killed in time");
}
