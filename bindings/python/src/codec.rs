//! Values of any type, through a codec of the caller.

use bristlecone::dynamic::Kind;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

/// Two functions: one encodes a value as bytes or text, the other decodes it.
#[derive(Debug)]
pub struct Codec {
    given: Py<PyAny>,
    dumps: Py<PyAny>,
    loads: Py<PyAny>,
}

impl Codec {
    /// Returns the codec given by a caller: an object with `dumps` and `loads`, or a pair of
    /// functions.
    pub fn new(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let wrong = || {
            PyTypeError::new_err(
                "a codec has functions dumps and loads, as the modules json and pickle have, or is a pair of functions",
            )
        };
        let (dumps, loads) = match given.cast::<PyTuple>() {
            Ok(pair) => pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>().map_err(|_| wrong())?,
            Err(_) => {
                (given.getattr("dumps").map_err(|_| wrong())?, given.getattr("loads").map_err(|_| wrong())?)
            }
        };
        if !dumps.is_callable() || !loads.is_callable() {
            return Err(wrong());
        }
        Ok(Self { given: given.clone().unbind(), dumps: dumps.unbind(), loads: loads.unbind() })
    }

    /// Returns the caller's object.
    pub fn given(&self) -> &Py<PyAny> {
        &self.given
    }

    /// Passes the codec's objects to the garbage collector; Python functions may refer back to the
    /// codec.
    pub fn traverse(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.given)?;
        visit.call(&self.dumps)?;
        visit.call(&self.loads)
    }

    /// Returns the kind of values of a new tree: JSON if the codec has that name, otherwise bytes.
    pub fn kind(&self, py: Python<'_>) -> Kind {
        let name = self.given.bind(py).getattr("__name__").and_then(|name| name.extract::<String>());
        let is_json =
            name.is_ok_and(|name| matches!(&*name, "json" | "orjson" | "ujson" | "simplejson" | "rapidjson"));
        if is_json { Kind::Json } else { Kind::Bytes }
    }

    /// Encodes a value for the tree: as text if that is its kind, otherwise as bytes.
    pub fn encode<'py>(&self, kind: &Kind, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let dumped = self.dumps.bind(value.py()).call1((value,))?;
        match kind {
            Kind::Json | Kind::Str if dumped.is_instance_of::<PyBytes>() => dumped.call_method0("decode"),
            Kind::Bytes if dumped.is_instance_of::<PyString>() => dumped.call_method0("encode"),
            _ => Ok(dumped),
        }
    }

    /// Decodes a stored value.
    pub fn decode<'py>(&self, stored: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.loads.bind(stored.py()).call1((stored,))
    }
}
