//! Which chunks a log takes, keeps and returns, and its reports about them.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::layout::{GENERATIONS, Generation};
use super::*;
use crate::pool::tests::NODES;
use crate::{Domain, Durable, Geometry, Native, Persist, Region, TreeSpec, Word, assume_thread_index};

const CHUNK_BYTES: u64 = 4096;

/// Returns a log whose chunks take `entries_max` entries, on a machine of one node.
fn log(chunks_max: u64, entries_max: Option<usize>) -> Log<Native> {
    let geometry = Geometry { chunk_bytes: CHUNK_BYTES, chunks_max, trees_max: 1 };
    let region = Region::memory(geometry.max_bytes()).unwrap();
    let pool = PoolFile::create_in(region, geometry, Domain::Process, Native::new(Domain::Process)).unwrap();
    let spec = TreeSpec {
        name: "t".into(),
        design: 3,
        key_kind: "u64".into(),
        value_kind: "u64".into(),
        expire_after_ms: 0,
        params: [0; 8],
    };
    let tree = pool.create_tree(&spec).unwrap().id;
    let (mut log, none) = Log::open(&pool, tree, entries_max);
    assert!(none.is_empty());
    log.nodes = Nodes::of(vec![0], || 0, |_| None);
    log
}

fn entry(number: u64) -> LogEntry {
    LogEntry { sequence: number, removed: number % 3 == 1, key: number + 1000, value: number + 2000 }
}

/// Appends an entry; returns the number of its chunk, and its epoch.
fn append(log: &Log<Native>, number: u64) -> (u32, u64) {
    let spot = log.reserve(|_| true).unwrap();
    let at = (spot.chunk(), spot.epoch());
    spot.append(&entry(number), None);
    at
}

/// Returns the entries that an open of the same chunks finds, chunk by chunk in pool order.
fn found(log: &Log<Native>) -> Vec<Vec<LogEntry>> {
    let (again, chunks) = Log::open(&log.pool, log.owner, Some(log.chunk_entries()));
    chunks.iter().map(|chunk| again.entries(chunk).map(|entry| entry.expect("no damage")).collect()).collect()
}

/// Returns the number of chunks that the log owns, after checking it against the pool.
fn owned(log: &Log<Native>) -> usize {
    let chunks = log.pool.chunks_of(log.owner);
    assert_eq!(chunks.iter().filter(|chunk| chunk.kind == SlotKind::LOG).count(), log.chunks_owned());
    log.chunks_owned()
}

#[test]
fn a_chunk_takes_what_it_is_told_to_or_has_room_for() {
    // One slot is the header's.
    let room = CHUNK_BYTES as usize / LOG_ENTRY_BYTES - 1;
    for (entries_max, entries) in
        [(None, room), (Some(1), 1), (Some(room - 1), room - 1), (Some(room), room), (Some(room + 1), room)]
    {
        let log = log(4, entries_max);
        assert_eq!(log.chunk_entries(), entries, "{entries_max:?}");
        let first = append(&log, 0).0;
        assert!((1..entries as u64).all(|number| append(&log, number).0 == first), "{entries_max:?}");
        assert_ne!(append(&log, entries as u64).0, first, "{entries_max:?}");
        let all: Vec<LogEntry> = found(&log).concat();
        assert_eq!(all, (0..=entries as u64).map(entry).collect::<Vec<_>>());
    }
}

/// The tree is asked before a log grows, and gets the number of full chunks.
#[test]
fn a_log_grows_only_if_its_tree_lets_it_and_has_a_reserve_first() {
    let log = log(16, Some(2));
    assert!(log.reserve(|_| false).is_none());
    assert_eq!((log.chunks_in_use(), owned(&log), log.has_garbage()), (0, 0, false));
    let mut asked = Vec::new();
    for number in 0..8 {
        let told = Cell::new(None);
        let spot = log.reserve(|full| {
            told.set(Some(full));
            true
        });
        spot.unwrap().append(&entry(number), None);
        asked.push(told.get());
        assert_eq!(owned(&log), log.chunks_in_use() + 1, "one is the reserve");
    }
    assert_eq!(asked, [Some(0), None, Some(1), None, Some(2), None, Some(3), None]);
    assert_eq!((log.chunks_in_use(), log.appenders()), (4, 1));
    assert!(log.reserve(|_| false).is_none(), "the fourth is full");
    assert_eq!(log.chunks_in_use(), 4);
}

