//! The files of a journal, read without opening the pool.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use bristlecone_pm::Storage;
use bristlecone_random::Generator as Random;

use super::{Scratch, open, options};
use crate::journal::simulated::Disk;
use crate::{Changed, Design, Durability, Error, JournalEntry, JournalFiles, JournalStatus, Result};

/// Returns the files of the journal of a pool with the [options] of these tests.
pub fn files(disk: &Disk) -> JournalFiles {
    let files = JournalFiles::on(PathBuf::from("journal"), Arc::new(disk.clone())).unwrap();
    JournalFiles { sizes: options(disk, Durability::Commit).journal.sizes(), ..files }
}

pub fn entries(files: &JournalFiles, from: Option<u64>) -> Result<Vec<JournalEntry>> {
    files.changes(from)?.collect()
}

/// Describes the changes of entries.
pub fn told(entries: &[JournalEntry]) -> Vec<String> {
    let of_entry = |entry: &JournalEntry| {
        let all: Vec<_> = entry.changes().unwrap().map(Result::unwrap).collect();
        let one = |change: &crate::JournalChange| {
            let tree = &change.tree.spec.name;
            match &change.change {
                Changed::Put { key, value, .. } => format!("{tree} {key:?} = {value:?}"),
                Changed::Remove { key, .. } => format!("{tree} {key:?} removed"),
                Changed::Create => format!("{tree} created"),
                Changed::Drop => format!("{tree} dropped"),
                Changed::Rename { to } => format!("{tree} is {to}"),
                Changed::Clear { .. } => format!("{tree} cleared"),
            }
        };
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    entries.iter().map(of_entry).collect()
}

fn status(disk: &Disk) -> JournalStatus {
    files(disk).status().unwrap()
}

#[test]
fn entries_have_the_changes_with_their_trees_names_at_that_time() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let oaks = pool.tree::<&str, u64>("oaks").unwrap();
    oaks.insert("holm", 1).unwrap();
    oaks.upsert("holm", 2).unwrap();
    oaks.remove("holm").unwrap();
    assert!(oaks.try_insert("cork", 7).is_ok());
    assert!(oaks.try_insert("cork", 8).is_err());
    let mut batch = pool.batch();
    batch.insert(&oaks, "red", 3).remove(&oaks, "cork");
    batch.commit().unwrap();
    pool.rename_tree("oaks", "trees").unwrap();
    oaks.upsert("elm", 4).unwrap();
    drop(oaks);
    pool.clear_tree("trees").unwrap();
    pool.tree::<&str, u64>("trees").unwrap().upsert("fir", 5).unwrap();
    pool.drop_tree("trees").unwrap();
    let found = entries(&files(&disk), None).unwrap();
    let want = [
        "oaks created",
        "oaks Str(\"holm\") = U64(1)",
        "oaks Str(\"holm\") = U64(2)",
        "oaks Str(\"holm\") removed",
        "oaks Str(\"cork\") = U64(7)",
        "oaks Str(\"cork\") removed, oaks Str(\"red\") = U64(3)",
        "oaks is trees",
        "trees Str(\"elm\") = U64(4)",
        "trees cleared",
        "trees Str(\"fir\") = U64(5)",
        "trees dropped",
    ];
    assert_eq!(told(&found), want);
    // Each entry begins where the one before it ends, but for those that changed nothing.
    assert!(found.is_sorted_by(|one, next| one.next_lsn() <= next.lsn() && one.time() <= next.time()));
    for (at, entry) in found.iter().enumerate() {
        assert_eq!(told(&entries(&files(&disk), Some(entry.lsn())).unwrap()), want[at..]);
        assert_eq!(told(&entries(&files(&disk), Some(entry.lsn() + 1)).unwrap()), want[at + 1..]);
    }
    pool.close().unwrap();
    assert_eq!(told(&entries(&files(&disk), None).unwrap()), want);
}

#[test]
fn a_tree_that_was_created_with_items_is_followed_by_them() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let items = [("ash", 1), ("elm", 2), ("fir", 3)];
    let created = pool.tree_options("trees").create_with::<&str, u64>(|loader| {
        items.into_iter().try_for_each(|(key, value)| loader.push(key, value))
    });
    drop(created.unwrap());
    let found = entries(&files(&disk), None).unwrap();
    assert_eq!(
        told(&found),
        [
            "trees created, trees Str(\"ash\") = U64(1), trees Str(\"elm\") = U64(2), trees Str(\"fir\") = U64(3)"
        ]
    );
}

