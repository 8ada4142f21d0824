//! Pools and the trees in them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use bristlecone_pm::sync::AsymmetricFence;
use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{Error, Finding, Medium, PoolFile, PoolInfo, Result, TreeEntry, TreeId, told};

use crate::api::handle::{Handle, Inherited};
use crate::api::load::assert_fills_none;
use crate::api::metrics::Meters;
use crate::dynamic::Kind;
use crate::index::any::{self, AnyPool, OpenTree, PoolOn};
use crate::index::parts::codec::Codec;
use crate::transaction::{Epochs, Link};
use crate::{CloseError, Design, Key, PoolOptions, Tree, TreeOptions, Value};

/// A tree behind the types of its keys and values.
type AnyTree<K, V> = any::Shared<<K as Key>::Codec, <V as Value>::Codec>;

/// How often something is looked at that others change meanwhile.
pub(crate) const LOOKS: usize = 8;

/// An open pool: a cheap handle, to be cloned and shared between threads.
///
/// The pool is closed in good order when the last handle and the last tree of it are dropped. A
/// process that dies instead loses nothing that was acknowledged; the next open recovers it.
///
/// A pool belongs to the process that opened it. In a child that was forked from it, operations return
/// [`Error::Forked`], those that return no `Result` panic, and drops do nothing but close the file.
#[derive(Debug)]
pub struct Pool(pub(crate) Handle<Shared>);

impl Clone for Pool {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub file: Box<dyn AnyPool>,
    /// Trees that are open: two handles to a tree are one tree.
    open: Mutex<HashMap<TreeId, OpenTree>>,
    pub meters: Meters,
    /// What writes of several keys and snapshots have in common.
    pub epochs: Epochs,
    recovery_threads: usize,
    /// Closed already, or to be left as a crash would leave it.
    done: AtomicBool,
}

impl Inherited for Shared {
    fn abandon(&self) {
        self.file.abandon();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.done.load(Relaxed) {
            // Nothing is lost if this fails: the next open recovers instead.
            let _ = self.file.close();
        }
    }
}

impl Pool {
    /// Opens a pool that is there, or creates it as by default.
    ///
    /// [`PoolOptions`] has sizes, domains, and how to insist on a pool that is new.
    ///
    /// # Errors
    ///
    /// As [`PoolOptions::open`]. A file that is no pool is an error, and stays as it is.
    ///
    /// ```
    /// use bristlecone::{Error, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-create-{}.pool", std::process::id());
    ///
    /// assert!(matches!(Pool::open(&path), Err(Error::NotFound { .. })));
    /// Pool::create(&path)?.tree::<u64, u64>("t")?.insert(1, 2)?;
    /// assert_eq!(Pool::create(&path)?.tree::<u64, u64>("t")?.get(1), Some(2));
    /// assert_eq!(Pool::open(&path)?.tree::<u64, u64>("t")?.get(1), Some(2));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().create(true).open(path)
    }

    /// Opens a pool that is there, with default options.
    ///
    /// # Errors
    ///
    /// As [`PoolOptions::open`]: [`Error::NotFound`](crate::Error::NotFound) if there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Opens a pool for reading that another process is writing to: see [`PoolOptions::follow`].
    ///
    /// # Errors
    ///
    /// As [`PoolOptions::follow`].
    pub fn follow(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().follow(path)
    }

    /// Begins to open a pool.
    pub fn options() -> PoolOptions {
        PoolOptions::default()
    }
}

impl Pool {
    /// Makes a pool of an open pool file, on whatever medium.
    #[cfg(feature = "lab")]
    #[doc(hidden)]
    pub fn on<M: Medium>(file: Arc<PoolFile<M>>, recovery_threads: usize) -> Result<Self> {
        Self::over(file, recovery_threads)
    }

    /// Makes a pool of an open pool file, on whatever medium; carries out what was committed and is not done.
    pub(crate) fn over<M: Medium>(file: Arc<PoolFile<M>>, recovery_threads: usize) -> Result<Self> {
        Self::over_any(Box::new(PoolOn(file)), recovery_threads)
    }

