//! Media that are full or forbid writing: the error says so, and no acknowledged data is lost.

use std::process::Command;

use bristlecone::Design;

use crate::common::{Bench, Ran};

/// Twenty megabytes of entries.
fn input(bench: &Bench) {
    let value = "v".repeat(1000);
    let lines: String = (0..20_000).map(|key| format!("{key}\t{value}\n")).collect();
    bench.file("in.tsv", lines);
}

/// Runs `script` in a shell with `bristlecone` as the tool, in the directory, wrapped in `around`.
fn shell(bench: &Bench, around: &[&str], script: &str) -> Ran {
    let tool = env!("CARGO_BIN_EXE_bristlecone");
    let script = format!("bristlecone() {{ '{tool}' \"$@\"; }}\ncd \"$0\"\n{script}");
    let mut words = around.iter().copied().chain(["sh", "-c", &script]);
    let mut command = Command::new(words.next().expect("at least the shell"));
    command.args(words).arg(bench.path(""));
    Ran::of(command, b"")
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error() {
    let bench = Bench::new();
    input(&bench);
    bench.run("create @p --size 1G --tree t --key u64 --value bytes").ok();
    // Blocks of 512 bytes.
    let ran = shell(&bench, &[], "ulimit -f 16384; bristlecone load p t in.tsv");
    ran.refused(6, "File too large");
    let entries = bench.run("check @p --json").json()["entries"].as_u64().unwrap();
    assert!(entries > 1000, "{entries}");
    assert_eq!(bench.run("load @p t @in.tsv --json").json()["unchanged"], entries);
}

#[test]
fn a_limit_on_memory_is_an_error() {
    let bench = Bench::new();
    bench.run("create @p --size 64G").ok();
    // An existing pool opens with less space to grow; a pool of the default size is created smaller.
    for design in Design::ALL {
        let put = format!("ulimit -v 8000000; bristlecone info p && bristlecone put p {design} oak 7");
        bench.run(&format!("create @p --tree {design} --design {design}")).ok();
        shell(&bench, &[], &put).ok();
        bench.run(&format!("drop @p {design}")).ok();
    }
    shell(&bench, &[], "ulimit -v 8000000; bristlecone create r").ok();
    let bytes = bench.run("info @r --json").json()["max_bytes"].as_u64().unwrap();
    assert!((1 << 30..8 << 30).contains(&bytes), "{bytes}");
    assert!(bench.run("create @s --json").json()["max_bytes"].as_u64().unwrap() >= 1 << 40);
    shell(&bench, &[], "ulimit -v 8000000; bristlecone create q --size 64G").refused(1, "ulimit -v");
    assert!(!bench.path("q").exists());
}

/// With any limit on files or address space, the tool succeeds or reports the reason, and the pool stays
/// consistent.
#[test]
fn limits_of_the_process_are_errors() {
    let bench = Bench::new();
    let lines: String = (0..2000).map(|key| format!("{key}\t{}\n", "v".repeat(500))).collect();
    bench.file("few.tsv", lines);
    for &design in Design::ALL {
        let create = format!("create p --size 64M --tree t --design {design} --key u64 --value bytes");
        let limits = (3..12).map(|files| format!("ulimit -n {files}"));
        let limits = limits.chain([60_000, 120_000, 250_000, 500_000].map(|kib| format!("ulimit -v {kib}")));
        let mut refused = 0;
        for limit in limits {
            for command in [create.as_str(), "load p t few.tsv", "check p --repair q"] {
                let _ = std::fs::remove_file(bench.path("q"));
                let _ = std::fs::remove_file(bench.path("p"));
                if command != create {
                    bench.run(&create.replace(" p ", " @p ")).ok();
                }
                let ran = shell(&bench, &[], &format!("{limit}; bristlecone {command}"));
                // Without space for its libraries no program starts: the shell or the loader reports it.
                // Without memory every program ends.
                let began = ran.code != 127
                    && !["shared librar", "memory allocation of"]
                        .iter()
                        .any(|said| ran.stderr.contains(said));
                assert!(!began || [0, 1, 2, 5, 6].contains(&ran.code), "{limit}: {command}: {ran:?}");
                assert!(!ran.stderr.contains("panicked"), "{limit}: {command}: {ran:?}");
                refused += usize::from(ran.code != 0);
                let names =
                    std::fs::read_dir(bench.path("")).unwrap().map(|entry| entry.unwrap().file_name());
                let left: Vec<_> =
                    names.filter(|name| name != "p" && name != "q" && name != "few.tsv").collect();
                assert!(left.is_empty(), "{limit}: {command}: {left:?}");
                if bench.path("p").exists() {
                    bench.run("check @p").ok();
                }
                if bench.path("q").exists() {
                    bench.run("check @q").ok();
                }
            }
        }
        assert!(refused > 0, "{design}: no limit was met");
    }
}

#[test]
fn a_file_system_can_be_full_and_read_only() {
    let bench = Bench::new();
    input(&bench);
    std::fs::create_dir(bench.path("small")).unwrap();
    let script = "
        mount -t tmpfs -o size=8M none small || exit 77
        bristlecone create small/p --tree t --key u64 --value bytes > said
        bristlecone load small/p t in.tsv 2> full && exit 1
        echo $?
        bristlecone scan small/p t --count
        bristlecone check small/p
        bristlecone del small/p t 0 1 2
        bristlecone load small/p t - < /dev/null
        bristlecone dump small/p t --output small/dump 2> dump && exit 1
        echo $?
        mount -o remount,ro small
        bristlecone get small/p t 9 | wc -c
        bristlecone put small/p t 9 1 2> ro && exit 1
        echo $?
        bristlecone create small/q 2> ro && exit 1
        echo $?
        bristlecone create p && bristlecone copy p small/copied 2> copy && exit 1
        echo $?";
    let ran = shell(&bench, &["unshare", "--mount", "--map-root-user"], script);
    if ran.stderr.contains("unshare") || ran.code == 77 {
        println!("no file system can be mounted here: {}", ran.stderr);
        return;
    }
    let said = ran.ok();
    let lines: Vec<&str> = said.lines().collect();
    let entries: u64 = lines[1].parse().unwrap();
    assert!(entries > 1000, "{said}");
    assert_eq!(lines[0], "6");
    assert!(lines[2].contains(": ok"), "{said}");
    assert_eq!(lines[3..9], ["removed 3 entries", "0 entries: 0 added", "6", "1001", "1", "1"]);
    assert_eq!(lines[10..], ["1"]);
    let text = |name: &str| std::fs::read_to_string(bench.path(name)).unwrap();
    assert!(text("full").contains("the file system is full"), "{}", text("full"));
    assert!(text("dump").contains("No space left"), "{}", text("dump"));
    assert!(text("ro").contains("read-only"), "{}", text("ro"));
    // The new pool cannot be written.
    assert!(
        text("copy").contains("small/copied: ") && text("copy").contains("read-only"),
        "{}",
        text("copy")
    );
}

/// Reading a pool takes no space on its medium, and a write that finds no space is an error: in every
/// design, in seconds, with a consistent pool afterwards.
#[test]
fn a_full_medium_stops_writes_and_no_look() {
    for &design in Design::ALL {
        let bench = Bench::new();
        input(&bench);
        std::fs::create_dir(bench.path("small")).unwrap();
        let script = format!(
            "
            mount -t tmpfs -o size=16M none small || exit 77
            bristlecone create small/p --size 8G --tree t --design {design} --key u64 --value bytes > said
            head -n 100 in.tsv | bristlecone load small/p t - > said
            cat /dev/zero > small/fill 2> said
            for look in 'info small/p' 'info small/p --space' 'check small/p' 'get small/p t 7' 'scan small/p t' 'dump small/p t'; do
                bristlecone $look > said 2>&1; echo \"$look $?\"
                bristlecone $look --read-only > said 2>&1; echo \"$look $?\"
            done
            bristlecone create small/p --tree u --design {design} > said 2>&1; echo create $?
            bristlecone create small/q --size 8G > said 2>&1; echo create $?
            timeout 60 sh -c \"'$TOOL' load small/p t in.tsv\" > said 2>&1; echo load $?
            bristlecone check small/p > said 2>&1; echo check $?
            rm small/fill
            bristlecone create small/p --tree u --design {design} > said 2>&1; echo created $?
            bristlecone check small/p > said 2>&1; echo check $?
            ls small"
        );
        let tool = format!("TOOL='{}'\n{script}", env!("CARGO_BIN_EXE_bristlecone"));
        let ran = shell(&bench, &["unshare", "--mount", "--map-root-user"], &tool);
        if ran.stderr.contains("unshare") || ran.code == 77 {
            println!("no file system can be mounted here, only refused calls are tested: {}", ran.stderr);
            return;
        }
        for line in ran.ok().lines() {
            let expected = match line.split(' ').next() {
                Some("create" | "load") => " 6",
                Some("p") => "p",
                _ => " 0",
            };
            assert!(line.ends_with(expected), "{design}: {line}");
        }
    }
}

/// A `/dev/shm` with little space, as in containers, for the shared index file: no command dies of a signal, whatever
/// space is left, and none loses an entry.
#[test]
fn a_full_shared_memory_kills_no_command() {
    const STEPS: u64 = 17;
    for &design in Design::ALL {
        let bench = Bench::new();
        let lines: String = (0..40_000).map(|key| format!("{key}\t{key}\n")).collect();
        bench.file("in.tsv", lines);
        let script = format!(
            "
            medium=$(mktemp -d)
            trap 'cd /; umount $medium; rmdir $medium' EXIT
            mount -t tmpfs -o size=256M none $medium || exit 77
            cp in.tsv $medium && cd $medium && mount -t tmpfs -o size=32M none /dev/shm || exit 77
            bristlecone create p --size 128M --tree t --design {design} --key u64 --value u64 > said
            bristlecone load p t in.tsv > said || exit 1
            free=0
            while [ $free -le 4096 ]; do
                rm -f /dev/shm/fill
                space=$(df -k --output=avail /dev/shm | tail -n 1)
                head -c $(( (space - free) * 1024 )) /dev/zero > /dev/shm/fill
                bristlecone put p t 5 6 > said 2>&1; echo put $?
                (printf '7\\t7\\n'; sleep 0.05) | bristlecone load p t - --wait > said 2>&1 &
                sleep 0.02; bristlecone get p t 5 > said 2>&1; echo follow $?
                wait $!; echo load $?
                bristlecone del p t 5 > said 2>&1; echo del $?
                bristlecone put p t 5 5 > said 2>&1; echo put $?
                bristlecone check p --json > said 2>&1; echo check $?
                grep -o '\"entries\": *40000' said
                free=$((free + 256))
            done"
        );
        let ran = shell(&bench, &["unshare", "--mount", "--map-root-user"], &script);
        if ran.stderr.contains("unshare") || ran.code == 77 {
            println!("no file system can be mounted here: {}", ran.stderr);
            return;
        }
        let said = ran.ok();
        for line in said.lines().filter(|line| !line.contains("entries")) {
            let code: u32 = line.rsplit(' ').next().unwrap().parse().unwrap();
            // A follower finds no index, or no writer any more.
            assert!(code == 0 || line.starts_with("follow") && code < 100, "{design}: {line} of\n{said}");
        }
        assert_eq!(
            said.lines().filter(|line| line.contains("40000")).count() as u64,
            STEPS,
            "{design}: {said}"
        );
    }
}

/// A pool at its maximum refuses trees and writes, and stays readable; removed entries free space.
#[test]
fn a_full_pool_takes_no_tree_and_shows_all_it_has() {
    for &design in Design::ALL {
        let bench = Bench::new();
        let create = |name: &str| bench.run(&format!("create @p --tree {name} --design {design}"));
        bench.run("create @p --size 8M").ok();
        let made = (0..9).take_while(|number| create(&format!("t{number}")).code == 0).count();
        assert!((1..=4).contains(&made), "{design}: {made} trees in four chunks");
        create("more").refused(6, "the pool is full");
        for look in ["check @p", "check @p --read-only"] {
            assert!(bench.run(look).ok().contains(": ok"), "{design}");
        }
        let trees = &bench.run("info @p --json").json()["trees"];
        assert_eq!(trees.as_array().unwrap().len(), made, "{design}");
        bench.run("drop @p t0").ok();
        create("more").ok();
        bench.run("check @p").ok();
    }
}
