//! Composed operations, compared with `BTreeMap`, and on several threads: read-modify-write, removals from the ends,
//! removals of ranges.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bristlecone::dynamic::Datum;
use bristlecone::{Error, Json, KEY_BYTES_MAX, Key, Pool, Result, Tree, VALUE_BYTES_MAX, Value};

use crate::common::{Cell, Items, Noise, Plant, Scratch, Visit, small, suites};

type KeyOf<I> = <<I as Items>::K as Key>::Owned;
type ValueOf<I> = <<I as Items>::V as Value>::Owned;
type Model<I> = BTreeMap<KeyOf<I>, ValueOf<I>>;

const KEYS: u64 = 400;

fn fill<I: Items>(tree: &Tree<I::K, I::V>, model: &mut Model<I>, noise: &mut Noise) {
    for _ in 0..KEYS {
        let (key, value) = (I::key(noise.below(KEYS)), I::value(noise.next()));
        tree.upsert(I::key_ref(&key), I::value_ref(&value)).unwrap();
        model.insert(key, value);
    }
}

fn compare<I: Items>(tree: &Tree<I::K, I::V>, model: &Model<I>) {
    assert_eq!(tree.check(), []);
    assert!(tree.iter().map(Result::unwrap).eq(model.iter().map(own::<I>)));
    assert!(
        tree.keys().map(Result::unwrap).eq(model.keys().cloned())
            && tree.values().map(Result::unwrap).rev().eq(model.values().rev().cloned())
    );
    assert_eq!(tree.count(..).unwrap(), model.len() as u64);
}

/// One key: read and changed atomically.
fn change_one<I: Items>(tree: &Tree<I::K, I::V>, model: &mut Model<I>, noise: &mut Noise) {
    let (key, new) = (I::key(noise.below(KEYS)), I::value(noise.next()));
    let at = I::key_ref(&key);
    let held = model.get(&key).cloned();
    match noise.below(6) {
        0 => {
            assert_eq!(tree.fetch_update(at, |_| Some(new.clone())).unwrap(), held);
            model.insert(key.clone(), new);
        }
        1 => {
            let flip = |there: bool| (!there).then(|| new.clone());
            let now = tree.update_and_fetch(at, |old| flip(old.is_some())).unwrap();
            assert_eq!(now, flip(held.is_some()));
            model.remove(&key);
            model.extend(now.map(|now| (key.clone(), now)));
        }
        2 => {
            let now = tree.entry(at).or_insert(I::value_ref(&new)).unwrap();
            assert_eq!(&now, model.entry(key.clone()).or_insert(new));
        }
        3 => {
            let modified = tree.entry(at).and_modify(|_| ()).and_modify(|old| *old = new.clone());
            let now = modified.or_insert_with(|| I::value(7)).unwrap();
            assert_eq!(&now, model.entry(key.clone()).and_modify(|old| *old = new).or_insert(I::value(7)));
        }
        4 => {
            let now = tree.entry(at).and_modify(|old| *old = new.clone()).or_absent().unwrap();
            model.entry(key.clone()).and_modify(|old| *old = new);
            assert_eq!(now, model.get(&key).cloned());
        }
        _ => {
            // A panicking closure must change nothing.
            let panicking = || tree.fetch_update(at, |_| panic!("as it is to"));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());
        }
    }
    assert_eq!(tree.get(at).unwrap(), model.get(&key).cloned());
}

