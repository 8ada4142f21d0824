//! Trees as of one instant, in snapshots and transactions; and batches. `python/bristlecone/_moments.py` has the
//! mappings for users.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bristlecone::dynamic::{Datum, Item, Tree as Dynamic};
use bristlecone::{Error, Result, Snapshot, Transaction};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;

use crate::absent::Absent;
use crate::error::raise;
use crate::gate::Gate;
use crate::handle::{Between, Tree, lent};
use crate::slot::{Shared, Slot};
use crate::view::{Items, Rest, What, some_of};

/// The view through which trees are read.
#[derive(Debug)]
pub enum Seen {
    Snapshot(Snapshot),
    /// Used by one thread at a time.
    Transaction(Box<Mutex<Transaction>>),
}

impl Seen {
    fn get(&self, tree: &Dynamic, key: &Datum<'_>) -> Result<Option<Datum<'static>>> {
        match self {
            Self::Snapshot(snapshot) => snapshot.tree(tree).get(key),
            Self::Transaction(transaction) => lock(transaction).get(tree, key),
        }
    }

    fn items(&self, tree: &Dynamic, within: &Between, backward: bool, most: usize) -> Result<Vec<Item>> {
        let within = lent(within);
        match self {
            Self::Snapshot(snapshot) => some_of(snapshot.tree(tree).range(within), backward, most),
            Self::Transaction(transaction) => some_of(lock(transaction).range(tree, within), backward, most),
        }
    }

    /// Writes a key's value, or removes the key.
    fn put(&self, tree: &Dynamic, key: &Datum<'_>, value: Option<&Datum<'_>>) -> Result<()> {
        let Self::Transaction(transaction) = self else { return Err(Error::ReadOnly) };
        match value {
            Some(value) => lock(transaction).insert(tree, key, value),
            None => lock(transaction).remove(tree, key),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A snapshot or a transaction, until it ends.
#[pyclass(frozen, weakref, module = "bristlecone._bristlecone")]
#[derive(Debug)]
pub struct Moment {
    shared: Arc<Shared>,
    seen: Arc<Gate<Seen>>,
}

impl Moment {
    pub fn begin(
        py: Python<'_>,
        shared: &Arc<Shared>,
        max_bytes: Option<usize>,
        writes: bool,
    ) -> PyResult<Self> {
        let seen = shared.work(py, |pool| {
            let seen = if writes {
                Seen::Transaction(Box::new(Mutex::new(pool.begin_transaction()?)))
            } else {
                Seen::Snapshot(pool.snapshot_within(max_bytes.unwrap_or(usize::MAX))?)
            };
            let seen = Arc::new(Gate::new(seen));
            shared.note_seen(&seen);
            Ok(seen)
        })?;
        Ok(Self { shared: Arc::clone(shared), seen })
    }

    /// Calls `use_it` with the view and the tree. It must not run Python code.
    fn with<R>(
        &self,
        py: Python<'_>,
        slot: &Slot,
        use_it: impl FnOnce(&Seen, &Dynamic) -> Result<R>,
    ) -> PyResult<R> {
        self.seen.with(py, |seen| slot.read(py, |tree| use_it(seen, tree)))?
    }

    fn expect_own(&self, py: Python<'_>, tree: &Tree) -> PyResult<()> {
        if tree.is_of(&self.shared) { Ok(()) } else { Err(other_pool(py)) }
    }

    /// Returns the next items of a tree.
    pub fn some_items(
        &self,
        py: Python<'_>,
        slot: &Slot,
        within: &Between,
        backward: bool,
        most: usize,
    ) -> PyResult<Vec<Item>> {
        self.with(py, slot, |seen, tree| seen.items(tree, within, backward, most))
    }
}

fn other_pool(py: Python<'_>) -> PyErr {
    raise(py, Error::invalid("the tree is one of another pool"))
}

#[pymethods]
impl Moment {
    /// Returns the value of a key, or `default`.
    fn get<'py>(
        &self,
        tree: &Tree,
        key: &Bound<'py, PyAny>,
        default: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        self.expect_own(py, tree)?;
        let datum = tree.key(key)?;
        let value = self.with(py, &tree.slot, |seen, tree| seen.get(tree, &datum))?;
        value.map_or(Ok(default), |value| tree.shown(py, &value))
    }

    /// Returns an iterator over keys, values or items within bounds.
    fn items(
        slf: Py<Self>,
        tree: Py<Tree>,
        what: &str,
        ends: (Option<Bound<'_, PyAny>>, Option<Bound<'_, PyAny>>),
        inclusive: (bool, bool),
        reverse: bool,
        py: Python<'_>,
    ) -> PyResult<Items> {
        slf.get().expect_own(py, tree.get())?;
        let what = match what {
            "keys" => What::Keys,
            "values" => What::Values,
            _ => What::Items,
        };
        let within = tree.get().between([ends.0.as_ref(), ends.1.as_ref()], inclusive)?;
        Ok(Items::new(tree, Rest::Moment(slf, within), what, reverse))
    }

    /// Writes a key's value when the transaction is committed.
    fn put(&self, tree: &Tree, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = key.py();
        self.expect_own(py, tree)?;
        let stored = tree.encode(value)?;
        let (key, value) = (tree.key(key)?, tree.value(&stored)?);
        self.with(py, &tree.slot, |seen, tree| seen.put(tree, &key, Some(&value)))
    }

    /// Removes a key when the transaction is committed.
    fn remove(&self, tree: &Tree, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = key.py();
        self.expect_own(py, tree)?;
        let key = tree.key(key)?;
        self.with(py, &tree.slot, |seen, tree| seen.put(tree, &key, None))
    }

    /// Commits the transaction.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let Some(Seen::Transaction(transaction)) = self.seen.change(py, Option::take)? else {
            return Err(crate::error::closed(py));
        };
        let transaction = transaction.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.shared.work(py, |_| transaction.commit())
    }

    /// Ends the snapshot or the transaction. Repeated calls have no effect.
    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.seen.change(py, |seen| drop(seen.take()))
    }

