//! Damaged, missing and foreign files.

use bristlecone_pm::Storage;
use bristlecone_random::Generator as Random;

use super::scenario::{every_kind, run, state};
use super::{Scratch, open, options, quiet};
use crate::journal::mutation::{Mutation, without};
use crate::journal::simulated::Disk;
use crate::{Design, Domain, Durability, Error, Pool};

/// A pool after a power failure, with the number of operations that were acknowledged.
fn failed() -> (Scratch, Disk, super::scenario::Run) {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let done = run(&scratch, &disk, &every_kind(), Design::SsTree, Durability::Commit);
    assert_eq!(done.done, every_kind().len());
    let image = disk.after_failure(&mut Random::new(1));
    (scratch, image, done)
}

#[test]
fn damage_is_never_a_stale_state() {
    let (_, disk, done) = failed();
    for name in disk.list().unwrap() {
        let bytes = disk.bytes_of(&name);
        for at in (0..bytes.len()).step_by(bytes.len() / 97 + 1) {
            // A new directory entry for each opening: it restores the pool.
            let (scratch, disk, _) = failed();
            disk.damage(&name, at, 0x20);
            match open(&scratch, &disk, Durability::Commit) {
                Ok(pool) => {
                    let found = state(&pool).unwrap();
                    let last = &done.states[done.states.len() - 2..];
                    assert!(last.contains(&found), "byte {at} of {name}: an old state");
                }
                Err(Error::Corrupted { .. } | Error::Newer { .. }) => {}
                Err(error) => panic!("byte {at} of {name}: {error}"),
            }
        }
    }
}

#[test]
fn a_hole_or_an_early_end_is_damage() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    (0..8).for_each(|key| tree.upsert(key, key).unwrap());
    drop(tree);
    pool.simulate_crash();
    let image = disk.after_failure(&mut Random::new(1));
    let name = image.list().unwrap().into_iter().find(|name| name.starts_with("segment-")).unwrap();
    image.damage(&name, 4096 * 4 + 70, 1);
    assert!(matches!(open(&scratch, &image, Durability::Commit), Err(Error::Corrupted { .. })));
    let found = without(Some(Mutation::HoleIsEnd), || open(&scratch, &image, Durability::Commit).map(|_| ()));
    assert!(found.is_ok(), "the mutation has no effect: {found:?}");
}

#[test]
fn a_checkpoint_needs_the_entries_up_to_its_end() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    pool.tree::<u64, u64>("t").unwrap().upsert(1, 1).unwrap();
    pool.checkpoint().unwrap();
    pool.simulate_crash();
    let mut manifest = super::super::manifest::Manifest::read(&disk).unwrap().unwrap();
    manifest.checkpoint.as_mut().unwrap().end += 800;
    manifest.write(&disk).unwrap();
    let image = disk.after_failure(&mut Random::new(1));
    assert!(matches!(open(&scratch, &image, Durability::Commit), Err(Error::Corrupted { .. })));
    let found = without(Some(Mutation::CheckpointEndUnchecked), || {
        open(&scratch, &image, Durability::Commit).map(|_| ())
    });
    assert!(found.is_ok(), "the mutation has no effect: {found:?}");
}

/// What a power failure left behind the end of the journal must not follow what the next process writes.
#[test]
fn stale_blocks_do_not_follow_new_ones() {
    // As many changes as fill the ring of 16 KiB, with 40 B each.
    const GROUP: u64 = 409;
    let found = |mutation| {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        let pool = open(&scratch, &disk, Durability::Memory).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        pool.sync().unwrap();
        // Two groups that are written, not synced.
        (0..=2 * GROUP).for_each(|key| tree.upsert(key, 1).unwrap());
        drop(tree);
        pool.simulate_crash();
        let name = disk.list().unwrap().into_iter().find(|name| name.starts_with("segment-")).unwrap();
        let bytes = disk.bytes_of(&name);
        let pages = (4096..bytes.len()).step_by(4096);
        let blocks: Vec<_> = pages.filter(|at| bytes[*at..].starts_with(b"BRISTBLK")).collect();
        // All of it reaches the disk but a part of the first group.
        let all = |seed| disk.after_failure(&mut Random::new(seed));
        let image = (0..).map(all).find(|image| image.bytes_of(&name) == bytes).unwrap();
        image.damage(&name, blocks[blocks.len() - 2] + 1, 1);
        scratch.scramble();
        without(mutation, || {
            let pool = open(&scratch, &image, Durability::Memory).unwrap();
            let tree = pool.tree::<u64, u64>("t").unwrap();
            assert!(tree.is_empty().unwrap(), "nothing of the groups was synced");
            (0..GROUP).for_each(|key| tree.upsert(key, 2).unwrap());
            pool.sync().unwrap();
            drop(tree);
            pool.simulate_crash();
            scratch.scramble();
            let image = image.after_failure(&mut Random::new(1));
            let pool = open(&scratch, &image, Durability::Memory).unwrap();
            pool.tree::<u64, u64>("t").unwrap().range(..).map(Result::unwrap).collect::<Vec<_>>()
        })
    };
    let expected: Vec<_> = (0..GROUP).map(|key| (key, 2)).collect();
    assert!(found(None) == expected, "changes that were lost are back");
    assert!(found(Some(Mutation::SegmentContinued)) != expected, "nothing notices the mutation");
}

