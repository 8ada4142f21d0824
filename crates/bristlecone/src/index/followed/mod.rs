//! Trees of a pool that another process writes to. Each lookup and scan uses the code of the design, between an
//! announcement and a validation.
//!
//! 1. The thread announces the lookup: from now on, the writer does not reuse what it removes from the tree. The tree
//!    is still the writer's.
//! 2. It reads, and copies the results.
//! 3. It validates the lookup: the writer still respects the announcement, is alive, and has the same tree open.
//!    Otherwise it repeats the lookup on the state of the same writer, or of a new one.

pub mod pool;

use std::ops::Bound;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bristlecone_pm::sync::{AsymmetricFence, wait::lock};
use bristlecone_pm::{
    At, Error, Issue, Nameless, Native, Opener, Part, PoolFile, Result, TreeEntry, own_thread_index,
};

use crate::index::of_keys::Shared;
use crate::index::parts::active_threads::ActiveThreads;
use crate::index::parts::codec::{KeyCodec, Storage};
use crate::index::table::{follow, part_of};
use crate::index::{
    Batch, Described, Form, Index, Inspect, Read, Scan, Swapped, TreeStats, Write, WriteMode,
};

/// Where a followed pool is.
#[derive(Debug)]
pub enum Place {
    Path(PathBuf),
    /// Descriptors of the pool and of its index.
    Descriptors([OwnedFd; 2]),
}

impl Place {
    fn follow(&self, leave_sigbus: bool, build: u64) -> Result<Arc<PoolFile<Native>>> {
        match self {
            Self::Path(path) => {
                let at = if leave_sigbus { At::unhandled(path) } else { At::from(path) };
                PoolFile::follow(at, build, Native::new)
            }
            Self::Descriptors([pool, index]) => {
                let pool = Nameless::followed(pool.as_fd())?;
                let index = pool.followed_index(index.as_fd())?;
                PoolFile::follow_nameless((pool, index), !leave_sigbus, build, Native::new)
            }
        }
    }

    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Path(path) => Some(path.clone()),
            Self::Descriptors(_) => None,
        }
    }
}

/// A followed pool, whose writer may be replaced by another process.
#[derive(Debug)]
pub struct Source {
    place: Place,
    leave_sigbus: bool,
    build: u64,
    opener: Opener,
    pool: Mutex<Arc<PoolFile<Native>>>,
    /// Threads that read an attached tree.
    readers: ActiveThreads,
}

impl Source {
    /// Attaches to the writer of a pool.
    ///
    /// # Errors
    ///
    /// Same as [`PoolFile::follow`].
    pub fn attach(place: Place, leave_sigbus: bool, build: u64) -> Result<Arc<Self>> {
        let pool = place.follow(leave_sigbus, build)?;
        let readers = ActiveThreads::new(AsymmetricFence::detect());
        let opener = *pool.opener();
        Ok(Arc::new(Self { place, leave_sigbus, build, opener, pool: Mutex::new(pool), readers }))
    }

    /// Returns the process that attached.
    pub fn opener(&self) -> Opener {
        self.opener
    }

    /// Closes the pool's file in a forked child, like [`PoolFile::abandon`], unless a thread held the lock at the
    /// fork.
    pub fn abandon(&self) {
        if let Ok(pool) = self.pool.try_lock() {
            pool.abandon();
        }
    }

    /// Returns the pool as it was last attached.
    pub fn pool(&self) -> Arc<PoolFile<Native>> {
        Arc::clone(&lock(&self.pool))
    }

    /// Returns whether the calling process is the one that attached. Takes no lock, because it may have been held at
    /// a fork.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`].
    pub fn here(&self) -> Result<()> {
        let forked = || Error::Forked { path: self.place.path(), pid: self.opener.pid() };
        if self.opener.is_here() { Ok(()) } else { Err(forked()) }
    }

