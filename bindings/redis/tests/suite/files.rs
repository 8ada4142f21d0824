//! The server's own files beside the pool: nothing that was acknowledged is lost or comes back, whatever type it has, and the
//! files are backups of the maps.

use std::path::PathBuf;

use crate::client::Client;
use crate::server::{DESIGNS, Server};

const AOF: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Returns each key with its type and contents.
fn contents(c: &mut Client) -> Vec<String> {
    let mut keys: Vec<String> = c.run("KEYS *").split_whitespace().map(str::to_owned).collect();
    keys.sort();
    let of = |key: &String| {
        let kind = c.run(&format!("TYPE {key}"));
        let read = match kind.as_str() {
            "string" => format!("GET {key}"),
            "list" => format!("LRANGE {key} 0 -1"),
            "hash" => format!("HGETALL {key}"),
            _ => format!("OM.RANGE {key} - + WITHVALUES"),
        };
        format!("{key} {kind} {}", c.run(&read))
    };
    keys.iter().map(of).collect()
}

fn rewrite(server: &Server) {
    server.client().run("BGREWRITEAOF");
    server.wait("the file is rewritten", |c| {
        let info = c.run("INFO persistence");
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    });
}

/// Commands that make maps, and then, with the maps in the rewritten file, commands on their names.
const NAMES: [(&str, &[&str]); 14] = [
    ("OM.SET a f v", &["OM.DEL a f", "SET a acknowledged NX"]),
    ("OM.SET b f v", &["OM.POPMIN b", "LPUSH b acknowledged"]),
    ("OM.SET c f v", &["OM.DELRANGE c - +", "HSET c acknowledged 1"]),
    ("OM.SET d f v", &["OM.DEL d f", "SET d1 acknowledged", "RENAMENX d1 d"]),
    ("OM.SET e f v", &["OM.POPMAX e", "HSET e1 acknowledged 1", "COPY e1 e"]),
    ("HSET f old 1", &["OM.SET f1 f v", "RENAME f1 f", "OM.DEL f f"]),
    ("OM.SET g f v", &["DEL g", "LPUSH g x"]),
    ("OM.SET h f v", &["OM.CAS h f IF v DEL", "SET h acknowledged NX"]),
    ("HSET i old 1", &["OM.SET i1 f v", "COPY i1 i REPLACE", "OM.POPMIN i"]),
    ("OM.SET j f v", &["RENAME j j1", "SET j acknowledged NX", "OM.DEL j1 f", "SET j1 acknowledged NX"]),
    ("OM.SET k f v", &["COPY k k1", "OM.DEL k f", "OM.DEL k1 f", "APPEND k x", "APPEND k1 y"]),
    (
        "SET l old",
        &["OM.SET l1 f v", "RENAME l1 l", "RENAME l l2", "SET l new NX", "OM.POPMIN l2", "APPEND l2 z"],
    ),
    ("OM.SET m f v", &["SET m acknowledged", "DEL m", "OM.SET m f again"]),
    ("OM.SET n f v", &["EVAL redis.call('OM.DEL',KEYS[1],'f');redis.call('SET',KEYS[1],'x','NX') 1 n"]),
];

#[test]
fn names_that_maps_had_keep_what_was_acknowledged() {
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 256mb design {design}"), &AOF) else {
            return;
        };
        let mut c = server.client();
        NAMES.iter().for_each(|(command, _)| drop(c.run(command)));
        rewrite(&server);
        for command in NAMES.iter().flat_map(|(_, commands)| *commands) {
            let reply = c.run(command);
            assert!(!reply.contains("ERR") && !reply.contains("WRONGTYPE"), "{command}: {reply}");
        }
        let before = contents(&mut c);
        assert_eq!(before.len(), 17, "{before:?}");
        server.crash();
        assert_eq!(contents(&mut server.client()), before, "{design}");
        server.shut_down("SHUTDOWN");
        server.run();
        assert_eq!(contents(&mut server.client()), before, "{design}");
        // The file alone has the same: it is a backup.
        server.shut_down("SHUTDOWN");
        std::fs::remove_file(server.pool()).unwrap();
        server.run();
        assert_eq!(contents(&mut server.client()), before, "{design}");
    }
}

fn reboot(server: &mut Server) -> Vec<String> {
    server.shut_down("SHUTDOWN");
    std::fs::remove_file(server.pool()).unwrap();
    server.run();
    contents(&mut server.client())
}