#[test]
fn an_intent_is_completed_after_a_kill() {
    use crate::journal::mutation::{Point, kill_at};

    quiet();
    let after_kill = |mutation| {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        let pool = open(&scratch, &disk, Durability::Memory).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        kill_at(Some((Point::Applied, 0)));
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tree.upsert(1, 7)));
        kill_at(None);
        assert!(killed.is_err());
        drop(tree);
        pool.simulate_crash();
        without(mutation, || open(&scratch, &disk, Durability::Commit).unwrap().simulate_crash());
        scratch.scramble();
        let pool = open(&scratch, &disk.after_failure(&mut Random::new(5)), Durability::Commit).unwrap();
        pool.tree::<u64, u64>("t").unwrap().get(1).unwrap()
    };
    assert_eq!(after_kill(None), Some(7), "the next process has seen the change");
    assert_eq!(after_kill(Some(Mutation::IntentsIgnored)), None, "the mutation has no effect");
}

#[test]
fn journals_and_pools_that_do_not_belong_together_are_refused() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    pool.tree::<u64, u64>("t").unwrap().upsert(1, 1).unwrap();
    pool.close().unwrap();
    let old = std::fs::read(&scratch.0).unwrap();

    // Two pools in one folder.
    let other = Scratch::new();
    assert!(matches!(open(&other, &disk, Durability::Commit), Err(Error::Invalid { .. })));
    assert!(!other.0.exists());

    // The journal of another pool, or none.
    let other_disk = Disk::new();
    open(&other, &other_disk, Durability::Commit).unwrap().close().unwrap();
    assert!(matches!(open(&scratch, &other_disk, Durability::Commit), Err(Error::Invalid { .. })));
    assert!(matches!(open(&scratch, &Disk::new(), Durability::Commit), Err(Error::Corrupted { .. })));

    // A copy of the pool from before the last close.
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    pool.tree::<u64, u64>("t").unwrap().upsert(1, 2).unwrap();
    pool.close().unwrap();
    let new = std::fs::read(&scratch.0).unwrap();
    std::fs::write(&scratch.0, &old).unwrap();
    assert!(matches!(open(&scratch, &disk, Durability::Commit), Err(Error::Corrupted { .. })));
    let mut reading = Pool::options().read_only(true);
    reading.journal = options(&disk, Durability::Commit).journal;
    assert!(matches!(reading.open(&scratch.0), Err(Error::Corrupted { .. })));
    std::fs::write(&scratch.0, &new).unwrap();
    assert_eq!(reading.open(&scratch.0).unwrap().tree::<u64, u64>("t").unwrap().get(1).unwrap(), Some(2));
    assert_eq!(
        open(&scratch, &disk, Durability::Commit).unwrap().tree::<u64, u64>("t").unwrap().get(1).unwrap(),
        Some(2)
    );
}

#[test]
fn a_copy_of_an_open_pool_is_restored_from_its_journal() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    (0..500).for_each(|key| tree.upsert(key, key).unwrap());
    drop(tree);
    pool.simulate_crash();
    // The same kernel, but another file, whose pages need not be of one moment.
    let copy = Scratch::new();
    std::fs::copy(&scratch.0, &copy.0).unwrap();
    copy.scramble();
    let pool = open(&copy, &disk, Durability::Commit).unwrap();
    assert_eq!(pool.tree::<u64, u64>("t").unwrap().len().unwrap(), 500);
}

