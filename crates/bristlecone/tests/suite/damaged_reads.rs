//! One flipped bit in a log, a leaf or a record. A read-only pool serves the tree, also if recovery refuses it: all
//! items that the bit does not affect, and no wrong answer to a checked read. Writes work again after a repair.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::common::{Configuration, Noise, Plant, Scratch, by_level, small};
use bristlecone::{Design, Error, Pool, Tree, leave_in_part};

const CHUNK: usize = 2 << 20;
const DESCRIPTORS: usize = 73_728;
const KEYS: u64 = 240;
/// The slot kind of the logs of CCL-BTree and LodgeTree.
const LOG: u64 = 9;
/// Maximum number of items that one leaf affects: its own, and old ones where a chain of leaves is broken.
const OF_LEAF: usize = 20;

type Texts = Tree<&'static str, &'static [u8]>;
type Truth = BTreeMap<String, Vec<u8>>;

/// A pool with a tree, and one changed bit.
struct Site {
    shape: Configuration,
    scratch: Scratch,
    bytes: Vec<u8>,
    truth: Truth,
}

/// Number of outcomes.
#[derive(Default, Debug)]
struct Counts {
    tried: usize,
    /// Trees that recovery refused.
    salvaged: usize,
    /// Salvaged trees of which some checked lookups were answered.
    vouched: usize,
    /// Flips that `check` found.
    found: usize,
    /// Links to a later leaf, which hide the leaves between.
    links: usize,
}

