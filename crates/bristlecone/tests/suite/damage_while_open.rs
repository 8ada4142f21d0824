//! Records that are damaged while a tree is open. Recovery has verified the order of fences and separators already, and a
//! saved index is used without that. Reads and writes must end. Where a checksum is wrong, reads must return the
//! correct items or an error.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::common::{Cell, Items, Noise, Plant, Scratch, Visit, by_level, suites};
use bristlecone::{Error, Key, Tree};
use bristlecone_matrix::Codec;

const KEYS: u64 = 400;
/// A record begins with its length and its checksum, of 4 bytes each.
const HEADER: usize = 8;
const RECORD_MAX: usize = 5000;

/// A place in a pool's file.
#[derive(Clone, Copy)]
struct Record {
    at: usize,
    len: usize,
}

/// Damage of two records.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Damage {
    /// One gets bytes of the other. Its checksum is wrong, unless the bytes are equal.
    Bytes,
    /// They are exchanged. Their checksums are right.
    Exchange,
}

/// Returns the records in a pool's bytes.
fn records(bytes: &[u8]) -> Vec<Record> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let record = |at: usize| {
        let len = word(at) as usize;
        let record = (1..=RECORD_MAX).contains(&len).then(|| bytes.get(at + HEADER..at + HEADER + len))??;
        (crc32c::crc32c(record) == word(at + 4)).then_some(Record { at, len })
    };
    (0..bytes.len() - HEADER).step_by(8).filter_map(record).collect()
}

struct Run(Cell, Damage, u64);

impl Run {
    /// Damages some pairs of records in the file of an open pool.
    fn damage(&self, file: &File, bytes: &[u8], noise: &mut Noise) {
        let records = records(bytes);
        assert!(records.len() as u64 >= KEYS / 2, "{}: {} records", self.0, records.len());
        let mut any = |from: &[Record]| from[noise.below(from.len() as u64) as usize];
        for _ in 0..4 {
            let one = any(&records);
            let alike: Vec<Record> = records.iter().copied().filter(|other| other.len == one.len).collect();
            match self.1 {
                Damage::Bytes => {
                    let other = any(&records);
                    let len = one.len.min(other.len);
                    let from = other.at + HEADER;
                    file.write_all_at(&bytes[from..from + len], (one.at + HEADER) as u64).unwrap();
                }
                Damage::Exchange => {
                    let other = any(&alike);
                    for (from, to) in [(one, other), (other, one)] {
                        file.write_all_at(&bytes[from.at..from.at + HEADER + from.len], to.at as u64)
                            .unwrap();
                    }
                }
            }
        }
    }
}

impl Visit for Run {
    fn visit<I: Items>(self) {
        let Self(cell, kind, seed) = self;
        let (what, mut noise) = (format!("{cell}, {kind:?}, seed {seed}"), Noise(seed | 1));
        let mut met = 0;
        let mut ends = |done: Result<(), Error>| match done {
            Ok(()) => {}
            Err(Error::Corrupted { .. }) => met += 1,
            Err(error) => panic!("{what}: {error}"),
        };
        let scratch = Scratch::new();
        let pool = cell.pool(&scratch);
        let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
        let truth: BTreeMap<<I::K as Key>::Owned, u64> = (0..KEYS).map(|n| (I::key(n), n)).collect();
        for (key, &n) in &truth {
            tree.upsert(I::key_ref(key), I::value_ref(&I::value(n))).unwrap();
        }
        let file = File::options().write(true).open(&scratch.0).unwrap();
        self.damage(&file, &std::fs::read(&scratch.0).unwrap(), &mut noise);

        let is_exact = kind == Damage::Bytes;
        let most = 2 * KEYS as usize;
        for down in [false, true] {
            let scan = tree.iter();
            let found: Result<Vec<_>, _> =
                if down { scan.rev().take(most).collect() } else { scan.take(most).collect() };
            ends(found.map(|mut found| {
                if down {
                    found.reverse();
                }
                assert!(found.len() < most, "{what}: a scan does not end (down {down})");
                let is_item =
                    |((key, value), (held, n)): (&(_, _), (&_, &u64))| key == held && *value == I::value(*n);
                let is_same = found.len() == truth.len() && found.iter().zip(&truth).all(is_item);
                assert!(!is_exact || is_same, "{what}: other items (down {down})");
            }));
            let scan = tree.readable(..);
            let readable = if down { scan.rev().take(most).count() } else { scan.take(most).count() };
            assert!(readable < most, "{what}: a lenient scan does not end (down {down})");
        }
        for (key, &n) in &truth {
            ends(tree.get(I::key_ref(key)).map(|found| {
                assert!(!is_exact || found == Some(I::value(n)), "{what}: a lookup finds {found:?}");
            }));
        }
        let _ = (tree.check(), tree.len());
        for key in truth.keys() {
            ends(tree.remove(I::key_ref(key)).map(drop));
        }
        // After an exchange, inserts are out of scope: see `Undetectable damage` in `docs/durability.md`.
        for (key, &n) in truth.iter().filter(|_| is_exact) {
            ends(tree.insert(I::key_ref(key), I::value_ref(&I::value(n))).map(drop));
        }
        assert!(!is_exact || met > 0, "{what}: no damage was met");
        drop(tree);
        pool.simulate_crash();
    }
}

/// Words have no records.
#[test]
fn records_may_become_others_under_an_open_tree() {
    for cell in suites::CORRUPTION.sampled_of_each_design_where(|cell| cell.codec != Codec::Words) {
        for round in 0..by_level(8, 40, 2000) {
            for kind in [Damage::Bytes, Damage::Exchange] {
                cell.codec.visit(Run(cell, kind, 29 + round));
            }
        }
    }
}
