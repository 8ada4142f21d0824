//! `kill -9`: a child process writes and acknowledges through a pipe, is killed at a random
//! moment, and everything acknowledged is found. Rounds go on with the same pool.
//!
//! This tests recovery, not flushes: caches survive a kill. Flushes are the simulator's business.
//!
//! `BRISTLECONE_KILL_ROUNDS=10000 cargo test --release -p bristlecone --test suite kill::` runs longer.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Noise, Scratch};
use bristlecone::{Pool, Tree};

const WRITERS: u64 = 3;
const KEYS: u64 = 3000;
const CHILD: &str = "BRISTLECONE_KILL_CHILD";

/// One step of one writer, the same in the child that takes it and the parent that checks it.
enum Step {
    Insert(String, Vec<u8>),
    Remove(String),
}

/// The steps of a writer in a round, without end. A writer's keys are its own.
fn steps(round: u64, writer: u64) -> impl Iterator<Item = Step> {
    let mut noise = Noise((round * WRITERS + writer + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let filling = round % 3 != 2;
    std::iter::from_fn(move || {
        let key = format!("writer {writer} key {:05}", noise.below(KEYS));
        Some(if noise.below(10) < if filling { 7 } else { 2 } {
            let len = [3, 20, 300][noise.below(3) as usize];
            Step::Insert(key, vec![noise.next() as u8; len])
        } else {
            Step::Remove(key)
        })
    })
}

/// The child: writes until it is killed. One byte down the pipe acknowledges a writer's next step.
fn write_for_ever(path: &Path, round: u64) {
    let pool = Pool::options().open(path).unwrap();
    let tree: Tree<&str, &[u8]> = pool.tree("t").unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let tree = &tree;
            scope.spawn(move || {
                for step in steps(round, writer) {
                    match step {
                        Step::Insert(key, value) => tree.upsert(&key, &value).unwrap(),
                        Step::Remove(key) => drop(tree.remove(&key).unwrap()),
                    }
                    std::io::stderr().write_all(&[writer as u8]).unwrap();
                }
            });
        }
    });
}

#[test]
fn everything_acknowledged_is_found() {
    if let Ok(round) = std::env::var(CHILD) {
        let path = std::env::var_os("BRISTLECONE_KILL_POOL").unwrap();
        return write_for_ever(Path::new(&path), round.parse().unwrap());
    }
    let rounds = std::env::var("BRISTLECONE_KILL_ROUNDS").map_or(60, |rounds| rounds.parse().unwrap());
    let scratch = Scratch::new();
    drop(scratch.options().max_bytes(64 << 20).open(&scratch.0).unwrap());
    let mut noise = Noise(u64::from(std::process::id()) | 1);
    let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut acknowledged = 0;
    for round in 0..rounds {
        let acks = kill_one(&scratch, round, Duration::from_micros(3000 + noise.below(30_000)));
        acknowledged += acks.iter().sum::<usize>();
        verify(&scratch, round, acks, &mut model);
    }
    assert!(acknowledged as u64 > rounds * 100, "{acknowledged} steps in {rounds} rounds prove little");
}

/// Runs a child for a while after its first acknowledgement; how many steps of each writer it
/// acknowledged before it was killed.
fn kill_one(scratch: &Scratch, round: u64, life: Duration) -> [usize; WRITERS as usize] {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::everything_acknowledged_is_found", "--nocapture", "--test-threads=1"])
        .env(CHILD, round.to_string())
        .env("BRISTLECONE_KILL_POOL", &scratch.0)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stderr.take().unwrap();
    let mut bytes = vec![0];
    pipe.read_exact(&mut bytes).unwrap();
    let reader = std::thread::spawn(move || {
        pipe.read_to_end(&mut bytes).unwrap();
        bytes
    });
    std::thread::sleep(life);
    child.kill().unwrap();
    child.wait().unwrap();
    let bytes = reader.join().unwrap();
    let text = || String::from_utf8_lossy(&bytes);
    assert!(bytes.iter().all(|&byte| u64::from(byte) < WRITERS), "the child failed: {}", text());
    std::array::from_fn(|writer| bytes.iter().filter(|&&byte| usize::from(byte) == writer).count())
}

/// Every acknowledged step shows; of each writer, the one after it may show as well.
fn verify(
    scratch: &Scratch,
    round: u64,
    acks: [usize; WRITERS as usize],
    model: &mut BTreeMap<String, Vec<u8>>,
) {
    let pool = scratch.try_open().unwrap();
    assert!(!pool.info().was_clean);
    let tree: Tree<&str, &[u8]> = pool.tree("t").unwrap();
    assert_eq!(tree.check(), []);
    for writer in 0..WRITERS {
        let mut steps = steps(round, writer);
        for _ in 0..acks[writer as usize] {
            match steps.next().unwrap() {
                Step::Insert(key, value) => drop(model.insert(key, value)),
                Step::Remove(key) => drop(model.remove(&key)),
            }
        }
        let (key, after) = match steps.next().unwrap() {
            Step::Insert(key, value) => (key, Some(value)),
            Step::Remove(key) => (key, None),
        };
        let found = tree.get(&key);
        if found == after {
            match after {
                Some(value) => drop(model.insert(key, value)),
                None => drop(model.remove(&key)),
            }
        }
    }
    assert!(tree.iter().eq(model.iter().map(|(key, value)| (key.clone(), value.clone()))), "round {round}");
}
