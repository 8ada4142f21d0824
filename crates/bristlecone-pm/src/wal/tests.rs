//! Chunks on machines with several nodes, and damage of all kinds.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::*;
use crate::pool::tests::NODES;
use crate::{Domain, Geometry, Native, Region, TreeSpec, assume_thread_index};

thread_local!(static PROCESSOR: Cell<usize> = const { Cell::new(0) });

/// Returns a log of one entry a chunk, on a machine of two nodes with two processors each.
fn log_on_two_nodes(chunks_max: u64) -> Log<Native> {
    let mut log = log_of(chunks_max, 1);
    log.nodes = Nodes::of(vec![0, 0, 1, 1], || PROCESSOR.get(), |_| None);
    log
}

/// Returns a log of `entries` entries a chunk.
fn log_of(chunks_max: u64, entries: usize) -> Log<Native> {
    let geometry = Geometry { chunk_bytes: 4096, chunks_max, trees_max: 1 };
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
    Log::open(&pool, tree, Some(entries)).0
}

/// Appends an entry on a processor; returns the number of its chunk.
fn append(log: &Log<Native>, processor: usize) -> Option<u32> {
    PROCESSOR.set(processor);
    let spot = log.reserve(|_| true)?;
    let chunk = spot.chunk();
    spot.append(&LogEntry { sequence: 1, removed: false, key: 2, value: 3 }, None);
    Some(chunk)
}

#[test]
fn chunks_are_used_again_by_threads_of_their_node() {
    let log = log_on_two_nodes(64);
    let mut near = [BTreeSet::new(), BTreeSet::new()];
    for n in 0..8 {
        near[n % 2].insert(append(&log, [1, 2][n % 2]).unwrap());
    }
    let old = log.rotate().1;
    // A quarter of those in use are kept, plus one.
    (0..20).for_each(|_| _ = append(&log, 0).unwrap());
    log.recycle(old);
    PROCESSOR.set(3);
    let free = log.chunks_free();
    assert_eq!(free, 3);
    let again: BTreeSet<_> = (0..free).map(|_| append(&log, 3).unwrap()).collect();
    assert!(again.is_subset(&near[1]), "{again:?} of {near:?}");
    // The remaining chunks are remote: the pool has others.
    assert!(log.chunks_free() == 0 && !near[0].contains(&append(&log, 3).unwrap()));
    assert!(near[0].contains(&append(&log, 0).unwrap()));
}

#[test]
fn a_full_pool_gives_what_is_far_away() {
    let log = log_on_two_nodes(8);
    (0..5).for_each(|_| _ = append(&log, 0).unwrap());
    log.recycle(log.rotate().1);
    let take = || log.pool.chunk_alloc(log.owner, NODES, 256, 0);
    while take().is_ok() {}
    PROCESSOR.set(2);
    assert_eq!(log.chunks_free(), 0, "the free one is far from here");
    assert!(append(&log, 2).is_some() && append(&log, 2).is_none());
}

fn entry(number: u64) -> LogEntry {
    LogEntry { sequence: number, removed: number.is_multiple_of(3), key: number * 7, value: !number }
}

/// Returns a log with one chunk of `entries` entries, written over the remains of `rounds` rounds of other
/// entries.
fn log_with(entries: u64, rounds: u64) -> Log<Native> {
    let log = log_of(8, 40);
    let append = |number| log.reserve(|_| true).unwrap().append(&entry(number), None);
    for round in 0..rounds {
        (0..40 - round % 40).for_each(|number| append(1000 + 100 * round + number));
        log.recycle(log.rotate().1);
    }
    (1..=entries).for_each(append);
    log
}

/// Reopens a log; returns its entries, and its damage.
fn read(log: &Log<Native>) -> (Vec<u64>, Vec<String>) {
    let (again, chunks) = Log::open(&log.pool, log.owner, Some(40));
    let violations = |chunk| again.violation(chunk).map(Err).into_iter();
    let all: Vec<_> = chunks.iter().flat_map(|chunk| violations(chunk).chain(again.remains(chunk))).collect();
    let strict: Vec<_> = chunks.iter().flat_map(|chunk| again.entries(chunk)).collect();
    let first = all.iter().position(Result::is_err);
    assert_eq!(strict.len(), first.map_or(all.len(), |first| first + 1), "one error ends the reading");
    let numbers = all.iter().flatten().map(|found| {
        assert_eq!(*found, entry(found.sequence), "no thread wrote that");
        found.sequence
    });
    let numbers = numbers.collect();
    (numbers, all.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect())
}

/// Returns words of the only chunk of the log that has entries.
fn words_of(log: &Log<Native>, slots: usize) -> &[crate::Word] {
    let appender = log.appenders.iter().find_map(|each| each.lock().chunk.as_ref().map(|chunk| chunk.offset));
    log.pool.words(appender.unwrap(), slots * LOG_ENTRY_BYTES / 8)
}

