//! The index that a clean close saves in shared memory: the next open resumes it if it matches the closed pool, and
//! rebuilds everything otherwise. Each test has its own process: epochs belong to a process, and a thread of another
//! test in the middle of an operation would delay the saving.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::mpsc;

use bristlecone::{Design, KeepIndex, Pool, PoolOptions, Tree};
use bristlecone_matrix::{Codec, by_level};
use bristlecone_random::mix;

use crate::common::{
    Configuration, Items, Plant, Scratch, Visit, defaults, is_alone, segment_of, share, small,
};

/// Number of items of the closed pool.
const ITEMS: u64 = 3000;

fn options() -> PoolOptions {
    Pool::options().max_bytes(256 << 20).create(true).keep_index(KeepIndex::Always)
}

fn open(scratch: &Scratch) -> Pool {
    options().open(&scratch.0).unwrap()
}

/// Returns whether the pool was opened with the saved index; asserts that it has exactly the expected items in any
/// case.
fn is_kept(pool: &Pool, shape: Configuration, items: u64) -> bool {
    let tree: Tree<u64, u64> = shape.open(pool, "t").unwrap();
    assert_eq!((tree.len().unwrap(), tree.check()), (items, vec![]), "{shape:?}");
    assert!(tree.iter().map(Result::unwrap).eq((0..items).map(|key| (key, key))), "{shape:?}");
    pool.info().index_was_kept
}

/// Creates a pool with items, and closes it.
fn closed(scratch: &Scratch, shape: Configuration, items: u64) {
    let pool = open(scratch);
    let tree: Tree<u64, u64> = shape.create(&pool, "t").unwrap();
    (0..items).for_each(|key| _ = tree.insert(key, key).unwrap());
    drop(tree);
    pool.close().unwrap();
}

struct Lives(Configuration);

impl Visit for Lives {
    fn visit<I: Items>(self) {
        let Self(shape) = self;
        let scratch = Scratch::new();
        let numbers = |life: u64| life * 500..life * 500 + 700;
        for life in 0..4 {
            let pool = open(&scratch);
            assert_eq!(pool.info().index_was_kept, life > 0, "{shape:?}");
            let tree: Tree<I::K, I::V> =
                if life == 0 { shape.create(&pool, "t") } else { shape.open(&pool, "t") }.unwrap();
            assert_eq!(tree.check(), [], "{shape:?} {life}");
            // The items of the last life are present; half of them are removed, more are inserted, and leaves split
            // and merge.
            for number in (life > 0).then(|| numbers(life - 1)).into_iter().flatten() {
                let (key, value) = (I::key(number), I::value(number));
                assert_eq!(tree.get(I::key_ref(&key)).unwrap(), Some(value), "{shape:?} {life}: {number}");
                if number % 2 == 0 {
                    assert!(tree.remove(I::key_ref(&key)).unwrap().is_some());
                }
            }
            for number in numbers(life) {
                let (key, value) = (I::key(number), I::value(number));
                tree.upsert(I::key_ref(&key), I::value_ref(&value)).unwrap();
            }
            assert_eq!(
                (tree.len().unwrap(), tree.check()),
                (tree.iter().map(Result::unwrap).count() as u64, vec![]),
                "{shape:?} {life}"
            );
            drop(tree);
            pool.close().unwrap();
        }
        // A crash right after an open that resumed.
        let pool = open(&scratch);
        assert!(pool.info().index_was_kept);
        let len = shape.open::<I::K, I::V>(&pool, "t").unwrap().len().unwrap();
        pool.simulate_crash();
        let pool = open(&scratch);
        assert!(!pool.info().index_was_kept, "{shape:?}: never after a crash");
        let tree: Tree<I::K, I::V> = shape.open(&pool, "t").unwrap();
        assert_eq!(
            (tree.len().unwrap(), tree.iter().map(Result::unwrap).count() as u64, tree.check()),
            (len, len, vec![]),
            "{shape:?}"
        );
    }
}

#[test]
fn trees_go_on_with_what_they_left_in_any_shape_and_codec() {
    if !is_alone("index_reuse::trees_go_on_with_what_they_left_in_any_shape_and_codec") {
        return;
    }
    for shape in share(defaults().chain(small())) {
        Codec::ALL.into_iter().for_each(|codec| codec.visit(Lives(shape)));
    }
}

