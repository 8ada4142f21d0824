//! Trees: mutable mappings in the order of their keys.

use std::sync::Arc;

use bristlecone::TryInsertError;
use bristlecone::dynamic::{Datum, Item, Kind, Tree as Dynamic};
use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyKeyError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyGenericAlias, PyString, PyTuple, PyType};

use crate::codec::Codec;
use crate::convert::{Role, datum, is_plain, python, some_elements};
use crate::many;
use crate::pool::{findings, stats};
use crate::slot::{Shared, Slot};
use crate::view::{Items, View, What};

/// Stands for an absent key in `Tree.compare_and_swap`.
#[pyclass(frozen, module = "bristlecone", name = "Absent")]
#[derive(Debug)]
pub struct Absent;

impl Absent {
    /// Returns whether an object is the one that stands for an absent key.
    pub fn is(it: &Bound<'_, PyAny>) -> bool {
        Self::is_type_of(it)
    }
}

#[pymethods]
impl Absent {
    fn __repr__(&self) -> &'static str {
        "bristlecone.ABSENT"
    }

    fn __bool__(&self) -> bool {
        false
    }

    fn __reduce__(&self) -> &'static str {
        "ABSENT"
    }
}

/// An ordered map in a pool, for any number of threads.
#[pyclass(frozen, mapping, weakref, module = "bristlecone")]
#[derive(Debug)]
pub struct Tree {
    pub(crate) slot: Arc<Slot>,
    /// The pool stays open as long as a tree of it is at hand.
    shared: Arc<Shared>,
    codec: Option<Codec>,
}

/// Bounds of keys.
pub type Between = (std::ops::Bound<Datum<'static>>, std::ops::Bound<Datum<'static>>);

/// A value as the tree takes it, before it is a datum.
type Stored<'py> = Bound<'py, PyAny>;

impl Tree {
    pub fn new(slot: Arc<Slot>, shared: Arc<Shared>, codec: Option<Codec>) -> PyResult<Self> {
        if codec.is_some() && !matches!(slot.values, Kind::Bytes | Kind::Str | Kind::Json | Kind::Postcard) {
            let told = format!("a codec needs values of type bytes, str or json, not {}", slot.values);
            return Err(PyTypeError::new_err(told));
        }
        Ok(Self { slot, shared, codec })
    }

    #[inline]
    pub fn key<'a>(&self, key: &'a Bound<'_, PyAny>) -> PyResult<Datum<'a>> {
        datum(&self.slot.keys, Role::Key, key)
    }