#[test]
fn every_flipped_bit_of_an_entry_is_told_and_costs_that_entry() {
    for rounds in [0, 1, 2, 126, 127, 128] {
        for entries in [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 40] {
            let log = log_with(entries, rounds);
            let all: Vec<u64> = (1..=entries).collect();
            assert_eq!(read(&log), (all.clone(), vec![]), "{entries} entries after {rounds} rounds");
            let slots = 1 + entries as usize;
            for bit in 3 * 64..slots * 3 * 64 {
                let word = &words_of(&log, slots)[bit / 64];
                let before = word.load(log.pool.medium());
                word.store(log.pool.medium(), before ^ 1 << (bit % 64));
                let lost = (bit / 192) as u64;
                let rest: Vec<u64> = all.iter().copied().filter(|number| *number != lost).collect();
                let (found, errors) = read(&log);
                assert!(found == rest && errors.len() == 1, "bit {bit} of {entries}: {found:?} {errors:?}");
                let place = format!("entry {lost} of chunk ");
                assert!(errors[0].contains(&place), "{errors:?}");
                word.store(log.pool.medium(), before);
            }
        }
    }
}

#[test]
fn every_flipped_bit_of_a_header_is_told_or_harmless() {
    for (entries, rounds) in [(0, 1), (1, 0), (9, 3), (8, 127)] {
        let log = log_with(entries, rounds);
        let all: Vec<u64> = (1..=entries).collect();
        if entries == 0 {
            // It gets a chunk, which stays empty.
            drop(log.reserve(|_| true).unwrap());
        }
        for bit in 0..192 {
            let word = &words_of(&log, 1)[bit / 64];
            let before = word.load(log.pool.medium());
            word.store(log.pool.medium(), before ^ 1 << (bit % 64));
            let (found, errors) = read(&log);
            assert_eq!((found, errors.len()), (all.clone(), usize::from(bit < 64)), "bit {bit}: {errors:?}");
            word.store(log.pool.medium(), before);
        }
        let [generation, copy] = [&words_of(&log, 1)[0], &words_of(&log, 1)[1]];
        let before = generation.load(log.pool.medium());
        let next = Generation::of_pattern(before).unwrap().next().pattern();
        for (first, second, told) in [
            (0, before, true),
            (1, before, true),
            (u64::MAX, before, true),
            (next, before, true),
            (before, 0, false),
            (before, next, false),
        ] {
            generation.store(log.pool.medium(), first);
            copy.store(log.pool.medium(), second);
            let (found, errors) = read(&log);
            assert_eq!((found, errors.len()), (all.clone(), usize::from(told)), "{first:#x} {second:#x}");
        }
    }
}

/// Loss of whole words: only the last entry of a chunk, if it begins a line, looks like one that was never
/// written.
#[test]
fn a_stamp_that_is_gone_is_told() {
    for entries in [1, 7, 8, 9, 10, 16, 17, 40] {
        let log = log_with(entries, 2);
        for slot in 1..=entries {
            let word = &words_of(&log, 41)[slot as usize * 3];
            let before = word.load(log.pool.medium());
            let older = before & !0x1fe | (before >> 1 & 0xff ^ 0x18) << 1;
            for gone in [0, older] {
                word.store(log.pool.medium(), gone);
                let (found, errors) = read(&log);
                let silent = slot == entries && slot % 8 == 0;
                assert_eq!(errors.len(), usize::from(!silent), "{slot} of {entries}: {errors:?}");
                assert_eq!(found.len() as u64, entries - 1);
            }
            word.store(log.pool.medium(), before);
        }
    }
}

/// The words of a chunk match `docs/format.md`.
#[test]
fn the_format_is_golden() {
    let log = log_with(0, 0);
    let append = |sequence, removed, key, value| {
        log.reserve(|_| true).unwrap().append(&LogEntry { sequence, removed, key, value }, None);
    };
    append(0x1234, true, 0x5678, 0x9abc);
    append(5, false, 10, u64::MAX);
    let words: Vec<u64> = words_of(&log, 4).iter().map(|word| word.load(log.pool.medium())).collect();
    let generation = 0x0303_0303_0303_0303;
    let golden =
        [generation, generation, 0, layout::GOLDEN_STAMP, 0x5678, 0x9abc, GOLDEN_SECOND, 10, u64::MAX];
    assert_eq!(words[..9], golden, "{words:x?}");
    assert_eq!(words[9..], [0xffff_ffff_ffff_fe07, 0, 0]);
}

const GOLDEN_SECOND: u64 = 0xb000_0000_0000_0a06;

