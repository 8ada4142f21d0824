//! Wrong input, and pools that cannot be used: errors, nothing lost, never the end of the server.

use std::os::unix::fs::PermissionsExt;

use crate::client::{Client, Reply};
use crate::server::{Server, module};

#[test]
fn wrong_commands_are_errors_and_change_nothing() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    c.run("OM.SET m a 1 t text");
    c.run("SET s string");
    let refused = [
        ("OM.SET", "wrong number"),
        ("OM.SET m", "wrong number"),
        ("OM.SET m a", "wrong number"),
        ("OM.SET m a 1 b", "syntax error"),
        ("OM.SET m a 1 b 2 c", "wrong number"),
        ("OM.GET m", "wrong number"),
        ("OM.GET m a b", "wrong number"),
        ("OM.MGET m", "wrong number"),
        ("OM.DEL m", "wrong number"),
        ("OM.EXISTS m", "wrong number"),
        ("OM.LEN", "wrong number"),
        ("OM.LEN m a", "wrong number"),
        ("OM.INCRBY m a", "wrong number"),
        ("OM.INCRBY m a 1.5", "not an integer"),
        ("OM.INCRBY m t 1", "not an integer"),
        ("OM.INCRBY m a 9223372036854775807", "overflow"),
        ("OM.INCRBY m a 9223372036854775808", "not an integer"),
        ("OM.CAS m a 1", "wrong number"),
        ("OM.RANGE m -", "wrong number"),
        ("OM.RANGE m a b", "not valid string range"),
        ("OM.RANGE m - + LIMIT", "syntax error"),
        ("OM.RANGE m - + LIMIT x", "not an integer"),
        ("OM.RANGE m - + BYSCORE", "syntax error"),
        ("OM.DELRANGE m - + REV", "syntax error"),
        ("OM.DELRANGE m - ", "not valid string range"),
        ("OM.POPMIN m -1", "out of range"),
        ("OM.POPMAX m x", "not an integer"),
        ("OM.POPMAX m 1 2", "wrong number"),
        ("OM.SCAN m", "wrong number"),
        ("OM.SCAN m 7", "invalid cursor"),
        ("OM.SCAN m 0 COUNT 0", "syntax error"),
        ("OM.SCAN m 0 MATCH", "syntax error"),
        ("OM.SCAN m 0 LIMIT 3", "syntax error"),
        ("OM.RANGE m - + LIMIT 1 2 3", "syntax error"),
        ("OM.RANGE m - + MATCH", "syntax error"),
        ("OM.RANGE m PREFIX", "wrong number"),
        ("OM.COUNT m -", "wrong number"),
        ("OM.COUNT m a b", "not valid string range"),
        ("OM.COUNT m - + LIMIT 1", "syntax error"),
        ("OM.RANK m", "wrong number"),
        ("OM.RANK m a UP", "syntax error"),
        ("OM.RANK m a REV 1", "wrong number"),
        ("OM.GETDEL m", "wrong number"),
        ("OM.GETDEL m a b", "wrong number"),
        ("OM.INCRBYFLOAT m a", "wrong number"),
        ("OM.INCRBYFLOAT m t 1", "not a float"),
        ("OM.RANGESTORE d m -", "wrong number"),
        ("OM.RANGESTORE d m a b", "not valid string range"),
        ("OM.RANGESTORE d m - + WITHVALUES", "syntax error"),
        ("OM.MERGE d", "wrong number"),
        ("OM.BPOPMIN m", "wrong number"),
        ("OM.BPOPMIN m soon", "not a float"),
        ("OM.REPAIR", "wrong number"),
        ("OM.UNIT 1", "command of append-only files"),
        ("OM.INFO", "wrong number"),
        ("OM.CHECK m", "wrong number"),
        ("OM.NONE m", "unknown command"),
    ];
    for (command, why) in refused {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        match c.send(&words).unwrap() {
            Reply::Error(error) => assert!(error.to_lowercase().contains(why), "{command}: {error}"),
            other => panic!("{command}: {other:?}"),
        }
    }
    for command in [
        "OM.SET s a 1",
        "OM.GET s a",
        "OM.MGET s a",
        "OM.DEL s a",
        "OM.EXISTS s a",
        "OM.LEN s",
        "OM.INCRBY s a 1",
        "OM.CAS s a 1 2",
        "OM.RANGE s - +",
        "OM.DELRANGE s - +",
        "OM.POPMIN s",
        "OM.POPMAX s",
        "OM.SCAN s 0",
        "OM.INFO s",
        "OM.COUNT s - +",
        "OM.RANK s a",
        "OM.GETDEL s a",
        "OM.INCRBYFLOAT s a 1",
        "OM.RANGESTORE d s - +",
        "OM.MERGE s m",
        "OM.MERGE d m s",
        "OM.BPOPMIN s 0",
        "OM.BPOPMAX none s 0",
        "OM.REPAIR s",
        "GET m",
        "HSET m a 1",
        "ZADD m 1 a",
    ] {
        assert!(c.run(command).starts_with("WRONGTYPE"), "{command}");
    }
    assert_eq!(c.run("OM.RANGE m - + WITHVALUES") + &c.run("GET s"), "a 1 t textstring");
}

