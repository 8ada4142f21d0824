//! The ledger: names of several databases, with their values and times to live.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::commands::Step;
use crate::client::Client;

/// Databases that commands use.
pub const DATABASES: usize = 3;

/// Times to live from here on count as [`Expires::Late`]: the year 2191.
const LATE: i64 = 7_000_000_000_000;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    List(VecDeque<String>),
    Hash(BTreeMap<String, String>),
    Set(BTreeSet<String>),
    /// Members with score 1.
    Sorted(BTreeSet<String>),
    Map(BTreeMap<String, String>),
}

/// When a name expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    Never,
    /// In milliseconds since 1970.
    At(i64),
    /// In the distant future: what a relative time came to.
    Late,
}

/// What a name has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub value: Value,
    pub expires: Expires,
}

type Database = BTreeMap<String, Held>;

/// All databases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger([Database; DATABASES]);

fn lasting(value: Value) -> Held {
    Held { value, expires: Expires::Never }
}

/// Returns a value that a name has, or gets: `Some(None)` if it has one of another type.
macro_rules! value_of {
    ($db:expr, $key:expr, $kind:ident) => {
        match &mut $db.entry($key).or_insert_with(|| lasting(Value::$kind(Default::default()))).value {
            Value::$kind(value) => Some(value),
            _ => None,
        }
    };
}

impl Ledger {
    /// Returns what a name has.
    pub fn get(&self, db: usize, name: &str) -> Option<&Held> {
        self.0[db].get(name)
    }

    /// Does what a step does in a database. Returns whether it may; without that nothing changes.
    pub fn apply(&mut self, db: usize, step: &Step) -> Option<()> {
        match step {
            Step::Words(words) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                if words[0].starts_with("OM.") {
                    return apply_to_map(&mut self.0[db], &words);
                }
                match self.apply_to_databases(db, &words) {
                    Some(done) => done,
                    None => apply_to_names(&mut self.0[db], &words),
                }
            }
            Step::Restore { to, held, replace, .. } => {
                if !replace && self.0[db].contains_key(to) {
                    return None;
                }
                self.0[db].insert(to.clone(), held.clone());
                Some(())
            }
        }
    }

    /// Does what a command does that concerns several databases. `None`: it is another command.
    fn apply_to_databases(&mut self, db: usize, words: &[&str]) -> Option<Option<()>> {
        let number = |word: &str| word.parse::<usize>().unwrap();
        match *words {
            ["SWAPDB", one, other] => self.0.swap(number(one), number(other)),
            ["FLUSHDB"] => self.0[db].clear(),
            ["FLUSHALL"] => self.0.iter_mut().for_each(BTreeMap::clear),
            ["MOVE", name, to] => {
                let to = number(to);
                if to == db {
                    return Some(None);
                }
                if !self.0[to].contains_key(name)
                    && let Some(held) = self.0[db].remove(name)
                {
                    self.0[to].insert(name.to_owned(), held);
                }
            }
            ["COPY", name, to, "DB", of, ref replace @ ..] => {
                let of = number(of);
                if of == db && name == to {
                    return Some(None);
                }
                if let Some(held) = self.0[db].get(name).cloned()
                    && (!replace.is_empty() || !self.0[of].contains_key(to))
                {
                    self.0[of].insert(to.to_owned(), held);
                }
            }
            _ => return None,
        }
        Some(Some(()))
    }

    /// Forgets what is no map: what a server without a file of its own loses.
    pub fn keep_maps(&mut self) {
        self.0.iter_mut().for_each(|db| db.retain(|_, held| matches!(held.value, Value::Map(_))));
    }

    /// Reads all that a server has.
    pub fn read(c: &mut Client) -> Self {
        let mut found = Self::default();
        for (number, db) in found.0.iter_mut().enumerate() {
            c.run(&format!("SELECT {number}"));
            for key in c.run("KEYS *").split_whitespace() {
                let value = read_value(c, key);
                let expires = match c.run(&format!("PEXPIRETIME {key}")).parse::<i64>().unwrap() {
                    -1 => Expires::Never,
                    LATE.. => Expires::Late,
                    time => Expires::At(time),
                };
                db.insert(key.to_owned(), Held { value, expires });
            }
        }
        found
    }
}