/// The ends, and the neighbours of a key.
fn look_and_take<I: Items>(tree: &Tree<I::K, I::V>, model: &mut Model<I>, noise: &mut Noise) {
    let key = I::key(noise.below(KEYS));
    let at = I::key_ref(&key);
    let below = |bound| model.range((Unbounded, bound)).next_back().map(own::<I>);
    let above = |bound| model.range((bound, Unbounded)).next().map(own::<I>);
    assert_eq!(tree.get_lt(at).unwrap(), below(Excluded(&key)));
    assert_eq!(tree.get_le(at).unwrap(), below(Included(&key)));
    assert_eq!(tree.get_ge(at).unwrap(), above(Included(&key)));
    assert_eq!(tree.get_gt(at).unwrap(), above(Excluded(&key)));
    match noise.below(4) {
        0 => assert_eq!(tree.pop_first().unwrap(), model.pop_first()),
        1 => assert_eq!(tree.pop_last().unwrap(), model.pop_last()),
        2 => {
            let wanted = noise.below(2) == 0;
            let shown = tree.pop_first_if(|_, _| wanted).unwrap();
            assert_eq!(shown, wanted.then(|| model.pop_first()).flatten());
        }
        _ => {
            // Simulates a faster thread: its value is shown, and returned.
            let now = I::value(noise.next());
            let mut is_first_look = true;
            let popped = tree.pop_last_if(|key, _| {
                if std::mem::take(&mut is_first_look) {
                    tree.update(key, I::value_ref(&now)).unwrap();
                }
                true
            });
            assert_eq!(popped.unwrap(), model.pop_last().map(|(key, _)| (key, now)));
        }
    }
}

fn own<I: Items>((key, value): (&KeyOf<I>, &ValueOf<I>)) -> (KeyOf<I>, ValueOf<I>) {
    (key.clone(), value.clone())
}

/// Many keys, one after the other.
fn remove_many<I: Items>(tree: &Tree<I::K, I::V>, model: &mut Model<I>, noise: &mut Noise) {
    let mut ends = [I::key(noise.below(KEYS)), I::key(noise.below(KEYS))];
    ends.sort();
    let [from, to] = &ends;
    let bounds = || I::key_ref(from)..I::key_ref(to);
    let inside: Vec<_> = model.range(from..to).map(own::<I>).collect();
    assert_eq!(tree.count(bounds()).unwrap(), inside.len() as u64);
    assert_eq!(tree.count(I::key_ref(to)..I::key_ref(from)).unwrap(), 0);
    match noise.below(4) {
        0 => {
            assert_eq!(tree.remove_range(bounds()).unwrap(), inside.len() as u64);
            inside.iter().for_each(|(key, _)| _ = model.remove(key));
        }
        1 => {
            let mut shown = inside.iter();
            let mut turn = 0;
            let keep = |key: <I::K as Key>::Ref<'_>, _: <I::V as Value>::Ref<'_>| {
                assert_eq!(tree.get(key).unwrap().as_ref(), shown.next().map(|(_, value)| value));
                turn += 1;
                turn % 2 == 0
            };
            tree.retain_in(bounds(), keep).unwrap();
            inside.iter().step_by(2).for_each(|(key, _)| _ = model.remove(key));
        }
        2 => {
            let drained: Vec<_> = tree.drain(bounds()).take(20).map(|item| item.unwrap()).collect();
            assert_eq!(drained, inside[..inside.len().min(20)]);
            drained.iter().for_each(|(key, _)| _ = model.remove(key));
            let rest = &inside[drained.len()..];
            let last: Vec<_> = tree.drain(bounds()).rev().take(5).map(|item| item.unwrap()).collect();
            assert!(last.iter().eq(rest.iter().rev().take(5)));
            last.iter().for_each(|(key, _)| _ = model.remove(key));
        }
        _ => {
            tree.clear().unwrap();
            model.clear();
        }
    }
}

#[test]
fn composed_operations_do_what_a_map_does() {
    struct Run(Cell, u64);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let Self(cell, seed) = self;
            let (scratch, mut noise) = (Scratch::new(), Noise(seed));
            let mut model = Model::<I>::new();
            for epoch in 0..4 {
                let pool = cell.pool(&scratch);
                let tree: Tree<I::K, I::V> =
                    if epoch == 0 { cell.create(&pool, "t") } else { cell.open(&pool, "t") }.unwrap();
                for _ in 0..3 {
                    fill::<I>(&tree, &mut model, &mut noise);
                    (0..200).for_each(|_| change_one::<I>(&tree, &mut model, &mut noise));
                    compare::<I>(&tree, &model);
                    (0..30).for_each(|_| look_and_take::<I>(&tree, &mut model, &mut noise));
                    (0..4).for_each(|_| remove_many::<I>(&tree, &mut model, &mut noise));
                    compare::<I>(&tree, &model);
                }
                drop(tree);
                if epoch % 2 == 0 { pool.close().unwrap() } else { pool.simulate_crash() }
            }
        }
    }
    for (seed, cell) in suites::MODEL.sampled().into_iter().enumerate() {
        println!("{cell}");
        cell.codec.visit(Run(cell, 0x5eed_5eed + seed as u64));
    }
}

