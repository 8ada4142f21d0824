//! Pools with a journal.

use std::time::Duration;

use bristlecone::{Domain, Durability, Pool, Tree};
use serde_json::{Value, json};

use crate::common::Bench;

#[test]
fn a_pool_with_a_journal_is_used_like_any_other() {
    let bench = Bench::new();
    assert!(bench.run("create @p --size 64M --domain journal --tree t").ok().contains("domain journal"));
    bench.run("put @p t pine 1").ok();
    bench.run("put @p t oak 2").ok();
    assert_eq!(bench.run("get @p t pine").ok(), "1\n");
    assert_eq!(bench.run("info @p --json").json()["domain"], "journal");
    assert!(bench.run("check @p").ok().starts_with("1 tree"));
    bench.run("rename @p t trees").ok();
    bench.run("copy @p @q").ok();
    assert_eq!(bench.run("get @q trees oak").ok(), "2\n");
    bench.run("put @p trees elm 3 --domain process").refused(2, "journal");
    bench.run("drop @p trees").ok();
}

#[test]
fn the_files_of_a_journal_are_listed_and_verified() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --domain journal --tree t").ok();
    bench.run("put @p t pine 1").ok();
    assert!(bench.run("journal list @p").ok().contains("segment-"));
    let verified = bench.run("journal verify @p.journal --json").json();
    assert_eq!((&verified["changes"], &verified["directory_changes"]), (&1.into(), &1.into()));
    {
        let pool = Pool::open(bench.path("p")).unwrap();
        pool.checkpoint().unwrap();
        assert!(bench.run("journal verify @p").ok().contains("checkpoint of 1 trees"));
    }
    let files = bench.run("journal list @p --json").json();
    let name = files["files"][0]["name"].as_str().unwrap().to_owned();
    let path = bench.path("p.journal").join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[60] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_ne!(bench.run("journal verify @p").code, 0);
    assert_ne!(bench.run("journal list @q").code, 0);
}

#[test]
fn a_pool_without_its_journal_is_refused() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --domain journal --tree t").ok();
    std::fs::rename(bench.path("p.journal"), bench.path("elsewhere")).unwrap();
    let refused = bench.run("get @p t pine");
    assert!(refused.code != 0 || refused.stdout.is_empty());
    assert_ne!(bench.run("put @p t pine 1").code, 0);
    std::fs::rename(bench.path("elsewhere"), bench.path("p.journal")).unwrap();
    bench.run("put @p t pine 1").ok();
}

/// Returns the lines of an output, each a JSON value.
fn values(output: &str) -> Vec<Value> {
    output.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{output}"))).collect()
}

#[test]
fn a_new_pool_says_its_durability_and_where_its_journal_is() {
    let bench = Bench::new();
    let said = bench.run("create @p --size 64M --domain journal").ok();
    let folder = format!("\njournal    {}.journal, durability commit\n", bench.path("p").display());
    assert!(said.contains("domain journal: survives power failure") && said.contains(&folder), "{said}");
    let said = bench.run("create @q --size 64M --domain journal --durability interval:1500us --journal @log");
    let undone = "log, durability interval:1500us; a power failure may undo the last changes\n";
    assert!(said.ok().contains(undone));
    let said = bench.run("create @o --size 64M --domain journal --durability memory").ok();
    assert!(
        said.contains("durability memory; a power failure may undo changes since the last sync"),
        "{said}"
    );
    let said = bench.run("create @r --size 64M --domain journal --durability memory --json").json();
    let folder = bench.path("r.journal").display().to_string();
    assert_eq!([&said["durability"], &said["journal"]], [&json!("memory"), &json!(folder)]);
    let said = bench.run("create @s --size 64M --json").json();
    assert_eq!([&said["durability"], &said["journal"]], [&Value::Null, &Value::Null]);
    assert!(!bench.run("create @t --size 64M").ok().contains("journal"));
}

