//! Standbys on a file system: they follow, resume, and take over.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bristlecone_random::Generator as Random;

use super::streams::Consumer;
use super::{Model, Scratch, is_thorough, work};
use crate::{
    Design, Domain, Durability, Error, JournalFiles, Pool, PoolOptions, RestoreTo, Standby, TreeEntry,
};

/// A folder with a pool, its archive, and copies.
pub struct Place(Scratch);

impl Place {
    pub fn new() -> Self {
        let scratch = Scratch::new();
        std::fs::create_dir(&scratch.0).unwrap();
        Self(scratch)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0.0);
    }
}

pub fn options() -> PoolOptions {
    let options = Pool::options().max_bytes(64 << 20).chunk_bytes(4096).create(true).recovery_threads(1);
    options.domain(Domain::Journal).durability(Durability::Commit)
}

/// Reads a pool through followers, as a consumer that saw the same entries.
fn assert_followed(path: &Path, consumer: &Consumer, what: &str) {
    let follower = Pool::follow(path).unwrap();
    consumer.assert_is_in(&follower, what);
}

fn follow(journal: &Path, consumer: &mut Consumer) {
    for entry in JournalFiles::open(journal).unwrap().changes(Some(consumer.next)).unwrap() {
        consumer.apply(&entry.unwrap());
    }
}

#[test]
fn a_standby_follows_resumes_and_takes_over_in_every_design() {
    for &design in Design::ALL {
        let place = Place::new();
        let (mut random, mut model, mut consumer) = (Random::new(3), Model::default(), Consumer::default());
        let pool = options().open(place.path("p")).unwrap();
        work(&pool, design, &mut random, &mut model).unwrap();
        let mut archiver = pool.archive(place.path("a")).unwrap();
        archiver.copy().unwrap();
        let copy = place.path("copy");
        let mut standby = Some(Standby::open(&copy, place.path("a")).unwrap());
        let mut lsns = Vec::new();
        for round in 0..8 {
            work(&pool, design, &mut random, &mut model).unwrap();
            if round == 3 {
                pool.checkpoint().unwrap();
                pool.tree::<u64, u64>("other").unwrap().insert(1, 2).unwrap();
            }
            if round == 4 {
                pool.rename_tree("other", "renamed").unwrap();
            }
            if round == 5 {
                pool.clear_tree("renamed").unwrap();
                pool.tree::<u64, u64>("renamed").unwrap().insert(5, 6).unwrap();
            }
            if round == 6 {
                pool.drop_tree("renamed").unwrap();
                pool.tree::<&str, &str>("again").unwrap().insert("a", "b").unwrap();
            }
            archiver.copy().unwrap();
            follow(&place.path("p.journal"), &mut consumer);
            lsns.push((consumer.next, consumer.clone()));
            let mut own = match standby.take() {
                Some(own) => own,
                None => Standby::open(&copy, place.path("a")).unwrap(),
            };
            let status = own.poll().unwrap();
            assert_eq!(
                (status.lsn, status.archive_lsn, status.lag_bytes()),
                (consumer.next, consumer.next, 0)
            );
            assert_eq!(Standby::status_of(&copy).unwrap().unwrap().lsn, consumer.next);
            assert_followed(&copy, &consumer, &format!("{design}, round {round}"));
            match random.below(3) {
                0 => own.close().unwrap(),
                // Left as a kill leaves it.
                1 => own.simulate_kill(),
                _ => standby = Some(own),
            }
        }
        // A second handle, and the usual openings, are refused.
        let own = standby.take().unwrap_or_else(|| Standby::open(&copy, place.path("a")).unwrap());
        assert!(matches!(Standby::open(&copy, place.path("a")), Err(Error::InUse { .. })));
        let is_told =
            |error: Error| matches!(&error, Error::Invalid { what } if what.contains("is a standby"));
        assert!(Pool::open(&copy).is_err_and(|error| matches!(error, Error::InUse { .. }) || is_told(error)));
        own.close().unwrap();
        assert!(Pool::open(&copy).is_err_and(is_told), "a standby was opened as a pool");

        // The old writer commits what does not reach the archive.
        work(&pool, design, &mut random, &mut model).unwrap();
        let own = Standby::open(&copy, place.path("a")).unwrap();
        let begin = own.promote().unwrap();
        assert_eq!(begin, consumer.next);
        let fenced = archiver.copy().unwrap_err();
        assert!(matches!(fenced, Error::Fenced { timeline: 1, .. }), "{fenced}");
        drop(archiver);
        assert!(matches!(pool.archive(place.path("a")), Err(Error::Fenced { .. })));
        assert!(matches!(
            Standby::open(&copy, place.path("a")),
            Err(Error::Invalid { .. } | Error::Exists { .. })
        ));
        let new = Pool::options().open(&copy).unwrap();
        consumer.assert_is_in(&new, "the new writer");
        // Its journal continues, in the same archive.
        let mut archiver = new.archive(place.path("a")).unwrap();
        new.tree::<u64, u64>("new").unwrap().insert(1, 1).unwrap();
        archiver.copy().unwrap();
        let mut after = consumer.clone();
        follow(&place.path("copy.journal"), &mut after);
        assert!(after.next > begin);
        lsns.push((after.next, after.clone()));
        assert_eq!(archiver.status().timeline, 1);
        for (at, (lsn, state)) in lsns.iter().enumerate() {
            let path = place.path(&format!("restored-{at}"));
            Pool::options().restore(&path, place.path("a"), RestoreTo::Lsn(*lsn)).unwrap();
            state.assert_is_in(&Pool::open(&path).unwrap(), &format!("{design}, LSN {lsn}"));
        }
        // A standby of the new writer.
        let mut second = Standby::open(place.path("second"), place.path("a")).unwrap();
        assert_eq!(second.poll().unwrap().timeline, 1);
        assert_followed(&place.path("second"), &after, "a standby of the new timeline");
    }
}

