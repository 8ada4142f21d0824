//! Trees whose kinds are known at run time: their errors, and their sharing with typed ones.

use std::ops::Bound::{Excluded, Included, Unbounded};

use crate::common::Scratch;
use bristlecone::dynamic::{Bounds, Datum, Dynamic, Kind, Tree};
use bristlecone::parts::codec::Record;
use bristlecone::{Design, Error, Result, Value};

/// Byte strings that pretend to be a kind.
macro_rules! pretender {
    ($name:ident, $kind:literal) => {
        struct $name;

        impl Value for $name {
            type Ref<'a> = &'a [u8];
            type Owned = Vec<u8>;
            type Codec = Record;
            type Schema = ();

            fn kind() -> String {
                $kind.to_owned()
            }
            fn fixed() -> Result<()> {
                Ok(())
            }
            fn lend(value: &Vec<u8>) -> &[u8] {
                value
            }
            fn with<R>((): &(), value: &[u8], use_it: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
                use_it(value)
            }
            fn view<R>((): &(), value: &[u8], show: impl FnOnce(&[u8]) -> R) -> Option<R> {
                Some(show(value))
            }
            fn decode((): &(), value: &[u8]) -> Option<Vec<u8>> {
                Some(value.to_vec())
            }
            fn in_entry<'a>((): &(), stored: &'a [u8]) -> Option<&'a [u8]> {
                Some(stored)
            }
        }
    };
}

fn datum<'a>(it: impl Into<Datum<'a>>) -> Datum<'a> {
    it.into()
}

pretender!(PretendedStr, "str");
pretender!(Future, "u256");

#[test]
fn dynamic_and_typed_handles_are_one_tree() {
    for &design in Design::ALL {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let options = pool.tree_options("t").design(design);
        let dynamic = options.create_dynamic(&Kind::Str, &"(u64, Option<str>)".parse().unwrap()).unwrap();
        let typed = pool.tree::<String, (u64, Option<String>)>("t").unwrap();
        for number in 0..300 {
            let key = number.to_string();
            assert_eq!(typed.insert(&key, (number, Some(&key))).unwrap(), None);
            let there = Datum::from((number, Some(key.as_str())));
            assert_eq!(dynamic.get(&datum(&key)).unwrap(), Some(there.borrowed()));
            assert_eq!(
                dynamic.insert(&datum(&key), &datum((number, None::<&str>))).unwrap(),
                Some(there.into_owned())
            );
            assert_eq!(typed.get(&key).unwrap(), Some((number, None)));
        }
        assert_eq!((typed.len().unwrap(), dynamic.len().unwrap()), (300, 300));
        assert_eq!((typed.stats().unwrap().items, dynamic.stats().unwrap().items), (300, 300));
        let names = dynamic.options().iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!((dynamic.name(), dynamic.design(), names.is_empty()), ("t", design, false));
        // The tree is open while either handle exists.
        drop(typed);
        assert!(matches!(pool.drop_tree("t"), Err(Error::TreeInUse { .. })));
        drop(dynamic);
        pool.drop_tree("t").unwrap();
    }
}

