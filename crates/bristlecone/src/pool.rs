//! Pools and the trees in them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{
    CreateOptions, Domain, Error, Finding, Medium, Native, PoolFile, PoolInfo, Result, TreeEntry, TreeId,
    TreeSpec,
};

use crate::dynamic::Kind;
use crate::handle::{Handle, Inherited};
use crate::shared::codec::Codec;
use crate::trees::any::{self, AnyPool, OpenTree, PoolOn};
use crate::{Design, Key, Tree, Value};

/// A tree behind the types of its keys and values.
type AnyTree<K, V> = any::Shared<<K as Key>::Codec, <V as Value>::Codec>;

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
        self.open_native(path.as_ref())
    }

    /// Opens the pool on the medium of this machine: compiled here, with every design.
    fn open_native(&self, path: &Path) -> Result<Pool> {
        self.open_on(path, Native::new)
    }

    /// Opens the pool with a busy wait after every flushed line, as slower memory would have it.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_delayed(&self, path: &Path, per_line: Duration) -> Result<Pool> {
        self.open_on(path, |domain| Native::delayed(domain, per_line))
    }

    pub(crate) fn asked_bytes(&self) -> Option<u64> {
        self.max_bytes
    }

    fn open_on(&self, path: &Path, medium: impl Fn(Domain) -> Native) -> Result<Pool> {
        if self.read_only && (self.create || self.create_new) {
            return Err(Error::invalid("a pool cannot be created read-only: leave one of both out"));
        }
        let file = if self.create_new {
            self.create_file(path, &medium)
        } else if self.create {
            self.open_or_create(path, &medium)
        } else {
            self.open_file(path, &medium)
        }?;
        file.drop_unfinished_trees();
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Pool::on(file, self.recovery_threads.unwrap_or_else(cores)))
    }

    fn create_file(&self, path: &Path, medium: impl Fn(Domain) -> Native) -> Result<Arc<PoolFile<Native>>> {
        let max_bytes = self.max_bytes.unwrap_or(1 << 30);
        PoolFile::create(path, &CreateOptions { max_bytes, domain: self.domain }, medium)
    }

    fn open_file(&self, path: &Path, medium: impl Fn(Domain) -> Native) -> Result<Arc<PoolFile<Native>>> {
        if self.read_only {
            PoolFile::open_read_only(path, medium)
        } else {
            PoolFile::open(path, self.domain, medium)
        }
    }

    /// Looks again if another process creates the pool, or removes it, between two looks.
    fn open_or_create(
        &self,
        path: &Path,
        medium: impl Fn(Domain) -> Native,
    ) -> Result<Arc<PoolFile<Native>>> {
        for _ in 1..LOOKS {
            match self.open_file(path, &medium) {
                Err(Error::NotFound { .. }) => {}
                opened => return opened,
            }
            match self.create_file(path, &medium) {
                Err(Error::Exists { .. }) => {}
                created => return created,
            }
        }
        // Something is there that cannot be opened, such as a link to nothing.
        self.create_file(path, &medium)
    }
}

/// How often something is looked at that others change meanwhile.
const LOOKS: usize = 8;

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
    /// Begins to open a pool.
    pub fn options() -> PoolOptions {
        PoolOptions::default()
    }
}

impl Pool {
    /// Makes a pool of an open pool file, on whatever medium.
    #[doc(hidden)]
    pub fn on<M: Medium>(file: Arc<PoolFile<M>>, recovery_threads: usize) -> Self {
        let (done, opener) = (AtomicBool::new(false), *file.opener());
        let file = Box::new(PoolOn(file));
        Self(Handle::new(Arc::new(Shared { file, open: Mutex::default(), recovery_threads, done }), opener))
    }

    /// Opens the tree of this name, or creates it with defaults.
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

    /// Begins to create a tree with options of its own.
    pub fn tree_options(&self, name: &str) -> TreeOptions {
        TreeOptions { pool: self.clone(), name: name.to_owned(), design: None, given: Vec::new() }
    }

    /// The trees in the pool.
    pub fn trees(&self) -> Result<Vec<TreeEntry>> {
        self.0.file.here()?;
        self.0.file.trees()
    }

    /// Drops a tree and everything in it. After `Ok` it is gone and its space free; after `Err`
    /// or a crash it is there wholly, or not at all.
    pub fn drop_tree(&self, name: &str) -> Result<()> {
        self.0.file.here()?;
        let mut open = self.lock_open();
        let entry = self.0.file.find_tree(name)?.ok_or_else(|| no_such_tree(name))?;
        if open.get(&entry.id).is_some_and(OpenTree::is_open) {
            return Err(Error::TreeInUse { name: name.to_owned() });
        }
        open.remove(&entry.id);
        self.0.file.drop_tree(entry.id)
    }

    /// What is known about the pool.
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
    pub fn prefault(&self, bytes: u64) -> Result<()> {
        self.0.file.prefault(bytes)
    }

    /// Closes the pool in good order. After `Ok` it is marked as closed, no handle to it is left, and it
    /// may be opened again, by any process.
    ///
    /// # Errors
    ///
    /// [`Error::TreeInUse`] while a tree of it is open, [`Error::PoolInUse`] while there is another handle;
    /// otherwise what the system says. This handle is gone in any case, and the last one that is dropped
    /// closes the pool.
    pub fn close(mut self) -> Result<()> {
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
        self.0.file.close()?;
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
        if let Some(tree) = open.get(&entry.id).and_then(OpenTree::get) {
            return Ok(Tree::new(tree, self.clone()));
        }
        self.0.file.expect_whole(&entry)?;
        let tree = recover(&entry)?;
        open.insert(entry.id, OpenTree::new(&tree));
        Ok(Tree::new(tree, self.clone()))
    }

