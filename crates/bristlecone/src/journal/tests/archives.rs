//! Archives on simulated disks: every restore is the state at its moment, and every crash leaves an archive.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bristlecone_pm::Storage;
use bristlecone_random::Generator as Random;

use super::inspection::files;
use super::streams::Consumer;
use super::{Model, Scratch, is_thorough, open, options, work};
use crate::archive::{Archiver, Keep, RestoreTo};
use crate::journal::simulated::Disk;
use crate::{Design, Durability, Error, Pool, Restored, Result};

pub fn archiver(disk: &Disk, archive: &Disk) -> Result<Archiver> {
    Archiver::on(files(disk), Arc::new(archive.clone()), PathBuf::from("archive"))
}

/// Copies until nothing is left.
fn copy_all(archiver: &mut Archiver) -> Result<()> {
    while archiver.copy()? {}
    Ok(())
}

/// Restores a pool from an archive to a disk of its own, and opens it.
pub fn restored(archive: &Disk, to: RestoreTo) -> Result<(Scratch, Pool, Restored)> {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let mut options = Pool::options().recovery_threads(1);
    options.journal = super::options(&disk, Durability::Commit).journal;
    let archive: Arc<dyn Storage> = Arc::new(archive.clone());
    let restored = options.restore_from(&scratch.0, &archive, to)?;
    let pool = options.open(&scratch.0)?;
    assert!(pool.info().was_clean);
    Ok((scratch, pool, restored))
}

/// Applies the entries from the last one on, and keeps the state after each.
fn follow(disk: &Disk, consumer: &mut Consumer, states: &mut Vec<Consumer>) {
    for entry in files(disk).changes(Some(consumer.next)).unwrap() {
        consumer.apply(&entry.unwrap());
        states.push(consumer.clone());
    }
}

#[test]
fn every_restore_is_the_state_at_its_lsn_and_time_in_every_design() {
    for &design in Design::ALL {
        for seed in 0..2 {
            let (scratch, mut disk, archive) = (Scratch::new(), Disk::new(), Disk::new());
            let (mut random, mut model) = (Random::new(seed), Model::default());
            let (mut consumer, mut states) = (Consumer::default(), Vec::new());
            let mut own = None;
            for round in 0..6 {
                let pool = open(&scratch, &disk, Durability::Commit).unwrap();
                if seed == 1 && round == 0 {
                    work(&pool, design, &mut random, &mut model).unwrap();
                    follow(&disk, &mut consumer, &mut states);
                    // The archive begins with a checkpoint.
                    pool.checkpoint().unwrap();
                }
                let mut archiver = own.take().unwrap_or_else(|| archiver(&disk, &archive).unwrap());
                for _ in 0..2 {
                    work(&pool, design, &mut random, &mut model).unwrap();
                    follow(&disk, &mut consumer, &mut states);
                    if random.below(3) == 0 {
                        pool.checkpoint().unwrap();
                    }
                    if random.below(3) > 0 {
                        copy_all(&mut archiver).unwrap();
                    }
                }
                copy_all(&mut archiver).unwrap();
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
                        continue;
                    }
                }
                // It continues over restarts of the writer.
                own = (random.below(2) == 0).then_some(archiver);
            }
            let status = archiver(&disk, &archive).unwrap().status();
            assert_eq!((status.lsns.1, status.timeline), (consumer.next, 0));
            let first = status.lsns.0.unwrap();
            assert_eq!(first > 0, seed == 1);
            let is_kept = |state: &&Consumer| state.next >= first;
            let kept: Vec<_> = states.iter().filter(is_kept).collect();
            for _ in 0..12 {
                let at = random.index(kept.len());
                let state = kept[at];
                let what = format!("{design}, seed {seed}, LSN {}", state.next);
                let (_scratch, pool, told) = restored(&archive, RestoreTo::Lsn(state.next)).unwrap();
                assert_eq!((told.lsn, told.time), (state.next, state.time), "{what}");
                state.assert_is_in(&pool, &what);
                // An LSN within the next entry is before it.
                if at + 1 < kept.len() && at % 3 == 0 {
                    let (_scratch, pool, told) =
                        restored(&archive, RestoreTo::Lsn(kept[at + 1].next - 8)).unwrap();
                    assert!(told.lsn < kept[at + 1].next);
                    state.assert_is_in(&pool, &what);
                }
                let last = kept.iter().rfind(|other| other.time <= state.time).unwrap();
                if let Ok((_scratch, pool, _)) = restored(&archive, RestoreTo::Time(state.time.unwrap())) {
                    last.assert_is_in(&pool, &what);
                }
            }
            let (_scratch, pool, _) = restored(&archive, RestoreTo::End).unwrap();
            consumer.assert_is_in(&pool, "the end");
            super::compare(&pool, &model);
        }
    }
}

