use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bristlecone_pm::Memory;

use super::*;
use crate::index::parts::codec::{Inline, Record, Storage};
use crate::index::parts::optimistic_lock::OptimisticLock;

/// Small enough that nodes split frequently: 8 entries, and 7 of byte strings.
const SMALL: usize = 128;
const SMALL_BYTES: usize = 192;

fn noise(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Inserts and removes leaves whose fences are the names of numbers, in the same order.
fn follows_a_model_of_fences<K: KeyCodec>(node_bytes: usize, name: impl Fn(u64) -> K::Owned) {
    let guard = K::pin();
    let lock = OptimisticLock::default();
    let version = lock.read();
    let inner = VolatileIndex::<K>::new(node_bytes, 0, &Memory::private()).unwrap();
    let mut model: BTreeMap<u64, u32> = [(0, 0)].into();
    let mut state = 88_172_645_463_325_252;
    let mut next_leaf = 1;
    let find = |number| inner.find(K::borrow(&name(number)), &guard, |_| version).0;
    for round in 0..30_000_u32 {
        let key = noise(&mut state) % 4000;
        let growing = round / 5000 % 2 == 0;
        if growing && !model.contains_key(&key) {
            inner.insert(K::borrow(&name(key)), next_leaf, &guard);
            model.insert(key, next_leaf);
            next_leaf += 1;
        } else if !growing {
            let (&fence, &leaf) = model.range(..=key).next_back().unwrap();
            let single = model.len() == 1;
            assert_eq!(inner.remove(K::borrow(&name(key)), leaf, &guard, |_| true), !single);
            if !single {
                // The range passes to the neighbour that the index now returns.
                model.remove(&fence);
                let heir = find(key);
                let left = model.range(..fence).next_back().map(|(_, &leaf)| leaf);
                if left != Some(heir) {
                    let (&right, &leaf) = model.range(fence..).next().unwrap();
                    assert_eq!(leaf, heir);
                    model.remove(&right);
                    model.insert(fence, leaf);
                }
            }
        }
        assert_eq!(inner.is_single(), model.len() == 1);
        let probe = noise(&mut state) % 4100;
        assert_eq!(find(probe), *model.range(..=probe).next_back().unwrap().1);
        let probe = probe.max(1);
        let (leaf, _, fence) = inner.find_before(Some(K::borrow(&name(probe))), &guard, |_| version);
        let before = model.range(..probe).next_back().unwrap();
        assert_eq!(leaf, *before.1);
        assert!(fence == (*before.0 > 0).then(|| name(*before.0)));
        if round % 1000 == 0 {
            assert!(inner.check().is_empty(), "{:?}", inner.check());
        }
    }
    assert!(inner.check().is_empty(), "{:?}", inner.check());
    let mut walked = Vec::new();
    inner.for_each_leaf(|fence, leaf| walked.push((fence.map(K::owned), leaf)));
    let fences = model.into_iter().enumerate();
    let fences = fences.map(|(at, (fence, leaf))| ((at > 0).then(|| name(fence)), leaf));
    assert!(walked == fences.collect::<Vec<_>>());
}

#[test]
fn words_follow_a_model_of_fences() {
    follows_a_model_of_fences::<Inline>(SMALL, |number| number);
}

#[test]
fn byte_strings_follow_a_model_of_fences() {
    // The common prefixes of nodes are long, short, or empty, and change with each split and removal.
    let name = |number: u64| {
        let folder = char::from(b'a' + (number / 1000) as u8);
        let name = format!("{folder}/{:03}/of documents/{:02}", number / 40 % 25, number % 40);
        name.into_bytes().into_boxed_slice()
    };
    follows_a_model_of_fences::<Record>(SMALL_BYTES, name);
}

#[test]
fn removing_all_but_one_leaves_one() {
    let version = OptimisticLock::default().read();
    let inner = VolatileIndex::<Record>::new(SMALL_BYTES, 0, &Memory::private()).unwrap();
    let guard = Record::pin();
    let key = |i: u32| format!("a/common/prefix/{:05}", i * 7919 % 5000);
    (1..5000).for_each(|i| inner.insert(key(i).as_bytes(), i, &guard));
    for i in 0..5000 {
        let (leaf, _) = inner.find(key(i).as_bytes(), &guard, |_| version);
        assert_eq!(inner.is_single(), i == 4999);
        assert_eq!(inner.remove(key(i).as_bytes(), leaf, &guard, |_| true), i < 4999);
    }
    let mut left = 0;
    inner.for_each_leaf(|_, _| left += 1);
    assert_eq!(left, 1);
    assert!(inner.check().is_empty());
}

#[test]
fn bulk_building_equals_inserting() {
    let version = OptimisticLock::default().read();
    for count in [1_u32, 2, 5, 6, 40, 1000] {
        let inner = VolatileIndex::<Inline>::build(
            SMALL,
            (0..count).map(|i| (u64::from(i) * 10 + 3, i)),
            &Memory::private(),
        )
        .unwrap();
        assert!(inner.check().is_empty());
        for probe in 0..u64::from(count) * 10 + 20 {
            let want = (probe.saturating_sub(3) / 10).min(u64::from(count) - 1) as u32;
            assert_eq!(inner.find(probe, &(), |_| version).0, want);
        }
        let (mut leaf, _, mut cursor) = inner.seek(None, &(), |_| version, |_| {});
        let mut seen = vec![leaf];
        while let Step::Leaf(next, _, onward) = inner.next(cursor, |_| version) {
            (leaf, cursor) = (next, onward);
            seen.push(leaf);
        }
        assert_eq!(seen, (0..count).collect::<Vec<_>>());
    }
}

#[test]
fn find_while_others_split_and_remove() {
    let version = OptimisticLock::default().read();
    let inner = VolatileIndex::<Record>::new(SMALL_BYTES, 0, &Memory::private()).unwrap();
    let running = AtomicUsize::new(3);
    // Fence k * 4 + 1 belongs to thread k % 3; fences k * 4 exist throughout.
    let fixed = 800_u32;
    let name = |i: u32| format!("{i:08}");
    let guard = Record::pin();
    (1..fixed).for_each(|k| inner.insert(name(k * 4).as_bytes(), k, &guard));
    drop(guard);
    std::thread::scope(|scope| {
        for thread in 0..3_u32 {
            let (inner, running) = (&inner, &running);
            scope.spawn(move || {
                for round in 0..30 {
                    for k in (thread..fixed).step_by(3) {
                        let guard = Record::pin();
                        let key = name(k * 4 + 1 + round % 3);
                        inner.insert(key.as_bytes(), fixed + k, &guard);
                        let (leaf, _) = inner.find(key.as_bytes(), &guard, |_| version);
                        assert_eq!(leaf, fixed + k);
                        assert!(inner.remove(key.as_bytes(), fixed + k, &guard, |_| true));
                    }
                }
                running.fetch_sub(1, Relaxed);
            });
        }
        let mut state = 99;
        while running.load(Relaxed) > 0 {
            let k = (noise(&mut state) % u64::from(fixed)) as u32;
            let guard = Record::pin();
            let (leaf, _) = inner.find(name(k * 4).as_bytes(), &guard, |_| version);
            // A removed first entry passes its range to the right, so a transient leaf may begin at the
            // fence, but never another fixed one.
            assert!(leaf == k || leaf >= fixed, "{leaf} for {k}");
        }
    });
    assert!(inner.check().is_empty());
}

/// Threads fill disjoint regions with leaves, and remove those whose range passes to the leaf on the left,
/// so that nodes leave one region and are reused in another. Every thread must find the right leaves.
fn nodes_serve_again_elsewhere<K: KeyCodec>(node_bytes: usize, name: impl Fn(u32) -> K::Owned + Sync) {
    const REGIONS: u32 = 3;
    const LEAVES: u32 = 300;
    let version = OptimisticLock::default().read();
    let inner = VolatileIndex::<K>::new(node_bytes, 0, &Memory::private()).unwrap();
    let running = AtomicUsize::new(REGIONS as usize);
    let find = |number: u32, guard: &K::Guard| inner.find(K::borrow(&name(number)), guard, |_| version).0;
    let guard = K::pin();
    (1..REGIONS).for_each(|region| inner.insert(K::borrow(&name(region * LEAVES)), region * LEAVES, &guard));
    drop(guard);
    std::thread::scope(|scope| {
        for region in 0..REGIONS {
            let (inner, running, name, find) = (&inner, &running, &name, &find);
            scope.spawn(move || {
                let mut leaves = BTreeSet::from([region * LEAVES]);
                for round in 0..120 {
                    let guard = K::pin();
                    let scattered = (0..LEAVES - 1).map(|i| i * (round * 2 + 77) % (LEAVES - 1));
                    for leaf in
                        scattered.map(|i| region * LEAVES + 1 + i).filter(|leaf| leaf % 7 != round % 7)
                    {
                        if leaves.insert(leaf) {
                            inner.insert(K::borrow(&name(leaf)), leaf, &guard);
                        }
                        assert_eq!(find(leaf, &guard), leaf);
                    }
                    for leaf in (region * LEAVES + 1..(region + 1) * LEAVES).rev() {
                        let left = leaves.range(..leaf).next_back().copied();
                        let gone = leaves.contains(&leaf)
                            && inner.remove(K::borrow(&name(leaf)), leaf, &guard, |heir| heir == left);
                        if gone {
                            leaves.remove(&leaf);
                        }
                        assert_eq!(Some(&find(leaf, &guard)), leaves.range(..=leaf).next_back());
                    }
                }
                running.fetch_sub(1, Relaxed);
            });
        }
        let mut state = 99;
        while running.load(Relaxed) > 0 {
            let number = (noise(&mut state) % u64::from(REGIONS * LEAVES)) as u32;
            let (leaf, first) = (find(number, &K::pin()), number / LEAVES * LEAVES);
            assert!((first..=number).contains(&leaf), "{leaf} for {number}");
        }
    });
    assert!(inner.check().is_empty());
}

#[test]
fn nodes_of_words_serve_again_elsewhere() {
    nodes_serve_again_elsewhere::<Inline>(SMALL, |i| u64::from(i) << 40);
}

#[test]
fn nodes_of_bytes_serve_again_elsewhere() {
    nodes_serve_again_elsewhere::<Record>(SMALL_BYTES, |i| format!("{i:08}").into_bytes().into());
}

#[test]
fn byte_strings_whose_first_bytes_are_equal_are_told_apart() {
    let version = OptimisticLock::default().read();
    // Short and long ones, zeros at the end, and all ones where a node has no more keys.
    let mut keys: Vec<Vec<u8>> = vec![vec![]];
    for len in 0..6 {
        for number in 0..3_usize.pow(len) {
            let tail = (0..len).map(|at| [0, b'a', 255][number / 3_usize.pow(at) % 3]);
            keys.extend(
                [&b""[..], b"aaaaaa", &[255; 8]]
                    .map(|head| [head, &tail.clone().collect::<Vec<u8>>()].concat()),
            );
        }
    }
    keys.sort();
    keys.dedup();
    let inner = VolatileIndex::<Record>::new(SMALL_BYTES, 0, &Memory::private()).unwrap();
    let guard = Record::pin();
    let count = keys.len();
    // A prime that does not divide the count: every key once, scattered.
    assert!(!count.is_multiple_of(7919));
    for at in (0..count).map(|i| i * 7919 % count).filter(|&at| at > 0) {
        inner.insert(&keys[at], at as u32, &guard);
    }
    assert!(inner.check().is_empty(), "{:?}", inner.check());
    for probe in
        keys.iter().flat_map(|key| [key.clone(), [key, &[0][..]].concat(), [key, &[255][..]].concat()])
    {
        let want = keys.partition_point(|key| *key <= probe) - 1;
        assert_eq!(inner.find(&probe, &guard, |_| version).0, want as u32, "{probe:?}");
        let want = keys.partition_point(|key| *key < probe).max(1) - 1;
        let before = inner.find_before(Some(&probe), &guard, |_| version);
        assert_eq!(
            (before.0, before.2.as_deref().unwrap_or_default()),
            (want as u32, &*keys[want]),
            "{probe:?}"
        );
    }
}

/// Finds leaves by every key, where each leaf begins at its key; returns the number of lookups of the last
/// round that began at the root, if hints were in use to the end.
fn found_from_the_root(keys: &[u64]) -> Option<u64> {
    let version = OptimisticLock::default().read();
    let inner = VolatileIndex::<Inline>::new(SMALL, 0, &Memory::private()).unwrap();
    (1..).zip(keys).for_each(|(leaf, &key)| inner.insert(key, leaf, &()));
    let round = || {
        let before = inner.hints.vain()?;
        (1..).zip(keys).for_each(|(leaf, &key)| assert_eq!(inner.find(key, &(), |_| version).0, leaf));
        Some(inner.hints.vain()? - before)
    };
    (0..15).for_each(|_| _ = round());
    round()
}

#[test]
fn keys_that_are_spread_are_found_by_hints() {
    let mut state = 88_172_645_463_325_252;
    let noise: Vec<u64> = (0..20_000).map(|_| noise(&mut state)).collect();
    let ascending: Vec<u64> = (0..20_000).map(|i| (1 << 40) | i).collect();
    let ends: Vec<u64> = [1, u64::MAX].into_iter().chain(noise.iter().copied()).collect();
    for keys in [noise, ascending, ends] {
        let vain = found_from_the_root(&keys).expect("hints are in use");
        assert!(vain < keys.len() as u64 / 20, "{vain} of {} began at the root", keys.len());
    }
}

#[test]
fn hints_that_help_no_key_are_not_asked_any_more() {
    // Nearly all keys are in one bucket, and the others far from each other.
    let mut state = 88_172_645_463_325_252;
    let few = (0..500).map(|_| noise(&mut state));
    let keys: Vec<u64> = few.chain((0..20_000).map(|i| (1 << 20) | (i * 7919 % 20_000 * 16))).collect();
    assert_eq!(found_from_the_root(&keys), None);
}
