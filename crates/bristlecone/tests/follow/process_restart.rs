//! Writers and followers that are killed, stopped, or replaced, in separate processes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use bristlecone::{Error, Pool, Tree};
use bristlecone_matrix::process::{self, Process};

use crate::common::{Cell, Items, Noise, Plant, Scratch, Visit, by_level, suites};

/// Number of keys of a writer; as many others never change.
const KEYS: u64 = 400;

fn moving(number: u64) -> u64 {
    2 * number
}

fn resting(number: u64) -> u64 {
    2 * number + 1
}

/// Sends a signal to a process.
fn signal(process: &Process, signal: i32) {
    // SAFETY: the process was not waited for yet.
    assert_eq!(unsafe { libc::kill(process.id() as i32, signal) }, 0);
}

fn cell_named(name: &str) -> Cell {
    suites::FOLLOW.cells().into_iter().find(|cell| cell.to_string() == name).expect("a cell of the suite")
}

/// Inserts the constant keys into a tree, and the first version of the changing ones.
fn fill<I: Items>(tree: &Tree<I::K, I::V>) {
    for number in 0..KEYS {
        for (key, value) in [(resting(number), number), (moving(number), 0)] {
            tree.upsert(I::key_ref(&I::key(key)), I::value_ref(&I::value(value))).unwrap();
        }
    }
}

/// Writes increasing versions of keys, and prints each key and version once it is durable.
struct Writer(Cell, Scratch);

impl Visit for Writer {
    fn visit<I: Items>(self) {
        let Self(cell, scratch) = &self;
        let over = process::until_input_ends();
        let pool = cell.pool(scratch);
        let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
        process::say("open");
        let mut noise = Noise(u64::from(std::process::id()) | 1);
        let mut versions: HashMap<u64, u64> = HashMap::new();
        let first = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64 % (1 << 40) * 1000;
        while !over.load(SeqCst) {
            let number = noise.below(KEYS);
            let version = versions.entry(number).and_modify(|version| *version += 1).or_insert(first);
            let key = I::key(moving(number));
            if noise.below(4) == 0 {
                tree.remove(I::key_ref(&key)).unwrap();
            }
            tree.upsert(I::key_ref(&key), I::value_ref(&I::value(*version))).unwrap();
            process::say(&format!("{number} {version}"));
        }
        std::mem::forget(self.1);
    }
}

/// Follows a writer that is killed, and then each of its successors.
struct Killed(Cell);

impl Visit for Killed {
    fn visit<I: Items>(self) {
        let Self(cell) = self;
        println!("{cell}");
        let scratch = Scratch::new();
        let pool = cell.pool(&scratch);
        fill::<I>(&cell.create(&pool, "t").unwrap());
        pool.close().unwrap();
        assert!(matches!(Pool::follow(&scratch.0), Err(Error::NoWriter { .. })), "{cell}");
        let (name, path) = (cell.to_string(), scratch.0.to_str().unwrap());
        let mut followed: Option<Tree<I::K, I::V>> = None;
        let mut noise = Noise(u64::from(std::process::id()) | 1);
        for life in 0..by_level(3, 6, 40) {
            let mut writer = Process::start(KILLED, &["writer", &name, path]);
            writer.expect("open");
            let tree = followed.get_or_insert_with(|| Pool::follow(&scratch.0).unwrap().tree("t").unwrap());
            let end = Instant::now() + Duration::from_millis(10 + noise.below(60));
            while Instant::now() < end {
                let said = writer.hear().unwrap();
                let (number, version) = said.split_once(' ').unwrap();
                let (number, version): (u64, u64) = (number.parse().unwrap(), version.parse().unwrap());
                // The lookup returns the version acknowledged before it began, or a later one; or its
                // removal.
                let found = tree.get(I::key_ref(&I::key(moving(number)))).unwrap();
                let is_later = |later: u64| found.as_ref() == Some(&I::value(version + later));
                assert!(
                    found.is_none() || (0..100_000).any(is_later),
                    "{cell}: {number} at {version}: {found:?}"
                );
                let number = noise.below(KEYS);
                let rests = tree.get(I::key_ref(&I::key(resting(number)))).unwrap();
                assert_eq!(rests, Some(I::value(number)), "{cell}");
            }
            if life % 3 == 2 {
                writer.end();
            } else {
                writer.kill();
            }
            // A thread notices the end of the writer, whether it waits for a lock that stays held or not.
            let key = I::key(resting(0));
            let gone = (0..5000).find_map(|_| tree.get(I::key_ref(&key)).err());
            assert!(matches!(gone, Some(Error::NoWriter { .. })), "{cell}: {gone:?}");
            let error = tree.range(..).find_map(Result::err);
            assert!(matches!(error, Some(Error::NoWriter { .. })), "{cell}: {error:?}");
        }
        // The last writer is this process, which recovers the pool and is followed.
        let tree = followed.unwrap();
        let pool = cell.pool(&scratch);
        let own: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
        assert!(tree.range(..).map(Result::unwrap).eq(own.iter().map(Result::unwrap)), "{cell}");
        assert_eq!((tree.len().unwrap(), tree.check()), (own.len().unwrap(), vec![]), "{cell}");
    }
}

