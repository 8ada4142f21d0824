//! A store under measurement, and the implementation for trees.

use std::path::Path;
use std::time::{Duration, Instant};

use bristlecone::{
    Domain, Error, Key, Medium, Native, Pool, PoolInfo, PoolOptions, Snapshot, Tree, TreeStats, Value,
};
use bristlecone_baselines::AnyDesign;
use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::scratch::Scratch;

use super::data::{BenchKey, BenchValue, Buffer};
use super::workload::{Op, ScanLength};

/// The measured operations.
pub trait Subject<K: BenchKey, V: BenchValue>: Sync {
    /// Sets a value, whether or not the key exists.
    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<(), Error>;
    /// Sets the value of an absent key; returns whether it was absent.
    fn insert_new(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error>;
    /// Replaces the value of a key; returns whether it existed.
    fn update(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<bool, Error>;
    /// Returns the result of `look` on the value of a key, if it exists.
    fn get<R>(&self, key: K::Ref<'_>, look: impl Fn(V::Ref<'_>) -> R) -> Result<Option<R>, Error>;
    /// Removes a key; returns whether it existed.
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error>;
    /// Reads `length` entries from `from` on, and returns their number.
    fn scan(
        &self,
        from: K::Ref<'_>,
        length: usize,
        each: impl FnMut(K::Ref<'_>, V::Ref<'_>),
    ) -> Result<usize, Error>;

    /// Passes the results of `look` on the values of existing keys to `each`; a store without such a call reads one
    /// by one. The next functions do likewise.
    fn get_many<R>(
        &self,
        keys: &[K::Ref<'_>],
        look: impl Fn(usize, V::Ref<'_>) -> R,
        mut each: impl FnMut(R),
    ) -> Result<(), Error> {
        for (at, key) in keys.iter().enumerate() {
            self.get(*key, |value| look(at, value))?.into_iter().for_each(&mut each);
        }
        Ok(())
    }
    /// Sets values, and reads the previous ones.
    fn insert_many(&self, items: &[Pair<'_, K, V>]) -> Result<(), Error> {
        self.upsert_many(items)
    }
    /// Sets values, whether or not the keys exist.
    fn upsert_many(&self, items: &[Pair<'_, K, V>]) -> Result<(), Error> {
        items.iter().try_for_each(|(key, value)| self.upsert(*key, *value))
    }
    /// Removes keys, and returns how many existed.
    fn remove_many(&self, keys: &[K::Ref<'_>]) -> Result<u64, Error> {
        keys.iter().try_fold(0, |found, key| Ok(found + u64::from(self.remove(*key)?)))
    }
}

/// A key and a value to be written.
pub type Pair<'a, K, V> = (<K as Key>::Ref<'a>, <V as Value>::Ref<'a>);

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It found its key. The word is its read: the first word of a value, or the number of a scan's entries.
    Found(u64),
    /// Its key was absent, or for `insert_new` existed.
    Absent,
    /// It read a value of another key, or a scan read entries out of order.
    Wrong,
}

impl Answer {
    #[inline(always)]
    fn of(found: bool) -> Self {
        if found { Self::Found(0) } else { Self::Absent }
    }
}

/// Executes one operation on the key of this identity. Writes the key's first value if the key is new, otherwise its
/// value of this version. Verifies everything it reads.
#[inline(always)]
pub fn operate<K: BenchKey, V: BenchValue>(
    subject: &impl Subject<K, V>,
    op: Op,
    (id, version): (u64, u64),
    scan: ScanLength,
    (key, value): (&mut Buffer, &mut Buffer),
) -> Result<Answer, Error> {
    let key = K::make(id, key);
    match op {
        Op::Insert => subject.upsert(key, V::make(id, 0, value)).map(|()| Answer::Found(0)),
        Op::InsertNew => subject.insert_new(key, V::make(id, 0, value)).map(Answer::of),
        Op::Get => get(subject, key, id, value),
        Op::Update => subject.update(key, V::make(id, version, value)).map(Answer::of),
        Op::Upsert => subject.upsert(key, V::make(id, version, value)).map(|()| Answer::Found(0)),
        Op::Remove => subject.remove(key).map(Answer::of),
        Op::Scan => scanned(subject, key, (id, scan.of(id)), value),
        Op::ReadModifyWrite => Ok(match get(subject, key, id, value)? {
            Answer::Found(read) if subject.update(key, V::make(id, version, value))? => Answer::Found(read),
            Answer::Found(_) => Answer::Absent,
            other => other,
        }),
        // A group of one key suffices where operations are counted one by one.
        Op::GetMany => {
            let mut answer = Answer::Absent;
            subject.get_many(&[key], |_, got| look::<V>(got, id, value), |read| answer = read)?;
            Ok(answer)
        }
        Op::InsertMany => subject.insert_many(&[(key, V::make(id, 0, value))]).map(|()| Answer::Found(0)),
        Op::UpsertMany => {
            subject.upsert_many(&[(key, V::make(id, version, value))]).map(|()| Answer::Found(0))
        }
        Op::RemoveMany => Ok(Answer::of(subject.remove_many(&[key])? > 0)),
    }
}

/// Verifies that a value belongs to the key of this identity.
#[inline(always)]
pub fn look<V: BenchValue>(value: V::Ref<'_>, id: u64, buffer: &Buffer) -> Answer {
    if V::is_of(value, id, buffer) { Answer::Found(V::word(value)) } else { Answer::Wrong }
}

#[inline(always)]
fn get<K: BenchKey, V: BenchValue>(
    subject: &impl Subject<K, V>,
    key: K::Ref<'_>,
    id: u64,
    buffer: &Buffer,
) -> Result<Answer, Error> {
    Ok(subject.get(key, |value| look::<V>(value, id, buffer))?.unwrap_or(Answer::Absent))
}

#[inline(always)]
fn scanned<K: BenchKey, V: BenchValue>(
    subject: &impl Subject<K, V>,
    from: K::Ref<'_>,
    (id, length): (u64, usize),
    buffer: &Buffer,
) -> Result<Answer, Error> {
    let (mut right, mut next) = (true, id);
    let seen = subject.scan(from, length, |key, value| {
        let at = K::id(key);
        right &= at >= next && V::is_of(value, at, buffer);
        next = at.saturating_add(1);
    })?;
    Ok(match seen {
        0 => Answer::Absent,
        _ if right && seen <= length => Answer::Found(seen as u64),
        _ => Answer::Wrong,
    })
}

/// Parameters of the tree under measurement.
#[derive(Clone, Debug)]
pub struct Setup {
    pub design: AnyDesign,
    pub options: Vec<(String, u64)>,
    pub domain: Option<Domain>,
    /// Delay of every flushed line.
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

/// A tree in its own pool.
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

    /// Creates a pool and a tree of another design, in an unnamed file.
    pub fn beside(setup: &Setup, scratch: &Scratch) -> Outcome<Self> {
        let path = scratch.path().with_extension(format!("{}.pool", setup.design));
        let pool = Self::pool(setup, &path)?;
        std::fs::remove_file(&path).map_err(|error| Failure::io(path.display(), &error))?;
        Self::with_tree(pool, setup)
    }

    /// Follows the pool like another process: its writer is the store that was created there.
    pub fn followed(scratch: &Scratch) -> Outcome<Self> {
        let pool = Pool::follow(scratch.path())?;
        Ok(Self { tree: pool.tree(TREE)?, pool })
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

    /// Drops everything as by a crash and reopens it; returns how long that took. Every key must exist afterwards.
    pub fn recover(self, setup: &Setup, scratch: &Scratch) -> Outcome<(Self, Duration)> {
        let Self { tree, pool } = self;
        let (items, domain) = (tree.len()?, pool.info().domain);
        drop(tree);
        pool.simulate_crash();
        let started = Instant::now();
        let options = Pool::options().domain(domain).recovery_threads(setup.recovery_threads);
        let pool = setup.open(&options, scratch.path())?;
        let tree = setup.design.open::<_, _, Native>(&pool, TREE)?;
        let took = started.elapsed();
        if tree.len()? != items {
            let what = format!("recovery found {} of {items} entries: see `bristlecone check`", tree.len()?);
            return Err(Failure::new(Exit::Failed, what));
        }
        Ok((Self { tree, pool }, took))
    }

    /// Creates the tree in a pool on a medium.
    pub fn within<M: Medium>(pool: Pool, design: AnyDesign, options: &[(String, u64)]) -> Outcome<Self> {
        Ok(Self { tree: design.create::<_, _, M>(&pool, TREE, options)?, pool })
    }

    /// Takes a snapshot of the pool.
    pub fn snapshot(&self) -> Outcome<Snapshot> {
        Ok(self.pool.snapshot()?)
    }

    /// Returns the tree's space usage.
    pub fn stats(&self) -> Outcome<TreeStats> {
        Ok(self.tree.stats()?)
    }

    /// Returns information about the pool.
    pub fn info(&self) -> PoolInfo {
        self.pool.info()
    }

    /// Returns how many bytes of the pool huge pages map.
    pub fn huge_bytes(&self) -> u64 {
        self.pool.huge_bytes()
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
    fn get<R>(&self, key: K::Ref<'_>, look: impl Fn(V::Ref<'_>) -> R) -> Result<Option<R>, Error> {
        self.tree.get_with(key, look)
    }

    #[inline]
    fn remove(&self, key: K::Ref<'_>) -> Result<bool, Error> {
        Ok(self.tree.remove(key)?.is_some())
    }

    #[inline]
    fn scan(
        &self,
        from: K::Ref<'_>,
        length: usize,
        mut each: impl FnMut(K::Ref<'_>, V::Ref<'_>),
    ) -> Result<usize, Error> {
        let mut entries = self.tree.range(from..).take(length);
        entries.try_fold(0, |count, item| {
            let (key, value) = item?;
            each(<K as Key>::lend(&key), <V as Value>::lend(&value));
            Ok(count + 1)
        })
    }

    #[inline]
    fn get_many<R>(
        &self,
        keys: &[K::Ref<'_>],
        look: impl Fn(usize, V::Ref<'_>) -> R,
        mut each: impl FnMut(R),
    ) -> Result<(), Error> {
        self.tree.get_many_with(keys, |at, value| each(look(at, value)))?;
        Ok(())
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
