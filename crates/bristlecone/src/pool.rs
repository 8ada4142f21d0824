//! Pools and the trees in them.

use std::any::Any;
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bristlecone_pm::{
    CreateOptions, Delayed, Domain, Error, Finding, Medium, Native, PoolFile, PoolInfo, Result, TreeEntry,
    TreeId, TreeSpec,
};

use crate::trees::AnyTree;
use crate::{Design, Key, Tree, Value};

/// How a pool is opened.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    max_bytes: Option<u64>,
    domain: Option<Domain>,
    create: bool,
    create_new: bool,
    read_only: bool,
    recovery_threads: Option<usize>,
}

impl PoolOptions {
    /// Bytes that a new pool may grow to (default: 1 GiB). An existing pool keeps its maximum.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// The persistence domain, instead of the detected one.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Creates the pool if there is none.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Creates the pool, and fails if there is one.
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Opens the pool for reading only: its file is not changed, not even by recovery after a
    /// crash, whose stores stay in this process. Any number of processes may read a pool at the
    /// same time, while nobody has it open for writing. Writes give [`Error::ReadOnly`].
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Threads that recover a tree (default: all of the machine's).
    pub fn recovery_threads(mut self, threads: usize) -> Self {
        self.recovery_threads = Some(threads);
        self
    }

    /// Opens the pool at `path`.
    ///
    /// # Errors
    ///
    /// See [`Error`]: no pool there, in use elsewhere, damaged, made by a newer version, no room.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Pool> {
        self.open_on(path.as_ref(), Native::new)
    }

    /// The same on a medium whose every flushed line takes longer, as slower memory would.
    pub fn open_delayed(&self, path: impl AsRef<Path>, per_line: Duration) -> Result<Pool<Delayed>> {
        self.open_on(path.as_ref(), |domain| Delayed::new(domain, per_line))
    }

    pub(crate) fn asked_bytes(&self) -> Option<u64> {
        self.max_bytes
    }

    fn open_on<M: Medium>(&self, path: &Path, medium: impl FnOnce(Domain) -> M) -> Result<Pool<M>> {
        if self.read_only && (self.create || self.create_new) {
            return Err(Error::invalid("a pool cannot be created read-only: leave one of both out"));
        }
        let missing = self.create && matches!(path.try_exists(), Ok(false));
        let file = if self.create_new || missing {
            let max_bytes = self.max_bytes.unwrap_or(1 << 30);
            PoolFile::create(path, &CreateOptions { max_bytes, domain: self.domain }, medium)
        } else if self.read_only {
            PoolFile::open_read_only(path, medium)
        } else {
            PoolFile::open(path, self.domain, medium)
        }?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Pool::on(file, self.recovery_threads.unwrap_or_else(cores)))
    }
}

/// An open pool: a cheap handle, to be cloned and shared between threads.
///
/// The pool is closed in good order when the last handle and the last tree of it are dropped. A
/// process that dies instead loses nothing that was acknowledged; the next open recovers it.
#[derive(Debug)]
pub struct Pool<M: Medium = Native>(pub(crate) Arc<Shared<M>>);

impl<M: Medium> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
pub(crate) struct Shared<M: Medium> {
    pub file: Arc<PoolFile<M>>,
    /// Trees that are open: two handles to a tree are one tree.
    open: Mutex<HashMap<TreeId, Weak<dyn Any + Send + Sync>>>,
    recovery_threads: usize,
    crashed: AtomicBool,
}

impl<M: Medium> Drop for Shared<M> {
    fn drop(&mut self) {
        if !self.crashed.load(Relaxed) {
            // Nothing is lost if this fails: the next open recovers instead.
            let _ = self.file.close();
        }
    }
}

impl Pool {
    /// Begins to open a pool.
    pub fn options() -> PoolOptions {
        PoolOptions::default()
    }
}

impl<M: Medium> Pool<M> {
    /// A pool over an open pool file, on whatever medium.
    #[doc(hidden)]
    pub fn on(file: Arc<PoolFile<M>>, recovery_threads: usize) -> Self {
        let crashed = AtomicBool::new(false);
        Self(Arc::new(Shared { file, open: Mutex::default(), recovery_threads, crashed }))
    }

    /// Opens the tree of this name, or creates it with defaults.
    pub fn tree<K: Key, V: Value>(&self, name: &str) -> Result<Tree<K, V, M>> {
        let options = self.tree_options(name);
        match options.open() {
            Err(Error::NoSuchTree { .. }) if !self.0.file.is_read_only() => options.create(),
            opened => opened,
        }
    }

    /// Begins to create a tree with options of its own.
    pub fn tree_options(&self, name: &str) -> TreeOptions<M> {
        TreeOptions { pool: self.clone(), name: name.to_owned(), design: None, given: Vec::new() }
    }

    /// The trees in the pool.
    pub fn trees(&self) -> Result<Vec<TreeEntry>> {
        self.0.file.trees()
    }

