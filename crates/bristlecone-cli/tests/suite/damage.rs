//! The tool's results on a damaged pool: an error that names the damage, or the original contents.

use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bristlecone::{Design, Native, Pool};
use bristlecone_baselines::{AnyDesign, Baseline};
use bristlecone_matrix::share;
use serde_json::{Value, json};

use crate::common::Bench;

/// A pool with a tree of a design, `record 0` to `record 1999`, as keys, as values or as both.
fn filled(bench: &Bench, design: Design, key: &str, value: &str) {
    let _ = std::fs::remove_file(bench.path("p"));
    bench.run(&format!("create @p --size 64M --tree t --design {design} --key {key} --value {value}")).ok();
    let datum = |kind: &str, number: u64| match kind {
        "u64" => number.to_string(),
        _ => format!("record {number:04}"),
    };
    let lines: String =
        (0..2000).map(|number| format!("{}\t{}\n", datum(key, number), datum(value, number))).collect();
    bench.run_on("load @p t -", lines.as_bytes(), &[]).ok();
}

fn overwrite(bench: &Bench, offset: u64, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().write(true).open(bench.path("p")).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

/// Damages the last record with these bytes.
fn break_record(bench: &Bench, record: &str) {
    let bytes = std::fs::read(bench.path("p")).unwrap();
    let at = bytes.windows(record.len()).rposition(|found| found == record.as_bytes()).unwrap();
    overwrite(bench, at as u64, b"R");
}

#[test]
fn a_broken_value_is_never_printed() {
    let bench = Bench::new();
    for &design in Design::ALL {
        filled(&bench, design, "u64", "str");
        break_record(&bench, "record 1234");
        for command in ["get @p t 1234", "scan @p t", "scan @p t --reverse", "scan @p t --count", "dump @p t"]
        {
            let ran = bench.run(command);
            assert!(!ran.stdout.contains("Record"), "{design}: {command}: {ran:?}");
            assert!(ran.stdout.lines().count() < 1999, "{design}: {command}");
            ran.refused(5, "checksum of a record differs at ValueRecord");
        }
        assert_eq!(bench.run("get @p t 1").ok(), "record 0001\n");
        assert_eq!(bench.run("get @p t 1235").ok(), "record 1235\n");
        assert_eq!(bench.run("scan @p t --from 1300 --count").ok(), "700\n");
        let checked = bench.run("check @p");
        assert!(checked.code == 1 && checked.stdout.contains("checksum"), "{design}: {checked:?}");
    }
}

#[test]
fn a_broken_key_is_never_passed_over() {
    let bench = Bench::new();
    for &design in Design::ALL {
        filled(&bench, design, "str", "u64");
        break_record(&bench, "record 1234");
        for command in ["scan @p t --count", "dump @p t", "check @p"] {
            let ran = bench.run(command);
            assert!(matches!(ran.code, 1 | 5), "{design}: {command}: {ran:?}");
            assert!(!ran.stdout.contains(": ok"), "{design}: {ran:?}");
        }
        // If the tree cannot be opened with such a key, nothing can be looked up; otherwise the leaf reports it.
        let got = bench.run_on("get @p t", b"", &["record 1234"]);
        assert_eq!((got.code, got.stdout.as_str()), (5, ""), "{design}: {got:?}");
    }
}

#[test]
fn a_superblock_that_was_damaged_is_told_before_it_is_written_anew() {
    let bench = Bench::new();
    for copy in [0, 1] {
        let _ = std::fs::remove_file(bench.path("p"));
        bench.run("create @p --size 64M --tree t").ok();
        bench.run("put @p t pine 1").ok();
        overwrite(&bench, copy * 4096, &[0; 104]);
        let said = format!("superblock, copy {copy}");
        for _ in 0..2 {
            let ran = bench.run("check @p --read-only");
            assert!(ran.code == 1 && ran.stdout.contains(&said), "{ran:?}");
        }
        let saved = bench.run(&format!("check @p --repair @saved-{copy} --json"));
        assert_eq!(saved.code, 1, "{saved:?}");
        assert_eq!(serde_json::from_str::<Value>(&saved.stdout).unwrap()["kept"], 1);
        for _ in 0..2 {
            let got = bench.run("get @p t pine");
            assert!(got.code == 0 && got.stdout == "1\n" && got.stderr.contains(&said), "{got:?}");
        }
        let put = bench.run("put @p t fir 1");
        assert!(put.code == 0 && put.stderr.contains(&said), "{put:?}");
        assert_eq!(bench.run("check @p --json").json()["ok"], true, "it was written anew");
    }
}

/// Replaces words of the header, and of the first node of each chunk and its contents, by misleading values. The
/// tool reports the damage or prints the original contents, and never more lines than possible.
#[test]
fn a_damaged_word_is_told_or_does_no_harm() {
    const DESCRIPTORS: u64 = 73_728;
    let bench = Bench::new();
    let (mut tried, mut told) = (0, 0);
    for &design in share(Design::ALL, 5) {
        filled(&bench, design, "str", "u64");
        let whole = std::fs::read(bench.path("p")).unwrap();
        let word = |at: u64| u64::from_le_bytes(whole[at as usize..][..8].try_into().unwrap());
        let chunks = (1..whole.len() as u64 >> 21).map(|chunk| chunk << 21);
        let header = [0, 56, 4096 + 80, 8192, 8192 + 8, 8192 + 248, DESCRIPTORS, DESCRIPTORS + 8];
        let places =
            header.into_iter().chain(chunks.flat_map(|chunk| [chunk, chunk + 8, chunk + 32, chunk + 104]));
        for (number, place) in places.enumerate() {
            let own = word(place);
            let values =
                [0, 1, u64::MAX, own ^ 1 << 9, own.wrapping_add(4), word(place + 8), 1 << 45, 2 << 20];
            // Two of them for each design, the others spread over the designs.
            for value in
                values.into_iter().cycle().skip(number).step_by(3).take(2).filter(|value| *value != own)
            {
                overwrite(&bench, place, &value.to_le_bytes());
                tried += 1;
                let what = format!("{design}: {place:#x}: {own:#x} -> {value:#x}");
                let _ = std::fs::remove_file(bench.path("q"));
                let mut codes = Vec::new();
                for command in [
                    "check @p --read-only",
                    "scan @p t --read-only",
                    "dump @p t --read-only",
                    "check @p --repair @q",
                ] {
                    let ran = bench.run(command);
                    // A tree or its pool may be missing: that is an error, too.
                    assert!([0, 1, 4, 5].contains(&ran.code), "{what}: {command}: {ran:?}");
                    assert!(!ran.stderr.contains("panicked"), "{what}: {command}: {ran:?}");
                    assert!(ran.stdout.lines().count() < 4100, "{what}: {command}");
                    codes.push(ran.code);
                }
                told += usize::from(codes.iter().any(|code| *code != 0));
                if bench.path("q").exists() {
                    bench.run("check @q").ok();
                }
                std::fs::write(bench.path("p"), &whole).unwrap();
            }
        }
    }
    println!("{tried} words, of which {told} were told");
    assert!(told > tried / 4, "{told} of {tried}");
}

#[test]
fn a_tree_that_cannot_be_checked_is_an_issue() {
    let bench = Bench::new();
    let pool = Pool::options().max_bytes(64 << 20).create(true).open(bench.path("p")).unwrap();
    drop(pool.tree::<u64, u64>("sound").unwrap());
    drop(AnyDesign::Baseline(Baseline::ALL[0]).create::<u64, u64, Native>(&pool, "odd", &[]).unwrap());
    pool.close().unwrap();
    let checked = bench.run("check @p");
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.stdout.contains("odd: not checked: "), "{checked:?}");
    assert!(!checked.stdout.contains(": ok"), "{checked:?}");
    assert_eq!(bench.run("check @p odd").code, 1);
    bench.run("check @p sound").ok();
    let checked: Value = serde_json::from_str(&bench.run("check @p --json").stdout).unwrap();
    assert_eq!((&checked["ok"], &checked["skipped"]), (&json!(false), &json!(["odd"])));
}