#[test]
fn the_reserve_is_for_copies_in_a_full_pool() {
    let log = log(3, Some(1));
    append(&log, 0);
    append(&log, 1);
    assert!(log.reserve(|_| true).is_none(), "two and the reserve are all there are");
    assert!(log.reserve_copy(|_| true).is_none());
    let spot = log.draw_on_reserve().unwrap();
    let medium = log.pool.medium();
    let Durable { .. } = medium.fence(spot.append_unfenced(&entry(2), None), "test");
    assert!(log.draw_on_reserve().is_none());
    assert_eq!((log.chunks_in_use(), owned(&log)), (3, 3));
    assert_eq!(found(&log).concat().len(), 3);
    // The next empty chunk becomes the reserve.
    log.recycle(log.take_oldest(1));
    assert_eq!((log.chunks_in_use(), owned(&log), log.chunks_free()), (2, 3, 0));
    assert!(log.draw_on_reserve().is_some());
}

#[test]
fn a_quarter_of_what_is_in_use_is_kept_and_one_more() {
    for (in_use, kept) in [(1, 1), (3, 1), (4, 2), (7, 2), (8, 3)] {
        let log = log(64, Some(1));
        let chunks: Vec<u32> = (0..in_use + 10).map(|number| append(&log, number).0).collect();
        let old = log.take_oldest(10);
        assert!(old.iter().map(LogChunk::id).eq(chunks[..10].iter().copied()), "those that were full first");
        log.recycle(old);
        assert_eq!(log.chunks_in_use(), in_use as usize);
        assert_eq!((log.chunks_free(), owned(&log)), (kept, in_use as usize + kept + 1));
        assert_eq!(log.release_free(), kept);
        assert_eq!((log.chunks_free(), owned(&log)), (0, in_use as usize + 1));
        let all: Vec<u64> = found(&log).concat().iter().map(|entry| entry.sequence).collect();
        assert_eq!(all.iter().copied().collect::<BTreeSet<_>>(), (10..in_use + 10).collect());
    }
}

#[test]
fn chunks_are_taken_by_number_and_by_age() {
    let log = log(64, Some(1));
    let chunks: Vec<u32> = (0..8).map(|number| append(&log, number).0).collect();
    let wanted = [chunks[1], chunks[4], chunks[7]];
    // The last one still takes entries.
    let taken = log.take_sealed(|id| wanted.contains(&id));
    assert!(taken.iter().map(LogChunk::id).eq(wanted[..2].iter().copied()));
    assert_eq!(log.chunks_sealed(), 5);
    log.seal(taken);
    let oldest: Vec<u32> = log.take_oldest(usize::MAX).iter().map(LogChunk::id).collect();
    assert_eq!(oldest, [chunks[0], chunks[2], chunks[3], chunks[5], chunks[6], chunks[1], chunks[4]]);
    assert!(log.take_oldest(3).is_empty());
}

#[test]
fn a_turn_takes_the_chunks_of_every_thread_and_of_copies() {
    let log = log(200, Some(4));
    for thread in 0..APPENDERS {
        assume_thread_index(Some(thread));
        assert_eq!(log.has_garbage(), thread > 0);
        assert_eq!(append(&log, thread as u64).1, 0);
    }
    assert_eq!(log.appenders(), APPENDERS);
    // Another thread of the same number shares the chunk.
    assume_thread_index(Some(3));
    let shared = append(&log, 64).0;
    assume_thread_index(Some(3 + APPENDERS));
    assert_eq!(append(&log, 65).0, shared);
    let mut copies = log.copies();
    assert!(copies.reserve(|_| true));
    assert_eq!(copies.append(&entry(66)), 0);
    let Durable { .. } = log.pool.medium().fence(copies.flush(), "test");
    let (number, old) = log.rotate();
    let ids: BTreeSet<u32> = old.iter().map(LogChunk::id).collect();
    assert_eq!((old.len(), ids.len()), (APPENDERS + 1, APPENDERS + 1));
    assert!(ids.contains(&shared) && !log.has_garbage());
    let (next, epoch) = append(&log, 67);
    assert!((number, epoch) == (1, 1) && !ids.contains(&next) && log.has_garbage());
    log.recycle(old);
    assert_eq!(found(&log).concat(), [entry(67)]);
    assume_thread_index(Some(APPENDERS - 1));
    log.recycle(log.rotate().1);
    assert!(!log.has_garbage());
    append(&log, 68);
    assert!(log.has_garbage(), "the last thread's chunk counts, too");
    assume_thread_index(None);
}

