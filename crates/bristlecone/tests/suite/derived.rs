//! Keys that are structs.

use std::collections::BTreeMap;

use crate::common::{Noise, Scratch};
use bristlecone::dynamic::Datum;
use bristlecone::{Design, Key};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key)]
struct Place {
    country: [u8; 2],
    town: Option<String>,
    house: Address,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key)]
struct Address(String, i32, (bool, u8));

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Key)]
#[key(transparent)]
struct Account(i64);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Key)]
#[key(transparent)]
struct Path {
    path: Vec<u8>,
}

fn place(noise: &mut Noise) -> Place {
    let text = |noise: &mut Noise| ["", "\0", "a", "a\0", "ab"][noise.below(5) as usize].to_owned();
    Place {
        country: [noise.below(2) as u8, noise.below(2) as u8],
        town: (noise.below(3) > 0).then(|| text(noise)),
        house: Address(text(noise), noise.below(5) as i32 - 2, (noise.below(2) == 1, noise.below(3) as u8)),
    }
}

#[test]
fn derived_kinds_are_those_of_tuples() {
    assert_eq!(Place::kind(), "([u8; 2], Option<str>, (str, i32, (bool, u8)))");
    assert_eq!(Address::kind(), "(str, i32, (bool, u8))");
    assert_eq!((Account::kind(), Path::kind()), ("i64".to_owned(), "bytes".to_owned()));
}

#[test]
fn derived_keys_order_as_their_fields_and_are_tuples() {
    for &design in Design::ALL {
        let scratch = Scratch::new();
        let pool = scratch.open();
        let tree = pool.tree_options("t").design(design).create::<Place, u64>().unwrap();
        let (mut model, mut noise) = (BTreeMap::new(), Noise(7));
        for number in 0..400 {
            let key = place(&mut noise);
            assert_eq!(tree.insert(&key, number).unwrap(), model.insert(key, number));
        }
        assert!(tree.iter().map(Result::unwrap).eq(model.clone()));
        let (from, to) = (place(&mut noise), place(&mut noise));
        let (from, to) = (from.clone().min(to.clone()), from.max(to));
        assert!(
            tree.range(&from..&to)
                .map(Result::unwrap)
                .eq(model.range(from..to).map(|(key, value)| (key.clone(), *value)))
        );
        drop(tree);
        type Tuple = ([u8; 2], Option<String>, (String, i32, (bool, u8)));
        let tuples = pool.tree::<Tuple, u64>("t").unwrap();
        let dynamic = pool.dynamic_tree("t").unwrap();
        for (key, value) in model {
            let Place { country, town, house: Address(street, number, rest) } = &key;
            let tuple = (*country, town.as_deref(), (street.as_str(), *number, *rest));
            assert_eq!(tuples.get(tuple).unwrap(), Some(value));
            assert_eq!(dynamic.get(&tuple.into()).unwrap(), Some(Datum::U64(value)));
        }
    }
}

#[test]
fn transparent_keys_are_their_field() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let accounts = pool.tree::<Account, u64>("accounts").unwrap();
    for number in [i64::MIN, -1, 0, 1, i64::MAX] {
        accounts.insert(&Account(number), number as u64).unwrap();
    }
    assert!(accounts.iter().map(Result::unwrap).map(|(key, _)| key).is_sorted());
    assert_eq!(pool.tree::<i64, u64>("accounts").unwrap().get(-1).unwrap(), Some(u64::MAX));
    let paths = pool.tree::<Path, u64>("paths").unwrap();
    let path = Path { path: b"\0\xff".to_vec() };
    paths.insert(&path, 1).unwrap();
    assert_eq!(paths.first_key_value().unwrap(), Some((path, 1)));
    // Within a tuple, they are encoded like the field there.
    let pairs = pool.tree::<(Path, Account), ()>("pairs").unwrap();
    pairs.insert((&Path { path: b"\0".to_vec() }, &Account(-7)), ()).unwrap();
    assert_eq!(pool.tree::<(Vec<u8>, i64), ()>("pairs").unwrap().get((b"\0", -7)).unwrap(), Some(()));
}
