//! Named cursors: what they pin, power failures at each of their steps, and steps that are left out.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bristlecone_pm::{SharedWords, Storage, StoredFile};
use bristlecone_random::Generator as Random;

use super::inspection::{files, told};
use super::{Scratch, is_thorough, open, options, quiet};
use crate::journal::mutation::{Mutation, without};
use crate::journal::simulated::Disk;
use crate::{Changes, Durability, Error, JournalFiles, Pool, Result, Tree};

fn segments(disk: &Disk) -> usize {
    disk.list().unwrap().iter().filter(|name| name.starts_with("segment-")).count()
}

/// Counts up in one key.
fn count(tree: &Tree<u64, u64>, times: u64) -> Result<()> {
    for _ in 0..times {
        let count = tree.get(0)?.unwrap_or(0);
        tree.insert(0, count + 1)?;
    }
    Ok(())
}

/// Returns the numbers that a stream has.
fn numbers(changes: &mut Changes) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in changes {
        for text in told(&[entry?]).iter().filter(|text| text.contains('=')) {
            let number = text.rsplit("U64(").next().and_then(|text| text.strip_suffix(')'));
            numbers.push(number.unwrap().parse().unwrap());
        }
    }
    Ok(numbers)
}

#[test]
fn a_cursor_keeps_entries_until_it_moves_on() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let pool = open(&scratch, &disk, Durability::Commit).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    assert_eq!(pool.create_cursor("c", Some(0)).unwrap(), 0);
    count(&tree, 100).unwrap();
    pool.checkpoint().unwrap();
    pool.prune_journal().unwrap();
    let status = pool.journal_status().unwrap().unwrap();
    assert!(status.cursors[0].pinned_bytes >= 4 * (64 << 10), "{:?}", status.cursors);
    assert_eq!((status.cursors[0].name.as_str(), status.cursors[0].lsn), ("c", 0));
    assert_eq!(files(&disk).status().unwrap().cursors, status.cursors);
    assert!(segments(&disk) >= 6);
    {
        let mut changes = pool.changes_of("c").unwrap();
        assert_eq!(numbers(&mut changes).unwrap(), (1..=100).collect::<Vec<_>>());
        assert!(matches!(changes.advance(changes.next_lsn() + 8), Err(Error::Invalid { .. })));
        changes.advance(changes.next_lsn()).unwrap();
        assert!(matches!(changes.advance(0), Err(Error::Invalid { .. })));
    }
    count(&tree, 20).unwrap();
    pool.prune_journal().unwrap();
    assert!(segments(&disk) <= 3, "{:?}", disk.list());
    assert_eq!(numbers(&mut pool.changes_of("c").unwrap()).unwrap(), (101..=120).collect::<Vec<_>>());
    assert!(matches!(pool.changes(0), Err(Error::Pruned { .. })));
    assert!(matches!(pool.create_cursor("d", Some(0)), Err(Error::Pruned { .. })));
    assert!(matches!(pool.create_cursor("c", None), Err(Error::Invalid { .. })));
    assert!(matches!(pool.create_cursor("a/b", None), Err(Error::Invalid { .. })));
    assert!(matches!(pool.create_cursor("d", Some(1 << 40)), Err(Error::Invalid { .. })));
    assert!(matches!(pool.changes_of("d"), Err(Error::NoSuchCursor { .. })));
    assert!(matches!(pool.drop_cursor("d"), Err(Error::NoSuchCursor { .. })));
    assert!(pool.changes(0).and_then(|mut stream| stream.advance(0)).is_err());
    pool.drop_cursor("c").unwrap();
    pool.prune_journal().unwrap();
    assert_eq!(segments(&disk), 1);
}

