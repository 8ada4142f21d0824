use std::collections::BTreeSet;

use super::*;
pub(crate) use crate::pool::tests::NODES;
use crate::{Domain, Geometry, Native, Region, TreeSpec, Word};

pub(crate) fn pool(chunks: u64) -> (Arc<PoolFile<Native>>, TreeId) {
    let geometry = Geometry { chunk_bytes: 64 << 10, chunks_max: chunks, trees_max: 2 };
    let region = Region::memory(geometry.max_bytes()).unwrap();
    let pool = PoolFile::create_in(region, geometry, Domain::Process, Native::new(Domain::Process));
    let pool = pool.unwrap();
    let spec = TreeSpec {
        name: "t".into(),
        design: 1,
        key_kind: "u64".into(),
        value_kind: "u64".into(),
        expire_after_ms: 0,
        params: [0; 8],
    };
    let id = pool.create_tree(&spec).unwrap().id;
    (pool, id)
}

#[test]
fn slots_are_unique_and_the_full_pool_gives_every_one() {
    let (pool, tree) = pool(4);
    let heap = Heap::open(&pool, HeapSpec { tagged: true, ..HeapSpec::new(tree, NODES, 192) });
    let per_chunk = (64 << 10) / 192;
    let mut slots = BTreeSet::new();
    while let Ok(slot) = heap.alloc() {
        assert!(slots.insert(slot) && slot % 64 == 0);
    }
    assert_eq!(slots.len(), 4 * per_chunk);
    assert_eq!(heap.stats().live_slots, slots.len() as u64);
    for slot in &slots {
        heap.free(*slot);
    }
    assert_eq!(heap.stats().live_slots, 0);
    assert_eq!(heap.stats().chunks, 1, "all chunks but the last went back");
    assert_eq!(pool.chunk_counts().0, 3);
    assert!(heap.alloc().is_ok());
}

#[test]
fn idle_caches_of_other_threads_are_used_before_the_pool_is_full() {
    let (pool, tree) = pool(1);
    let heap = Heap::open(&pool, HeapSpec { tagged: true, ..HeapSpec::new(tree, NODES, 256) });
    std::thread::scope(|scope| scope.spawn(|| heap.alloc().unwrap()).join().unwrap());
    let got = std::iter::from_fn(|| heap.alloc().ok()).count();
    assert_eq!(got, 255);
}

/// Slots of this many leaves, which take turns.
fn near(heap: &Heap<Native>, leaves: u64, slots: usize) -> Vec<Vec<u64>> {
    let mut of_leaves = vec![Vec::new(); leaves as usize];
    for _ in 0..slots {
        for (leaf, slots) in (0..).zip(&mut of_leaves) {
            slots.push(heap.alloc_near(4096 + leaf * 256).unwrap());
        }
    }
    of_leaves
}

#[test]
fn slots_of_a_leaf_are_neighbours_by_the_run() {
    let (pool, tree) = pool(8);
    let heap = Heap::open(&pool, HeapSpec::new(tree, NODES, 32));
    let of_leaves = near(&heap, 7, 21);
    for slots in &of_leaves {
        for run in slots.chunks(4) {
            assert!(run.windows(2).all(|pair| pair[1] == pair[0] + 32), "{run:?}");
        }
    }
    let all: BTreeSet<u64> = of_leaves.iter().flatten().copied().collect();
    assert_eq!((all.len(), heap.stats().live_slots), (147, 147));
    all.into_iter().for_each(|slot| heap.free(slot));
    assert_eq!(heap.stats().live_slots, 0);
}

#[test]
fn what_is_kept_for_leaves_keeps_no_chunk_and_no_slot_from_others() {
    let (pool, tree) = pool(4);
    let heap = Heap::open(&pool, HeapSpec::new(tree, NODES, 64));
    let kept: Vec<u64> = near(&heap, 500, 1).into_iter().flatten().collect();
    assert_eq!(heap.stats().chunks, 2);
    let rest: BTreeSet<u64> = std::iter::from_fn(|| heap.alloc().ok()).collect();
    assert_eq!(rest.len() + kept.len(), 4 * 1024, "the slots in nests were allocated, too");
    assert!(kept.iter().all(|slot| !rest.contains(slot)));
    rest.into_iter().for_each(|slot| heap.free(slot));
    let more = near(&heap, 500, 3);
    kept.into_iter().chain(more.into_iter().flatten()).for_each(|slot| heap.free(slot));
    assert_eq!((heap.stats().live_slots, heap.stats().chunks), (0, 1));
}

