//! Trees whose entries expire, in every design, compared with a model and an injected clock.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

use crate::common::{Configuration, Noise, Plant, Scratch, inserted, small, swapped};
use crate::kinds::{Both, Owned, Sample, each_kind};
use bristlecone::dynamic::Datum;
use bristlecone::{
    Changed, Domain, Error, Expiring, ExpiringTree, Expiry, Key, Pool, RestoreTo, Standby, VALUE_BYTES_MAX,
    Value,
};

/// A clock that a test sets, in milliseconds.
#[derive(Clone)]
pub struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1000)))
    }

    pub fn millis(&self) -> u64 {
        self.0.load(Relaxed)
    }

    pub fn advance(&self, millis: u64) {
        self.0.fetch_add(millis, Relaxed);
    }

    pub fn on<K: Key, V: Value>(&self, tree: ExpiringTree<K, V>) -> ExpiringTree<K, V> {
        let millis = Arc::clone(&self.0);
        tree.with_clock(move || UNIX_EPOCH + Duration::from_millis(millis.load(Relaxed)))
    }
}

/// The entries of a tree, expired or not.
type Model = BTreeMap<Datum<'static>, (Datum<'static>, Expiry)>;

struct Twin<T: Both> {
    tree: ExpiringTree<T, T>,
    clock: TestClock,
    model: Model,
}

