//! Trees whose values expire.

use std::time::Duration;

use bristlecone::dynamic::{Datum, Kind};
use bristlecone::{Expiry, TryInsertError};
use pyo3::exceptions::{PyKeyError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDateTime, PyDelta, PyTuple};

use crate::absent::Absent;
use crate::convert::{Role, datum, python};
use crate::handle::{Tree, lent};
use crate::open::Given;
use crate::view::{Items, Rest, What};

/// A tree whose values expire: for its operations, an entry whose time has come is absent.
#[pyclass(frozen, module = "bristlecone")]
#[derive(Debug)]
pub struct ExpiringTree {
    tree: Py<Tree>,
    /// The kind of the values, without their times.
    values: Kind,
}

/// Returns a duration that is a `timedelta`, or a number of seconds.
pub fn duration(given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds: f64 = match given.cast::<PyDelta>() {
        Ok(delta) => delta.call_method0(intern!(given.py(), "total_seconds"))?.extract()?,
        Err(_) => given
            .extract()
            .map_err(|_| PyTypeError::new_err("a duration is a timedelta, or a number of seconds"))?,
    };
    // A float has no more than the microseconds of a timedelta.
    let micros = (seconds * 1e6).round();
    if !(0.0..1e18).contains(&micros) {
        return Err(PyValueError::new_err(format!("{seconds} s is no duration of 0 or more")));
    }
    Ok(Duration::from_micros(micros as u64))
}

/// Returns the time that is a `datetime`, a number of milliseconds since 1970, or `None` for never.
fn time(given: &Bound<'_, PyAny>) -> PyResult<Expiry> {
    if given.is_none() {
        return Ok(Expiry::NEVER);
    }
    let Ok(date) = given.cast::<PyDateTime>() else {
        let wrong =
            |_| PyTypeError::new_err("a time is a datetime, a number of milliseconds since 1970, or None");
        let millis: i128 = given.extract().map_err(wrong)?;
        let millis = u64::try_from(millis.max(1))
            .map_err(|_| PyOverflowError::new_err("a time of 2^64 ms or more"))?;
        return Ok(Expiry::from_millis(millis));
    };
    let seconds: f64 = date.call_method0(intern!(given.py(), "timestamp"))?.extract()?;
    let micros = (seconds * 1e6).round().max(0.0) as u64;
    Ok(Expiry::from_millis(micros.div_ceil(1000).max(1)))
}

/// The expiry that a write names: `None` for that of the tree.
struct At(Option<Expiry>);

impl At {
    fn new(py: Python<'_>, expires: Given, ttl: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self(match (expires, ttl) {
            (Given::Not, None) => None,
            (Given::It(given), None) => Some(time(given.bind(py))?),
            (Given::Not, Some(ttl)) => {
                let end = std::time::SystemTime::now().checked_add(duration(ttl)?);
                Some(end.map_or(Expiry::NEVER, Expiry::at))
            }
            (Given::It(_), Some(_)) => return Err(PyTypeError::new_err("give expires or ttl, not both")),
        }))
    }
}

/// Returns the milliseconds since 1970, or `None` for never.
fn millis(expiry: Expiry) -> Option<u64> {
    (expiry != Expiry::NEVER).then(|| expiry.as_millis())
}

#[cold]
fn no_key(key: &Bound<'_, PyAny>) -> PyErr {
    PyKeyError::new_err((key.clone().unbind(),))
}

impl ExpiringTree {
    pub fn new(tree: Py<Tree>) -> PyResult<Self> {
        let Kind::Expiring(values) = &tree.get().slot.values else {
            let told =
                format!("the values of the tree are of type {}, and do not expire", tree.get().slot.values);
            return Err(PyTypeError::new_err(told));
        };
        let values = (**values).clone();
        Ok(Self { tree, values })
    }

    fn key<'a>(&self, key: &'a Bound<'_, PyAny>) -> PyResult<Datum<'a>> {
        self.tree.get().key(key)
    }