/// Runs `work` on several threads, each with its number.
fn on_threads<T: Send>(work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

const THREADS: u64 = 4;

#[test]
fn each_item_is_taken_once() {
    for shape in small() {
        println!("{shape}");
        let scratch = Scratch::new();
        let pool = scratch.open();
        let queue: Tree<u64, u64> = shape.create(&pool, "queue").unwrap();
        let items = 2000;
        let produced = AtomicU64::new(0);
        let taken = on_threads(|thread| {
            let mut taken = Vec::new();
            while (taken.len() as u64) < items / THREADS {
                let number = produced.fetch_add(1, Relaxed);
                if number < items {
                    // Neither ascending nor random.
                    queue.upsert(number ^ 0x55, number).unwrap();
                }
                taken.extend(match (thread + number) % 4 {
                    0 => queue.pop_first().unwrap(),
                    1 => queue.pop_last().unwrap(),
                    2 => queue.pop_first_if(|_, value| value % 3 != 1).unwrap(),
                    _ => queue.drain(number / 2..).next().transpose().unwrap(),
                });
            }
            taken
        });
        let mut taken: Vec<_> = taken.into_iter().flatten().collect();
        taken.sort_unstable();
        let mut want: Vec<_> = (0..items).map(|number| (number ^ 0x55, number)).collect();
        want.sort_unstable();
        assert_eq!(taken, want, "{shape}");
        assert_eq!((queue.pop_first().unwrap(), queue.check()), (None, vec![]));
    }
}

#[test]
fn no_update_is_lost() {
    for shape in small() {
        println!("{shape}");
        let scratch = Scratch::new();
        let pool = scratch.open();
        let sums: Tree<u64, u64> = shape.create(&pool, "sums").unwrap();
        let texts: Tree<&str, &str> = shape.create(&pool, "texts").unwrap();
        let rounds = 400;
        on_threads(|thread| {
            for round in 0..rounds {
                let key = round % 3;
                match (thread + round / 3) % 3 {
                    0 => _ = sums.fetch_update(key, |sum| Some(sum.unwrap_or(0) + 1)).unwrap(),
                    1 => _ = sums.update_and_fetch(key, |sum| Some(sum.unwrap_or(0) + 1)).unwrap(),
                    _ => _ = sums.entry(key).and_modify(|sum| *sum += 1).or_insert(1).unwrap(),
                }
                let append = |text: Option<&str>| Some(format!("{}x", text.unwrap_or("")));
                texts.fetch_update("text", append).unwrap();
                // Other keys are inserted and removed beside them.
                sums.upsert(100 + round * THREADS + thread, 0).unwrap();
                sums.retain_in(100.., |key, _| key % 7 == 0).unwrap();
            }
        });
        assert_eq!(
            (0..3).map(|key| sums.get(key).unwrap().unwrap()).sum::<u64>(),
            THREADS * rounds,
            "{shape}"
        );
        assert_eq!(texts.get("text").unwrap().unwrap().len() as u64, THREADS * rounds);
        let kept: Vec<_> = sums.range(100..).map(Result::unwrap).map(|(key, _)| key).collect();
        assert!(
            kept.iter().eq(&(100..100 + rounds * THREADS).filter(|key| key % 7 == 0).collect::<Vec<_>>())
        );
        sums.remove_range(100..).unwrap();
        assert_eq!(sums.len().unwrap(), 3);
    }
}

#[test]
fn prefixes_of_text_bytes_and_tuples() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let words = ["", "a", "aa", "ab", "b", "ba", "\u{10ffff}", "\u{10ffff}z"];
    let texts = pool.tree::<&str, u64>("texts").unwrap();
    let bytes = pool.tree::<&[u8], u64>("bytes").unwrap();
    let tuples = pool.tree::<(&str, u32, bool), u64>("tuples").unwrap();
    for (number, word) in words.iter().enumerate() {
        texts.upsert(word, number as u64).unwrap();
        bytes.upsert(word.as_bytes(), number as u64).unwrap();
        (0..6).for_each(|at| tuples.upsert((word, at / 2, at % 2 == 0), 0).unwrap());
    }
    bytes.upsert(&[0xff, 0xff, 7], 99).unwrap();
    for prefix in words {
        let want: Vec<_> = texts.keys().map(Result::unwrap).filter(|key| key.starts_with(prefix)).collect();
        assert!(
            texts.prefix(prefix).map(Result::unwrap).map(|(key, _)| key).eq(want.iter().cloned()),
            "{prefix:?}"
        );
        assert!(
            texts.prefix(prefix).map(Result::unwrap).rev().map(|(key, _)| key).eq(want.iter().rev().cloned()),
            "{prefix:?}"
        );
        assert!(
            bytes
                .prefix(prefix.as_bytes())
                .map(Result::unwrap)
                .all(|(key, _)| key.starts_with(prefix.as_bytes()))
        );
        assert!(tuples.prefix((prefix,)).map(Result::unwrap).all(|((word, ..), _)| word == prefix));
        assert_eq!(
            (
                tuples.prefix((prefix,)).map(Result::unwrap).count(),
                tuples.prefix((prefix, 1)).map(Result::unwrap).count()
            ),
            (6, 2)
        );
    }
    assert_eq!(
        (bytes.prefix(b"").map(Result::unwrap).count(), bytes.prefix(&[0xff; 2]).map(Result::unwrap).count()),
        (words.len() + 1, 1)
    );
    let arrays = pool.tree::<[u8; 2], u64>("arrays").unwrap();
    (0..=u16::MAX).step_by(64).for_each(|key| arrays.upsert(key.to_be_bytes(), 0).unwrap());
    assert_eq!(
        (
            arrays.prefix(&[0xff]).map(Result::unwrap).count(),
            arrays.prefix(b"\xff\xc0").map(Result::unwrap).count()
        ),
        (4, 1)
    );
}

