//! Batches: atomic groups of changes.

use std::collections::BTreeMap;

use bristlecone::dynamic::Datum;
use bristlecone::{Design, Error, Pool, leave_in_part};

use crate::{Scratch, mix, pairs};

#[test]
pub fn a_batch_changes_trees_of_all_designs_and_codecs_together() {
    for (design, other) in pairs() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let words = pool.tree_options("words").design(design).create::<u64, u64>().unwrap();
        let texts = pool.tree_options("texts").design(other).create::<&str, Vec<u8>>().unwrap();
        let mixed = pool.tree_options("mixed").design(design).create::<(u32, String), f64>().unwrap();
        words.insert(1, 10).unwrap();
        texts.insert("gone", b"old").unwrap();
        let mut batch = pool.batch();
        batch.insert(&words, 1, 11).insert(&words, 2, 22).remove(&words, 3);
        batch.remove(&texts, "gone").insert(&texts, "new", b"value");
        batch.insert(&mixed, (7, "seven"), 7.5).expect(&words, 1, Some(10)).expect(&texts, "new", None);
        assert_eq!(batch.len(), 6);
        batch.commit().unwrap();
        let check = |pool: &Pool| {
            let words = pool.tree::<u64, u64>("words").unwrap();
            let texts = pool.tree::<&str, Vec<u8>>("texts").unwrap();
            let mixed = pool.tree::<(u32, String), f64>("mixed").unwrap();
            assert!(words.iter().map(Result::unwrap).eq([(1, 11), (2, 22)]), "{design} {other}");
            assert!(texts.iter().map(Result::unwrap).eq([("new".to_owned(), b"value".to_vec())]));
            assert_eq!(mixed.get((7, "seven")).unwrap(), Some(7.5));
            assert!(words.check().is_empty() && texts.check().is_empty() && mixed.check().is_empty());
        };
        check(&pool);
        drop((words, texts, mixed));
        pool.close().unwrap();
        let pool = scratch.open();
        assert!(pool.info().was_clean && pool.check().is_empty());
        check(&pool);
    }
}

#[test]
pub fn a_condition_that_does_not_hold_leaves_everything_as_it_is() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, &str>("t").unwrap();
    tree.insert(1, "one").unwrap();
    let refused = |expected: Option<&str>| {
        let mut batch = pool.batch();
        batch.insert(&tree, 2, "two").remove(&tree, 1).expect(&tree, 1, expected);
        matches!(batch.commit(), Err(Error::Conflict))
    };
    assert!(refused(None) && refused(Some("on")) && refused(Some("onee")));
    assert!(tree.iter().map(Result::unwrap).eq([(1, "one".to_owned())]));
    let mut batch = pool.batch();
    batch.expect(&tree, 1, Some("one")).expect(&tree, 1, None);
    assert!(matches!(batch.commit(), Err(Error::Conflict)), "conditions that exclude each other");
    let mut batch = pool.batch();
    batch.expect(&tree, 1, Some("one"));
    batch.commit().unwrap();
    assert!(!refused(Some("one")));
    assert!(tree.iter().map(Result::unwrap).eq([(2, "two".to_owned())]));
}

#[test]
pub fn batches_large_and_small_are_what_a_map_becomes() {
    for (design, other) in pairs() {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let words = pool.tree_options("words").design(design).create::<u64, u64>().unwrap();
        let texts = pool.tree_options("texts").design(other).create::<String, String>().unwrap();
        let (mut word_model, mut text_model) = (BTreeMap::new(), BTreeMap::new());
        for round in 0..40_u64 {
            let mut batch = pool.batch();
            for at in 0..if round % 10 == 9 { 3000 } else { round } {
                let noise = mix(round << 32 | at);
                let key = noise % 2000;
                let text = format!("key {}", noise % 1000);
                match noise >> 60 {
                    0..4 => {
                        batch.remove(&words, key).remove(&texts, &text);
                        word_model.remove(&key);
                        text_model.remove(&text);
                    }
                    _ => {
                        let value = "x".repeat((noise >> 40) as usize % 50);
                        batch.insert(&words, key, noise).insert(&texts, &text, &value);
                        word_model.insert(key, noise);
                        text_model.insert(text, value);
                    }
                }
            }
            batch.commit().unwrap();
        }
        assert!(
            words.iter().map(Result::unwrap).eq(word_model.clone())
                && texts.iter().map(Result::unwrap).eq(text_model.clone()),
            "{design} {other}"
        );
        assert!(words.check().is_empty() && texts.check().is_empty());
        drop((words, texts));
        scratch.crash(pool);
        let pool = scratch.open();
        assert!(pool.tree::<u64, u64>("words").unwrap().iter().map(Result::unwrap).eq(word_model));
        assert!(pool.tree::<String, String>("texts").unwrap().iter().map(Result::unwrap).eq(text_model));
    }
}

#[test]
pub fn dynamic_trees_are_trees_in_a_batch() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let typed = pool.tree::<&str, u64>("accounts").unwrap();
    let dynamic = pool.dynamic_tree("accounts").unwrap();
    typed.insert("alice", 100).unwrap();
    let mut batch = pool.batch();
    let alice = Datum::from("alice");
    batch.expect(&dynamic, &alice, Some(&100_u64.into()));
    batch.insert(&dynamic, &alice, &90_u64.into()).insert(&typed, "bob", 10);
    batch.commit().unwrap();
    assert_eq!((typed.get("alice").unwrap(), typed.get("bob").unwrap()), (Some(90), Some(10)));
    let view = pool.snapshot().unwrap();
    dynamic.insert(&alice, &1_u64.into()).unwrap();
    let then = view.tree(&dynamic);
    assert_eq!(then.get(&alice).unwrap(), Some(Datum::U64(90)));
    assert_eq!(
        then.iter().map(Result::unwrap).map(|(key, _)| key).collect::<Vec<_>>(),
        [Datum::from("alice"), "bob".into()]
    );
    assert!(matches!(then.get(&7_u64.into()), Err(Error::Mismatch { .. })));
    let mut batch = pool.batch();
    batch.insert(&dynamic, &"carol".into(), &"text".into()).insert(&typed, "dave", 1);
    assert!(matches!(batch.commit(), Err(Error::Mismatch { .. })));
    assert_eq!(typed.get("dave").unwrap(), None);
}