#[test]
fn wrong_durabilities_and_folders_are_refused() {
    let bench = Bench::new();
    for wrong in ["", "Commit", "interval", "interval:0ms", "interval:5", "interval:1h", "always"] {
        let ran = bench.run(&format!("create @p --domain journal --durability={wrong}"));
        ran.refused(2, "interval:100ms");
    }
    bench.run("create @p --durability").refused(2, "--help");
    bench.run("create @p --domain process --durability commit").refused(2, "domain journal");
    bench.run("create @p --domain process --journal @log").refused(2, "domain journal");
    for folder in ["", " --journal @log"] {
        let ran = bench.run(&format!("create @p --domain journal --tree t --option inner_bytes=9{folder}"));
        ran.refused(2, "inner_bytes must be");
    }
    assert!(!bench.path("p.journal").exists() && !bench.path("log").exists());
    bench.file("file", "no folder");
    let ran = bench.run("create @p --domain journal --journal @file");
    assert!(ran.code == 1 && ran.stderr.lines().count() == 1, "{ran:?}");
    assert!(!bench.path("p").exists(), "what fails leaves no pool behind");
    bench.run("create @p --size 64M --tree t").ok();
    bench.run("put @p t a 1 --durability memory").refused(2, "domain journal");
    bench.run("shell @p --read-only --durability memory").refused(2, "cannot be used with");
}

#[test]
fn every_command_takes_the_folder_of_the_journal() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --domain journal --journal @log --tree t").ok();
    bench.run("put @p t a 1").refused(4, "the journal of");
    bench.run("get @p t a").refused(4, "the journal of");
    for command in [
        "put @p t a 1 --durability memory",
        "get @p t a",
        "scan @p t",
        "dump @p t",
        "info @p",
        "check @p",
        "check @p --read-all",
        "rename @p t u",
        "rename @p u t",
        "clear @p t",
        "resize @p --trim",
        "copy @p @copy",
        "journal prune @p",
        "drop @p t",
    ] {
        bench.run(&format!("{command} --journal @log")).ok();
    }
    let said = bench.run_on("shell @p --journal @log --durability interval:10s --json", b"info", &[]).json();
    assert_eq!(said["journal"]["durability"], "interval:10s");
    assert!(!bench.path("p.journal").exists());
}

#[test]
fn entries_are_shown_as_lines_and_as_json() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --domain journal --tree t --value u64").ok();
    bench.run("put @p t pine 1").ok();
    bench.run_on("put @p t", b"", &["two words\tand a tab", "2"]).ok();
    bench.run("del @p t pine").ok();
    bench.run("rename @p t trees").ok();
    bench.run("put @p trees oak 3").ok();
    bench.run("clear @p trees").ok();
    bench.run("drop @p trees").ok();
    let said = bench.run("changes @p").ok();
    let rows: Vec<Vec<&str>> = said.lines().map(|line| line.split('\t').collect()).collect();
    let want = [
        "t create str u64",
        "t put pine 1",
        "t put two words\\tand a tab 2",
        "t remove pine",
        "t rename trees",
        "trees put oak 3",
        "trees clear",
        "trees drop",
    ];
    assert_eq!(rows.iter().map(|row| row[2..].join(" ")).collect::<Vec<_>>(), want);
    for row in &rows {
        // 2026-11-27T19:27:14.250Z
        let (time, zone) = row[1].split_at(23);
        assert!(
            time.starts_with("20") && time.matches(['-', ':', '.', 'T']).count() == 6 && zone == "Z",
            "{row:?}"
        );
    }
    let objects = values(&bench.run("changes @p --json").ok());
    assert_eq!(objects.len(), rows.len());
    assert!(objects.iter().zip(&rows).all(|(object, row)| object["lsn"].as_u64() == row[0].parse().ok()));
    assert!(objects.is_sorted_by(|one, next| one["next_lsn"].as_u64() <= next["lsn"].as_u64()));
    let put = &objects[2];
    assert_eq!([&put["tree"], &put["kind"]], [&json!("t"), &json!("put")]);
    assert_eq!([&put["key"], &put["value"]], [&json!("two words\tand a tab"), &json!(2)]);
    assert_eq!((&objects[3]["kind"], &objects[3]["value"]), (&json!("remove"), &Value::Null));
    assert_eq!([&objects[0]["design"], &objects[0]["key_kind"]], [&json!("nbtree"), &json!("str")]);
    assert_eq!(objects[4]["to"], "trees");

    let lsn = &rows[3][0];
    let from = |more: &str| bench.run(&format!("changes @p --from {lsn}{more}")).ok();
    assert_eq!(from("").lines().count(), 5);
    assert_eq!(
        from(" --limit 2").lines().map(|line| line.split('\t').nth(3).unwrap()).collect::<Vec<_>>(),
        ["remove", "rename"]
    );
    assert_eq!(from(" --limit 0"), "");
    let end = objects.last().unwrap()["next_lsn"].to_string();
    assert_eq!(bench.run(&format!("changes @p.journal --from {end}")).ok(), "");
    bench.run("changes @none").refused(4, "none.journal");
    bench.run("changes @p --from x").refused(2, "--help");
    bench.run("changes @p --limit -1").refused(2, "--help");
}

