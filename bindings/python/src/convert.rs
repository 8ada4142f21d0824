//! Conversion of Python objects to data of a kind, and back.

use std::borrow::Cow;

use bristlecone::Expiry;
use bristlecone::dynamic::{Datum, Kind};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyString, PyTuple};

use crate::error::fault;

/// Purpose of a datum, for messages.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    Key,
    Value,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
        }
    }
}

/// Converts a Python object to a datum of a kind. Texts and bytes are borrowed.
#[inline]
pub fn datum<'a>(kind: &Kind, role: Role, it: &'a Bound<'_, PyAny>) -> PyResult<Datum<'a>> {
    if *kind == Kind::U64
        && let Ok(number) = it.extract::<u64>()
    {
        return Ok(Datum::U64(number));
    }
    slow_datum(kind, role, it)
}

fn slow_datum<'a>(kind: &Kind, role: Role, it: &'a Bound<'_, PyAny>) -> PyResult<Datum<'a>> {
    macro_rules! integer {
        ($variant:ident) => {
            it.extract().map(Datum::$variant).map_err(|error| unfit(kind, role, it, error))
        };
    }
    match kind {
        Kind::U8 => integer!(U8),
        Kind::U16 => integer!(U16),
        Kind::U32 => integer!(U32),
        Kind::U64 => integer!(U64),
        Kind::U128 => integer!(U128),
        Kind::I8 => integer!(I8),
        Kind::I16 => integer!(I16),
        Kind::I32 => integer!(I32),
        Kind::I64 => integer!(I64),
        Kind::I128 => integer!(I128),
        Kind::F64 => float(kind, role, it).map(Datum::F64),
        Kind::F32 => {
            let wide = float(kind, role, it)?;
            let narrow = wide as f32;
            let fits = narrow.is_finite() || !wide.is_finite();
            if fits { Ok(Datum::F32(narrow)) } else { Err(out_of_range(kind, role, it)) }
        }
        Kind::Bool => it.cast::<PyBool>().map(|it| Datum::Bool(it.is_true())).or_else(|_| {
            // NumPy's type.
            it.extract().map(Datum::Bool).map_err(|_| other_type(kind, role, it))
        }),
        Kind::Unit if it.is_none() => Ok(Datum::Unit),
        Kind::Char => {
            let text = text(kind, role, it)?;
            let mut chars = text.chars();
            match (chars.next(), chars.next()) {
                (Some(one), None) => Ok(Datum::Char(one)),
                _ => Err(other_type(kind, role, it)),
            }
        }
        Kind::Str => text(kind, role, it).map(|text| Datum::Str(text.into())),
        Kind::Json => text(kind, role, it).map(|text| Datum::Json(text.into())),
        Kind::Bytes => bytes(kind, role, it).map(Datum::Bytes),
        Kind::Postcard => bytes(kind, role, it).map(Datum::Postcard),
        Kind::Array(len) => match bytes(kind, role, it)? {
            bytes if bytes.len() == *len => Ok(Datum::Bytes(bytes)),
            bytes => {
                let (name, given) = (role.name(), bytes.len());
                Err(PyTypeError::new_err(format!("a {name} of type {kind} has {len} bytes, not {given}")))
            }
        },
        Kind::Option(_) if it.is_none() => Ok(Datum::Option(None)),
        Kind::Option(inner) => {
            // Elements of tuples have a shorter lifetime here.
            let inner = datum(inner, role, it)?;
            Ok(Datum::Option(Some(Box::new(inner))))
        }
        Kind::Tuple(kinds) => tuple(kind, kinds, role, it),
        Kind::Expiring(inner) => match tuple(kind, &entry(inner), role, it)? {
            Datum::Tuple(mut both) if both.len() == 2 => {
                let value = both.pop().unwrap_or(Datum::Unit);
                let Some(Datum::U64(time)) = both.pop() else { return Err(other_type(kind, role, it)) };
                Ok(Datum::Expiring(Box::new(value), Expiry::from_millis(time)))
            }
            _ => Err(other_type(kind, role, it)),
        },
        _ => Err(other_type(kind, role, it)),
    }
}

/// Returns the kinds of the tuple that a value which expires is in Python: its time, and the value.
pub fn entry(inner: &Kind) -> [Kind; 2] {
    [Kind::U64, inner.clone()]
}