    /// Returns a value as the codec makes it.
    #[inline]
    pub fn encode<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Stored<'py>> {
        match &self.codec {
            None => Ok(value.clone()),
            Some(codec) => codec.encode(&self.slot.values, value),
        }
    }

    #[inline]
    pub fn value<'a>(&self, stored: &'a Stored<'_>) -> PyResult<Datum<'a>> {
        datum(&self.slot.values, Role::Value, stored)
    }

    #[inline]
    pub fn decode<'py>(&self, stored: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match &self.codec {
            None => Ok(stored),
            Some(codec) => codec.decode(stored),
        }
    }

    /// Returns a value of the tree as an object of Python's.
    pub fn shown<'py>(&self, py: Python<'py>, value: &Datum<'_>) -> PyResult<Bound<'py, PyAny>> {
        self.decode(python(py, value)?)
    }

    /// Returns the value of a key.
    #[inline]
    pub fn find<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, slot) = (key.py(), &self.slot);
        let key = self.key(key)?;
        let found = if is_plain(&slot.values) {
            slot.read(py, |tree| tree.get_with(key, |value| python(py, &value)))?
        } else {
            slot.read(py, |tree| tree.get(key))?.map(|value| python(py, &value))
        };
        found.map(|stored| self.decode(stored?)).transpose()
    }

    fn upsert(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let stored = self.encode(value)?;
        let (datum, value) = (self.key(key)?, self.value(&stored)?);
        self.slot.write(key.py(), |tree| tree.upsert(datum, value))
    }

    fn remove<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let datum = self.key(key)?;
        let removed = self.slot.write(py, |tree| tree.remove(datum))?;
        removed.map(|value| self.shown(py, &value)).transpose()
    }

    pub fn between(
        &self,
        ends: [Option<&Bound<'_, PyAny>>; 2],
        inclusive: (bool, bool),
    ) -> PyResult<Between> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let bound = |end: Option<&Bound<'_, PyAny>>, inclusive| {
            let Some(key) = end else { return Ok(Unbounded) };
            let key = self.key(key)?.into_owned();
            Ok::<_, PyErr>(if inclusive { Included(key) } else { Excluded(key) })
        };
        Ok((bound(ends[0], inclusive.0)?, bound(ends[1], inclusive.1)?))
    }

    fn near<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        look: impl FnOnce(&Dynamic, Datum<'_>) -> bristlecone::Result<Option<Item>>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, key) = (key.py(), self.key(key)?);
        let item = self.slot.read(py, |tree| look(tree, key))?;
        item.map(|(key, value)| self.pair(py, &key, &value)).transpose()
    }

    fn view(
        slf: Py<Self>,
        py: Python<'_>,
        what: What,
        ends: [Option<&Bound<'_, PyAny>>; 2],
        inclusive: (bool, bool),
        reverse: bool,
    ) -> PyResult<View> {
        let (tree, whole) = (slf.get(), ends.iter().all(Option::is_none));
        let bounds = tree.between(ends, inclusive)?;
        let bounds = tree.slot.read(py, |tree| tree.bounds(bounds))?;
        Ok(View { tree: slf, bounds, what, reverse, whole })
    }

    fn whole(slf: Py<Self>, py: Python<'_>, reverse: bool) -> PyResult<Items> {
        Ok(Self::view(slf, py, What::Keys, [None; 2], (true, false), reverse)?.begin(py, false))
    }

    fn end<'py>(&self, py: Python<'py>, last: bool) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let end = |tree: &Dynamic| if last { tree.last_key_value() } else { tree.first_key_value() };
        let item = self.slot.read(py, end)?;
        item.map(|(key, value)| self.pair(py, &key, &value)).transpose()
    }

    pub fn pair<'py>(
        &self,
        py: Python<'py>,
        key: &Datum<'_>,
        value: &Datum<'_>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        (python(py, key)?, self.shown(py, value)?).into_pyobject(py)
    }
}