#[test]
fn entries_before_a_checkpoint_are_refused() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree_options("t").design(Design::NbTree).create::<u64, &str>().unwrap();
    tree.upsert(1, "one").unwrap();
    let first = entries(&files(&disk), None).unwrap().last().unwrap().lsn();
    // Another segment.
    (0..20).for_each(|_| tree.upsert(1, "one").unwrap());
    pool.checkpoint().unwrap();
    tree.upsert(2, "two").unwrap();
    // The name of the tree is in the checkpoint.
    assert_eq!(told(&entries(&files(&disk), None).unwrap()), ["t U64(2) = Str(\"two\")"]);
    let refused = entries(&files(&disk), Some(first)).unwrap_err();
    let begin = status(&disk).checkpoint_lsn.unwrap();
    let Error::Pruned { oldest } = refused else { panic!("{refused}") };
    assert!(oldest > first && oldest <= begin, "{oldest}");
    assert!(entries(&files(&disk), Some(oldest)).is_ok());
    let beyond = entries(&files(&disk), Some(status(&disk).lsn + 8)).unwrap_err();
    assert!(matches!(&beyond, Error::Invalid { .. }), "{beyond}");
    // Nothing is wrong with an end at which no entry is yet.
    assert_eq!(told(&entries(&files(&disk), Some(status(&disk).lsn)).unwrap()), [""; 0]);
}

#[test]
fn pruning_leaves_the_checkpoint_and_one_segment() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    (0..100).for_each(|key| tree.upsert(key, key).unwrap());
    let names = || {
        let mut names = disk.list().unwrap();
        names.retain(|name| name.starts_with("segment-"));
        names
    };
    assert!(names().len() > 3, "{:?}", names());
    pool.checkpoint().unwrap();
    assert!(names().len() > 1, "a checkpoint keeps files for the next segments");
    pool.prune_journal().unwrap();
    assert_eq!(names().len(), 1);
    assert_eq!(pool.journal_status().unwrap().unwrap().bytes_since_checkpoint, 0);
    tree.upsert(1, 2).unwrap();
    drop(tree);
    pool.simulate_crash();
    scratch.scramble();
    let disk = disk.after_failure(&mut Random::new(1));
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    assert_eq!((tree.len().unwrap(), tree.get(1).unwrap()), (100, Some(2)));
    let plain = crate::Pool::temporary().unwrap();
    assert!(matches!(plain.prune_journal(), Err(Error::Invalid { .. })));
}

#[test]
fn the_status_is_the_same_in_this_process_and_in_others() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    for key in 0..500 {
        tree.upsert(key, key).unwrap();
    }
    let own = pool.journal_status().unwrap().unwrap();
    assert_eq!((own.durability, own.durable_lsn, own.failed), (Some(Durability::Commit), own.lsn, false));
    assert_eq!((own.checkpoint_lsn, own.bytes_since_checkpoint), (None, own.lsn));
    assert!(own.lsn > 500 * 32 && own.segment_bytes >= 500 * 4096 && own.syncs.count >= 500, "{own:?}");
    assert!(own.syncs.p50 <= own.syncs.p99 && own.syncs.p99 <= own.syncs.max, "{own:?}");
    assert_eq!(JournalStatus { folder: own.folder.clone(), ..status(&disk) }, own);

    pool.checkpoint().unwrap();
    let after = pool.journal_status().unwrap().unwrap();
    assert_eq!(after.checkpoint_lsn, Some(own.lsn));
    assert_eq!(after.bytes_since_checkpoint, 0);
    assert!(after.segment_bytes < own.segment_bytes, "{after:?}");

    drop(tree);
    pool.close().unwrap();
    let closed = status(&disk);
    assert_eq!((closed.durability, closed.lsn, closed.durable_lsn), (None, own.lsn, own.lsn));
    assert_eq!((closed.checkpoint_lsn, closed.bytes_since_checkpoint), (Some(own.lsn), 0));
    assert_eq!((closed.segment_bytes, closed.syncs.count), (after.segment_bytes, 0));
}

