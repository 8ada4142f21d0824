//! Kinds of keys and values as named in Python: `int`, `"i64"`, `(str, int)`, `str | None`, `numpy.uint32`.

use bristlecone::dynamic::Kind;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString, PyTuple, PyType};

use crate::error::raise;

/// Returns the kind denoted by `it`.
pub fn parse(it: &Bound<'_, PyAny>) -> PyResult<Kind> {
    let py = it.py();
    if let Ok(name) = it.cast::<PyString>() {
        return name.to_str()?.parse().map_err(|error| raise(py, error));
    }
    if let Ok(elements) = it.cast::<PyTuple>() {
        return elements.iter().map(|element| parse(&element)).collect::<PyResult<_>>().map(Kind::Tuple);
    }
    if it.is_none() {
        return Ok(Kind::Unit);
    }
    if let Some(kind) = it.cast::<PyType>().ok().and_then(of_type) {
        return Ok(kind);
    }
    if let Some(kind) = of_alias(it)? {
        return Ok(kind);
    }
    let name = it.getattr(intern!(py, "__name__")).or_else(|_| it.getattr(intern!(py, "name")));
    if let Some(kind) = name.ok().and_then(|name| of_dtype(name.extract().ok()?)) {
        return Ok(kind);
    }
    let shown = it.repr()?;
    let told = format!(
        "no type of keys or values: {shown}; there are int (u64), float, str, bytes, bool, tuples of these, X | None, \
         and names such as \"i64\""
    );
    Err(PyTypeError::new_err(told))
}

fn of_type(it: &Bound<'_, PyType>) -> Option<Kind> {
    let py = it.py();
    let known = [
        (py.get_type::<PyInt>(), Kind::U64),
        (py.get_type::<PyString>(), Kind::Str),
        (py.get_type::<PyBytes>(), Kind::Bytes),
        (py.get_type::<PyFloat>(), Kind::F64),
        (py.get_type::<PyBool>(), Kind::Bool),
        (py.None().bind(py).get_type(), Kind::Unit),
    ];
    known.into_iter().find(|(class, _)| class.is(it)).map(|(_, kind)| kind)
}

/// Returns the kind of `tuple[…]` or `… | None`.
fn of_alias(it: &Bound<'_, PyAny>) -> PyResult<Option<Kind>> {
    let py = it.py();
    let typing = py.import(intern!(py, "typing"))?;
    let origin = typing.call_method1(intern!(py, "get_origin"), (it,))?;
    if origin.is_none() {
        return Ok(None);
    }
    let arguments = typing.call_method1(intern!(py, "get_args"), (it,))?.cast_into::<PyTuple>()?;
    if origin.is(py.get_type::<PyTuple>()) {
        return arguments
            .iter()
            .map(|element| parse(&element))
            .collect::<PyResult<_>>()
            .map(Kind::Tuple)
            .map(Some);
    }
    let union = py.import(intern!(py, "types"))?.getattr(intern!(py, "UnionType"))?;
    if !origin.is(&union) && !origin.is(typing.getattr(intern!(py, "Union"))?) {
        return Ok(None);
    }
    let none = py.None().bind(py).get_type();
    let kinds: Vec<_> = arguments.iter().filter(|argument| !argument.is(&none)).collect();
    match &kinds[..] {
        [kind] if kinds.len() < arguments.len() => Ok(Some(Kind::Option(Box::new(parse(kind)?)))),
        _ => Err(PyTypeError::new_err(format!(
            "no type of keys or values: {it}; unions have one type, and None"
        ))),
    }
}

/// Returns the kind of NumPy's scalar of this name.
fn of_dtype(name: &str) -> Option<Kind> {
    Some(match name {
        "uint8" => Kind::U8,
        "uint16" => Kind::U16,
        "uint32" => Kind::U32,
        "uint64" => Kind::U64,
        "int8" => Kind::I8,
        "int16" => Kind::I16,
        "int32" => Kind::I32,
        "int64" => Kind::I64,
        "float32" => Kind::F32,
        "float64" => Kind::F64,
        _ => return None,
    })
}

/// Checks that Python can distinguish all data of a kind: `None` must have only one meaning.
pub fn expect_told_apart(kind: &Kind) -> PyResult<()> {
    match kind {
        Kind::Option(inner) if matches!(**inner, Kind::Option(_) | Kind::Unit) => Err(PyValueError::new_err(
            format!("{kind} has no counterpart in Python, where None would stand for two different things"),
        )),
        Kind::Option(inner) => expect_told_apart(inner),
        Kind::Tuple(kinds) => kinds.iter().try_for_each(expect_told_apart),
        _ => Ok(()),
    }
}

/// Returns the format of one datum in an array, in the notation of the module `struct`, if data of this kind are
/// native numbers.
pub fn format(kind: &Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::Bool => "?",
        Kind::U8 => "B",
        Kind::U16 => "H",
        Kind::U32 => "I",
        Kind::U64 => "Q",
        Kind::I8 => "b",
        Kind::I16 => "h",
        Kind::I32 => "i",
        Kind::I64 => "q",
        Kind::F32 => "f",
        Kind::F64 => "d",
        _ => return None,
    })
}

/// Returns whether keys or values of this kind are texts, for Arrow.
pub fn is_text(kind: &Kind) -> bool {
    matches!(kind, Kind::Str | Kind::Json)
}
