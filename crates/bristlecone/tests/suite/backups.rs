//! Copies of pools: complete for all designs and codecs, or absent.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bristlecone::{BackupOptions, Design, Domain, Error, Pool, ScrubOptions, Tree};

use bristlecone_matrix::lose_pages;

use crate::common::{Cell, Items, Plant, Scratch, Visit, is_alone, share, small, suites};
use crate::no_space::limit;

/// The path of a copy, which is removed at the end.
struct Place(PathBuf);

impl Place {
    fn beside(scratch: &Scratch) -> Self {
        Self(scratch.0.with_extension("copy"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_copy_has_everything() {
    struct Run(Cell);
    impl Visit for Run {
        fn visit<I: Items>(self) {
            let Self(cell) = self;
            let scratch = Scratch::new();
            let pool = cell.pool(&scratch);
            let tree: Tree<I::K, I::V> = cell.create(&pool, "t").unwrap();
            for number in 0..1500 {
                tree.upsert(I::key_ref(&I::key(number)), I::value_ref(&I::value(number * 7))).unwrap();
            }
            let items: Vec<_> = tree.iter().map(Result::unwrap).collect();
            drop(tree);
            // As after a crash.
            pool.simulate_crash();
            let pool = Pool::options().read_only(true).open(&scratch.0).unwrap();
            let beside = pool.trees().unwrap().len() as u64 - 1;
            for to in share(Design::ALL) {
                let place = Place::beside(&scratch);
                // A copy has no journal.
                let domain = if cell.has_journal() { Domain::Process } else { cell.domain };
                let options = BackupOptions::new().max_bytes(1 << 30).tree("t", *to, &[]).domain(domain);
                let copied = pool.backup(&place.0, options).unwrap();
                assert!(copied.trees.contains(&("t".to_owned(), 1500)), "{copied:?}");
                assert_eq!(copied.trees.iter().map(|(_, items)| items).sum::<u64>(), 1500 + 50 * beside);
                let copy = Pool::options().open(&place.0).unwrap();
                assert!(copy.info().was_clean && copy.info().max_bytes >= 1 << 30);
                let tree = copy.tree_options("t").design(*to).open::<I::K, I::V>().unwrap();
                assert!(
                    tree.iter().map(Result::unwrap).eq(items.iter().cloned()) && tree.check().is_empty(),
                    "{cell} as {to}"
                );
                tree.remove(I::key_ref(&I::key(1))).unwrap();
                let scrub = copy.scrub(ScrubOptions::new()).unwrap();
                assert_eq!((scrub.items, scrub.issues), (1499 + 50 * beside, vec![]));
            }
        }
    }
    suites::MODEL.sampled().into_iter().for_each(|cell| cell.codec.visit(Run(cell)));
}

#[test]
fn options_of_a_design_are_kept_or_changed() {
    let (scratch, place) = (Scratch::new(), Place(PathBuf::from("/dev/shm/none")));
    let pool = scratch.open();
    let tree = pool.tree_options("t").design(Design::SsTree).option("max_subnodes", 2).create::<u64, u64>();
    drop(tree.unwrap());
    pool.close().unwrap();
    let pool = Pool::options().read_only(true).open(&scratch.0).unwrap();
    let options_of = |options: BackupOptions<'_>| {
        let place = Place::beside(&scratch);
        pool.backup(&place.0, options)?;
        let copy = Pool::options().read_only(true).open(&place.0)?;
        let tree = copy.dynamic_tree("t")?;
        let named = |name: &str| tree.options().iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        Ok::<_, Error>((tree.design(), named("max_subnodes"), named("subnode_bytes")))
    };
    let (design, subnodes, bytes) = options_of(BackupOptions::new()).unwrap();
    assert_eq!((design, subnodes), (Design::SsTree, Some(2)));
    let given = BackupOptions::new().tree("t", Design::SsTree, &[("max_subnodes", 4)]);
    assert_eq!(options_of(given).unwrap(), (Design::SsTree, Some(4), bytes));
    assert_eq!(options_of(BackupOptions::new().design(Design::WoTree)).unwrap().0, Design::WoTree);
    let wrong = [
        BackupOptions::new().tree("t", Design::NbTree, &[("max_subnodes", 4)]),
        BackupOptions::new().tree("t", Design::SsTree, &[("max_subnodes", 0)]),
    ];
    for wrong in wrong {
        assert!(matches!(options_of(wrong), Err(Error::Invalid { .. })));
    }
    let missing = options_of(BackupOptions::new().tree("u", Design::NbTree, &[]));
    assert!(matches!(missing, Err(Error::NoSuchTree { name }) if name == "u"));
    assert!(!place.0.exists());
}

#[test]
fn a_copy_that_fails_leaves_nothing_and_one_that_exists_stays() {
    let (scratch, disk) = (Scratch::new(), Scratch::within("/tmp"));
    let pool = scratch.open();
    let tree = pool.tree::<u64, &[u8]>("t").unwrap();
    (0..5000).for_each(|key| tree.upsert(key, &[7; 1000]).unwrap());
    drop(tree);
    pool.close().unwrap();
    let pool = Pool::options().read_only(true).open(&scratch.0).unwrap();
    let place = Place::beside(&scratch);
    let same = pool.backup(&scratch.0, BackupOptions::new());
    assert!(matches!(same, Err(Error::Exists { path }) if path == scratch.0));
    let small = pool.backup(&place.0, BackupOptions::new().max_bytes(4 << 20));
    assert!(matches!(small, Err(Error::PoolFull { .. })) && !place.0.exists());
    let mut last = 0;
    let stopped = pool.backup(
        &place.0,
        BackupOptions::new().on_progress(|progress| {
            assert!((progress.tree, progress.items_all) == ("t", 5000) && progress.items >= last);
            last = progress.items;
            if last > 2000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }),
    );
    assert!(
        matches!(stopped, Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::Interrupted)
    );
    assert!(!place.0.exists());
    // To another file system, on which each operation would sync a page.
    let copied = pool.backup(&disk.0, BackupOptions::new()).unwrap();
    assert!(copied.file_bytes > 5_000_000);
    let copy = Pool::options().read_only(true).open(&disk.0).unwrap();
    assert_eq!(copy.tree::<u64, &[u8]>("t").unwrap().len().unwrap(), 5000);
    assert!(copy.info().domain == copy.info().detected || copy.info().domain == Domain::Process);
    let again = pool.backup(&disk.0, BackupOptions::new());
    assert!(matches!(again, Err(Error::Exists { .. })));
    drop((copy, pool));
    // Items that are saved, or copied, are in no journal, so the new pool must not have one. It can get one.
    let saved = Scratch::within("/tmp");
    assert!(Pool::options().salvage(&scratch.0, &saved.0).unwrap().is_whole());
    for new in [&disk, &saved] {
        let pool = Pool::open(&new.0).unwrap();
        assert!(pool.info().domain == pool.info().detected, "{}", pool.info().domain);
        pool.close().unwrap();
        let pool = Pool::options().domain(Domain::Journal).open(&new.0).unwrap();
        pool.tree::<u64, &[u8]>("t").unwrap().upsert(5000, &[7]).unwrap();
        pool.simulate_crash();
        lose_pages(&new.0);
        let pool = Pool::open(&new.0).unwrap();
        assert_eq!(pool.tree::<u64, &[u8]>("t").unwrap().len().unwrap(), 5001);
    }
}

/// A failed copy must remove its temporary file.
#[test]
fn a_copy_onto_a_full_medium_leaves_nothing() {
    if !is_alone("backups::a_copy_onto_a_full_medium_leaves_nothing") {
        return;
    }
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, &[u8]>("t").unwrap();
    (0..20_000).for_each(|key| tree.upsert(key, &[7; 1000]).unwrap());
    let place = Place::beside(&scratch);
    // Its name begins with that of the target.
    let beside = || {
        let stem = place.0.file_stem().unwrap().to_str().unwrap();
        let names =
            std::fs::read_dir(scratch.0.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains(stem)).count()
    };
    let before = beside();
    limit(Some(pool.info().file_bytes / 2));
    let refused = pool.backup(&place.0, BackupOptions::new()).unwrap_err();
    assert!(refused.is_no_room() && !matches!(refused, Error::PoolFull { .. }), "{refused}");
    assert!(!place.0.exists() && beside() == before, "something was left");
    assert_eq!((tree.get(3).unwrap().as_deref(), tree.len().unwrap()), (Some(&[7; 1000][..]), 20_000));
    limit(None);
    pool.backup(&place.0, BackupOptions::new()).unwrap();
    assert_eq!(
        scratch.options().open(&place.0).unwrap().tree::<u64, &[u8]>("t").unwrap().len().unwrap(),
        20_000
    );
}

#[test]
fn a_scrub_keeps_to_its_rate_and_ends_when_it_is_to() {
    let scratch = Scratch::new();
    let pool = scratch.open();
    let tree = pool.tree::<u64, &[u8]>("t").unwrap();
    (0..1000).for_each(|key| tree.upsert(key, &[7; 1000]).unwrap());
    let begun = std::time::Instant::now();
    let scrub = pool.scrub(ScrubOptions::new().bytes_per_second(2_000_000)).unwrap();
    assert!((scrub.items, scrub.bytes, scrub.is_complete) == (1000, 1_008_000, true), "{scrub:?}");
    assert!(begun.elapsed().as_millis() > 400, "{:?}", begun.elapsed());
    let stop = |_: bristlecone::ScrubProgress<'_>| ControlFlow::Break(());
    let begun = std::time::Instant::now();
    let scrub = pool.scrub(ScrubOptions::new().bytes_per_second(1000).on_progress(stop)).unwrap();
    assert!(!scrub.is_complete && scrub.items < 1000 && begun.elapsed().as_secs() < 60);
}

/// Writers continue while the pool is copied: the copy must show one point in time.
#[test]
fn a_copy_of_a_pool_in_use_is_of_one_moment() {
    for shape in small() {
        println!("{shape}");
        let scratch = Scratch::new();
        let pool = scratch.open();
        let first: Tree<u64, u64> = shape.create(&pool, "first").unwrap();
        let second: Tree<&str, &str> = pool.tree_options("second").design(Design::WoTree).create().unwrap();
        let (bytes, keys) = ([7; 100], 3000);
        let others = pool.tree::<u64, &[u8]>("others").unwrap();
        (0..keys).for_each(|key| others.upsert(key, &bytes).unwrap());
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0.. {
                    // In this order: the second value equals the first or is one behind it.
                    first.insert(0, number).unwrap();
                    second.insert("number", &number.to_string()).unwrap();
                    others.upsert(number % keys, &bytes[..number as usize % 100]).unwrap();
                    others.upsert(keys + number, &bytes).unwrap();
                    if done.load(Relaxed) {
                        break;
                    }
                }
            });
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    let moved = pool.transaction(|tx| {
                        let from = tx.get(&first, 1)?.unwrap_or(1000);
                        tx.insert(&first, 1, from.wrapping_sub(1))?;
                        let to = tx.get(&second, "moved")?.map_or(0, |moved| moved.parse().unwrap_or(0));
                        tx.insert(&second, "moved", &u64::to_string(&(to + 1)))
                    });
                    assert!(matches!(moved, Ok(()) | Err(Error::Conflict)), "{moved:?}");
                }
            });
            for _ in 0..3 {
                let place = Place::beside(&scratch);
                pool.backup(&place.0, BackupOptions::new()).unwrap();
                let copy = Pool::options().read_only(true).open(&place.0).unwrap();
                let (one, two) =
                    (copy.tree::<u64, u64>("first").unwrap(), copy.tree::<&str, &str>("second").unwrap());
                let number = |text: Option<String>| text.map_or(0, |text| text.parse::<u64>().unwrap());
                let (a, b) = (one.get(0).unwrap().unwrap_or(0), number(two.get("number").unwrap()));
                assert!(a == b || a == b + 1, "{a} and {b}");
                let (left, moved) = (one.get(1).unwrap().unwrap_or(1000), number(two.get("moved").unwrap()));
                assert_eq!(left.wrapping_add(moved), 1000);
                let others = copy.tree::<u64, &[u8]>("others").unwrap();
                let later = others.count(keys..).unwrap();
                assert!(
                    others.count(..keys).unwrap() == keys && (a.max(1) - 1..=a + 1).contains(&later),
                    "{later} of {a}"
                );
            }
            done.store(true, Relaxed);
        });
        assert!(matches!(pool.backup(&scratch.0, BackupOptions::new()), Err(Error::Exists { .. })));
    }
}