#[test]
fn entries_in_memory_count_as_not_durable() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Memory).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    tree.upsert(1, 1).unwrap();
    let own = pool.journal_status().unwrap().unwrap();
    assert!(own.durable_lsn < own.lsn && own.durability == Some(Durability::Memory), "{own:?}");
    assert_eq!((status(&disk).lsn, status(&disk).durable_lsn), (own.lsn, own.durable_lsn));
    assert_eq!(told(&entries(&files(&disk), None).unwrap()), [""; 0], "no entry is in a file");
    pool.sync().unwrap();
    let own = pool.journal_status().unwrap().unwrap();
    assert_eq!((own.durable_lsn, own.syncs.count), (own.lsn, 1));
    drop(tree);
    // A killed process leaves its figures, and a power failure does not.
    pool.simulate_crash();
    let killed = status(&disk);
    assert_eq!((killed.durability, killed.lsn), (Some(Durability::Memory), own.lsn));
    let failed = disk.after_failure(&mut Random::new(1));
    let failed = status(&failed);
    assert_eq!((failed.durability, failed.lsn), (None, own.lsn));
}

#[test]
fn a_failed_sync_is_in_the_status() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    disk.fail_at(disk.events() + 1);
    assert!(matches!(tree.upsert(1, 1), Err(Error::DurabilityLost)));
    let own = pool.journal_status().unwrap().unwrap();
    assert!(own.failed && own.durable_lsn < own.lsn, "{own:?}");
    assert!(status(&disk).failed);
    drop(tree);
    pool.simulate_crash();
}

#[test]
fn only_writers_of_a_journal_have_a_status() {
    let plain = crate::Pool::temporary().unwrap();
    assert_eq!(plain.journal_status().unwrap(), None);
    let (scratch, disk) = (Scratch::new(), Disk::new());
    open(&scratch, &disk, Durability::Commit).unwrap().close().unwrap();
    let mut reading = crate::Pool::options().read_only(true);
    reading.journal = options(&disk, Durability::Commit).journal;
    reading.journal.durability = None;
    assert_eq!(reading.open(&scratch.0).unwrap().journal_status().unwrap(), None);
}

/// A thread writes small segments and makes checkpoints while another one reads all entries again and again.
#[test]
fn entries_are_read_while_they_are_written() {
    let scratch = Scratch::new();
    let mut options = options(&Disk::new(), Durability::Memory);
    options.journal.storage = None;
    let folder = options.journal.folder_of(&scratch.0);
    let pool = options.open(&scratch.0).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let is_done = AtomicBool::new(false);
    let (mut read, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in 1..=30_000_u64 {
                tree.upsert(count % 7, count).unwrap();
                if count % 10_000 == 5_000 {
                    pool.checkpoint().unwrap();
                }
            }
            pool.sync().unwrap();
            is_done.store(true, SeqCst);
        });
        while !is_done.load(SeqCst) || read == 0 {
            let mut last = HashMap::new();
            let mut next = None;
            let files =
                JournalFiles { sizes: options.journal.sizes(), ..JournalFiles::open(&folder).unwrap() };
            let ended = files.changes(None).and_then(|mut entries| {
                entries.try_for_each(|entry| {
                    let entry = entry?;
                    assert!(next.is_none_or(|next| entry.lsn() == next), "{} after {next:?}", entry.lsn());
                    next = Some(entry.next_lsn());
                    for change in told(&[entry]).iter().filter(|change| !change.contains("created")) {
                        let number = |at: usize| -> u64 {
                            let word = change.split_whitespace().nth(at).unwrap();
                            word.trim_matches(|c: char| !c.is_ascii_digit())
                                .trim_start_matches("64(")
                                .parse()
                                .unwrap()
                        };
                        let (key, count) = (number(1), number(3));
                        let before = last.insert(key, count);
                        assert!(before.is_none_or(|before| before + 7 == count), "{before:?}, then {count}");
                    }
                    Ok(())
                })
            });
            match ended {
                Ok(()) => read += usize::from(next.is_some()),
                // A checkpoint was faster.
                Err(Error::Pruned { .. }) => refused += 1,
                Err(error) => panic!("{error}, after {read} and {refused}"),
            }
        }
    });
    drop(tree);
    pool.close().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
}