#[test]
fn what_does_not_fit_is_not_used() {
    if !is_alone("index_reuse::what_does_not_fit_is_not_used") {
        return;
    }
    for shape in defaults() {
        let scratch = Scratch::new();
        let segment =
            |pool: &Pool| fs::OpenOptions::new().read(true).write(true).open(segment_of(pool)).unwrap();
        closed(&scratch, shape, ITEMS);
        // Each word of the header, and some of the manifest.
        for at in (0..14 * 8).step_by(8).chain([112, 4096, 4096 + 8]) {
            let pool = open(&scratch);
            assert!(is_kept(&pool, shape, ITEMS), "{shape:?}");
            let file = segment(&pool);
            pool.close().unwrap();
            let mut word = [0; 8];
            file.read_exact_at(&mut word, at).unwrap();
            word[at as usize / 8 % 8] ^= 0x10;
            file.write_all_at(&word, at).unwrap();
            let pool = open(&scratch);
            assert!(!is_kept(&pool, shape, ITEMS), "{shape:?}: a damaged byte at {at}");
            pool.close().unwrap();
        }
        // Truncated, removed, a link, readable by others, that of another pool.
        type Change = fn(&Path);
        let changes: [Change; 6] = [
            |path| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4100).unwrap(),
            |path| fs::OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap(),
            |path| fs::remove_file(path).unwrap(),
            |path| {
                fs::rename(path, path.with_extension("moved")).unwrap();
                symlink(path.with_extension("moved"), path).unwrap();
            },
            |path| fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap(),
            |path| fs::write(path, [7; 8192]).unwrap(),
        ];
        for change in changes {
            let pool = open(&scratch);
            let path = segment_of(&pool);
            pool.close().unwrap();
            change(&path);
            let pool = open(&scratch);
            assert!(!is_kept(&pool, shape, ITEMS), "{shape:?}");
            pool.close().unwrap();
            let _ = (fs::remove_file(path.with_extension("moved")), fs::remove_file(&path));
            let pool = open(&scratch);
            is_kept(&pool, shape, ITEMS);
            pool.close().unwrap();
        }
    }
}

/// Flips a bit in each of some words of a file, one that is not in a hole, and returns their offsets.
fn flip_words(path: &Path, words: u64, draw: u64) -> Vec<u64> {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut data = Vec::new();
    let mut at = 0;
    // Extents are sparse, terabytes apart.
    while let Ok(from) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        let end = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(from)).unwrap();
        data.push(from..end);
        at = end;
    }
    let all: u64 = data.iter().map(|range| (range.end - range.start) / 8).sum();
    let offset_of = |mut word: u64| {
        for range in &data {
            let here = (range.end - range.start) / 8;
            if word < here {
                return range.start + word * 8;
            }
            word -= here;
        }
        unreachable!("a word beyond the file's data")
    };
    (0..words)
        .map(|number| {
            let at = offset_of(mix(draw << 16 | number) % all);
            let mut word = [0; 8];
            file.read_exact_at(&mut word, at).unwrap();
            word[number as usize % 8] ^= 1 << (draw % 8);
            file.write_all_at(&word, at).unwrap();
            at
        })
        .collect()
}

#[test]
fn a_changed_word_of_the_index_file_never_changes_an_answer() {
    if !is_alone("index_reuse::a_changed_word_of_the_index_file_never_changes_an_answer") {
        return;
    }
    let trials = by_level(8, 40, 400);
    for shape in defaults() {
        let scratch = Scratch::new();
        closed(&scratch, shape, ITEMS);
        let mut kept = 0;
        for trial in 0..trials {
            let pool = open(&scratch);
            let path = segment_of(&pool);
            pool.close().unwrap();
            let words = flip_words(&path, 1 + trial % 4, trial);
            let pool = open(&scratch);
            let was_kept = is_kept(&pool, shape, ITEMS);
            // Words beyond the last one that counts are not part of the index.
            kept += u64::from(was_kept);
            let tree: Tree<u64, u64> = shape.open(&pool, "t").unwrap();
            for key in (0..ITEMS).step_by(7) {
                assert_eq!(tree.get(key).unwrap(), Some(key), "{shape:?}, words at {words:x?}");
                tree.remove(key).unwrap();
                tree.insert(key, key).unwrap();
            }
            assert_eq!(
                (tree.len().unwrap(), tree.check()),
                (ITEMS, vec![]),
                "{shape:?}, words at {words:x?}"
            );
            drop(tree);
            pool.close().unwrap();
        }
        println!("{shape:?}: {kept} of {trials} changes hit no word in use");
        assert!(kept < trials, "{shape:?}: no change was noticed");
    }
}

