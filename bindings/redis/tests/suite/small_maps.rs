//! Maps that are one entry of the pool, and how they grow.

use crate::client::{Client, Reply};
use crate::server::{DESIGNS, Server};

fn encoding(c: &mut Client, key: &str) -> String {
    let info = c.run(&format!("OM.INFO {key}"));
    let words: Vec<&str> = info.split(' ').collect();
    let at = words.iter().position(|word| *word == "encoding").unwrap_or_else(|| panic!("{key}: {info}"));
    words[at + 1].to_owned()
}

fn all(c: &mut Client, key: &str) -> String {
    c.run(&format!("OM.RANGE {key} - + WITHVALUES"))
}

#[test]
fn small_maps_survive_a_kill_as_large_ones_do() {
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 256mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        for n in 0..300 {
            assert_eq!(c.run(&format!("OM.SET small{n} a {n} b {n}")), "2");
        }
        c.run("OM.SET small0 a 1 c 2");
        c.run("OM.DEL small1 a");
        c.run("OM.DEL small2 a b");
        c.run("DEL small3");
        c.run("RENAME small4 renamed");
        c.run("RENAME small5 small6");
        c.run("COPY small7 copied");
        c.run("PEXPIRE small8 100000");
        c.run("MOVE small9 3");
        c.run("OM.INCRBY small10 n 7");
        c.run("SET small11 text");
        let keys = c.run("DBSIZE");
        server.crash();
        let mut c = server.client();
        assert_eq!(
            c.run("DBSIZE"),
            (keys.parse::<u64>().unwrap() - 1).to_string(),
            "{design}: without the text"
        );
        assert_eq!(all(&mut c, "small0"), "a 1 b 0 c 2");
        assert_eq!(all(&mut c, "small1"), "b 1");
        assert_eq!(c.run("EXISTS small2 small3 small4 small5 small9 small11"), "0");
        assert_eq!(
            all(&mut c, "renamed") + &all(&mut c, "small6") + &all(&mut c, "copied"),
            "a 4 b 4a 5 b 5a 7 b 7"
        );
        assert!((1..=100_000).contains(&c.run("PTTL small8").parse::<i64>().unwrap()));
        assert_eq!(all(&mut c, "small10"), "a 10 b 10 n 7");
        for n in 12..300 {
            assert_eq!(all(&mut c, &format!("small{n}")), format!("a {n} b {n}"));
            assert_eq!(encoding(&mut c, &format!("small{n}")), "small");
        }
        c.run("SELECT 3");
        assert_eq!(all(&mut c, "small9"), "a 9 b 9");
        assert_eq!(c.run("OM.CHECK"), "");
    }
}

#[test]
fn a_map_that_outgrows_its_entry_keeps_all_fields() {
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 256mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        let mut expected = String::new();
        for n in 0..60 {
            assert_eq!(c.run(&format!("OM.SET grows {n:03} value{n}")), "1");
            expected = format!("{expected} {n:03} value{n}").trim_start().to_owned();
            assert_eq!(all(&mut c, "grows"), expected, "{design} {n}");
            assert_eq!(c.run("OM.LEN grows"), (n + 1).to_string());
        }
        assert_eq!(encoding(&mut c, "grows"), "large");
        // By one long value, by one write of many fields, and by a condition.
        c.run("OM.SET long a 1");
        c.send(&[b"OM.SET", b"long", b"b", &[b'v'; 5000]]).unwrap();
        c.run("OM.SET many a 1");
        let many: String = (0..200).map(|n| format!(" {n:03} v")).collect();
        assert_eq!(c.run(&format!("OM.SET many{many}")), "200");
        c.run("OM.SET cas a 1");
        let long = "v".repeat(300);
        assert_eq!(c.run(&format!("OM.CAS cas a 1 {long}")), "1");
        c.run("EXPIRE grows 1000");
        server.crash();
        let mut c = server.client();
        assert_eq!(all(&mut c, "grows"), expected, "{design}");
        assert!(c.run("TTL grows").parse::<i64>().unwrap() > 900);
        assert_eq!(c.run("OM.GET long a") + &c.run("OM.LEN long") + &c.run("OM.LEN many"), "12201");
        assert_eq!(c.run("OM.GET cas a"), long);
        for key in ["grows", "long", "many", "cas"] {
            assert_eq!(encoding(&mut c, key), "large", "{key}");
        }
        // One that loses its fields stays large, and is no key without one.
        assert_eq!(c.run("OM.DELRANGE many (a -") + &c.run("OM.DELRANGE many - [199"), "0200");
        assert_eq!(all(&mut c, "many") + &encoding(&mut c, "many"), "a 1large");
        c.run("OM.DEL many a");
        assert_eq!(c.run("EXISTS many") + &c.run("OM.CHECK"), "0");
    }
}

#[test]
fn a_small_map_may_have_any_name() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    let lens = [0, 1, 127, 128, 200, 240, 3000, 16_000, 16_368, 100_000, 130_000];
    for len in lens {
        let name = vec![b'n'; len];
        assert_eq!(c.send(&[b"OM.SET", &name, b"f", b"1"]).unwrap(), Reply::Number(1), "{len}");
        assert_eq!(c.send(&[b"OM.SET", b"other", b"f", b"2"]).unwrap(), Reply::Number(1), "{len}");
        let renamed = vec![b'r'; len];
        assert_eq!(c.send(&[b"RENAME", b"other", &renamed]).unwrap().text(), "OK");
        assert_eq!(c.send(&[b"PEXPIRE", &renamed, b"1000000"]).unwrap().text(), "1");
    }
    assert!(!server.log().contains("not durable"), "{}", server.log());
    server.crash();
    let mut c = server.client();
    for len in lens.into_iter().filter(|len| *len > 0) {
        let (name, renamed) = (vec![b'n'; len], vec![b'r'; len]);
        assert_eq!(c.send(&[b"OM.GET", &name, b"f"]).unwrap().text(), "1", "{len}");
        assert_eq!(c.send(&[b"OM.GET", &renamed, b"f"]).unwrap().text(), "2", "{len}");
        assert!(c.send(&[b"PTTL", &renamed]).unwrap().text().parse::<i64>().unwrap() > 0);
        assert_eq!(c.send(&[b"OM.SET", &renamed, b"g", b"3"]).unwrap(), Reply::Number(1), "{len}");
        assert_eq!(c.send(&[b"OM.MGET", &renamed, b"f", b"g"]).unwrap().text(), "2 3", "{len}");
    }
    assert_eq!(c.send(&[b"OM.GET", b"", b"f"]).unwrap().text(), "2", "the last of both");
}