    /// Returns the pool with a live writer: the previous one, or a new one.
    ///
    /// # Errors
    ///
    /// Same as [`PoolFile::follow`], and [`Error::Forked`].
    pub fn current(&self) -> Result<Arc<PoolFile<Native>>> {
        self.here()?;
        let mut pool = lock(&self.pool);
        if !pool.has_writer() {
            *pool = self.place.follow(self.leave_sigbus, self.build)?;
        }
        Ok(Arc::clone(&pool))
    }
}

/// A tree as shared by the writer.
struct Attached<K: KeyCodec, V: Storage> {
    pool: Arc<PoolFile<Native>>,
    entry: TreeEntry,
    /// The state number of the tree's shared directory page.
    number: u64,
    /// A sequence number among all states that this process attached to.
    state: u64,
    tree: Shared<K, V>,
}

impl<K: KeyCodec, V: Storage> Attached<K, V> {
    /// Opens the tree of this name, types and design as shared by the writer.
    fn find(pool: Arc<PoolFile<Native>>, like: &TreeEntry) -> Result<Self> {
        let name = &like.spec.name;
        let found = pool.find_tree(name)?.ok_or_else(|| Error::NoSuchTree { name: name.clone() })?;
        let kinds = |entry: &TreeEntry| [entry.spec.key_kind.clone(), entry.spec.value_kind.clone()];
        if kinds(&found) != kinds(like) {
            let [found, asked] = [&found, like].map(|entry| kinds(entry).join(", "));
            return Err(Error::Mismatch { name: name.clone(), what: "types", found, asked });
        }
        let not_open = || Error::NoWriter {
            path: pool.info().path.unwrap_or_else(|| "the pool".into()),
            why: format!("the writer does not have tree {name:?} open"),
        };
        let described = Described { entry: &found, values: Form::of::<V>() };
        let (number, tree) = follow::<K, Native>(&pool, described)?.ok_or_else(not_open)?;
        let tree = tree.typed().expect("a tree has values of the form that it is opened with");
        static STATES: AtomicU64 = AtomicU64::new(1);
        let state = STATES.fetch_add(1, Relaxed);
        Ok(Self { pool, entry: found, number, state, tree })
    }
}

/// A tree of a followed pool. See the module.
pub struct Followed<K: KeyCodec, V: Storage> {
    source: Arc<Source>,
    /// From [`Box::into_raw`]. Replaced with the lock below; the old one is dropped when no reader may use it.
    attached: AtomicPtr<Attached<K, V>>,
    attaching: Mutex<()>,
}

impl<K: KeyCodec, V: Storage> Drop for Followed<K, V> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and no reader is left.
        drop(unsafe { Box::from_raw(*self.attached.get_mut()) });
    }
}

impl<K: KeyCodec, V: Storage> Followed<K, V> {
    /// Opens the tree of an entry.
    ///
    /// # Errors
    ///
    /// [`Error::NoWriter`] if the writer does not have it open; errors of [`Source::current`].
    pub fn open(source: &Arc<Source>, entry: &TreeEntry) -> Result<Self> {
        let attached = Box::into_raw(Box::new(Attached::find(source.current()?, entry)?));
        Ok(Self {
            source: Arc::clone(source),
            attached: AtomicPtr::new(attached),
            attaching: Mutex::default(),
        })
    }

    /// Calls `ask` with the attached tree.
    #[inline(always)]
    fn with_attached<R>(&self, thread: Option<usize>, ask: impl FnOnce(&Attached<K, V>) -> R) -> R {
        let _entered = self.source.readers.enter_as(thread);
        // SAFETY: from `Box::into_raw`. The thread that replaces it waits for the readers that may have seen it
        // before it drops it, and a reader that enters later sees the new one.
        ask(unsafe { &*self.attached.load(Acquire) })
    }

    /// Repeats a lookup until it is valid.
    #[inline(always)]
    fn read<R>(&self, mut look: impl FnMut(&Attached<K, V>) -> R) -> Result<R> {
        let thread = own_thread_index();
        loop {
            let seen = self.with_attached(thread, |attached| {
                let Attached { pool, entry, number, .. } = attached;
                if self.source.opener.is_here() {
                    pool.look(thread, (entry.id, *number), || look(attached))
                } else {
                    None
                }
            });
            match seen {
                Some(seen) => return Ok(seen),
                None => self.attach_again()?,
            }
        }
    }