#[test]
fn a_copy_of_a_pool_is_another_pool() {
    if !is_alone("index_reuse::a_copy_of_a_pool_is_another_pool") {
        return;
    }
    for shape in defaults() {
        let (scratch, other) = (Scratch::new(), Scratch::new());
        closed(&scratch, shape, ITEMS);
        // Both may resume the saved index: they are equal so far.
        fs::copy(&scratch.0, &other.0).unwrap();
        let pool = open(&scratch);
        assert!(is_kept(&pool, shape, ITEMS));
        let both = open(&other);
        assert!(!is_kept(&both, shape, ITEMS), "{shape:?}: it is in use");
        let tree: Tree<u64, u64> = shape.open(&pool, "t").unwrap();
        _ = tree.insert(ITEMS, ITEMS).unwrap();
        drop(tree);
        pool.close().unwrap();
        both.close().unwrap();
        // Now they differ, and at most one shared index file exists.
        let both = open(&other);
        assert!(!is_kept(&both, shape, ITEMS), "{shape:?}");
        both.close().unwrap();
        let pool = open(&scratch);
        assert!(!is_kept(&pool, shape, ITEMS + 1), "{shape:?}: the other one's");
        pool.close().unwrap();
        // The previous contents, in the same file: a restored backup.
        let before = fs::read(&scratch.0).unwrap();
        let pool = open(&scratch);
        assert!(is_kept(&pool, shape, ITEMS + 1));
        shape.open::<u64, u64>(&pool, "t").unwrap().remove(ITEMS).unwrap();
        pool.close().unwrap();
        fs::write(&scratch.0, before).unwrap();
        assert!(!is_kept(&open(&scratch), shape, ITEMS + 1), "{shape:?}");
    }
}

#[test]
fn only_what_is_worth_it_is_left_behind_unless_it_is_asked_for() {
    if !is_alone("index_reuse::only_what_is_worth_it_is_left_behind_unless_it_is_asked_for") {
        return;
    }
    let shape = defaults().next().unwrap();
    let scratch = Scratch::new();
    let found = |keep| {
        let pool = options().keep_index(keep).open(&scratch.0).unwrap();
        let (kept, path) = (is_kept(&pool, shape, ITEMS), segment_of(&pool));
        pool.close().unwrap();
        (kept, path.exists())
    };
    closed(&scratch, shape, ITEMS);
    assert_eq!(found(KeepIndex::Always), (true, true));
    // An existing index is used; a new one is not worth saving.
    assert_eq!(found(KeepIndex::Auto), (true, false));
    assert_eq!(found(KeepIndex::Auto), (false, false));
    assert_eq!(found(KeepIndex::Always), (false, true));
    assert_eq!(found(KeepIndex::Never), (false, false));
    let pool = open(&scratch);
    let tree: Tree<u64, u64> = shape.open(&pool, "t").unwrap();
    (ITEMS..600_000).for_each(|key| _ = tree.insert(key, key).unwrap());
    drop(tree);
    pool.close().unwrap();
    for _ in 0..2 {
        let pool = options().keep_index(KeepIndex::Auto).open(&scratch.0).unwrap();
        assert!(is_kept(&pool, shape, 600_000));
    }
}

