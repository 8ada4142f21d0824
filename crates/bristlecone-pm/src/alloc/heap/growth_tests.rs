//! When a heap grows, which free slots it reuses first, and how many slots it sweeps.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::thread::Scope;
use std::time::Duration;

use super::tests::{NODES, pool};
use super::*;
use crate::{Native, assume_thread_index};

const SLOT_BYTES: u32 = 256;
/// Slots of a chunk of 64 KiB.
const PER_CHUNK: usize = 256;

fn open(chunks: u64) -> Heap<Native> {
    let (pool, tree) = pool(chunks);
    Heap::open(&pool, HeapSpec::new(tree, NODES, SLOT_BYTES))
}

fn chunks_of(heap: &Heap<Native>) -> usize {
    heap.stats().chunks as usize
}

fn take(heap: &Heap<Native>, slots: usize) -> Vec<u64> {
    (0..slots).map(|_| heap.alloc().unwrap()).collect()
}

#[test]
fn a_large_heap_takes_its_next_chunk_ahead_and_a_small_one_does_not() {
    let heap = open(64);
    for taken in 1..=20 * PER_CHUNK {
        heap.alloc().unwrap();
        let begun = taken.div_ceil(PER_CHUNK);
        let ahead = usize::from(begun >= AHEAD_FROM);
        assert_eq!(chunks_of(&heap), begun + ahead, "{taken} slots");
    }
    assert_eq!(heap.stats().live_slots, 20 * PER_CHUNK as u64);
}

/// With 512 slots a chunk, the first 64 are exactly an eighth.
#[test]
fn the_next_chunk_is_taken_once_more_than_an_eighth_of_the_last_one_is() {
    let (pool, tree) = pool(64);
    let heap = Heap::open(&pool, HeapSpec::new(tree, NODES, SLOT_BYTES / 2));
    take(&heap, 15 * 512 + 64);
    assert_eq!(chunks_of(&heap), 16);
    take(&heap, 1);
    assert_eq!(chunks_of(&heap), 17);
}

/// Time for threads to reach the lock that they are to wait for. Threads that arrive later only weaken a
/// test.
const REACHED: Duration = Duration::from_millis(60);

/// Allocates one slot in each of four threads, which have the same number or one each.
fn in_threads<'s>(scope: &'s Scope<'s, '_>, heap: &'s Heap<Native>, number: impl Fn(usize) -> usize) {
    for thread in 0..4 {
        let number = number(thread);
        scope.spawn(move || {
            assume_thread_index(Some(number));
            if thread % 2 == 0 {
                heap.prepare(&|_| true).unwrap();
            }
            heap.alloc().unwrap();
        });
    }
    std::thread::sleep(REACHED);
}

/// Threads that find no free slot at the same time wait for the one that takes a chunk.
#[test]
fn threads_that_need_space_at_once_take_one_chunk() {
    let heap = open(8);
    std::thread::scope(|scope| {
        let growing = wait::lock(&heap.growing);
        in_threads(scope, &heap, |thread| thread);
        // All of them found no free slot; now the first one looks again.
        let chunks = heap.lock_chunks();
        drop(growing);
        std::thread::sleep(REACHED);
        drop(chunks);
    });
    assert_eq!((heap.stats().live_slots, chunks_of(&heap)), (4, 1));
}

/// Threads with the same number refill their shared cache at the same time; a thread that finds it
/// filled returns its slots.
#[test]
fn threads_that_share_what_they_take_ahead_lose_no_slot() {
    let heap = open(8);
    std::thread::scope(|scope| {
        let chunks = heap.lock_chunks();
        in_threads(scope, &heap, |_| 0);
        drop(chunks);
    });
    assert_eq!((heap.stats().live_slots, chunks_of(&heap)), (4, 1));
    // The slots that the last thread took ahead are for threads of this number.
    assume_thread_index(Some(0));
    let rest = take(&heap, PER_CHUNK - 4);
    assume_thread_index(None);
    assert_eq!((rest.len(), chunks_of(&heap)), (PER_CHUNK - 4, 1), "every slot is handed out");
}

/// A freeing thread looks for a chunk to return only after half of its slots are freed, because looking
/// takes a lock.
#[test]
fn half_of_a_chunk_goes_before_a_thread_looks_again() {
    let heap = open(8);
    let slots = take(&heap, 2 * PER_CHUNK);
    let chunk = heap.chunk_at(heap.with_slot(slots[0], |slots, _| slots.offset).unwrap()).unwrap();
    let look_at = || chunk.look_at.load(Acquire);
    heap.free(slots[0]);
    assert_eq!(look_at(), 127);
    slots[1..128].iter().for_each(|slot| heap.free(*slot));
    assert_eq!((chunk.taken.load(Acquire), look_at()), (128, 127));
    heap.free(slots[128]);
    assert_eq!((chunk.taken.load(Acquire), look_at()), (127, 63));
    slots[129..256].iter().for_each(|slot| heap.free(*slot));
    assert_eq!(chunks_of(&heap), 1);
}