#[test]
fn composed_operations_that_cannot_be_change_nothing() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<&[u8], &[u8]>("t").unwrap();
    tree.insert(b"key", b"value").unwrap();
    let long = |_: Option<&[u8]>| Some(vec![0; VALUE_BYTES_MAX + 1]);
    assert!(matches!(tree.fetch_update(b"key", long), Err(Error::TooLong { what: "value", .. })));
    assert!(matches!(tree.update_and_fetch(b"new", long), Err(Error::TooLong { what: "value", .. })));
    let long = vec![0; KEY_BYTES_MAX + 1];
    assert!(matches!(tree.entry(&long).or_insert(b""), Err(Error::TooLong { what: "key", .. })));
    assert!(matches!(tree.fetch_update(&long, |_| Some(vec![])), Err(Error::TooLong { what: "key", .. })));
    assert_eq!(tree.remove_range(&long[..]..).unwrap(), 1);
    tree.insert(b"key", b"value").unwrap();
    drop(tree);
    pool.close().unwrap();

    let pool = Pool::options().read_only(true).open(&scratch.0).unwrap();
    let tree = pool.tree::<&[u8], &[u8]>("t").unwrap();
    let refused = [
        tree.fetch_update(b"key", |_| None).err(),
        tree.entry(b"key").or_insert(b"").err(),
        tree.entry(b"key").and_modify(|_| ()).or_absent().err(),
        tree.pop_first().err(),
        tree.pop_last_if(|_, _| true).err(),
        tree.remove_range(..).err(),
        tree.retain(|_, _| true).err(),
        tree.clear().err(),
        tree.drain(..).next().and_then(Result::err),
    ];
    for (number, refused) in refused.into_iter().enumerate() {
        assert!(matches!(refused, Some(Error::ReadOnly)), "{number}: {refused:?}");
    }
    assert_eq!((tree.len().unwrap(), tree.drain(..).nth(1).is_none()), (1, true));
}