#[test]
fn readers_use_it_side_by_side_and_leave_it_as_it_was() {
    if !is_alone("index_reuse::readers_use_it_side_by_side_and_leave_it_as_it_was") {
        return;
    }
    for shape in defaults() {
        let scratch = Scratch::new();
        closed(&scratch, shape, ITEMS);
        let reader = Pool::options().read_only(true);
        for _ in 0..2 {
            let [one, other] = [reader.open(&scratch.0).unwrap(), reader.open(&scratch.0).unwrap()];
            assert!(is_kept(&one, shape, ITEMS) && is_kept(&other, shape, ITEMS), "{shape:?}");
            // Also a tree that is opened again.
            assert!(is_kept(&one, shape, ITEMS), "{shape:?}");
        }
        assert!(is_kept(&open(&scratch), shape, ITEMS), "{shape:?}");
    }
}

#[test]
fn trees_that_are_dropped_or_not_opened_have_their_own() {
    if !is_alone("index_reuse::trees_that_are_dropped_or_not_opened_have_their_own") {
        return;
    }
    for shape in share(defaults()) {
        let scratch = Scratch::new();
        closed(&scratch, shape, ITEMS);
        let pool = open(&scratch);
        let other: Tree<&str, u64> = shape.create(&pool, "u").unwrap();
        (0..ITEMS).for_each(|key| _ = other.insert(&format!("{key:06}"), key).unwrap());
        drop(other);
        pool.close().unwrap();
        // Neither is opened here.
        open(&scratch).close().unwrap();
        let pool = open(&scratch);
        assert!(is_kept(&pool, shape, ITEMS));
        assert_eq!(shape.open::<&str, u64>(&pool, "u").unwrap().get("000007").unwrap(), Some(7));
        pool.clear_tree("t").unwrap();
        pool.drop_tree("u").unwrap();
        // The number of a dropped tree, for one of another kind.
        let again: Tree<&str, &str> = shape.create(&pool, "u").unwrap();
        again.insert("a", "b").unwrap();
        drop(again);
        pool.rename_tree("u", "v").unwrap();
        pool.close().unwrap();
        let pool = open(&scratch);
        assert!(is_kept(&pool, shape, 0));
        let again: Tree<&str, &str> = shape.open(&pool, "v").unwrap();
        assert_eq!(
            (again.len().unwrap(), again.get("a").unwrap().as_deref(), again.check()),
            (1, Some("b"), vec![])
        );
    }
}

#[test]
fn segments_of_pools_that_are_gone_go_with_the_next_open() {
    if !is_alone("index_reuse::segments_of_pools_that_are_gone_go_with_the_next_open") {
        return;
    }
    let shape = defaults().next().unwrap();
    let scratch = Scratch::new();
    closed(&scratch, shape, ITEMS);
    let pool = open(&scratch);
    let path = segment_of(&pool);
    pool.close().unwrap();
    let others = Scratch::new();
    closed(&others, shape, ITEMS);
    assert!(path.exists(), "its pool is there");
    fs::remove_file(&scratch.0).unwrap();
    // An open that creates a shared index file scans for stale ones.
    options().keep_index(KeepIndex::Never).open(&others.0).unwrap().close().unwrap();
    open(&others).close().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_thread_that_may_still_read_is_no_hindrance_to_a_close() {
    if !is_alone("index_reuse::a_thread_that_may_still_read_is_no_hindrance_to_a_close") {
        return;
    }
    for design in Design::ALL {
        let scratch = Scratch::new();
        let (held, holds) = mpsc::channel();
        let (done, is_done) = mpsc::channel::<()>();
        let reader = std::thread::spawn(move || {
            let _pinned = bristlecone_pm::sync::epoch::pin();
            held.send(()).unwrap();
            let _ = is_done.recv();
        });
        holds.recv().unwrap();
        let pool = open(&scratch);
        let tree = pool.tree_options("t").design(*design).create::<&str, &str>().unwrap();
        for round in ["one", "another"] {
            (0..500).for_each(|key| _ = tree.insert(&format!("{key:05}"), round).unwrap());
        }
        drop(tree);
        pool.close().unwrap();
        let pool = open(&scratch);
        let tree = pool.tree::<&str, &str>("t").unwrap();
        assert_eq!(
            (tree.len().unwrap(), tree.get("00007").unwrap().as_deref(), tree.check()),
            (500, Some("another"), vec![]),
            "{design}"
        );
        drop(done);
        reader.join().unwrap();
    }
}
