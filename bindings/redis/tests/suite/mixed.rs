//! Maps and the server's own types under the same names, beside an append-only file, in servers that are killed again and again:
//! what is there afterwards is compared with a ledger outside the server.
//!
//! One client sends commands one after the other, so at a kill one of them at most has no reply. Each restart must show the
//! ledger as it was before that command, or after it: no other value, nothing lost, nothing back, nothing half done.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::client::{Client, Reply};
use crate::server::Server;

const NAMES: u64 = 6;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Held {
    Text(String),
    List(VecDeque<String>),
    Hash(BTreeMap<String, String>),
    Map(BTreeMap<String, String>),
}

type Ledger = BTreeMap<String, Held>;

/// Arbitrary numbers, the same for the same seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % end
    }

    fn name(&mut self) -> String {
        format!("n{}", self.below(NAMES))
    }
}

/// Returns a command, as words.
fn command(draw: &mut Draw, count: u64) -> Vec<String> {
    let (one, other, field) = (draw.name(), draw.name(), format!("f{}", draw.below(3)));
    let text = match draw.below(26) {
        0..=4 => format!("OM.SET {one} {field} v{count}"),
        5 => format!("OM.SET {one} f0 v{count} f1 w{count} f2 x{count}"),
        6 => format!("OM.SET {one} {field} v{count} NX"),
        7..=8 => format!("OM.DEL {one} {field}"),
        9 => format!("OM.DELRANGE {one} - +"),
        10..=11 => format!("OM.POPMIN {one}"),
        12 => format!("OM.CAS {one} {field} IFABSENT SET c{count}"),
        13..=14 => format!("SET {one} v{count}"),
        15..=16 => format!("SET {one} v{count} NX"),
        17 => format!("LPUSH {one} v{count}"),
        18 => format!("HSET {one} {field} v{count}"),
        19 => format!("DEL {one}"),
        20 => format!("UNLINK {one}"),
        21..=22 => format!("RENAME {one} {other}"),
        23 => format!("RENAMENX {one} {other}"),
        24 => format!("COPY {one} {other}"),
        _ => format!("COPY {one} {other} REPLACE"),
    };
    text.split(' ').map(str::to_owned).collect()
}

/// Does what a command does. Returns whether it may.
fn apply(ledger: &mut Ledger, words: &[String]) -> Option<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let key = words[1].to_owned();
    if words[0].starts_with("OM.") {
        let mut map = match ledger.get(&key) {
            None => BTreeMap::new(),
            Some(Held::Map(map)) => map.clone(),
            Some(_) => return None,
        };
        match words[..] {
            ["OM.SET", _, field, value, "NX"] | ["OM.CAS", _, field, "IFABSENT", "SET", value] => {
                map.entry(field.to_owned()).or_insert_with(|| value.to_owned());
            }
            ["OM.SET", _, ..] => {
                map.extend(words[2..].chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())));
            }
            ["OM.DEL", _, field] => drop(map.remove(field)),
            ["OM.DELRANGE", ..] => map.clear(),
            _ => drop(map.pop_first()),
        }
        if map.is_empty() {
            ledger.remove(&key)
        } else {
            ledger.insert(key, Held::Map(map))
        };
        return Some(());
    }
    match words[..] {
        ["SET", _, value] => drop(ledger.insert(key, Held::Text(value.to_owned()))),
        ["SET", _, value, _] => drop(ledger.entry(key).or_insert_with(|| Held::Text(value.to_owned()))),
        ["LPUSH", _, value] => match ledger.entry(key).or_insert_with(|| Held::List(VecDeque::new())) {
            Held::List(list) => list.push_front(value.to_owned()),
            _ => return None,
        },
        ["HSET", _, field, value] => match ledger.entry(key).or_insert_with(|| Held::Hash(BTreeMap::new())) {
            Held::Hash(hash) => drop(hash.insert(field.to_owned(), value.to_owned())),
            _ => return None,
        },
        ["DEL" | "UNLINK", _] => drop(ledger.remove(&key)),
        ["RENAME", _, to] => {
            let held = ledger.remove(&key)?;
            ledger.insert(to.to_owned(), held);
        }
        ["RENAMENX", _, to] => {
            let held = ledger.get(&key)?.clone();
            if !ledger.contains_key(to) {
                ledger.remove(&key);
                ledger.insert(to.to_owned(), held);
            }
        }
        ["COPY", _, to, ref replace @ ..] => {
            if key == to {
                return None;
            }
            if let Some(held) = ledger.get(&key).cloned()
                && (!replace.is_empty() || !ledger.contains_key(to))
            {
                ledger.insert(to.to_owned(), held);
            }
        }
        _ => unreachable!("{words:?}"),
    }
    Some(())
}

