//! Pools with a journal on a simulated disk.

mod acknowledged;
mod archives;
mod crashes;
mod cursors;
mod damage;
mod inspection;
mod kills;
mod recorded;
mod replica_crashes;
mod replicas;
mod scenario;
mod standbys;
mod streams;
mod successors;
mod threads;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bristlecone_pm::Storage;
use bristlecone_random::Generator as Random;

use super::simulated::Disk;
use crate::{Design, Domain, Durability, Error, Pool, PoolOptions, Result, Tree};

/// Returns whether more is tried than in a quick run.
fn is_thorough() -> bool {
    bristlecone_matrix::TestLevel::of_run() > bristlecone_matrix::TestLevel::Quick
}

/// A pool's path, which is removed in the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("bristlecone-journal-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        Self(PathBuf::from("/dev/shm").join(name))
    }

    /// Does the same unless the pool was closed: its pages are durable then.
    pub fn scramble_unless_closed(&self) {
        let state = |copy: usize, bytes: &[u8]| {
            let word = |at: usize| u64::from_le_bytes(bytes[copy + at..copy + at + 8].try_into().unwrap());
            (word(80), word(88))
        };
        let bytes = std::fs::read(&self.0).unwrap();
        let (_, newer) = state(0, &bytes).max(state(4096, &bytes));
        if newer & 1 << 8 == 0 {
            self.scramble();
        }
    }

    /// Destroys all pages of the pool but its superblock, as a power failure may.
    pub fn scramble(&self) {
        let file = std::fs::OpenOptions::new().write(true).open(&self.0).unwrap();
        let len = file.metadata().unwrap().len();
        file.write_all_at(&vec![0x5a; (len - 8192) as usize], 8192).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Lets kills of this thread print nothing.
pub fn quiet() {
    thread_local! {
        static QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    QUIET.set(true);
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let text = panic.payload_as_str().unwrap_or_default();
            if !QUIET.get()
                || text.contains("notices")
                || text.contains("mutation")
                || text.contains("entries")
            {
                hook(panic);
            }
        }));
    });
}

pub fn options(disk: &Disk, durability: Durability) -> PoolOptions {
    let mut options = Pool::options().max_bytes(32 << 20).chunk_bytes(4096).create(true).recovery_threads(1);
    options = options.domain(Domain::Journal).durability(durability);
    options.journal.storage = Some(Arc::new(disk.clone()));
    options.journal.sizes = Some((16 << 10, 64 << 10));
    options
}

#[test]
fn a_pool_keeps_its_domain() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    open(&scratch, &disk, Durability::Commit).unwrap().tree::<u64, u64>("t").unwrap().upsert(1, 2).unwrap();
    for _ in 0..2 {
        let mut plain = Pool::options();
        plain.journal = options(&disk, Durability::Commit).journal;
        let pool = plain.open(&scratch.0).unwrap();
        assert_eq!(pool.info().domain, Domain::Journal);
        pool.tree::<u64, u64>("t").unwrap().upsert(1, 3).unwrap();
        pool.close().unwrap();
    }
}

pub fn open(scratch: &Scratch, disk: &Disk, durability: Durability) -> Result<Pool> {
    options(disk, durability).open(&scratch.0)
}

fn items(tree: &Tree<u64, u64>) -> BTreeMap<u64, u64> {
    tree.range(..).map(Result::unwrap).collect()
}

#[test]
fn a_closed_pool_opens_with_its_journal() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    for round in 0..3_u64 {
        let pool = open(&scratch, &disk, Durability::Commit).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        assert_eq!(items(&tree), (0..100 * round).map(|key| (key, key + 1)).collect());
        for key in 100 * round..100 * (round + 1) {
            assert_eq!(tree.insert(key, key + 1).unwrap(), None);
        }
        drop(tree);
        pool.close().unwrap();
    }
}

#[test]
fn a_kill_loses_nothing_in_any_durability() {
    for durability in [Durability::Commit, Durability::Memory] {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        for round in 0..4_u64 {
            let pool = open(&scratch, &disk, durability).unwrap();
            let tree = pool.tree::<u64, u64>("t").unwrap();
            assert_eq!(items(&tree), (0..300 * round).map(|key| (key, key)).collect());
            (300 * round..300 * (round + 1)).for_each(|key| tree.upsert(key, key).unwrap());
            drop(tree);
            pool.simulate_crash();
        }
        // And then a power failure: the opening made all of it durable.
        open(&scratch, &disk, durability).unwrap().simulate_crash();
        let disk = disk.after_failure(&mut Random::new(3));
        scratch.scramble();
        let pool = open(&scratch, &disk, durability).unwrap();
        assert_eq!(items(&pool.tree("t").unwrap()).len(), 1200);
    }
}

/// One pass over everything that a tree can do, with a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Model {
    words: BTreeMap<u64, u64>,
    texts: BTreeMap<String, Vec<u8>>,
}