#[test]
fn large_slots_are_not_kept() {
    let (pool, tree) = pool(4);
    let heap = Heap::open(&pool, HeapSpec::new(tree, NODES, 256));
    let first = near(&heap, 3, 1).concat();
    assert!(first.windows(2).all(|pair| pair[1] == pair[0] + 256), "{first:?}");
}

#[test]
fn threads_that_share_leaves_never_share_a_slot() {
    let (pool, tree) = pool(64);
    let heap = Heap::open(&pool, HeapSpec::new(tree, NODES, 32));
    let rounds = |thread: u64| {
        let mut held = BTreeSet::new();
        for round in 0..20_000_u64 {
            let slot = heap.alloc_near((thread + round) % 5 * 256).unwrap();
            pool.at::<Word>(slot).store(pool.medium(), thread << 32 | round);
            assert!(held.insert((round, slot)));
            if round % 3 == 0
                && let Some((round, slot)) = held.pop_first()
            {
                assert_eq!(pool.at::<Word>(slot).load(pool.medium()), thread << 32 | round);
                heap.free(slot);
            }
        }
        held.into_iter().for_each(|(_, slot)| heap.free(slot));
    };
    std::thread::scope(|scope| (1..=4).for_each(|thread| _ = scope.spawn(move || rounds(thread))));
    assert_eq!((heap.stats().live_slots, heap.stats().chunks), (0, 1));
}

#[test]
fn threads_never_share_a_slot() {
    let (pool, tree) = pool(64);
    let heap = Heap::open(&pool, HeapSpec::new(tree, NODES, 128));
    std::thread::scope(|scope| {
        for thread in 1..=4_u64 {
            let (heap, pool) = (&heap, &pool);
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..20_000_u64 {
                    if round % 5 < 3 {
                        let slot = heap.alloc().unwrap();
                        pool.at::<Word>(slot).store(pool.medium(), thread << 32 | round);
                        held.push((slot, thread << 32 | round));
                    } else if let Some((slot, mark)) = held.pop() {
                        assert_eq!(pool.at::<Word>(slot).load(pool.medium()), mark);
                        heap.free(slot);
                    }
                }
                held.into_iter().for_each(|(slot, _)| heap.free(slot));
            });
        }
    });
    assert_eq!(heap.stats().live_slots, 0);
    assert_eq!(heap.stats().chunks, 1);
}

/// Two threads free the last slots of a chunk and both look at it, one of them late: the chunk was returned
/// and allocated again meanwhile.
#[test]
fn release_that_looks_late_takes_no_chunk_that_is_in_use_again() {
    let (pool, tree) = pool(2);
    let heap = Heap::open(&pool, HeapSpec::new(tree, NODES, 256));
    let slots: Vec<u64> = (0..512).map(|_| heap.alloc().unwrap()).collect();
    let chunk_of = |slot| heap.chunk_at(heap.with_slot(slot, |slots, _| slots.offset).unwrap()).unwrap();
    let late = chunk_of(slots[256]);
    slots[256..].iter().for_each(|slot| heap.free(*slot));
    assert_eq!(heap.stats().chunks, 1);
    let again = heap.alloc().unwrap();
    assert_eq!(chunk_of(again).offset, late.offset);
    heap.release(&late);
    heap.free(again);
    assert_eq!((heap.stats().live_slots, heap.stats().chunks), (256, 1));
}

#[test]
fn recovery_frees_all_slots_but_those_that_were_marked() {
    let (pool, tree) = pool(8);
    let heap = Heap::open(&pool, HeapSpec::new(tree, NODES, 256));
    let slots: Vec<u64> = (0..600).map(|_| heap.alloc().unwrap()).collect();
    let again = Heap::open(&pool, HeapSpec::new(tree, NODES, 256));
    assert_eq!(again.chunks(), heap.chunks());
    assert!(again.mark_live(slots[3]).unwrap());
    assert!(!again.mark_live(slots[3]).unwrap());
    assert!(again.mark_live(slots[3] + 8).is_err());
    assert!(again.mark_live(0).is_err());
    again.mark_live_word(again.chunks()[0], 1, 0b101);
    assert!(!again.mark_live(again.chunks()[0].offset + 66 * 256).unwrap());
    again.finish_recovery();
    assert_eq!(again.stats(), HeapStats { chunks: 1, chunk_bytes: 64 << 10, live_slots: 3, slot_bytes: 256 });
    let fresh: BTreeSet<u64> = (0..253).map(|_| again.alloc().unwrap()).collect();
    assert!(!fresh.contains(&slots[3]));
}
