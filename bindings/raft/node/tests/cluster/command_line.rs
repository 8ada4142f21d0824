//! `raftmap` as its users call it.

use std::process::Command;

use crate::hosts::Hosts;
use crate::nodes::{Nodes, folder};

/// Calls `raftmap`; returns its exit code and what it wrote to both outputs.
fn raftmap(arguments: &[&str]) -> (i32, String) {
    let ended = Command::new(env!("CARGO_BIN_EXE_raftmap")).args(arguments).output().expect("raftmap");
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.code().expect("an exit code"), String::from_utf8(said).expect("text"))
}

#[test]
fn cluster_is_used_from_the_command_line() {
    let mut nodes = Nodes::new(Hosts::Loopback { port: 23_300 }, folder(false), &["--max-bytes", "1G"]);
    (1..=4).for_each(|node| nodes.start(node));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for node in 1..=4 {
            nodes.wait_for(node, "answer", |_| true).await;
        }
    });
    let member = |node: u64| format!("{node}={}", nodes.address(node));
    assert_eq!(raftmap(&["init", &member(1), &member(2), &member(3)]), (0, String::new()));
    let (code, said) = raftmap(&["init", &member(1)]);
    assert!(code == 1 && said.contains("not allowed to initialize"), "{said}");

    let all = format!("--nodes={},{},{}", nodes.address(1), nodes.address(2), nodes.address(3));
    let call = |arguments: &[&str]| raftmap(&[arguments, &[&all]].concat());
    let nothing = || (0, String::new());
    assert_eq!(call(&["put", "larch", "1"]), nothing());
    assert_eq!(call(&["put", "oak", "2"]), nothing());
    assert_eq!(call(&["put", "pine", "3"]), nothing());
    assert_eq!(call(&["get", "oak"]), (0, "2\n".to_owned()));
    assert_eq!(call(&["range", "--from", "m", "--limit", "1"]), (0, "oak\t2\n".to_owned()));
    assert_eq!(call(&["range", "--to", "oak"]), (0, "larch\t1\n".to_owned()));
    assert_eq!(call(&["cas", "oak", "--expect", "2", "--set", "4"]), nothing());
    let (code, said) = call(&["cas", "oak", "--expect", "2", "--set", "5"]);
    assert!(code == 1 && said.contains("the key has the value \"4\": nothing has changed"), "{said}");
    assert_eq!(call(&["cas", "yew", "--set", "6"]), nothing());
    assert_eq!(call(&["cas", "yew", "--expect", "6"]), nothing());
    assert_eq!(call(&["delete", "larch"]), (0, "1\n".to_owned()));
    for absent in [&["delete", "larch"][..], &["get", "larch"], &["cas", "larch", "--expect", "1"]] {
        let (code, said) = call(absent);
        assert!(code == 1 && said.contains("the key is absent"), "{said}");
    }
    let (code, said) = call(&["put", &"k".repeat(20_000), "v"]);
    assert!(code == 1 && said.contains("a key of 20000 bytes is too long"), "{said}");

    assert_eq!(call(&["add", &member(4)]), nothing());
    assert_eq!(call(&["remove", "1"]), nothing());
    nodes.kill(1);
    assert_eq!(call(&["get", "oak"]), (0, "4\n".to_owned()));
    let others = format!("--nodes={},{}", nodes.address(3), nodes.address(4));
    let (code, said) = raftmap(&["status", &others]);
    assert!(code == 0 && said.lines().count() == 2 && said.contains("voters: {2: "), "{said}");
    let (code, said) = call(&["status"]);
    assert!(code == 1 && said.contains(&format!("raftmap: {}", nodes.address(1))), "{said}");
}

#[test]
fn bad_arguments_are_refused_with_a_hint() {
    let start = ["start", "--id", "1", "--listen", "127.0.0.1:0", "--folder"];
    let unreachable = ["--nodes=127.0.0.1:9", "--timeout=1"];
    for (arguments, hint) in [
        (vec!["init"], "<MEMBERS>"),
        (vec!["init", "one"], "expected ID=ADDRESS"),
        (vec!["init", "1=127.0.0.1"], "expected ID=ADDRESS"),
        (vec!["get", "k"], "--nodes"),
        (["get", "k"].into_iter().chain(unreachable).collect(), "no leader answered in 1s"),
        (["put", "k", "v"].into_iter().chain(unreachable).collect(), "no leader answered in 1s"),
        (start.into_iter().chain(["/proc/nowhere"]).collect(), "/proc/nowhere"),
        (start.into_iter().chain(["/x", "--design", "btree"]).collect(), "unknown design \"btree\""),
        (start.into_iter().chain(["/x", "--domain", "disk"]).collect(), "expected process, adr"),
        (start.into_iter().chain(["/x", "--snapshot-every", "0"]).collect(), "--snapshot-every"),
    ] {
        let (code, said) = raftmap(&arguments);
        assert!(code != 0 && said.contains(hint), "{arguments:?}: {said}");
    }
}