pub fn work(pool: &Pool, design: Design, random: &mut Random, model: &mut Model) -> Result<()> {
    let words = match pool.tree_options("words").design(design).create::<u64, u64>() {
        Err(Error::TreeExists { .. }) => pool.tree("words")?,
        created => created?,
    };
    let texts = match pool.tree_options("texts").design(design).create::<&str, &[u8]>() {
        Err(Error::TreeExists { .. }) => pool.tree("texts")?,
        created => created?,
    };
    for _ in 0..120 {
        let (key, value) = (random.below(60), random.word() >> 8);
        let (text, bytes) = (format!("key {}", random.below(40)), vec![value as u8; random.index(300)]);
        match random.below(12) {
            0 => assert_eq!(words.insert(key, value)?, model.words.insert(key, value)),
            1 => {
                words.upsert(key, value)?;
                model.words.insert(key, value);
            }
            2 => assert_eq!(words.remove(key)?, model.words.remove(&key)),
            3 => {
                if words.try_insert(key, value).is_ok() {
                    assert_eq!(model.words.insert(key, value), None);
                }
            }
            4 => {
                if words.update(key, value)?.is_some() {
                    model.words.insert(key, value).unwrap();
                }
            }
            5 => {
                let held = model.words.get(&key).copied();
                let new = (value % 3 > 0).then_some(value);
                words.compare_and_swap(key, held, new)?;
                assert!(words.compare_and_swap(key, Some(1), Some(2)).is_err());
                match new {
                    Some(new) => _ = model.words.insert(key, new),
                    None => _ = model.words.remove(&key),
                }
            }
            6 => {
                let many: Vec<_> =
                    (0..1 + random.below(40)).map(|at| ((key * 3 + at * 7) % 60, value + at)).collect();
                words.upsert_many(&many)?;
                model.words.extend(many);
            }
            7 => {
                let many: Vec<_> = (0..1 + random.below(20)).map(|at| (key + at) % 60).collect();
                words.remove_many(&many, &mut Vec::new())?;
                many.iter().for_each(|key| _ = model.words.remove(key));
            }
            8 => {
                let mut batch = pool.batch();
                for at in 0..1 + random.below(30) {
                    batch.insert(&words, (key + at) % 60, value + at);
                    model.words.insert((key + at) % 60, value + at);
                }
                batch.remove(&texts, text.as_str());
                model.texts.remove(&text);
                batch.commit()?;
            }
            9 => {
                let sum = pool.transaction(|tx| {
                    let sum = tx.get(&words, key)?.unwrap_or(0).wrapping_add(1);
                    tx.insert(&words, (key + 1) % 60, sum)?;
                    tx.insert(&texts, text.as_str(), &bytes)?;
                    Ok(sum)
                })?;
                model.words.insert((key + 1) % 60, sum);
                model.texts.insert(text, bytes);
            }
            10 => assert_eq!(texts.insert(&text, &bytes)?, model.texts.insert(text, bytes)),
            _ => assert_eq!(texts.remove(&text)?, model.texts.remove(&text)),
        }
    }
    Ok(())
}

pub fn compare(pool: &Pool, model: &Model) {
    assert_eq!(items(&pool.tree("words").unwrap()), model.words);
    let texts: BTreeMap<String, Vec<u8>> =
        pool.tree::<&str, &[u8]>("texts").unwrap().range(..).map(Result::unwrap).collect();
    assert_eq!(texts, model.texts);
    assert!(pool.check().is_empty());
    for tree in pool.trees().unwrap() {
        assert_eq!(pool.check_tree(&tree.spec.name).unwrap().1, vec![]);
    }
}

#[test]
fn kills_power_failures_closes_and_checkpoints_lose_nothing() {
    for &design in Design::ALL {
        for seed in 0..4 {
            let (scratch, mut disk) = (Scratch::new(), Disk::new());
            let mut random = Random::new(seed);
            let mut model = Model { words: BTreeMap::new(), texts: BTreeMap::new() };
            for _ in 0..8 {
                let pool = open(&scratch, &disk, Durability::Commit).unwrap();
                work(&pool, design, &mut random, &mut model).unwrap();
                if random.below(3) == 0 {
                    pool.checkpoint().unwrap();
                    work(&pool, design, &mut random, &mut model).unwrap();
                }
                compare(&pool, &model);
                match random.below(3) {
                    0 => pool.close().unwrap(),
                    1 => {
                        pool.simulate_crash();
                        disk = disk.after_kill();
                    }
                    _ => {
                        pool.simulate_crash();
                        scratch.scramble();
                        disk = disk.after_failure(&mut random);
                    }
                }
            }
            compare(&open(&scratch, &disk, Durability::Commit).unwrap(), &model);
        }
    }
}

