//! Servers that are killed: whatever was acknowledged is there, whatever was not is there wholly or not at all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Client, Reply};
use crate::server::Server;

/// What a client knows of its map: each pair of fields is written in one step with one value, and every other one gets a time in
/// another step.
struct Ledger {
    key: String,
    /// Value and time of each pair.
    acknowledged: BTreeMap<String, (u64, Option<u64>)>,
    /// A write whose reply did not come.
    open: Option<(String, u64)>,
    /// A time whose reply did not come.
    open_time: Option<(String, u64)>,
    sum: i64,
    sum_is_open: bool,
}

impl Ledger {
    fn new(key: String) -> Self {
        Self { key, acknowledged: BTreeMap::new(), open: None, open_time: None, sum: 0, sum_is_open: false }
    }

    /// Writes until the connection breaks, and counts what was acknowledged.
    fn work(&mut self, client: &mut Client, seed: u64, acknowledged: &AtomicU64) {
        for n in 0u64.. {
            let (pair, value) = (
                format!("{:04}", (seed ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15) % 500),
                seed * 1_000_000 + n,
            );
            let (left, right, text) = (format!("l{pair}"), format!("r{pair}"), value.to_string());
            self.open = Some((pair.clone(), value));
            let words = ["OM.SET", &self.key, &left, &text, &right, &text].map(str::as_bytes);
            let Ok(Reply::Number(_)) = client.send(&words) else { return };
            self.acknowledged.insert(pair.clone(), (value, None));
            self.open = None;
            acknowledged.fetch_add(1, Ordering::Relaxed);
            if n % 2 == 1 {
                let (time, text) = (TIME + value, (TIME + value).to_string());
                self.open_time = Some((pair.clone(), time));
                let words =
                    ["OM.PEXPIREAT", &self.key, &text, "FIELDS", "2", &left, &right].map(str::as_bytes);
                let Ok(Reply::Array(_)) = client.send(&words) else { return };
                self.acknowledged.insert(pair, (value, Some(time)));
                self.open_time = None;
            }
            self.sum_is_open = true;
            let Ok(Reply::Number(_)) = client.send(&[b"OM.INCRBY", self.key.as_bytes(), b"sum", b"1"]) else {
                return;
            };
            self.sum += 1;
            self.sum_is_open = false;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Compares the map with what is known, and takes what is found as known.
    fn verify(&mut self, client: &mut Client) {
        let Reply::Array(items) =
            client.send(&[b"OM.RANGE", self.key.as_bytes(), b"-", b"+", b"WITHVALUES"]).unwrap()
        else {
            panic!()
        };
        let mut found: BTreeMap<String, String> =
            items.chunks(2).map(|item| (item[0].text(), item[1].text())).collect();
        let sum: i64 = found.remove("sum").map_or(0, |sum| sum.parse().unwrap());
        assert!(
            sum == self.sum || (self.sum_is_open && sum == self.sum + 1),
            "{sum} instead of {}",
            self.sum
        );
        (self.sum, self.sum_is_open) = (sum, false);
        if let Some((pair, value)) = self.open.take() {
            let text = value.to_string();
            if found.get(&format!("l{pair}")) == Some(&text) {
                self.acknowledged.insert(pair, (value, None));
            }
        }
        let times = times(client, &self.key, found.keys());
        if let Some((pair, time)) = self.open_time.take()
            && times.get(&format!("l{pair}")) == Some(&Some(time))
        {
            self.acknowledged.entry(pair).and_modify(|known| known.1 = Some(time));
        }
        let expected_times: BTreeMap<String, Option<u64>> = self
            .acknowledged
            .iter()
            .flat_map(|(pair, (_, time))| [(format!("l{pair}"), *time), (format!("r{pair}"), *time)])
            .collect();
        assert_eq!(times, expected_times);
        let expected: BTreeMap<String, String> = self
            .acknowledged
            .iter()
            .flat_map(|(pair, (value, _))| {
                [(format!("l{pair}"), value.to_string()), (format!("r{pair}"), value.to_string())]
            })
            .collect();
        assert_eq!(found, expected);
    }
}

/// The times of pairs are later than this.
const TIME: u64 = 4_000_000_000_000;

/// Returns when fields expire.
fn times<'a>(
    client: &mut Client,
    key: &str,
    fields: impl ExactSizeIterator<Item = &'a String>,
) -> BTreeMap<String, Option<u64>> {
    let fields: Vec<&String> = fields.collect();
    if fields.is_empty() {
        return BTreeMap::new();
    }
    let count = fields.len().to_string();
    let mut words = ["OM.PEXPIRETIME", key, "FIELDS", &count].map(str::as_bytes).to_vec();
    words.extend(fields.iter().map(|field| field.as_bytes()));
    let Reply::Array(times) = client.send(&words).unwrap() else { panic!() };
    let time = |reply: &Reply| match reply {
        Reply::Number(-1) => None,
        Reply::Number(time) => Some(*time as u64),
        other => panic!("{other:?}"),
    };
    fields.into_iter().cloned().zip(times.iter().map(time)).collect()
}

/// Waits until each count has reached its minimum, so that the kill interrupts work on a machine of any speed.
fn wait_for(counts: &[AtomicU64], at_least: u64) {
    let since = Instant::now();
    while counts.iter().any(|count| count.load(Ordering::Relaxed) < at_least) {
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "{counts:?} of {at_least} writes were acknowledged"
        );
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn kill_under_load(arguments: &[&str], rounds: u64) {
    let Some(mut server) = Server::start(arguments) else { return };
    let mut ledgers: Vec<Ledger> = (0..3).map(|n| Ledger::new(format!("map{n}"))).collect();
    for round in 1..=rounds {
        let clients: Vec<Client> = ledgers.iter().map(|_| server.client()).collect();
        let acknowledged: Vec<AtomicU64> = ledgers.iter().map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (n, ((ledger, mut client), count)) in
                ledgers.iter_mut().zip(clients).zip(&acknowledged).enumerate()
            {
                scope.spawn(move || ledger.work(&mut client, round * 10 + n as u64, count));
            }
            wait_for(&acknowledged, 20 + round * 137 % 400);
            server.kill();
        });
        server.run();
        let mut client = server.client();
        ledgers.iter_mut().for_each(|ledger| ledger.verify(&mut client));
    }
    assert_eq!(server.client().run("OM.CHECK"), "");
    // Half of what was counted were increments.
    assert!(ledgers.iter().all(|ledger| ledger.sum >= 10 * rounds as i64));
    let has_times = |ledger: &Ledger| ledger.acknowledged.values().any(|(_, time)| time.is_some());
    assert!(ledgers.iter().all(has_times));
}

