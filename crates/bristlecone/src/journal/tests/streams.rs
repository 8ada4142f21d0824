//! The stream of changes: complete, in order, and with what each key was before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bristlecone_pm::Storage;
use bristlecone_random::Generator as Random;

use super::inspection::{files, told};
use super::{Model, Scratch, compare, open, options, work};
use crate::dynamic::Datum;
use crate::journal::log::Log;
use crate::journal::manifest::{Manifest, segment_name};
use crate::journal::segment::{Block, PAGE_BYTES, Read};
use crate::journal::simulated::Disk;
use crate::journal::trees::Past;
use crate::{Changed, Design, Durability, Error, JournalEntry, Pool, Result};

/// What a consumer has: the trees by number, their names and items.
#[derive(Clone, Default)]
pub struct Consumer {
    pub trees: BTreeMap<u32, (String, BTreeMap<String, String>)>,
    pub next: u64,
    pub time: Option<std::time::SystemTime>,
}

impl Consumer {
    /// Applies an entry; verifies that it follows the last one, and what it says about its keys.
    pub fn apply(&mut self, entry: &JournalEntry) {
        assert!(entry.lsn() >= self.next, "LSN {} after {}", entry.lsn(), self.next);
        assert!(self.time.is_none_or(|time| time <= entry.time()), "the time goes back");
        (self.next, self.time) = (entry.next_lsn(), Some(entry.time()));
        for change in entry.changes().unwrap() {
            let change = change.unwrap();
            let (id, name) = (change.tree.id.0, &change.tree.spec.name);
            if let Changed::Create = change.change {
                assert!(self.trees.insert(id, (name.clone(), BTreeMap::new())).is_none());
                continue;
            }
            let (known, items) = self.trees.get_mut(&id).expect("a tree that exists");
            assert_eq!(known, name);
            match change.change {
                Changed::Put { key, value, existed } => {
                    let old = items.insert(format!("{key:?}"), format!("{value:?}"));
                    assert!(existed.is_none_or(|existed| existed == old.is_some()), "{key:?}: {existed:?}");
                }
                Changed::Remove { key, existed } => {
                    let old = items.remove(&format!("{key:?}"));
                    assert!(existed.is_none_or(|existed| existed == old.is_some()), "{key:?}: {existed:?}");
                }
                Changed::Drop => _ = self.trees.remove(&id),
                Changed::Rename { to } => *known = to,
                Changed::Clear { id: new } => {
                    let name = known.clone();
                    self.trees.remove(&id);
                    self.trees.insert(new.0, (name, BTreeMap::new()));
                }
                Changed::Create => unreachable!("handled above"),
            }
        }
    }

    /// Asserts that a pool has these items.
    pub fn assert_is_in(&self, pool: &Pool, what: &str) {
        let mut trees = BTreeMap::new();
        for entry in pool.trees().unwrap() {
            let tree = pool.dynamic_tree(&entry.spec.name).unwrap();
            let items = tree.range(..).map(|item| {
                let (key, value) = item.unwrap();
                (format!("{key:?}"), format!("{value:?}"))
            });
            assert!(tree.check().is_empty(), "{what}");
            trees.insert(entry.spec.name.clone(), items.collect::<BTreeMap<_, _>>());
        }
        let own: BTreeMap<_, _> = self.trees.values().cloned().collect();
        assert_eq!(trees, own, "{what}");
    }

    fn items(&self, name: &str) -> BTreeMap<String, String> {
        let tree = self.trees.values().find(|(known, _)| known == name);
        tree.map(|(_, items)| items.clone()).unwrap_or_default()
    }

    fn assert_is(&self, model: &Model) {
        let words: BTreeMap<_, _> = model
            .words
            .iter()
            .map(|(key, value)| (format!("{:?}", Datum::U64(*key)), format!("{:?}", Datum::U64(*value))))
            .collect();
        assert_eq!(self.items("words"), words);
        let texts: BTreeMap<_, _> = model
            .texts
            .iter()
            .map(|(key, value)| {
                let (key, value) = (Datum::from(key.as_str()), Datum::Bytes(value.as_slice().into()));
                (format!("{key:?}"), format!("{value:?}"))
            })
            .collect();
        assert_eq!(self.items("texts"), texts);
    }
}