#[test]
pub fn what_cannot_be_is_refused_and_changes_nothing() {
    let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
    let (pool, other) = (scratch.open(), elsewhere.open());
    let tree = pool.tree::<&str, Vec<u8>>("t").unwrap();
    let foreign = other.tree::<&str, Vec<u8>>("t").unwrap();
    let mut batch = pool.batch();
    batch.insert(&tree, "a", b"1").insert(&foreign, "a", b"1");
    let refused = batch.commit().unwrap_err();
    assert_eq!(refused.to_string(), "the tree belongs to another pool: a commit covers one pool");
    let mut batch = pool.batch();
    batch.insert(&tree, "a", b"1").insert(&tree, &"k".repeat(20_000), b"1");
    assert!(matches!(batch.commit(), Err(Error::TooLong { what: "key", .. })));
    let mut batch = pool.batch();
    batch.insert(&tree, "a", b"1").insert(&tree, "b", &vec![0; 200_000]);
    assert!(matches!(batch.commit(), Err(Error::TooLong { what: "value", .. })));
    assert!(tree.is_empty().unwrap() && foreign.is_empty().unwrap());
    pool.batch().commit().unwrap();
    let mut batch = pool.batch();
    batch.insert(&tree, "a", b"1");
    // The batch holds the pool and the tree.
    drop(tree);
    assert!(matches!(pool.drop_tree("t"), Err(Error::TreeInUse { .. })));
    let pool = pool.close().unwrap_err().into_pool();
    batch.commit().unwrap();
    pool.close().unwrap();
    let reader = Pool::options().read_only(true).open(&scratch.0).unwrap();
    let tree = reader.tree::<&str, Vec<u8>>("t").unwrap();
    let mut batch = reader.batch();
    batch.insert(&tree, "a", b"2");
    assert!(matches!(batch.commit(), Err(Error::ReadOnly)));
    assert!(matches!(reader.transaction(|tx| tx.insert(&tree, "a", b"2")), Err(Error::ReadOnly)));
    assert_eq!(reader.snapshot().unwrap().tree(&tree).get("a").unwrap(), Some(b"1".to_vec()));
}

/// A batch that does not fit fails as a whole, and the pool remains usable.
#[test]
pub fn a_batch_larger_than_the_pool_changes_nothing() {
    for (design, _) in pairs() {
        let scratch = Scratch::new();
        let pool = crate::domains::options().max_bytes(40 << 20).create(true).open(&scratch.0).unwrap();
        let tree = pool.tree_options("t").design(design).create::<u64, Vec<u8>>().unwrap();
        tree.insert(0, b"there").unwrap();
        let value = vec![7; 100_000];
        let mut batch = pool.batch();
        (0..1000).for_each(|key| _ = batch.insert(&tree, key, &value));
        assert!(batch.commit().unwrap_err().is_no_room(), "{design}");
        assert!(tree.iter().map(Result::unwrap).eq([(0, b"there".to_vec())]));
        // Batches of a size that fits, until none does: each is present or not.
        let mut next = 1;
        loop {
            let mut batch = pool.batch();
            (next..next + 20).for_each(|key| _ = batch.insert(&tree, key, &value));
            match batch.commit() {
                Ok(()) => next += 20,
                Err(error) => {
                    assert!(error.is_no_room());
                    break;
                }
            }
        }
        assert!(next > 100 && tree.len().unwrap() == next, "{design}: {next} and {}", tree.len().unwrap());
        assert!(tree.check().is_empty() && pool.check().is_empty());
        // Removals succeed, together or alone.
        let mut batch = pool.batch();
        (0..next).for_each(|key| _ = batch.remove(&tree, key));
        batch.commit().unwrap();
        assert!(tree.is_empty().unwrap());
        let mut batch = pool.batch();
        (0..20).for_each(|key| _ = batch.insert(&tree, key, &value));
        batch.commit().unwrap();
        assert_eq!(tree.len().unwrap(), 20);
    }
}

#[test]
pub fn after_a_change_left_in_part_nothing_is_acknowledged_before_the_next_opening_carries_it_out() {
    for &design in Design::ALL {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = pool.tree_options("t").design(design).create::<u64, u64>().unwrap();
        tree.insert(1, 1).unwrap();
        assert!(matches!(leave_in_part(&pool, &[(&tree, 7, 8)]), Err(Error::DurabilityLost)));
        assert!(matches!(tree.insert(1, 2), Err(Error::DurabilityLost)));
        let mut batch = pool.batch();
        batch.insert(&tree, 1, 3);
        assert!(matches!(batch.commit(), Err(Error::DurabilityLost)));
        drop(tree);
        assert!(pool.close().is_err());
        let pool = scratch.open();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        assert_eq!(tree.get(7).unwrap(), Some(8), "{design}");
        assert!(tree.get(1).unwrap().is_some() && tree.check().is_empty(), "{design}");
    }
}
