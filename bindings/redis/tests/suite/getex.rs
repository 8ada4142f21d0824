//! `OM.GETEX` and `OM.SETEX`: conventions of `HGETEX` and `HSETEX`, and what a restart finds.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::server::{DESIGNS, Server};

/// Commands of fields `a` and `b`, in order, and what they reply. `T` is a second far ahead, `U` a millisecond.
const CONVENTIONS: [(&str, &str); 40] = [
    ("SETEX m EXAT T FIELDS 2 a 1 b 2", "1"),
    ("EXPIRETIME m FIELDS 2 a b", "T T"),
    ("SETEX m FIELDS 1 a 3", "1"),
    ("EXPIRETIME m FIELDS 2 a b", "-1 T"),
    ("GETEX m FIELDS 3 a b x", "3 2 nil"),
    ("EXPIRETIME m FIELDS 2 a b", "-1 T"),
    ("SETEX m KEEPTTL FIELDS 2 a 4 b 5", "1"),
    ("EXPIRETIME m FIELDS 2 a b", "-1 T"),
    ("GETEX m PERSIST FIELDS 2 a b", "4 5"),
    ("EXPIRETIME m FIELDS 2 a b", "-1 -1"),
    ("GETEX m PXAT U FIELDS 2 b x", "5 nil"),
    ("PEXPIRETIME m FIELDS 2 a b", "-1 U"),
    ("SETEX m FNX FIELDS 2 a 9 c 9", "0"),
    ("SETEX m FXX FIELDS 2 a 9 c 9", "0"),
    ("GETEX m FIELDS 2 a c", "4 nil"),
    ("SETEX m FNX EXAT T FIELDS 1 c 6", "1"),
    ("SETEX m FXX PXAT U FIELDS 2 a 7 c 8", "1"),
    ("PEXPIRETIME m FIELDS 3 a b c", "U U U"),
    ("GETEX m EXAT T FIELDS 1 c", "8"),
    ("EXPIRETIME m FIELDS 1 c", "T"),
    ("GETEX m EXAT 1 FIELDS 1 c", "8"),
    ("GETEX m FIELDS 1 c", "nil"),
    ("SETEX m PXAT 1 FIELDS 1 b 9", "1"),
    ("GETEX m FIELDS 2 a b", "7 nil"),
    ("GETEX none FIELDS 2 a b", "nil nil"),
    ("GETEX none EXAT T FIELDS 1 a", "nil"),
    ("SETEX none FXX FIELDS 1 a 1", "0"),
    ("GETEX text FIELDS 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("SETEX text FIELDS 1 a 1", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("GETEX m EX -1 FIELDS 1 a", "ERR"),
    ("GETEX m EX abc FIELDS 1 a", "ERR"),
    ("GETEX m EX 9223372036854775807 FIELDS 1 a", "ERR"),
    ("GETEX m KEEPTTL FIELDS 1 a", "ERR"),
    ("GETEX m FIELDS 0 a", "ERR"),
    ("GETEX m FIELDS 2 a", "ERR"),
    ("SETEX m PERSIST FIELDS 1 a 1", "ERR"),
    ("SETEX m FIELDS 2 a 1", "ERR"),
    ("SETEX m FIELDS 0 a 1", "ERR"),
    ("SETEX m EX -1 FIELDS 1 a 1", "ERR"),
    ("GETEX m FIELDS 1 a", "7"),
];

#[test]
fn arguments_and_replies_are_those_of_hashes() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 100_000;
    c.run("SET text 1");
    // Redis has these commands since 8.0.
    let has_hashes = !c.run("HGETEX none FIELDS 1 a").starts_with("ERR unknown");
    let named = |words: &str| {
        let word = |word: &str| match word {
            "T" => second.to_string(),
            "U" => format!("{second}001"),
            other => other.to_owned(),
        };
        words.split(' ').map(word).collect::<Vec<_>>().join(" ")
    };
    for (words, reply) in CONVENTIONS {
        let (name, rest) = words.split_once(' ').unwrap();
        let (rest, reply) =
            (named(rest), if reply.starts_with("WRONG") { reply.to_owned() } else { named(reply) });
        let is_same =
            |found: &str| if reply == "ERR" { found.starts_with("ERR ") } else { found.trim_end() == reply };
        let found = c.run(&format!("OM.{name} {rest}"));
        assert!(is_same(&found), "{words}: {found}");
        if has_hashes {
            let of_hash = rest.strip_prefix('m').map_or(rest.clone(), |rest| format!("h{rest}"));
            let found = c.run(&format!("H{name} {of_hash}"));
            assert!(is_same(&found), "H{words}: {found}");
        }
    }
}

#[test]
fn values_and_times_are_one_step_for_files_and_kills() {
    for design in DESIGNS {
        let aof = ["--appendonly", "yes", "--appendfsync", "always"];
        let module = format!("max-bytes 256mb design {design}");
        let Some(mut server) = Server::start_with(&module, &aof) else { return };
        let mut c = server.client();
        assert_eq!(c.run("OM.SETEX m EX 100000 FIELDS 2 a 1 b 2"), "1");
        assert_eq!(c.run("OM.SETEX m FIELDS 1 c 3"), "1");
        assert_eq!(c.run("OM.GETEX m PERSIST FIELDS 1 b"), "2");
        let time = c.run("OM.PEXPIRETIME m FIELDS 3 a b c");
        assert!(time.ends_with(" -1 -1"), "{design}: {time}");
        server.crash();
        let mut c = server.client();
        assert_eq!(c.run("OM.PEXPIRETIME m FIELDS 3 a b c"), time, "{design}");
        assert_eq!(c.run("OM.MGET m a b c"), "1 2 3", "{design}");
    }
}