/// A value that decodes, but is not stored in the type's canonical encoding.
#[test]
fn a_value_that_another_program_wrote_is_updated() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, Json<Vec<u32>>>("t").unwrap();
    let written = Datum::Json("[ 1,  2 ]".into());
    pool.dynamic_tree("t").unwrap().insert(&7u64.into(), &written).unwrap();
    tree.fetch_update(7, |list| list.map(|list| [&list[..], &[3]].concat())).unwrap();
    assert_eq!(tree.get(7).unwrap(), Some(vec![1, 2, 3]));
    assert_eq!(tree.pop_first_if(|_, list| list.len() == 3).unwrap(), Some((7, vec![1, 2, 3])));
}

#[test]
fn dynamic_trees_have_them_too() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    for shape in small() {
        let typed: Tree<(&str, u32), i64> = shape.create(&pool, &shape.to_string()).unwrap();
        (0..100).for_each(|n| _ = typed.insert((["a", "b"][n as usize % 2], n), i64::from(n)).unwrap());
        let tree = pool.dynamic_tree(&shape.to_string()).unwrap();
        let add = |old: Option<&Datum<'_>>| match old {
            Some(Datum::I64(old)) => (*old < 10).then_some(Datum::I64(old + 100)),
            _ => Some(Datum::I64(-1)),
        };
        assert_eq!(tree.fetch_update(&("a", 2u32).into(), add).unwrap(), Some(Datum::I64(2)));
        assert_eq!(tree.update_and_fetch(&("a", 2u32).into(), add).unwrap(), None);
        assert_eq!(tree.update_and_fetch(&("a", 2u32).into(), add).unwrap(), Some(Datum::I64(-1)));
        let wrong = tree.fetch_update(&("a", 2u32).into(), |_| Some(Datum::U64(0)));
        assert!(matches!(wrong, Err(Error::Mismatch { .. })));
        assert_eq!(typed.get(("a", 2)).unwrap(), Some(-1));
        assert_eq!(
            (
                tree.prefix(&Datum::Tuple(vec!["b".into()])).map(Result::unwrap).count(),
                tree.count(..).unwrap()
            ),
            (50, 100)
        );
        assert!(matches!(tree.prefix(&"b".into()).next_back(), Some(Err(Error::Mismatch { .. }))));
        let first = (Datum::from(("a", 0u32)), Datum::I64(0));
        assert_eq!(tree.get_lt(&("a", 1u32).into()).unwrap(), Some(first.clone()));
        assert_eq!(tree.get_le(&("a", 0u32).into()).unwrap(), Some(first.clone()));
        assert_eq!(tree.get_ge(&("", 0u32).into()).unwrap(), Some(first.clone()));
        assert_eq!(tree.get_gt(&("b", 99u32).into()).unwrap(), None);
        assert_eq!(tree.pop_first_if(|_, value| *value == Datum::I64(7)).unwrap(), None);
        assert_eq!(tree.pop_first().unwrap(), Some(first));
        assert_eq!(tree.pop_last().unwrap(), Some((("b", 99u32).into(), Datum::I64(99))));
        assert_eq!(tree.pop_last_if(|_, _| true).unwrap(), Some((("b", 97u32).into(), Datum::I64(97))));
        assert_eq!(tree.remove_range(&Datum::from(("b", 0u32))..).unwrap(), 48);
        tree.retain(|_, value| *value > Datum::I64(50)).unwrap();
        assert_eq!(
            (tree.keys().map(Result::unwrap).count(), tree.values().map(Result::unwrap).next_back()),
            (24, Some(Datum::I64(98)))
        );
        let drained: Vec<_> = tree.drain(..).map(|item| item.unwrap().1).take(3).collect();
        assert_eq!(drained, [52, 54, 56].map(Datum::I64));
        tree.clear().unwrap();
        assert!(typed.is_empty().unwrap());
    }
}