#[test]
fn entries_are_shown_while_another_process_writes() {
    let bench = Bench::new();
    let options = Pool::options().domain(Domain::Journal).max_bytes(64 << 20).create(true);
    let pool = options.durability(Durability::Memory).open(bench.path("p")).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    tree.upsert(1, 2).unwrap();
    assert_eq!(bench.run("changes @p").ok(), "", "no entry is in the file");
    pool.sync().unwrap();
    assert_eq!(bench.run("changes @p").ok().lines().count(), 2);
    let mut batch = pool.batch();
    batch.insert(&tree, 2, 3).remove(&tree, 1);
    batch.commit().unwrap();
    pool.sync().unwrap();
    let objects = values(&bench.run("changes @p --json").ok());
    let batch = &objects[2..];
    assert_eq!(batch.len(), 2);
    assert_eq!((&batch[0]["lsn"], &batch[0]["kind"]), (&batch[1]["lsn"], &json!("remove")));
    assert_eq!(values(&bench.run("changes @p --json --limit 3").ok()).len(), 4, "a batch is one entry");
    pool.prune_journal().unwrap();
    assert_eq!(bench.run("changes @p").ok(), "");
    let beyond = u64::MAX >> 8;
    bench.run(&format!("changes @p --from {beyond}")).refused(2, "beyond the durable end");
}

fn write_more_than_a_segment(tree: &Tree<u64, u64>) {
    let many: Vec<_> = (0..9000).map(|key| (key, key)).collect();
    (0..180).for_each(|_| tree.upsert_many(&many).unwrap());
}

#[test]
fn a_cursor_keeps_changes_for_its_consumer() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --domain journal --tree t --key u64 --value u64").ok();
    let created = bench.run("journal cursor create @p audit --at 0 --json").json();
    assert_eq!((&created["cursor"], &created["lsn"]), (&json!("audit"), &json!(0)));
    bench.run("journal cursor create @p audit").refused(2, "exists already");
    bench.run("journal cursor create @p a/b").refused(2, "cannot name a cursor");
    let pool = Pool::open(bench.path("p")).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    write_more_than_a_segment(&tree);
    tree.insert(9000, 1).unwrap();
    pool.prune_journal().unwrap();
    let listed = bench.run("journal list @p --json").json();
    assert_eq!(listed["cursors"][0]["name"], "audit");
    assert!(listed["cursors"][0]["pinned_bytes"].as_u64() >= Some(32 << 20), "{listed}");
    for command in ["journal list @p", "info @p", "top @p --count 1"] {
        assert!(bench.run(command).ok().contains("cursor     audit: LSN 0, holds back "), "{command}");
    }
    let first = values(&bench.run("changes @p --cursor audit --limit 2 --json").ok());
    assert_eq!((&first[0]["kind"], &first[1]["kind"]), (&json!("create"), &json!("put")));
    assert_eq!((&first[1]["existed"], &first[1]["tree_id"]), (&Value::Null, &first[0]["tree_id"]));
    let rest = bench.run("changes @p --cursor audit --json").ok();
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!((&last["key"], &last["existed"]), (&json!(9000), &json!(false)));
    assert_eq!(rest.lines().count() + first.len(), 2 + 180 * 9000);
    assert_eq!(bench.run("changes @p --cursor audit").ok(), "");
    pool.prune_journal().unwrap();
    assert_eq!(bench.run("journal list @p --json").json()["files"].as_array().unwrap().len(), 2);
    bench.run("changes @p --from 0").refused(9, "keeps entries from LSN");
    bench.run("journal cursor create @p late --at 0").refused(9, "keeps entries from LSN");
    bench.run("changes @p --cursor none").refused(4, "no cursor named");
    bench.run("journal cursor advance @p audit 0").refused(2, "cannot move back");
    bench.run("journal cursor drop @p audit").ok();
    bench.run("journal cursor drop @p audit").refused(4, "no cursor named");
    bench.run("changes @p --cursor x --from 0").refused(2, "--help");
}