#[test]
fn a_pool_whose_pages_are_worthless_is_not_read() {
    let (scratch, disk, run) = failed();
    let mut reading = Pool::options().read_only(true);
    reading.journal = options(&disk, Durability::Commit).journal;
    assert!(matches!(reading.open(&scratch.0), Err(Error::Invalid { .. })));
    open(&scratch, &disk, Durability::Commit).unwrap().close().unwrap();
    assert_eq!(&state(&reading.open(&scratch.0).unwrap()).unwrap(), run.states.last().unwrap());
}

#[test]
fn options_that_contradict_the_pool_are_refused() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    pool.tree::<u64, u64>("t").unwrap().upsert(1, 2).unwrap();
    pool.close().unwrap();
    let refused = |options: &crate::PoolOptions, path: &std::path::Path| {
        matches!(options.open(path), Err(Error::Invalid { .. }))
    };
    assert!(refused(&options(&disk, Durability::Commit).domain(Domain::Process), &scratch.0));
    let plain = Scratch::new();
    Pool::options().create_new(true).max_bytes(1 << 20).open(&plain.0).unwrap().close().unwrap();
    assert!(refused(&options(&disk, Durability::Commit), &plain.0), "another pool's journal");
    assert!(refused(&Pool::options().durability(Durability::Memory), &plain.0));
    assert!(Pool::options().domain(Domain::Journal).temporary().is_err());
    let copy = crate::BackupOptions::new().domain(Domain::Journal);
    let pool = Pool::open(&plain.0).unwrap();
    assert!(matches!(pool.backup(Scratch::new().0.clone(), copy), Err(Error::Invalid { .. })));
    assert!(pool.sync().is_ok() && pool.checkpoint().is_err());
    let never = options(&disk, Durability::Interval(std::time::Duration::ZERO));
    assert!(refused(&never, &scratch.0));
}

#[test]
fn reading_creates_no_files() {
    let (scratch, folder) = (Scratch::new(), Scratch::new());
    let options = Pool::options().max_bytes(1 << 20).chunk_bytes(4096).journal(&folder.0);
    let pool = options.clone().domain(Domain::Journal).create_new(true).open(&scratch.0).unwrap();
    pool.tree::<u64, u64>("t").unwrap().upsert(1, 2).unwrap();
    pool.simulate_crash();
    let read = || Pool::options().journal(&folder.0).read_only(true).open(&scratch.0);
    assert_eq!(read().unwrap().tree::<u64, u64>("t").unwrap().get(1).unwrap(), Some(2));
    let ring = folder.0.join("ring");
    std::fs::remove_file(&ring).unwrap();
    assert!(matches!(read(), Err(Error::Invalid { .. })));
    assert!(!ring.exists());
    std::fs::remove_dir_all(&folder.0).unwrap();
}

#[test]
fn pools_that_are_created_together_get_one_journal_each() {
    for round in 0..20 {
        let (scratch, next) = (Scratch::new(), std::sync::atomic::AtomicU64::new(0));
        let options =
            Pool::options().max_bytes(1 << 20).chunk_bytes(4096).domain(Domain::Journal).create(true);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (scratch, next, options) = (&scratch, &next, &options);
                scope.spawn(move || {
                    let pool = loop {
                        match options.open(&scratch.0) {
                            Ok(pool) => break pool,
                            Err(Error::InUse { .. } | Error::Exists { .. }) => std::thread::yield_now(),
                            Err(error) => panic!("round {round}: {error}"),
                        }
                    };
                    let tree = pool.tree::<u64, u64>("t").unwrap();
                    tree.upsert(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 7).unwrap();
                    drop(tree);
                    pool.close().unwrap();
                });
            }
        });
        assert_eq!(options.open(&scratch.0).unwrap().tree::<u64, u64>("t").unwrap().len().unwrap(), 4);
        std::fs::remove_dir_all(scratch.0.with_extension("journal")).unwrap();
    }
}

#[test]
fn a_journal_without_entries_belongs_to_its_pool() {
    let (first, second, disk) = (Scratch::new(), Scratch::new(), Disk::new());
    let pool = open(&first, &disk, Durability::Commit).unwrap();
    // Open, and closed.
    assert!(matches!(open(&second, &disk, Durability::Commit), Err(Error::Invalid { .. })));
    pool.close().unwrap();
    assert!(matches!(open(&second, &disk, Durability::Commit), Err(Error::Invalid { .. })));
    assert!(!second.0.exists());
    open(&first, &disk, Durability::Commit).unwrap().tree::<u64, u64>("t").unwrap().upsert(1, 2).unwrap();
}