/// Reads all that the server has.
fn read(c: &mut Client) -> Ledger {
    let pairs = |text: String| {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
    };
    let mut found = Ledger::new();
    for key in c.run("KEYS *").split_whitespace() {
        let held = match c.run(&format!("TYPE {key}")).as_str() {
            "string" => Held::Text(c.run(&format!("GET {key}"))),
            "list" => Held::List(
                c.run(&format!("LRANGE {key} 0 -1")).split_whitespace().map(str::to_owned).collect(),
            ),
            "hash" => Held::Hash(pairs(c.run(&format!("HGETALL {key}")))),
            _ => Held::Map(pairs(c.run(&format!("OM.RANGE {key} - + WITHVALUES")))),
        };
        found.insert(key.to_owned(), held);
    }
    found
}

/// Sends commands until the server is killed. Returns the one without a reply.
fn work(c: &mut Client, ledger: &mut Ledger, draw: &mut Draw, count: &mut u64) -> Vec<String> {
    loop {
        let words = command(draw, *count);
        *count += 1;
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        match c.send(&bytes) {
            Err(_) => return words,
            Ok(Reply::Error(_)) => {
                let mut after = ledger.clone();
                assert!(
                    apply(&mut after, &words).is_none() || after == *ledger,
                    "{words:?} is refused: {ledger:?}"
                );
            }
            Ok(reply) => assert!(apply(ledger, &words).is_some(), "{words:?}: {reply:?} of {ledger:?}"),
        }
    }
}

/// Kills a server so often. Returns how many commands were acknowledged.
fn kill_often(arguments: &[&str], design: &str, lives: u64, seed: u64) -> Option<u64> {
    let mut server = Server::start_with(&format!("max-bytes 256mb design {design}"), arguments)?;
    let (mut ledger, mut draw, mut count) = (Ledger::new(), Draw(seed * 2 + 1), 0);
    for life in 0..lives {
        let mut client = server.client();
        if draw.below(8) == 0 {
            client.run("BGREWRITEAOF");
        }
        let lives_for = Duration::from_micros(draw.below(20_000));
        let open = std::thread::scope(|scope| {
            let working = scope.spawn(|| work(&mut client, &mut ledger, &mut draw, &mut count));
            std::thread::sleep(lives_for);
            server.kill();
            working.join().unwrap()
        });
        server.run();
        let found = read(&mut server.client());
        let mut after = ledger.clone();
        if apply(&mut after, &open).is_none() {
            after.clone_from(&ledger);
        }
        assert!(
            found == ledger || found == after,
            "{design}, life {life} of seed {seed}, open: {open:?}\nfound {found:?}\nledger {ledger:?}\n{}",
            server.log().lines().rev().take(40).collect::<Vec<_>>().join("\n")
        );
        ledger = found;
    }
    assert_eq!(server.client().run("OM.CHECK"), "");
    Some(count)
}

/// Some lives, or as many in all as `BRISTLECONE_REDIS_ROUNDS` says, over designs and seeds.
#[test]
fn names_of_all_types_survive_kills_beside_an_append_only_file() {
    let rounds = std::env::var("BRISTLECONE_REDIS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let lives: u64 = rounds.unwrap_or(100);
    let seed = std::env::var("BRISTLECONE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let each = lives / crate::server::DESIGNS.len() as u64;
    for design in crate::server::DESIGNS {
        let arguments = ["--appendonly", "yes", "--appendfsync", "always"];
        let Some(count) = kill_often(&arguments, design, each, seed) else { return };
        println!("{design}: {each} kills, {count} commands");
        assert!(count >= each, "{design}: {count} commands in {each} lives");
    }
}