impl<T: Both> Twin<T>
where
    Owned<T>: Sample + Into<Datum<'static>> + TryFrom<Datum<'static>, Error = Error>,
{
    fn datum(owned: &Owned<T>) -> Datum<'static> {
        owned.clone().into()
    }

    fn data(owned: Option<Owned<T>>) -> Option<Datum<'static>> {
        owned.map(|owned| Self::datum(&owned))
    }

    fn is_live(&self, expiry: Expiry) -> bool {
        expiry == Expiry::NEVER || expiry.as_millis() > self.clock.millis()
    }

    /// The live items of the model.
    fn items(&self) -> impl DoubleEndedIterator<Item = (Datum<'static>, Datum<'static>)> {
        let live = self.model.iter().filter(|(_, (_, expiry))| self.is_live(*expiry));
        live.map(|(key, (value, _))| (key.clone(), value.clone()))
    }

    fn expiry(&self, noise: &mut Noise) -> Expiry {
        match noise.below(4) {
            0 => Expiry::NEVER,
            1 => Expiry::from_millis(self.clock.millis().saturating_sub(noise.below(3)).max(1)),
            _ => self.tree.after(Duration::from_millis(noise.below(60))),
        }
    }

    /// Makes one operation on the tree and the model.
    fn step(&mut self, noise: &mut Noise) {
        self.clock.advance(noise.below(3));
        let (key, value) = (Owned::<T>::sample(noise), Owned::<T>::sample(noise));
        let (at, to) = (<T as Key>::lend(&key), <T as Value>::lend(&value));
        let (key_datum, new) = (Self::datum(&key), Self::datum(&value));
        let expiry = self.expiry(noise);
        let held = self.model.get(&key_datum).cloned().filter(|(_, expiry)| self.is_live(*expiry));
        let old = held.clone().map(|(value, _)| value);
        // The entry behind the operation; a write removes an expired one.
        let (found, entry) = match noise.below(9) {
            0 => (Self::data(self.tree.insert(at, to, expiry).unwrap()), Some((new, expiry))),
            1 => {
                self.tree.upsert(at, to, expiry).unwrap();
                (old.clone(), Some((new, expiry)))
            }
            2 => {
                let found = Self::data(inserted(self.tree.try_insert(at, to, expiry)));
                (found, held.clone().or(Some((new, expiry))))
            }
            3 => {
                let found = Self::data(self.tree.update(at, to, expiry).unwrap());
                (found, held.clone().map(|_| (new, expiry)))
            }
            4 => (Self::data(self.tree.remove(at).unwrap()), None),
            5 => return self.swap(noise, &key, &value, expiry),
            6 => {
                let found = self.tree.set_expiry(at, expiry).unwrap();
                assert_eq!(found, held.as_ref().map(|(_, expiry)| *expiry));
                (old.clone(), old.clone().map(|old| (old, expiry)))
            }
            7 => {
                let later = |is: Expiry| is != Expiry::NEVER && is.as_millis() < expiry.as_millis();
                let found = self.tree.set_expiry_if(at, expiry, later).unwrap();
                assert_eq!(found, held.as_ref().map(|(_, expiry)| *expiry));
                let set = |(value, is)| (value, if later(is) { expiry } else { is });
                (old.clone(), held.clone().map(set))
            }
            _ => return self.take(noise),
        };
        assert_eq!(found, old);
        self.become_entry(&key, entry);
    }

    fn become_entry(&mut self, key: &Owned<T>, entry: Option<(Datum<'static>, Expiry)>) {
        let key_datum = Self::datum(key);
        self.model.remove(&key_datum);
        self.model.extend(entry.map(|entry| (key_datum.clone(), entry)));
        let held = self.model.get(&key_datum).filter(|(_, expiry)| self.is_live(*expiry));
        let at = <T as Key>::lend(key);
        assert_eq!(Self::data(self.tree.get(at).unwrap()), held.map(|(value, _)| value.clone()));
        assert_eq!(self.tree.expiry(at).unwrap(), held.map(|(_, expiry)| *expiry));
        assert_eq!(self.tree.contains_key(at).unwrap(), held.is_some());
        // A value that was shown can be written again.
        let entries = self.tree.entries();
        let shown = self
            .tree
            .get_with(at, |value, expiry| entries.insert(at, Expiring { value, expiry }).unwrap())
            .unwrap()
            .flatten();
        assert_eq!(shown.map(|entry| (Self::datum(&entry.value), entry.expiry)), held.cloned());
    }

    fn swap(&mut self, noise: &mut Noise, key: &Owned<T>, value: &Owned<T>, expiry: Expiry) {
        let entry = self.model.get(&Self::datum(key)).cloned();
        let held = entry.filter(|(_, expiry)| self.is_live(*expiry));
        let old = held.clone().map(|(old, _)| Owned::<T>::try_from(old).unwrap());
        // The current value, or another one, or none.
        let other = Some(value.clone()).filter(|_| noise.below(2) == 0);
        let expected = if noise.below(3) == 0 { other } else { old.clone() };
        let is_wanted = noise.below(3) > 0;
        let wanted = is_wanted.then(|| (<T as Value>::lend(value), expiry));
        let done = self.tree.compare_and_swap(
            <T as Key>::lend(key),
            expected.as_ref().map(<T as Value>::lend),
            wanted,
        );
        let is_equal = Self::data(expected) == Self::data(old.clone());
        let due = if is_equal { Ok(()) } else { Err(Self::data(old)) };
        assert_eq!(swapped(done).map_err(Self::data), due);
        let becomes = is_wanted.then(|| (Self::datum(value), expiry));
        self.become_entry(key, if is_equal { becomes } else { held });
    }

    /// Takes items from the ends, or removes expired entries.
    fn take(&mut self, noise: &mut Noise) {
        let pair = |item: Option<(Owned<T>, Owned<T>)>| item.map(|(k, v)| (Self::datum(&k), Self::datum(&v)));
        match noise.below(4) {
            0 => {
                let first = self.items().next();
                assert_eq!(pair(self.tree.pop_first().unwrap()), first);
                first.map(|(key, _)| self.model.remove(&key));
            }
            1 => {
                let last = self.items().next_back();
                assert_eq!(pair(self.tree.pop_last().unwrap()), last);
                last.map(|(key, _)| self.model.remove(&key));
            }
            _ => self.remove_expired(1 + noise.below(10)),
        }
    }

    /// Removes expired entries in passes of a budget until one reaches the end.
    fn remove_expired(&mut self, budget: u64) {
        let expired = self.model.len() - self.items().count();
        let (mut examined, mut removed) = (0, 0);
        loop {
            // A clone continues where the other handle has ended.
            let pass = self.tree.clone().remove_expired(budget).unwrap();
            assert!(pass.examined <= budget && (pass.is_complete || pass.examined == budget));
            examined += pass.examined;
            removed += pass.removed;
            if pass.is_complete {
                break;
            }
        }
        assert_eq!((examined, removed), (self.model.len() as u64, expired as u64));
        let now = UNIX_EPOCH + Duration::from_millis(self.clock.millis());
        self.model.retain(|_, (_, expiry)| !expiry.is_over(now));
    }

    fn compare(&self, noise: &mut Noise) {
        let items = |from: bristlecone::Result<(Owned<T>, Owned<T>)>| {
            let (key, value) = from.unwrap();
            (Self::datum(&key), Self::datum(&value))
        };
        let pair = |item: Option<(Owned<T>, Owned<T>)>| item.map(|(k, v)| (Self::datum(&k), Self::datum(&v)));
        assert!(self.tree.iter().map(items).eq(self.items()), "{:?}", self.tree);
        assert!(self.tree.iter().rev().map(items).eq(self.items().rev()), "{:?}", self.tree);
        assert_eq!(pair(self.tree.first_key_value().unwrap()), self.items().next());
        assert_eq!(pair(self.tree.last_key_value().unwrap()), self.items().next_back());
        let near = Owned::<T>::sample(noise);
        let (at, key) = (<T as Key>::lend(&near), Self::datum(&near));
        let below = || self.items().filter(|(other, _)| *other < key);
        let above = || self.items().filter(|(other, _)| *other > key);
        let same = || self.items().find(|(other, _)| *other == key);
        assert_eq!(pair(self.tree.get_lt(at).unwrap()), below().next_back());
        assert_eq!(pair(self.tree.get_le(at).unwrap()), same().or_else(|| below().next_back()));
        assert_eq!(pair(self.tree.get_gt(at).unwrap()), above().next());
        assert_eq!(pair(self.tree.get_ge(at).unwrap()), same().or_else(|| above().next()));
        let bounds = (Bound::Excluded(at), Bound::Unbounded);
        assert_eq!(self.tree.count(bounds).unwrap(), above().count() as u64);
        assert!(self.tree.range(..at).map(items).eq(below()));
        assert_eq!(self.tree.len().unwrap(), self.model.len() as u64);
        assert_eq!(self.tree.is_empty().unwrap(), self.model.is_empty());
        assert_eq!(self.tree.entries().check(), []);
    }

    /// Compares the entries as a tree of dynamic kinds has them.
    fn compare_entries(&self, pool: &Pool, name: &str) {
        let tree = pool.dynamic_tree(name).unwrap();
        assert_eq!(tree.value_kind().to_string(), format!("Expiring<{}>", <T as Key>::kind()));
        let entries = tree.range(..).map(Result::unwrap);
        let expected = self
            .model
            .iter()
            .map(|(key, (value, expiry))| (key.clone(), Datum::Expiring(Box::new(value.clone()), *expiry)));
        assert!(entries.eq(expected), "{tree:?}");
    }

    /// Whether the directory has no room for the name of the values' kind.
    fn is_too_long() -> bool {
        <Expiring<T> as Value>::kind().len() > 48
    }

    fn create(pool: &Pool, shape: Configuration, clock: &TestClock, number: usize) -> Option<Self> {
        let created = shape.create::<T, Expiring<T>>(pool, &number.to_string());
        if Self::is_too_long() {
            assert!(matches!(created, Err(Error::TooLong { .. })));
            return None;
        }
        let tree = clock.on(created.unwrap().expiring());
        Some(Self { tree, clock: clock.clone(), model: Model::new() })
    }

    /// Makes operations of all sorts.
    fn run(pool: &Pool, shape: Configuration, clock: &TestClock, number: usize) -> Model {
        let Some(mut twin) = Self::create(pool, shape, clock, number) else { return Model::new() };
        let mut noise = Noise(number as u64 + 1);
        for _ in 0..3 {
            (0..80).for_each(|_| twin.step(&mut noise));
            twin.compare(&mut noise);
            twin.compare_entries(pool, &number.to_string());
        }
        twin.model
    }

    /// Only puts entries.
    fn put(pool: &Pool, shape: Configuration, clock: &TestClock, number: usize) -> Model {
        let Some(mut twin) = Self::create(pool, shape, clock, number) else { return Model::new() };
        let mut noise = Noise(number as u64 + 1);
        for _ in 0..80 {
            let (key, value) = (Owned::<T>::sample(&mut noise), Owned::<T>::sample(&mut noise));
            let expiry = twin.expiry(&mut noise);
            twin.tree.upsert(<T as Key>::lend(&key), <T as Value>::lend(&value), expiry).unwrap();
            twin.become_entry(&key, Some((Self::datum(&value), expiry)));
        }
        twin.compare_entries(pool, &number.to_string());
        twin.model
    }

    fn reopen(
        pool: &Pool,
        shape: Configuration,
        clock: &TestClock,
        number: usize,
        model: Model,
    ) -> Option<Self> {
        if Self::is_too_long() {
            return None;
        }
        let name = number.to_string();
        let tree = clock.on(shape.open::<T, Expiring<T>>(pool, &name).unwrap().expiring());
        let twin = Self { tree, clock: clock.clone(), model };
        twin.compare_entries(pool, &name);
        Some(twin)
    }

    fn run_again(pool: &Pool, shape: Configuration, clock: &TestClock, number: usize, model: Model) {
        let Some(mut twin) = Self::reopen(pool, shape, clock, number, model) else { return };
        twin.compare(&mut Noise(7));
        clock.advance(1000);
        twin.compare(&mut Noise(8));
        twin.remove_expired(7);
        twin.compare(&mut Noise(9));
        assert!(twin.model.values().all(|(_, expiry)| *expiry == Expiry::NEVER));
    }

    fn find(pool: &Pool, shape: Configuration, clock: &TestClock, number: usize, model: Model) {
        Self::reopen(pool, shape, clock, number, model);
    }
}