/// Few changes of every kind, with a checkpoint; `each` runs between them.
fn run(pool: &Pool, mut each: impl FnMut() -> Result<()>) -> Result<()> {
    let tree = pool.tree::<u64, &[u8]>("t")?;
    for round in 0..4_u64 {
        for key in 0..12 {
            tree.upsert(key, &[round as u8; 30])?;
        }
        let mut batch = pool.batch();
        // Longer than the ring: a file of its own.
        (0..60).for_each(|key| _ = batch.insert(&tree, 100 + key, &[round as u8; 90]));
        batch.commit()?;
        each()?;
        if round == 1 {
            pool.checkpoint()?;
            each()?;
        }
    }
    Ok(())
}

/// Power failures and kills are in `replica_crashes.rs`.
#[test]
fn an_archiver_whose_calls_fail_leaves_an_archive_and_continues() {
    // Number of events without a failure.
    let events = {
        let (scratch, disk, archive) = (Scratch::new(), Disk::new(), Disk::new());
        let pool = open(&scratch, &disk, Durability::Commit).unwrap();
        let mut own = archiver(&disk, &archive).unwrap();
        run(&pool, || copy_all(&mut own)).unwrap();
        archive.events()
    };
    assert!(events > 40, "{events}");
    let step = if is_thorough() { 1 } else { 3 };
    for event in (0..=events).step_by(step) {
        let (scratch, disk, archive) = (Scratch::new(), Disk::new(), Disk::new());
        let pool = open(&scratch, &disk, Durability::Commit).unwrap();
        pool.create_cursor("all", Some(0)).unwrap();
        archive.fail_at(event);
        let mut own = None;
        run(&pool, || {
            if own.is_none() {
                own = archiver(&disk, &archive).ok();
            }
            // The writer does not notice.
            let _ = own.as_mut().map(copy_all);
            Ok(())
        })
        .unwrap();
        drop(own);
        let archive = archive.after_kill();
        let what = format!("event {event}");
        let mut consumer = Consumer::default();
        let mut states = Vec::new();
        follow_all(&disk, &mut consumer, &mut states);
        // What it has can be restored.
        if let Ok((_scratch, pool, told)) = restored(&archive, RestoreTo::End) {
            let state = states.iter().find(|state| state.next == told.lsn);
            if let Some(state) = state {
                state.assert_is_in(&pool, &what);
            } else {
                assert!(told.lsn == 0 || states.is_empty() || told.lsn < states[0].next, "{what}: {told:?}");
            }
        }
        // It continues, and has all then.
        let mut own = archiver(&disk, &archive).unwrap_or_else(|error| panic!("{what}: {error}"));
        copy_all(&mut own).unwrap_or_else(|error| panic!("{what}: {error}"));
        let (_scratch, copy, _) = restored(&archive, RestoreTo::End).unwrap();
        consumer.assert_is_in(&copy, &what);
        drop(pool);
    }
}

/// Applies all entries that the journal has.
fn follow_all(disk: &Disk, consumer: &mut Consumer, states: &mut Vec<Consumer>) {
    for entry in files(disk).changes(Some(0)).unwrap() {
        consumer.apply(&entry.unwrap());
        states.push(consumer.clone());
    }
}