#[test]
fn a_consumer_that_stops_loses_its_cursor_and_is_told() {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let mut options = options(&disk, Durability::Commit);
    options.journal.cursor_limit_bytes = Some(4 * (64 << 10));
    let pool = options.open(&scratch.0).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    pool.create_cursor("slow", Some(0)).unwrap();
    pool.create_cursor("fast", Some(0)).unwrap();
    let mut slow = pool.changes_of("slow").unwrap();
    let first = slow.next().unwrap().unwrap();
    let mut warned = false;
    for _ in 0..10 {
        count(&tree, 20).unwrap();
        let mut fast = pool.changes_of("fast").unwrap();
        numbers(&mut fast).unwrap();
        fast.advance(fast.next_lsn()).unwrap();
        pool.checkpoint().unwrap();
        let issues = pool.info().issues;
        warned |=
            issues.iter().any(|issue| issue.location.contains("slow") && issue.what.contains("dropped"));
        assert!(!issues.iter().any(|issue| issue.location.contains("fast")), "{issues:?}");
    }
    assert!(warned, "no warning at half of the limit");
    pool.prune_journal().unwrap();
    assert!(segments(&disk) <= 6, "the journal grows");
    let cursors = pool.journal_status().unwrap().unwrap().cursors;
    assert_eq!(cursors.iter().map(|cursor| cursor.dropped).collect::<Vec<_>>(), [false, true]);
    for error in [
        slow.advance(first.next_lsn()).unwrap_err(),
        slow.find_map(Result::err).unwrap(),
        pool.changes_of("slow").unwrap_err(),
    ] {
        assert!(matches!(&error, Error::CursorDropped { name, lsn: 0 } if name == "slow"), "{error}");
    }
    // It begins again.
    pool.create_cursor("slow", None).unwrap();
    count(&tree, 1).unwrap();
    assert_eq!(numbers(&mut pool.changes_of("slow").unwrap()).unwrap(), [201]);
    // What the stream of the dropped cursor does is not the new one's.
    assert!(slow.advance(slow.next_lsn()).is_err());
    assert_eq!(pool.journal_status().unwrap().unwrap().cursors.len(), 2);
}

/// What was acknowledged until the machine stopped.
#[derive(Default, Debug)]
struct Told {
    is_created: bool,
    /// The number behind which the cursor was, and the one to which it was being moved.
    cursor: Option<(u64, u64)>,
    count: u64,
}

/// A writer and a consumer with a cursor, until a call fails. `stubborn` continues after errors of the consumer.
fn run(scratch: &Scratch, disk: &Disk, stubborn: bool) -> Told {
    let mut told = Told::default();
    let mut steps = || -> Result<Pool> {
        let pool = open(scratch, disk, Durability::Commit)?;
        told.is_created = true;
        let tree = pool.tree::<u64, u64>("t")?;
        for round in 0..4 {
            for _ in 0..20 {
                count(&tree, 1)?;
                told.count += 1;
            }
            let mut consume = || -> Result<()> {
                if round == 0 {
                    pool.create_cursor("c", None)?;
                    told.cursor = Some((told.count, told.count));
                } else if told.cursor.is_some() {
                    let mut changes = pool.changes_of("c")?;
                    let seen = *numbers(&mut changes)?.last().unwrap_or(&0);
                    told.cursor = told.cursor.map(|(at, _)| (at, at.max(seen)));
                    changes.advance(changes.next_lsn())?;
                    told.cursor = Some((seen, seen));
                }
                Ok(())
            };
            match consume() {
                Err(_) if stubborn => {}
                done => done?,
            }
            match pool.checkpoint() {
                Err(_) if stubborn => {}
                done => done?,
            }
        }
        drop(tree);
        Ok(pool)
    };
    if let Ok(pool) = steps() {
        pool.simulate_crash();
    }
    told
}

/// Opens the pool on what a power failure left, and verifies the cursor and its entries.
fn verify(scratch: &Scratch, disk: &Disk, told: &Told) -> std::result::Result<(), String> {
    if !told.is_created {
        return Ok(());
    }
    if scratch.0.exists() {
        scratch.scramble_unless_closed();
    }
    let pool = open(scratch, disk, Durability::Commit).map_err(|error| error.to_string())?;
    let tree = pool.tree::<u64, u64>("t").map_err(|error| error.to_string())?;
    let last = tree.get(0).unwrap().unwrap_or(0);
    if last < told.count {
        return Err(format!("{last} of {}", told.count));
    }
    let Some((at, moving)) = told.cursor else { return Ok(()) };
    let mut changes = pool.changes_of("c").map_err(|error| format!("{told:?}: {error}"))?;
    let found = numbers(&mut changes).map_err(|error| format!("{told:?}: {error}"))?;
    let first = last + 1 - found.len() as u64;
    if found != (first..=last).collect::<Vec<_>>() || first <= at || first > moving.max(at) + 1 {
        return Err(format!("{told:?}: the cursor has {found:?} up to {last}"));
    }
    Ok(())
}

/// Lets the power fail before an event, or lets it fail at another one, and the power at the end.
fn fail(off: Option<usize>, fails: Option<usize>, images: u64) -> std::result::Result<(), String> {
    for image in 0..images {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        off.into_iter().for_each(|event| disk.turn_off_at(event));
        fails.into_iter().for_each(|event| disk.fail_at(event));
        let told = run(&scratch, &disk, fails.is_some());
        let mut random = Random::new(off.or(fails).unwrap_or(0) as u64 * 64 + image);
        let image = disk.after_failure(&mut random);
        verify(&scratch, &image, &told).map_err(|what| format!("event {off:?}, {fails:?}: {what}"))?;
    }
    Ok(())
}