const KILLED: &str = "process_restart::writers_that_are_killed_are_followed_by_the_next";

#[test]
fn writers_that_are_killed_are_followed_by_the_next() {
    if let Some(words) = process::role() {
        let cell = cell_named(&words[1]);
        return cell.codec.visit(Writer(cell, Scratch(PathBuf::from(&words[2]))));
    }
    suites::FOLLOW.sampled_of_each_design().iter().for_each(|&cell| cell.codec.visit(Killed(cell)));
}

/// Continuously reads the constant keys, from both ends and key by key.
struct Reader(Scratch);

impl Visit for Reader {
    fn visit<I: Items>(self) {
        let over = process::until_input_ends();
        let pool = Pool::follow(&self.0.0).unwrap();
        let tree: Tree<I::K, I::V> = pool.tree("t").unwrap();
        process::say("follows");
        let mut noise = Noise(u64::from(std::process::id()) | 1);
        let mut reads = 0_u64;
        while !over.load(SeqCst) || reads < 1000 {
            let number = noise.below(KEYS);
            assert_eq!(tree.get(I::key_ref(&I::key(resting(number)))).unwrap(), Some(I::value(number)));
            let _ = tree.get(I::key_ref(&I::key(moving(number)))).unwrap();
            if reads.is_multiple_of(64) {
                let mut keys: Vec<_> = tree.range(..).map(Result::unwrap).map(|(key, _)| key).collect();
                assert!(keys.is_sorted_by(|a, b| a < b), "a range out of order");
                keys.retain(|key| (0..KEYS).any(|number| *key == I::key(resting(number))));
                assert_eq!(keys.len() as u64, KEYS, "a range without what rests");
            }
            reads += 1;
        }
        process::say(&format!("{reads} reads"));
        drop((tree, pool));
        std::mem::forget(self.0);
    }
}

/// Writes, with no more space than necessary, while followers read, are stopped, and are killed.
struct Stopped(Cell);

impl Visit for Stopped {
    fn visit<I: Items>(self) {
        let Self(cell) = self;
        println!("{cell}");
        let scratch = Scratch::new();
        let pool = cell.pool(&scratch);
        let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
        fill::<I>(&tree);
        let (name, path) = (cell.to_string(), scratch.0.to_str().unwrap());
        let mut readers: Vec<Process> =
            (0..3).map(|_| Process::start(STOPPED, &["reader", &name, path])).collect();
        readers.iter_mut().for_each(|reader| reader.expect("follows"));
        let mut noise = Noise(99);
        let mut churn = |length: Duration| {
            let end = Instant::now() + length;
            let mut version = 1;
            while Instant::now() < end {
                for number in 0..KEYS {
                    let key = I::key(moving(number));
                    if noise.below(3) == 0 {
                        tree.remove(I::key_ref(&key)).unwrap();
                    } else {
                        tree.upsert(I::key_ref(&key), I::value_ref(&I::value(version))).unwrap();
                    }
                    version += 1;
                }
            }
        };
        churn(Duration::from_millis(100));
        for _ in 0..by_level(1, 2, 10) {
            // Longer than the writer keeps freed memory for it.
            signal(&readers[0], libc::SIGSTOP);
            churn(Duration::from_millis(1200));
            signal(&readers[0], libc::SIGCONT);
            signal(&readers[1], libc::SIGSTOP);
            churn(Duration::from_millis(50));
            signal(&readers[1], libc::SIGCONT);
        }
        let said = readers.pop().unwrap().kill();
        assert!(said.iter().all(|line| !line.contains("panicked")), "{said:#?}");
        churn(Duration::from_millis(100));
        for reader in readers {
            let said = reader.end();
            assert!(said.iter().any(|line| line.ends_with("reads")), "{said:#?}");
        }
        assert_eq!(tree.check(), [], "{cell}");
    }
}