/// Copies alone are no garbage: a rotation would only copy them again.
#[test]
fn copies_are_no_garbage() {
    let log = log(16, Some(4));
    let flushed = log.reserve_copy(|_| true).unwrap().append_unfenced(&entry(1), None);
    let Durable { .. } = log.pool.medium().fence(flushed, "test");
    assert!(!log.has_garbage());
    assert_eq!((log.chunks_in_use(), found(&log).concat()), (1, vec![entry(1)]));
}

/// The memory of a chunk is near the processor that the system reports, which may differ from the one that asked.
#[test]
fn a_chunk_is_near_where_its_memory_is() {
    let mut log = log(16, Some(1));
    log.nodes = Nodes::of(vec![0], || 0, |_| Some(1));
    append(&log, 1);
    log.recycle(log.rotate().1);
    assert_eq!((log.chunks_in_use(), owned(&log), log.chunks_free()), (0, 2, 0));
}

/// Reserves a chunk, and writes nothing yet.
fn begin(log: &Log<Native>, copied: bool) {
    assert!(if copied { log.copies().reserve(|_| true) } else { log.reserve(|_| true).is_some() });
}

/// Appends entries, or copies them.
fn write(log: &Log<Native>, entries: &[LogEntry], copied: bool) {
    if !copied {
        entries.iter().for_each(|entry| log.reserve(|_| true).unwrap().append(entry, None));
        return;
    }
    let mut copies = log.copies();
    for entry in entries {
        assert!(copies.reserve(|_| true));
        copies.append(entry);
    }
    let Durable { .. } = log.pool.medium().fence(copies.flush(), "test");
}

/// Chunks come from the pool with arbitrary contents: here, words that look like stamps of the first generation.
#[test]
fn what_a_chunk_held_before_is_no_entry() {
    let first = Generation::default().next().end_mark() & 0x1fe;
    for copied in [false, true] {
        for (count, entries_max) in (0..=9).map(|count| (count, 9)).chain([(169, 169)]) {
            let log = log(2, Some(entries_max));
            let take = || log.pool.chunk_alloc(log.owner, NODES, 256, 0);
            let before: Vec<_> = std::iter::from_fn(|| take().ok()).collect();
            assert_eq!(before.len(), 2);
            for chunk in before {
                let words = (0..CHUNK_BYTES).step_by(8).map(|at| log.pool.at::<Word>(chunk.offset + at));
                words.for_each(|word| word.store(log.pool.medium(), first));
                log.pool.chunk_free(chunk.id);
            }
            begin(&log, copied);
            let due: Vec<LogEntry> = (0..count).map(entry).collect();
            write(&log, &due, copied);
            assert_eq!(found(&log).concat(), due, "{count} entries, copied: {copied}");
        }
    }
}

/// Generations of a chunk repeat after 127 of them. Here most are without entries, so that those of the first
/// ones are still present.
#[test]
fn no_entry_of_an_older_generation_comes_back() {
    for copied in [false, true] {
        let log = log(2, Some(9));
        let mut number = 0;
        for round in 0..3 * GENERATIONS {
            let count = match (round / GENERATIONS, round % GENERATIONS) {
                (0, 0..4) => 9,
                (1, 1) => 4,
                (1, 2) => 1,
                (1, 3) => 8,
                (2, 1..4) => 2,
                _ => 0,
            };
            begin(&log, copied);
            let due: Vec<LogEntry> = (number..number + count).map(entry).collect();
            number += count;
            write(&log, &due, copied);
            assert_eq!(found(&log).concat(), due, "round {round}, copied: {copied}");
            log.recycle(log.rotate().1);
            assert!(found(&log).concat().is_empty());
        }
    }
}