/// Returns the two elements of a pair, of whatever type that is.
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
        let removed = self.slot.write(key.py(), |tree| tree.remove(datum))?;
        removed.map(drop).ok_or_else(|| no_key(key))
    }

    pub fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let datum = self.key(key)?;
        self.slot.read(key.py(), |tree| tree.contains_key(datum))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.slot.read(py, |tree| tree.opened_here().map(|()| tree.len() as usize))
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

    /// Writes a key's value; returns whether it did. Without `overwrite` a key that is there stays as it is.
    #[pyo3(signature = (key, value, overwrite=true))]
    fn put(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, overwrite: bool) -> PyResult<bool> {
        if overwrite {
            self.upsert(key, value)?;
            return Ok(true);
        }
        self.insert_absent(key, value).map(|there| there.is_none())
    }

    /// Writes a key's value; returns the value it had, or `default`.
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
        let replaced = self.slot.write(py, |tree| tree.insert(datum, value))?;
        Ok(replaced.map(|value| self.shown(py, &value)).transpose()?.or(default))
    }

    /// Returns the value of a key, which is `default` from now on if the key was absent.
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

    /// Changes a key from what is expected to what is wanted, in one step; returns whether it did. `ABSENT` stands
    /// for an absent key.
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
        self.slot.write(py, |tree| match tree.compare_and_swap(key, expected, new) {
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

    /// Writes the items of a mapping, or of an iterable of pairs; each is a write of its own.
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

    /// Removes every item in one step.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.clear(py, &self.slot.name())
    }

    /// Returns the items whose keys lie within bounds, in order.
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

    /// Returns the values of the keys within bounds, in the order of the keys.
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

    /// Returns the items whose keys begin with a text, with bytes, or with the first elements of a tuple.
    #[pyo3(signature = (prefix, reverse=false))]
    fn prefix(slf: Py<Self>, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<View> {
        let tree = slf.get();
        let datum = match (&tree.slot.keys, prefix.cast::<PyTuple>()) {
            (Kind::Tuple(kinds), Ok(elements)) if elements.len() <= kinds.len() => {
                some_elements(kinds, Role::Key, elements)?
            }
            (Kind::Array(_), _) if let Ok(bytes) = prefix.cast::<PyBytes>() => Datum::from(bytes.as_bytes()),
            (Kind::Str | Kind::Bytes | Kind::Array(_) | Kind::Tuple(_), _) => tree.key(prefix)?,
            (kind, _) => {
                return Err(PyValueError::new_err(format!("keys of type {kind} have no prefixes")));
            }
        };
        let bounds = tree.slot.read(prefix.py(), |tree| tree.prefix_bounds(datum))?;
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

    /// Returns the item with the largest key that is `key` or below, or `None`.
    fn get_le<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.near(key, |tree, key| tree.get_le(key))
    }

    /// Returns the item with the smallest key above `key`, or `None`.
    fn get_gt<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.near(key, |tree, key| tree.get_gt(key))
    }

    /// Returns the item with the smallest key that is `key` or above, or `None`.
    fn get_ge<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.near(key, |tree, key| tree.get_ge(key))
    }

    /// Removes the items whose keys lie within bounds, each in a step of its own; returns how many.
    #[pyo3(signature = (start=None, stop=None, *, inclusive=(true, false)))]
    fn remove_range(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        inclusive: (bool, bool),
    ) -> PyResult<u64> {
        let bounds = self.between([start, stop], inclusive)?;
        self.slot.work(py, |tree| tree.remove_range(bounds))
    }

    /// Writes many items; each is a write of its own.
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

    /// Returns the values of many keys as `_arrays` takes them, and which are there.
    fn _lookup<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        many::columns(self, keys)
    }

    /// Returns which of many keys are there.
    fn contains_many<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        many::contains(self, keys)
    }

    /// Removes many keys; returns how many of them were there.
    fn remove_many(&self, keys: &Bound<'_, PyAny>) -> PyResult<usize> {
        many::remove(self, keys)
    }

    /// Closes the tree: all handles to it in this pool. What they are used for raises `ClosedError` then.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.slot.gate.change(py, Option::take).map(drop)
    }

    /// Whether the tree, or its pool, is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.slot.gate.is_closed()
    }

    /// The tree's name.
    #[getter]
    fn name(&self) -> String {
        self.slot.name()
    }

    /// The type of its keys.
    #[getter]
    fn key_kind(&self) -> String {
        self.slot.keys.to_string()
    }

    /// The type of its values, as the pool has them.
    #[getter]
    fn value_kind(&self) -> String {
        self.slot.values.to_string()
    }

    /// What makes values of bytes or texts.
    #[getter]
    fn codec(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.codec.as_ref().map(|codec| codec.given().clone_ref(py))
    }

    /// Its design.
    #[getter]
    fn design(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.slot.read(py, |tree| Ok(tree.design().name()))
    }

    /// Its design's options.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let told = PyDict::new(py);
        for (name, value) in self.slot.read(py, |tree| Ok(tree.options().to_vec()))? {
            told.set_item(name, value)?;
        }
        Ok(told)
    }

    /// Returns what the tree occupies.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let told = self.slot.work(py, |tree| tree.opened_here().map(|()| tree.stats()))?;
        stats(py, &told)
    }

    /// Verifies everything the tree reaches; returns what is wrong.
    fn check(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.slot.work(py, |tree| Ok(findings(tree.check())))
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

impl Tree {
    /// Inserts a key that is absent; otherwise returns the value that is there.
    fn insert_absent(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Datum<'static>>> {
        let stored = self.encode(value)?;
        let (datum, value) = (self.key(key)?, self.value(&stored)?);
        self.slot.write(key.py(), |tree| match tree.try_insert(datum, value) {
            Ok(()) => Ok(None),
            Err(TryInsertError::Present(there)) => Ok(Some(there)),
            Err(other) => other.into_present().map(Some),
        })
    }

    /// Returns whether the tree is one of this pool.
    pub fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Returns whether values go through a codec.
    pub fn has_codec(&self) -> bool {
        self.codec.is_some()
    }
}

/// Returns whether keys or values of this kind are texts, for Arrow.
pub fn is_text(kind: &Kind) -> bool {
    matches!(kind, Kind::Str | Kind::Json)
}

/// Verifies that an object is no single text, whose characters would be taken for keys.
pub fn expect_several(keys: &Bound<'_, PyAny>) -> PyResult<()> {
    if keys.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("several keys are expected, not one str"));
    }
    Ok(())
}