#[test]
fn data_of_other_kinds_are_refused() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let refused = |error: Error| error.to_string();
    let words = pool.tree_options("words").create_dynamic(&Kind::I32, &Kind::Bool).unwrap();
    words.insert(&datum(-5), &datum(true)).unwrap();
    assert_eq!(
        refused(words.get(&datum(5u32)).unwrap_err()),
        r#"the tree "words" has keys of type i32, not u32"#
    );
    let text = r#"the tree "words" has values of type bool, not str"#;
    assert_eq!(refused(words.insert(&datum(5), &datum("x")).unwrap_err()), text);
    assert_eq!(refused(words.upsert(&datum(5), &datum("x")).unwrap_err()), text);
    assert_eq!(refused(words.update(&datum(-5), &datum("x")).unwrap_err()), text);
    assert_eq!(refused(words.try_insert(&datum(5), &datum("x")).unwrap_err().into()), text);
    let (yes, no) = (datum(true), datum("x"));
    assert_eq!(refused(words.compare_and_swap(&datum(-5), Some(&yes), Some(&no)).unwrap_err().into()), text);
    assert_eq!(refused(words.compare_and_swap(&datum(-5), Some(&no), Some(&yes)).unwrap_err().into()), text);
    assert_eq!(refused(words.compare_and_swap(&datum(-5), Some(&no), None).unwrap_err().into()), text);
    let text = r#"the tree "words" has keys of type i32, not ()"#;
    assert_eq!(refused(words.remove(&datum(())).unwrap_err()), text);
    assert_eq!(refused(words.get(&datum(())).unwrap_err()), text);
    assert_eq!(refused(words.contains_key(&datum(())).unwrap_err()), text);
    assert_eq!(refused(words.range(&Datum::Unit..).next().unwrap().unwrap_err()), text);
    assert_eq!(refused(words.range(..&Datum::Unit).next_back().unwrap().unwrap_err()), text);
    assert_eq!((words.len().unwrap(), words.get(&datum(-5)).unwrap()), (1, Some(Datum::Bool(true))));
    // A call of many keys stops before a datum of another kind.
    let (one, yes, other) = (datum(1), datum(true), datum("x"));
    let done = words.upsert_many(&[(&one, &yes), (&other, &yes)]).unwrap_err();
    assert_eq!(
        (done.done, done.error.to_string()),
        (1, r#"the tree "words" has keys of type i32, not str"#.into())
    );
    assert!(words.get_many(&[&one, &other], &mut Vec::new()).is_err());
    assert_eq!(words.remove_many(&[&one, &other, &datum(-5)], &mut Vec::new()).unwrap_err().done, 1);
    assert_eq!((words.len().unwrap(), words.get(&datum(-5)).unwrap()), (1, Some(Datum::Bool(true))));

    let kind = "(str, Option<[u8; 2]>)".parse().unwrap();
    let records = pool.tree_options("records").create_dynamic(&kind, &Kind::Bytes).unwrap();
    let text = |asked: &str| format!(r#"the tree "records" has keys of type {kind}, not {asked}"#);
    assert_eq!(
        refused(records.insert(&datum(("x", Some([1, 2, 3]))), &datum(b"")).unwrap_err()),
        text("(str, Option<[u8; 3]>)")
    );
    assert_eq!(refused(records.insert(&datum(("x", 7i8)), &datum(b"")).unwrap_err()), text("(str, i8)"));
    assert_eq!(refused(records.insert(&datum(("x",)), &datum(b"")).unwrap_err()), text("a tuple of 1"));
    assert_eq!(refused(records.insert(&datum(None::<u8>), &datum(b"")).unwrap_err()), text("an option"));
    let long = "x".repeat(17 << 10);
    let error = records.insert(&datum((long.as_str(), None::<&[u8]>)), &datum(b"")).unwrap_err();
    assert!(matches!(error, Error::TooLong { what: "key", .. }), "{error}");
    assert!(records.is_empty().unwrap());
}

#[test]
fn impossible_trees_are_refused() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let create =
        |keys: &Kind, values: &Kind| pool.tree_options("t").create_dynamic(keys, values).unwrap_err();
    assert_eq!(create(&Kind::Json, &Kind::U8).to_string(), "keys cannot be json: it has no order");
    assert!(matches!(create(&Kind::Tuple(vec![]), &Kind::U8), Error::Invalid { .. }));
    assert!(matches!(create(&Kind::U8, &Kind::Option(Box::new(Kind::Json))), Error::Invalid { .. }));
    let long = Kind::Tuple(vec![Kind::Option(Box::new(Kind::Bytes)); 4]);
    let text = "a value type of 60 bytes is too long: at most 48 bytes";
    assert_eq!(create(&Kind::U8, &long).to_string(), text);
    type Long = Option<Vec<u8>>;
    let typed = pool.tree::<u8, (Long, Long, Long, Long)>("t").unwrap_err();
    assert_eq!(typed.to_string(), text);
    assert!(matches!(pool.dynamic_tree("t"), Err(Error::NoSuchTree { .. })));
    // A tree cannot be opened as if its kinds were known.
    let told = pool.tree::<Dynamic, Dynamic>("t").unwrap_err().to_string();
    assert!(told.contains("use dynamic_tree or create_dynamic"), "{told}");
    assert_eq!(pool.trees().unwrap(), []);
}