#[test]
fn fields_and_values_that_are_too_long_are_refused() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    let (field, value) = (vec![b'f'; 16_377], vec![b'v'; (128 << 10) + 1]);
    for command in [
        &[b"OM.SET".as_slice(), b"m", b"a", b"1", &field, b"v"][..],
        &[b"OM.SET", b"m", b"a", &value],
        &[b"OM.GET", b"m", &field],
        &[b"OM.DEL", b"m", &field],
        &[b"OM.EXISTS", b"m", &field],
        &[b"OM.MGET", b"m", &field],
        &[b"OM.INCRBY", b"m", &field, b"1"],
        &[b"OM.CAS", b"m", b"a", b"", &value],
    ] {
        assert!(c.send(command).unwrap().text().contains("too long"));
    }
    assert_eq!(c.run("EXISTS m"), "0");
    let key = vec![b'k'; 200_000];
    assert!(c.send(&[b"OM.SET", &key, b"a", b"1"]).unwrap().text().contains("too long"));
    assert_eq!(c.run("DBSIZE"), "0");
    assert_eq!(
        c.send(&[b"OM.RANGE", b"m", &[b"[".as_slice(), &field].concat(), b"+"]).unwrap(),
        Reply::Array(vec![])
    );
}

#[test]
fn a_full_pool_refuses_writes_and_keeps_what_it_has() {
    let Some(mut server) = Server::start_with("max-bytes 48mb", &[]) else { return };
    let mut c = server.client();
    let value = vec![b'v'; 100_000];
    let mut written = 0;
    let error = loop {
        let field = format!("{written:06}");
        match c.send(&[b"OM.SET", b"m", field.as_bytes(), &value, b"twin", field.as_bytes()]).unwrap() {
            Reply::Error(error) => break error,
            _ => written += 1,
        }
        assert!(written < 1000);
    };
    assert!(error.starts_with("OOM"), "{error}");
    for round in 0..2 {
        let mut c = server.client();
        assert_eq!(c.run("OM.LEN m"), (written + 1).to_string(), "round {round}");
        assert_eq!(c.run("OM.GET m twin"), format!("{:06}", written - 1));
        assert_eq!(c.send(&[b"OM.GET", b"m", b"000000"]).unwrap(), Reply::Bytes(value.clone()));
        server.crash();
    }
    let mut c = server.client();
    assert_eq!(c.run("DEL m"), "1");
    server.wait("what was deleted gives its room back", |c| {
        c.send(&[b"OM.SET", b"n", b"f", &value]).unwrap() == Reply::Number(1)
    });
}