#[test]
fn an_append_only_file_that_is_switched_on_between_starts_has_all_maps() {
    let Some(mut server) = Server::start(&[]) else { return };
    server.client().run("OM.SET old a 1 b 2");
    server.shut_down("SHUTDOWN");
    server.arguments = AOF.map(str::to_owned).to_vec();
    server.run();
    server.client().run("OM.SET old c 3");
    assert!(server.log().contains("1 maps of the pool are appended"));
    assert_eq!(reboot(&mut server), ["old bristlmap a 1 b 2 c 3"]);
    // The file is complete, so nothing is rewritten again.
    server.shut_down("SHUTDOWN");
    server.run();
    server.client().run("OM.SET old d 4");
    assert_eq!(server.log().matches("are appended").count(), 1);
    assert_eq!(reboot(&mut server), ["old bristlmap a 1 b 2 c 3 d 4"]);
}

#[test]
fn a_file_that_a_crash_left_behind_the_pool_is_written_again() {
    let Some(mut server) = Server::start(&AOF) else { return };
    let mut c = server.client();
    c.run("OM.SET keep a 1");
    c.run("OM.SET victim a 1");
    // In one turn of the server: the pool has them, and the file does not.
    for words in [["DEL", "victim", "", ""], ["OM.SET", "other", "a", "1"], ["DEBUG", "SEGFAULT", "", ""]] {
        let words: Vec<&[u8]> =
            words.iter().filter(|word| !word.is_empty()).map(|word| word.as_bytes()).collect();
        c.ask(&words).unwrap();
    }
    while c.read().is_ok() {}
    server.kill();
    server.run();
    let served = contents(&mut server.client());
    assert_eq!(reboot(&mut server), served);

    // Many maps are rewritten in the background.
    let Some(mut server) = Server::start(&AOF) else { return };
    let mut c = server.client();
    for n in 0..120 {
        let fields: Vec<String> = (0..100).map(|field| format!("{field} {n}")).collect();
        c.run(&format!("OM.SET map{n} {}", fields.join(" ")));
    }
    server.crash();
    server.wait("the file is rewritten", |c| {
        let info = c.run("INFO persistence");
        info.contains("aof_rewrites:1\r") && info.contains("aof_rewrite_in_progress:0")
    });
    assert!(server.log().contains("rewritten once"));
    let served = contents(&mut server.client());
    assert_eq!(served.len(), 120);
    assert_eq!(reboot(&mut server), served);

    // With save points the RDB file is written.
    let Some(mut server) = Server::start(&["--save", "3600 1000"]) else { return };
    server.client().run("OM.SET keep a 1");
    server.crash();
    server.wait("the file is written", |c| {
        let info = c.run("INFO persistence");
        info.contains("rdb_saves:1\r") && info.contains("rdb_bgsave_in_progress:0")
    });
    assert!(server.log().contains("written once"));
    server.shut_down("SHUTDOWN NOSAVE");
    std::fs::remove_file(server.pool()).unwrap();
    server.run();
    assert_eq!(contents(&mut server.client()), ["keep bristlmap a 1"]);
}

/// Changes the bytes of a value in the pool of a server that is not running.
fn damage(server: &Server, value: &[u8]) {
    let mut bytes = std::fs::read(server.pool()).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - value.len()).filter(|at| bytes[*at..].starts_with(value)).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[*at] ^= 1);
    std::fs::write(server.pool(), bytes).unwrap();
}

#[test]
fn a_save_that_meets_damage_fails_and_keeps_the_file() {
    for design in DESIGNS {
        let module = format!("max-bytes 256mb design {design}");
        let Some(mut server) =
            Server::start_with(&module, &["--save", "3600 1000", "--stop-writes-on-bgsave-error", "no"])
        else {
            return;
        };
        let mut c = server.client();
        c.run("SET ordinary value");
        c.run("OM.SET whole a 1");
        // It is a large map.
        let value = "0123456789".repeat(30);
        c.run(&format!("OM.SET hurt a 1 b {value}"));
        assert_eq!(c.run("SAVE"), "OK");
        server.kill();
        damage(&server, value.as_bytes());
        let file: PathBuf = server.dir.join("dump.rdb");
        let good = std::fs::read(&file).unwrap();
        server.run();
        let mut c = server.client();
        c.run("BGSAVE");
        server.wait("the child ends", |c| c.run("INFO persistence").contains("rdb_bgsave_in_progress:0"));
        assert!(c.run("INFO persistence").contains("rdb_last_bgsave_status:err"), "{design}");
        c.run("SET ordinary another");
        assert!(c.run("SAVE").starts_with("ERR"), "{design}");
        assert!(c.run("SHUTDOWN SAVE").starts_with("ERR"), "{design}");
        assert!(server.log().contains("the RDB file stays as it was"), "{design}");
        assert_eq!(std::fs::read(&file).unwrap(), good, "{design}");
        let unfinished = std::fs::read_dir(&server.dir)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("temp-"));
        assert_eq!(unfinished.count(), 0, "{design}");
        // Without the damaged map it works.
        assert_eq!(c.run("DEL hurt") + &c.run("SAVE"), "1OK");
        server.shut_down("SHUTDOWN SAVE");
        server.run();
        assert_eq!(contents(&mut server.client()), ["ordinary string another", "whole bristlmap a 1"]);
    }
}