fn tuple(kind: &Kind, kinds: &[Kind], role: Role, it: &Bound<'_, PyAny>) -> PyResult<Datum<'static>> {
    let elements = it.cast::<PyTuple>().map_err(|_| other_type(kind, role, it))?;
    if elements.len() != kinds.len() {
        let (given, name) = (elements.len(), role.name());
        return Err(PyTypeError::new_err(format!(
            "a {name} of type {kind} has {} elements, not {given}",
            kinds.len()
        )));
    }
    some_elements(kinds, role, elements)
}

/// Converts the first elements of a tuple, as many as are given.
pub fn some_elements(kinds: &[Kind], role: Role, elements: &Bound<'_, PyTuple>) -> PyResult<Datum<'static>> {
    let elements = kinds.iter().zip(elements.iter());
    let data = elements.map(|(kind, element)| datum(kind, role, &element).map(Datum::into_owned));
    data.collect::<PyResult<_>>().map(Datum::Tuple)
}

fn float(kind: &Kind, role: Role, it: &Bound<'_, PyAny>) -> PyResult<f64> {
    if let Ok(it) = it.cast::<PyFloat>() {
        return Ok(it.value());
    }
    it.extract().map_err(|error| unfit(kind, role, it, error))
}

fn text<'a>(kind: &Kind, role: Role, it: &'a Bound<'_, PyAny>) -> PyResult<&'a str> {
    it.cast::<PyString>().map_err(|_| other_type(kind, role, it))?.to_str()
}

fn bytes<'a>(kind: &Kind, role: Role, it: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u8]>> {
    if let Ok(it) = it.cast::<PyBytes>() {
        return Ok(Cow::Borrowed(it.as_bytes()));
    }
    if let Ok(it) = it.cast::<PyByteArray>() {
        return Ok(Cow::Owned(it.to_vec()));
    }
    let buffer = PyBuffer::<u8>::get(it).map_err(|_| other_type(kind, role, it))?;
    buffer.to_vec(it.py()).map(Cow::Owned)
}

/// Returns the error for an invalid number: not a number of the kind, or out of range.
#[cold]
fn unfit(kind: &Kind, role: Role, it: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let py = it.py();
    // Interpreters with native 128-bit conversions report a negative number as a bad value.
    let unsigned = error.is_instance_of::<PyValueError>(py) && it.is_instance_of::<PyInt>();
    if unsigned || error.is_instance_of::<PyOverflowError>(py) {
        out_of_range(kind, role, it)
    } else if error.is_instance_of::<PyTypeError>(py) {
        other_type(kind, role, it)
    } else {
        error
    }
}

#[cold]
fn out_of_range(kind: &Kind, role: Role, it: &Bound<'_, PyAny>) -> PyErr {
    // A number of thousands of digits cannot be converted to text, and is not printed.
    let shown = it.str().map(|shown| shown.to_string()).unwrap_or_default();
    let shown = if shown.len() <= 50 { shown } else { "a number".to_owned() };
    let range = range(kind).map(|range| format!(" ({range})")).unwrap_or_default();
    PyOverflowError::new_err(format!("{shown} is no {} of type {kind}{range}", role.name()))
}

/// Returns the range of integers of a kind.
pub fn range(kind: &Kind) -> Option<String> {
    macro_rules! of {
        ($($variant:ident $type:ty),+) => {
            match kind {
                $(Kind::$variant => Some(format!("{} to {}", <$type>::MIN, <$type>::MAX)),)+
                _ => None,
            }
        };
    }
    of!(U8 u8, U16 u16, U32 u32, U64 u64, U128 u128, I8 i8, I16 i16, I32 i32, I64 i64, I128 i128)
}

#[cold]
fn other_type(kind: &Kind, role: Role, it: &Bound<'_, PyAny>) -> PyErr {
    let given = it.get_type().name().map(|name| name.to_string()).unwrap_or_default();
    PyTypeError::new_err(format!("a {} of type {kind} is {}, not {given}", role.name(), python_type(kind)))
}

/// Returns Python's name for data of a kind.
fn python_type(kind: &Kind) -> &'static str {
    match kind {
        Kind::Unit => "None",
        Kind::Bool => "a bool",
        Kind::Char => "a str of one character",
        Kind::F32 | Kind::F64 => "a float",
        Kind::Str => "a str",
        Kind::Json => "a str of JSON",
        Kind::Bytes | Kind::Postcard | Kind::Array(_) => "bytes",
        Kind::Option(inner) => match **inner {
            Kind::Str => "a str or None",
            Kind::Bytes | Kind::Array(_) => "bytes or None",
            Kind::Tuple(_) => "a tuple or None",
            _ => "a number or None",
        },
        Kind::Tuple(_) => "a tuple",
        Kind::Expiring(_) => "a tuple of a time in milliseconds and a value",
        _ => "an int",
    }
}

/// Returns whether data of this kind become Python objects without triggering the garbage collector, so that no
/// other code runs meanwhile.
pub fn is_plain(kind: &Kind) -> bool {
    !matches!(kind, Kind::Option(_) | Kind::Tuple(_) | Kind::Expiring(_))
}

/// Converts a datum to a Python object.
#[inline]
pub fn python<'py>(py: Python<'py>, datum: &Datum<'_>) -> PyResult<Bound<'py, PyAny>> {
    macro_rules! number {
        ($it:expr) => {
            Ok($it.into_pyobject(py)?.into_any())
        };
    }
    match datum {
        Datum::U64(it) => number!(it),
        Datum::Str(text) | Datum::Json(text) => Ok(PyString::new(py, text).into_any()),
        Datum::Bytes(bytes) | Datum::Postcard(bytes) => Ok(PyBytes::new(py, bytes).into_any()),
        Datum::Unit | Datum::Option(None) => Ok(py.None().into_bound(py)),
        Datum::Bool(it) => Ok(PyBool::new(py, *it).to_owned().into_any()),
        Datum::Char(it) => number!(it),
        Datum::U8(it) => number!(it),
        Datum::U16(it) => number!(it),
        Datum::U32(it) => number!(it),
        Datum::U128(it) => number!(it),
        Datum::I8(it) => number!(it),
        Datum::I16(it) => number!(it),
        Datum::I32(it) => number!(it),
        Datum::I64(it) => number!(it),
        Datum::I128(it) => number!(it),
        Datum::F32(it) => number!(it),
        Datum::F64(it) => number!(it),
        Datum::Option(Some(inner)) => python(py, inner),
        Datum::Tuple(elements) => {
            let elements: Vec<_> = elements.iter().map(|it| python(py, it)).collect::<PyResult<_>>()?;
            Ok(PyTuple::new(py, elements)?.into_any())
        }
        Datum::Expiring(value, expiry) => {
            let time = expiry.as_millis().into_pyobject(py)?.into_any();
            Ok(PyTuple::new(py, [time, python(py, value)?])?.into_any())
        }
        other => Err(fault(&format!("no object for {other:?}"))),
    }
}