/// A consumer with a cursor follows a pool over closes, kills, power failures and checkpoints, and is restarted itself.
#[test]
fn a_consumer_sees_every_commit_once_in_every_design() {
    for &design in Design::ALL {
        for seed in 0..3 {
            let (scratch, mut disk) = (Scratch::new(), Disk::new());
            let (mut random, mut model, mut consumer) =
                (Random::new(seed), Model::default(), Consumer::default());
            for round in 0..8 {
                let pool = open(&scratch, &disk, Durability::Commit).unwrap();
                if round == 0 {
                    pool.create_cursor("c", Some(0)).unwrap();
                }
                for _ in 0..2 {
                    work(&pool, design, &mut random, &mut model).unwrap();
                    if random.below(2) == 0 {
                        pool.checkpoint().unwrap();
                    }
                    if random.below(3) == 0 {
                        continue;
                    }
                    let mut changes = match random.below(2) {
                        0 => pool.changes_of("c").unwrap(),
                        _ => files(&disk).changes_of("c").unwrap(),
                    };
                    // It may stop anywhere.
                    let stop = if random.below(2) == 0 { usize::MAX } else { random.index(100) };
                    for entry in changes.by_ref().take(stop) {
                        consumer.apply(&entry.unwrap());
                    }
                    changes.advance(consumer.next).unwrap();
                    if stop == usize::MAX {
                        consumer.assert_is(&model);
                    }
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
                let cursors = files(&disk).cursors().unwrap();
                assert_eq!((cursors.len(), cursors[0].lsn), (1, consumer.next));
            }
            for entry in files(&disk).changes_of("c").unwrap() {
                consumer.apply(&entry.unwrap());
            }
            consumer.assert_is(&model);
        }
    }
}

/// Returns what the last entry says about the keys of its changes.
fn existed(pool: &Pool) -> Vec<Option<bool>> {
    let last = pool.changes(0).unwrap().last().unwrap().unwrap();
    let of = |change: Changed| match change {
        Changed::Put { existed, .. } | Changed::Remove { existed, .. } => existed,
        other => panic!("{other:?}"),
    };
    last.changes().unwrap().map(|change| of(change.unwrap().change)).collect()
}

#[test]
fn entries_say_whether_keys_were_present_in_every_design() {
    for &design in Design::ALL {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        let pool = open(&scratch, &disk, Durability::Commit).unwrap();
        let tree = pool.tree_options("t").design(design).create::<&str, u64>().unwrap();
        let is = |wanted: &[Option<bool>]| assert_eq!(existed(&pool), wanted, "{design}");
        let (new, old) = (Some(false), Some(true));
        tree.insert("a", 1).unwrap();
        is(&[new]);
        tree.insert("a", 2).unwrap();
        is(&[old]);
        tree.upsert("a", 3).unwrap();
        is(&[None]);
        tree.try_insert("b", 1).unwrap();
        is(&[new]);
        tree.update("b", 2).unwrap();
        is(&[old]);
        tree.compare_and_swap("b", Some(2), Some(3)).unwrap();
        is(&[old]);
        tree.compare_and_swap("c", None, Some(3)).unwrap();
        is(&[new]);
        tree.compare_and_swap("c", Some(3), None).unwrap();
        is(&[old]);
        tree.remove("b").unwrap();
        is(&[old]);
        tree.insert_many(&[("a", 1), ("b", 2), ("b", 3), ("a long key of many bytes", 4)], &mut Vec::new())
            .unwrap();
        is(&[old, new, old, new]);
        tree.remove_many(&["c", "b", "b"], &mut Vec::new()).unwrap();
        is(&[new, old, new]);
        tree.upsert_many(&[("a", 5), ("d", 6)]).unwrap();
        is(&[None, None]);
        let mut batch = pool.batch();
        batch
            .insert(&tree, "a", 1)
            .remove(&tree, "b")
            .insert(&tree, "c", 1)
            .remove(&tree, "d")
            .insert(&tree, "e", 9);
        batch.commit().unwrap();
        is(&[old, new, new, old, new]);
        pool.transaction(|tx| tx.insert(&tree, "a", 8).and(tx.remove(&tree, "c")).map(drop)).unwrap();
        is(&[old, old]);
        // Nothing is changed: no entry.
        let next = pool.changes(0).unwrap().last().unwrap().unwrap().next_lsn();
        assert!(tree.try_insert("a", 1).is_err() && tree.update("x", 1).unwrap().is_none());
        assert_eq!(pool.changes(next).unwrap().count(), 0);
    }
}

#[test]
fn a_long_commit_is_read_from_its_file() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, &[u8]>("t").unwrap();
    let mut batch = pool.batch();
    (0..2000).for_each(|key| _ = batch.insert(&tree, key, &[7; 40]));
    batch.commit().unwrap();
    let loaded = pool
        .tree_options("l")
        .create_with::<u64, u64>(|loader| (0..3000).try_for_each(|key| loader.push(key, key)));
    drop(loaded.unwrap());
    let found: Vec<_> = pool.changes(0).unwrap().collect::<Result<_>>().unwrap();
    let counts: Vec<_> = found.iter().map(|entry| entry.changes().unwrap().count()).collect();
    assert_eq!(counts, [1, 2000, 3001]);
    assert_eq!(existed_of(&found[1], 5), None, "the body was durable before");
    assert_eq!(existed_of(&found[2], 5), Some(false));
    // Its file is removed with the next checkpoint: the entry that a consumer still holds says so.
    for _ in 0..20 {
        tree.upsert(1, &[1]).unwrap();
    }
    pool.checkpoint().unwrap();
    assert!(matches!(found[1].changes(), Err(Error::Pruned { .. })));
    let name = disk.list().unwrap().into_iter().find(|name| name.starts_with("entry-"));
    assert_eq!(name, None);
}