#[test]
fn what_a_truncated_pool_still_has_is_saved_and_the_rest_is_said_to_be_unknown() {
    let bench = Bench::new();
    for &design in Design::ALL {
        filled(&bench, design, "u64", "u64");
        let whole = std::fs::metadata(bench.path("p")).unwrap().len();
        for cut in [whole - (2 << 20), whole - (1 << 20), whole - 4096, (2 << 20) + 65536, 1 << 20] {
            filled(&bench, design, "u64", "u64");
            std::fs::File::options().write(true).open(bench.path("p")).unwrap().set_len(cut).unwrap();
            bench.run("check @p").refused(5, "truncated");
            let _ = std::fs::remove_file(bench.path("q"));
            let ran = bench.run("check @p --repair @q --json");
            assert_eq!(ran.code, 1, "{design}, {cut} bytes: {ran:?}");
            let saved: Value = serde_json::from_str(&ran.stdout).unwrap();
            let tree = &saved["trees"][0];
            let (kept, lost) = (tree["kept"].as_u64().unwrap(), tree["lost"].as_u64().unwrap());
            // Missing entries are counted, or their number is reported as unknown.
            let unknown = tree["chunks_lost"].as_u64().unwrap() > 0;
            assert!(kept + lost >= 2000 || unknown, "{design}, {cut} bytes: {ran:?}");
            if kept > 0 {
                assert_eq!(bench.run("scan @q t --count").ok(), format!("{kept}\n"));
            }
            bench.run("check @q").ok();
        }
    }
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let bench = Bench::new();
    let fifo = std::process::Command::new("mkfifo").arg(bench.path("fifo")).status().unwrap();
    assert!(fifo.success());
    let begun = Instant::now();
    for command in
        ["info @fifo", "check @fifo", "get @fifo t k", "put @fifo t k v", "check @fifo --repair @q"]
    {
        bench.run(command).refused(5, "not a Bristlecone pool");
        bench.run(&command.replace("@fifo", "/dev/zero")).refused(5, "not a Bristlecone pool");
    }
    bench.run("create @fifo").refused(2, "exists already");
    assert!(begun.elapsed() < Duration::from_secs(60));
}

