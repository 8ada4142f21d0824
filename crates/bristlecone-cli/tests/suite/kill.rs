//! Repeated `kill -9` through the tool.
//!
//! This tests recovery, not flushes: caches survive a kill. The simulator tests flushes.
//!
//! `BRISTLECONE_KILL_ROUNDS=10000 cargo test --release -p bristlecone-cli --test suite kill` runs longer.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use crate::common::Bench;
use bristlecone::{Pool, Tree};

fn rounds() -> u64 {
    std::env::var("BRISTLECONE_KILL_ROUNDS").map_or(50, |rounds| rounds.parse().unwrap())
}

fn random_below(bound: u64) -> u64 {
    RandomState::new().hash_one(bound) % bound
}

/// In each round the demo's writer acknowledges entries through a pipe and is killed in the middle.
#[test]
fn the_demo_loses_nothing() {
    let bench = Bench::new();
    for directory in 0..10 {
        std::fs::create_dir(bench.path(&format!("files-{directory}"))).unwrap();
        for file in 0..40 {
            bench.file(&format!("files-{directory}/file-{file}"), "x".repeat(file));
        }
    }
    for round in 0..rounds() {
        let report = bench.run("demo @ --pool @demo.pool --json").json();
        let number = |name: &str| report[name].as_u64().unwrap();
        assert_eq!(number("lost"), 0, "round {round}: {report}");
        assert!(number("acknowledged") > 0 && number("acknowledged") < 411, "round {round}: {report}");
        assert!((0..=1).contains(&(number("recovered") - number("acknowledged"))), "round {round}: {report}");
        assert_eq!(number("entries"), 411, "round {round}: {report}");
        assert!(!bench.path("demo.pool").exists());
    }
}

/// In each round a part of a file is loaded, the load is killed, and the part is loaded again. Lines are loaded in
/// order, so the entries after a kill are exactly a prefix of the part.
#[test]
fn a_killed_load_goes_on() {
    const LINES: u64 = 3000;
    let bench = Bench::new();
    bench.run("create @p --size 1G --tree t --key u64 --value u64").ok();
    let mut whole: BTreeMap<u64, u64> = BTreeMap::new();
    let mut killed_within = 0;
    for round in 0..rounds() {
        let part: Vec<(u64, u64)> = (round * LINES..(round + 1) * LINES).map(line).collect();
        let text: String = part.iter().map(|(key, value)| format!("{key}\t{value}\n")).collect();
        kill_a_load(&bench, text.as_bytes());

        let pool = Pool::options().open(bench.path("p")).unwrap();
        let tree: Tree<u64, u64> = pool.tree("t").unwrap();
        assert_eq!(tree.check(), [], "round {round}");
        let there = (tree.len().unwrap() - whole.len() as u64) as usize;
        assert!(there <= part.len(), "round {round}");
        whole.extend(part[..there].iter().copied());
        assert!(
            tree.iter().map(Result::unwrap).eq(whole.iter().map(|(key, value)| (*key, *value))),
            "round {round}"
        );
        killed_within += u64::from(there > 0 && there < part.len());
        drop(tree);
        pool.close().unwrap();

        let tally = bench.run_on("load @p t - --json", text.as_bytes(), &[]).json();
        assert_eq!((&tally["unchanged"], &tally["replaced"]), (&there.into(), &0.into()), "round {round}");
        assert_eq!(tally["added"], part.len() - there, "round {round}");
        whole.extend(part);
    }
    assert!(killed_within * 5 >= rounds(), "only {killed_within} rounds were killed within their part");
    assert_eq!(bench.run("check @p --json").json()["entries"], rounds() * LINES);
}

/// A process holds a pool only while it runs.
#[test]
fn a_killed_process_holds_nothing() {
    let bench = Bench::new();
    bench.run("create @p --tree t").ok();
    let mut load = bench.command("load @p t -").stdin(Stdio::piped()).spawn().unwrap();
    let holder = format!("in use by process {}", load.id());
    // More than a pipe holds: once it is written, the load has opened the pool and is reading.
    load.stdin.as_mut().unwrap().write_all(&b"key\tvalue\n".repeat(20_000)).unwrap();
    bench.run("put @p t a 1").refused(3, &holder);
    load.kill().unwrap();
    load.wait().unwrap();
    for _ in 0..2 {
        assert_eq!(bench.run("info @p --json").json()["closed_cleanly"], false, "a look changes nothing");
    }
    bench.run("put @p t a 1").ok();
    assert_eq!(bench.run("info @p --json").json()["closed_cleanly"], true);
}

/// Returns a unique line.
fn line(number: u64) -> (u64, u64) {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number)
}

/// Feeds a load a random prefix of the text and kills it after a delay; some delays are long enough for a busy machine.
fn kill_a_load(bench: &Bench, text: &[u8]) {
    let mut load = bench.command("load @p t -").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut input = load.stdin.take().unwrap();
    let fed = random_below(text.len() as u64) as usize;
    input.write_all(&text[..fed]).unwrap();
    std::thread::sleep(Duration::from_micros((4000 + random_below(20_000)) << random_below(4)));
    load.kill().unwrap();
    load.wait().unwrap();
}