    /// Makes a pool of what is open.
    pub(crate) fn over_any(file: Box<dyn AnyPool>, recovery_threads: usize) -> Result<Self> {
        let (done, opener) = (AtomicBool::new(false), file.opener());
        let (open, meters, epochs) =
            (Mutex::default(), Meters::default(), Epochs::new(AsymmetricFence::detect()));
        let shared = Arc::new(Shared { file, open, meters, epochs, recovery_threads, done });
        let pool = Self(Handle::new(shared, opener));
        pool.replay(recovery_threads)?;
        Ok(pool)
    }

    /// Opens the tree of this name, or creates it with defaults.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] for a tree of other types; otherwise as [`TreeOptions::open`] and [`TreeOptions::create`].
    ///
    /// ```
    /// # use bristlecone::{Error, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-tree-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let places = pool.tree::<(&str, u32), u64>("places")?;
    /// places.insert(("Ulm", 89073), 1)?;
    /// // Handles to one tree, from as many threads as there are.
    /// let again = pool.tree::<(&str, u32), u64>("places")?;
    /// assert_eq!(again.get(("Ulm", 89073)), Some(1));
    /// assert!(matches!(pool.tree::<u64, u64>("places"), Err(Error::Mismatch { .. })));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn tree<K: Key, V: Value>(&self, name: &str) -> Result<Tree<K, V>> {
        let options = self.tree_options(name);
        for _ in 1..LOOKS {
            match options.open() {
                Err(Error::NoSuchTree { .. }) if !self.0.file.is_read_only() => {}
                opened => return opened,
            }
            match options.create() {
                // Another thread was faster: its tree is opened.
                Err(Error::TreeExists { .. }) => {}
                created => return created,
            }
        }
        options.open()
    }

    /// Begins to create a tree with options of its own, or to open one that must have them.
    pub fn tree_options(&self, name: &str) -> TreeOptions {
        TreeOptions::new(self.clone(), name)
    }

    /// Returns the trees in the pool, in the order of its directory.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`] if an entry of the directory cannot be read; [`Error::Forked`].
    pub fn trees(&self) -> Result<Vec<TreeEntry>> {
        self.0.file.here()?;
        self.0.file.trees()
    }

    /// Drops a tree and everything in it. After `Ok` it is gone and its space free; after `Err`
    /// or a crash it is there wholly, or not at all.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTree`]; [`Error::TreeInUse`] while there is a handle to it; [`Error::ReadOnly`].
    ///
    /// ```
    /// # use bristlecone::{Error, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-drop-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let tree = pool.tree::<u64, u64>("t")?;
    /// assert!(matches!(pool.drop_tree("t"), Err(Error::TreeInUse { .. })));
    /// drop(tree);
    /// pool.drop_tree("t")?;
    /// assert!(pool.trees()?.is_empty());
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        self.0.file.writable()?;
        let mut open = self.lock_open();
        let entry = self.find_closed(name, &open)?;
        open.remove(&entry.id);
        told("a tree is dropped", name, || self.0.file.drop_tree(entry.id))?;
        self.0.epochs.forget(entry.id);
        Ok(())
    }

    /// Gives a tree another name, while it is open or not: handles to it stay what they are.
    ///
    /// After `Ok` it has the new name for good. After `Err` it has the old one, and after a crash either of both,
    /// never none and never both.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTree`] if there is no tree `from`, [`Error::TreeExists`] if there is another tree `to`;
    /// [`Error::Invalid`] or [`Error::TooLong`] for what cannot be a name; [`Error::ReadOnly`].
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-rename-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let draft = pool.tree::<u64, u64>("draft")?;
    /// pool.rename_tree("draft", "final")?;
    /// draft.insert(1, 2)?;
    /// assert_eq!(pool.tree::<u64, u64>("final")?.get(1), Some(2));
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn rename_tree(&self, from: &str, to: &str) -> Result<()> {
        assert_fills_none();
        self.0.file.rename_tree(from, to)
    }

    /// Removes every item of a tree in one step: an empty tree of the same name, types, design and options takes its
    /// place, and its space is free.
    ///
    /// After `Ok` that is so for good. After `Err` nothing has changed, and after a crash the tree has all of its
    /// items or none. The empty tree is made before the other one goes: in a pool that is full there may be no
    /// room for it, and in one with 256 trees no place in the directory. [`drop_tree`](Self::drop_tree) needs neither.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTree`]; [`Error::TreeInUse`] while there is a handle to it, so that no reader sees it change;
    /// [`Error::PoolFull`] or [`Error::MediumFull`]; [`Error::ReadOnly`].
    ///
    /// ```
    /// # use bristlecone::Pool;
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-clear-{}.pool", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// pool.tree::<u64, u64>("t")?.insert(1, 2)?;
    /// pool.clear_tree("t")?;
    /// assert!(pool.tree::<u64, u64>("t")?.is_empty());
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn clear_tree(&self, name: &str) -> Result<()> {
        self.0.file.writable()?;
        let mut open = self.lock_open();
        let entry = self.find_closed(name, &open)?;
        let is_word = |kind: &str| Kind::of_directory(kind).map(|kind| kind.is_word());
        let inline = (is_word(&entry.spec.key_kind)?, is_word(&entry.spec.value_kind)?);
        let emptied = told("a tree is cleared", name, || self.0.file.clear_index(&entry, inline))?;
        self.0.epochs.note_cleared(entry.id, emptied.id);
        open.remove(&entry.id);
        Ok(())
    }

    /// Returns the tree of a name, which no handle leads to.
    fn find_closed(&self, name: &str, open: &HashMap<TreeId, OpenTree>) -> Result<TreeEntry> {
        let entry = self.find(name)?;
        if open.get(&entry.id).is_some_and(OpenTree::is_open) {
            return Err(Error::TreeInUse { name: name.to_owned() });
        }
        Ok(entry)
    }

    /// Verifies that this process opened the pool.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a child of the process that opened the pool.
    pub fn opened_here(&self) -> Result<()> {
        self.0.file.here()
    }

    /// Returns what is known about the pool.
    ///
    /// # Panics
    ///
    /// In a child of the process that opened the pool.
    pub fn info(&self) -> PoolInfo {
        self.assert_here();
        self.0.file.info()
    }

    /// Verifies the pool's own structures; trees have a `check` of their own. In a child of the process
    /// that opened the pool, that is what it finds.
    pub fn check(&self) -> Vec<Finding> {
        match self.0.file.here() {
            Ok(()) => self.0.file.check(),
            Err(error) => vec![Finding::new("pool", error.to_string())],
        }
    }

    /// Returns whether both are handles to one open pool.
    pub(crate) fn is_same(&self, other: &Pool) -> bool {
        std::ptr::eq(&*self.0, &*other.0)
    }

    /// Panics, with what is wrong and what to do, in a child of the process that opened the pool.
    #[inline(always)]
    pub(crate) fn assert_here(&self) {
        if !self.0.is_here() {
            self.panic_elsewhere();
        }
    }

    #[cold]
    #[inline(never)]
    fn panic_elsewhere(&self) {
        if let Err(error) = self.0.file.here() {
            panic!("{error}");
        }
    }

    /// Makes room ahead of time, so that growth costs no page faults later.
    ///
    /// # Errors
    ///
    /// [`Error::MediumFull`] if the file system has no such room, of which what there is was taken;
    /// [`Error::ReadOnly`]; [`Error::Forked`].
    pub fn prefault(&self, bytes: u64) -> Result<()> {
        self.0.file.prefault(bytes)
    }

    /// Closes the pool in good order.
    ///
    /// After `Ok` the pool is marked as closed and its file is closed: no handle of this process is left that could
    /// read or write it, and any process may open it at once. That takes the last handle. Clones, [`TreeOptions`] and
    /// trees are handles, too: while there is another one the pool stays open for it, and this handle comes back.
    ///
    /// # Errors
    ///
    /// [`CloseError`] has the pool, open as before, and why: [`Error::TreeInUse`] while a tree of it is open,
    /// [`Error::PoolInUse`] while there is another handle, otherwise what the system says.
    ///
    /// ```
    /// use bristlecone::{Error, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-close-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().max_bytes(64 << 20).create_new(true).open(&path)?;
    /// let tree = pool.tree::<u64, u64>("t")?;
    /// let refused = pool.close().unwrap_err();
    /// assert!(matches!(refused.error(), Error::TreeInUse { name } if name == "t"));
    /// let pool = refused.into_pool();
    /// tree.insert(1, 2)?;
    /// drop(tree);
    /// pool.close()?;
    /// assert!(Pool::options().open(&path)?.info().was_clean);
    /// # std::fs::remove_file(&path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(mut self) -> std::result::Result<(), CloseError> {
        self.try_close().map_err(|error| CloseError::new(self, error))
    }

    fn try_close(&mut self) -> Result<()> {
        self.0.file.here()?;
        let in_use = self.lock_open().iter().find(|(_, tree)| tree.is_open()).map(|(id, _)| *id);
        if let Some(id) = in_use {
            let name = self.trees()?.into_iter().find(|tree| tree.id == id).map(|tree| tree.spec.name);
            return Err(Error::TreeInUse { name: name.unwrap_or_default() });
        }
        let handles = self.0.others();
        if handles > 0 {
            return Err(Error::PoolInUse { handles });
        }
        told("a pool is closed", (), || self.0.file.close())?;
        self.0.done.store(true, Relaxed);
        Ok(())
    }

    /// Lets go of the pool as a crash would: no mark of a clean close, nothing put in order.
    pub fn simulate_crash(self) {
        self.0.done.store(true, Relaxed);
    }

    /// Returns the tree of a name, recovered by `recover` if it is not open yet.
    pub(crate) fn open_tree<K: Key, V: Value>(
        &self,
        name: &str,
        verify: impl FnOnce(&TreeEntry) -> Result<()>,
        recover: impl FnOnce(&TreeEntry) -> Result<AnyTree<K, V>>,
    ) -> Result<Tree<K, V>> {
        self.0.file.here()?;
        let mut open = self.lock_open();
        let entry = self.find(name)?;
        verify(&entry)?;
        // A number may be another tree's by now where another process writes.
        let is_own = !self.0.file.is_followed();
        if let Some(tree) = open.get(&entry.id).filter(|_| is_own).and_then(OpenTree::get) {
            return Ok(Tree::new(tree, self.clone(), self.link(&entry)));
        }
        self.0.file.expect_whole(&entry)?;
        let tree = recover(&entry)?;
        open.insert(entry.id, OpenTree::new(&tree));
        Ok(Tree::new(tree, self.clone(), self.link(&entry)))
    }

    /// Returns the tree that `create` makes.
    pub(crate) fn create_tree<K: Key, V: Value>(
        &self,
        create: impl FnOnce() -> Result<(TreeEntry, AnyTree<K, V>)>,
    ) -> Result<Tree<K, V>> {
        let mut open = self.lock_open();
        let (entry, tree) = create()?;
        open.insert(entry.id, OpenTree::new(&tree));
        Ok(Tree::new(tree, self.clone(), self.link(&entry)))
    }

    /// Returns what a tree is to batches and snapshots.
    fn link(&self, entry: &TreeEntry) -> Link {
        let (identity, cleared) = self.0.epochs.identity(entry.id);
        let split_bytes = Design::of(&entry.spec).and_then(|design| design.split_bytes(&entry.spec));
        let is_known = split_bytes.is_ok();
        Link { id: entry.id, identity, cleared, split_bytes: split_bytes.unwrap_or(0), is_known }
    }

    /// Recovers a tree of the library's designs.
    pub(crate) fn recover<K: Key, V: Value>(&self, entry: &TreeEntry) -> Result<AnyTree<K, V>> {
        let inline = (K::Codec::INLINE, V::Codec::INLINE);
        let recover = || self.0.file.open_index(entry, inline, self.0.recovery_threads);
        told("a tree is recovered", &entry.spec.name, || self.0.meters.recovery(recover))?.typed()
    }

    /// Verifies a tree whatever the types of its keys and values: returns its number of items and
    /// what is wrong with it.
    ///
    /// # Errors
    ///
    /// As [`dynamic_tree`](Self::dynamic_tree) if it cannot be opened; nothing can be said about it then.
    pub fn check_tree(&self, name: &str) -> Result<(u64, Vec<Finding>)> {
        let tree = self.dynamic_tree(name)?;
        Ok((tree.try_len()?, tree.check()))
    }

    pub(crate) fn find(&self, name: &str) -> Result<TreeEntry> {
        self.0.file.find_tree(name)?.ok_or_else(|| no_such_tree(name))
    }

    pub(crate) fn lock_open(&self) -> MutexGuard<'_, HashMap<TreeId, OpenTree>> {
        assert_fills_none();
        lock(&self.0.open)
    }
}

fn no_such_tree(name: &str) -> Error {
    Error::NoSuchTree { name: name.to_owned() }
}
