//! Damage that comes while a tree is open, as under an index that was kept: nothing verifies again what recovery or the
//! writer knew. Records of keys become other keys, of which one may be a fence or a separator. Reads return the correct
//! items or an error, and reads and writes end.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::common::{Configuration, Noise, Plant, Scratch, by_level, small};
use bristlecone::{Error, Tree};

const KEYS: u64 = 400;

type Texts = Tree<&'static str, u64>;

fn key(n: u64) -> String {
    format!("key {:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A record: its length, a checksum, its bytes.
const RECORD_BYTES: usize = 8 + 20;

/// What becomes of a record.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// Its bytes are another key's, and the checksum is wrong.
    Bytes,
    /// It is a copy of another record, and its checksum is right.
    Record,
}

/// Accepts the errors of damaged items.
fn ends<T>(result: Result<T, Error>, what: &str) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(Error::Corrupted { .. }) => None,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Damages some records of an open tree, then reads and writes everything.
fn damage(shape: Configuration, kind: Damage, noise: &mut Noise) {
    let scratch = Scratch::new();
    let pool = scratch.without_index().max_bytes(64 << 20).open(&scratch.0).unwrap();
    let tree: Texts = shape.create(&pool, "t").unwrap();
    let truth: BTreeMap<String, u64> = (0..KEYS).map(|n| (key(n), n)).collect();
    truth.values().for_each(|&n| assert_eq!(tree.insert(&key(n), n).unwrap(), None));
    let bytes = std::fs::read(&scratch.0).unwrap();
    let is_record =
        |at: &usize| bytes[*at..].starts_with(&20_u32.to_le_bytes()) && bytes[at + 8..].starts_with(b"key ");
    let records: Vec<usize> = (0..bytes.len() - RECORD_BYTES).step_by(8).filter(is_record).collect();
    assert!(records.len() as u64 >= KEYS, "{shape:?}: {} records", records.len());
    let file = File::options().write(true).open(&scratch.0).unwrap();
    let what = format!("{shape:?}, {kind:?}");
    for _ in 0..=noise.below(6) {
        let [to, from] = [(); 2].map(|()| records[noise.below(records.len() as u64) as usize]);
        let skipped = if matches!(kind, Damage::Bytes) { 8 } else { 0 };
        file.write_all_at(&bytes[from + skipped..from + RECORD_BYTES], (to + skipped) as u64).unwrap();
    }
    let is_exact = matches!(kind, Damage::Bytes);
    let most = 2 * KEYS as usize;
    for down in [false, true] {
        let found: Result<Vec<_>, _> =
            if down { tree.iter().rev().take(most).collect() } else { tree.iter().take(most).collect() };
        if let Some(mut found) = ends(found, &what) {
            if down {
                found.reverse();
            }
            assert!(found.len() < most, "{what}: down {down}: it goes on");
            assert!(!is_exact || found.into_iter().eq(truth.clone()), "{what}: down {down}: other items");
        }
        let readable = tree.readable(..);
        let readable = if down { readable.rev().take(most).count() } else { readable.take(most).count() };
        assert!(readable < most, "{what}: down {down}: it goes on");
    }
    for (key, n) in &truth {
        if let Some(found) = ends(tree.get(key), &what) {
            assert!(!is_exact || found == Some(*n), "{what}: {key}: {found:?}");
        }
    }
    let _ = (tree.check(), tree.len());
    for key in truth.keys() {
        ends(tree.remove(key), &what);
    }
    for (key, n) in &truth {
        ends(tree.insert(key, *n), &what);
    }
    drop(tree);
    pool.simulate_crash();
}

#[test]
fn keys_may_become_others_under_an_open_tree() {
    let mut noise = Noise(29);
    for shape in small() {
        println!("{shape:?}");
        for _ in 0..by_level(8, 40, 2000) {
            for kind in [Damage::Bytes, Damage::Record] {
                damage(shape, kind, &mut noise);
            }
        }
    }
}