#[test]
fn damage_is_an_error_and_a_log_line_and_nothing_is_deleted() {
    // The maps are large ones.
    let value = "0123456789".repeat(30);
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 256mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        c.run("OM.SET whole a 1");
        c.run(&format!("OM.SET first a {value}"));
        c.run(&format!("OM.SET many a 1 b {value} c 3"));
        server.kill();
        damage(&server, value.as_bytes());
        server.run();
        assert!(server.log().contains("\"first\""), "{design}: {}", server.log());
        for _ in 0..2 {
            let mut c = server.client();
            for command in [
                "OM.GET first a",
                "OM.MGET many a b",
                "OM.EXISTS many b",
                "OM.INCRBY many b 1",
                "OM.CAS many b 1 2",
                "OM.CAS many b IFABSENT SET 2",
                "OM.SET many b 1 NX",
                "OM.SET many b 1 c 4 XX",
                "OM.DEL many a b",
                "OM.RANGE many - + WITHVALUES",
                "OM.RANGE many + - REV",
                "OM.DELRANGE many - +",
                "OM.POPMIN first",
                "OM.POPMAX many 2",
                "OM.SCAN many 0",
                "OM.LEN many",
                "OM.COUNT many - +",
                "OM.RANK many c",
                "OM.GETDEL many b",
                "OM.INCRBYFLOAT many b 1",
                "OM.BPOPMIN first 0",
                "OM.RANGESTORE whole many - +",
                "OM.MERGE whole many",
                "COPY many other",
            ] {
                let reply = c.run(command);
                let is_error = reply.starts_with("ERR") || reply.contains("corrupted");
                assert!(is_error, "{design}: {command}: {reply}");
            }
            assert_eq!(c.run("OM.MGET many a c"), "1 3", "{design}");
            // Fields without values: all of them, or an error.
            let fields = c.run("OM.RANGE many - +");
            assert!(fields == "a b c" || fields.starts_with("ERR"), "{design}: {fields}");
            assert_eq!(c.run("OM.RANGE many - [a"), "a", "{design}");
            assert_eq!(c.run("OM.RANGE whole - + WITHVALUES"), "a 1", "{design}");
            assert_eq!(c.run("EXISTS first many whole other"), "3", "{design}");
            assert!(c.run("OM.CHECK").contains("checksum"), "{design}");
            assert!(server.log().contains("bristlecone check --repair"), "{design}");
            server.crash();
        }
    }
}

#[test]
fn a_damaged_map_is_repaired_to_what_can_be_read() {
    let value = "0123456789".repeat(30);
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 256mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        c.run("OM.SET whole a 1");
        c.run(&format!("OM.SET many a 1 b {value} c 3"));
        c.run("EXPIRE many 1000");
        c.run(&format!("OM.SET only a {value}"));
        server.kill();
        damage(&server, value.as_bytes());
        server.run();
        let mut c = server.client();
        let reply = c.run("OM.REPAIR many");
        assert!(reply.starts_with("2 ") && reply.contains("checksum"), "{design}: {reply}");
        assert_eq!(c.run("OM.RANGE many - + WITHVALUES") + &c.run("OM.LEN many"), "a 1 c 32", "{design}");
        assert!(c.run("TTL many").parse::<i64>().unwrap() > 900);
        assert_eq!(c.run("OM.REPAIR many") + &c.run("OM.REPAIR none"), "2 nilnil");
        assert!(c.run("OM.REPAIR only").starts_with("0 "));
        assert_eq!(c.run("EXISTS only") + &c.run("OM.REPAIR whole"), "01 nil");
        server.crash();
        let mut c = server.client();
        assert_eq!(c.run("OM.RANGE many - + WITHVALUES") + &c.run("EXISTS only"), "a 1 c 30", "{design}");
        assert!(c.run("TTL many").parse::<i64>().unwrap() > 900);
    }
}

#[test]
fn a_damaged_entry_of_a_small_map_refuses_the_start() {
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 256mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        c.run("OM.SET whole a 1");
        c.run("OM.SET hurt a 012345678901234567890123456789");
        server.kill();
        damage(&server, b"012345678901234567890123456789");
        let log = server.run_refused();
        assert!(log.contains("check --repair"), "{design}: {log}");
    }
}
