//! Pools: `bristlecone.open`, and operations besides those on trees.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use bristlecone::{BackupOptions, Design, Issue, TreeStats};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList};

use crate::changes::Changes;
use crate::codec::Codec;
use crate::error::raise;
use crate::expiring::duration;
use crate::handle::Tree;
use crate::kind;
use crate::moment::{Batch, Moment};
use crate::open::{Asked, Given, Size};
use crate::slot::Shared;
use crate::ticket::{Ticket, with_ticket};

/// An open pool: its trees by name.
#[pyclass(frozen, mapping, weakref, module = "bristlecone")]
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[pymethods]
impl Pool {
    /// Opens the tree of this name; creates it if the types of its keys and values are given.
    #[pyo3(signature = (name, key=Given::Not, value=Given::Not, *, codec=None, design=None, options=None, expire_after=None))]
    #[allow(clippy::too_many_arguments, reason = "they are named in Python")]
    fn tree(
        &self,
        py: Python<'_>,
        name: String,
        key: Given,
        value: Given,
        codec: Option<&Bound<'_, PyAny>>,
        design: Option<&str>,
        options: Option<Vec<(String, u64)>>,
        expire_after: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Tree> {
        let codec = codec.map(Codec::new).transpose()?;
        let kinds = match (&key, &value, &codec) {
            (Given::Not, Given::Not, _) => None,
            (Given::It(key), Given::It(value), _) => {
                Some((kind::parse(key.bind(py))?, kind::parse(value.bind(py))?))
            }
            (Given::It(key), Given::Not, Some(codec)) => Some((kind::parse(key.bind(py))?, codec.kind(py))),
            _ => return Err(PyTypeError::new_err("give the types of keys and of values, or none of both")),
        };
        for kind in kinds.iter().flat_map(|(key, value)| [key, value]) {
            kind::expect_told_apart(kind)?;
        }
        let design = design.map(|name| name.parse().map_err(|error| raise(py, error))).transpose()?;
        let expire_after = expire_after.map(duration).transpose()?;
        let asked = Asked { name, kinds, design, options: options.unwrap_or_default(), expire_after };
        let read_only = self.shared.read_only;
        let slot = self.shared.tree(py, &asked.name, |pool| asked.open(pool, read_only))?;
        for kind in [&slot.keys, &slot.values] {
            kind::expect_told_apart(kind)?;
        }
        Tree::new(slot, Arc::clone(&self.shared), codec)
    }

    fn __getitem__(&self, py: Python<'_>, name: String) -> PyResult<Tree> {
        self.tree(py, name, Given::Not, Given::Not, None, None, None, None)
    }

    fn __delitem__(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.drop_tree(py, name)
    }

    fn __contains__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(name) = name.extract::<String>() else { return Ok(false) };
        Ok(self.names(py)?.contains(&name))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.names(py)?.len())
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.names(py)?)?.try_iter()
    }

    /// Returns the tree with a name, or `default`.
    #[pyo3(signature = (name, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        name: String,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !self.names(py)?.contains(&name) {
            return Ok(default);
        }
        Ok(Some(Bound::new(py, self.__getitem__(py, name)?)?.into_any()))
    }

    /// Returns the trees' names.
    fn keys(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        Self::seen(slf, "KeysView")
    }

    /// Returns the trees, each of which is opened when it is accessed.
    fn values(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        Self::seen(slf, "ValuesView")
    }

    /// Returns the trees' names and the trees, each of which is opened when it is accessed.
    fn items(slf: Bound<'_, Self>) -> PyResult<Bound<'_, PyAny>> {
        Self::seen(slf, "ItemsView")
    }

    /// Returns the trees' names and their properties at creation.
    fn trees<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let trees = PyDict::new(py);
        for entry in self.shared.work(py, bristlecone::Pool::trees)? {
            let about = PyDict::new(py);
            about.set_item("key", &entry.spec.key_kind)?;
            about.set_item("value", &entry.spec.value_kind)?;
            about.set_item("design", Design::of(&entry.spec).ok().map(Design::name))?;
            let options = PyDict::new(py);
            for (name, value) in Design::options_of(&entry.spec).unwrap_or_default() {
                options.set_item(name, value)?;
            }
            about.set_item("options", options)?;
            let millis = entry.spec.expire_after_ms;
            about.set_item("expire_after_ms", (millis > 0).then_some(millis))?;
            trees.set_item(entry.spec.name, about)?;
        }
        Ok(trees)
    }

    /// Drops a tree and all its items.
    fn drop_tree(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.shared.work(py, |pool| pool.drop_tree(&name))
    }

    /// Renames a tree.
    fn rename_tree(&self, py: Python<'_>, name: String, to: String) -> PyResult<()> {
        self.shared.rename(py, &name, &to)
    }

    /// Removes every item of a tree atomically.
    fn clear_tree(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.shared.clear(py, &name)
    }

    /// Returns information about the pool.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (info, huge_bytes) = self.shared.work(py, |pool| Ok((pool.info(), pool.huge_bytes())))?;
        let told = PyDict::new(py);
        told.set_item("path", &self.shared.path)?;
        told.set_item("uuid", info.uuid)?;
        told.set_item("version", info.version)?;
        told.set_item("domain", info.domain.to_string())?;
        told.set_item("detected", info.detected.to_string())?;
        told.set_item("survives", info.domain.survives())?;
        told.set_item("warning", info.domain.warning(info.detected))?;
        told.set_item("was_clean", info.was_clean)?;
        told.set_item("read_only", info.read_only)?;
        told.set_item("following", info.following)?;
        told.set_item("file_bytes", info.file_bytes)?;
        told.set_item("max_bytes", info.max_bytes)?;
        told.set_item("chunk_bytes", info.chunk_bytes)?;
        told.set_item("chunks", info.chunks)?;
        told.set_item("chunks_free", info.chunks_free)?;
        told.set_item("huge_bytes", huge_bytes)?;
        told.set_item("issues", issues(info.issues))?;
        Ok(told)
    }

    /// Verifies the pool's own structures; returns the damage found.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.shared.work(py, |pool| Ok(issues(pool.check())))
    }

    /// Takes a snapshot: all trees as of now, unaffected by later writes.
    #[pyo3(signature = (*, max_bytes=None))]
    fn snapshot<'py>(slf: &Bound<'py, Self>, max_bytes: Option<Size>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let moment =
            Moment::begin(py, &slf.get().shared, max_bytes.map(|Size(bytes)| bytes as usize), false)?;
        moments(py)?.call_method1(intern!(py, "Snapshot"), (moment,))
    }

    /// Begins a transaction, which is committed at the end of its block.
    fn transaction<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let moment = Moment::begin(py, &slf.get().shared, None, true)?;
        moments(py)?.call_method1(intern!(py, "Transaction"), (moment,))
    }

    /// Calls a function with a transaction and commits it; calls it again after a conflict.
    fn transact<'py>(slf: &Bound<'py, Self>, function: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        moments(slf.py())?.call_method1(intern!(slf.py(), "transact"), (slf, function))
    }

    /// Begins a batch, which is committed at the end of its block.
    fn batch(&self) -> Batch {
        Batch::new(Arc::clone(&self.shared))
    }

    /// Copies the pool, as of one instant, to a new file; returns the trees' names and their
    /// numbers of items.
    #[pyo3(signature = (path, *, max_bytes=None, design=None, domain=None))]
    fn backup(
        &self,
        py: Python<'_>,
        path: PathBuf,
        max_bytes: Option<Size>,
        design: Option<&str>,
        domain: Option<&str>,
    ) -> PyResult<HashMap<String, u64>> {
        let refused = |error| raise(py, error);
        let mut options = BackupOptions::new();
        if let Some(Size(bytes)) = max_bytes {
            options = options.max_bytes(bytes);
        }
        if let Some(design) = design {
            options = options.design(design.parse().map_err(refused)?);
        }
        if let Some(domain) = domain {
            options = options.domain(domain.parse().map_err(refused)?);
        }
        // Signals are checked meanwhile, and their handlers may use the pool: the gate is not held.
        let pool = self.shared.work(py, |pool| Ok(pool.clone()))?;
        let mut signal = None;
        let copied = py.detach(|| {
            let options = options.on_progress(|_| match Python::attach(|py| py.check_signals()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(raised) => {
                    signal = Some(raised);
                    ControlFlow::Break(())
                }
            });
            let copied = pool.backup(&path, options);
            drop(pool);
            copied
        });
        match (copied, signal) {
            (Ok(copied), _) => Ok(copied.trees.into_iter().collect()),
            (Err(_), Some(signal)) => Err(signal),
            (Err(error), None) => Err(raise(py, error)),
        }
    }

    /// Releases unused space to the file system; returns the number of bytes.
    fn trim(&self, py: Python<'_>) -> PyResult<u64> {
        self.shared.work(py, bristlecone::Pool::trim)
    }

    /// Allocates space in advance, so that later growth causes no page faults.
    fn prefault(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        self.shared.work(py, |pool| pool.prefault(bytes))
    }

    /// Makes everything durable that has been written so far.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.work(py, bristlecone::Pool::sync)
    }

    /// Calls a function whose writes do not wait for the disk; returns its result, and a ticket that tells when they are
    /// durable.
    fn with_ticket<'py>(&self, function: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Ticket)> {
        with_ticket(&self.shared, function)
    }

    /// Returns the durable changes from an LSN on; without one, from the first that the journal keeps.
    #[pyo3(signature = (from_lsn=None))]
    fn changes(&self, py: Python<'_>, from_lsn: Option<u64>) -> PyResult<Changes> {
        Changes::open(py, &self.shared, |pool| {
            let from = match from_lsn {
                Some(lsn) => lsn,
                None => pool.journal_status()?.map_or(0, |status| status.oldest_lsn),
            };
            pool.changes(from)
        })
    }

    /// Returns the durable changes from a cursor on, which `Changes.advance` moves.
    fn changes_of(&self, py: Python<'_>, cursor: &str) -> PyResult<Changes> {
        Changes::open(py, &self.shared, |pool| pool.changes_of(cursor))
    }

    /// Creates a cursor at an LSN; without one, behind the last durable change. Returns its LSN.
    #[pyo3(signature = (name, lsn=None))]
    fn create_cursor(&self, py: Python<'_>, name: &str, lsn: Option<u64>) -> PyResult<u64> {
        self.shared.work(py, |pool| pool.create_cursor(name, lsn))
    }

    /// Removes a cursor.
    fn drop_cursor(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.shared.work(py, |pool| pool.drop_cursor(name))
    }

    /// Writes a checkpoint of the journal, and frees the space of the entries before it.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.work(py, bristlecone::Pool::checkpoint)
    }

    /// Writes a checkpoint, and removes all files of the journal that are not needed any more.
    fn prune_journal(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.work(py, bristlecone::Pool::prune_journal)
    }

    /// Returns the state of the journal; `None` for a pool that does not write one. Times are in seconds.
    fn journal_status<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(status) = self.shared.work(py, bristlecone::Pool::journal_status)? else { return Ok(None) };
        let syncs = PyDict::new(py);
        syncs.set_item("count", status.syncs.count)?;
        for (name, time) in [
            ("mean", status.syncs.mean),
            ("p50", status.syncs.p50),
            ("p99", status.syncs.p99),
            ("max", status.syncs.max),
        ] {
            syncs.set_item(name, time.as_secs_f64())?;
        }
        let told = PyDict::new(py);
        told.set_item("folder", &status.folder)?;
        told.set_item("durability", status.durability.map(|durability| durability.to_string()))?;
        told.set_item("lsn", status.lsn)?;
        told.set_item("durable_lsn", status.durable_lsn)?;
        told.set_item("oldest_lsn", status.oldest_lsn)?;
        told.set_item("checkpoint_lsn", status.checkpoint_lsn)?;
        told.set_item("bytes_since_checkpoint", status.bytes_since_checkpoint)?;
        told.set_item("segment_bytes", status.segment_bytes)?;
        told.set_item("failed", status.failed)?;
        told.set_item("syncs", syncs)?;
        let cursors = PyDict::new(py);
        for cursor in status.cursors {
            let about = PyDict::new(py);
            about.set_item("lsn", cursor.lsn)?;
            about.set_item("pinned_bytes", cursor.pinned_bytes)?;
            about.set_item("time", cursor.time)?;
            about.set_item("dropped", cursor.dropped)?;
            cursors.set_item(cursor.name, about)?;
        }
        told.set_item("cursors", cursors)?;
        Ok(Some(told))
    }

    /// Closes the pool and its trees cleanly.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }

    /// Returns whether the pool is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.gate.is_closed()
    }

    /// Returns the path of the pool.
    #[getter]
    fn path(&self) -> PathBuf {
        self.shared.path.clone()
    }

    /// Returns whether the pool is open for reading only.
    #[getter]
    fn read_only(&self) -> bool {
        self.shared.read_only
    }

    /// Returns the durability domain: "process", "adr", "eadr", "msync" or "journal".
    #[getter]
    fn domain(&self) -> String {
        self.shared.domain.to_string()
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) -> PyResult<()> {
        // In a child that was forked within the block there is nothing to close.
        if self.shared.gate.expect_here(py).is_ok() { self.shared.close(py) } else { Ok(()) }
    }

    fn __repr__(&self) -> String {
        let state = if self.closed() { "closed" } else { "open" };
        format!("<bristlecone.Pool {:?} {state}, {}>", self.shared.path, self.shared.domain)
    }
}

impl Pool {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Returns a view of the pool as a mapping.
    fn seen<'py>(slf: Bound<'py, Self>, view: &str) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import(intern!(slf.py(), "collections.abc"))?.getattr(view)?.call1((slf,))
    }

    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let trees = self.shared.work(py, bristlecone::Pool::trees)?;
        Ok(trees.into_iter().map(|entry| entry.spec.name).collect())
    }
}

fn moments(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "bristlecone._moments"))
}

/// Returns descriptions of issues.
pub fn issues(found: Vec<Issue>) -> Vec<String> {
    found.into_iter().map(|Issue { location, what, .. }| format!("{location}: {what}")).collect()
}

/// Returns a tree's space usage.
pub fn stats<'py>(py: Python<'py>, stats: &TreeStats) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    told.set_item("items", stats.items)?;
    told.set_item("leaves", stats.leaves)?;
    told.set_item("pm_bytes", stats.pm_bytes)?;
    told.set_item("dram_bytes", stats.dram_bytes)?;
    Ok(told)
}
