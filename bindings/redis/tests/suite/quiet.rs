//! What commands leave alone: `WATCH`, caches of clients, replicas; and what the module reports of itself.

use crate::client::Client;
use crate::server::{DESIGNS, Server};

fn value_of(c: &mut Client, field: &str) -> u64 {
    let info = c.run("INFO bristlecone");
    let name = format!("bristlecone_{field}:");
    let line =
        info.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("{field}: {info}"));
    line.trim().parse().unwrap()
}

/// Commands that change nothing of `m`, which has `a` and `b`.
const QUIET: [&str; 33] = [
    "OM.CAS m a wrong new",
    "OM.CAS m x IF 1 SET 2",
    "OM.CAS m x IF 1 DEL",
    "OM.CAS m x IFABSENT DEL",
    "OM.CAS m a IFABSENT SET 2",
    "OM.SET m a 9 NX",
    "OM.SET m a 9 x 9 NX",
    "OM.SET m x 9 XX",
    "OM.DEL m x",
    "OM.DEL m x y",
    "OM.DELRANGE m [x +",
    "OM.DELRANGE m - + LIMIT 0",
    "OM.POPMIN m 0",
    "OM.POPMAX m 0",
    "OM.INCRBY m t 1",
    "OM.GET m a",
    "OM.MGET m a x",
    "OM.RANGE m - +",
    "OM.SCAN m 0",
    "OM.LEN m",
    "OM.EXISTS m a",
    "OM.INFO m",
    "OM.CHECK",
    "MEMORY USAGE m",
    "OM.COUNT m - +",
    "OM.RANK m a",
    "OM.GETDEL m x",
    "OM.GETDEL none x",
    "OM.INCRBYFLOAT m t 1",
    "OM.MERGE none none",
    "OM.MERGE m none",
    "OM.RANGESTORE none m [x +",
    "OM.REPAIR m",
];

const LOUD: [&str; 14] = [
    "OM.SET m a 2",
    "OM.SET m c 3 d 4",
    "OM.INCRBY m n 1",
    "OM.CAS m a 2 3",
    "OM.CAS m e IFABSENT SET 5",
    "OM.CAS m e IF 5 DEL",
    "OM.DEL m c",
    "OM.DELRANGE m - [a",
    "OM.POPMAX m",
    "OM.INCRBYFLOAT m f 0.5",
    "OM.GETDEL m f",
    "OM.MERGE m m",
    "OM.RANGESTORE m m - + LIMIT 1",
    "OM.BPOPMIN m 0",
];

#[test]
fn only_changes_break_a_watch() {
    for design in DESIGNS {
        let Some(server) = Server::start_with(&format!("design {design}"), &[]) else { return };
        let (mut c, mut other) = (server.client(), server.client());
        c.run("OM.SET m a 1 b 2 t text");
        let mut watched = |command: &str| {
            c.run("WATCH m");
            other.run(command);
            c.run("MULTI");
            c.run("PING");
            c.run("EXEC")
        };
        for command in QUIET {
            assert_eq!(watched(command), "PONG", "{design}: {command}");
        }
        for command in LOUD {
            assert_eq!(watched(command), "nil", "{design}: {command}");
        }
    }
}

/// Checks that a figure of `INFO persistence` grows with what changes the map, and with nothing else.
fn only_changes_raise(figure: &str, arguments: &[&str]) {
    for design in DESIGNS {
        let Some(server) = Server::start_with(&format!("design {design}"), arguments) else { return };
        let mut c = server.client();
        c.run("OM.SET m a 1 b 2 t text");
        let mut after = |command: &str| {
            c.run(command);
            let info = c.run("INFO persistence");
            let line = info.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':')).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        let mut last = after("PING");
        for command in QUIET {
            assert_eq!(after(command), last, "{design}: {command}");
        }
        for command in LOUD {
            let now = after(command);
            assert!(now > last, "{design}: {command}");
            last = now;
        }
    }
}

#[test]
fn only_changes_are_replicated() {
    only_changes_raise("aof_current_size", &["--appendonly", "yes", "--appendfsync", "no"]);
}

#[test]
fn only_changes_make_the_data_set_dirty() {
    only_changes_raise("rdb_changes_since_last_save", &[]);
}

#[test]
fn only_changes_reach_the_caches_of_clients() {
    let Some(server) = Server::start(&[]) else { return };
    let (mut cache, mut reader, mut other) = (server.client(), server.client(), server.client());
    let id = cache.run("CLIENT ID");
    cache.run("SUBSCRIBE __redis__:invalidate");
    cache.run("SUBSCRIBE mark");
    assert_eq!(reader.run(&format!("CLIENT TRACKING ON REDIRECT {id}")), "OK");
    other.run("OM.SET m a 1 b 2 t text");
    let mut told = |command: &str| {
        reader.run("OM.GET m a");
        other.run(command);
        other.run("PUBLISH mark m");
        let first = cache.read().unwrap().text();
        let is_told = first.contains("invalidate");
        if is_told {
            assert!(cache.read().unwrap().text().contains("mark"), "{command}");
        }
        is_told
    };
    for command in QUIET {
        assert!(!told(command), "{command}");
    }
    for command in LOUD {
        assert!(told(command), "{command}");
    }
}