    /// Returns whether it has ended.
    #[getter]
    fn ended(&self) -> bool {
        self.seen.is_closed()
    }

    /// Returns the approximate number of bytes of memory retained for a snapshot.
    #[getter]
    fn bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.seen.with(py, |seen| if let Seen::Snapshot(snapshot) = seen { snapshot.bytes() } else { 0 })
    }
}

/// A batch's change of a key.
#[derive(Debug)]
enum Change {
    Put(Datum<'static>),
    Remove,
    Expect(Option<Datum<'static>>),
}

/// A change of a key, as stored in a batch.
type Noted = (Arc<Slot>, Datum<'static>, Change);

/// Changes of any trees of one pool that are applied atomically.
#[pyclass(frozen, weakref, module = "bristlecone")]
#[derive(Debug)]
pub struct Batch {
    shared: Arc<Shared>,
    /// `None`: it was committed.
    changes: Mutex<Option<Vec<Noted>>>,
}

impl Batch {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, changes: Mutex::new(Some(Vec::new())) }
    }

    fn note(&self, tree: &Tree, key: &Bound<'_, PyAny>, change: Change) -> PyResult<()> {
        let py = key.py();
        if !tree.is_of(&self.shared) {
            return Err(other_pool(py));
        }
        let key = tree.key(key)?.into_owned();
        let mut changes = self.changes.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let changes = changes.as_mut().ok_or_else(|| crate::error::closed(py))?;
        changes.push((Arc::clone(&tree.slot), key, change));
        Ok(())
    }
}

#[pymethods]
impl Batch {
    /// Writes a key's value, whether or not the key exists.
    fn put(&self, tree: &Tree, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let stored = tree.encode(value)?;
        self.note(tree, key, Change::Put(tree.value(&stored)?.into_owned()))
    }

    /// Removes a key, if it exists.
    fn remove(&self, tree: &Tree, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.note(tree, key, Change::Remove)
    }

    /// Adds a condition: before the batch, the key has this value, or is `ABSENT`.
    fn expect(&self, tree: &Tree, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if Absent::is(value) {
            return self.note(tree, key, Change::Expect(None));
        }
        let stored = tree.encode(value)?;
        self.note(tree, key, Change::Expect(Some(tree.value(&stored)?.into_owned())))
    }

    /// Applies all changes atomically, if all conditions hold.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let changes = self.changes.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).take();
        let changes = changes.ok_or_else(|| crate::error::closed(py))?;
        let trees = changes.iter().map(|(slot, ..)| slot.gate.with(py, |open| Dynamic::clone(open)));
        let trees: Vec<_> = trees.collect::<PyResult<_>>()?;
        self.shared.work(py, move |pool| {
            let mut batch = pool.batch();
            for (tree, (_, key, change)) in trees.iter().zip(changes) {
                match change {
                    Change::Put(value) => batch.insert(tree, &key, &value),
                    Change::Remove => batch.remove(tree, &key),
                    Change::Expect(value) => batch.expect(tree, &key, value.as_ref()),
                };
            }
            drop(trees);
            batch.commit()
        })
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        let changes = self.changes.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        changes.as_ref().map_or(0, Vec::len)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (kind, _raised=None, _trace=None, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _raised: Option<&Bound<'_, PyAny>>,
        _trace: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let is_open = self.changes.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).is_some();
        match kind {
            // An exception within the block discards all changes.
            Some(_) => *self.changes.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner) = None,
            None if is_open => self.commit(py)?,
            None => {}
        }
        Ok(())
    }
}