/// The test of each kind: in a new tree, and in a reopened one.
type Run = (
    fn(&Pool, Configuration, &TestClock, usize) -> Model,
    fn(&Pool, Configuration, &TestClock, usize, Model),
);

macro_rules! kinds {
    ($($type:ty),+ $(,)?) => {
        const KINDS: &[Run] = &[$((Twin::<$type>::put, Twin::<$type>::find)),+];
    };
}

each_kind!(kinds);

macro_rules! models {
    ($($type:ty),+ $(,)?) => {
        const MODELS: &[Run] = &[$((Twin::<$type>::run, Twin::<$type>::run_again)),+];
    };
}

// Words, records of one length or any, and of none. All kinds would take minutes to compile.
models!((), u64, String, &'static [u8], (f64, Option<(bool, Vec<u8>)>));

fn crash_in_every_design(runs: &[Run]) {
    for shape in small() {
        // A few trees per pool: each has its own chunks for records of every size.
        for kinds in runs.chunks(6) {
            let (scratch, clock) = (Scratch::new(), TestClock::new());
            let open = || scratch.options().max_bytes(1 << 30).open(&scratch.0).unwrap();
            let pool = open();
            let models: Vec<_> = kinds
                .iter()
                .enumerate()
                .map(|(number, (run, _))| run(&pool, shape, &clock, number))
                .collect();
            pool.simulate_crash();
            let pool = open();
            for (number, (model, (_, run_again))) in models.into_iter().zip(kinds).enumerate() {
                run_again(&pool, shape, &clock, number, model);
            }
        }
    }
}

#[test]
fn entries_of_every_kind_are_kept_in_every_design() {
    crash_in_every_design(KINDS);
}

#[test]
fn entries_expire_in_every_design() {
    crash_in_every_design(MODELS);
}

#[test]
fn a_renewed_entry_is_never_removed() {
    const KEYS: u64 = 64;
    for shape in small() {
        let (scratch, clock) = (Scratch::new(), TestClock::new());
        let pool = shape.pool(&scratch);
        let tree = clock.on(shape.create::<u64, Expiring<u64>>(&pool, "t").unwrap().expiring());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let remover = scope.spawn(|| {
                let mut removed = 0;
                // The last round leaves entries that have expired.
                while removed == 0 || !is_over.load(Relaxed) {
                    removed += tree.remove_expired(KEYS).unwrap().removed;
                    clock.advance(1);
                }
            });
            for round in 0..200 {
                for key in 0..KEYS {
                    // The entry may have expired, and been removed, in between: but never after it was renewed.
                    tree.upsert(key, round, tree.after(Duration::from_millis(1))).unwrap();
                    tree.upsert(key, round + 1, Expiry::NEVER).unwrap();
                    assert_eq!(tree.get(key).unwrap(), Some(round + 1), "{shape}");
                    tree.set_expiry(key, Expiry::from_millis(1)).unwrap();
                    assert_eq!(tree.get(key).unwrap(), None, "{shape}");
                    tree.try_insert(key, round, Expiry::NEVER).unwrap();
                    assert_eq!(tree.get(key).unwrap(), Some(round), "{shape}");
                    assert_eq!(tree.set_expiry(key, Expiry::from_millis(1)).unwrap(), Some(Expiry::NEVER));
                }
            }
            is_over.store(true, Relaxed);
            remover.join().unwrap();
        });
        // The first of these passes may begin anywhere.
        (0..2).for_each(|_| while !tree.remove_expired(KEYS).unwrap().is_complete {});
        assert!(tree.is_empty().unwrap() && tree.entries().check().is_empty(), "{shape}");
    }
}