/// Writes fields of a map until the pool has no room, not even for small ones. Returns how many are there, and
/// how many of them are of 100 KB.
fn fill(c: &mut Client, map: &str) -> (u64, u64) {
    let (mut written, mut large) = (0u64, 0);
    for size in [100_000, 1000, 8] {
        let value = vec![b'v'; size];
        loop {
            let field = format!("{written:08}");
            match c.send(&[b"OM.SET", map.as_bytes(), field.as_bytes(), &value]).unwrap() {
                Reply::Error(error) => break assert!(error.starts_with("OOM"), "{error}"),
                _ => written += 1,
            }
            assert!(written < 1_000_000);
        }
        large = if large == 0 { written } else { large };
    }
    (written, large)
}

#[test]
fn names_and_times_to_live_are_durable_in_a_full_pool() {
    let Some(mut server) = Server::start_with("max-bytes 192mb", &[]) else { return };
    let mut c = server.client();
    let names: Vec<String> = (0..20).map(|n| format!("{n}{}", "n".repeat(1 << (n % 13)))).collect();
    for n in 0..20 {
        c.run(&format!("OM.SET old{n} a {n}"));
        c.run(&format!("OM.SET covered{n} a covered"));
    }
    assert!(c.run("INFO bristlecone").contains("bristlecone_reserve:1"));
    let (written, large) = fill(&mut c, "m");
    // Names of sizes that the pool had none of before: these need room.
    for (n, name) in names.iter().enumerate() {
        assert_eq!(c.run(&format!("RENAME old{n} {name}")), "OK");
        assert_eq!(c.run(&format!("EXPIRE {name} 5000")), "1");
        assert_eq!(c.run(&format!("RENAME {name} covered{n}")), "OK");
        assert_eq!(c.run(&format!("RENAME covered{n} {name}")), "OK");
    }
    c.run("MOVE m 7");
    assert!(!server.log().contains("not durable"), "{}", server.log());
    server.crash();
    let mut c = server.client();
    for (n, name) in names.iter().enumerate() {
        assert_eq!(
            c.run(&format!("OM.GET {name} a")) + &c.run(&format!("EXISTS old{n} covered{n}")),
            format!("{n}0")
        );
        assert!((1..=5000).contains(&c.run(&format!("TTL {name}")).parse().unwrap()));
    }
    c.run("SELECT 7");
    assert_eq!(c.run("OM.LEN m"), written.to_string());
    // Fields do not get the room that is kept for names: 24 MiB would be 240 of these.
    let more = (0..160).position(|n| {
        let field = format!("more{n}");
        c.send(&[b"OM.SET", b"m", field.as_bytes(), &[0; 100_000]]).unwrap().text().starts_with("OOM")
    });
    assert!(more.is_some_and(|more| more < 20), "{more:?}");
    assert!(c.run("INFO bristlecone").contains("bristlecone_reserve:0"));
    assert_eq!(c.run("DEL m"), "1");
    server.wait("all of it is kept again, and what was deleted is free", |c| {
        let info = c.run("INFO bristlecone");
        info.contains("bristlecone_reserve:1\r") && info.contains("bristlecone_fields:20\r")
    });
    let mut c = server.client();
    assert_eq!(c.run("OM.SET m a 1") + &c.run("OM.CHECK"), "1");
    let again = fill(&mut c, "m").1;
    assert!(again * 100 >= large * 85, "{again} of {large}: what was deleted gives its room back");
}

#[test]
fn denied_memory_refuses_writes() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    c.run("OM.SET m a 1");
    c.run("CONFIG SET maxmemory 1");
    assert!(c.run("OM.SET m a 2").starts_with("OOM"));
    assert_eq!(c.run("OM.GET m a"), "1");
    assert_eq!(c.run("OM.DEL m a"), "1");
}