/// Rounds: a few, or as many as `BRISTLECONE_REDIS_ROUNDS` says.
fn rounds() -> u64 {
    std::env::var("BRISTLECONE_REDIS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(8)
}

#[test]
fn killed_under_load_nothing_acknowledged_is_lost() {
    kill_under_load(&[], rounds());
}

#[test]
fn killed_under_load_with_an_append_only_file_nothing_is_applied_twice() {
    kill_under_load(&["--appendonly", "yes", "--appendfsync", "everysec"], rounds());
    kill_under_load(
        &["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", "no"],
        rounds() / 2,
    );
}

#[test]
fn killed_amid_deletes_no_map_is_there_in_part() {
    let Some(mut server) = Server::start(&[]) else { return };
    for round in 0..rounds() {
        let mut c = server.client();
        for map in 0..8 {
            let fields: String = (0..2000).map(|n| format!(" {n:05} v")).collect();
            assert_eq!(c.run(&format!("OM.SET round{round}map{map}{fields}")), "2000");
        }
        let counts = [AtomicU64::new(0)];
        let mut c = server.client();
        let deleted = std::thread::scope(|scope| {
            let deleting = scope.spawn(|| {
                for map in 0..8u64 {
                    let key = format!("round{round}map{map}");
                    if c.send(&[b"UNLINK", key.as_bytes()]).is_err() {
                        return map;
                    }
                    counts[0].fetch_add(1, Ordering::Relaxed);
                }
                8
            });
            // Some rounds end during the commands, others during the background work that follows.
            wait_for(&counts, round % 9);
            server.kill();
            deleting.join().unwrap()
        });
        server.run();
        let mut c = server.client();
        for map in 0..8 {
            let len = c.run(&format!("OM.LEN round{round}map{map}"));
            assert!(len == "0" || (len == "2000" && map >= deleted), "map {map} of {deleted} deleted: {len}");
        }
        c.run("FLUSHALL");
    }
    server.wait("nothing is left", |c| c.run("INFO bristlecone").contains("bristlecone_fields:0\r"));
}

#[test]
fn killed_amid_renames_a_covered_map_is_the_old_one_or_the_new_one() {
    let Some(mut server) = Server::start(&[]) else { return };
    server.client().run("OM.SET kept n 0");
    let mut last = 0u64;
    for round in 0..rounds() {
        let counts = [AtomicU64::new(0)];
        let mut c = server.client();
        let acknowledged = std::thread::scope(|scope| {
            let renaming = scope.spawn(|| {
                for n in last + 1.. {
                    let text = n.to_string();
                    let (key, how) = (format!("new{}", n % 3), n % 4);
                    if c.send(&[b"OM.SET", key.as_bytes(), b"n", text.as_bytes()]).is_err() {
                        return n - 1;
                    }
                    let covered = match how {
                        0 => c.send(&[b"COPY", key.as_bytes(), b"kept", b"REPLACE"]),
                        _ => c.send(&[b"RENAME", key.as_bytes(), b"kept"]),
                    };
                    if covered.is_err() {
                        return n - 1;
                    }
                    counts[0].fetch_add(1, Ordering::Relaxed);
                }
                unreachable!()
            });
            wait_for(&counts, 10 + round * 71 % 300);
            server.kill();
            renaming.join().unwrap()
        });
        server.run();
        let mut c = server.client();
        let found: u64 = c.run("OM.GET kept n").parse().expect("there is always a map");
        assert!(found == acknowledged || found == acknowledged + 1, "{found} instead of {acknowledged}");
        last = found + 1;
        assert!(c.run("DBSIZE").parse::<u64>().unwrap() <= 4);
    }
    assert_eq!(server.client().run("OM.CHECK"), "");
}

#[test]
fn a_new_pool_is_filled_from_the_file_and_an_old_one_is_not() {
    for append_only in ["no", "yes"] {
        let Some(mut server) = Server::start(&["--appendonly", append_only, "--appendfsync", "always"])
        else {
            return;
        };
        let mut c = server.client();
        c.run("OM.SET m a 1 b 2");
        c.run("OM.INCRBY m n 5");
        c.run("SET s 1");
        c.run("OM.SET gone a 1");
        assert_eq!(c.run("SAVE"), "OK");
        c.run("OM.INCRBY m n 5");
        c.run("DEL gone");
        c.run("OM.SET new a 1");
        server.crash();
        let mut c = server.client();
        assert_eq!(c.run("OM.RANGE m - + WITHVALUES"), "a 1 b 2 n 10", "append-only {append_only}");
        assert_eq!(c.run("EXISTS gone") + &c.run("OM.GET new a") + &c.run("GET s"), "011");
        // The pool is lost, the file is not.
        server.kill();
        std::fs::remove_file(server.pool()).unwrap();
        server.run();
        let mut c = server.client();
        let kept = if append_only == "yes" { "a 1 b 2 n 10" } else { "a 1 b 2 n 5" };
        assert_eq!(c.run("OM.RANGE m - + WITHVALUES"), kept, "append-only {append_only}");
        server.crash();
        assert_eq!(server.client().run("OM.RANGE m - + WITHVALUES"), kept);
    }
}

/// Sends commands in one write, the last of which is a crash of the server, and starts the server again.
fn crash_after(server: &mut Server, commands: &[&str]) -> Client {
    let words = |command: &&str| command.split(' ').map(|word| word.as_bytes().to_vec()).collect();
    let mut c = server.client();
    c.ask_all(&commands.iter().map(words).collect::<Vec<_>>()).unwrap();
    while c.read().is_ok() {}
    server.crash();
    server.client()
}

/// Commands of a group in `MULTI`.
const GROUPS: [&[&str]; 9] = [
    &["OM.SET m a 2", "OM.SET m c 3", "OM.DEL n a", "SET s 2"],
    &["OM.DELRANGE m - +", "OM.SET m d 1", "RENAME m s", "DEL n"],
    &["OM.SET new a 1", "COPY m other", "MOVE n 3", "SET m 1"],
    &["FLUSHDB", "OM.SET m z 1"],
    &["FLUSHALL", "SET m 1"],
    &["SWAPDB 0 1", "OM.SET m z 1", "SWAPDB 0 2"],
    &["DEL m n s", "OM.SET s a 1"],
    &["PERSIST n", "PEXPIRE m 0", "RENAME n m"],
    &["OM.POPMIN m 9", "OM.CAS n a 1 2", "SET n 1", "DEL n", "OM.SET n b 1"],
];

/// Commands of a pipeline, of which the server writes none to its file.
const PIPELINES: [&[&str]; 7] = [
    &["DEL m s"],
    &["SWAPDB 0 1"],
    // A map under a name whose value the file still has.
    &["RENAME s t", "OM.SET s a 1"],
    &["MOVE s 1", "OM.SET s a 1"],
    &["GETDEL s", "OM.SET s a 1"],
    &["PEXPIRE s 0", "COPY m s"],
    &["RENAME s t", "RENAME m s"],
];

#[test]
fn a_crash_inside_a_group_undoes_all_of_it() {
    let file = |policy| ["--appendonly", "yes", "--appendfsync", policy];
    for of_file in [&file("no")[..], &file("always"), &[]] {
        let has_file = !of_file.is_empty();
        let arguments = [&["--crash-log-enabled", "no"], of_file].concat();
        let Some(mut server) = Server::start(&arguments) else { return };
        let mut c = server.client();
        for command in ["OM.SET m a 1 b 2", "OM.SET n a 1", "PEXPIREAT n 4000000000000", "SET s 1"] {
            c.run(command);
        }
        let crash = &["DEBUG SEGFAULT"];
        let groups = GROUPS.iter().map(|group| [&["MULTI"], *group, crash, &["EXEC"]].concat());
        let pipelines = PIPELINES.iter().filter(|_| has_file).map(|commands| [*commands, crash].concat());
        for commands in groups.chain(pipelines) {
            let mut c = crash_after(&mut server, &commands);
            assert_eq!(c.run("OM.RANGE m - + WITHVALUES"), "a 1 b 2", "{commands:?}");
            assert_eq!(c.run("OM.RANGE n - + WITHVALUES"), "a 1", "{commands:?}");
            assert_eq!(c.run("PEXPIRETIME n"), "4000000000000", "{commands:?}");
            assert_eq!(c.run("GET s"), if has_file { "1" } else { "nil" }, "{commands:?}");
            assert_eq!(c.run("DBSIZE"), if has_file { "3" } else { "2" }, "{commands:?}");
            assert_eq!(c.run("INFO keyspace").matches("keys=").count(), 1, "{commands:?}");
        }
        // What was undone is not in the way of what follows.
        let mut c = server.client();
        for command in ["MULTI", "OM.SET m a 5", "OM.DEL n a", "SET s 5", "EXEC", "OM.SET o a 1"] {
            c.run(command);
        }
        server.crash();
        let mut c = server.client();
        assert_eq!(c.run("OM.RANGE m - + WITHVALUES") + &c.run("EXISTS n"), "a 5 b 20");
        assert_eq!(c.run("OM.GET o a") + &c.run("GET s"), if has_file { "15" } else { "1nil" });
        server.wait("what was deleted is removed", |c| c.run("INFO bristlecone").contains("maps_to_free:0"));
        assert_eq!(server.client().run("OM.CHECK"), "");
        assert!(server.client().run("OM.UNIT 1").starts_with("ERR"));
    }
}
