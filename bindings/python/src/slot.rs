//! Open pools and trees, as shared by all their Python handles.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bristlecone::dynamic::{ExpiringTree, Kind, Tree};
use bristlecone::{Domain, Error, Pool, Result};
use pyo3::prelude::*;

use crate::error::raise;
use crate::gate::Gate;
use crate::moment::Seen;

/// A tree, with the operations for which expired values are absent, if its values expire.
#[derive(Debug)]
pub struct Open {
    tree: Tree,
    live: Option<ExpiringTree>,
}

impl Open {
    fn new(tree: Tree) -> Self {
        let live = tree.clone().try_expiring().ok();
        Self { tree, live }
    }

    fn live(&self) -> Result<&ExpiringTree> {
        let none = || Error::Invalid { what: format!("the values of {:?} do not expire", self.name()) };
        self.live.as_ref().ok_or_else(none)
    }
}

impl Deref for Open {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.tree
    }
}

/// An open tree. Its kinds remain known after it is closed.
#[derive(Debug)]
pub struct Slot {
    pub gate: Gate<Open>,
    pub keys: Kind,
    pub values: Kind,
    /// A rename may change it.
    name: Mutex<String>,
    /// Whether writes wait for a device: other threads then run meanwhile.
    waits: bool,
}

impl Slot {
    fn new(tree: Tree, waits: bool) -> Self {
        let (keys, values) = (tree.key_kind().clone(), tree.value_kind().clone());
        let name = Mutex::new(tree.name().to_owned());
        Self { gate: Gate::new(Open::new(tree)), keys, values, name, waits }
    }

    pub fn name(&self) -> String {
        lock(&self.name).clone()
    }

    /// Calls `read` with the tree. It must not run Python code.
    #[inline]
    pub fn read<R>(&self, py: Python<'_>, read: impl FnOnce(&Tree) -> Result<R>) -> PyResult<R> {
        self.gate.with(py, |open| read(open))?.map_err(|error| raise(py, error))
    }

    /// Calls `work` with the operations for which expired values are absent: attached to the interpreter, unless it may wait
    /// for a device. It must not run Python code.
    pub fn live<R: Send>(
        &self,
        py: Python<'_>,
        may_wait: bool,
        work: impl FnOnce(&ExpiringTree) -> Result<R> + Send,
    ) -> PyResult<R> {
        let work = |open: &Open| work(open.live()?);
        let done =
            if may_wait && self.waits { self.gate.with_detached(py, work) } else { self.gate.with(py, work) };
        done?.map_err(|error| raise(py, error))
    }

    /// Calls `write` with the tree. It must not run Python code.
    #[inline]
    pub fn write<R: Send>(
        &self,
        py: Python<'_>,
        write: impl FnOnce(&Tree) -> Result<R> + Send,
    ) -> PyResult<R> {
        let write = |open: &Open| write(open);
        let written = if self.waits { self.gate.with_detached(py, write) } else { self.gate.with(py, write) };
        written?.map_err(|error| raise(py, error))
    }

    /// Calls `work` with the operations for which expired values are absent while other Python threads run.
    pub fn work_live<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&ExpiringTree) -> Result<R> + Send,
    ) -> PyResult<R> {
        self.gate.with_detached(py, |open| work(open.live()?))?.map_err(|error| raise(py, error))
    }

    /// Calls `work` with the tree while other Python threads run.
    pub fn work<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&Tree) -> Result<R> + Send) -> PyResult<R> {
        self.gate.with_detached(py, |open| work(open))?.map_err(|error| raise(py, error))
    }
}

/// An open pool.
#[derive(Debug)]
pub struct Shared {
    pub gate: Gate<Pool>,
    pub path: PathBuf,
    pub read_only: bool,
    pub domain: Domain,
    trees: Mutex<HashMap<String, Weak<Slot>>>,
    /// Snapshots and transactions, which keep the pool open.
    seen: Mutex<Vec<Weak<Gate<Seen>>>>,
}