#[test]
fn a_cursor_that_holds_back_more_than_its_limit_is_dropped() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --domain journal --tree t --key u64 --value u64").ok();
    bench.run("journal cursor create @p audit --at 0").ok();
    let pool = Pool::open(bench.path("p")).unwrap();
    write_more_than_a_segment(&pool.tree::<u64, u64>("t").unwrap());
    pool.close().unwrap();
    bench.run("put @p t 1 1 --cursor-limit 64M").ok();
    // A segment has 32 MiB.
    bench.run("journal prune @p --cursor-limit 64M").ok();
    assert_eq!(bench.run("changes @p --cursor audit --limit 1").ok().lines().count(), 1);
    bench.run("journal prune @p --cursor-limit 1K").ok();
    bench.run("changes @p --cursor audit").refused(9, "audit");
    let listed = bench.run("journal list @p --json").json();
    assert_eq!(listed["cursors"][0]["dropped"], json!(true), "{listed}");
    bench.run("create @q --size 64M --domain process --tree t").ok();
    bench.run("put @q t a 1 --cursor-limit 1G").refused(2, "domain journal");
    bench.run("put @p t 1 1 --cursor-limit many").refused(2, "--help");
    bench.run("shell @p --read-only --cursor-limit 1G").refused(2, "cannot be used with");
    let help = bench.run("put --help").ok();
    assert!(help.contains("--cursor-limit <SIZE>") && help.contains("[default: 1G]"), "{help}");
}

#[test]
fn an_archive_is_restored_and_followed() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --domain journal --tree t --key u64 --value u64").ok();
    bench.run("put @p t 1 1").ok();
    let said = bench.run("journal archive @p @a --json").json();
    let (lsn, time) = (said["end_lsn"].as_u64().unwrap(), said["as_of"].as_str().unwrap().to_owned());
    assert_eq!((&said["first_lsn"], &said["timeline"]), (&json!(0), &json!(0)));
    std::thread::sleep(Duration::from_millis(5));
    bench.run("put @p t 1 2").ok();
    bench.run("journal archive @p @a --keep-days 3 --keep-bytes 1G").ok();
    assert_eq!(bench.run("restore @end --from @a --json").json()["pool"], json!(bench.path("end")));
    assert_eq!(bench.run("get @end t 1").ok(), "2\n");
    bench.run(&format!("restore @lsn --from @a --to-lsn {lsn}")).ok();
    assert_eq!(bench.run("get @lsn t 1").ok(), "1\n");
    bench.run(&format!("restore @time --from @a --to-time {time}")).ok();
    assert_eq!(bench.run("get @time t 1").ok(), "1\n");
    bench.run("put @time t 7 7").ok();
    bench.run("restore @time --from @a").refused(2, "exists already");
    bench.run("restore @x --from @none").refused(4, "none");
    bench.run("restore @x --from @p.journal").refused(2, "has no archive");
    bench.run(&format!("restore @x --from @a --to-lsn {}", lsn << 20)).refused(2, "ends at LSN");
    bench.run("restore @x --from @a --to-time yesterday").refused(2, "2026-11-27T19:27:14.250Z");
    bench.run("restore @x --from @a --to-time 2999-01-01T00:00:00Z").refused(2, "before the time asked for");
    assert!(!bench.path("x").exists());
    bench.run("journal archive @time @a").refused(2, "another pool");

    bench.run("standby @copy --from @a --once").ok();
    bench.run("get @copy t 1").refused(2, "is a standby");
    bench.run("standby @p --from @a --once").refused(2, "");
    let promoted = bench.run("standby @copy --from @a --promote --json").json();
    assert_eq!(promoted["promoted"], true);
    bench.run("journal archive @p @a").refused(10, "has taken over");
    assert_eq!(bench.run("get @copy t 1").ok(), "2\n");
    bench.run("put @copy t 1 3").ok();
    assert_eq!(bench.run("journal archive @copy @a --json").json()["timeline"], 1);
    bench.run("restore @last --from @a").ok();
    assert_eq!(bench.run("get @last t 1").ok(), "3\n");
    bench.run("standby @copy --from @a").refused(2, "");
}

#[test]
fn damage_is_no_end() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --domain journal --tree t").ok();
    (0..3).for_each(|key| _ = bench.run(&format!("put @p t {key} 1")).ok());
    let path = bench.path("p.journal/segment-00000002");
    let mut bytes = std::fs::read(&path).unwrap();
    // The second block: that of the first `put`.
    bytes[8192 + 70] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    for command in ["changes", "journal verify"] {
        let ran = bench.run(&format!("{command} @p"));
        ran.refused(5, "damaged block");
    }
    std::fs::remove_file(bench.path("p.journal/manifest")).unwrap();
    bench.run("journal list @p").refused(5, "the manifest is missing");
}