/// A chunk without checks.
#[test]
fn entries_without_checks_are_read() {
    let log = log_with(3, 0);
    let words = words_of(&log, 6);
    let old =
        |number: u64| [u64::from(number.is_multiple_of(3)) | 199 << 1 | number << 9, number * 7, !number];
    let header = [199, 0xdead_beef, 0];
    let all = [header, old(1), old(2), old(3), [198 << 1 | 4 << 9, 0, 0], old(5)];
    for (word, old) in words.iter().zip(all.as_flattened()) {
        word.store(log.pool.medium(), *old);
    }
    assert_eq!(read(&log), (vec![1, 2, 3], vec![]));
    let (again, chunks) = Log::open(&log.pool, log.owner, Some(40));
    again.recycle(chunks);
    assert_eq!(read(&again), (vec![], vec![]));
}

/// All states of a header's line, which keeps the order of its stores, after a crash while its generation changes
/// or its first entry is written; and all states after further crashes, recursively.
#[test]
fn no_interrupted_change_of_generation_reads_as_damage() {
    let log = log_with(1, 0);
    let medium = log.pool.medium();
    let words = words_of(&log, 3);
    let end = |number: usize| {
        std::iter::successors(Some(Generation::default()), |one| Some(one.next())).nth(number)
    };
    let entry_of = |generation| entry(5).stamp(generation, 1);
    let old = end(1).unwrap();
    // The arbitrary contents of a chunk from the pool; the contents of a log without checks; and its last
    // generation.
    let mut states = BTreeSet::from([[0; 7], [0, 0, 9, 8, 7, 6, 5], [0, 0, 0, old.end_mark(), 0, 0, 0]]);
    states.insert([0, 0, 0, entry_of(old), 35, !5, old.end_mark()]);
    states.extend([1, 7, 255].map(|number| [number, 0xdead_beef, 0, number << 1 | 5 << 9, 35, !5, 0]));
    states.extend(
        [126, 127]
            .map(|number| end(number).unwrap())
            .map(|last| [last.pattern(), last.pattern(), 0, entry_of(last), 35, !5, last.end_mark()]),
    );
    let mut reached = states.clone();
    for _ in 0..4 {
        let mut after = BTreeSet::new();
        for state in &states {
            words.iter().zip(state).for_each(|(word, value)| word.store(medium, *value));
            let (again, chunks) = Log::open(&log.pool, log.owner, Some(40));
            let chunk =
                chunks.iter().find(|chunk| std::ptr::eq(&again.header(chunk).generation, &words[0])).unwrap();
            assert!(again.violation(chunk).is_none(), "{state:x?}");
            let found: Vec<_> = again.remains(chunk).collect();
            assert!(found.iter().all(Result::is_ok), "{state:x?}: {found:?}");
            let next = chunk.generation.next();
            let bump = [(3, next.end_mark()), (0, next.pattern()), (1, next.pattern())];
            let first = [(4, 35), (5, !5), (6, next.end_mark()), (3, entry_of(next))];
            let mut state = *state;
            for (at, value) in bump.into_iter().chain(first) {
                state[at] = value;
                after.insert(state);
            }
        }
        states = after.difference(&reached).copied().collect();
        reached.extend(after);
    }
    assert!(reached.len() > 100, "{}", reached.len());
}

/// Appends an entry as the given thread; returns the number of its chunk.
fn append_as(log: &Log<Native>, thread: usize) -> u32 {
    let append = || {
        assume_thread_index(Some(thread));
        append(log, 0).unwrap()
    };
    std::thread::scope(|scope| scope.spawn(append).join().unwrap())
}

/// A chunk that is filled during a rotation is an old one if its thread had not rotated yet, and otherwise is not:
/// keys in its entries are reused once the old ones are empty.
#[test]
fn a_rotation_takes_what_is_filled_meanwhile() {
    let log = log_of(64, 1);
    let (early, late) = (append_as(&log, 0), append_as(&log, 2));
    std::thread::scope(|scope| {
        // The rotation reaches the second thread, and waits for it.
        assume_thread_index(Some(1));
        let spot = log.reserve(|_| true).unwrap();
        let held = spot.chunk();
        let rotation = scope.spawn(|| log.rotate().1);
        while log.appenders[0].lock().epoch == 0 {
            std::thread::yield_now();
        }
        let new = [append_as(&log, 0), append_as(&log, 0)];
        let filled = append_as(&log, 2);
        spot.append(&entry(1), None);
        let old: BTreeSet<_> = rotation.join().unwrap().iter().map(LogChunk::id).collect();
        assert_eq!(old, BTreeSet::from([early, late, held, filled]));
        assert!(new.iter().all(|chunk| !old.contains(chunk)));
    });
}