    fn value<'a>(&self, value: &'a Bound<'_, PyAny>) -> PyResult<Datum<'a>> {
        datum(&self.values, Role::Value, value)
    }

    fn find<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, datum) = (key.py(), self.key(key)?);
        let found = self.tree.get().slot.live(py, false, |live| live.get(&datum))?;
        found.map(|value| python(py, &value)).transpose()
    }

    fn items_of(
        &self,
        py: Python<'_>,
        what: What,
        ends: [Option<&Bound<'_, PyAny>>; 2],
        inclusive: (bool, bool),
        reverse: bool,
    ) -> PyResult<Items> {
        let tree = self.tree.get();
        let bounds = tree.between(ends, inclusive)?;
        let bounds = tree.slot.read(py, |tree| tree.bounds(lent(&bounds)))?;
        Ok(Items::new(self.tree.clone_ref(py), Rest::Live(bounds), what, reverse))
    }
}

#[pymethods]
impl ExpiringTree {
    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.find(key)?.ok_or_else(|| no_key(key))
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(key, value, true, Given::Not, None).map(drop)
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let datum = self.key(key)?;
        let removed = self.tree.get().slot.live(key.py(), true, |live| live.remove(&datum))?;
        removed.map(drop).ok_or_else(|| no_key(key))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let datum = self.key(key)?;
        self.tree.get().slot.live(key.py(), false, |live| live.contains_key(&datum))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Items> {
        self.keys(py, None, None, false, (true, false))
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Items> {
        self.keys(py, None, None, true, (true, false))
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

    /// Writes a key's value and its expiry; returns whether it did. Without `overwrite` an existing key is unchanged.
    ///
    /// `expires` is a `datetime`, a number of milliseconds since 1970, or `None` for never; `ttl` a `timedelta` or a number of
    /// seconds. Without either the tree decides.
    #[pyo3(signature = (key, value, overwrite=true, *, expires=Given::Not, ttl=None))]
    fn put(
        &self,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        overwrite: bool,
        expires: Given,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let py = key.py();
        let At(at) = At::new(py, expires, ttl)?;
        let (key, value) = (self.key(key)?, self.value(value)?);
        self.tree.get().slot.live(py, true, |live| {
            if overwrite {
                return live.upsert(&key, &value, at).map(|()| true);
            }
            match live.try_insert(&key, &value, at) {
                Ok(()) => Ok(true),
                Err(TryInsertError::Present(_)) => Ok(false),
                Err(other) => other.into_present().map(|_| false),
            }
        })
    }

    /// Writes a key's value and its expiry; returns the previous value, or `default`.
    #[pyo3(signature = (key, value, default=None, *, expires=Given::Not, ttl=None))]
    fn replace<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
        expires: Given,
        ttl: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        let At(at) = At::new(py, expires, ttl)?;
        let (key, value) = (self.key(key)?, self.value(value)?);
        let replaced = self.tree.get().slot.live(py, true, |live| live.insert(&key, &value, at))?;
        Ok(replaced.map(|value| python(py, &value)).transpose()?.or(default))
    }

    /// Changes a key from `expected` to `new` with its expiry atomically; returns whether it did. `ABSENT` means an absent
    /// key. The expiry that the key had does not count.
    #[pyo3(signature = (key, expected, new, *, expires=Given::Not, ttl=None))]
    fn compare_and_swap(
        &self,
        key: &Bound<'_, PyAny>,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
        expires: Given,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let py = key.py();
        let At(at) = At::new(py, expires, ttl)?;
        let expected = if Absent::is(expected) { None } else { Some(self.value(expected)?) };
        let new = if Absent::is(new) { None } else { Some(self.value(new)?) };
        let key = self.key(key)?;
        self.tree.get().slot.live(py, true, |live| {
            let at = at.unwrap_or_else(|| live.default_expiry());
            match live.compare_and_swap(&key, expected.as_ref(), new.as_ref().map(|new| (new, at))) {
                Ok(()) => Ok(true),
                Err(found) => found.into_found().map(|_| false),
            }
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
        let (py, datum) = (key.py(), self.key(key)?);
        match self.tree.get().slot.live(py, true, |live| live.remove(&datum))? {
            Some(value) => python(py, &value),
            None => default.get_item(0).map_err(|_| no_key(key)),
        }
    }

    /// Returns when a key expires, in milliseconds since 1970; `None` for never. An absent key is a `KeyError`.
    fn expiry(&self, key: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
        let datum = self.key(key)?;
        let found = self.tree.get().slot.live(key.py(), false, |live| live.expiry(&datum))?;
        found.map(millis).ok_or_else(|| no_key(key))
    }

    /// Sets when a key expires, and keeps its value: see `put`; without either argument it is renewed. Returns the previous
    /// expiry. An absent key is a `KeyError`.
    #[pyo3(signature = (key, *, expires=Given::Not, ttl=None))]
    fn set_expiry(
        &self,
        key: &Bound<'_, PyAny>,
        expires: Given,
        ttl: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Option<u64>> {
        let py = key.py();
        let At(at) = At::new(py, expires, ttl)?;
        let datum = self.key(key)?;
        let previous = self.tree.get().slot.live(py, true, |live| live.set_expiry(&datum, at))?;
        previous.map(millis).ok_or_else(|| no_key(key))
    }

    /// Reads up to `budget` entries and removes the expired ones among them. Returns how many it read and removed, and whether
    /// it reached the end of the tree; the next call continues behind them.
    fn remove_expired(&self, py: Python<'_>, budget: u64) -> PyResult<(u64, u64, bool)> {
        // A pass may take long: other threads run meanwhile.
        let pass = self.tree.get().slot.work_live(py, |live| live.remove_expired(budget))?;
        Ok((pass.examined, pass.removed, pass.is_complete))
    }

    /// Iterates over the items whose keys are within bounds, in order.
    #[pyo3(signature = (start=None, stop=None, reverse=false, *, inclusive=(true, false)))]
    fn items(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        inclusive: (bool, bool),
    ) -> PyResult<Items> {
        self.items_of(py, What::Items, [start, stop], inclusive, reverse)
    }

    /// Iterates over the keys within bounds, in order.
    #[pyo3(signature = (start=None, stop=None, reverse=false, *, inclusive=(true, false)))]
    fn keys(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        inclusive: (bool, bool),
    ) -> PyResult<Items> {
        self.items_of(py, What::Keys, [start, stop], inclusive, reverse)
    }

    /// Iterates over the values of the keys within bounds, in key order.
    #[pyo3(signature = (start=None, stop=None, reverse=false, *, inclusive=(true, false)))]
    fn values(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        reverse: bool,
        inclusive: (bool, bool),
    ) -> PyResult<Items> {
        self.items_of(py, What::Values, [start, stop], inclusive, reverse)
    }

    /// Iterates over the items whose keys have a prefix.
    #[pyo3(signature = (prefix, reverse=false))]
    fn prefix(&self, prefix: &Bound<'_, PyAny>, reverse: bool) -> PyResult<Items> {
        let bounds = self.tree.get().beginning_with(prefix)?;
        Ok(Items::new(self.tree.clone_ref(prefix.py()), Rest::Live(bounds), What::Items, reverse))
    }

    /// Returns how many seconds a value lives if its write names no expiry; `None`: it does not expire.
    #[getter]
    fn expire_after(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        let time = self.tree.get().slot.live(py, false, |live| Ok(live.expire_after()))?;
        Ok(time.map(|time| time.as_secs_f64()))
    }

    /// Returns the tree of all entries, expired or not: its values are tuples of the time and the value.
    #[getter]
    fn entries(&self, py: Python<'_>) -> Py<Tree> {
        self.tree.clone_ref(py)
    }

    /// Returns the type of its values in the pool, without their times.
    #[getter]
    fn value_kind(&self) -> String {
        self.values.to_string()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.tree)
    }

    fn __repr__(&self) -> String {
        let slot = &self.tree.get().slot;
        format!("<bristlecone.ExpiringTree {:?} {} -> {}>", slot.name(), slot.keys, self.values)
    }
}
