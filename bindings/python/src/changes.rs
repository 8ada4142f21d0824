//! The change stream of a pool with a journal: `Pool.changes`. `python/bristlecone/_changes.py` has the change.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bristlecone::{Changed, JournalChange, JournalChanges, JournalEntry, Stopper};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::convert::python;
use crate::error::raise;
use crate::gate::Gate;
use crate::slot::Shared;

/// Longest time without a look at the signals of the process.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// The durable changes of a pool, in the order of their LSNs.
#[pyclass(frozen, weakref, module = "bristlecone")]
#[derive(Debug)]
pub struct Changes {
    stream: Gate<Mutex<bristlecone::Changes>>,
    stopper: Stopper,
    shared: Arc<Shared>,
}

impl Changes {
    pub fn open(
        py: Python<'_>,
        shared: &Arc<Shared>,
        open: impl FnOnce(&bristlecone::Pool) -> bristlecone::Result<bristlecone::Changes> + Send,
    ) -> PyResult<Self> {
        let stream = shared.work(py, open)?;
        let stopper = stream.stopper();
        Ok(Self { stream: Gate::new(Mutex::new(stream)), stopper, shared: Arc::clone(shared) })
    }

    fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut bristlecone::Changes) -> bristlecone::Result<R> + Send,
    ) -> PyResult<R> {
        // A pool that was closed reads no more.
        self.shared.gate.with(py, |_| ())?;
        let done = self
            .stream
            .with_detached(py, |stream| work(&mut stream.lock().unwrap_or_else(PoisonError::into_inner)))?;
        done.map_err(|error| raise(py, error))
    }

    fn entry(&self, py: Python<'_>, time: Duration) -> PyResult<Option<Commit>> {
        let entry = self.with(py, |stream| stream.next_within(time))?;
        Ok(entry.map(|entry| Commit { entry }))
    }
}

#[pymethods]
impl Changes {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Commit> {
        self.entry(py, Duration::ZERO)?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Waits for the next commit, up to `timeout` seconds; without one, until `stop()` is called. Returns `None` if there is
    /// none.
    #[pyo3(signature = (timeout=None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Commit>> {
        let wrong = || PyValueError::new_err("a timeout is a number of seconds, at least 0");
        let end = match timeout {
            None => None,
            // Longer than any process lives.
            Some(time) if time > 1e9 => None,
            Some(time) => Instant::now().checked_add(Duration::try_from_secs_f64(time).map_err(|_| wrong())?),
        };
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let nap = left.map_or(SIGNALS_EVERY, |left| left.min(SIGNALS_EVERY));
            if let Some(commit) = self.entry(py, nap)? {
                return Ok(Some(commit));
            }
            if left.is_some_and(|left| left <= nap) || self.stopper.is_stopped() {
                return Ok(None);
            }
            py.check_signals()?;
        }
    }

    /// Ends all waiting on this stream, also that of another thread.
    fn stop(&self) {
        self.stopper.stop();
    }

    /// Moves the cursor of the stream, durably: usually to the `next_lsn` of the last commit whose effects are durable.
    fn advance(&self, py: Python<'_>, lsn: u64) -> PyResult<()> {
        self.with(py, |stream| stream.advance(lsn))
    }

    /// Returns the LSN from which a later stream continues.
    #[getter]
    fn next_lsn(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |stream| Ok(stream.next_lsn()))
    }

    /// Closes the stream. Its cursor stays.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.stopper.stop();
        self.stream.change(py, |stream| drop(stream.take()))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.stream.expect_here(py).is_ok() { self.close(py) } else { Ok(()) }
    }
}

/// A commit in a stream of changes, which is an iterable of them.
#[pyclass(frozen, module = "bristlecone")]
#[derive(Debug)]
pub struct Commit {
    entry: JournalEntry,
}

#[pymethods]
impl Commit {
    /// Returns its LSN.
    #[getter]
    fn lsn(&self) -> u64 {
        self.entry.lsn()
    }

    /// Returns the LSN from which a later stream continues behind it.
    #[getter]
    fn next_lsn(&self) -> u64 {
        self.entry.next_lsn()
    }

    /// Returns when it was written to the journal.
    #[getter]
    fn time<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.entry.time().into_bound_py_any(py)
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<CommitChanges> {
        let changes = py.detach(|| self.entry.changes()).map_err(|error| raise(py, error))?;
        Ok(CommitChanges { changes: Mutex::new(changes) })
    }

    fn __repr__(&self) -> String {
        format!("<bristlecone.Commit at LSN {}>", self.entry.lsn())
    }
}

/// The changes of a commit. Those of a long one are read from its file meanwhile.
#[pyclass(frozen, module = "bristlecone._bristlecone")]
#[derive(Debug)]
pub struct CommitChanges {
    changes: Mutex<JournalChanges>,
}

#[pymethods]
impl CommitChanges {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let next = py.detach(|| self.changes.lock().unwrap_or_else(PoisonError::into_inner).next());
        let Some(change) = next else { return Err(PyStopIteration::new_err(())) };
        shown(py, &change.map_err(|error| raise(py, error))?)
    }
}

static CHANGE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Converts a change to its named tuple.
fn shown<'py>(
    py: Python<'py>,
    JournalChange { tree, change, .. }: &JournalChange,
) -> PyResult<Bound<'py, PyAny>> {
    let none = || py.None().into_bound(py);
    let (what, key, value, existed, renamed_to) = match change {
        Changed::Put { key, value, existed } => ("put", python(py, key)?, python(py, value)?, *existed, None),
        Changed::Remove { key, existed } => ("remove", python(py, key)?, none(), *existed, None),
        Changed::Create => ("create", none(), none(), None, None),
        Changed::Drop => ("drop", none(), none(), None, None),
        Changed::Rename { to } => ("rename", none(), none(), None, Some(to)),
        Changed::Clear { .. } => ("clear", none(), none(), None, None),
        _ => ("other", none(), none(), None, None),
    };
    let class = CHANGE.get_or_try_init(py, || {
        let module = py.import(intern!(py, "bristlecone._changes"))?;
        Ok::<_, PyErr>(module.getattr(intern!(py, "Change"))?.unbind())
    })?;
    class.bind(py).call1((what, &tree.spec.name, key, value, existed, renamed_to))
}
