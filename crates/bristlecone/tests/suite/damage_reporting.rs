//! Damage encountered by reads: missing results must be reported.

use crate::common::{CONFIGURATIONS, Configuration, Noise, Scratch};
use bristlecone::{Design, Error, Pool, Tree};

const KEYS: u64 = 2000;
const CHUNK: usize = 2 << 20;

fn configurations() -> impl Iterator<Item = &'static Configuration> {
    CONFIGURATIONS.iter().filter(|shape| shape.design == Design::WoTree)
}

fn key(n: u64) -> String {
    format!("key {n:05}")
}

/// A pool with a tree, and its bytes.
fn healthy(shape: &Configuration) -> Vec<u8> {
    let scratch = Scratch::new();
    let pool = scratch.without_index().max_bytes(64 << 20).open(&scratch.0).unwrap();
    let tree: Tree<&str, &[u8]> = shape.tree(&pool, "t").create().unwrap();
    for n in 0..KEYS {
        tree.insert(&key(n * 7 % KEYS), &(n * 7 % KEYS).to_le_bytes()).unwrap();
    }
    drop(tree);
    pool.close().unwrap();
    std::fs::read(&scratch.0).unwrap()
}

/// Returns the offsets of nodes of a kind: 1 for leaves, 2 for inner nodes.
fn nodes(bytes: &[u8], shape: &Configuration, kind: u8) -> Vec<usize> {
    let lines = shape.options.first().map_or(16, |(_, lines)| *lines as usize);
    let is_node = |at: usize, kind: u8| {
        let state = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        state >> 60 == u64::from(kind) && (kind == 1 || (1..=22).contains(&(state & u64::MAX >> 4)))
    };
    // The chunk of nodes is the one that begins with both kinds.
    let chunks = (CHUNK..bytes.len()).step_by(CHUNK);
    let places = |chunk: usize| (chunk..(chunk + CHUNK).min(bytes.len())).step_by(lines * 64);
    let most = chunks.max_by_key(|&chunk| places(chunk).filter(|&at| is_node(at, 1)).count());
    places(most.unwrap()).filter(|&at| is_node(at, kind)).collect()
}

fn damaged(bytes: &[u8]) -> (Scratch, Pool) {
    let scratch = Scratch::new();
    std::fs::write(&scratch.0, bytes).unwrap();
    let pool = Pool::options().open(&scratch.0).unwrap();
    (scratch, pool)
}

/// Scans in both directions. Missing items must be reported.
fn scan_tells(pool: &Pool, what: &str) {
    for backward in [false, true] {
        let tree: Tree<&str, &[u8]> = pool.tree_options("t").open().unwrap();
        assert_eq!(tree.damage(), [], "{what}: nothing was read yet");
        let items: Vec<_> = if backward { tree.iter().rev().collect() } else { tree.iter().collect() };
        let seen = items.iter().filter(|item| item.is_ok()).count() as u64;
        let is_error = items.last().is_some_and(Result::is_err);
        assert!(seen == KEYS || is_error, "{what}: {seen} of {KEYS} items, and no error");
        assert_eq!(items.len() as u64, seen + u64::from(is_error), "{what}: items behind an error");
        let readable =
            if backward { tree.readable(..).rev().count() } else { tree.readable(..).count() } as u64;
        assert!(readable >= seen, "{what}: {readable} are readable, {seen} were read");
        let told = tree.damage();
        assert!(seen == KEYS || !told.is_empty(), "{what}: {seen} of {KEYS} items, and all is well");
        drop(tree);
    }
}

#[test]
fn no_scan_takes_damage_for_the_end() {
    let mut noise = Noise(67);
    for shape in configurations() {
        let whole = healthy(shape);
        for kind in [1, 2] {
            let nodes = nodes(&whole, shape, kind);
            assert!(!nodes.is_empty());
            let bytes_of = if nodes.len() > 1 { nodes[1] - nodes[0] } else { 128 }.min(1024);
            for round in 0..12 {
                let node = nodes[noise.below(nodes.len() as u64) as usize];
                let mut bytes = whole.clone();
                match round % 4 {
                    0 => bytes[node..node + bytes_of].fill(0),
                    1 => bytes[node..node + bytes_of].fill(0xff),
                    2 => bytes[node..node + 64].fill(0),
                    _ => bytes[node..node + 8].fill_with(|| noise.next() as u8),
                }
                let (_scratch, pool) = damaged(&bytes);
                scan_tells(&pool, &format!("{shape:?}, kind {kind}, round {round}, node {node:#x}"));
            }
        }
    }
}

/// A leaf that is marked as the last one, and is not.
#[test]
fn no_scan_ends_in_the_middle_of_the_tree() {
    for shape in configurations() {
        let lines = shape.options.first().map_or(16, |(_, lines)| *lines);
        let link = [(2, 16), (4, 24), (8, 40), (16, 64), (32, 136)].iter().find(|(of, _)| *of == lines);
        let whole = healthy(shape);
        let nodes = nodes(&whole, shape, 1);
        for at in [0, nodes.len() / 2, nodes.len() - 1] {
            let mut bytes = whole.clone();
            let next = nodes[at] + link.unwrap().1;
            bytes[next..next + 8].fill(0);
            let (_scratch, pool) = damaged(&bytes);
            let tree: Tree<&str, &[u8]> = pool.tree_options("t").open().unwrap();
            let seen = tree.iter().filter(Result::is_ok).count() as u64;
            assert!(
                seen == KEYS || tree.iter().any(|item| item.is_err()),
                "{shape:?}: {seen} of {KEYS} items"
            );
            assert!(seen == KEYS || !tree.damage().is_empty(), "{shape:?}: {seen} of {KEYS} items");
        }
    }
}