#[test]
fn a_field_is_compared_with_absence() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    assert_eq!(c.run("OM.CAS m a IFABSENT SET 1") + &c.run("OM.GET m a"), "11");
    assert_eq!(c.run("OM.CAS m a ifabsent set 2") + &c.run("OM.CAS m a IF 1 SET 2"), "01");
    assert_eq!(c.run("OM.CAS m a IF 1 DEL") + &c.run("OM.CAS m a IF 2 DEL"), "01");
    assert_eq!(c.run("EXISTS m"), "0");
    for wrong in ["m a IF 1 SET", "m a IFABSENT SET 1 2", "m a b c d", "m a IF 1 PUT 2"] {
        assert!(c.run(&format!("OM.CAS {wrong}")).contains("syntax error"), "{wrong}");
    }
    for wrong in ["+5", "05", "-0", "", "1.0"] {
        let reply = c.send(&[b"OM.INCRBY", b"m", b"n", wrong.as_bytes()]).unwrap().text();
        assert!(reply.contains("not an integer"), "{wrong}: {reply}");
    }
}

#[test]
fn figures_are_of_what_is_there() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    let value = "v".repeat(1000);
    for n in 0..100 {
        c.run(&format!("OM.SET m{n} a {value} b {value}"));
    }
    assert_eq!(value_of(&mut c, "maps"), 100);
    let (max, used) = (value_of(&mut c, "max_bytes"), value_of(&mut c, "used_bytes"));
    assert!(max >= 256 << 20);
    assert_eq!(value_of(&mut c, "free_bytes"), max - used);
    assert!(value_of(&mut c, "file_bytes") >= used && used > 200_000);
    let usage: u64 = c.run("MEMORY USAGE m1").parse().unwrap();
    assert!((2000..3000).contains(&usage), "{usage}");
    c.run("FLUSHALL");
    // Later servers free the keys in a thread.
    server.wait("maps are freed", |c| value_of(c, "maps") == 0);
    server.wait("fields are removed", |c| value_of(c, "fields") == 0);
}

#[test]
fn garbage_does_not_fill_the_pool() {
    let Some(server) = Server::start_with("max-bytes 160mb", &[]) else { return };
    let mut c = server.client();
    for n in 0..20 {
        let fields: Vec<String> = (0..150).map(|field| format!("f{field} 123456789")).collect();
        c.run(&format!("OM.SET k{n} {}", fields.join(" ")));
    }
    let before = value_of(&mut c, "fields");
    // 60 times what is live: without back-pressure the fields alone would take the whole pool.
    for n in 0..1200 {
        let reply = c.run(&format!("COPY k{} k{} REPLACE", n % 20, (n * 7 + 1) % 20));
        assert!(reply == "1" || n % 20 == (n * 7 + 1) % 20, "{n}: {reply}");
        assert!(value_of(&mut c, "fields") < before * 3, "{n}: {}", value_of(&mut c, "fields"));
    }
    server.wait("the rest is removed", |c| value_of(c, "fields") == before);
}

#[test]
fn evictable_maps_are_warned_of() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    assert_eq!(value_of(&mut c, "evictable"), 0);
    c.run("CONFIG SET maxmemory-policy allkeys-lru");
    assert_eq!(value_of(&mut c, "evictable"), 0);
    c.run("CONFIG SET maxmemory 100mb");
    assert_eq!(value_of(&mut c, "evictable"), 1);
    assert!(server.log().contains("may EVICT MAPS"));
    c.run("CONFIG SET maxmemory-policy noeviction");
    assert_eq!(value_of(&mut c, "evictable"), 0);
}

#[test]
fn a_pool_with_maps_is_not_loaded_by_a_server_with_keys() {
    let Some(mut server) = Server::start(&[]) else { return };
    server.client().run("OM.SET name a 1");
    server.shut_down("SHUTDOWN");
    let module = crate::server::module();
    let pool = server.pool();
    let Some(mut plain) = Server::prepare("", &[]) else { return };
    plain.run_without_module();
    let mut c = plain.client();
    let load = format!("MODULE LOAD {} pool {}", module.display(), pool.display());
    c.run("SET name string");
    assert!(c.run(&load).starts_with("ERR"));
    assert!(plain.log().contains("serves keys already"), "{}", plain.log());
    assert_eq!(c.run("GET name"), "string");
    // Without keys nothing is in the way.
    c.run("DEL name");
    assert_eq!(c.run(&load), "OK");
    assert_eq!(c.run("OM.GET name a"), "1");
}

#[test]
fn a_server_without_categories_is_refused_if_they_are_required() {
    let Some(mut server) = Server::prepare("categories required", &[]) else { return };
    let version = server.version();
    if version.starts_with("7.0.") {
        assert!(server.run_refused().contains("categories"));
    } else {
        server.run();
        let mut c = server.client();
        c.run("ACL SETUSER reader on nopass +@all -@write ~*");
        c.run("AUTH reader x");
        assert!(c.run("OM.SET m a 1").starts_with("NOPERM"));
    }
}