    /// Returns the tree that `create` makes.
    pub(crate) fn create_tree<K: Key, V: Value>(
        &self,
        create: impl FnOnce() -> Result<(TreeEntry, AnyTree<K, V>)>,
    ) -> Result<Tree<K, V>> {
        let mut open = self.lock_open();
        let (entry, tree) = create()?;
        open.insert(entry.id, OpenTree::new(&tree));
        Ok(Tree::new(tree, self.clone()))
    }

    /// Recovers a tree of the library's designs.
    fn recover<K: Key, V: Value>(&self, entry: &TreeEntry) -> Result<AnyTree<K, V>> {
        let inline = (K::Codec::INLINE, V::Codec::INLINE);
        self.0.file.open_index(entry, inline, self.0.recovery_threads)?.typed()
    }

    /// Verifies a tree whatever the types of its keys and values: returns its number of items and
    /// what is wrong with it.
    ///
    /// # Errors
    ///
    /// As [`dynamic_tree`](Self::dynamic_tree) if it cannot be opened; nothing can be said about it then.
    pub fn check_tree(&self, name: &str) -> Result<(u64, Vec<Finding>)> {
        let tree = self.dynamic_tree(name)?;
        Ok((tree.len(), tree.check()))
    }

    fn find(&self, name: &str) -> Result<TreeEntry> {
        self.0.file.find_tree(name)?.ok_or_else(|| no_such_tree(name))
    }

    fn lock_open(&self) -> MutexGuard<'_, HashMap<TreeId, OpenTree>> {
        lock(&self.0.open)
    }
}

fn no_such_tree(name: &str) -> Error {
    Error::NoSuchTree { name: name.to_owned() }
}

/// How a tree is created or opened.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    pool: Pool,
    name: String,
    design: Option<Design>,
    given: Vec<(String, u64)>,
}

impl TreeOptions {
    /// The design (default: SSTree).
    pub fn design(mut self, design: Design) -> Self {
        self.design = Some(design);
        self
    }

    /// A parameter of the design, by name: see `docs/designs/`. Whether the design has it,
    /// and whether its value fits, is looked at when the tree is created or opened.
    pub fn option(mut self, name: &str, value: u64) -> Self {
        self.given.push((name.to_owned(), value));
        self
    }

    /// Creates the tree. After `Ok` it exists and survives; after `Err` or a crash it exists
    /// wholly or not at all.
    pub fn create<K: Key, V: Value>(&self) -> Result<Tree<K, V>> {
        self.create_as(&self.spec(K::kind(), V::kind())?)
    }

    /// Opens the tree, recovering it if it is not open yet. `K` and `V` must be the types it was
    /// created with, and options that were set must be its own.
    pub fn open<K: Key, V: Value>(&self) -> Result<Tree<K, V>> {
        self.open_as(&K::kind(), &V::kind())
    }

    /// Returns what the tree is to be created with.
    pub(crate) fn spec(&self, key_kind: String, value_kind: String) -> Result<TreeSpec> {
        let design = self.design.unwrap_or_default();
        let params = design.parse(&self.given)?;
        Ok(TreeSpec { name: self.name.clone(), design: design.code(), key_kind, value_kind, params })
    }

    /// Returns what the tree was created with.
    pub(crate) fn spec_of_tree(&self) -> Result<TreeSpec> {
        self.pool.0.file.here()?;
        Ok(self.pool.find(&self.name)?.spec)
    }

    /// Creates the tree with kinds that `K` and `V` are encoded like.
    pub(crate) fn create_as<K: Key, V: Value>(&self, spec: &TreeSpec) -> Result<Tree<K, V>> {
        self.pool.create_tree(|| {
            let (entry, tree) = self.pool.0.file.create_index(spec, (K::Codec::INLINE, V::Codec::INLINE))?;
            Ok((entry, tree.typed()?))
        })
    }

    /// Opens the tree if its kinds are these, which `K` and `V` are encoded like.
    pub(crate) fn open_as<K: Key, V: Value>(&self, key_kind: &str, value_kind: &str) -> Result<Tree<K, V>> {
        let recover = |entry: &_| self.pool.recover::<K, V>(entry);
        self.pool.open_tree(&self.name, |entry| self.verify(entry, key_kind, value_kind), recover)
    }

    fn verify(&self, entry: &TreeEntry, key_kind: &str, value_kind: &str) -> Result<()> {
        let spec = &entry.spec;
        let design = Design::of(spec)?;
        let mismatch = |what, found: &str, asked: String| Error::Mismatch {
            name: self.name.clone(),
            what,
            found: found.to_owned(),
            asked,
        };
        if spec.key_kind != key_kind {
            Kind::of_directory(&spec.key_kind)?;
            return Err(mismatch("keys of type", &spec.key_kind, key_kind.to_owned()));
        }
        if spec.value_kind != value_kind {
            Kind::of_directory(&spec.value_kind)?;
            return Err(mismatch("values of type", &spec.value_kind, value_kind.to_owned()));
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