#[test]
fn children_save_small_maps_as_they_were_at_the_fork() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    for n in 0..2000 {
        c.run(&format!("OM.SET k{n} f old"));
    }
    for round in 0..5 {
        c.run("BGSAVE");
        for n in (0..2000).step_by(7) {
            c.run(&format!("OM.SET k{n} f new{round}"));
        }
        c.run("OM.SET added f 1");
        server
            .wait("the child has saved", |c| c.run("INFO persistence").contains("rdb_bgsave_in_progress:0"));
        assert!(c.run("INFO persistence").contains("rdb_last_bgsave_status:ok"));
        for n in 0..2000 {
            c.run(&format!("OM.SET k{n} f old"));
        }
        c.run("DEL added");
    }
    c.run("BGSAVE");
    c.run("OM.SET k5 f later");
    server.wait("the child has saved", |c| c.run("INFO persistence").contains("rdb_bgsave_in_progress:0"));
    server.kill();
    std::fs::remove_file(server.pool()).unwrap();
    server.run();
    let mut c = server.client();
    assert_eq!(c.run("DBSIZE"), "2000");
    for n in 0..2000 {
        assert_eq!(c.run(&format!("OM.GET k{n} f")), "old", "{n}");
    }
    assert_eq!(encoding(&mut c, "k5"), "small");
    // What was loaded is in the pool.
    server.crash();
    assert_eq!(server.client().run("DBSIZE"), "2000");
}

#[test]
fn dumps_of_small_and_large_maps_are_the_same() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    c.run("OM.SET small a 1 b 2");
    let long = "v".repeat(400);
    c.run(&format!("OM.SET large a 1 b {long}"));
    c.run("OM.SET large b 2");
    assert_eq!(encoding(&mut c, "small") + &encoding(&mut c, "large"), "smalllarge");
    let dumps = ["small", "large"].map(|key| c.send(&[b"DUMP", key.as_bytes()]).unwrap());
    assert_eq!(dumps[0], dumps[1]);
    let Reply::Bytes(dump) = &dumps[0] else { panic!() };
    for ttl in [b"0".as_slice(), b"100000"] {
        assert_eq!(c.send(&[b"RESTORE", b"again", ttl, dump, b"REPLACE"]).unwrap().text(), "OK");
        assert_eq!(all(&mut c, "again") + &encoding(&mut c, "again"), "a 1 b 2small");
    }
    assert_eq!(c.run("DEBUG DIGEST-VALUE small"), c.run("DEBUG DIGEST-VALUE large"));
}

#[test]
fn figures_count_small_maps_and_their_fields() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    let figure = |c: &mut Client, name: &str| {
        let info = c.run("INFO bristlecone");
        let name = format!("bristlecone_{name}:");
        info.lines().find_map(|line| line.strip_prefix(&name)).unwrap().trim().parse::<u64>().unwrap()
    };
    for n in 0..100 {
        c.run(&format!("OM.SET k{n} a 1 b 2"));
    }
    let before = figure(&mut c, "fields");
    assert_eq!((before, figure(&mut c, "small_maps"), figure(&mut c, "maps")), (200, 100, 100));
    c.run("OM.DEL k0 a");
    c.run("OM.SET k1 c 3 d 4");
    c.run("DEL k2");
    c.run("COPY k3 k2");
    c.run("RENAME k4 k5");
    c.run("MOVE k6 1");
    assert_eq!((figure(&mut c, "fields"), figure(&mut c, "small_maps")), (199, 99));
    let large: String = (0..300).map(|n| format!(" {n} v")).collect();
    c.run(&format!("OM.SET k7{large}"));
    server.wait("one has grown", |c| figure(c, "fields") == 499 && figure(c, "small_maps") == 98);
    let bytes = c.run("MEMORY USAGE k8").parse::<u64>().unwrap();
    assert!((32..300).contains(&bytes), "{bytes}");
    c.run("FLUSHALL");
    server.wait("all is freed", |c| figure(c, "fields") == 0 && figure(c, "small_maps") == 0);
}

#[test]
fn groups_of_commands_undo_growth() {
    let Some(mut server) = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]) else { return };
    let mut c = server.client();
    c.run("OM.SET m a 1");
    c.run("SET s 1");
    let long = "v".repeat(400);
    c.run("MULTI");
    c.run(&format!("OM.SET m b {long}"));
    c.run("OM.SET new a 1");
    c.run("SET s 2");
    c.run("DEBUG SEGFAULT");
    let words: [&[u8]; 1] = [b"EXEC"];
    assert!(c.send(&words).is_err());
    server.kill();
    server.run();
    let mut c = server.client();
    assert_eq!(all(&mut c, "m") + &encoding(&mut c, "m"), "a 1small");
    assert_eq!(c.run("GET s") + &c.run("EXISTS new") + &c.run("OM.CHECK"), "10");
}