fn events() -> usize {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    assert_eq!(run(&scratch, &disk, false).count, 80);
    disk.events()
}

#[test]
fn a_power_failure_at_every_step_leaves_the_cursor_and_its_entries() {
    let images = if is_thorough() { 8 } else { 2 };
    for event in 0..=events() {
        fail(Some(event), None, images).unwrap();
        fail(None, Some(event), images).unwrap();
    }
}

#[test]
fn syncs_of_cursors_that_are_left_out_are_noticed() {
    quiet();
    let events = events();
    for step in [Mutation::CursorUnsynced, Mutation::CursorsUnsynced] {
        let is_noticed = |event| {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                fail(Some(event), None, 4).and_then(|()| fail(None, Some(event), 4))
            }));
            !matches!(ended, Ok(Ok(())))
        };
        assert!(without(Some(step), || (0..=events).any(is_noticed)), "nothing notices {step:?}");
    }
}

/// A number of listings, and what is called after them.
type Hook = (usize, Box<dyn FnOnce() + Send>);

/// A disk that calls a function once, after its folder was listed a number of times.
struct Hooked {
    disk: Disk,
    hook: Mutex<Option<Hook>>,
}

impl Storage for Hooked {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn StoredFile>> {
        self.disk.create(name, bytes)
    }
    fn open(&self, name: &str) -> Result<Option<Arc<dyn StoredFile>>> {
        self.disk.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.disk.rename(from, to)
    }
    fn rename_new(&self, from: &str, to: &str) -> Result<bool> {
        self.disk.rename_new(from, to)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.disk.remove(name)
    }
    fn sync(&self) -> Result<()> {
        self.disk.sync()
    }
    fn list(&self) -> Result<Vec<String>> {
        let names = self.disk.list();
        let mut hook = self.hook.lock().unwrap();
        match hook.take() {
            Some((0, run)) => {
                drop(hook);
                run();
            }
            Some((left, run)) => *hook = Some((left - 1, run)),
            None => {}
        }
        names
    }
    fn share(&self, name: &str, bytes: u64) -> Result<Arc<dyn SharedWords>> {
        self.disk.share(name, bytes)
    }
    fn shared(&self, name: &str, bytes: u64) -> Result<Option<Arc<dyn SharedWords>>> {
        self.disk.shared(name, bytes)
    }
    fn boot(&self) -> Option<u128> {
        self.disk.boot()
    }
    fn describe(&self) -> String {
        self.disk.describe()
    }
}

/// Creates a cursor in the middle of a checkpoint; returns whether it was created, and whether its entries are there.
fn create_during_checkpoint(after: usize) -> (bool, bool) {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let hooked = Arc::new(Hooked { disk: disk.clone(), hook: Mutex::default() });
    let mut options = options(&disk, Durability::Commit);
    options.journal.storage = Some(Arc::clone(&hooked) as Arc<dyn Storage>);
    let pool = options.open(&scratch.0).unwrap();
    let tree = pool.tree::<u64, u64>("t").unwrap();
    count(&tree, 60).unwrap();
    let created = Arc::new(Mutex::new(None));
    let (set, on) = (Arc::clone(&created), disk.clone());
    let create = move || {
        let files = JournalFiles::on(PathBuf::from("journal"), Arc::new(on.clone())).unwrap();
        let sizes = super::options(&on, Durability::Commit).journal.sizes();
        let files = JournalFiles { sizes, ..files };
        *set.lock().unwrap() = Some(files.create_cursor("c", Some(0)).is_ok());
    };
    // With the mutation of this thread: the hook runs on it.
    *hooked.hook.lock().unwrap() = Some((after, Box::new(create)));
    pool.checkpoint().unwrap();
    let is_created = created.lock().unwrap().expect("the hook ran");
    let found = pool.changes_of("c").and_then(|mut changes| numbers(&mut changes));
    (is_created, found.is_ok_and(|found| found == (1..=60).collect::<Vec<_>>()))
}

#[test]
fn a_cursor_that_is_created_during_a_checkpoint_has_its_entries_or_is_refused() {
    // The folder is listed to drop cursors, then to find out what they need, twice.
    for after in 0..3 {
        let (is_created, has_entries) = create_during_checkpoint(after);
        assert_eq!(is_created, has_entries, "after list {after}");
        assert_eq!(is_created, after < 2);
    }
    let (is_created, has_entries) =
        without(Some(Mutation::CursorsListedOnce), || create_during_checkpoint(1));
    assert!(is_created && !has_entries, "nothing notices the second list");
    let (is_created, has_entries) = without(Some(Mutation::CursorUnchecked), || create_during_checkpoint(2));
    assert!(is_created && !has_entries, "nothing notices the check");
}