#[test]
fn writers_make_checkpoints_and_the_journal_stays_short() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let mut options = options(&disk, Durability::Commit);
    options.journal.checkpoint_bytes = Some(256 << 10);
    let pool = options.open(&scratch.0).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let mut segments = 0;
    for key in 0..2000_u64 {
        tree.upsert(key % 300, key).unwrap();
        let names = disk.list().unwrap();
        segments = segments.max(names.iter().filter(|name| name.starts_with("segment-")).count());
        assert!(names.iter().filter(|name| name.starts_with("checkpoint-")).count() <= 1);
    }
    // 2000 blocks of a page each are 125 segments.
    assert!((4..12).contains(&segments), "{segments} segments");
    drop(tree);
    pool.simulate_crash();
    scratch.scramble();
    let pool = options.clone_on(&disk.after_failure(&mut Random::new(2))).open(&scratch.0).unwrap();
    let expected: BTreeMap<u64, u64> =
        (0..300).map(|key| (key, if key < 200 { 1800 + key } else { 1500 + key })).collect();
    assert_eq!(items(&pool.tree("t").unwrap()), expected);
}

impl PoolOptions {
    /// Returns the same options on another disk.
    fn clone_on(&self, disk: &Disk) -> Self {
        let mut options = self.clone();
        options.journal.storage = Some(Arc::new(disk.clone()));
        options
    }
}

/// On the file system, with every system call that may fail.
#[test]
fn every_refused_call_is_an_error_and_loses_nothing() {
    use bristlecone_pm::failpoint;

    let folder = Scratch::new();
    std::fs::create_dir(&folder.0).unwrap();
    let path = folder.0.join("p");
    let options = {
        let mut options =
            Pool::options().max_bytes(32 << 20).chunk_bytes(4096).create(true).recovery_threads(1);
        options = options.domain(Domain::Journal);
        options.journal.sizes = Some((16 << 10, 64 << 10));
        options
    };
    let mut all = 0;
    for refused in 0.. {
        let _ = std::fs::remove_dir_all(&folder.0);
        std::fs::create_dir(&folder.0).unwrap();
        let mut done = 0;
        failpoint::refuse(refused, rustix::io::Errno::IO);
        let run = |done: &mut u64| -> Result<()> {
            for round in 0..3 {
                let pool = options.open(&path)?;
                let tree = pool.tree::<u64, u64>("t")?;
                for key in 0..20 {
                    tree.upsert(key, round * 20 + key)?;
                    *done += 1;
                }
                if round == 1 {
                    pool.checkpoint()?;
                }
                drop(tree);
                match round {
                    0 => pool.close()?,
                    _ => pool.simulate_crash(),
                }
            }
            Ok(())
        };
        let ended = run(&mut done);
        let is_over = failpoint::cease();
        assert!(ended.is_ok() || !is_over, "{ended:?} without a refused call");
        if path.exists() {
            let pool = options.open(&path).unwrap_or_else(|error| panic!("call {refused}: {error}"));
            let tree = pool.tree::<u64, u64>("t").unwrap();
            for key in 0..20 {
                let least = (0..done).rev().find(|count| count % 20 == key);
                let found = tree.get(key).unwrap();
                assert!(
                    found >= least && found <= Some(done.max(least.unwrap_or(0))),
                    "call {refused}, key {key}: {found:?}"
                );
            }
        } else {
            assert_eq!(done, 0, "call {refused}");
        }
        all = refused;
        if is_over {
            break;
        }
    }
    assert!(all > 60, "only {all} calls");
    std::fs::remove_dir_all(&folder.0).unwrap();
}

/// What was written is not durable if the sync that many items share fails.
#[test]
fn items_whose_sync_failed_are_not_done() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let many: Vec<_> = (0..40).map(|key| (key, key)).collect();
    let events = disk.events();
    tree.upsert_many(&many).unwrap();
    assert_eq!(disk.events() - events, 2, "a write and a sync");
    disk.fail_at(disk.events() + 1);
    let stopped = tree.remove_many(&(0..40).collect::<Vec<_>>(), &mut Vec::new()).unwrap_err();
    assert!(matches!((stopped.done, stopped.error), (0, Error::DurabilityLost)));
}

#[test]
fn deferred_writes_share_a_sync() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let syncs = || disk.syncs().len();
    let begin = syncs();
    pool.deferred(|| (0..50).try_for_each(|key| tree.upsert(key, key))).unwrap();
    assert_eq!(syncs() - begin, 1);
    let many: Vec<_> = (0..200).map(|key| (key, key + 1)).collect();
    tree.upsert_many(&many).unwrap();
    assert_eq!(tree.remove_range(150..).unwrap(), 50);
    assert_eq!(syncs() - begin, 3, "one call, one sync");
    let failed = pool.deferred(|| {
        tree.upsert(1000, 1)?;
        Err::<(), _>(Error::invalid("no more"))
    });
    assert!(failed.is_err() && syncs() - begin == 4);
    drop(tree);
    pool.simulate_crash();
    scratch.scramble();
    let pool = open(&scratch, &disk.after_failure(&mut Random::new(2)), Durability::Commit).unwrap();
    let mut expected: BTreeMap<u64, u64> = (0..150).map(|key| (key, key + 1)).collect();
    expected.insert(1000, 1);
    assert_eq!(items(&pool.tree("t").unwrap()), expected);
}