#[test]
fn no_lookup_takes_damage_for_absence_in_silence() {
    for shape in configurations() {
        let whole = healthy(shape);
        let nodes = nodes(&whole, shape, 2);
        let mut bytes = whole.clone();
        nodes.iter().for_each(|&node| bytes[node + 32..node + 128].fill(0xff));
        let (_scratch, pool) = damaged(&bytes);
        let tree: Tree<&str, &[u8]> = pool.tree_options("t").open().unwrap();
        let is_found = |n| match tree.get(&key(n)) {
            Ok(value) => value.is_some() || panic!("{shape:?}: {n} is absent"),
            Err(_) => false,
        };
        let found = (0..KEYS).filter(|&n| is_found(n)).count() as u64;
        assert!(found < KEYS && !tree.damage().is_empty(), "{shape:?}: {found} of {KEYS} found");
    }
}

/// A record with an impossible length.
#[test]
fn a_damaged_record_is_no_empty_value() {
    for shape in configurations() {
        let mut bytes = healthy(shape);
        let is_record = |at: &usize| {
            bytes[*at..].starts_with(&8_u32.to_le_bytes())
                && bytes[at + 8..].starts_with(&777_u64.to_le_bytes())
        };
        let places: Vec<_> = (CHUNK..bytes.len() - 16).step_by(8).filter(is_record).collect();
        assert_eq!(places.len(), 1);
        bytes[places[0]..places[0] + 4].fill(0xff);
        let (_scratch, pool) = damaged(&bytes);
        let tree: Tree<&str, &[u8]> = pool.tree_options("t").open().unwrap();
        assert!(matches!(tree.get(&key(777)), Err(Error::Corrupted { .. })));
        let told = tree.damage();
        assert!(!told.is_empty(), "{shape:?}");
        assert!(matches!(tree.insert(&key(777), b"new"), Err(Error::Corrupted { .. })));
        assert!(matches!(tree.remove(&key(777)), Err(Error::Corrupted { .. })));
        assert!(tree.iter().any(|item| item.is_err()));
        assert_eq!(tree.readable(..).map(Result::unwrap).count() as u64, KEYS - 1);
        assert!(tree.readable(..).map(Result::unwrap).rev().all(|(_, value)| value.len() == 8));
        assert_ne!(tree.check(), []);
    }
}

/// Records whose items cannot be reached must not be taken for free.
#[test]
fn writes_to_a_damaged_tree_leave_what_they_cannot_reach() {
    for shape in configurations() {
        let mut bytes = healthy(shape);
        let inner = nodes(&bytes, shape, 2);
        // The subtree under the root's second entry cannot be reached.
        let level = |at: usize| bytes[at] & 31;
        let root = inner.iter().copied().max_by_key(|&at| level(at)).unwrap();
        bytes[root + 56..root + 64].fill(0xff);
        let (scratch, pool) = damaged(&bytes);
        let tree: Tree<&str, &[u8]> = pool.tree_options("t").open().unwrap();
        let mut added = 0;
        for n in 0..3000 {
            added += u64::from(tree.try_insert(&format!("a{n}"), &[1; 8]).is_ok());
        }
        assert!(added > 0, "{shape:?}");
        drop(tree);
        pool.close().unwrap();
        let to = Scratch::new();
        let salvage = Pool::options().salvage(&scratch.0, &to.0).unwrap();
        assert_eq!(salvage.items(), (KEYS + added, 0), "{shape:?}: {salvage:?}");
    }
}

/// A separator with a smaller damaged value leads to a leaf to the right of the key's, one with a
/// larger value to the left of it.
#[test]
fn no_checked_read_takes_a_damaged_separator_for_absence() {
    for shape in configurations() {
        let whole = healthy(shape);
        let is_key = |at: &usize| whole[*at..].starts_with(b"key ");
        // Separators are fewer than keys, and have their own chunk.
        let keys_of = |chunk: usize| -> Vec<usize> {
            (chunk..(chunk + CHUNK).min(whole.len()) - 4).step_by(8).filter(is_key).collect()
        };
        let chunks = (CHUNK..whole.len()).step_by(CHUNK).map(keys_of).filter(|keys| !keys.is_empty());
        let separators = chunks.min_by_key(Vec::len).unwrap();
        assert!((1..KEYS as usize).contains(&separators.len()), "{shape:?}: {} separators", separators.len());
        let mut told = 0;
        for (n, &separator) in separators.iter().enumerate().filter(|(n, _)| n % 8 == 0) {
            let mut bytes = whole.clone();
            bytes[separator] = if n % 16 == 0 { b'a' } else { b'z' };
            let (_scratch, pool) = damaged(&bytes);
            let tree: Tree<&str, &[u8]> = pool.tree_options("t").open().unwrap();
            for n in 0..KEYS {
                match tree.get(&key(n)) {
                    Ok(value) => assert_eq!(value.as_deref(), Some(&n.to_le_bytes()[..]), "{shape:?}: {n}"),
                    Err(_) => told += 1,
                }
            }
            let forward = tree.range(..).filter(Result::is_ok).count() as u64;
            let backward = tree.range(..).rev().filter(Result::is_ok).count() as u64;
            let is_told = tree.range(..).any(|item| item.is_err());
            assert!(is_told || (forward, backward) == (KEYS, KEYS), "{shape:?}: {forward}, {backward}");
        }
        assert!(told > 0, "{shape:?}");
    }
}
