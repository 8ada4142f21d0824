//! Fields that expire: conventions of `HEXPIRE`, what commands see of a field whose time has come, and what files and crashes leave.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::client::{Client, Reply};
use crate::server::{DESIGNS, Server};

const AOF: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Sends commands in one write, so that the server carries them out in a row. Returns the replies of those behind the first `skip`.
fn in_a_row(c: &mut Client, commands: &[&str], skip: usize) -> Vec<String> {
    let words = |command: &&str| command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    c.ask_all(&commands.iter().map(words).collect::<Vec<_>>()).unwrap();
    let replies: Vec<String> = commands.iter().map(|_| c.read().unwrap().text()).collect();
    replies[skip..].to_vec()
}

/// Lets fields of `m` expire and carries out commands before the server could remove them.
fn after_expiry(c: &mut Client, fields: &str, commands: &[&str]) -> Vec<String> {
    let count = fields.split(' ').count();
    let expire = format!("OM.PEXPIRE m 1 FIELDS {count} {fields}");
    let first = [expire.as_str(), "DEBUG SLEEP 0.01"];
    in_a_row(c, &[first.as_slice(), commands].concat(), 2)
}

/// Commands of fields `a`, `b` and `c`, in order, and what they reply. `T` is a second far ahead.
const CONVENTIONS: [(&str, &str); 62] = [
    ("EXPIREAT m T FIELDS 2 a x", "1 -2"),
    ("EXPIRETIME m FIELDS 3 a b x", "T -1 -2"),
    ("PEXPIRETIME m FIELDS 1 a", "T000"),
    ("EXPIRE m -1 FIELDS 1 a", "ERR invalid expire time, must be >= 0"),
    ("EXPIRE m abc FIELDS 1 a", "ERR value is not an integer or out of range"),
    ("EXPIRE m 9223372036854775807 FIELDS 1 a", "ERR invalid expire time in 'EXPIRE' command"),
    ("EXPIRE m 70368744177 FIELDS 1 a", "ERR invalid expire time in 'EXPIRE' command"),
    ("PEXPIRE m 70368744177663 FIELDS 1 a", "ERR invalid expire time in 'PEXPIRE' command"),
    ("PEXPIREAT m 70368744177664 FIELDS 1 a", "ERR invalid expire time in 'PEXPIREAT' command"),
    ("EXPIREAT m 70368744178 FIELDS 1 a", "ERR invalid expire time in 'EXPIREAT' command"),
    (
        "EXPIRE m 100 NX XX FIELDS 1 a",
        "ERR Mandatory argument FIELDS is missing or not at the right position",
    ),
    ("EXPIRE m 100 FOO FIELDS 1 a", "ERR Mandatory argument FIELDS is missing or not at the right position"),
    ("EXPIRE m 100 a b c", "ERR Mandatory argument FIELDS is missing or not at the right position"),
    ("EXPIRE m 100 FIELDS 0 a", "ERR Parameter `numFields` should be greater than 0"),
    ("EXPIRE m 100 FIELDS -1 a", "ERR Parameter `numFields` should be greater than 0"),
    ("EXPIRE m 100 FIELDS x a", "ERR Parameter `numFields` should be greater than 0"),
    ("EXPIRE m 100 FIELDS 2 a", "ERR The `numfields` parameter must match the number of arguments"),
    ("EXPIRE m 100 FIELDS 1 a b", "ERR The `numfields` parameter must match the number of arguments"),
    ("EXPIRE m 100 NX FIELDS 1", "ERR The `numfields` parameter must match the number of arguments"),
    ("EXPIRE m 100 FIELDS 1 a NX", "ERR The `numfields` parameter must match the number of arguments"),
    ("EXPIRE m 100 FIELDS 1", "ERR wrong number of arguments for 'EXPIRE' command"),
    ("EXPIRE m 100", "ERR wrong number of arguments for 'EXPIRE' command"),
    ("EXPIRE none 100 FIELDS 2 a b", "-2 -2"),
    ("EXPIRE none -1 FIELDS 2 a b", "ERR invalid expire time, must be >= 0"),
    ("EXPIRE none 10 FIELDS 3 a b", "ERR The `numfields` parameter must match the number of arguments"),
    ("EXPIRE text 10 FIELDS 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("EXPIRE text -1 FIELDS 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("TTL m 3 a c x", "ERR Mandatory argument FIELDS is missing or not at the right position"),
    ("TTL m FIELDS 0 a", "ERR Number of fields must be a positive integer"),
    ("TTL m FIELDS x a", "ERR Number of fields must be a positive integer"),
    ("PTTL m FIELDS 2 a", "ERR The `numfields` parameter must match the number of arguments"),
    ("PTTL m FIELDS 1 a b", "ERR The `numfields` parameter must match the number of arguments"),
    ("TTL m FIELDS 1", "ERR wrong number of arguments for 'TTL' command"),
    ("TTL none FIELDS 2 a b", "-2 -2"),
    ("TTL text FIELDS 0 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("EXPIREAT m T nx fields 2 a b", "0 1"),
    ("EXPIREAT m T xx fields 2 b c", "1 0"),
    ("EXPIREAT m T GT FIELDS 2 b c", "0 0"),
    ("EXPIREAT m T0 GT FIELDS 2 b c", "1 0"),
    ("EXPIREAT m T0 LT FIELDS 2 b c", "0 1"),
    ("EXPIREAT m T LT FIELDS 2 b c", "1 1"),
    ("EXPIREAT m T0 FIELDS 2 b b", "1 1"),
    ("PEXPIREAT m T001 FIELDS 1 b", "1"),
    ("EXPIRETIME m FIELDS 2 b c", "U T"),
    ("PERSIST m FIELDS 4 b b x c", "1 -1 -2 1"),
    ("PERSIST m FIELDS 1 b", "-1"),
    ("PERSIST none FIELDS 1 a", "-2"),
    ("PERSIST m FIELDS 1 a b", "ERR The `numfields` parameter must match the number of arguments"),
    ("PERSIST m FIELDS 0 a", "ERR Number of fields must be a positive integer"),
    ("PERSIST text FIELDS 1 a", "WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("PTTL m FIELDS 1 b", "-1"),
    ("EXPIRE m 0 XX FIELDS 1 b", "0"),
    ("EXPIRE m 0 GT FIELDS 1 b", "0"),
    ("EXPIRE m 0 FIELDS 3 b b x", "2 -2 -2"),
    ("EXPIREAT m 1 LT FIELDS 1 c", "2"),
    ("PEXPIREAT m 70368744177663 FIELDS 1 a", "1"),
    ("PEXPIRETIME m FIELDS 1 a", "70368744177663"),
    ("EXPIRETIME m FIELDS 1 a", "70368744178"),
    ("LEN m", "1"),
    ("PEXPIREAT m 0 FIELDS 1 a", "2"),
    ("LEN m", "0"),
    ("EXPIRE m 10 FIELDS 1 a", "-2"),
];

#[test]
fn arguments_replies_and_errors_are_those_of_hashes() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    let second = millis() / 1000 + 100_000;
    c.run("SET text 1");
    c.run("OM.SET m a 1 b 2 c 3");
    c.run("HSET h a 1 b 2 c 3");
    // Redis has these commands since 7.4; those of Valkey have other errors.
    let has_hashes = !c.run("HTTL none FIELDS 1 a").starts_with("ERR unknown")
        && !c.run("INFO server").contains("server_name:valkey");
    let written = |words: &str| words.replace('T', "\0").replace('U', "\x01");
    for (words, reply) in CONVENTIONS {
        let (name, rest) = words.split_once(' ').unwrap();
        let rest = rest
            .split(' ')
            .map(|word| match word.strip_prefix('T') {
                Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                    format!("{second}{digits}")
                }
                _ => word.to_owned(),
            })
            .collect::<Vec<_>>()
            .join(" ");
        let is_number = !reply.starts_with("ERR") && !reply.starts_with("WRONG");
        let reply = if is_number {
            written(reply).replace('\0', &second.to_string()).replace('\x01', &(second + 1).to_string())
        } else {
            reply.replace(&format!("'{name}'"), &format!("'om.{}'", name.to_lowercase()))
        };
        assert_eq!(c.run(&format!("OM.{name} {rest}")), reply, "{words}");
        if has_hashes {
            let of_hash = rest.strip_prefix('m').map_or(rest.clone(), |rest| format!("h{rest}"));
            let of_hash = c.run(&format!("H{name} {of_hash}"));
            let name = name.to_lowercase();
            assert_eq!(
                of_hash.trim_end(),
                reply.replace(&format!("om.{name}"), &format!("h{name}")),
                "{words}"
            );
        }
    }
    assert_eq!(c.run("EXISTS m"), "0");
    c.run("OM.SET m a 1");
    c.run("OM.EXPIRE m 100 FIELDS 1 a");
    let (seconds, milliseconds) = (c.run("OM.TTL m FIELDS 1 a"), c.run("OM.PTTL m FIELDS 1 a"));
    assert!((95..=100).contains(&seconds.parse::<u64>().unwrap()), "{seconds}");
    assert!((95_000..=100_000).contains(&milliseconds.parse::<u64>().unwrap()), "{milliseconds}");
}

#[test]
fn no_command_sees_a_field_whose_time_has_come() {
    for design in DESIGNS {
        let Some(server) = Server::start_with(&format!("max-bytes 256mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        let fresh = "OM.SET m a 1 b 2 c 3 d 4 e 5 f 6";
        let cases: [(&str, &str); 33] = [
            ("OM.GET m a", "nil"),
            ("OM.GET m b", "2"),
            ("OM.MGET m a b c", "nil 2 nil"),
            ("OM.EXISTS m a", "0"),
            ("OM.LEN m", "3"),
            ("OM.RANGE m - +", "b d e"),
            ("OM.RANGE m + - REV WITHVALUES", "e 5 d 4 b 2"),
            ("OM.RANGE m - + LIMIT 1 1", "d"),
            ("OM.RANGE m - + MATCH [a-c]", "b"),
            ("OM.SCAN m 0 COUNT 2", ">d b 2 d 4"),
            ("OM.COUNT m - [c", "1"),
            ("OM.COUNT m - + MATCH [a-c]", "1"),
            ("OM.RANK m a", "nil"),
            ("OM.RANK m d", "1"),
            ("OM.RANK m b REV", "2"),
            ("OM.TTL m FIELDS 2 a b", "-2 -1"),
            ("OM.PERSIST m FIELDS 2 a b", "-2 -1"),
            ("OM.EXPIRE m 100 FIELDS 1 a", "-2"),
            ("OM.POPMIN m", "b 2"),
            ("OM.POPMAX m 2", "e 5 d 4"),
            ("OM.BPOPMAX m 1", "m e 5"),
            ("OM.DEL m a b x", "1"),
            ("OM.DEL m a", "0"),
            ("OM.GETDEL m a", "nil"),
            ("OM.INCRBY m a 5", "5"),
            ("OM.INCRBYFLOAT m a 1.5", "1.5"),
            ("OM.CAS m a 1 2", "0"),
            ("OM.CAS m a IFABSENT SET 9", "1"),
            ("OM.SET m a 9 b 9", "1"),
            ("OM.SET m a 9 NX", "1"),
            ("OM.SET m a 9 XX", "0"),
            ("OM.DELRANGE m - [d", "2"),
            ("OM.DELRANGE m - + LIMIT 1", "1"),
        ];
        for (command, expected) in cases {
            c.run("DEL m");
            c.run(fresh);
            assert_eq!(after_expiry(&mut c, "a c f", &[command]), [expected], "{design}: {command}");
        }
        c.run("DEL m");
        c.run(fresh);
        let replies = after_expiry(
            &mut c,
            "a c f",
            &[
                "OM.RANGESTORE part m - [d",
                "OM.MERGE all m",
                "OM.SET m a 9",
                "OM.TTL m FIELDS 1 a",
                "OM.LEN m",
            ],
        );
        assert_eq!(replies, ["2", "3", "1", "-1", "4"], "{design}");
        assert_eq!(c.run("OM.RANGE part - +") + " " + &c.run("OM.RANGE all - +"), "b d b d e");
        let info = after_expiry(&mut c, "b", &["OM.INFO m"]).concat();
        assert!(info.contains("fields 3 ") && info.contains("encoding large"), "{info}");
        assert_eq!(c.run("OM.CHECK"), "");
    }
}

#[test]
fn writes_clear_a_time_or_keep_it() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    let time = (millis() + 1_000_000).to_string();
    let long = "v".repeat(400);
    let cases = [
        ("OM.SET m a 2", "-1"),
        ("OM.SET m a 2 b 3", "-1"),
        ("OM.SET m a 2 XX", "-1"),
        ("OM.CAS m a 1 2", "-1"),
        ("OM.PERSIST m FIELDS 1 a", "-1"),
        ("OM.CAS m a 7 2", &time),
        ("OM.INCRBY m a 1", &time),
        ("OM.INCRBYFLOAT m a 1.5", &time),
        ("OM.SET m b 2", &time),
        ("OM.DEL m a", "-2"),
    ];
    for of_map in ["", &format!(" long {long}")] {
        for (command, expected) in cases {
            c.run("DEL m");
            c.run(&format!("OM.SET m a 1{of_map}"));
            c.run(&format!("OM.PEXPIREAT m {time} FIELDS 1 a"));
            c.run(command);
            assert_eq!(c.run("OM.PEXPIRETIME m FIELDS 1 a"), expected, "{command}");
            // A field that comes again has no time.
            c.run("OM.DEL m a");
            c.run("OM.SET m a 1");
            assert_eq!(c.run("OM.TTL m FIELDS 1 a"), "-1", "{command}");
        }
    }
    // Keys and copies of fields keep the times.
    c.run("DEL m");
    c.run("OM.SET m a 1 b 2");
    c.run(&format!("OM.PEXPIREAT m {time} FIELDS 1 a"));
    c.run("COPY m copy");
    c.run("RENAME m renamed");
    c.run("OM.RANGESTORE stored renamed - +");
    c.run("OM.SET merged a 7 c 7");
    c.run("OM.EXPIRE merged 5000 FIELDS 1 c");
    c.run("OM.MERGE merged renamed");
    let dump = c.send(&[b"DUMP", b"renamed"]).unwrap();
    let Reply::Bytes(dump) = dump else { panic!("{dump:?}") };
    assert_eq!(c.send(&[b"RESTORE", b"restored", b"0", &dump]).unwrap().text(), "OK");
    for _ in 0..2 {
        for key in ["copy", "renamed", "stored", "merged", "restored"] {
            assert_eq!(c.run(&format!("OM.PEXPIRETIME {key} FIELDS 2 a b")), format!("{time} -1"), "{key}");
        }
        assert!(c.run("OM.TTL merged FIELDS 1 c").parse::<u64>().unwrap() > 4000);
        server.crash();
        c = server.client();
    }
    // A source without a time for a field takes that of the destination away.
    c.run("OM.SET plain a 1");
    c.run("OM.MERGE merged plain");
    assert_eq!(c.run("OM.TTL merged FIELDS 1 a"), "-1");
}

#[test]
fn what_has_expired_is_removed_in_the_background() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    c.run("CONFIG SET notify-keyspace-events Ed");
    let mut listener = server.client();
    listener.run("SUBSCRIBE __keyevent@0__:om.expired");
    let fields: Vec<String> = (0..5000).map(|n| format!("{n:04}")).collect();
    let pairs: String = fields.iter().map(|field| format!(" {field} v")).collect();
    c.run(&format!("OM.SET m{pairs}"));
    c.run("OM.SET other a 1 b 2");
    c.run("OM.EXPIRE other 1000 FIELDS 1 a");
    let mut expected = 5000;
    for chunk in fields[..4000].chunks(1000) {
        c.run(&format!("OM.PEXPIRE m 20 FIELDS 1000 {}", chunk.join(" ")));
        expected -= 1000;
    }
    server.wait("they are removed", |c| c.run("INFO bristlecone").contains("_expiring_fields:1\r"));
    assert_eq!(c.run("OM.LEN m"), expected.to_string());
    let info = c.run("INFO bristlecone");
    assert!(info.contains("_fields:1002\r"), "{info}");
    assert!(listener.read().unwrap().text().contains("om.expired m"));
    // A map without a field is no key.
    c.run(&format!("OM.PEXPIRE m 1 FIELDS 1000 {}", fields[4000..].join(" ")));
    server.wait("the key is gone", |c| c.run("EXISTS m") == "0");
    assert_eq!(c.run("OM.RANGE other - +") + &c.run("OM.CHECK"), "a b");
    // What is in another database, and under another name.
    c.run("SELECT 3");
    c.run("OM.SET x a 1");
    c.run("OM.PEXPIRE x 300 FIELDS 1 a");
    c.run("RENAME x y");
    c.run("SWAPDB 3 4");
    c.run("SELECT 4");
    assert_eq!(c.run("OM.LEN y"), "1");
    server.wait("the key is gone", |c| {
        c.run("SELECT 4");
        c.run("EXISTS y") == "0"
    });
}

#[test]
fn a_client_that_waits_gets_the_field_that_comes_after_the_others_expired() {
    let Some(server) = Server::start(&[]) else { return };
    let (mut c, mut waiting) = (server.client(), server.client());
    c.run("OM.SET m a 1");
    let first = after_expiry(&mut c, "a", &["OM.LEN m"]);
    assert_eq!(first, ["0"]);
    c.run("OM.SET m a 1");
    waiting.ask(&[b"OM.BPOPMIN", b"m", b"0"]).unwrap();
    assert_eq!(waiting.read().unwrap().text(), "m a 1");
    c.run("OM.SET m a 1");
    c.run("MULTI");
    for command in
        ["OM.PEXPIRE m 1 FIELDS 1 a", "DEBUG SLEEP 0.01", "OM.BPOPMIN m 1", "OM.SET m b 2", "OM.LEN m"]
    {
        c.run(command);
    }
    assert_eq!(c.run("EXEC"), "1 OK nil 1 1");
    let pop: Vec<Vec<u8>> = ["OM.BPOPMIN", "q", "0"].map(|word| word.as_bytes().to_vec()).to_vec();
    c.run("OM.SET q a 1");
    c.run("OM.PEXPIRE q 1 FIELDS 1 a");
    std::thread::sleep(Duration::from_millis(5));
    waiting.ask_all(&[pop]).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    c.run("OM.SET q b 2");
    assert_eq!(waiting.read().unwrap().text(), "q b 2");
}

/// Fills maps whose fields have times, and returns what they are.
fn fill(c: &mut Client) -> Vec<String> {
    let pairs: String = (0..3000).map(|n| format!(" {n:04} {n}")).collect();
    c.run(&format!("OM.SET large{pairs}"));
    c.run("OM.SET small a 1 b 2");
    c.run("OM.SET plain a 1");
    let time = millis() + 1_000_000;
    for first in (0..3000).step_by(600) {
        let fields: String = (first..first + 500).map(|n| format!(" {n:04}")).collect();
        c.run(&format!("OM.PEXPIREAT large {} FIELDS 500{fields}", time + first));
    }
    c.run(&format!("OM.PEXPIREAT small {time} FIELDS 1 b"));
    contents(c)
}

/// Returns fields, values and times of all maps.
fn contents(c: &mut Client) -> Vec<String> {
    let mut keys: Vec<String> = c.run("KEYS *").split_whitespace().map(str::to_owned).collect();
    keys.sort();
    let of = |key: &String| {
        let fields = c.run(&format!("OM.RANGE {key} - +"));
        let count = fields.split(' ').count();
        let times = c.run(&format!("OM.PEXPIRETIME {key} FIELDS {count} {fields}"));
        format!("{key} {} {times}", c.run(&format!("OM.RANGE {key} - + WITHVALUES")))
    };
    keys.iter().map(of).collect()
}

#[test]
fn times_survive_kills_reloads_and_files() {
    for design in DESIGNS {
        let module = format!("max-bytes 256mb design {design}");
        let Some(mut server) = Server::start_with(&module, &AOF) else { return };
        let expected = fill(&mut server.client());
        assert_eq!(expected.len(), 3);
        server.crash();
        assert_eq!(contents(&mut server.client()), expected, "{design}");
        let reload = server.client().run("DEBUG RELOAD");
        assert_eq!((reload.as_str(), contents(&mut server.client())), ("OK", expected.clone()), "{design}");
        server.crash();
        assert_eq!(contents(&mut server.client()), expected, "{design}");
        // The file that commands were appended to, and the one that a child has written.
        for rewritten in [false, true] {
            if rewritten {
                server.client().run("BGREWRITEAOF");
                server.wait("the file is rewritten", |c| {
                    let info = c.run("INFO persistence");
                    info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
                });
            }
            server.kill();
            std::fs::remove_file(server.pool()).unwrap();
            server.run();
            assert_eq!(contents(&mut server.client()), expected, "{design} {rewritten}");
        }
        assert_eq!(server.client().run("OM.CHECK"), "");
    }
}

#[test]
fn a_rewritten_file_without_a_preamble_has_the_times() {
    let arguments = [AOF.as_slice(), &["--aof-use-rdb-preamble", "no"]].concat();
    let Some(mut server) = Server::start(&arguments) else { return };
    let expected = fill(&mut server.client());
    server.client().run("BGREWRITEAOF");
    server.wait("the file is rewritten", |c| {
        let info = c.run("INFO persistence");
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    });
    server.kill();
    std::fs::remove_file(server.pool()).unwrap();
    server.run();
    assert_eq!(contents(&mut server.client()), expected);
}

#[test]
fn a_file_that_lacks_maps_gets_their_times_at_the_start() {
    let Some(mut server) = Server::start(&[]) else { return };
    let mut c = server.client();
    c.run("OM.SET small a 1 b 2");
    c.run("OM.EXPIRE small 10000 FIELDS 1 b");
    let expected = contents(&mut c);
    server.kill();
    server.arguments = AOF.map(str::to_owned).to_vec();
    server.run();
    server.wait("it is appended", |_| server.log().contains("appended to the append-only file"));
    server.kill();
    std::fs::remove_file(server.pool()).unwrap();
    server.run();
    assert_eq!(contents(&mut server.client()), expected);
}

#[test]
fn replicas_get_times_and_removals_from_their_master() {
    let start = |arguments: &[&str]| Server::start(arguments);
    let Some(mut master) = start(&AOF) else { return };
    let expected = fill(&mut master.client());
    let port = master.port.to_string();
    let Some(replica) = start(&["--replicaof", &format!("127.0.0.1 {port}")]) else { return };
    replica.wait("it has the maps", |c| contents(c) == expected);
    let mut c = master.client();
    c.run("OM.SET m a 1 b 2 c 3 d 4");
    // The time of the command does not matter to a replica.
    c.run("OM.PEXPIRE m 1000 FIELDS 2 a c");
    c.run("OM.INCRBY m a 4");
    c.run("OM.SET copied x 1");
    c.run("OM.MERGE copied m");
    c.run("OM.RANGESTORE stored m - [c");
    let in_step = |replica: &Server, c: &mut Client| {
        replica.wait("it has the same", |r| r.run("DEBUG DIGEST") == c.run("DEBUG DIGEST"));
    };
    in_step(&replica, &mut c);
    replica.wait("they are absent", |r| r.run("OM.RANGE m - +") == "b d" && r.run("OM.LEN m") == "2");
    master.wait("they are removed", |c| c.run("OM.LEN stored") == "1");
    replica.wait("they are removed", |r| r.run("OM.RANGE stored - +") == "b");
    in_step(&replica, &mut c);
    // A replica removes nothing itself, and hides what its master has not removed yet.
    c.run("OM.SET m e 5");
    // A master that lets writers wait removes nothing.
    in_a_row(&mut c, &["OM.PEXPIRE m 1000 FIELDS 1 e", "CLIENT PAUSE 600000 WRITE"], 2);
    in_step(&replica, &mut c);
    drop(c);
    master.kill();
    std::thread::sleep(Duration::from_millis(1100));
    let mut r = replica.client();
    assert_eq!(r.run("OM.RANGE m - +") + &r.run("OM.LEN m"), "b d2");
    let before = r.run("INFO bristlecone");
    std::thread::sleep(Duration::from_millis(300));
    let count = |info: &str| info.lines().find(|line| line.contains("expiring_fields")).map(str::to_owned);
    assert_eq!(count(&before), count(&r.run("INFO bristlecone")));
    // Once it is the master it does.
    r.run("REPLICAOF NO ONE");
    replica.wait("it is removed", |r| count(&r.run("INFO bristlecone")) != count(&before));
    // The master that was killed has the same.
    master.run();
    let wanted = r.run("DEBUG DIGEST");
    master.wait("it has the same", |c| c.run("DEBUG DIGEST") == wanted);
}

#[test]
fn long_commands_keep_and_hide_times() {
    for design in DESIGNS {
        let Some(mut server) = Server::start_with(&format!("max-bytes 512mb design {design}"), &[]) else {
            return;
        };
        let mut c = server.client();
        let pairs: String = (0..20_000).map(|n| format!(" {n:05} {n}")).collect();
        c.run(&format!("OM.SET m{pairs}"));
        let odd: Vec<String> = (0..20_000).filter(|n| n % 2 == 1).map(|n| format!("{n:05}")).collect();
        for fields in odd.chunks(2000) {
            c.run(&format!("OM.EXPIRE m 10000 FIELDS {} {}", fields.len(), fields.join(" ")));
        }
        assert_eq!(c.run("COPY m copy"), "1");
        assert_eq!(c.run("OM.LEN copy"), "20000");
        assert_eq!(c.run("OM.TTL copy FIELDS 2 00000 00002"), "-1 -1");
        assert!(c.run("OM.TTL copy FIELDS 1 19999").parse::<u64>().unwrap() > 9000, "{design}");
        // Half of the fields expire; a thread reads and counts the others.
        let commands: Vec<String> = odd
            .chunks(2000)
            .map(|fields| format!("OM.PEXPIRE m 1 FIELDS {} {}", fields.len(), fields.join(" ")))
            .chain(["DEBUG SLEEP 0.01", "OM.COUNT m - +", "OM.RANGE m - + LIMIT 5000"].map(str::to_owned))
            .collect();
        c.run("MULTI");
        commands.iter().for_each(|command| drop(c.run(command)));
        let Reply::Array(replies) = c.send(&[b"EXEC"]).unwrap() else { panic!() };
        assert_eq!(replies[6], Reply::Number(10_000), "{design}");
        let even: Vec<String> = (0..5000).map(|n| format!("{:05}", 2 * n)).collect();
        assert_eq!(replies[7].text(), even.join(" "), "{design}");
        assert_eq!(c.run("OM.COUNT m - +"), "10000", "{design}");
        assert_eq!(c.run("OM.RANGE m - + LIMIT 5000"), even.join(" "), "{design}");
        assert_eq!(c.run("OM.DELRANGE m - [05999"), "3000", "{design}");
        assert_eq!(c.run("OM.DELRANGE copy [10000 +"), "10000", "{design}");
        server.wait("they are removed", |c| c.run("INFO bristlecone").contains("_expiring_fields:5000\r"));
        server.crash();
        let mut c = server.client();
        assert_eq!(
            c.run("OM.LEN m") + " " + &c.run("OM.LEN copy") + &c.run("OM.CHECK"),
            "7000 10000",
            "{design}"
        );
        assert_eq!(c.run("DEL copy"), "1");
        server.wait("its times are removed", |c| c.run("INFO bristlecone").contains("_expiring_fields:0\r"));
    }
}

#[test]
fn groups_that_the_file_lacks_leave_no_times() {
    let Some(mut server) = Server::start(&AOF) else { return };
    let mut c = server.client();
    c.run("OM.SET m a 1 b 2");
    c.run("OM.EXPIRE m 1000 FIELDS 1 a");
    let before = contents(&mut c);
    let file = server.dir.join("appendonlydir");
    let kept: Vec<(std::path::PathBuf, Vec<u8>)> = std::fs::read_dir(&file)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .collect();
    // The server dies in the turn that carries out the group: the pool has it, and the file has not.
    let group = [
        "MULTI",
        "OM.EXPIRE m 2000 FIELDS 1 b",
        "OM.PERSIST m FIELDS 1 a",
        "OM.SET other x 1",
        "OM.EXPIRE other 1000 FIELDS 1 x",
        "EXEC",
        "DEBUG SEGFAULT",
    ];
    let words = |command: &&str| command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    c.ask_all(&group.iter().map(words).collect::<Vec<_>>()).unwrap();
    while c.read().is_ok() {}
    server.kill();
    kept.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    server.run();
    assert_eq!(contents(&mut server.client()), before);
}

/// Returns the checksum of a dump.
fn crc64(bytes: &[u8]) -> u64 {
    let step = |crc: u64, byte: &u8| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0x95ac_9329_ac4b_c9b5 } else { crc >> 1 }
        })
    };
    bytes.iter().fold(0, step)
}