fn text(n: u64) -> String {
    format!("key {:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl Site {
    fn new(shape: Configuration) -> Self {
        let scratch = Scratch::new();
        let pool = scratch.without_index().max_bytes(64 << 20).open(&scratch.0).unwrap();
        let tree: Texts = shape.create(&pool, "t").unwrap();
        let (mut truth, mut noise) = (Truth::new(), Noise(5));
        for n in 0..3 * KEYS {
            let key = text(noise.below(KEYS));
            if n % 7 == 6 {
                tree.remove(&key).unwrap();
                truth.remove(&key);
            } else {
                let value = n.to_le_bytes().repeat(3);
                tree.upsert(&key, &value).unwrap();
                truth.insert(key, value);
            }
        }
        drop(tree);
        pool.close().unwrap();
        let bytes = std::fs::read(&scratch.0).unwrap();
        Self { shape, scratch, bytes, truth }
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    /// Returns words in use of the tree's chunks, logs or others.
    fn words(&self, of_logs: bool) -> Vec<usize> {
        let is_asked = |chunk: &usize| {
            let descriptor = self.word(DESCRIPTORS + 8 * chunk);
            let is_of_commits = descriptor >> 16 & 0xff_ffff == 0xff_ffff;
            descriptor & 0xff == 2 && !is_of_commits && (descriptor >> 8 & 0xff == LOG) == of_logs
        };
        let used = |at: &usize| ![0, u64::MAX].contains(&self.word(*at));
        (0..self.bytes.len() / CHUNK - 1)
            .filter(is_asked)
            .flat_map(|chunk| ((chunk + 1) * CHUNK..(chunk + 2) * CHUNK).step_by(8).filter(used).take(2000))
            .collect()
    }

    /// Flips bits of some words, one at a time. A flip affects at most `lost` items of a salvaged tree.
    fn flip(&self, of_logs: bool, lost: usize) -> Counts {
        let (words, mut counts, mut noise) = (self.words(of_logs), Counts::default(), Noise(3));
        let file = File::options().write(true).open(&self.scratch.0).unwrap();
        let tries = by_level(24, 200, 2000).min(words.len());
        for at in words.iter().step_by(words.len() / tries.max(1)).take(tries) {
            let byte = at + noise.below(8) as usize;
            let changed = self.bytes[byte] ^ 1 << noise.below(8);
            let what = format!("{:?}: byte {byte:#x}: {:#x} -> {changed:#x}", self.shape, self.bytes[byte]);
            file.write_all_at(&[changed], byte as u64).unwrap();
            let is_served = self.read(of_logs, lost, &mut counts, &what);
            if is_served && counts.salvaged % 8 == 1 {
                self.repair(lost, &what);
            }
            file.write_all_at(&self.bytes[byte..=byte], byte as u64).unwrap();
        }
        println!("{:?}, {}: {counts:?}", self.shape, if of_logs { "logs" } else { "leaves and records" });
        counts
    }

    /// Reads everything; returns whether recovery refuses the tree, and its items are there. No checked read of a salvaged tree, or of one with a damaged log, may be wrong.
    fn read(&self, of_logs: bool, lost: usize, counts: &mut Counts, what: &str) -> bool {
        counts.tried += 1;
        let mut is_served = false;
        let pool = Pool::options().read_only(true).recovery_threads(1).open(&self.scratch.0).unwrap();
        let tree: Texts = self.shape.open(&pool, "t").unwrap_or_else(|error| panic!("{what}: {error}"));
        let is_salvaged = tree.is_salvaged();
        let is_exact = is_salvaged || of_logs;
        let (mut shown, mut vouched) = (0, 0);
        let readable: Truth = tree.readable(..).filter_map(Result::ok).collect();
        for n in 0..KEYS + 20 {
            let key = text(n);
            let wanted = self.truth.get(&key);
            shown += usize::from(wanted.is_some() && readable.get(&key) == wanted);
            match tree.get(&key) {
                Ok(found) if found.as_ref() == wanted => vouched += usize::from(wanted.is_some()),
                Ok(found) => assert!(!is_exact, "{what}: {key} is {found:?}, not {wanted:?}"),
                Err(Error::Corrupted { .. }) => {}
                Err(error) => panic!("{what}: {error}"),
            }
        }
        if is_exact {
            self.scan(&tree, what);
        }
        counts.found += usize::from(!tree.check().is_empty() || !pool.check().is_empty());
        assert!(matches!(tree.upsert("new", b"x"), Err(Error::ReadOnly)), "{what}");
        if is_salvaged {
            counts.salvaged += 1;
            counts.vouched += usize::from(vouched > 0);
            let is_true = |(key, value): &(String, Vec<u8>)| self.truth.get(key) == Some(value);
            let least = self.truth.len() - lost;
            let scanned = tree.readable(..).filter_map(Result::ok).filter(is_true).count();
            let is_shown = shown >= least && scanned >= least;
            let has_links = [Design::CclBTree, Design::LodgeTree].contains(&self.shape.design);
            assert!(is_shown || has_links && !of_logs, "{what}: {shown} and {scanned} of {least}");
            counts.links += usize::from(!is_shown);
            is_served = is_shown;
            assert_eq!(
                scanned,
                tree.readable(..).rev().filter_map(Result::ok).filter(is_true).count(),
                "{what}"
            );
            assert!(!tree.check().is_empty() && tree.len().is_err(), "{what}: nothing is said");
        }
        is_served
    }

    /// Scans in both directions, up to the first error.
    fn scan(&self, tree: &Texts, what: &str) {
        for down in [false, true] {
            let (mut range, mut truth) = (tree.range(..), self.truth.iter());
            loop {
                let found = if down { range.next_back() } else { range.next() };
                match (found, if down { truth.next_back() } else { truth.next() }) {
                    (None, None) | (Some(Err(Error::Corrupted { .. })), _) => break,
                    (Some(Ok((key, value))), Some(wanted)) if (&key, &value) == wanted => {}
                    (found, wanted) => panic!("{what}: {found:?}, not {wanted:?}"),
                }
            }
        }
    }

    /// An open for writing is refused. The repaired tree accepts writes.
    fn repair(&self, lost: usize, what: &str) {
        // A larger maximum makes offsets possible that are impossible without it.
        let pool = self.scratch.without_index().max_bytes(64 << 20).open(&self.scratch.0).unwrap();
        let refused: Result<Texts, _> = self.shape.open(&pool, "t");
        match refused {
            Err(Error::Corrupted { .. }) => {}
            Err(error) => panic!("{what}: {error}"),
            Ok(tree) => {
                panic!("{what}: it opens for writing: {} items, {:?}", tree.len().unwrap(), tree.check())
            }
        }
        pool.simulate_crash();
        let saved = Scratch::new();
        let salvage = Pool::options().salvage(&self.scratch.0, &saved.0).unwrap();
        let pool = saved.open();
        let tree: Texts = self.shape.open(&pool, "t").unwrap();
        assert!(tree.len().unwrap() + lost as u64 >= self.truth.len() as u64, "{what}: {salvage:?}");
        tree.upsert("new", b"x").unwrap();
        assert_eq!((tree.get("new").unwrap().as_deref(), tree.check()), (Some(&b"x"[..]), vec![]));
        // Opening the old pool for writing may have changed it.
        let file = File::options().write(true).open(&self.scratch.0).unwrap();
        file.write_all_at(&self.bytes, 0).unwrap();
        file.set_len(self.bytes.len() as u64).unwrap();
    }
}

#[test]
fn a_flipped_bit_of_a_log_leaves_the_tree_readable() {
    for shape in small().filter(|shape| [Design::CclBTree, Design::LodgeTree].contains(&shape.design)) {
        let counts = Site::new(shape).flip(true, 1);
        assert!(counts.salvaged > 0, "{shape:?}: no flip was found");
    }
}

#[test]
fn a_flipped_bit_of_a_leaf_or_a_record_leaves_the_others_readable() {
    for shape in small() {
        let counts = Site::new(shape).flip(false, OF_LEAF);
        assert!(counts.found > 0, "{shape:?}: no flip was found");
        assert!(counts.links * 10 <= counts.tried, "{shape:?}: {counts:?}");
    }
}

/// An unfinished commit to a damaged tree and to a sound one. A read-only pool opens: the sound tree has the changes,
/// and so has what is saved of the damaged one. A pool that is written does not open before a repair.
#[test]
fn an_unfinished_commit_to_a_damaged_tree_leaves_the_pool_readable() {
    let mut salvaged = 0;
    for shape in small() {
        let scratch = Scratch::new();
        let options = || scratch.without_index().max_bytes(64 << 20);
        let pool = options().open(&scratch.0).unwrap();
        let [tree, sound]: [Tree<u64, u64>; 2] =
            ["t", "sound"].map(|name| shape.create(&pool, name).unwrap());
        for key in 0..KEYS {
            tree.insert(key << 40 | 5, key).unwrap();
            sound.insert(key, key).unwrap();
        }
        let changes = [(&tree, 7 << 40 | 5, 1000), (&tree, 1, 1001), (&sound, 7, 1002)];
        assert!(matches!(leave_in_part(&pool, &changes), Err(Error::DurabilityLost)));
        drop((tree, sound));
        pool.simulate_crash();
        let bytes = std::fs::read(&scratch.0).unwrap();
        let site = Site { shape, scratch, bytes, truth: Truth::new() };
        let file = File::options().write(true).open(&site.scratch.0).unwrap();
        for at in site.words(false).iter().step_by(40) {
            file.write_all_at(&[site.bytes[at + 6] ^ 0x40], *at as u64 + 6).unwrap();
            let pool = Pool::options().read_only(true).recovery_threads(1).open(&site.scratch.0).unwrap();
            let open = || ["t", "sound"].map(|name| -> Tree<u64, u64> { shape.open(&pool, name).unwrap() });
            // A tree that refused the commit does so at each opening.
            let first = open().map(|tree| tree.is_salvaged());
            let [tree, sound] = open();
            assert_eq!([&tree, &sound].map(|tree| tree.is_salvaged()), first, "{shape:?}");
            // The word may belong to either tree, and may be one that matters to neither.
            for (tree, changed) in [(&tree, [(7 << 40 | 5, 1000), (1, 1001)]), (&sound, [(7, 1002), (8, 8)])]
            {
                salvaged += usize::from(tree.is_salvaged());
                for (key, value) in changed {
                    match tree.get(key) {
                        Ok(found) => assert!(
                            found == Some(value) || !tree.check().is_empty(),
                            "{shape:?} {key}: {found:?}"
                        ),
                        Err(Error::Corrupted { .. }) => {
                            let readable = tree.readable(key..=key).next().transpose().unwrap();
                            assert_eq!(readable, Some((key, value)), "{shape:?} {key}")
                        }
                        Err(error) => panic!("{shape:?} {key}: {error}"),
                    }
                }
            }
            drop((tree, sound, pool));
            file.write_all_at(&site.bytes[*at..at + 8], *at as u64).unwrap();
        }
    }
    assert!(salvaged > 0, "no tree was refused");
}