#[test]
fn trees_of_other_kinds_are_told_from_those_of_a_newer_version() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let old = pool.tree::<u64, String>("old").unwrap();
    assert!(matches!(pool.tree::<i64, String>("old"), Err(Error::Mismatch { what: "keys of type", .. })));
    assert!(matches!(pool.tree::<u64, Vec<u8>>("old"), Err(Error::Mismatch { what: "values of type", .. })));
    drop(old);
    pool.tree::<u64, Future>("t").unwrap().insert(1, b"x").unwrap();
    let told =
        "the pool needs the kind \"u256\", which this version does not know: open it with a newer version";
    assert_eq!(pool.dynamic_tree("t").unwrap_err().to_string(), told);
    assert_eq!(pool.tree::<u64, Vec<u8>>("t").unwrap_err().to_string(), told);
    assert_eq!(pool.check_tree("t").unwrap_err().to_string(), told);
    drop(pool);
    let saved = Scratch::new();
    let salvage = scratch.options().salvage(&scratch.0, &saved.0).unwrap();
    let issues: Vec<_> = salvage.trees.iter().flat_map(|tree| &tree.issues).collect();
    assert_eq!(issues.len(), 1);
    assert_eq!(issues[0].what, format!("not saved: {told}"));
    assert!(!salvage.is_whole());
}

/// Records with valid checksums whose bytes are not strings.
#[test]
fn what_is_not_of_its_kind_is_reported() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let pretended = pool.tree::<u64, PretendedStr>("t").unwrap();
    for key in 0..100 {
        let value: &[u8] = if key % 10 == 7 { b"\xff\xfe" } else { b"text" };
        pretended.insert(key, value).unwrap();
    }
    drop(pretended);
    let (typed, dynamic) = (pool.tree::<u64, String>("t").unwrap(), pool.dynamic_tree("t").unwrap());
    let is_told = |error: Error| {
        let told = error.to_string();
        assert!(
            matches!(error, Error::Corrupted { .. })
                && told.contains("bytes that are not a valid str at a value"),
            "{told}"
        );
    };
    is_told(typed.get(7).unwrap_err());
    is_told(typed.get_with(7, str::len).unwrap_err());
    is_told(dynamic.get(&datum(7u64)).unwrap_err());
    assert_eq!((typed.readable(..).count(), typed.readable(..).rev().count()), (90, 90));
    assert!(typed.readable(..).all(|item| item.is_ok()));
    let readable = || dynamic.readable(..).map(Result::unwrap);
    assert_eq!((readable().count(), readable().rev().count()), (90, 90));
    for mut checked in [typed.range(..), typed.range(..=7), typed.range(5..=7)] {
        let (mut whole, mut told) = (0, 0);
        for item in &mut checked {
            match item {
                Ok((key, value)) => {
                    assert!(key < 7 && value == "text");
                    whole += 1;
                }
                Err(error) => {
                    is_told(error);
                    told += 1;
                }
            }
        }
        assert!((whole == 7 || whole == 2) && told == 1 && checked.next_back().is_none());
    }
    let mut checked = dynamic.range(..);
    assert!((98..100).rev().all(|key| checked.next_back().unwrap().unwrap().0 == Datum::U64(key)));
    is_told(checked.by_ref().find_map(Result::err).unwrap());
    assert!(checked.next().is_none() && checked.next_back().is_none());
    let issues = dynamic.check();
    assert_eq!(issues.len(), 1);
    assert_eq!((&*issues[0].location, &*issues[0].what), ("values", "10 of them are no str"));
    assert_eq!(typed.check(), issues);
    assert_eq!(pool.check_tree("t").unwrap(), (100, issues));

    // The previous value cannot be returned, but the write is applied; an error would mean that nothing was
    // changed.
    assert_eq!(typed.insert(7, "seven").unwrap(), None);
    assert_eq!(typed.get(7).unwrap().as_deref(), Some("seven"));
    typed.upsert(17, "seventeen").unwrap();
    assert_eq!(dynamic.remove(&datum(27u64)).unwrap(), None);
    let mut old = Vec::new();
    typed.insert_many(&[(46, "more"), (47, "text")], &mut old).unwrap();
    assert_eq!(old, [Some("text".to_owned()), None]);
    dynamic.remove_many(&[&datum(46u64), &datum(57u64)], &mut Vec::new()).unwrap();
    typed.update(67, "text").unwrap();
    assert_eq!(
        [47, 57, 67].map(|key| typed.get(key).unwrap()),
        [Some("text".to_owned()), None, Some("text".to_owned())]
    );
    (0..7_u64).for_each(|_| assert!(dynamic.pop_first().unwrap().is_some()));
    typed.remove(7).unwrap();
    is_told(typed.compare_and_swap(37, None, None).unwrap_err().into());
    is_told(dynamic.try_insert(&datum(37u64), &datum("new")).unwrap_err().into());
    assert_eq!((typed.len().unwrap(), dynamic.contains_key(&datum(27u64)).unwrap()), (89, false));
    (0..20_u64).for_each(|key| typed.remove(key).map(drop).unwrap());
    (20..37_u64).for_each(|key| typed.remove(key).map(drop).unwrap());
    let left = typed.len().unwrap();
    // An item that cannot be returned stays.
    assert_eq!(dynamic.pop_first().unwrap(), Some((datum(38u64), datum("text"))));
    assert_eq!((typed.len().unwrap(), dynamic.contains_key(&datum(37u64)).unwrap()), (left - 1, true));
}