#[test]
fn pieces_are_merged_and_old_ones_removed() {
    let (scratch, disk, archive) = (Scratch::new(), Disk::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let mut own = archiver(&disk, &archive).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let (mut consumer, mut states) = (Consumer::default(), Vec::new());
    for round in 0..300_u64 {
        tree.upsert(round % 50, round).unwrap();
        if round % 60 == 40 {
            pool.checkpoint().unwrap();
        }
        copy_all(&mut own).unwrap();
        follow(&disk, &mut consumer, &mut states);
    }
    let segments = archive.list().unwrap().iter().filter(|name| name.starts_with("segment-")).count();
    assert!(segments < 30, "{segments} pieces of 300");
    let before = own.status();
    assert_eq!(before.lsns.0, Some(0));
    let names = archive.list().unwrap();
    own.prune(&Keep::all()).unwrap();
    own.prune(&Keep::all().time(Duration::from_secs(86_400))).unwrap();
    assert_eq!(own.status(), before, "nothing is as old");
    assert_eq!(archive.list().unwrap(), names);
    own.prune(&Keep::all().bytes(1)).unwrap();
    let after = own.status();
    assert!(
        after.files.1 < before.files.1 && after.lsns.0 > Some(0) && after.lsns.1 == before.lsns.1,
        "{after:?}"
    );
    let first = after.lsns.0.unwrap();
    assert!(archive.list().unwrap().len() < names.len());
    for state in states.iter().step_by(23) {
        let done = restored(&archive, RestoreTo::Lsn(state.next));
        match done {
            Ok((_scratch, pool, _)) => {
                assert!(state.next >= first);
                state.assert_is_in(&pool, "after pruning");
            }
            Err(error) => {
                assert!(state.next < first, "{error}");
                assert!(
                    matches!(&error, Error::Invalid { what } if what.contains("begins at LSN")),
                    "{error}"
                );
            }
        }
    }
    // It continues behind what was removed.
    tree.upsert(7, 7).unwrap();
    drop(own);
    copy_all(&mut archiver(&disk, &archive).unwrap()).unwrap();
    let (_scratch, copy, _) = restored(&archive, RestoreTo::End).unwrap();
    assert_eq!(copy.tree::<u64, u64>("t").unwrap().get(7).unwrap(), Some(7));
}

#[test]
pub fn wrong_moments_and_places_are_refused() {
    let (scratch, disk, archive) = (Scratch::new(), Disk::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    tree.upsert(1, 1).unwrap();
    pool.checkpoint().unwrap();
    let mut own = archiver(&disk, &archive).unwrap();
    let refused = |to| match restored(&archive, to) {
        Err(Error::Invalid { what }) => what,
        other => panic!("{:?}", other.map(|(_, _, told)| told)),
    };
    assert!(refused(RestoreTo::End).contains("no checkpoint yet"));
    copy_all(&mut own).unwrap();
    // The checkpoint needs its entries.
    tree.upsert(2, 2).unwrap();
    copy_all(&mut own).unwrap();
    let (first, end) = own.status().lsns;
    assert!(refused(RestoreTo::Lsn(end + 8)).contains("ends at LSN"));
    assert!(refused(RestoreTo::Lsn(first.unwrap() - 8)).contains("begins at LSN"));
    let time = std::time::UNIX_EPOCH + Duration::from_secs(9);
    assert!(refused(RestoreTo::Time(time)).contains("begins at LSN"));
    let time = std::time::SystemTime::now() + Duration::from_secs(900);
    assert!(refused(RestoreTo::Time(time)).contains("before the time asked for"));
    let nothing = restored(&Disk::new(), RestoreTo::End);
    assert!(matches!(nothing, Err(Error::Invalid { what }) if what.contains("has no archive")));
    // A pool that exists stays.
    let archived: Arc<dyn Storage> = Arc::new(archive.clone());
    let exists = options(&disk, Durability::Commit).restore_from(&scratch.0, &archived, RestoreTo::End);
    assert!(matches!(exists, Err(Error::Exists { .. })));

    // Another pool, and older copies.
    let (foreign, other) = (Scratch::new(), Disk::new());
    drop(open(&foreign, &other, Durability::Commit).unwrap());
    let refused = archiver(&other, &archive).unwrap_err();
    assert!(matches!(&refused, Error::Invalid { what } if what.contains("another pool")), "{refused}");
    let old = archive.only_durable();
    tree.upsert(3, 3).unwrap();
    copy_all(&mut own).unwrap();
    let refused = archiver(&disk, &old).unwrap_err();
    assert!(matches!(&refused, Error::Invalid { what } if what.contains("older copy")), "{refused}");
}

#[test]
pub fn two_copies_of_a_pool_cannot_both_append() {
    let (scratch, disk, archive) = (Scratch::new(), Disk::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    tree.upsert(1, 1).unwrap();
    copy_all(&mut archiver(&disk, &archive).unwrap()).unwrap();
    drop(tree);
    pool.close().unwrap();
    // A copy of the pool and of its journal.
    let (copied, other) = (Scratch::new(), disk.only_durable());
    std::fs::copy(&scratch.0, &copied.0).unwrap();
    for (at, (scratch, disk)) in [(&scratch, &disk), (&copied, &other)].into_iter().enumerate() {
        let pool = open(scratch, disk, Durability::Commit).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        (0..20).for_each(|key| tree.upsert(key, 77 + at as u64).unwrap());
        let copied = archiver(disk, &archive).and_then(|mut archiver| copy_all(&mut archiver));
        match at {
            0 => copied.unwrap(),
            _ => {
                let refused = copied.unwrap_err();
                assert!(
                    matches!(&refused, Error::Invalid { what } if what.contains("other entries")),
                    "{refused}"
                );
            }
        }
        drop(tree);
        pool.simulate_crash();
    }
}

#[test]
fn damaged_archives_are_refused() {
    let (scratch, disk, archive) = (Scratch::new(), Disk::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let mut own = archiver(&disk, &archive).unwrap();
    run(&pool, || own.copy().map(drop)).unwrap();
    copy_all(&mut own).unwrap();
    let names: Vec<_> = archive.list().unwrap().into_iter().filter(|name| name != "lock").collect();
    let needed = |name: &str| {
        let image = archive.only_durable();
        image.remove(name).unwrap();
        matches!(restored(&image, RestoreTo::End), Err(Error::Corrupted { .. } | Error::Invalid { .. }))
    };
    let needed: Vec<_> = names.iter().filter(|name| needed(name)).collect();
    assert!(needed.iter().any(|name| name.starts_with("archive-")), "{needed:?} of {names:?}");
    assert!(needed.iter().any(|name| name.starts_with("segment-")), "{needed:?} of {names:?}");
    assert!(needed.iter().any(|name| name.starts_with("checkpoint-")), "{needed:?} of {names:?}");
    assert!(needed.iter().any(|name| name.starts_with("entry-")), "{needed:?} of {names:?}");
    for name in &needed {
        let bytes = archive.bytes_of(name);
        for damage in 0..6 {
            let image = archive.only_durable();
            match damage {
                0 => image.damage(name, bytes.len() / 2, 1),
                1 => image.damage(name, bytes.len() - 1, 0x80),
                2 => image.damage(name, 9, 2),
                // Truncated, longer, and another file in its place.
                3 => _ = image.create(name, 0).unwrap().write(0, &bytes[..bytes.len() - 8]),
                4 => _ = image.create(name, 0).unwrap().write(0, &[&bytes[..], &[0; 8]].concat()),
                _ => {
                    let other =
                        names.iter().find(|other| other != name && !other.starts_with("archive")).unwrap();
                    _ = image.create(name, 0).unwrap().write(0, &archive.bytes_of(other));
                }
            }
            match restored(&image, RestoreTo::End) {
                Err(Error::Corrupted { .. } | Error::Newer { .. }) => {}
                // The padding of a long entry's file is none of it.
                Ok(_) if damage == 4 && name.starts_with("entry-") => {}
                other => panic!("{name}, damage {damage}: {:?}", other.map(|(_, _, told)| told)),
            }
        }
    }
    // Files that are none of the archive change nothing.
    let image = archive.only_durable();
    for name in ["segment-00000099", "notes.txt", "archive-x", "checkpoint-77.new"] {
        image.create(name, 10).unwrap();
    }
    restored(&image, RestoreTo::End).unwrap();
}

/// Whatever fails, an archive that does not exist holds back no entries; the next attempt succeeds.
#[test]
fn a_beginning_that_fails_leaves_no_cursor() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    pool.tree::<u64, u64>("t").unwrap().insert(1, 2).unwrap();
    let mut failures = 0;
    for event in 0.. {
        let archive = Disk::new();
        archive.fail_at(event);
        let Err(error) = archiver(&disk, &archive) else { break };
        assert!(matches!(error, Error::Io { .. } | Error::MediumFull { .. }), "event {event}: {error}");
        assert!(files(&disk).cursors().unwrap().is_empty(), "event {event}");
        copy_all(&mut archiver(&disk, &archive.after_kill()).unwrap()).unwrap();
        for cursor in files(&disk).cursors().unwrap() {
            pool.drop_cursor(&cursor.name).unwrap();
        }
        failures += 1;
    }
    assert!(failures > 4, "{failures}");
    drop(pool);
}