fn existed_of(entry: &JournalEntry, at: usize) -> Option<bool> {
    match entry.changes().unwrap().nth(at).unwrap().unwrap().change {
        Changed::Put { existed, .. } => existed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_durable_commits_are_in_the_stream() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Memory).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    pool.sync().unwrap();
    let mut own = pool.changes(0).unwrap();
    let mut other = files(&disk).changes(Some(0)).unwrap();
    assert_eq!((own.by_ref().count(), other.by_ref().count()), (1, 1));
    // More than the ring has room for is in the files, and not durable.
    (0..2000).for_each(|key| tree.upsert(key, key).unwrap());
    let durable = pool.journal_status().unwrap().unwrap().durable_lsn;
    assert!(pool.journal_status().unwrap().unwrap().lsn > durable + (16 << 10));
    for changes in [&mut own, &mut other] {
        assert!(changes.by_ref().all(|entry| entry.unwrap().next_lsn() <= durable));
        assert_eq!(changes.next_within(Duration::from_millis(3)).unwrap().map(|entry| entry.lsn()), None);
    }
    pool.sync().unwrap();
    let count = own.by_ref().count() + 2000 - pool.changes(own.next_lsn()).unwrap().count();
    assert!(count >= 2000);
    let total = pool.changes(0).unwrap().count();
    assert_eq!(total, 2001);
    // A stopped stream does not wait.
    let stopper = own.stopper();
    let waits = std::thread::spawn(move || own.next_within(Duration::MAX).unwrap().is_none());
    stopper.stop();
    assert!(waits.join().unwrap());
}

#[test]
fn a_follower_gets_what_another_thread_commits() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let mut changes = pool.changes(pool.journal_status().unwrap().unwrap().durable_lsn).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..300).for_each(|key| tree.upsert(key, key * 2).unwrap()));
        for key in 0..300_u64 {
            let entry = changes.next_within(Duration::from_secs(30)).unwrap().expect("a commit");
            assert_eq!(told(&[entry]), [format!("t U64({key}) = U64({})", key * 2)]);
        }
    });
}

#[test]
fn the_time_does_not_go_back_with_the_clock() {
    let disk = Disk::new();
    let manifest = Manifest {
        uuid: 1,
        pool: 1,
        geometry: bristlecone_pm::Geometry { chunk_bytes: 4096, chunks_max: 1, trees_max: 1 },
        next: 1,
        closed: 0,
        checkpoint: None,
        kept: 0,
        timeline: Default::default(),
        segments: Vec::new(),
        spare: Vec::new(),
    };
    let tomorrow = std::time::SystemTime::now() + Duration::from_secs(86_400);
    let time = tomorrow.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let past = Past { time, ..Past::default() };
    let mut log = Log::create(Arc::new(disk.clone()), manifest, 64 << 10, 0, past).unwrap();
    let mut entry = Vec::new();
    let head = crate::journal::entry::Head::complete(crate::journal::entry::Kind::Each, 0);
    crate::journal::entry::append(&mut entry, head, 0, &[]);
    log.append(&entry).unwrap();
    log.sync().unwrap();
    let times = |manifest: &Manifest| {
        let segment = *manifest.segments.last().unwrap();
        let file = disk.open(&segment_name(segment.file)).unwrap().unwrap();
        let mut times = Vec::new();
        let read = Read::new(&*file, segment, 1, String::new()).unwrap();
        read.blocks(|block, _| {
            times.push(block.time);
            Ok(())
        })
        .unwrap();
        times
    };
    assert_eq!(times(log.manifest()), [time]);
    // The next process finds it.
    let (_, past) = crate::journal::past::past_of(&disk, log.manifest()).unwrap();
    assert_eq!(past.time, time);
}

