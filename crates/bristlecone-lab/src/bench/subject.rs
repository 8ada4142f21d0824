//! A store under measurement, and the trees among them.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use bristlecone::{Domain, Error, Key, Medium, Native, Pool, PoolInfo, PoolOptions, Tree, TreeStats, Value};
use bristlecone_baselines::AnyDesign;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::scratch::Scratch;

use super::data::{BenchKey, BenchValue, Buffer};
use super::workload::{Op, ScanLength};

/// Operations as they are measured. Each returns whether it found its key.
pub trait Subject<K: BenchKey, V: BenchValue>: Sync {
    /// Sets a value, whatever was there.
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error>;
    /// Sets the value of a key that has none.
    fn insert_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error>;
    /// Replaces the value of a key.
    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error>;
    /// Reads the value of a key.
    fn get(&self, key: K::Ref<'_>) -> bool;
    /// Removes a key.
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error>;
    /// Reads `length` entries from `from` on, and returns how many there were.
    fn scan(&self, from: K::Ref<'_>, length: usize) -> usize;

    /// Reads the values of keys, and returns how many there were; a store that has no such call reads one by one. So in
    /// the next ones.
    fn get_many(&self, keys: &[K::Ref<'_>]) -> u64 {
        keys.iter().map(|key| u64::from(self.get(*key))).sum()
    }
    /// Sets values, and asks for those that were there.
    fn insert_many(&self, items: &[Pair<'_, K, V>]) -> Result<(), Error> {
        self.upsert_many(items)
    }
    /// Sets values, whatever was there.
    fn upsert_many(&self, items: &[Pair<'_, K, V>]) -> Result<(), Error> {
        items.iter().try_for_each(|(key, value)| self.upsert(*key, *value))
    }
    /// Removes keys, and returns how many there were.
    fn remove_many(&self, keys: &[K::Ref<'_>]) -> Result<u64, Error> {
        keys.iter().try_fold(0, |found, key| Ok(found + u64::from(self.remove(*key)?)))
    }
}

/// A key and a value on their way into a store.
pub type Pair<'a, K, V> = (<K as Key>::Ref<'a>, <V as Value>::Ref<'a>);

/// Does one operation on the key of this identity; values are made from `id` where the key is
/// new, from `written` where it is not.
#[inline(always)]
pub fn operate<K: BenchKey, V: BenchValue>(
    subject: &impl Subject<K, V>,
    op: Op,
    (id, written): (u64, u64),
    scan: ScanLength,
    (key, value): (&mut Buffer, &mut Buffer),
) -> Result<bool, Error> {
    let key = K::make(id, key);
    match op {
        Op::Insert => subject.upsert(key, V::make(id, value)).map(|()| true),
        Op::InsertNew => subject.insert_new(key, V::make(id, value)),
        Op::Get => Ok(subject.get(key)),
        Op::Update => subject.update(key, V::make(written, value)),
        Op::Upsert => subject.upsert(key, V::make(written, value)).map(|()| true),
        Op::Remove => subject.remove(key),
        Op::Scan => Ok(subject.scan(key, scan.of(id)) > 0),
        Op::ReadModifyWrite => Ok(subject.get(key) & subject.update(key, V::make(written, value))?),
        // One key is many enough where operations are counted one by one.
        Op::GetMany => Ok(subject.get_many(&[key]) > 0),
        Op::InsertMany => subject.insert_many(&[(key, V::make(id, value))]).map(|()| true),
        Op::UpsertMany => subject.upsert_many(&[(key, V::make(written, value))]).map(|()| true),
        Op::RemoveMany => Ok(subject.remove_many(&[key])? > 0),
    }
}

/// What the tree under measurement is.
#[derive(Clone, Debug)]
pub struct Setup {
    pub design: AnyDesign,
    pub options: Vec<(String, u64)>,
    pub domain: Option<Domain>,
    /// What every flushed line takes longer.
    pub delay: Option<Duration>,
    pub max_bytes: u64,
    pub prefault: Option<u64>,
    pub recovery_threads: usize,
}

impl Setup {
    fn open(&self, options: &PoolOptions, path: &Path) -> Outcome<Pool> {
        Ok(match self.delay {
            None => options.open(path)?,
            Some(delay) => options.open_delayed(path, delay)?,
        })
    }
}

/// A tree in a pool of its own.
pub struct TreeStore<K: BenchKey, V: BenchValue> {
    tree: Tree<K, V>,
    pool: Pool,
}

const TREE: &str = "bench";

impl<K: BenchKey, V: BenchValue> TreeStore<K, V> {
    /// Creates the pool and the tree.
    pub fn create(setup: &Setup, scratch: &Scratch) -> Outcome<Self> {
        let pool = Self::pool(setup, scratch.path())?;
        scratch.created();
        Self::with_tree(pool, setup)
    }

    /// Creates a pool and a tree of another design, in a file without a name.
    pub fn beside(setup: &Setup, scratch: &Scratch) -> Outcome<Self> {
        let path = scratch.path().with_extension(format!("{}.pool", setup.design));
        let pool = Self::pool(setup, &path)?;
        std::fs::remove_file(&path).map_err(|error| Failure::io(path.display(), &error))?;
        Self::with_tree(pool, setup)
    }

    fn pool(setup: &Setup, path: &Path) -> Outcome<Pool> {
        let mut options = Pool::options().max_bytes(setup.max_bytes).create_new(true);
        if let Some(domain) = setup.domain {
            options = options.domain(domain);
        }
        setup.open(&options, path)
    }

    fn with_tree(pool: Pool, setup: &Setup) -> Outcome<Self> {
        if let Some(bytes) = setup.prefault {
            pool.prefault(bytes)?;
        }
        Self::within::<Native>(pool, setup.design, &setup.options)
    }

    /// Drops everything as a crash would and opens it again; returns how long that took. Every key
    /// must be there afterwards.
    pub fn recover(self, setup: &Setup, scratch: &Scratch) -> Outcome<(Self, Duration)> {
        let Self { tree, pool } = self;
        let (items, domain) = (tree.len(), pool.info().domain);
        drop(tree);
        pool.simulate_crash();
        let started = Instant::now();
        let options = Pool::options().domain(domain).recovery_threads(setup.recovery_threads);
        let pool = setup.open(&options, scratch.path())?;
        let tree = setup.design.open::<_, _, Native>(&pool, TREE)?;
        let took = started.elapsed();
        if tree.len() != items {
            let what = format!("recovery found {} of {items} entries: see `bristlecone check`", tree.len());
            return Err(Failure::new(Exit::Failed, what));
        }
        Ok((Self { tree, pool }, took))
    }

    /// Creates the tree in a pool on a medium.
    pub fn within<M: Medium>(pool: Pool, design: AnyDesign, options: &[(String, u64)]) -> Outcome<Self> {
        Ok(Self { tree: design.create::<_, _, M>(&pool, TREE, options)?, pool })
    }

    /// Returns what the tree occupies.
    pub fn stats(&self) -> TreeStats {
        self.tree.stats()
    }

    /// Returns what the pool is.
    pub fn info(&self) -> PoolInfo {
        self.pool.info()
    }
}

impl<K: BenchKey, V: BenchValue> Subject<K, V> for TreeStore<K, V> {
    #[inline]
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error> {
        self.tree.upsert(key, value)
    }

    #[inline]
    fn insert_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        match self.tree.try_insert(key, value) {
            Ok(()) => Ok(true),
            Err(present) => present.into_present().map(|_| false),
        }
    }

    #[inline]
    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error> {
        Ok(self.tree.update(key, value)?.is_some())
    }

    #[inline]
    fn get(&self, key: K::Ref<'_>) -> bool {
        self.tree.get_with(key, |value| black_box(V::touch(value))).is_some()
    }

    #[inline]
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.tree.remove(key)?.is_some())
    }

    #[inline]
    fn scan(&self, from: K::Ref<'_>, length: usize) -> usize {
        self.tree.range(from..).take(length).map(black_box).count()
    }

    #[inline]
    fn get_many(&self, keys: &[K::Ref<'_>]) -> u64 {
        let mut found = 0;
        self.tree.get_many_with(keys, |_, value| {
            found += 1;
            _ = black_box(V::touch(value));
        });
        found
    }

    #[inline]
    fn insert_many(&self, items: &[Pair<'_, K, V>]) -> Result<(), Error> {
        Ok(self.tree.insert_many(items, &mut Vec::new())?)
    }

    #[inline]
    fn upsert_many(&self, items: &[Pair<'_, K, V>]) -> Result<(), Error> {
        Ok(self.tree.upsert_many(items)?)
    }

    #[inline]
    fn remove_many(&self, keys: &[K::Ref<'_>]) -> Result<u64, Error> {
        let mut old = Vec::new();
        self.tree.remove_many(keys, &mut old)?;
        Ok(old.iter().filter(|old| old.is_some()).count() as u64)
    }
}