    /// Ensures that a current tree is attached; the attached one may still be current if only the thread was too
    /// slow. Returns an error in a forked child.
    #[cold]
    fn attach_again(&self) -> Result<()> {
        let pool = self.source.current()?;
        let _attaching = lock(&self.attaching);
        // SAFETY: from `Box::into_raw`, and replaced only with the lock.
        let attached = unsafe { &*self.attached.load(Acquire) };
        let is_same = Arc::ptr_eq(&pool, &attached.pool);
        if !(is_same && pool.follower().shows(attached.entry.id.0, attached.number)) {
            let found = Box::into_raw(Box::new(Attached::find(pool, &attached.entry)?));
            let old = self.attached.swap(found, AcqRel);
            self.source.readers.wait();
            // SAFETY: from `Box::into_raw`, and no reader uses it any more.
            drop(unsafe { Box::from_raw(old) });
        }
        Ok(())
    }

    /// Returns the value of a key.
    #[inline(always)]
    fn find(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.read(|attached| attached.tree.get_owned(key))?
    }

    /// Scans once: `into` continues at its position, or fails. A position in another state of the tree is ignored,
    /// and the scan restarts at its bounds.
    fn scan(
        &self,
        into: &mut Batch<K, V>,
        scan: impl Fn(&dyn Index<K, V>, &mut Batch<K, V>) -> bool,
    ) -> bool {
        let begin_again = |into: &mut Batch<K, V>, state| {
            *into = Batch { lenient: into.lenient, state, ..Batch::default() }
        };
        let mut is_first = true;
        let scanned = self.read(|attached| {
            if !std::mem::take(&mut is_first) || into.state != attached.state {
                begin_again(into, attached.state);
            }
            scan(&*attached.tree, into)
        });
        scanned.unwrap_or_else(|error| {
            begin_again(into, 0);
            into.fail(error)
        })
    }
}

impl<K: KeyCodec, V: Storage> Read<K, V> for Followed<K, V> {
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> Result<bool> {
        Ok(self.find(key)?.inspect(|value| show(V::borrow(value))).is_some())
    }

    fn get_many(&self, keys: &[K::Ref<'_>], show: &mut dyn FnMut(usize, V::Ref<'_>)) -> Result<()> {
        let found = self.read(|attached| {
            let mut found = Vec::with_capacity(keys.len());
            let looked = attached.tree.get_many(keys, &mut |at, value| found.push((at, V::owned(value))));
            looked.map(|()| found)
        })??;
        found.iter().for_each(|(at, value)| show(*at, V::borrow(value)));
        Ok(())
    }
}

impl<K: KeyCodec, V: Storage> Scan<K, V> for Followed<K, V> {
    fn scan_forward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        self.scan(into, |tree, batch| tree.scan_forward(bounds, batch))
    }

    fn scan_backward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        self.scan(into, |tree, batch| tree.scan_backward(bounds, batch))
    }
}

impl<K: KeyCodec, V: Storage> Write<K, V> for Followed<K, V> {
    fn write(&self, _: K::Ref<'_>, _: V::Ref<'_>, _: WriteMode) -> Result<Option<V::Owned>> {
        Err(Error::ReadOnly)
    }

    fn remove(&self, _: K::Ref<'_>) -> Result<Option<V::Owned>> {
        Err(Error::ReadOnly)
    }

    fn remove_if(&self, _: K::Ref<'_>, _: V::Ref<'_>) -> Result<Swapped<V>> {
        Err(Error::ReadOnly)
    }

    fn compare_and_swap(&self, _: K::Ref<'_>, _: V::Ref<'_>, _: V::Ref<'_>) -> Result<Swapped<V>> {
        Err(Error::ReadOnly)
    }
}