#[test]
fn a_large_heap_does_not_grow_while_other_chunks_are_partial() {
    let heap = open(64);
    let slots = take(&heap, 20 * PER_CHUNK);
    let freed: BTreeSet<u64> = slots[2 * PER_CHUNK..][..64].iter().copied().collect();
    freed.iter().for_each(|slot| heap.free(*slot));
    assert_eq!(chunks_of(&heap), 21);
    // The chunk taken ahead is used up first, then the freed slots.
    let next = take(&heap, PER_CHUNK);
    assert!(next.iter().all(|slot| !freed.contains(slot)));
    assert_eq!(chunks_of(&heap), 21);
    let last: BTreeSet<u64> = take(&heap, 64).into_iter().collect();
    assert_eq!(last, freed);
    assert_eq!(chunks_of(&heap), 22, "there is no other free slot left");
}

#[test]
fn a_chunk_is_taken_up_again_once_an_eighth_of_it_is_free() {
    for (freed, chunks) in [(PER_CHUNK / 8 - 1, 4), (PER_CHUNK / 8, 3)] {
        let heap = open(8);
        let slots = take(&heap, 3 * PER_CHUNK);
        let freed: BTreeSet<u64> = slots[PER_CHUNK..][..freed].iter().copied().collect();
        freed.iter().for_each(|slot| heap.free(*slot));
        let next = heap.alloc().unwrap();
        assert_eq!(chunks_of(&heap), chunks, "{} slots were freed", freed.len());
        assert_eq!(freed.contains(&next), chunks == 3);
    }
}

#[test]
fn a_full_pool_gives_every_last_slot_of_every_chunk() {
    let heap = open(3);
    let slots = take(&heap, 3 * PER_CHUNK);
    let freed = [slots[7], slots[PER_CHUNK + 7], slots[2 * PER_CHUNK + 255]];
    freed.iter().for_each(|slot| heap.free(*slot));
    let again: BTreeSet<u64> = take(&heap, 3).into_iter().collect();
    assert_eq!(again, freed.into_iter().collect());
    assert!(heap.alloc().is_err());
    assert_eq!(heap.stats().live_slots, 3 * PER_CHUNK as u64);
}

/// Only threads whose numbers differ by a multiple of 1,024, such as 0 and 1,024, share the slots taken ahead.
#[test]
fn each_of_a_hundred_threads_takes_a_word_of_slots_for_itself() {
    const THREADS: usize = 100;
    let heap = open(64);
    let alloc = |thread| {
        assume_thread_index(Some(thread));
        heap.alloc().unwrap()
    };
    let first: Vec<u64> = (0..THREADS).map(alloc).collect();
    let words: BTreeSet<u64> = first.iter().map(|slot| slot / (64 * u64::from(SLOT_BYTES))).collect();
    assert_eq!(words.len(), THREADS);
    let shared = CACHES * GROUPS;
    let second: Vec<u64> = (shared..shared + THREADS).map(alloc).collect();
    assume_thread_index(None);
    assert!(first.iter().zip(&second).all(|(first, second)| first + u64::from(SLOT_BYTES) == *second));
    assert_eq!(heap.stats().live_slots, 2 * THREADS as u64);
    first.iter().chain(&second).for_each(|slot| heap.free(*slot));
    assert_eq!((heap.stats().live_slots, chunks_of(&heap)), (0, 1));
}

#[test]
fn what_lies_behind_the_last_slot_of_a_chunk_is_none() {
    let (pool, tree) = pool(4);
    let heap = Heap::open(&pool, HeapSpec::new(tree, NODES, 192));
    let chunk = heap.alloc().unwrap();
    let slots = (64 << 10) / 192;
    heap.mark_live(chunk + (slots - 1) * 192).unwrap();
    assert!(heap.mark_live(chunk + slots * 192).is_err());
    assert!(heap.mark_live(chunk + (slots - 2) * 192 + 64).is_err());
    assert!(heap.mark_live(chunk - 1).is_err());
}

