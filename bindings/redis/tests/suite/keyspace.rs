//! What the server does with keys that are maps, and what of it is there after a crash.

use crate::client::Reply;
use crate::server::Server;

fn fill(c: &mut crate::client::Client, key: &str, fields: usize) {
    for first in (0..fields).step_by(100) {
        let fields: String = (first..fields.min(first + 100)).map(|n| format!(" {n:05} {key}{n}")).collect();
        c.run(&format!("OM.SET {key}{fields}"));
    }
}

#[test]
fn keys_are_as_they_were_after_a_crash() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    for key in [
        "kept",
        "deleted",
        "unlinked",
        "renamed",
        "covered",
        "copied",
        "moved",
        "timed",
        "persisted",
        "overwritten",
        "replaced",
    ] {
        fill(&mut c, key, 250);
    }
    for (command, reply) in [
        ("DEL deleted", "1"),
        ("UNLINK unlinked", "1"),
        ("RENAME renamed covered", "OK"),
        ("COPY copied copy", "1"),
        ("MOVE moved 3", "1"),
        ("EXPIRE timed 1000", "1"),
        ("EXPIRE persisted 1000", "1"),
        ("PERSIST persisted", "1"),
        ("SET overwritten 1", "OK"),
        ("COPY kept replaced REPLACE", "1"),
        ("COPY timed afar DB 2", "1"),
        ("OM.SET copy 00000 changed", "0"),
    ] {
        assert_eq!(c.run(command), reply, "{command}");
    }
    for round in 0..3 {
        let mut c = server.client();
        for (key, first) in [
            ("kept", "kept0"),
            ("covered", "renamed0"),
            ("copied", "copied0"),
            ("copy", "changed"),
            ("timed", "timed0"),
            ("persisted", "persisted0"),
            ("replaced", "kept0"),
        ] {
            assert_eq!(c.run(&format!("OM.GET {key} 00000")), first, "round {round}");
            assert_eq!(c.run(&format!("OM.LEN {key}")), "250", "{key}, round {round}");
        }
        for key in ["deleted", "unlinked", "renamed", "moved"] {
            assert_eq!(c.run(&format!("EXISTS {key}")), "0", "{key}, round {round}");
        }
        assert_eq!(c.run("TYPE overwritten"), if round == 0 { "string" } else { "none" });
        assert!((1..=1000).contains(&c.run("TTL timed").parse().unwrap()));
        assert_eq!(c.run("TTL persisted"), "-1");
        assert_eq!(c.run("SELECT 3") + &c.run("OM.GET moved 00249"), "OKmoved249");
        assert_eq!(c.run("SELECT 2") + &c.run("OM.LEN afar"), "OK250");
        assert!((1..=1000).contains(&c.run("TTL afar").parse().unwrap()));
        server.wait("the maps that no key has are freed", |c| {
            let info = c.run("INFO bristlecone");
            info.contains("bristlecone_maps:9\r") && info.contains("bristlecone_fields:2250\r")
        });
        assert_eq!(server.client().run("OM.CHECK"), "");
        server.crash();
    }
}

#[test]
fn flushed_databases_stay_flushed_and_swapped_ones_swapped() {
    for how in ["SYNC", "ASYNC"] {
        let Some(mut server) = Server::start(&[]) else { return };
        let mut c = server.client();
        for db in 0..4 {
            c.run(&format!("SELECT {db}"));
            for map in 0..20 {
                fill(&mut c, &format!("map{map}of{db}-"), 100);
            }
        }
        assert_eq!(c.run("SELECT 1") + &c.run(&format!("FLUSHDB {how}")) + &c.run("DBSIZE"), "OKOK0");
        assert_eq!(c.run("OM.SET after a 1") + &c.run("SWAPDB 0 1"), "1OK");
        server.crash();
        let mut c = server.client();
        assert_eq!(c.run("DBSIZE") + &c.run("OM.GET after a"), "11");
        assert_eq!(c.run("SELECT 1") + &c.run("DBSIZE") + &c.run("OM.LEN map7of0-"), "OK20100");
        assert_eq!(c.run("SELECT 3") + &c.run("DBSIZE"), "OK20");
        server.wait("the flushed database is freed", |c| {
            c.run("INFO bristlecone").contains("bristlecone_fields:6001\r")
        });
        let mut c = server.client();
        assert_eq!(c.run(&format!("FLUSHALL {how}")), "OK");
        server.crash();
        let mut c = server.client();
        assert_eq!(c.run("INFO keyspace").trim(), "# Keyspace");
        server.wait("all is freed", |c| {
            let info = c.run("INFO bristlecone");
            info.contains("bristlecone_maps:0\r") && info.contains("bristlecone_fields:0\r")
        });
        assert_eq!(c.run("OM.SET again a 1") + &c.run("OM.CHECK"), "1");
    }
}