impl<K: KeyCodec, V: Storage> Inspect for Followed<K, V> {
    /// Returns the writer's count, or counts the readable items if the writer has not counted them.
    fn len(&self) -> Result<u64> {
        let walked = || match self.walk(|_| {}) {
            (items, None) => Ok(items),
            (_, Some(error)) => Err(error),
        };
        let known = self.read(|attached| attached.tree.len_known())?;
        known.map_or_else(walked, Ok)
    }

    /// Returns items, and bytes of the pool; the writer's own memory is not included.
    fn stats(&self) -> Result<TreeStats> {
        let items = self.len()?;
        let (pool, tree) = self
            .with_attached(own_thread_index(), |attached| (Arc::clone(&attached.pool), attached.entry.id));
        let chunks = pool.chunks_now_of(tree);
        let bytes = |count: usize| count as u64 * pool.chunk_bytes();
        let logs = chunks.iter().filter(|chunk| part_of(chunk.kind) == Some(Part::Log)).count();
        Ok(TreeStats { items, pm_bytes: bytes(chunks.len()), log_bytes: bytes(logs), ..TreeStats::default() })
    }

    /// Reads everything, and verifies checksums of records and the order of keys.
    fn check(&self) -> Vec<Issue> {
        let mut issues = Vec::new();
        let damage = self.walk(|issue| issues.push(issue)).1;
        issues.extend(damage.map(|error| Issue::new("tree", error.to_string())));
        issues
    }
}

impl<K: KeyCodec, V: Storage> Followed<K, V> {
    /// Reads everything: returns the number of items, and the error that ended the walk early. Calls `find` with each
    /// problem.
    fn walk(&self, mut find: impl FnMut(Issue)) -> (u64, Option<Error>) {
        let mut batch = Batch::default();
        let (mut last, mut items): (Option<K::Owned>, u64) = (None, 0);
        loop {
            let from = last.as_ref().map_or(Bound::Unbounded, |last| Bound::Excluded(K::borrow(last)));
            if !self.scan_forward((from, Bound::Unbounded), &mut batch) {
                return (items, batch.damage);
            }
            while let Some((key, _)) = batch.entries.pop() {
                if last.as_ref().is_some_and(|last| *last >= key) {
                    find(Issue::new("tree", "keys out of order"));
                }
                (last, items) = (Some(key), items + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::index::Read;
    use crate::index::parts::codec::Inline;
    use crate::{Design, KeepIndex, Pool};

    use super::{Followed, Place, Source};

    /// A follower's own memory for a tree must not exceed the writer's: it has hints for as many nodes, created while
    /// it reads.
    #[test]
    fn followers_take_as_much_memory_as_the_tree_has_nodes() {
        for &design in Design::ALL {
            let path = format!("/dev/shm/bristlecone-unit-{design}-{}.pool", std::process::id());
            let options = Pool::options().keep_index(KeepIndex::Always).max_bytes(256 << 20);
            let pool = options.create_new(true).open(&path).unwrap();
            let tree = pool.tree_options("t").design(design).create::<u64, u64>().unwrap();
            tree.insert(0, 0).unwrap();
            let source =
                Source::attach(Place::Path(path.clone().into()), false, crate::api::options::LAYOUT).unwrap();
            let entry = source.pool().find_tree("t").unwrap().unwrap();
            let followed = Followed::<Inline, Inline>::open(&source, &entry).unwrap();
            for key in 0..60_000_u64 {
                tree.insert(key << 32, key).unwrap();
            }
            assert!((0..60_000_u64).all(|key| followed.get(key << 32, &mut |_| {}).unwrap()), "{design}");
            let taken = followed.with_attached(None, |attached| attached.tree.stats().unwrap().dram_bytes);
            let of_writer = tree.stats().unwrap().dram_bytes;
            assert!(taken <= 2 * of_writer, "{design}: {taken} bytes beside {of_writer}");
            std::fs::remove_file(path).unwrap();
        }
    }
}