#[test]
fn one_of_several_threads_inserts_a_key_that_has_expired() {
    for shape in small() {
        let (scratch, clock) = (Scratch::new(), TestClock::new());
        let pool = shape.pool(&scratch);
        let tree = clock.on(shape.create::<u64, Expiring<&str>>(&pool, "t").unwrap().expiring());
        for key in 0..200 {
            tree.upsert(key, "expired", Expiry::from_millis(1)).unwrap();
        }
        let inserted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for name in ["a", "b", "c"] {
                let (tree, inserted) = (&tree, &inserted);
                scope.spawn(move || {
                    for key in 0..200 {
                        let is_mine = tree.try_insert(key, name, Expiry::NEVER).is_ok();
                        inserted.fetch_add(is_mine.into(), Relaxed);
                    }
                });
            }
        });
        assert_eq!((inserted.load(Relaxed), tree.count(..).unwrap()), (200, 200), "{shape}");
    }
}

#[test]
fn batches_transactions_and_snapshots_have_the_entries() {
    for shape in small() {
        let (scratch, clock) = (Scratch::new(), TestClock::new());
        let pool = shape.pool(&scratch);
        let tree = clock.on(shape.create::<&str, Expiring<u64>>(&pool, "t").unwrap().expiring());
        let mut batch = pool.batch();
        batch.insert(tree.entries(), "a", Expiring::new(1, tree.after(Duration::from_millis(10))));
        batch.insert(tree.entries(), "b", Expiring::new(2, Expiry::NEVER));
        batch.commit().unwrap();
        let snapshot = pool.snapshot().unwrap();
        let in_snapshot = |key| tree.live(snapshot.tree(tree.entries()).get(key).unwrap());
        assert_eq!((tree.get("a").unwrap(), in_snapshot("a"), in_snapshot("b")), (Some(1), Some(1), Some(2)));
        clock.advance(10);
        let count = |key: &'static str| {
            pool.transaction(|tx| {
                let count = tree.live(tx.get(tree.entries(), key)?).unwrap_or(0) + 1;
                tx.insert(tree.entries(), key, Expiring::new(count, Expiry::NEVER))?;
                Ok(count)
            })
        };
        assert_eq!((in_snapshot("a"), tree.get("a").unwrap()), (None, None), "{shape}");
        assert_eq!((count("a").unwrap(), count("a").unwrap(), count("b").unwrap()), (1, 2, 3), "{shape}");
        assert_eq!(tree.remove_expired(10).unwrap().removed, 0, "{shape}");
        assert_eq!((in_snapshot("b"), tree.get("b").unwrap()), (Some(2), Some(3)), "{shape}");
    }
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn copies_journals_archives_and_standbys_have_the_times() {
    for shape in small() {
        let scratch = Scratch::new();
        let folder = Folder(scratch.0.with_extension("files"));
        std::fs::create_dir(&folder.0).unwrap();
        let at = |name: &str| folder.0.join(name);
        let options = || Pool::options().max_bytes(1 << 30).domain(Domain::Journal).recovery_threads(1);
        let clock = TestClock::new();
        let pool = options().create(true).open(at("p")).unwrap();
        let tree = clock.on(shape.create::<u64, Expiring<u64>>(&pool, "t").unwrap().expiring());
        let expiry = |key: u64| Expiry::from_millis(if key.is_multiple_of(3) { 0 } else { 1000 + key });
        (0..60).for_each(|key| tree.upsert(key, key * key, expiry(key)).unwrap());
        clock.advance(20);
        assert_eq!(tree.remove_expired(1000).unwrap().removed, 14);
        let lsn = pool.journal_status().unwrap().unwrap().lsn;
        clock.advance(20);
        assert_eq!(tree.remove_expired(1000).unwrap().removed, 13);
        let entries = |pool: &Pool| {
            let tree = pool.tree::<u64, Expiring<u64>>("t").unwrap();
            assert!(tree.check().is_empty(), "{shape}");
            tree.iter().map(Result::unwrap).collect::<Vec<_>>()
        };
        let expected = |removed: u64| {
            let kept = (0..60).filter(|key| key % 3 == 0 || *key > removed);
            kept.map(|key| (key, Expiring::new(key * key, expiry(key)))).collect::<Vec<_>>()
        };
        assert_eq!(entries(&pool), expected(40), "{shape}");
        let follower = Pool::follow(at("p")).unwrap();
        let followed = clock.on(follower.tree::<u64, Expiring<u64>>("t").unwrap().expiring());
        assert_eq!((followed.get(40).unwrap(), followed.get(41).unwrap()), (None, Some(41 * 41)), "{shape}");
        assert!(matches!(followed.remove_expired(1), Err(Error::ReadOnly)), "{shape}");
        drop((followed, follower));
        let put = |changed: Changed| match changed {
            Changed::Put { value, .. } => Some(Expiring::<u64>::try_from(value).unwrap()),
            _ => None,
        };
        let entries_of_stream: Vec<_> = pool
            .changes(0)
            .unwrap()
            .flat_map(|entry| entry.unwrap().changes().unwrap().collect::<Vec<_>>())
            .filter_map(|change| put(change.unwrap().change))
            .collect();
        assert_eq!(
            entries_of_stream,
            (0..60).map(|key| Expiring::new(key * key, expiry(key))).collect::<Vec<_>>()
        );
        pool.backup(at("copy"), bristlecone::BackupOptions::new().domain(Domain::Process)).unwrap();
        assert_eq!(entries(&Pool::open(at("copy")).unwrap()), expected(40), "{shape}");
        pool.archive(at("a")).unwrap().copy().unwrap();
        for (name, to, removed) in [("r1", RestoreTo::Lsn(lsn), 20), ("r2", RestoreTo::End, 40)] {
            options().restore(at(name), at("a"), to).unwrap();
            assert_eq!(entries(&options().open(at(name)).unwrap()), expected(removed), "{shape}");
        }
        let mut standby = Standby::open(at("s"), at("a")).unwrap();
        standby.poll().unwrap();
        assert_eq!(entries(&Pool::follow(at("s")).unwrap()), expected(40), "{shape}");
        standby.close().unwrap();
        drop(tree);
        pool.simulate_crash();
        assert_eq!(entries(&options().open(at("p")).unwrap()), expected(40), "{shape}");
    }
}