#[test]
fn expired_and_evicted_maps_do_not_come_back() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    fill(&mut c, "short", 100);
    fill(&mut c, "long", 100);
    c.run("PEXPIRE short 30");
    c.run("PEXPIRE long 100000");
    server.wait("the map expires", |c| c.run("EXISTS short") == "0");
    fill(&mut c, "late", 100);
    c.run("PEXPIRE late 50");
    server.kill();
    std::thread::sleep(std::time::Duration::from_millis(80));
    server.run();
    let mut c = server.client();
    assert_eq!(c.run("EXISTS short late") + &c.run("OM.LEN long"), "0100");
    for n in 0..50 {
        fill(&mut c, &format!("evicted{n}"), 10);
    }
    c.run("CONFIG SET maxmemory-policy allkeys-random");
    c.run("CONFIG SET maxmemory 1");
    assert!(c.run("OM.SET x a 1").starts_with("OOM"));
    server.crash();
    server
        .wait("what was evicted is freed", |c| c.run("INFO bristlecone").contains("bristlecone_fields:0\r"));
}

#[test]
fn dump_and_restore_carry_a_map() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    fill(&mut c, "m", 20_000);
    let Reply::Bytes(dump) = c.send(&[b"DUMP", b"m"]).unwrap() else { panic!() };
    assert_eq!(c.send(&[b"RESTORE", b"n", b"0", &dump]).unwrap().text(), "OK");
    assert_eq!(c.send(&[b"RESTORE", b"t", b"500000", &dump]).unwrap().text(), "OK");
    assert!(c.send(&[b"RESTORE", b"n", b"0", &dump]).unwrap().text().starts_with("BUSYKEY"));
    assert_eq!(c.run("OM.SET n 00000 changed"), "0");
    assert_eq!(c.send(&[b"RESTORE", b"n", b"0", &dump, b"REPLACE"]).unwrap().text(), "OK");
    let digest = c.run("DEBUG DIGEST-VALUE m");
    for _ in 0..2 {
        let mut c = server.client();
        assert_eq!(c.run("DEBUG DIGEST-VALUE n"), digest);
        assert_eq!(c.run("OM.RANGE t - + WITHVALUES LIMIT -1"), c.run("OM.RANGE m - + WITHVALUES LIMIT -1"));
        assert!(c.run("TTL t").parse::<i64>().unwrap() > 300);
        server.crash();
    }
}

#[test]
fn keyspace_events_are_sent() {
    let Some(server) = Server::start(&["--notify-keyspace-events", "KEA"]) else { return };
    let (mut listener, mut c) = (server.client(), server.client());
    assert!(listener.run("SUBSCRIBE __keyspace@0__:m").contains("subscribe"));
    c.run("OM.SET m a 1");
    assert_eq!(listener.run("PING"), "message __keyspace@0__:m om.set");
}

#[test]
fn maps_that_a_group_moves_or_creates_are_in_their_databases() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    for name in ["moved", "copied", "scripted"] {
        c.run(&format!("OM.SET {name} a 1"));
    }
    let group = ["MULTI", "MOVE moved 2", "COPY copied copied DB 3", "SELECT 4", "OM.SET created a 1"];
    for command in group.into_iter().chain(["RENAME created renamed", "SELECT 0", "EXEC"]) {
        c.run(command);
    }
    c.send(&[
        b"EVAL",
        b"redis.call('MOVE', 'scripted', 5) redis.call('SELECT', 6) redis.call('OM.SET', 'new', 'a', 1)",
        b"0",
    ])
    .unwrap();
    server.crash();
    let mut c = server.client();
    let places = ["0 copied", "2 moved", "3 copied", "4 renamed", "5 scripted", "6 new"];
    for (db, name) in places.map(|place| place.split_once(' ').unwrap()) {
        assert_eq!(c.run(&format!("SELECT {db}")) + &c.run("KEYS *"), format!("OK{name}"), "database {db}");
    }
}
