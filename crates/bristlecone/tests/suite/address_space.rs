//! Trees whose DRAM indices find no address space: an error that changes nothing, and no panic. A
//! child process has the limit.

use std::process::Command;

use crate::common::{CONFIGURATIONS, Configuration, Plant, Scratch, share};
use bristlecone::{Design, Error, Pool, Tree};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CHILD: &str = "BRISTLECONE_ADDRESS_SPACE";
/// Address space beyond that of the process when a tree is opened: too little for its index, and
/// enough for a small one.
const LIMITS: [u64; 2] = [3 << 20, 126 << 20];
/// Upper bound of the keys for which such an index has leaves.
const KEYS_MAX: u64 = 20_000_000;

/// A configuration of each design with a DRAM index, without background threads.
fn configurations() -> impl Iterator<Item = Configuration> {
    let designs = [Design::SsTree, Design::NbTree, Design::CclBTree, Design::LodgeTree];
    designs.into_iter().map(|design| {
        let collects = |shape: &Configuration| shape.options.contains(&("collector_threads", 0));
        let fits = |shape: &&Configuration| {
            shape.design == design
                && !shape.options.is_empty()
                && (design != Design::CclBTree || collects(shape))
        };
        *CONFIGURATIONS.iter().find(fits).expect("every design has such a shape")
    })
}

/// Runs `work` with only `bytes` more address space.
fn limited<T>(bytes: u64, work: impl FnOnce() -> T) -> T {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let before = getrlimit(Resource::As);
    let current = Some(pages * rustix::param::page_size() as u64 + bytes);
    setrlimit(Resource::As, Rlimit { current, ..before }).unwrap();
    let done = work();
    setrlimit(Resource::As, before).unwrap();
    done
}

fn key(number: u64) -> u64 {
    number * 3
}

/// Fills a tree until its index has no space.
fn fill(tree: &Tree<u64, u64>) -> u64 {
    let refused =
        (0..KEYS_MAX).find_map(|number| tree.insert(key(number), number).err().map(|error| (number, error)));
    let (items, error) = refused.expect("the index has a limit");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    println!("{items} items: {error}");
    assert_eq!((tree.get(key(items)).unwrap(), tree.len().unwrap(), tree.check()), (None, items, vec![]));
    // Operations that need no leaf still work.
    assert!(matches!(tree.insert(key(items), 0), Err(Error::Io { .. })));
    assert_eq!(tree.update(key(1), 7).unwrap(), Some(1));
    assert_eq!(tree.remove(key(2)).unwrap(), Some(2));
    assert_eq!(tree.check(), []);
    items
}

fn child(number: usize) {
    let shape = configurations().nth(number / LIMITS.len()).unwrap();
    let limit = LIMITS[number % LIMITS.len()];
    let scratch = Scratch::new();
    let open =
        || Pool::options().max_bytes(2 << 30).create(true).recovery_threads(1).open(&scratch.0).unwrap();
    let pool = open();
    let created = limited(limit, || shape.create::<u64, u64>(&pool, "t"));
    let items = match created {
        Ok(tree) => fill(&tree),
        Err(error) => {
            assert!(matches!(error, Error::Io { .. }), "{error}");
            println!("refused: {error}");
            0
        }
    };
    assert_eq!(items > 0, limit == LIMITS[1], "{shape:?}: {items} items");
    pool.close().unwrap();
    let pool = open();
    let tree = match shape.open::<u64, u64>(&pool, "t") {
        Err(Error::NoSuchTree { .. }) if items == 0 => shape.create(&pool, "t").unwrap(),
        opened => opened.unwrap(),
    };
    assert_eq!((tree.len().unwrap(), tree.check()), (items.saturating_sub(1), vec![]));
    assert_eq!(tree.insert(key(items), items).unwrap(), None);
    assert!(tree.iter().map(Result::unwrap).rev().take(100).all(|(found, number)| found == key(number)));
}

#[test]
fn an_index_without_address_space_gives_an_error() {
    if let Ok(number) = std::env::var(CHILD) {
        return child(number.parse().unwrap());
    }
    for number in share(0..configurations().count() * LIMITS.len()) {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "address_space::an_index_without_address_space_gives_an_error", "--nocapture"])
            .env(CHILD, number.to_string())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        println!("{number}: {told}");
        assert!(output.status.success(), "{number}: {told}");
    }
}
