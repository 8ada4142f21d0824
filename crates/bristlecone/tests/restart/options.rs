//! Which openings take over an index, by the option of the killed process and that of the next one.

use std::path::Path;

use bristlecone::{Design, KeepIndex, Pool};
use bristlecone_matrix::process::{self, Process};

use crate::common::Scratch;

const TEST: &str = "options::an_index_is_taken_over_if_both_processes_ask_for_it";
const ALL: [KeepIndex; 4] = [KeepIndex::Auto, KeepIndex::Never, KeepIndex::AfterKill, KeepIndex::Always];

fn open(path: &Path, keep: KeepIndex) -> Pool {
    Pool::options().max_bytes(64 << 20).create(true).keep_index(keep).open(path).unwrap()
}

/// Writes some keys, and waits to be killed.
fn write(design: &str, keep: &str, path: &str) {
    let pool = open(Path::new(path), ALL[keep.parse::<usize>().unwrap()]);
    let tree = pool.tree_options("t").design(design.parse().unwrap()).create::<u64, u64>().unwrap();
    (0..1000).for_each(|key| _ = tree.insert(key, !key).unwrap());
    (0..1000).step_by(3).for_each(|key| _ = tree.remove(key).unwrap());
    process::say("written");
    let is_over = process::until_input_ends();
    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Has a process create a pool with some items in a tree, and kills it.
pub fn start_and_kill(design: Design, keep: KeepIndex, path: &Path) {
    let number = ALL.iter().position(|known| *known == keep).unwrap();
    let mut process = Process::start(TEST, &[design.name(), &number.to_string(), path.to_str().unwrap()]);
    process.expect("written");
    process.kill();
}

/// Verifies that a pool has the items of [`start_and_kill`].
pub fn verify(pool: &Pool, when: &str) {
    let tree = pool.tree::<u64, u64>("t").unwrap();
    verify_items(pool, when);
    assert_eq!((tree.len().unwrap(), tree.check()), (666, Vec::new()), "{when}");
}

fn verify_items(pool: &Pool, when: &str) {
    let left = (0..1000).filter(|key| key % 3 != 0).map(|key| (key, !key));
    assert!(pool.tree::<u64, u64>("t").unwrap().iter().map(Result::unwrap).eq(left), "{when}");
}

#[test]
fn an_index_is_taken_over_if_both_processes_ask_for_it() {
    let _alone = crate::alone();
    if let Some([design, keep, path]) = process::role().as_deref() {
        return write(design, keep, path);
    }
    let asks = |keep| matches!(keep, KeepIndex::AfterKill | KeepIndex::Always);
    for design in Design::ALL.iter().copied() {
        for writer in ALL {
            for next in ALL {
                let scratch = Scratch::new();
                start_and_kill(design, writer, &scratch.0);
                let pool = open(&scratch.0, next);
                verify(&pool, &format!("{design}: {writer:?}, {next:?}"));
                let is_able = matches!(design, Design::NbTree | Design::SsTree);
                let expected = is_able && asks(writer) && asks(next);
                assert_eq!(pool.info().index_was_kept, expected, "{design}: {writer:?}, {next:?}");
            }
        }
    }
}

#[test]
fn a_copy_in_the_place_of_a_killed_pool_is_recovered() {
    let _alone = crate::alone();
    for design in Design::ALL.iter().copied() {
        let scratch = Scratch::new();
        start_and_kill(design, KeepIndex::Always, &scratch.0);
        let copy = scratch.0.with_extension("copy");
        std::fs::copy(&scratch.0, &copy).unwrap();
        std::fs::rename(&copy, &scratch.0).unwrap();
        let pool = open(&scratch.0, KeepIndex::Always);
        assert!(!pool.info().index_was_kept, "{design}");
        verify(&pool, &format!("{design}, a copy"));
    }
}

#[test]
fn a_renamed_pool_keeps_its_index_and_is_followed() {
    let _alone = crate::alone();
    let (old, scratch) = (Scratch::new(), Scratch::new());
    for is_killed in [true, false] {
        start_and_kill(Design::default(), KeepIndex::Always, &old.0);
        if !is_killed {
            let pool = open(&old.0, KeepIndex::Always);
            verify(&pool, "the old name");
            pool.close().unwrap();
        }
        // Both names until the pool is open: any other process removes the index of a pool that seems to be gone.
        std::fs::hard_link(&old.0, &scratch.0).unwrap();
        let pool = open(&scratch.0, KeepIndex::Always);
        std::fs::remove_file(&old.0).unwrap();
        let tree = pool.tree::<u64, u64>("t").unwrap();
        assert!(pool.info().index_was_kept, "killed: {is_killed}");
        let follower = Pool::follow(&scratch.0).unwrap();
        verify_items(&follower, "the new name");
        // The next pool that is created removes indexes of pools that are gone.
        let index = crate::common::segment_of(&pool);
        drop(tree);
        pool.close().unwrap();
        start_and_kill(Design::default(), KeepIndex::Always, &old.0);
        assert!(index.exists(), "killed: {is_killed}");
        std::fs::remove_file(&old.0).unwrap();
        std::fs::remove_file(&scratch.0).unwrap();
    }
}