#[test]
fn limits_types_and_read_only_pools_are_refused() {
    for shape in small() {
        let scratch = Scratch::new();
        let pool = shape.pool(&scratch);
        let tree = shape.create::<u64, Expiring<&[u8]>>(&pool, "t").unwrap().expiring();
        let long = vec![7; VALUE_BYTES_MAX - 8];
        tree.insert(1, &long, Expiry::NEVER).unwrap();
        tree.insert(2, b"", Expiry::NEVER).unwrap();
        assert_eq!(tree.get(1).unwrap().unwrap().len(), VALUE_BYTES_MAX - 8, "{shape}");
        let longer = vec![7; VALUE_BYTES_MAX - 7];
        assert!(matches!(tree.upsert(1, &longer, Expiry::NEVER), Err(Error::TooLong { .. })), "{shape}");
        for key in [1, 3] {
            let updated = tree.update(key, &longer, Expiry::NEVER);
            assert!(matches!(updated, Err(Error::TooLong { .. })), "{shape}");
        }
        assert!(matches!(pool.tree::<u64, &[u8]>("t"), Err(Error::Mismatch { .. })), "{shape}");
        assert!(matches!(pool.tree::<u64, Expiring<&str>>("t"), Err(Error::Mismatch { .. })), "{shape}");
        drop(tree);
        pool.close().unwrap();
        let pool = Pool::options().read_only(true).open(&scratch.0).unwrap();
        let tree = pool.tree::<u64, Expiring<&[u8]>>("t").unwrap().expiring();
        assert_eq!(tree.get(2).unwrap(), Some(Vec::new()), "{shape}");
        let refused = [
            tree.try_insert(2, b"", Expiry::NEVER).map_err(Error::from),
            tree.compare_and_swap(2, None, None).map_err(Error::from),
            tree.set_expiry(2, Expiry::NEVER).map(drop),
            tree.pop_first().map(drop),
            tree.remove_expired(1).map(drop),
        ];
        assert!(refused.into_iter().all(|done| matches!(done, Err(Error::ReadOnly))), "{shape}");
    }
}
