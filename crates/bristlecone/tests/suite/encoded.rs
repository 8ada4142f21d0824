//! Values of serde types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::common::{Scratch, inserted};
use bristlecone::dynamic::{Datum, Kind};
use bristlecone::{Design, Error, Json, Postcard};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Tree {
    name: String,
    age: Option<u32>,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Part {
    Leaf,
    Branch { len: f64 },
}

fn tree(number: u64) -> Tree {
    let parts = (0..number % 9)
        .map(|at| if at % 2 == 0 { Part::Leaf } else { Part::Branch { len: at as f64 / 3.0 } });
    Tree {
        name: "x".repeat(number as usize % 400),
        age: (!number.is_multiple_of(3)).then_some(number as u32),
        parts: parts.collect(),
    }
}

#[test]
fn values_of_serde_come_back_in_every_design() {
    for &design in Design::ALL {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let postcards = pool.tree_options("p").design(design).create::<u64, Postcard<Tree>>().unwrap();
        let jsons = pool.tree_options("j").design(design).create::<u64, Json<Tree>>().unwrap();
        for number in 0..200 {
            assert_eq!(postcards.insert(number, &tree(number)).unwrap(), None);
            assert_eq!(inserted(jsons.try_insert(number, &tree(number))), None);
            postcards.compare_and_swap(number, Some(&tree(number)), Some(&tree(number + 1))).unwrap();
            assert_eq!(jsons.update(number, &tree(number + 1)).unwrap(), Some(tree(number)));
        }
        drop((postcards, jsons));
        drop(pool);
        let pool = scratch.open();
        let (postcards, jsons) = (pool.tree("p").unwrap(), pool.tree("j").unwrap());
        let expected = || (0..200).map(|number| (number, tree(number + 1)));
        assert!(pool.tree::<u64, Postcard<Tree>>("p").unwrap().iter().map(Result::unwrap).eq(expected()));
        assert!(
            pool.tree::<u64, Json<Tree>>("j").unwrap().iter().map(Result::unwrap).rev().eq(expected().rev())
        );
        check(&postcards, &jsons);
    }

    fn check(postcards: &bristlecone::Tree<u64, Postcard<Tree>>, jsons: &bristlecone::Tree<u64, Json<Tree>>) {
        assert_eq!(postcards.get_with(7, |found| found == &tree(8)).unwrap(), Some(true));
        assert_eq!(jsons.get(7).unwrap(), Some(tree(8)));
        assert_eq!((postcards.check(), jsons.check()), (vec![], vec![]));
    }
}

#[test]
fn values_that_do_not_decode_are_reported() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let numbers = pool.tree::<u64, Json<u64>>("t").unwrap();
    let texts = pool.tree::<u64, Json<String>>("t").unwrap();
    numbers.insert(1, &7).unwrap();
    texts.insert(2, &"seven".to_owned()).unwrap();
    let is_told = |error: Error| {
        let told = error.to_string();
        assert!(
            matches!(error, Error::Corrupted { .. }) && told.contains("bytes that are not a valid json"),
            "{told}"
        );
    };
    is_told(numbers.get(2).unwrap_err());
    is_told(numbers.get_with(2, |_| ()).unwrap_err());
    is_told(numbers.get_many(&[1, 2], &mut Vec::new()).unwrap_err());
    assert!(numbers.contains_key(2).unwrap());
    let readable: Vec<_> = numbers.readable(..).map(Result::unwrap).collect();
    assert_eq!((readable, numbers.len().unwrap()), (vec![(1, 7)], 2));
    let mut checked = numbers.range(..);
    assert_eq!(checked.next().unwrap().unwrap(), (1, 7));
    is_told(checked.next().unwrap().unwrap_err());
    assert!(checked.next().is_none());
    is_told(numbers.try_insert(2, &8).unwrap_err().into());
    is_told(numbers.compare_and_swap(2, Some(&8), Some(&9)).unwrap_err().into());
    assert_eq!(texts.get(2).unwrap().as_deref(), Some("seven"));
    assert_eq!(numbers.update(2, &8).unwrap(), None);
    assert_eq!(numbers.get(2).unwrap(), Some(8));
    assert_eq!(texts.remove(1).unwrap(), None);
    assert_eq!(numbers.len().unwrap(), 1);

    // Bytes behind a value are not part of it.
    let pairs = pool.tree::<u64, Postcard<(u8, u8)>>("p").unwrap();
    pairs.insert(1, &(3, 4)).unwrap();
    assert!(matches!(pool.tree::<u64, Postcard<u8>>("p").unwrap().get(1), Err(Error::Corrupted { .. })));
}

#[test]
fn values_without_an_encoding_are_refused() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, Json<BTreeMap<Vec<u8>, u8>>>("t").unwrap();
    let refused = tree.insert(1, &BTreeMap::from([(vec![1], 1)])).unwrap_err();
    assert_eq!(refused.to_string(), "the value cannot be written as json: key must be a string");
    let long = "x".repeat(200 << 10);
    let refused = pool.tree::<u64, Postcard<String>>("p").unwrap().insert(1, &long).unwrap_err();
    assert!(matches!(refused, Error::TooLong { what: "value", .. }), "{refused}");
    assert!(tree.is_empty().unwrap());
}

#[test]
fn dynamic_trees_have_json_as_text_and_verify_it() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let json = |text: &str| Datum::Json(text.to_owned().into());
    let dynamic = pool.tree_options("t").create_dynamic(&Kind::U64, &Kind::Json).unwrap();
    dynamic.insert(&1u64.into(), &json(r#"{"name": "Pando", "age": null, "parts": ["Leaf"]}"#)).unwrap();
    let typed = pool.tree::<u64, Json<Tree>>("t").unwrap();
    assert_eq!(
        typed.get(1).unwrap(),
        Some(Tree { name: "Pando".into(), age: None, parts: vec![Part::Leaf] })
    );
    for wrong in ["", "{", "{} {}", "nul"] {
        let refused = dynamic.insert(&2u64.into(), &json(wrong)).unwrap_err().to_string();
        assert!(refused.starts_with("it is no JSON: "), "{refused}");
    }
    assert_eq!((dynamic.len().unwrap(), dynamic.check()), (1, vec![]));
    let refused = dynamic.insert(&2u64.into(), &"{}".into()).unwrap_err().to_string();
    assert_eq!(refused, r#"the tree "t" has values of type json, not str"#);
}