const STOPPED: &str = "process_restart::followers_that_stand_still_or_die_are_not_waited_for";

#[test]
fn followers_that_stand_still_or_die_are_not_waited_for() {
    if let Some(words) = process::role() {
        let cell = cell_named(&words[1]);
        return cell.codec.visit(Reader(Scratch(PathBuf::from(&words[2]))));
    }
    suites::FOLLOW.sampled_of_each_design().iter().for_each(|&cell| cell.codec.visit(Stopped(cell)));
}

/// Creates, drops and grows trees and the pool while they are followed.
struct Changes(Cell);

impl Visit for Changes {
    fn visit<I: Items>(self) {
        let Self(cell) = self;
        let scratch = Scratch::new();
        let pool = cell.pool(&scratch);
        let follower = Pool::follow(&scratch.0).unwrap();
        assert!(follower.info().following && follower.info().read_only && !pool.info().following);
        assert!(matches!(follower.tree::<I::K, I::V>("t"), Err(Error::NoSuchTree { .. })), "{cell}");
        let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
        let followed: Tree<I::K, I::V> = follower.tree("t").unwrap();
        let before = follower.info().chunks;
        fill::<I>(&tree);
        for number in 0..3000 {
            let key = I::key(100_000 + number);
            tree.upsert(I::key_ref(&key), I::value_ref(&I::value(number))).unwrap();
            assert_eq!(followed.get(I::key_ref(&key)).unwrap(), Some(I::value(number)), "{cell}: {number}");
        }
        assert!(follower.info().chunks >= before);
        assert_eq!(followed.stats().unwrap().items, tree.stats().unwrap().items, "{cell}");
        assert!(followed.stats().unwrap().pm_bytes > 0);
        let some: Vec<_> = (0..40).map(|number| I::key(100_000 + number)).collect();
        let mut many = Vec::new();
        followed.get_many(&some.iter().map(|key| I::key_ref(key)).collect::<Vec<_>>(), &mut many).unwrap();
        assert!(many.into_iter().eq((0..40).map(|number| Some(I::value(number)))), "{cell}");
        // A tree that is closed in the writer, cleared, and opened again.
        let key = I::key(resting(1));
        drop(tree);
        let closed = followed.get(I::key_ref(&key));
        assert!(matches!(closed, Err(Error::NoWriter { .. })), "{cell}: {closed:?}");
        pool.clear_tree("t").unwrap();
        let tree: Tree<I::K, I::V> = cell.open(&pool, "t").unwrap();
        assert_eq!(followed.get(I::key_ref(&key)).unwrap(), None, "{cell}");
        fill::<I>(&tree);
        assert_eq!(followed.get(I::key_ref(&key)).unwrap(), Some(I::value(1)), "{cell}");
        drop(tree);
        pool.drop_tree("t").unwrap();
        let gone = followed.get(I::key_ref(&key));
        assert!(matches!(gone, Err(Error::NoSuchTree { .. })), "{cell}: {gone:?}");
        // Another tree takes its space.
        let other: Tree<I::K, I::V> = cell.create(&pool, "other").unwrap();
        fill::<I>(&other);
        assert!(
            follower
                .tree::<I::K, I::V>("other")
                .unwrap()
                .range(..)
                .map(Result::unwrap)
                .eq(other.iter().map(Result::unwrap))
        );
        assert_eq!(other.check(), [], "{cell}");
    }
}

#[test]
fn trees_come_and_go_under_their_followers() {
    suites::FOLLOW.sampled().iter().for_each(|&cell| cell.codec.visit(Changes(cell)));
}