    /// Drops a tree and everything in it. After `Ok` it is gone and its space free; after `Err`
    /// or a crash it is there wholly, or not at all.
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        let mut open = self.lock_open();
        let entry = self.0.file.find_tree(name)?.ok_or_else(|| no_such_tree(name))?;
        if open.get(&entry.id).is_some_and(|tree| tree.strong_count() > 0) {
            return Err(Error::TreeInUse { name: name.to_owned() });
        }
        open.remove(&entry.id);
        self.0.file.drop_tree(entry.id)
    }

    /// What is known about the pool.
    pub fn info(&self) -> PoolInfo {
        self.0.file.info()
    }

    /// Verifies the pool's own structures; trees have a `check` of their own.
    pub fn check(&self) -> Vec<Finding> {
        self.0.file.check()
    }

    /// Makes room ahead of time, so that growth costs no page faults later.
    pub fn prefault(&self, bytes: u64) -> Result<()> {
        self.0.file.prefault(bytes)
    }

    /// Closes the pool in good order.
    ///
    /// # Errors
    ///
    /// [`Error::TreeInUse`] while a tree of it is open; otherwise what the system says.
    pub fn close(self) -> Result<()> {
        let in_use = self.lock_open().iter().find(|(_, tree)| tree.strong_count() > 0).map(|(id, _)| *id);
        if let Some(id) = in_use {
            let name = self.trees()?.into_iter().find(|tree| tree.id == id).map(|tree| tree.spec.name);
            return Err(Error::TreeInUse { name: name.unwrap_or_default() });
        }
        self.0.file.close()
    }

    /// Lets go of the pool as a crash would: no mark of a clean close, nothing put in order.
    pub fn simulate_crash(self) {
        self.0.crashed.store(true, Relaxed);
    }

    /// The tree of a name, recovered by `recover` if it is not open yet.
    pub(crate) fn open_tree<K: Key, V: Value>(
        &self,
        name: &str,
        verify: impl FnOnce(&TreeEntry) -> Result<()>,
        recover: impl FnOnce(&Arc<PoolFile<M>>, &TreeEntry, usize) -> Result<AnyTree<K::Form, V::Form, M>>,
    ) -> Result<Tree<K, V, M>> {
        let mut open = self.lock_open();
        let entry = self.0.file.find_tree(name)?.ok_or_else(|| no_such_tree(name))?;
        verify(&entry)?;
        if let Some(tree) = open.get(&entry.id).and_then(Weak::upgrade)
            && let Ok(tree) = tree.downcast::<AnyTree<K::Form, V::Form, M>>()
        {
            return Ok(Tree::new(tree, self.clone()));
        }
        let tree = Arc::new(recover(&self.0.file, &entry, self.0.recovery_threads)?);
        let any: Arc<dyn Any + Send + Sync> = tree.clone();
        open.insert(entry.id, Arc::downgrade(&any));
        Ok(Tree::new(tree, self.clone()))
    }

    fn lock_open(&self) -> MutexGuard<'_, HashMap<TreeId, Weak<dyn Any + Send + Sync>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_such_tree(name: &str) -> Error {
    Error::NoSuchTree { name: name.to_owned() }
}

/// How a tree is created or opened.
#[derive(Clone, Debug)]
pub struct TreeOptions<M: Medium = Native> {
    pool: Pool<M>,
    name: String,
    design: Option<Design>,
    given: Vec<(String, u64)>,
}

impl<M: Medium> TreeOptions<M> {
    /// The design (default: SSTree).
    pub fn design(mut self, design: Design) -> Self {
        self.design = Some(design);
        self
    }

    /// A parameter of the design, by name: see `docs/ARCHITECTURE.md`. Whether the design has it,
    /// and whether its value fits, is looked at when the tree is created or opened.
    pub fn option(mut self, name: &str, value: u64) -> Self {
        self.given.push((name.to_owned(), value));
        self
    }

    /// Creates the tree. After `Ok` it exists and survives; after `Err` or a crash it exists
    /// wholly or not at all.
    pub fn create<K: Key, V: Value>(&self) -> Result<Tree<K, V, M>> {
        let design = self.design.unwrap_or_default();
        let spec = TreeSpec {
            name: self.name.clone(),
            design: design.code(),
            key_kind: K::kind(),
            value_kind: V::kind(),
            params: design.parse(&self.given)?,
        };
        self.pool.0.file.create_tree(&spec)?;
        self.open()
    }

    /// Opens the tree, recovering it if it is not open yet. `K` and `V` must be the types it was
    /// created with, and options that were set must be its own.
    pub fn open<K: Key, V: Value>(&self) -> Result<Tree<K, V, M>> {
        let open = |file: &_, entry: &_, threads| AnyTree::open(file, entry, threads);
        self.pool.open_tree(&self.name, |entry| self.verify::<K, V>(entry), open)
    }

    fn verify<K: Key, V: Value>(&self, entry: &TreeEntry) -> Result<()> {
        let spec = &entry.spec;
        let design = Design::of(spec)?;
        let mismatch = |what, found: &str, asked: String| Error::Mismatch {
            name: self.name.clone(),
            what,
            found: found.to_owned(),
            asked,
        };
        if spec.key_kind != K::kind() {
            return Err(mismatch("keys of type", &spec.key_kind, K::kind()));
        }
        if spec.value_kind != V::kind() {
            return Err(mismatch("values of type", &spec.value_kind, V::kind()));
        }
        if let Some(asked) = self.design.filter(|asked| *asked != design) {
            return Err(mismatch("design", design.name(), asked.to_string()));
        }
        // Names and values must be possible before they can be compared.
        design.parse(&self.given)?;
        for (option, found) in Design::options_of(spec)? {
            let given = self.given.iter().rev().find(|(name, _)| name == option);
            if let Some((_, asked)) = given.filter(|(_, asked)| *asked != found) {
                return Err(mismatch("options", &format!("{option}={found}"), format!("{option}={asked}")));
            }
        }
        Ok(())
    }
}
