//! Scans that repeat others: between two of them keys come, go and return, and so do the records of their leaves. What
//! a scan remembers of a leaf must hold for the next one.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bristlecone_random::Generator;

use crate::common::{Configuration, Plant, Scratch, by_level, defaults, small};

/// Different keys: few enough that many return.
const KEYS: u64 = 1500;

/// Returns a key. Two prefixes, and numbers in no order.
fn key_of(number: u64) -> String {
    let prefix = if number.is_multiple_of(3) { "user:" } else { "u:" };
    format!("{prefix}{:05}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48)
}

fn scans_are_those_of_a_map(configuration: Configuration, steps: u64) {
    let name = configuration.name;
    let scratch = Scratch::new();
    let pool = configuration.pool(&scratch);
    let tree = configuration.create::<&str, u64>(&pool, "tree").unwrap();
    let mut model = BTreeMap::<String, u64>::new();
    let mut noise = Generator::new(7);
    for step in 0..steps {
        let key = key_of(noise.below(KEYS));
        match noise.below(4) {
            0 | 1 => assert_eq!(tree.insert(&key, step).unwrap(), model.insert(key, step), "{name}"),
            2 => assert_eq!(tree.remove(&key).unwrap(), model.remove(&key), "{name}"),
            _ => {}
        }
        let (from, most) = (key_of(noise.below(KEYS)), noise.below(150) as usize);
        let wanted: Vec<_> = model.range(from.clone()..).map(|(k, v)| (k.clone(), *v)).take(most).collect();
        let mut found = Vec::new();
        let visit = |key: &str, value: u64| {
            let is_full = found.len() == most;
            if !is_full {
                found.push((key.to_string(), value));
            }
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        tree.for_each_in(from.as_str().., visit).unwrap();
        assert!(found == wanted, "{name}: for_each_in from {from} on, step {step}");
        let mut keys = Vec::new();
        let visit = |key: &str| {
            let is_full = keys.len() == most;
            if !is_full {
                keys.push(key.to_string());
            }
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        tree.for_each_key_in(from.as_str().., visit).unwrap();
        assert!(keys.iter().eq(wanted.iter().map(|(key, _)| key)), "{name}: for_each_key_in from {from} on");
        if step % 3 == 0 {
            let found = tree.range(from.as_str()..).take(most).map(Result::unwrap);
            assert!(found.eq(wanted), "{name}: range from {from} on, step {step}");
            let wanted = model.range(..from.clone()).rev().map(|(k, v)| (k.clone(), *v)).take(most);
            let found = tree.range(..from.as_str()).rev().take(most).map(Result::unwrap);
            assert!(found.eq(wanted), "{name}: range down from {from}, step {step}");
        }
    }
    assert!(tree.check().is_empty(), "{name}");
}

#[test]
fn a_scan_after_any_change_finds_what_a_map_does() {
    for configuration in small().chain(defaults()) {
        scans_are_those_of_a_map(configuration, by_level(2_000, 20_000, 100_000));
    }
}