/// All open pools, to close before the interpreter ends.
static POOLS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Locks a mutex that is only held briefly, and never while a thread waits for the interpreter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(pool: Pool, path: PathBuf) -> Arc<Self> {
        let info = pool.info();
        let gate = Gate::new(pool);
        let (read_only, domain) = (info.read_only, info.domain);
        let (trees, seen) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Self { gate, path, read_only, domain, trees, seen });
        let mut pools = lock(&POOLS);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(&shared));
        shared
    }

    /// Calls `use_it` with the pool while other Python threads run.
    pub fn work<R: Send>(
        &self,
        py: Python<'_>,
        use_it: impl FnOnce(&Pool) -> Result<R> + Send,
    ) -> PyResult<R> {
        self.gate.with_detached(py, use_it)?.map_err(|error| raise(py, error))
    }

    /// Returns the tree with a name, which `open` opens or creates if necessary.
    pub fn tree(
        &self,
        py: Python<'_>,
        name: &str,
        open: impl FnOnce(&Pool) -> Result<Tree> + Send,
    ) -> PyResult<Arc<Slot>> {
        self.work(py, |pool| {
            let tree = open(pool)?;
            let mut trees = lock(&self.trees);
            let slot = trees.get(name).and_then(Weak::upgrade).filter(|slot| !slot.gate.is_closed());
            Ok(slot.unwrap_or_else(|| {
                let slot = Arc::new(Slot::new(tree, matches!(self.domain, Domain::Msync | Domain::Journal)));
                trees.retain(|_, slot| slot.strong_count() > 0);
                trees.insert(name.to_owned(), Arc::downgrade(&slot));
                slot
            }))
        })
    }

    /// Registers a snapshot or a transaction, which ends when the pool is closed.
    pub fn note_seen(&self, seen: &Arc<Gate<Seen>>) {
        let mut all = lock(&self.seen);
        all.retain(|seen| seen.strong_count() > 0);
        all.push(Arc::downgrade(seen));
    }

    /// Renames a tree, open or not.
    pub fn rename(&self, py: Python<'_>, from: &str, to: &str) -> PyResult<()> {
        self.work(py, |pool| {
            let mut trees = lock(&self.trees);
            pool.rename_tree(from, to)?;
            if let Some(slot) = trees.remove(from) {
                if let Some(slot) = slot.upgrade() {
                    to.clone_into(&mut lock(&slot.name));
                }
                trees.insert(to.to_owned(), slot);
            }
            Ok(())
        })
    }

    /// Removes every item of a tree atomically. The tree's handles here wait meanwhile.
    pub fn clear(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.gate.expect_here(py)?;
        let slot = lock(&self.trees).get(name).and_then(Weak::upgrade).filter(|slot| !slot.gate.is_closed());
        let Some(slot) = slot else { return self.work(py, |pool| pool.clear_tree(name)) };
        let cleared = self.gate.with_detached(py, |pool| {
            slot.gate.change_detached(|held| {
                drop(held.take());
                let cleared = pool.clear_tree(name);
                let opened = pool.dynamic_tree(name);
                *held = opened.as_ref().ok().cloned().map(Open::new);
                cleared.and(opened.map(drop))
            })
        })?;
        cleared.map_err(|error| raise(py, error))
    }

    /// Closes the pool and all its trees, after the present calls on them have returned. Repeated
    /// calls have no effect.
    pub fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(pool) = self.gate.change(py, Option::take)? else { return Ok(()) };
        let slots: Vec<_> = lock(&self.trees).drain().filter_map(|(_, slot)| slot.upgrade()).collect();
        for slot in slots {
            slot.gate.change(py, Option::take)?;
        }
        let seen: Vec<_> = lock(&self.seen).drain(..).filter_map(|seen| seen.upgrade()).collect();
        for seen in seen {
            seen.change(py, Option::take)?;
        }
        py.detach(|| pool.close()).map_err(|error| raise(py, error.into()))
    }
}

/// Closes all pools that this process has open.
#[pyfunction]
pub fn _close_all(py: Python<'_>) -> PyResult<()> {
    let pools: Vec<_> = lock(&POOLS).drain(..).filter_map(|pool| pool.upgrade()).collect();
    for pool in pools {
        // A pool opened by the parent must not be closed by this process.
        if pool.gate.expect_here(py).is_ok() {
            pool.close(py)?;
        }
    }
    Ok(())
}