/// Rewrites a journal as version 1 had it. Its entries must say nothing about earlier keys.
fn make_old(disk: &Disk) {
    let manifest = Manifest::read(disk).unwrap().unwrap();
    for segment in &manifest.segments {
        let name = segment_name(segment.file);
        let file = disk.open(&name).unwrap().unwrap();
        let words = [
            u64::from_le_bytes(*b"BRISTSEG"),
            1,
            manifest.uuid as u64,
            (manifest.uuid >> 64) as u64,
            segment.generation,
            segment.first,
        ];
        let mut bytes = words.map(u64::to_le_bytes).concat();
        let checksum = crc32c::crc32c(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes.resize(PAGE_BYTES, 0);
        let read = Read::new(&*file, *segment, manifest.uuid, name.clone()).unwrap();
        read.blocks(|block, entries| {
            let offset = bytes.len() as u64;
            Block { offset, ..*block }.append(&mut bytes, manifest.uuid, entries);
            Ok(())
        })
        .unwrap();
        bytes.resize(bytes.len().max(file.bytes().unwrap() as usize), 0);
        let file = disk.create(&name, 0).unwrap();
        file.write(0, &bytes).unwrap();
        file.sync().unwrap();
    }
    let file = disk.create("manifest", 0).unwrap();
    file.write(0, &manifest.encode_old()).unwrap();
    file.sync().unwrap();
    disk.sync().unwrap();
}

#[test]
fn a_journal_of_version_1_is_read_and_continued() {
    for ending in 0..3 {
        for has_checkpoint in [false, true] {
            let (scratch, mut disk) = (Scratch::new(), Disk::new());
            let pool = open(&scratch, &disk, Durability::Commit).unwrap();
            let tree = pool.tree::<u64, u64>("t").unwrap();
            (0..40).for_each(|key| tree.upsert(key, key).unwrap());
            if has_checkpoint {
                pool.checkpoint().unwrap();
                drop(pool.tree::<&str, u64>("texts").unwrap());
            }
            (40..70).for_each(|key| tree.upsert(key, key).unwrap());
            drop(tree);
            match ending {
                0 => pool.close().unwrap(),
                _ => pool.simulate_crash(),
            }
            make_old(&disk);
            if ending == 2 {
                scratch.scramble();
                disk = disk.after_failure(&mut Random::new(1));
            }
            let from = Manifest::read(&disk).unwrap().unwrap().begin();
            let read = |count: usize| {
                let entries: Vec<_> = files(&disk).changes(None).unwrap().collect::<Result<_>>().unwrap();
                assert_eq!(entries.len(), count, "ending {ending}");
                assert!(entries[0].lsn() >= from);
            };
            let before = if has_checkpoint { 31 } else { 71 };
            read(before);
            let refused = files(&disk).create_cursor("c", None);
            assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
            let pool = open(&scratch, &disk, Durability::Commit).unwrap();
            let tree = pool.tree::<u64, u64>("t").unwrap();
            assert_eq!(tree.len().unwrap(), 70);
            tree.insert(70, 70).unwrap();
            read(before + 1);
            let lsn = pool.create_cursor("c", None).unwrap();
            tree.insert(71, 71).unwrap();
            pool.checkpoint().unwrap();
            assert_eq!(pool.changes_of("c").unwrap().count(), 1);
            assert!(pool.changes(lsn).is_ok());
            drop(tree);
            pool.close().unwrap();
            assert_eq!(
                open(&scratch, &disk, Durability::Commit)
                    .unwrap()
                    .tree::<u64, u64>("t")
                    .unwrap()
                    .len()
                    .unwrap(),
                72
            );
        }
    }
}

/// Entries that a stream has read ahead and that a killed takeover left are not taken for those of its successor.
#[test]
fn a_stream_continues_over_restarts_of_the_writer() {
    let (scratch, mut disk) = (Scratch::new(), Disk::new());
    let mut seen = 0_u64;
    let mut next = 0;
    let mut random = Random::new(5);
    for round in 0..40 {
        let pool = open(&scratch, &disk, Durability::Commit).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        let mut changes = files(&disk).changes(Some(next)).unwrap();
        for _ in 0..random.index(30) {
            let count = tree.get(0).unwrap().unwrap_or(0);
            tree.insert(0, count + 1).unwrap();
        }
        drop(tree);
        let mut read = |changes: &mut crate::Changes| {
            for entry in changes {
                let entry = entry.unwrap();
                for text in told(std::slice::from_ref(&entry)).iter().filter(|text| !text.contains("created"))
                {
                    seen += 1;
                    assert_eq!(*text, format!("t U64(0) = U64({seen})"), "round {round}");
                }
                next = entry.next_lsn();
            }
        };
        read(&mut changes);
        match random.below(3) {
            0 => pool.close().unwrap(),
            1 => {
                pool.simulate_crash();
                disk = disk.after_kill();
                // The same stream continues.
                let pool = open(&scratch, &disk, Durability::Commit).unwrap();
                let tree = pool.tree::<u64, u64>("t").unwrap();
                let count = tree.get(0).unwrap().unwrap_or(0);
                tree.insert(0, count + 1).unwrap();
                read(&mut changes);
                drop(tree);
                pool.close().unwrap();
                read(&mut changes);
            }
            _ => {
                pool.simulate_crash();
                scratch.scramble();
                disk = disk.after_failure(&mut random);
            }
        }
        let _ = options(&disk, Durability::Commit);
    }
    assert!(seen > 300);
}