/// Creates a heap of two unswept chunks, in a pool of `chunks` chunks, and returns it with all its
/// slots.
fn unswept(chunks: u64) -> (Heap<Native>, Vec<u64>) {
    let (pool, tree) = pool(chunks);
    let before = Heap::open(&pool, HeapSpec::new(tree, NODES, SLOT_BYTES));
    let slots = take(&before, 2 * PER_CHUNK);
    (Heap::open(&pool, HeapSpec { unswept: true, ..HeapSpec::new(tree, NODES, SLOT_BYTES) }), slots)
}

#[test]
fn sweep_takes_four_words_before_a_heap_grows_and_all_before_a_pool_is_full() {
    let (heap, _) = unswept(3);
    let called = Cell::new(0);
    let all_live = |_| {
        called.set(called.get() + 1);
        true
    };
    assert_eq!(heap.stats().live_slots, 2 * PER_CHUNK as u64, "what is not known counts as taken");
    heap.prepare(&all_live).unwrap();
    assert_eq!((called.get(), chunks_of(&heap)), (4 * 64, 3));
    heap.prepare(&all_live).unwrap();
    assert_eq!(called.get(), 4 * 64, "there is a slot at hand");
    take(&heap, PER_CHUNK);
    assert!(heap.prepare(&all_live).is_err());
    assert_eq!(called.get(), 8 * 64);
    assert!(heap.prepare(&all_live).is_err());
    assert_eq!(called.get(), 8 * 64, "each is swept once");
}

#[test]
fn sweep_finds_free_slots_that_are_used_before_a_heap_grows() {
    let (heap, slots) = unswept(8);
    // Every third slot is free.
    let live: BTreeSet<u64> =
        slots.iter().enumerate().filter(|(at, _)| at % 3 != 1).map(|(_, s)| *s).collect();
    let is_live = |slot| live.contains(&slot);
    let mut found = BTreeSet::new();
    while chunks_of(&heap) == 2 {
        heap.prepare(&is_live).unwrap();
        if chunks_of(&heap) == 2 {
            let slot = heap.alloc().unwrap();
            assert!(!live.contains(&slot) && found.insert(slot), "{slot:#x} was handed out twice");
        }
    }
    assert_eq!(found.len(), slots.len() - live.len());
    assert_eq!(heap.stats().live_slots, slots.len() as u64);
}

#[test]
fn a_single_free_slot_is_used_before_a_heap_grows() {
    // The last chunk is swept first; the first one only if the pool is full.
    for (chunks, free) in [(8, PER_CHUNK + 10), (2, PER_CHUNK + 10), (2, 10)] {
        let (heap, slots) = unswept(chunks);
        heap.prepare(&|slot| slot != slots[free]).unwrap();
        assert_eq!(chunks_of(&heap), 2);
        assert_eq!(heap.alloc().unwrap(), slots[free]);
    }
}

#[test]
fn sweep_takes_nothing_while_free_space_is_known() {
    let (heap, _) = unswept(8);
    let called = Cell::new(0);
    let all_live = |_| {
        called.set(called.get() + 1);
        true
    };
    // Grows, and has four words of free slots.
    heap.prepare(&all_live).unwrap();
    for _ in 0..4 {
        assert_eq!(called.get(), 4 * 64);
        take(&heap, 64);
        if chunks_of(&heap) == 3 && heap.stats().live_slots < 3 * PER_CHUNK as u64 {
            heap.prepare(&all_live).unwrap();
        }
    }
    heap.prepare(&all_live).unwrap();
    assert_eq!((called.get(), chunks_of(&heap)), (8 * 64, 4));
}

#[test]
fn chunks_that_are_found_empty_go_back_and_others_are_listed_once() {
    let (heap, _) = unswept(8);
    heap.sweep_all(&|_| false);
    assert_eq!((heap.stats().live_slots, chunks_of(&heap)), (0, 1));
    let (heap, _) = unswept(8);
    let live = heap.chunks().iter().map(|chunk| chunk.offset).collect::<Vec<_>>();
    heap.sweep_all(&|slot| live.contains(&slot));
    assert_eq!((heap.stats().live_slots, chunks_of(&heap)), (2, 2));
    assert_eq!(wait::read(&heap.chunks).partial.len(), 2);
}

#[test]
fn sweep_leaves_a_kept_slot_and_frees_the_rest() {
    let (heap, slots) = unswept(8);
    let kept = [slots[5], slots[PER_CHUNK + 70]];
    kept.iter().for_each(|slot| heap.keep(*slot));
    heap.sweep_all(&|slot| slot == slots[6] || slot == kept[1]);
    assert_eq!(heap.stats().live_slots, 3);
    for slot in [kept[0], kept[1], slots[6]] {
        heap.free(slot);
    }
    assert_eq!((heap.stats().live_slots, chunks_of(&heap)), (0, 1));
}
