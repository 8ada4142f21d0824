//! Trees: mutable mappings in key order.

use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyGenericAlias, PyTuple, PyType};

use crate::absent::Absent;
use crate::expiring::ExpiringTree;
use crate::handle::{Tree, lent};
use crate::many;
use crate::pool::{issues, stats};
use crate::view::{Items, View, What};

/// Returns the two elements of a pair of any type.
fn both<'py>(pair: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let mut elements = pair.try_iter()?;
    match (elements.next().transpose()?, elements.next().transpose()?, elements.next().transpose()?) {
        (Some(key), Some(value), None) => Ok((key, value)),
        _ => Err(PyValueError::new_err("pairs of a key and a value are expected")),
    }
}

#[cold]
fn no_key(key: &Bound<'_, PyAny>) -> PyErr {
    PyKeyError::new_err((key.clone().unbind(),))
}

#[pymethods]
impl Tree {
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.find(key)?.ok_or_else(|| no_key(key))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.upsert(key, value)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let datum = self.key(key)?;
        let removed = self.slot.write(key.py(), |tree| tree.remove(&datum))?;
        removed.map(drop).ok_or_else(|| no_key(key))
    }

    pub fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let datum = self.key(key)?;
        self.slot.read(key.py(), |tree| tree.contains_key(&datum))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.slot.read(py, |tree| tree.len().map(|items| items as usize))
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.__len__(py)? > 0)
    }

    fn __iter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Items> {
        Self::whole(slf, py, false)
    }

    fn __reversed__(slf: Py<Self>, py: Python<'_>) -> PyResult<Items> {
        Self::whole(slf, py, true)
    }

    /// Returns the value of a key, or `default`.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.find(key)?.or(default))
    }

    /// Writes a key's value; returns whether it did. Without `overwrite` an existing key is unchanged.
    #[pyo3(signature = (key, value, overwrite=true))]
    fn put(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, overwrite: bool) -> PyResult<bool> {
        if overwrite {
            self.upsert(key, value)?;
            return Ok(true);
        }
        self.insert_absent(key, value).map(|there| there.is_none())
    }

    /// Writes a key's value; returns the previous value, or `default`.
    #[pyo3(signature = (key, value, default=None))]
    fn replace<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let stored = self.encode(value)?;
        let (datum, value) = (self.key(key)?, self.value(&stored)?);
        let replaced = self.slot.write(py, |tree| tree.insert(&datum, &value))?;
        Ok(replaced.map(|value| self.shown(py, &value)).transpose()?.or(default))
    }

    /// Returns the value of a key; sets it to `default` if the key is absent.
    #[pyo3(signature = (key, default=None))]
    fn setdefault<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = key.py();
        let default = default.unwrap_or_else(|| py.None().into_bound(py));
        match self.insert_absent(key, &default)? {
            Some(there) => self.shown(py, &there),
            None => Ok(default),
        }
    }

    /// Changes a key from `expected` to `wanted` atomically; returns whether it did. `ABSENT` means an absent key.
    fn compare_and_swap(
        &self,
        key: &Bound<'_, PyAny>,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let encode = |value: &Bound<'_, PyAny>| {
            if Absent::is(value) { Ok(None) } else { self.encode(value).map(Bound::unbind).map(Some) }
        };
        let py = key.py();
        let stored = (encode(expected)?, encode(new)?);
        let stored = (stored.0.map(|it| it.into_bound(py)), stored.1.map(|it| it.into_bound(py)));
        let expected = stored.0.as_ref().map(|stored| self.value(stored)).transpose()?;
        let new = stored.1.as_ref().map(|stored| self.value(stored)).transpose()?;
        let key = self.key(key)?;
        self.slot.write(py, |tree| match tree.compare_and_swap(&key, expected.as_ref(), new.as_ref()) {
            Ok(()) => Ok(true),
            Err(found) => found.into_found().map(|_| false),
        })
    }

    /// Removes a key; returns its value, or `default` if that is given and the key is absent.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            let told = format!("pop expected at most 2 arguments, got {}", default.len() + 1);
            return Err(PyTypeError::new_err(told));
        }
        match self.remove(key)? {
            Some(value) => Ok(value),
            None => default.get_item(0).map_err(|_| no_key(key)),
        }
    }

    /// Removes the item with the largest key, or the smallest, and returns it.
    #[pyo3(signature = (last=true))]
    fn popitem<'py>(&self, py: Python<'py>, last: bool) -> PyResult<Bound<'py, PyTuple>> {
        match self.slot.write(py, |tree| if last { tree.pop_last() } else { tree.pop_first() })? {
            Some((key, value)) => self.pair(py, &key, &value),
            None => Err(PyKeyError::new_err("popitem(): the tree is empty")),
        }
    }

    /// Writes the items of a mapping, or of an iterable of pairs; each write is separate.
    #[pyo3(signature = (other=None, /, **named))]
    fn update(
        &self,
        py: Python<'_>,
        other: Option<&Bound<'_, PyAny>>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        if let Some(other) = other {
            let pairs = match other.getattr(intern!(py, "items")) {
                Ok(items) => items.call0()?,
                Err(_) => other.clone(),
            };
            for pair in pairs.try_iter()? {
                let (key, value) = both(&pair?)?;
                self.upsert(&key, &value)?;
            }
        }
        for (key, value) in named.into_iter().flatten() {
            self.upsert(&key, &value)?;
        }
        Ok(())
    }

    fn __ior__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.update(other.py(), Some(other), None)
    }

    /// Removes every item atomically.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.clear(py, &self.slot.name())
    }

    /// Returns the items whose keys are within bounds, in order.
    #[pyo3(signature = (start=None, stop=None, reverse=false, *, inclusive=(true, false)))]
    fn items(
        slf: Py<Self>,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        inclusive: (bool, bool),
    ) -> PyResult<View> {
        Self::view(slf, py, What::Items, [start, stop], inclusive, reverse)
    }

    /// Returns the keys within bounds, in order.
    #[pyo3(signature = (start=None, stop=None, reverse=false, *, inclusive=(true, false)))]
    fn keys(
        slf: Py<Self>,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        inclusive: (bool, bool),
    ) -> PyResult<View> {
        Self::view(slf, py, What::Keys, [start, stop], inclusive, reverse)
    }

    /// Returns the values of the keys within bounds, in key order.
    #[pyo3(signature = (start=None, stop=None, reverse=false, *, inclusive=(true, false)))]
    fn values(
        slf: Py<Self>,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        inclusive: (bool, bool),
    ) -> PyResult<View> {
        Self::view(slf, py, What::Values, [start, stop], inclusive, reverse)
    }

    /// Returns the items whose keys have a prefix: a text, bytes, or the first elements of a tuple.
    #[pyo3(signature = (prefix, reverse=false))]
    fn prefix(slf: Py<Self>, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<View> {
        let bounds = slf.get().beginning_with(prefix)?;
        Ok(View { tree: slf, bounds, what: What::Items, reverse, whole: false })
    }

    /// Returns the item with the smallest key, or `None`.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.end(py, false)
    }

    /// Returns the item with the largest key, or `None`.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.end(py, true)
    }

    /// Returns the item with the largest key below `key`, or `None`.
    fn get_lt<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.near(key, |tree, key| tree.get_lt(key))
    }

    /// Returns the item with the largest key that is at most `key`, or `None`.
    fn get_le<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.near(key, |tree, key| tree.get_le(key))
    }

    /// Returns the item with the smallest key above `key`, or `None`.
    fn get_gt<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.near(key, |tree, key| tree.get_gt(key))
    }

    /// Returns the item with the smallest key that is at least `key`, or `None`.
    fn get_ge<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.near(key, |tree, key| tree.get_ge(key))
    }

    /// Removes the items whose keys are within bounds, all or, after an error or a crash, none; returns how many.
    #[pyo3(signature = (start=None, stop=None, *, inclusive=(true, false)))]
    fn remove_range(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        inclusive: (bool, bool),
    ) -> PyResult<u64> {
        let bounds = self.between([start, stop], inclusive)?;
        self.slot.work(py, |tree| tree.remove_range(lent(&bounds)))
    }

    /// Removes the items whose keys have a prefix, as `remove_range` does; returns how many.
    fn remove_prefix(&self, prefix: &Bound<'_, PyAny>) -> PyResult<u64> {
        let bounds = self.beginning_with(prefix)?;
        self.slot.work(prefix.py(), |tree| tree.remove_within(&bounds))
    }

    /// Returns the tree with operations for which expired values are absent. Its values must be of a type `Expiring<…>`.
    fn expiring(slf: Py<Self>) -> PyResult<ExpiringTree> {
        ExpiringTree::new(slf)
    }

    /// Writes many items; each write is separate.
    fn put_many(&self, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        many::put(self, keys, values)
    }

    /// Returns the values of many keys.
    #[pyo3(signature = (keys, default=None))]
    fn get_many<'py>(
        slf: &Bound<'py, Self>,
        keys: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        many::get(slf, keys, default)
    }

    /// Returns the values of many keys in the form required by `_arrays`, and whether each exists.
    fn _lookup<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        many::columns(self, keys)
    }

    /// Returns whether each of many keys exists.
    fn contains_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        many::contains(self, keys)
    }

    /// Removes many keys; returns how many of them existed.
    fn remove_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<usize> {
        many::remove(self, keys)
    }

    /// Closes the tree, including all its handles in this pool. Using them then raises `ClosedError`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.slot.gate.change(py, Option::take).map(drop)
    }

    /// Returns whether the tree, or its pool, is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.slot.gate.is_closed()
    }

    /// Returns the tree's name.
    #[getter]
    fn name(&self) -> String {
        self.slot.name()
    }

    /// Returns the type of its keys.
    #[getter]
    fn key_kind(&self) -> String {
        self.slot.keys.to_string()
    }

    /// Returns the type of its values in the pool.
    #[getter]
    fn value_kind(&self) -> String {
        self.slot.values.to_string()
    }

    /// Returns the codec of its values.
    #[getter]
    fn codec(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.codec.as_ref().map(|codec| codec.given().clone_ref(py))
    }

    /// Returns its design.
    #[getter]
    fn design(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.slot.read(py, |tree| Ok(tree.design().name()))
    }

    /// Returns its design's options.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let told = PyDict::new(py);
        for (name, value) in self.slot.read(py, |tree| Ok(tree.options().to_vec()))? {
            told.set_item(name, value)?;
        }
        Ok(told)
    }

    /// Returns the tree's space usage.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let told = self.slot.work(py, |tree| tree.stats())?;
        stats(py, &told)
    }

    /// Verifies everything reachable from the tree; returns the damage found.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.slot.work(py, |tree| Ok(issues(tree.check())))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.codec.iter().try_for_each(|codec| codec.traverse(visit))
    }

    fn __repr__(&self) -> String {
        let Self { slot, .. } = self;
        let state = if self.closed() { ", closed" } else { "" };
        format!("<bristlecone.Tree {:?} {} -> {}{state}>", slot.name(), slot.keys, slot.values)
    }

    #[classmethod]
    fn __class_getitem__<'py>(
        class: &Bound<'py, PyType>,
        types: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyGenericAlias::new(class.py(), class.as_any(), types)?.into_any())
    }
}