/// After a creation was killed at any point, the next one succeeds, and no other file is left behind.
#[test]
fn a_killed_creation_leaves_nothing_in_the_way() {
    let bench = Bench::new();
    let mut killed = 0;
    for round in 0..60 {
        let mut create = bench.command("create @p --size 64M --tree t");
        let mut create = create.stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(300 * (round % 20)));
        create.kill().unwrap();
        killed += u64::from(!create.wait().unwrap().success());
        let names = std::fs::read_dir(bench.path("")).unwrap().map(|name| name.unwrap().file_name());
        assert!(names.into_iter().all(|name| name == "p"), "round {round}");
        // With or without the tree, an existing pool is complete.
        let ran = bench.run("create @p --tree t --json");
        assert!(ran.code == 0 || ran.stderr.contains("exists already"), "round {round}: {ran:?}");
        assert_eq!(bench.run("check @p --json").json()["trees"], 1, "round {round}");
        std::fs::remove_file(bench.path("p")).unwrap();
    }
    assert!(killed > 0, "no creation was killed in time");
}

/// Changes a bit of the first entry of a log.
fn break_log(bench: &Bench) {
    const DESCRIPTORS: usize = 73_728;
    let bytes = std::fs::read(bench.path("p")).unwrap();
    let is_log =
        |chunk: &usize| bytes[DESCRIPTORS + 8 * chunk] == 2 && bytes[DESCRIPTORS + 8 * chunk + 1] == 9;
    let key_of_entry = |chunk: usize| ((chunk + 1) << 21) + 32;
    let in_use = |at: &usize| bytes[*at..*at + 8].iter().any(|byte| *byte != 0);
    let at = (0..(bytes.len() >> 21) - 1).filter(is_log).map(key_of_entry).find(in_use).unwrap();
    overwrite(bench, at as u64, &[bytes[at] ^ 0x10]);
}

#[test]
fn a_tree_with_a_damaged_log_is_read_but_not_written() {
    let bench = Bench::new();
    for design in [Design::CclBTree, Design::LodgeTree] {
        filled(&bench, design, "str", "u64");
        bench.run("create @p --tree sound").ok();
        bench.run("put @p sound pine 1").ok();
        bench.run_on("put @p t", b"", &["record 0001", "7"]).ok();
        bench.run_on("put @p t", b"", &["record 0002", "7"]).ok();
        break_log(&bench);

        let got = bench.run_on("get @p t", b"", &["record 0500"]);
        assert_eq!((got.code, got.stdout.as_str()), (5, "500\n"), "{design}: {got:?}");
        assert!(got.stderr.contains("tree t is damaged"), "{design}: {got:?}");
        for command in ["scan @p t", "scan @p t --reverse", "dump @p t --no-header"] {
            let ran = bench.run(command);
            assert!(ran.code == 5 && ran.stderr.contains("check --repair"), "{design}: {command}: {ran:?}");
            assert!(ran.stdout.lines().count() >= 1999, "{design}: {command}: {ran:?}");
        }
        assert_eq!(bench.run("scan @p t --keys --limit 3").stdout.lines().count(), 3);
        let counted = bench.run("scan @p t --count");
        assert!(counted.code == 5 && ["1999\n", "2000\n"].contains(&&*counted.stdout), "{counted:?}");
        for command in ["info @p", "info @p --space", "info @p t"] {
            let info = bench.run(command);
            assert!(info.code == 5 && info.stderr.contains("check --repair"), "{design}: {info:?}");
            assert!(
                info.stdout.contains('?') && info.stdout.contains("damaged    t: "),
                "{design}: {info:?}"
            );
            assert_eq!(info.stdout.contains("sound"), !command.ends_with('t'), "{design}: {info:?}");
        }
        let info = bench.run("info @p --json");
        let object: Value = serde_json::from_str(&info.stdout).unwrap();
        assert_eq!((info.code, &object["issues"][0]["tree"]), (5, &json!("t")), "{design}: {info:?}");
        let entries = |tree: usize| &object["trees"][tree]["entries"];
        assert_eq!((entries(0), entries(1)), (&json!(1), &Value::Null), "{design}: {info:?}");
        bench.run("info @p sound").ok();
        let checked = bench.run("check @p");
        assert!(checked.code == 1 && checked.stdout.contains("t: "), "{design}: {checked:?}");

        bench.run("put @p t fir 1").refused(5, "check --repair");
        bench.run("del @p t fir").refused(5, "check --repair");
        bench.run("copy @p @copy").refused(5, "check --repair");
        assert_eq!(bench.run("get @p sound pine").ok(), "1\n");
        bench.run("put @p sound fir 1").ok();

        let _ = std::fs::remove_file(bench.path("q"));
        assert_eq!(bench.run("check @p --repair @q").code, 1);
        bench.run("put @q t fir 1").ok();
        bench.run("check @q").ok();
    }
}
