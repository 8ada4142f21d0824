//! Children of processes whose pools have a journal.

use bristlecone::{Durability, JournalFiles, Tree};

use crate::child::child;
use crate::common::Scratch;
use crate::fixtures::{Planted, has_journal, plants};
use crate::fork_errors::{ask_all, is_forked};

/// A child of a process whose reads wait for the disk.
pub fn durable_reads() {
    for sower in plants().filter(|_| has_journal()) {
        let (scratch, here) = (Scratch::new(), std::process::id());
        let pool = scratch.options().durable_reads(true).open(&scratch.0).unwrap();
        let planted = Planted::in_(pool, &*sower);
        planted.fill(0..100);
        let (_, ticket) = planted.pool.with_ticket(|| planted.words.upsert(100, 101)).unwrap();
        child(|| {
            assert!(is_forked(ticket.wait(), &scratch.0, here));
            ask_all(&planted, &scratch.0, here);
        });
        ticket.wait().unwrap();
        assert_eq!(planted.words.get(100).unwrap(), Some(101));
    }
}

/// A checkpoint is due when the child is born: the child makes none.
pub fn due_checkpoints() {
    if !has_journal() {
        return;
    }
    let (scratch, here) = (Scratch::new(), std::process::id());
    let pool = scratch.options().durability(Durability::Memory).open(&scratch.0).unwrap();
    let tree: Tree<u64, &[u8]> = pool.tree("t").unwrap();
    let names = || {
        let entries = std::fs::read_dir(JournalFiles::folder_of(&scratch.0)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let segments = || names().iter().filter(|name| name.to_string_lossy().starts_with("segment-")).count();
    // A sync begins the fifth segment, and no write follows that would make the checkpoint.
    for key in 0.. {
        tree.upsert(key % 50, &[7; 100_000]).unwrap();
        pool.sync().unwrap();
        if segments() == 5 {
            break;
        }
    }
    let before = names();
    child(|| {
        assert!(is_forked(tree.upsert(1, b"x"), &scratch.0, here));
        assert_eq!(names(), before);
    });
    assert_eq!(names(), before);
    tree.upsert(1, b"x").unwrap();
    assert!(names().iter().any(|name| name.to_string_lossy().starts_with("checkpoint-")), "{:?}", names());
}
