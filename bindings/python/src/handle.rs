//! A handle to a tree: common code of its methods and multi-key calls.

use std::sync::Arc;

use bristlecone::TryInsertError;
use bristlecone::dynamic::{Bounds, Datum, Item, Kind, Tree as Dynamic};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::codec::Codec;
use crate::convert::{Role, datum, is_plain, python, some_elements};
use crate::slot::{Shared, Slot};
use crate::view::{Items, View, What};

/// An ordered map in a pool, for any number of threads.
#[pyclass(frozen, mapping, weakref, module = "bristlecone")]
#[derive(Debug)]
pub struct Tree {
    pub slot: Arc<Slot>,
    /// The pool stays open as long as a handle of one of its trees exists.
    pub shared: Arc<Shared>,
    pub codec: Option<Codec>,
}

/// Bounds of keys.
pub type Between = (std::ops::Bound<Datum<'static>>, std::ops::Bound<Datum<'static>>);

/// Returns bounds as calls of the library take them.
pub fn lent(bounds: &Between) -> (std::ops::Bound<&Datum<'_>>, std::ops::Bound<&Datum<'_>>) {
    (bounds.0.as_ref(), bounds.1.as_ref())
}

/// A value in the tree's form, before it becomes a datum.
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

    /// Encodes a value with the codec.
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

    /// Converts a value of the tree to a Python object.
    pub fn shown<'py>(&self, py: Python<'py>, value: &Datum<'_>) -> PyResult<Bound<'py, PyAny>> {
        self.decode(python(py, value)?)
    }

    /// Returns the value of a key.
    #[inline]
    pub fn find<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, slot) = (key.py(), &self.slot);
        let key = self.key(key)?;
        let found = if is_plain(&slot.values) {
            slot.read(py, |tree| tree.get_with(&key, |value| python(py, value)))?
        } else {
            slot.read(py, |tree| tree.get(&key))?.map(|value| python(py, &value))
        };
        found.map(|stored| self.decode(stored?)).transpose()
    }

    pub fn upsert(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let stored = self.encode(value)?;
        let (datum, value) = (self.key(key)?, self.value(&stored)?);
        self.slot.write(key.py(), |tree| tree.upsert(&datum, &value))
    }

    pub fn remove<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let datum = self.key(key)?;
        let removed = self.slot.write(py, |tree| tree.remove(&datum))?;
        removed.map(|value| self.shown(py, &value)).transpose()
    }

    /// Returns the bounds of the keys that have a prefix: a text, bytes, or the first elements of a tuple.
    pub fn beginning_with(&self, prefix: &Bound<'_, PyAny>) -> PyResult<Bounds> {
        let datum = match (&self.slot.keys, prefix.cast::<PyTuple>()) {
            (Kind::Tuple(kinds), Ok(elements)) if elements.len() <= kinds.len() => {
                some_elements(kinds, Role::Key, elements)?
            }
            (Kind::Array(_), _) if let Ok(bytes) = prefix.cast::<PyBytes>() => Datum::from(bytes.as_bytes()),
            (Kind::Str | Kind::Bytes | Kind::Array(_) | Kind::Tuple(_), _) => self.key(prefix)?,
            (kind, _) => {
                return Err(PyValueError::new_err(format!("keys of type {kind} have no prefixes")));
            }
        };
        self.slot.read(prefix.py(), |tree| tree.prefix_bounds(&datum))
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

    pub fn near<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        look: impl FnOnce(&Dynamic, &Datum<'_>) -> bristlecone::Result<Option<Item>>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let (py, key) = (key.py(), self.key(key)?);
        let item = self.slot.read(py, |tree| look(tree, &key))?;
        item.map(|(key, value)| self.pair(py, &key, &value)).transpose()
    }

    pub fn view(
        slf: Py<Self>,
        py: Python<'_>,
        what: What,
        ends: [Option<&Bound<'_, PyAny>>; 2],
        inclusive: (bool, bool),
        reverse: bool,
    ) -> PyResult<View> {
        let (tree, whole) = (slf.get(), ends.iter().all(Option::is_none));
        let bounds = tree.between(ends, inclusive)?;
        let bounds = tree.slot.read(py, |tree| tree.bounds(lent(&bounds)))?;
        Ok(View { tree: slf, bounds, what, reverse, whole })
    }

    pub fn whole(slf: Py<Self>, py: Python<'_>, reverse: bool) -> PyResult<Items> {
        Ok(Self::view(slf, py, What::Keys, [None; 2], (true, false), reverse)?.begin(py, false))
    }

    pub fn end<'py>(&self, py: Python<'py>, last: bool) -> PyResult<Option<Bound<'py, PyTuple>>> {
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

    /// Inserts an absent key; otherwise returns the existing value.
    pub fn insert_absent(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Datum<'static>>> {
        let stored = self.encode(value)?;
        let (datum, value) = (self.key(key)?, self.value(&stored)?);
        self.slot.write(key.py(), |tree| match tree.try_insert(&datum, &value) {
            Ok(()) => Ok(None),
            Err(TryInsertError::Present(there)) => Ok(Some(there)),
            Err(other) => other.into_present().map(Some),
        })
    }

    /// Returns whether the tree belongs to this pool.
    pub fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Returns whether values use a codec.
    pub fn has_codec(&self) -> bool {
        self.codec.is_some()
    }
}