/// Keys of a scan that continues where it stopped, `step` items at a time.
fn in_steps(tree: &Tree, bounds: &Bounds, step: usize, backward: bool) -> Vec<Datum<'static>> {
    let (mut bounds, mut keys) = (bounds.clone(), Vec::new());
    loop {
        let mut range = tree.range_within(&bounds);
        let next = || if backward { range.next_back() } else { range.next() };
        let before = keys.len();
        keys.extend(std::iter::from_fn(next).take(step).map(|item| item.unwrap().0));
        if keys.len() == before {
            return keys;
        }
        tree.narrow(&mut bounds, keys.last().unwrap(), backward).unwrap();
    }
}

#[test]
fn bounds_hold_what_ranges_hold_in_few_steps() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let words = pool.tree_options("words").create_dynamic(&Kind::I32, &Kind::Unit).unwrap();
    let texts = pool.tree_options("texts").create_dynamic(&Kind::Str, &Kind::Unit).unwrap();
    for number in -50..50 {
        words.insert(&datum(number), &datum(())).unwrap();
        texts.insert(&datum(format!("{number}")), &datum(())).unwrap();
    }
    let from_to = [
        (Included(Datum::I32(-7)), Excluded(Datum::I32(31))),
        (Excluded(Datum::I32(-7)), Included(Datum::I32(31))),
        (Unbounded, Included(Datum::I32(-49))),
        (Excluded(Datum::I32(48)), Unbounded),
        (Included(Datum::I32(5)), Excluded(Datum::I32(-5))),
    ];
    for (from, to) in from_to {
        let bounds = words.bounds((from.as_ref(), to.as_ref())).unwrap();
        let expected: Vec<_> =
            words.range((from.as_ref(), to.as_ref())).map(Result::unwrap).map(|(key, _)| key).collect();
        let reversed: Vec<_> = expected.iter().rev().cloned().collect();
        for step in [1, 7, 1000] {
            assert_eq!(in_steps(&words, &bounds, step, false), expected);
            assert_eq!(in_steps(&words, &bounds, step, true), reversed);
        }
        assert_eq!(words.count_within(&bounds).unwrap(), expected.len() as u64);
    }
    let all = texts.range_within(&words.bounds(..).unwrap());
    assert_eq!(all.filter(Result::is_ok).count(), 100, "no bound is of no kind");
    let mut refused = texts.range_within(&words.bounds(&Datum::I32(0)..).unwrap());
    assert!(matches!(refused.next(), Some(Err(Error::Invalid { .. }))) && refused.next().is_none());
    let refused = texts.count_within(&words.bounds(&Datum::I32(0)..).unwrap());
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    assert!(matches!(words.bounds(&Datum::U32(0)..), Err(Error::Mismatch { .. })));
    assert!(matches!(words.prefix_bounds(&datum(1)), Err(Error::Mismatch { .. })));
}

#[test]
fn words_within_bounds_are_what_the_typed_tree_has_there() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let create = |name, keys: &str| {
        let kinds = (keys.parse().unwrap(), "u64".parse().unwrap());
        pool.tree_options(name).create_dynamic(&kinds.0, &kinds.1).unwrap()
    };
    let (words, texts) = (create("words", "u64"), create("texts", "str"));
    for key in 0..100u64 {
        words.insert(&datum(key * 3), &datum(key)).unwrap();
        texts.insert(&datum(key.to_string()), &datum(key)).unwrap();
    }
    let typed = words.as_u64().unwrap();
    for (from, to) in [(0, 300), (10, 31), (299, 1000), (50, 20)] {
        let mut bounds = words.bounds(&Datum::U64(from)..&Datum::U64(to)).unwrap();
        let expected: Vec<_> = typed.range((Included(from), Excluded(to))).map(Result::unwrap).collect();
        assert_eq!(
            words.words_within(&bounds).unwrap().unwrap().map(Result::unwrap).collect::<Vec<_>>(),
            expected
        );
        if let Some((last, _)) = expected.last() {
            words.narrow(&mut bounds, &datum(*last), true).unwrap();
            assert_eq!(words.words_within(&bounds).unwrap().unwrap().count(), expected.len() - 1);
        }
    }
    assert!(texts.words_within(&texts.bounds(..).unwrap()).unwrap().is_none());
    let refused = words.words_within(&texts.bounds(&datum("5")..).unwrap()).map(|_| ());
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
}