#[test]
fn two_standbys_cannot_both_take_over() {
    let place = Place::new();
    let pool = options().open(place.path("p")).unwrap();
    pool.tree::<u64, u64>("t").unwrap().insert(1, 1).unwrap();
    let mut archiver = pool.archive(place.path("a")).unwrap();
    archiver.copy().unwrap();
    drop(archiver);
    let one = Standby::open(place.path("one"), place.path("a")).unwrap();
    let mut two = Standby::open(place.path("two"), place.path("a")).unwrap();
    one.promote().unwrap();
    let new = Pool::open(place.path("one")).unwrap();
    new.tree::<u64, u64>("t").unwrap().insert(2, 2).unwrap();
    new.archive(place.path("a")).unwrap().copy().unwrap();
    // The other one follows the new writer.
    assert_eq!(two.poll().unwrap().timeline, 1);
    let follower = Pool::follow(place.path("two")).unwrap();
    assert_eq!(follower.tree::<u64, u64>("t").unwrap().get(2).unwrap(), Some(2));
}

#[test]
fn a_standby_whose_archive_was_pruned_says_so() {
    let place = Place::new();
    let pool = options().open(place.path("p")).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    let mut archiver = pool.archive(place.path("a")).unwrap();
    tree.insert(1, 1).unwrap();
    archiver.copy().unwrap();
    Standby::open(place.path("copy"), place.path("a")).unwrap().close().unwrap();
    for round in 0..3 {
        // Longer than a piece, so that the archive can drop some.
        let many: Vec<_> = (0..200_000).map(|key| (key, key + round)).collect();
        tree.upsert_many(&many).unwrap();
        pool.checkpoint().unwrap();
        while archiver.copy().unwrap() {}
    }
    archiver.prune(&crate::Keep::all().bytes(1)).unwrap();
    let refused = Standby::open(place.path("copy"), place.path("a")).unwrap_err();
    assert!(matches!(refused, Error::Pruned { .. }), "{refused}");
    for left in ["copy", "copy.standby/state"] {
        std::fs::remove_file(place.path(left)).unwrap();
    }
    Standby::open(place.path("copy"), place.path("a")).unwrap().close().unwrap();
}

#[test]
fn standbys_need_an_archive_of_their_own_pool() {
    let place = Place::new();
    let none = Standby::open(place.path("copy"), place.path("a")).unwrap_err();
    assert!(matches!(none, Error::Io { .. }), "{none}");
    std::fs::create_dir(place.path("a")).unwrap();
    let none = Standby::open(place.path("copy"), place.path("a")).unwrap_err();
    assert!(matches!(none, Error::Invalid { .. }), "{none}");
    let pool = options().open(place.path("p")).unwrap();
    pool.tree::<u64, u64>("t").unwrap().insert(1, 1).unwrap();
    pool.archive(place.path("a")).unwrap().copy().unwrap();
    let exists = Standby::open(place.path("p"), place.path("a")).unwrap_err();
    assert!(matches!(exists, Error::Exists { .. } | Error::Invalid { .. }), "{exists}");
    Standby::open(place.path("copy"), place.path("a")).unwrap().close().unwrap();
    let other = options().open(place.path("q")).unwrap();
    other.archive(place.path("b")).unwrap().copy().unwrap();
    let foreign = Standby::open(place.path("copy"), place.path("b")).unwrap_err();
    assert!(matches!(foreign, Error::Exists { .. } | Error::Invalid { .. }), "{foreign}");
}