#[test]
fn dumps_of_the_version_without_times_are_read() {
    let Some(server) = Server::start(&[]) else { return };
    let mut c = server.client();
    c.run("OM.SET small a 1 b 2");
    let pairs: String = (0..2000).map(|n| format!(" {n:04} {n}{}", "v".repeat(60))).collect();
    c.run(&format!("OM.SET large{pairs}"));
    for key in ["small", "large"] {
        let Reply::Bytes(dump) = c.send(&[b"DUMP", key.as_bytes()]).unwrap() else { panic!() };
        let (body, footer) = dump.split_at(dump.len() - 10);
        assert_eq!(crc64(&dump[..dump.len() - 8]), u64::from_le_bytes(footer[2..].try_into().unwrap()));
        // The type, its id as nine bytes, and behind the fields an empty piece of times.
        assert_eq!(
            (body[0], body[1], body[9] & 3, &body[body.len() - 5..]),
            (7, 0x81, 2, b"\x05\0\x05\0\0".as_slice())
        );
        let mut old = [&body[..body.len() - 3], b"\0"].concat();
        old[9] -= 1;
        old.extend_from_slice(&footer[..2]);
        old.extend_from_slice(&crc64(&old).to_le_bytes());
        let restored = c.send(&[b"RESTORE", format!("old-{key}").as_bytes(), b"0", &old]).unwrap();
        assert_eq!(restored.text(), "OK", "{key}");
        let ranges = [key.to_owned(), format!("old-{key}")]
            .map(|key| c.run(&format!("OM.RANGE {key} - + WITHVALUES")));
        assert_eq!(ranges[0], ranges[1]);
        assert_eq!(c.run(&format!("OM.LEN old-{key}")), c.run(&format!("OM.LEN {key}")));
    }
}
