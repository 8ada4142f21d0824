//! Clients that use the map at the same time.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use bristlecone_raft::{Command, Items, Reply};
use bristlecone_raft_node::{Client, Failed, Query, Seen as Found};
use bristlecone_random::Generator;
use bristlecone_sim::{Access, Seen};

use crate::history::History;

/// Keys that clients share. Behind them are two that one client writes one after the other.
pub const KEYS: u64 = 8;
const FIRST: u64 = KEYS;
const SECOND: u64 = KEYS + 1;
/// The first number of the pair.
const PAIR: u64 = 1 << 40;

pub fn bytes(word: u64) -> Vec<u8> {
    word.to_be_bytes().to_vec()
}

pub fn word(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

/// What the clients of a run share.
#[derive(Debug, Default)]
pub struct Run {
    pub history: History,
    /// Every value is written once, so that a read tells which write it saw.
    values: AtomicU64,
    pub is_over: AtomicBool,
}

fn draw(run: &Run, random: &mut Generator) -> Access {
    let new = || run.values.fetch_add(1, Relaxed) + 1;
    let old = |random: &mut Generator| random.below(run.values.load(Relaxed).max(1)) + 1;
    match random.below(16) {
        0..=5 => Access::Get,
        6..=9 => Access::Upsert(new()),
        10 => Access::InsertNew(new()),
        11 => Access::Remove,
        12 => Access::RemoveIf(old(random)),
        // Of the value that the key is read to have.
        _ => Access::Swap(0, new()),
    }
}

fn command(key: u64, access: Access) -> Option<Command> {
    let key = bytes(key);
    let exchange = |key, expected: Option<u64>, new: Option<u64>| {
        Some(Command::CompareAndSet { key, expected: expected.map(bytes), new: new.map(bytes) })
    };
    match access {
        Access::Upsert(value) => Some(Command::Put { key, value: bytes(value) }),
        Access::Remove => Some(Command::Delete { key }),
        Access::InsertNew(new) => exchange(key, None, Some(new)),
        Access::Swap(old, new) => exchange(key, Some(old), Some(new)),
        Access::RemoveIf(old) => exchange(key, Some(old), None),
        _ => None,
    }
}

fn seen(access: Access, reply: Reply) -> Seen {
    let value = |value: Option<Vec<u8>>| Seen::Value(value.as_deref().map(word));
    match (reply, access) {
        (Reply::Written, _) => Seen::Done,
        (Reply::Removed(found) | Reply::Differs(found), _) => value(found),
        (Reply::Exchanged, Access::Swap(..)) => Seen::Swapped,
        (Reply::Exchanged, Access::RemoveIf(_)) => Seen::Removed,
        (Reply::Exchanged, _) => Seen::Value(None),
        (reply, _) => panic!("{access:?} was answered by {reply:?}"),
    }
}

/// Writes and reads shared keys until the run is over.
pub async fn mix(run: Arc<Run>, client: Client, mut random: Generator) {
    while !run.is_over.load(Relaxed) {
        if random.below(12) == 0 {
            scan(&run, &client).await;
            continue;
        }
        let (key, access) = (random.below(KEYS), draw(&run, &mut random));
        let access = match access {
            Access::Swap(_, new) => match read(&run, &client, key).await {
                Some(held) => Access::Swap(held, new),
                None => Access::InsertNew(new),
            },
            access => access,
        };
        match command(key, access) {
            Some(command) => write(&run, &client, key, access, &command).await,
            None => drop(read(&run, &client, key).await),
        }
    }
}

async fn write(run: &Run, client: &Client, key: u64, access: Access, command: &Command) {
    let called = run.history.call();
    match client.write(command).await {
        Ok(reply) => run.history.note(key, access, called, Some(seen(access, reply))),
        Err(Failed::Unknown(_)) => run.history.note(key, access, called, None),
        Err(Failed::Refused(_)) => {}
    }
}

async fn read(run: &Run, client: &Client, key: u64) -> Option<u64> {
    let called = run.history.call();
    let Ok(Found::Value(found)) = client.read(&Query::Get(bytes(key))).await else { return None };
    let found = found.as_deref().map(word);
    run.history.note(key, Access::Get, called, Some(Seen::Value(found)));
    found
}

pub async fn all(client: &Client) -> Result<Items, Failed> {
    let query = Query::Range { from: Bound::Unbounded, to: Bound::Unbounded, limit: usize::MAX };
    match client.read(&query).await? {
        Found::Items(items) => Ok(items),
        Found::Value(_) => Err(Failed::Refused("another answer".to_owned())),
    }
}

/// Reads all keys: for each of them a read, and for the pair one at the same time.
async fn scan(run: &Run, client: &Client) {
    let called = run.history.call();
    let Ok(items) = all(client).await else { return };
    let value = |key: u64| items.iter().find(|(of, _)| *of == bytes(key)).map(|(_, value)| word(value));
    let seen = (0..=SECOND).map(|key| (key, Access::Get, Some(Seen::Value(value(key)))));
    run.history.note_all(called, seen);
    let (first, second) = (value(FIRST).unwrap_or(0), value(SECOND).unwrap_or(0));
    assert!(second <= first, "a range saw {second} of a pair whose first half was {first}");
}

/// Writes an ascending number to the first key of the pair, then to the second one. One client only, so that a range
/// that is of one point in time never sees the second one ahead.
pub async fn pair(run: Arc<Run>, client: Client) {
    let mut last = None;
    while !run.is_over.load(Relaxed) {
        // A number that no other client writes.
        let number = last.map_or(PAIR, |last| last + 1);
        let access = last.map_or(Access::InsertNew(number), |last| Access::Swap(last, number));
        if !(advance(&run, &client, FIRST, access, number).await
            && advance(&run, &client, SECOND, access, number).await)
        {
            return;
        }
        last = Some(number);
    }
}

/// Repeats an exchange until the key has the number, which a repetition cannot undo; returns false if the run is over.
async fn advance(run: &Run, client: &Client, key: u64, access: Access, number: u64) -> bool {
    let exchange = command(key, access).expect("an exchange");
    while !run.is_over.load(Relaxed) {
        let called = run.history.call();
        match client.write(&exchange).await.map(|reply| seen(access, reply)) {
            Ok(found) => {
                run.history.note(key, access, called, Some(found));
                assert!(is_done(found, number), "{access:?} of key {key} found {found:?}");
                return true;
            }
            Err(Failed::Unknown(_)) => run.history.note(key, access, called, None),
            Err(Failed::Refused(_)) => {}
        }
    }
    false
}

fn is_done(found: Seen, number: u64) -> bool {
    matches!(found, Seen::Swapped | Seen::Value(None)) || found == Seen::Value(Some(number))
}