#[test]
fn pruning_needs_the_pool_and_returns_space() {
    let bench = Bench::new();
    bench.run("create @p --size 64M --domain journal --tree t").ok();
    bench.run("put @p t a 1").ok();
    {
        let _pool = Pool::open(bench.path("p")).unwrap();
        bench.run("journal prune @p").refused(3, "in use by process");
        bench.run("journal prune @p --wait=0.1").refused(3, "after 0.1 s");
    }
    let files = || std::fs::read_dir(bench.path("p.journal")).unwrap().count();
    let said = bench.run("journal prune @p --json").json();
    assert!(
        said["bytes_after"].as_u64().unwrap() > 0 && said["bytes_before"].as_u64().unwrap() > 0,
        "{said}"
    );
    assert_eq!(files(), 4, "a manifest, the ring, a segment and the checkpoint");
    assert!(bench.run("journal prune @p").ok().contains(", before "));
    assert_eq!(files(), 4);
    assert_eq!(bench.run("get @p t a").ok(), "1\n");
    assert_eq!(bench.run("info @p --json").json()["journal"]["bytes_since_checkpoint"], 0);
    bench.run("create @plain --size 64M").ok();
    bench.run("journal prune @plain").refused(2, "has no journal");
    bench.run("journal prune @none").refused(4, "none");
}

#[test]
fn info_and_top_show_the_journal_of_a_writer() {
    let bench = Bench::new();
    bench.run("create @plain --size 64M").ok();
    assert_eq!(bench.run("info @plain --json").json()["journal"], Value::Null);
    bench.run("create @p --size 64M --domain journal --tree t --key u64 --value u64").ok();
    let closed = &bench.run("info @p --json").json()["journal"];
    assert_eq!([&closed["durability"], &closed["syncs"]["count"]], [&Value::Null, &json!(0)]);
    assert!(closed["lsn"].as_u64() > Some(0) && closed["lsn"] == closed["durable_lsn"], "{closed}");
    let text = bench.run("info @p").ok();
    assert!(text.contains("since the creation of the pool") && !text.contains("syncs "), "{text}");

    let interval = Durability::Interval(Duration::from_secs(1000));
    let pool = Pool::options().durability(interval).open(bench.path("p")).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    pool.checkpoint().unwrap();
    tree.upsert(1, 1).unwrap();
    pool.sync().unwrap();
    tree.upsert(2, 2).unwrap();
    let own = pool.journal_status().unwrap().unwrap();
    let of_info = bench.run("info @p --json").json()["journal"].clone();
    assert_eq!(of_info["folder"], json!(bench.path("p.journal")));
    let of_top = bench.run("top @p --count 1 --json").json()["journal"].clone();
    for seen in [&of_info, &of_top] {
        assert_eq!(seen["durability"], "interval:1000s");
        assert_eq!([&seen["lsn"], &seen["durable_lsn"]], [&json!(own.lsn), &json!(own.durable_lsn)]);
        assert_eq!(seen["checkpoint_lsn"], json!(own.checkpoint_lsn));
        assert_eq!(seen["bytes_since_checkpoint"], json!(own.bytes_since_checkpoint));
        assert_eq!([&seen["syncs"]["count"], &seen["failed"]], [&json!(own.syncs.count), &json!(false)]);
        assert_eq!(seen["syncs"]["max_ns"], json!(own.syncs.max.as_nanos() as u64));
    }
    let text = bench.run("info @p").ok();
    for part in [
        "p.journal, durability interval:1000s; a power failure",
        "since the checkpoint at LSN ",
        "syncs      ",
        "p99 ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = bench.run("top @p --count 2 --interval 20ms").ok();
    assert_eq!(text.matches("durability interval:1000s").count(), 2, "{text}");
    assert!(text.starts_with("tree "), "{text}");

    std::fs::rename(bench.path("p.journal"), bench.path("log")).unwrap();
    bench.run("top @p --count 1").refused(4, "--journal: no journal in");
    assert_eq!(bench.run("top @p --count 1 --json --journal @log").json()["journal"]["lsn"], json!(own.lsn));
    assert_eq!(bench.run("info @p --json --journal @log").json()["journal"]["lsn"], json!(own.lsn));
    std::fs::rename(bench.path("log"), bench.path("p.journal")).unwrap();
    drop(tree);
    pool.close().unwrap();
}