#[test]
fn a_prefix_has_the_keys_that_begin_with_it_and_no_other() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let create = |name, keys: &str| {
        pool.tree_options(name).create_dynamic(&keys.parse().unwrap(), &Kind::Unit).unwrap()
    };
    let texts = create("texts", "str");
    let all = ["", "a", "ab", "ab\0", "abc", "ab\u{10ffff}", "ab\u{10ffff}x", "ac", "b", "\u{10ffff}"];
    for text in all {
        texts.insert(&datum(text), &datum(())).unwrap();
    }
    for prefix in ["", "a", "ab", "abc", "abcd", "ab\u{10ffff}", "\u{10ffff}", "c"] {
        let mut expected: Vec<_> = all.iter().filter(|text| text.starts_with(prefix)).copied().collect();
        expected.sort_unstable();
        let found = in_steps(&texts, &texts.prefix_bounds(&datum(prefix)).unwrap(), 2, false);
        assert_eq!(found, expected.into_iter().map(Datum::from).collect::<Vec<_>>(), "{prefix:?}");
    }
    let bytes = create("bytes", "bytes");
    let all: [&[u8]; 6] = [b"", b"\xfe\xff", b"\xfe\xff\xff", b"\xff", b"\xff\xff", b"\xff\xff\0"];
    for key in all {
        bytes.insert(&datum(key), &datum(())).unwrap();
    }
    for prefix in [&b""[..], b"\xfe", b"\xfe\xff", b"\xff", b"\xff\xff", b"\xff\xff\xff"] {
        let expected = all.iter().filter(|key| key.starts_with(prefix)).count();
        assert_eq!(
            bytes.range_within(&bytes.prefix_bounds(&datum(prefix)).unwrap()).count(),
            expected,
            "{prefix:?}"
        );
    }
    let arrays = create("arrays", "[u8; 2]");
    arrays.insert(&datum([1, 2]), &datum(())).unwrap();
    assert_eq!(arrays.range_within(&arrays.prefix_bounds(&datum([1])).unwrap()).count(), 1);
    assert_eq!(arrays.count_within(&arrays.prefix_bounds(&datum([1, 2, 3])).unwrap()).unwrap(), 0);

    let tuples = create("tuples", "(str, Option<i8>, bytes)");
    let all = [
        ("a", None, b""),
        ("a", Some(-1i8), b""),
        ("a", Some(1), b""),
        ("a\0", None, b""),
        ("ab", None, b""),
    ];
    for (text, number, bytes) in all {
        tuples.insert(&datum((text, number, &bytes[..])), &datum(())).unwrap();
    }
    let count =
        |prefix: Datum<'_>| tuples.range_within(&tuples.prefix_bounds(&datum(prefix)).unwrap()).count();
    assert_eq!(count(Datum::Tuple(Vec::new())), 5);
    assert_eq!((count(("a",).into()), count(("a\0",).into()), count(("",).into())), (3, 1, 0));
    assert_eq!((count(("a", None::<i8>).into()), count(("a", Some(1i8), b"").into())), (1, 1));
    for other in [Datum::from("a"), Datum::from((1i8,)), Datum::from(("a", None::<i8>, b"", 1i8))] {
        assert!(matches!(tuples.prefix_bounds(&datum(other)), Err(Error::Mismatch { .. })));
    }
}

#[test]
fn a_tree_of_u64_is_to_be_had_typed_and_no_other() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let create =
        |name, kinds: [&Kind; 2]| pool.tree_options(name).create_dynamic(kinds[0], kinds[1]).unwrap();
    let tree = create("u64", [&Kind::U64, &Kind::U64]);
    tree.as_u64().unwrap().insert(1, 2).unwrap();
    assert_eq!(tree.get(&datum(1u64)).unwrap(), Some(Datum::U64(2)));
    assert!(create("i64", [&Kind::I64, &Kind::U64]).as_u64().is_none());
    assert!(create("u32", [&Kind::U64, &Kind::U32]).as_u64().is_none());
    assert!(create("bytes", [&Kind::U64, &Kind::Bytes]).as_u64().is_none());
}
