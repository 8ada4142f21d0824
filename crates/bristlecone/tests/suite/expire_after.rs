//! The time after which values of a tree expire, in every design.

use std::time::Duration;

use crate::common::{Configuration, Plant, Scratch, small};
use crate::expiry::TestClock;
use bristlecone::{
    BackupOptions, Design, Domain, Error, Expiring, ExpiringTree, Expiry, Pool, RestoreTo, Standby,
};

const AFTER: Duration = Duration::from_millis(50);

fn create(pool: &Pool, shape: Configuration, clock: &TestClock) -> ExpiringTree<u64, u64> {
    let created = shape.tree(pool, "t").expire_after(AFTER).create::<u64, Expiring<u64>>();
    clock.on(created.unwrap().expiring())
}

fn open(pool: &Pool, name: &str, clock: &TestClock) -> ExpiringTree<u64, u64> {
    let tree = clock.on(pool.tree::<u64, Expiring<u64>>(name).unwrap().expiring());
    assert_eq!(tree.expire_after(), Some(AFTER));
    let dynamic = pool.dynamic_tree(name).unwrap();
    assert_eq!(
        (dynamic.expire_after(), dynamic.value_kind().to_string().as_str()),
        (Some(AFTER), "Expiring<u64>")
    );
    tree
}

#[test]
fn a_write_that_names_no_expiry_has_that_of_the_tree() {
    for shape in small() {
        let (scratch, clock) = (Scratch::new(), TestClock::new());
        let pool = shape.pool(&scratch);
        let tree = create(&pool, shape, &clock);
        let at = |millis: u64| Some(Expiry::from_millis(clock.millis() + millis));
        tree.upsert(1, 1, None).unwrap();
        assert_eq!(tree.insert(2, 2, None).unwrap(), None);
        tree.try_insert(3, 3, None).unwrap();
        tree.upsert(4, 4, Expiry::NEVER).unwrap();
        assert_eq!(tree.update(4, 5, None).unwrap(), Some(4));
        tree.compare_and_swap(5, None, Some((5, tree.default_expiry()))).unwrap();
        for key in 1..=5 {
            assert_eq!(tree.expiry(key).unwrap(), at(50), "{shape}, {key}");
        }
        clock.advance(30);
        assert_eq!(tree.set_expiry(1, None).unwrap(), at(20), "{shape}");
        assert_eq!(tree.set_expiry_if(2, None, |_| true).unwrap(), at(20));
        tree.set_expiry(3, Expiry::NEVER).unwrap();
        clock.advance(20);
        let live: Vec<_> = tree.iter().map(|item| item.unwrap().0).collect();
        assert_eq!((live, tree.expiry(1).unwrap()), (vec![1, 2, 3], at(30)), "{shape}");
        assert_eq!(tree.remove_expired(100).unwrap().removed, 2, "{shape}");
    }
}

#[test]
fn the_time_is_kept_by_crashes_clearing_renaming_and_copies() {
    for shape in small() {
        let (scratch, clock) = (Scratch::new(), TestClock::new());
        let pool = shape.pool(&scratch);
        create(&pool, shape, &clock).upsert(1, 1, None).unwrap();
        pool.simulate_crash();
        let pool = shape.pool(&scratch);
        let tree = open(&pool, "t", &clock);
        assert_eq!(tree.expiry(1).unwrap(), Some(Expiry::from_millis(clock.millis() + 50)), "{shape}");
        clock.advance(50);
        assert_eq!(tree.get(1).unwrap(), None, "{shape}");
        drop(tree);
        pool.clear_tree("t").unwrap();
        pool.rename_tree("t", "renamed").unwrap();
        assert!(open(&pool, "renamed", &clock).is_empty().unwrap(), "{shape}");
        for design in Design::ALL {
            let copy = Scratch::new();
            pool.backup(&copy.0, BackupOptions::new().design(*design)).unwrap();
            let copied = Pool::open(&copy.0).unwrap();
            open(&copied, "renamed", &clock).upsert(1, 2, None).unwrap();
        }
    }
}

#[test]
fn archives_and_standbys_have_the_time() {
    for shape in small() {
        let (scratch, clock) = (Scratch::new(), TestClock::new());
        let folder = scratch.0.with_extension("times");
        std::fs::create_dir(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        let options = || Pool::options().max_bytes(1 << 30).domain(Domain::Journal).recovery_threads(1);
        let pool = options().create(true).open(at("p")).unwrap();
        create(&pool, shape, &clock).upsert(1, 1, None).unwrap();
        pool.archive(at("a")).unwrap().copy().unwrap();
        options().restore(at("r"), at("a"), RestoreTo::End).unwrap();
        assert_eq!(open(&options().open(at("r")).unwrap(), "t", &clock).get(1).unwrap(), Some(1), "{shape}");
        let mut standby = Standby::open(at("s"), at("a")).unwrap();
        standby.poll().unwrap();
        let follower = Pool::follow(at("s")).unwrap();
        assert_eq!(open(&follower, "t", &clock).get(1).unwrap(), Some(1), "{shape}");
        drop(follower);
        standby.close().unwrap();
        // A checkpoint has the specifications of trees, too.
        pool.prune_journal().unwrap();
        pool.simulate_crash();
        assert_eq!(open(&options().open(at("p")).unwrap(), "t", &clock).get(1).unwrap(), Some(1), "{shape}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn other_types_and_times_are_refused() {
    for shape in small() {
        let scratch = Scratch::new();
        let pool = shape.pool(&scratch);
        let options = |time: Duration| shape.tree(&pool, "t").expire_after(time);
        let refused = [
            options(AFTER).create::<u64, u64>().map(drop),
            options(Duration::ZERO).create::<u64, Expiring<u64>>().map(drop),
            options(Duration::MAX).create::<u64, Expiring<u64>>().map(drop),
        ];
        assert!(refused.into_iter().all(|done| matches!(done, Err(Error::Invalid { .. }))), "{shape}");
        type Long = Expiring<(u128, u128, u128, u128, u128)>;
        let created = options(Duration::from_millis(1 << 40)).create::<u64, Long>();
        assert!(matches!(created, Err(Error::TooLong { .. })), "{shape}");
        assert!(pool.trees().unwrap().is_empty(), "{shape}");
        // Rounded up to a millisecond.
        drop(options(Duration::from_nanos(1)).create::<u64, Expiring<u64>>().unwrap());
        assert!(options(Duration::from_millis(1)).open::<u64, Expiring<u64>>().is_ok(), "{shape}");
        let other = options(AFTER).open::<u64, Expiring<u64>>();
        assert!(matches!(other, Err(Error::Mismatch { .. })), "{shape}");
        drop(shape.tree(&pool, "plain").create::<u64, Expiring<u64>>().unwrap());
        let timed = shape.tree(&pool, "plain").expire_after(AFTER).open::<u64, Expiring<u64>>();
        assert!(matches!(timed, Err(Error::Mismatch { .. })), "{shape}");
    }
}