#[test]
fn pools_that_cannot_be_used_are_refused_and_left_as_they_are() {
    let Some(mut server) = Server::start(&[]) else { return };
    server.client().run("OM.SET m a 1");
    let pool = server.pool();
    // In use.
    let mut other = Server::prepare("", &[]).unwrap();
    std::os::unix::fs::symlink(&pool, other.pool()).unwrap();
    assert!(other.run_refused().contains("in use"));
    server.kill();
    let bytes = std::fs::read(&pool).unwrap();
    // Of another design.
    let mut other = Server::prepare("design nbtree", &[]).unwrap();
    std::os::unix::fs::symlink(&pool, other.pool()).unwrap();
    assert!(other.run_refused().contains("design"));
    // Damaged.
    let mut other = Server::prepare("", &[]).unwrap();
    let mut damaged = bytes;
    let half = damaged.len() / 2;
    damaged[..half].iter_mut().for_each(|byte| *byte ^= 0x5a);
    std::fs::write(other.pool(), damaged).unwrap();
    assert!(other.run_refused().contains("cannot be loaded"));
    // Not a pool.
    std::fs::write(other.pool(), b"hello").unwrap();
    assert!(other.run_refused().contains("not a Bristlecone pool"));
    // A folder.
    std::fs::remove_file(other.pool()).unwrap();
    std::fs::create_dir(other.pool()).unwrap();
    assert!(other.run_refused().contains("cannot be loaded"));
    // In a folder that is not there.
    std::fs::remove_dir(other.pool()).unwrap();
    std::os::unix::fs::symlink("/nonexistent/node.pool", other.pool()).unwrap();
    assert!(other.run_refused().contains("cannot be loaded"));
    server.run();
    assert_eq!(server.client().run("OM.GET m a"), "1");
}

#[test]
fn a_pool_without_permission_is_refused() {
    let Some(mut server) = Server::start(&[]) else { return };
    server.client().run("OM.SET m a 1");
    server.kill();
    std::fs::set_permissions(server.pool(), std::fs::Permissions::from_mode(0o0)).unwrap();
    // SAFETY: only asks. Root may open whatever there is, so the server runs as another user.
    server.user = (unsafe { libc::geteuid() } == 0).then_some(65_534);
    assert!(server.run_refused().contains("ermission"));
    server.user = None;
    std::fs::set_permissions(server.pool(), std::fs::Permissions::from_mode(0o600)).unwrap();
    server.run();
    assert_eq!(server.client().run("OM.GET m a"), "1");
}

#[test]
fn the_module_is_not_loaded_twice_nor_unloaded() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    c.run("OM.SET m a 1");
    let again = format!("MODULE LOAD {} pool {}", module().display(), server.pool().display());
    assert!(c.run(&again).contains("Error loading"));
    assert!(c.run("MODULE UNLOAD bristlecone").contains("can't unload"));
    assert_eq!(c.run("OM.GET m a"), "1");
}

#[test]
fn wrong_arguments_of_the_module_are_named() {
    for (arguments, why) in [
        ("colour red", "unknown argument"),
        ("max-bytes much", "no size"),
        ("design oak", "unknown design"),
        ("domain mine", "unknown domain"),
        ("max-bytes", "without a value"),
    ] {
        let Some(mut server) = Server::prepare(arguments, &[]) else { return };
        assert!(server.run_refused().contains(why), "{arguments}: {}", server.log());
        assert!(!server.pool().exists());
    }
}

#[test]
fn a_dump_that_is_damaged_is_refused() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    c.run("OM.SET m a 1 b 2");
    let Reply::Bytes(dump) = c.send(&[b"DUMP", b"m"]).unwrap() else { panic!() };
    for at in 0..dump.len() {
        let mut damaged = dump.clone();
        damaged[at] ^= 1;
        assert!(matches!(c.send(&[b"RESTORE", b"n", b"0", &damaged]).unwrap(), Reply::Error(_)), "byte {at}");
    }
    assert_eq!(c.run("EXISTS n") + &c.run("OM.RANGE m - + WITHVALUES"), "0a 1 b 2");
}
