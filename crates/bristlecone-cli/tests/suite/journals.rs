//! Pools with a journal.

use std::time::Duration;

use bristlecone::{Domain, Durability, Pool};
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
    let said = bench.run("journal show @p").ok();
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
    let objects = values(&bench.run("journal show @p --json").ok());
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
    let from = |more: &str| bench.run(&format!("journal show @p --from {lsn}{more}")).ok();
    assert_eq!(from("").lines().count(), 5);
    assert_eq!(
        from(" --limit 2").lines().map(|line| line.split('\t').nth(3).unwrap()).collect::<Vec<_>>(),
        ["remove", "rename"]
    );
    assert_eq!(from(" --limit 0"), "");
    let end = objects.last().unwrap()["next_lsn"].to_string();
    assert_eq!(bench.run(&format!("journal show @p.journal --from {end}")).ok(), "");
    bench.run("journal show @none").refused(4, "none.journal");
    bench.run("journal show @p --from x").refused(2, "--help");
    bench.run("journal show @p --limit -1").refused(2, "--help");
}

#[test]
fn entries_are_shown_while_another_process_writes() {
    let bench = Bench::new();
    let options = Pool::options().domain(Domain::Journal).max_bytes(64 << 20).create(true);
    let pool = options.durability(Durability::Memory).open(bench.path("p")).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    tree.upsert(1, 2).unwrap();
    assert_eq!(bench.run("journal show @p").ok(), "", "no entry is in the file");
    pool.sync().unwrap();
    assert_eq!(bench.run("journal show @p").ok().lines().count(), 2);
    let mut batch = pool.batch();
    batch.insert(&tree, 2, 3).remove(&tree, 1);
    batch.commit().unwrap();
    pool.sync().unwrap();
    let objects = values(&bench.run("journal show @p --json").ok());
    let batch = &objects[2..];
    assert_eq!(batch.len(), 2);
    assert_eq!((&batch[0]["lsn"], &batch[0]["kind"]), (&batch[1]["lsn"], &json!("remove")));
    assert_eq!(values(&bench.run("journal show @p --json --limit 3").ok()).len(), 4, "a batch is one entry");
    pool.checkpoint().unwrap();
    bench.run("journal show @p --from 0").refused(2, "begins at LSN");
    assert_eq!(bench.run("journal show @p").ok(), "");
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
    for command in ["show", "verify"] {
        let ran = bench.run(&format!("journal {command} @p"));
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
