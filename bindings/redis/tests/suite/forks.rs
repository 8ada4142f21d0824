//! Children of the server: what they save is what was there when the server forked.

use crate::client::Client;
use crate::server::Server;

/// Returns the sum of the two fields that each transfer leaves as it was, in a server that loads only the file.
fn total_of_file(server: &mut Server) -> i64 {
    server.kill();
    std::fs::remove_file(server.pool()).unwrap();
    server.run();
    let mut c = server.client();
    let values = c.run("OM.MGET bank left right");
    assert_eq!(c.run("OM.LEN large"), "30000");
    values.split(' ').map(|value| value.parse::<i64>().unwrap()).sum()
}

fn fill(c: &mut Client) {
    c.run("OM.SET bank left 1000000 right 0");
    for first in (0..30_000).step_by(500) {
        let fields: String = (first..first + 500).map(|n| format!(" {n:05} {}", "x".repeat(80))).collect();
        c.run(&format!("OM.SET large{fields}"));
    }
}

/// Transfers from left to right while `until` does not hold.
fn transfer(c: &mut Client, mut until: impl FnMut(&mut Client) -> bool) {
    for n in 1.. {
        c.run(&format!("OM.SET bank left {} right {n}", 1_000_000 - n));
        c.run(&format!("OM.SET large {:05} changed", n % 30_000));
        if n % 16 == 0 && until(c) {
            return;
        }
    }
}

#[test]
fn bgsave_under_load_has_the_state_of_the_fork() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    fill(&mut c);
    let before = c.run("OM.GET bank right");
    assert!(c.run("BGSAVE").contains("started"));
    transfer(&mut c, |c| c.run("INFO persistence").contains("rdb_bgsave_in_progress:0"));
    assert!(c.run("INFO persistence").contains("rdb_last_bgsave_status:ok"), "{}", server.log());
    assert_eq!(total_of_file(&mut server), 1_000_000);
    assert_eq!(server.client().run("OM.GET bank right"), before, "the state of the fork and no later one");
    assert!(!server.client().run("OM.MGET large 00001 00002 00100").contains("changed"));
}

#[test]
fn rewriting_the_append_only_file_under_load_loses_nothing() {
    for preamble in ["yes", "no"] {
        let arguments =
            ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", preamble];
        let Some(mut server) = Server::start(&arguments) else { return };
        let mut c = server.client();
        fill(&mut c);
        assert!(c.run("BGREWRITEAOF").contains("started"));
        transfer(&mut c, |c| c.run("INFO persistence").contains("aof_rewrite_in_progress:0"));
        assert!(c.run("INFO persistence").contains("aof_last_bgrewrite_status:ok"), "{}", server.log());
        let (last, digest) = (c.run("OM.GET bank right"), c.run("DEBUG DIGEST"));
        assert_eq!(total_of_file(&mut server), 1_000_000);
        let mut c = server.client();
        assert_eq!(c.run("OM.GET bank right"), last);
        assert_eq!(c.run("DEBUG DIGEST"), digest);
    }
}

#[test]
fn a_child_that_is_killed_leaves_the_server_as_it_was() {
    let Some(server) = Server::start(&["--rdb-key-save-delay", "1000000"]) else { return };
    let mut c = server.client();
    fill(&mut c);
    for _ in 0..3 {
        c.run("BGSAVE");
        c.run("OM.SET bank left 1 right 999999");
        c.run("CONFIG SET rdb-key-save-delay 0");
        assert_eq!(c.run("OM.LEN large"), "30000");
        server.wait("the child is gone", |c| {
            c.run("DEBUG SLEEP 0");
            let info = c.run("INFO persistence");
            if info.contains("rdb_bgsave_in_progress:1") {
                c.run("FLUSHALL");
                c.run("OM.SET bank left 1 right 999999");
            }
            info.contains("rdb_bgsave_in_progress:0")
        });
        fill(&mut c);
        c.run("CONFIG SET rdb-key-save-delay 1000000");
    }
    assert_eq!(c.run("OM.CHECK") + &c.run("PING"), "PONG");
}

#[test]
fn debug_reload_returns_the_same_maps() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    fill(&mut c);
    c.run("EXPIRE bank 10000");
    let digest = c.run("DEBUG DIGEST");
    assert_eq!(c.run("DEBUG RELOAD"), "OK");
    assert_eq!(c.run("DEBUG DIGEST"), digest);
    server.crash();
    let mut c = server.client();
    assert_eq!(c.run("DEBUG DIGEST"), digest);
    assert!(c.run("TTL bank").parse::<i64>().unwrap() > 9000);
}