/// Two threads: one writes and archives, one replays, and a follower reads meanwhile.
#[test]
fn a_standby_replays_while_followers_read() {
    let place = Place::new();
    let pool =
        options().durability(Durability::Interval(Duration::from_millis(2))).open(place.path("p")).unwrap();
    let tree = pool.tree_options("t").design(Design::NbTree).create::<u64, u64>().unwrap();
    tree.insert(0, 0).unwrap();
    pool.sync().unwrap();
    let mut archiver = pool.archive(place.path("a")).unwrap();
    archiver.copy().unwrap();
    let mut standby = Standby::open(place.path("copy"), place.path("a")).unwrap();
    let (stop_archiver, stop_standby) = (archiver.stopper(), standby.stopper());
    let last = 20_000_u64;
    std::thread::scope(|scope| {
        scope.spawn(|| archiver.follow(Duration::from_millis(5), &crate::Keep::all()).unwrap());
        scope.spawn(|| standby.run(Duration::from_millis(2)).unwrap());
        scope.spawn(|| {
            (1..=last).for_each(|count| tree.upsert(0, count).unwrap());
            pool.sync().unwrap();
        });
        let read = || {
            let follower = Pool::follow(place.path("copy"))?;
            let followed = follower.tree::<u64, u64>("t")?;
            let mut seen = 0;
            while seen < last {
                let now = followed.get(0)?.unwrap_or(0);
                if now < seen {
                    return Err(Error::invalid(format!("{now} after {seen}")));
                }
                seen = now;
            }
            Ok(())
        };
        let done = read();
        stop_archiver.stop();
        stop_standby.stop();
        done.unwrap();
    });
    assert_eq!(standby.status().lag_bytes(), 0);
    let _: Vec<TreeEntry> = pool.trees().unwrap();
}

/// Archives everything, and lets a copy take over that is filled again over its old file.
fn replicate(place: &Place, pool: &Pool) -> crate::Result<()> {
    let standby = || small().standby(place.path("copy"), place.path("a"));
    match pool.archive(place.path("a")) {
        // An attempt before has claimed it.
        Err(Error::Fenced { .. }) => {}
        archiver => {
            let mut archiver = archiver?;
            while archiver.copy()? {}
        }
    }
    let mut own = match standby() {
        Err(Error::Exists { .. }) => return Ok(()),
        Err(Error::Invalid { what }) if what.contains("it is no standby") => return Ok(()),
        own => own?,
    };
    own.poll()?;
    own.close()?;
    // A power failure has torn it.
    std::fs::write(place.path("copy.standby/state"), "torn").unwrap();
    standby()?.promote().map(drop)
}

fn small() -> PoolOptions {
    let mut options = options();
    options.journal.sizes = Some((16 << 10, 64 << 10));
    options
}

/// On the file system, with every system call that may fail.
#[test]
fn every_refused_call_is_an_error_and_the_next_attempt_continues() {
    use bristlecone_pm::failpoint;

    let mut all = 0;
    for refused in (0..).step_by(if is_thorough() { 1 } else { 5 }) {
        let (place, design) = (Place::new(), Design::ALL[refused % Design::ALL.len()]);
        let pool = small().open(place.path("p")).unwrap();
        let tree = pool.tree_options("t").design(design).create::<u64, u64>().unwrap();
        (0..50).for_each(|key| tree.upsert(key, key).unwrap());
        pool.checkpoint().unwrap();
        let mut archiver = pool.archive(place.path("a")).unwrap();
        while archiver.copy().unwrap() {}
        drop(archiver);
        small().standby(place.path("copy"), place.path("a")).unwrap().close().unwrap();
        (50..60).for_each(|key| tree.upsert(key, key).unwrap());
        failpoint::refuse(refused, rustix::io::Errno::IO);
        let ended = replicate(&place, &pool);
        let is_over = failpoint::cease();
        assert!(ended.is_ok() || !is_over, "{ended:?} without a refused call");
        replicate(&place, &pool).unwrap_or_else(|error| panic!("{design}, call {refused}: {error}"));
        let new = small().open(place.path("copy")).unwrap_or_else(|error| panic!("call {refused}: {error}"));
        let found: Vec<_> = new.tree::<u64, u64>("t").unwrap().iter().map(Result::unwrap).collect();
        assert!(found.into_iter().eq((0..60).map(|key| (key, key))), "{design}, call {refused}");
        all = refused;
        if is_over {
            break;
        }
    }
    assert!(all > 150, "only {all} calls");
}