fn read_value(c: &mut Client, key: &str) -> Value {
    let words = |text: String| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let pairs = |text: String| words(text).chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    match c.run(&format!("TYPE {key}")).as_str() {
        "string" => Value::Text(c.run(&format!("GET {key}"))),
        "list" => Value::List(words(c.run(&format!("LRANGE {key} 0 -1"))).into()),
        "hash" => Value::Hash(pairs(c.run(&format!("HGETALL {key}")))),
        "set" => Value::Set(words(c.run(&format!("SMEMBERS {key}"))).into_iter().collect()),
        "zset" => Value::Sorted(words(c.run(&format!("ZRANGE {key} 0 -1"))).into_iter().collect()),
        _ => Value::Map(pairs(c.run(&format!("OM.RANGE {key} - + WITHVALUES")))),
    }
}

fn apply_to_map(db: &mut Database, words: &[&str]) -> Option<()> {
    let key = words[1];
    let mut held = db.get(key).cloned().unwrap_or_else(|| lasting(Value::Map(BTreeMap::new())));
    let Value::Map(map) = &mut held.value else { return None };
    match *words {
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
        db.remove(key)
    } else {
        db.insert(key.to_owned(), held)
    };
    Some(())
}

fn apply_to_names(db: &mut Database, words: &[&str]) -> Option<()> {
    let key = words[1].to_owned();
    match *words {
        ["SET", _, value] => drop(db.insert(key, lasting(Value::Text(value.to_owned())))),
        ["SET", _, value, "NX"] => {
            db.entry(key).or_insert_with(|| lasting(Value::Text(value.to_owned())));
        }
        ["SET", _, value, "GET"] => {
            *value_of!(db, key.clone(), Text)? = value.to_owned();
            db.get_mut(&key)?.expires = Expires::Never;
        }
        ["APPEND", _, value] => value_of!(db, key, Text)?.push_str(value),
        ["LPUSH", _, value] => value_of!(db, key, List)?.push_front(value.to_owned()),
        ["HSET", _, field, value] => {
            drop(value_of!(db, key, Hash)?.insert(field.to_owned(), value.to_owned()))
        }
        ["SADD", _, member] => drop(value_of!(db, key, Set)?.insert(member.to_owned())),
        ["ZADD", _, "1", member] => drop(value_of!(db, key, Sorted)?.insert(member.to_owned())),
        ["SUNIONSTORE", _, ref of @ ..] => {
            let mut union = BTreeSet::new();
            for name in of {
                match db.get(*name).map(|held| &held.value) {
                    None => {}
                    Some(Value::Set(set)) => union.extend(set.iter().cloned()),
                    Some(_) => return None,
                }
            }
            let set = lasting(Value::Set(union.clone()));
            if union.is_empty() {
                db.remove(&key)
            } else {
                db.insert(key, set)
            };
        }
        ["LPOP", _] => {
            let Some(held) = db.get_mut(&key) else { return Some(()) };
            let Value::List(list) = &mut held.value else { return None };
            list.pop_front();
            if list.is_empty() {
                db.remove(&key);
            }
        }
        ["GETDEL", _] => match db.get(&key).map(|held| &held.value) {
            None => {}
            Some(Value::Text(_)) => drop(db.remove(&key)),
            Some(_) => return None,
        },
        ["DEL" | "UNLINK", ..] => words[1..].iter().for_each(|name| drop(db.remove(*name))),
        ["PEXPIRE", _, "0"] | ["PEXPIREAT", _, "1"] => drop(db.remove(&key)),
        ["EXPIRE" | "PEXPIREAT" | "PERSIST", _, ref time @ ..] => {
            if let Some(held) = db.get_mut(&key) {
                held.expires = match (words[0], time) {
                    ("EXPIRE", _) => Expires::Late,
                    (_, [time]) => Expires::At(time.parse().unwrap()),
                    _ => Expires::Never,
                };
            }
        }
        ["RENAME", _, to] => {
            let held = db.remove(&key)?;
            db.insert(to.to_owned(), held);
        }
        ["RENAMENX", _, to] => {
            let held = db.get(&key)?.clone();
            if !db.contains_key(to) {
                db.remove(&key);
                db.insert(to.to_owned(), held);
            }
        }
        _ => unreachable!("{words:?}"),
    }
    Some(())
}
