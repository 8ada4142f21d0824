//! Multi-key calls: from arrays, or from any iterable. Each key is a separate operation.

use bristlecone::dynamic::{Datum, Kind, Tree as Dynamic};
use bristlecone::{Error, ManyError, Result};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyList, PyString};

use crate::buffer::{Column, Grown};
use crate::convert::{Role, datum};
use crate::error::{after, fault, raise};
use crate::handle::Tree;
use crate::kind::format;

/// Number of keys between two checks for signals, and for closing of the tree.
const TOGETHER: usize = 16 << 10;

/// Source of keys or values.
enum Source<'py> {
    Column(Column),
    Objects(Bound<'py, PyIterator>, Option<usize>),
}

impl<'py> Source<'py> {
    fn new(it: &Bound<'py, PyAny>) -> PyResult<Self> {
        expect_several(it)?;
        // Objects of pandas, pyarrow and similar libraries.
        let py = it.py();
        let plain = match it.hasattr(intern!(py, "to_numpy"))? {
            true => arrays(py)?.call_method1(intern!(py, "plain"), (it,))?,
            false => it.clone(),
        };
        match Column::of(&plain)? {
            Some(column) => Ok(Self::Column(column)),
            None => Ok(Self::Objects(plain.try_iter()?, plain.len().ok())),
        }
    }

    /// Returns their number, if known.
    fn len(&self) -> Option<usize> {
        match self {
            Self::Column(column) => Some(column.len()),
            Self::Objects(_, len) => *len,
        }
    }

    /// Returns the datum number `index`, which must be the next one; `None` at the end.
    fn next(
        &mut self,
        py: Python<'py>,
        tree: &Tree,
        role: Role,
        index: usize,
    ) -> PyResult<Option<Datum<'static>>> {
        let kind = match role {
            Role::Key => &tree.slot.keys,
            Role::Value => &tree.slot.values,
        };
        match self {
            Self::Column(column) if index == column.len() => Ok(None),
            Self::Column(column) => column.datum(py, kind, role, index).map(Some),
            Self::Objects(objects, _) => {
                let Some(object) = objects.next().transpose()? else { return Ok(None) };
                let stored = match role {
                    Role::Key => object,
                    Role::Value => tree.encode(&object)?,
                };
                datum(kind, role, &stored).map(|datum| Some(datum.into_owned()))
            }
        }
    }

    /// Returns the next data, up to `TOGETHER` of them, from number `from` on.
    fn some(
        &mut self,
        py: Python<'py>,
        tree: &Tree,
        role: Role,
        from: usize,
    ) -> PyResult<Vec<Datum<'static>>> {
        let mut data = Vec::new();
        while data.len() < TOGETHER
            && let Some(datum) = self.next(py, tree, role, from + data.len())?
        {
            data.push(datum);
        }
        Ok(data)
    }
}

/// Processes items in groups: `some` returns those from a number on, none at the end; `apply` returns how many
/// of them it processed, and the error of the next one. Returns the total number.
fn in_turn<T: Send>(
    py: Python<'_>,
    tree: &Tree,
    mut some: impl FnMut(usize) -> PyResult<Vec<T>>,
    mut apply: impl FnMut(&Dynamic, Vec<T>) -> (usize, Result<()>) + Send,
) -> PyResult<usize> {
    let mut done = 0;
    let mut turn = |done: &mut usize| {
        let items = some(*done)?;
        if items.is_empty() {
            return Ok(false);
        }
        let (now, applied) = tree.slot.gate.with_detached(py, |tree| apply(tree, items))?;
        *done += now;
        applied.map_err(|error| raise(py, error))?;
        py.check_signals().map(|()| true)
    };
    loop {
        match turn(&mut done) {
            Ok(true) => {}
            Ok(false) => return Ok(done),
            Err(error) => return Err(after(py, done, error)),
        }
    }
}

/// Returns the number of completed items, and the error of the next one.
fn told(count: usize, done: std::result::Result<(), ManyError>) -> (usize, Result<()>) {
    match done {
        Ok(()) => (count, Ok(())),
        Err(stopped) => (stopped.done, Err(stopped.error)),
    }
}

/// Returns keys as calls of the library take them.
fn lent<'a>(keys: &'a [Datum<'a>]) -> Vec<&'a Datum<'a>> {
    keys.iter().collect()
}

/// Returns whether a tree has `u64` for keys and values.
fn has_words(tree: &Tree) -> bool {
    (&tree.slot.keys, &tree.slot.values) == (&Kind::U64, &Kind::U64)
}

/// Writes many items.
pub fn put(tree: &Tree, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = keys.py();
    let (mut keys, mut values) = (Source::new(keys)?, Source::new(values)?);
    if let (Some(keys), Some(values)) = (keys.len(), values.len()) {
        expect_pairs(keys, values)?;
    }
    if let (Source::Column(keys), Source::Column(values)) = (&keys, &values)
        && keys.is_u64()
        && values.is_u64()
        && has_words(tree)
    {
        let some = |from| {
            let some = from..from + TOGETHER;
            Ok(keys.words(py, some.clone()).zip(values.words(py, some)).collect())
        };
        let apply = |tree: &Dynamic, items: Vec<(u64, u64)>| match tree.as_u64() {
            Some(tree) => told(items.len(), tree.upsert_many(&items)),
            None => (0, Err(Error::invalid("the tree has other types than it had"))),
        };
        return in_turn(py, tree, some, apply).map(drop);
    }
    let some = |from| {
        let some = keys.some(py, tree, Role::Key, from)?;
        let theirs = values.some(py, tree, Role::Value, from)?;
        expect_pairs(some.len(), theirs.len())?;
        Ok(some.into_iter().zip(theirs).collect())
    };
    let apply = |tree: &Dynamic, items: Vec<(Datum<'_>, Datum<'_>)>| {
        let lent: Vec<_> = items.iter().map(|(key, value)| (key, value)).collect();
        told(items.len(), tree.upsert_many(&lent))
    };
    in_turn(py, tree, some, apply).map(drop)
}

fn expect_pairs(keys: usize, values: usize) -> PyResult<()> {
    if keys == values {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("as many values as keys are expected, not {values} for {keys}")))
}

/// Writes the values of many keys to `values`, and returns whether each exists.
fn lookup<'py>(
    py: Python<'py>,
    tree: &Tree,
    keys: &mut Source<'py>,
    values: &mut Grown,
) -> PyResult<Vec<u8>> {
    let mut found = Vec::new();
    let mut note = |value: Option<Datum<'static>>| {
        found.push(u8::from(value.is_some()));
        values.push(value);
    };
    match keys {
        Source::Column(keys) if keys.is_u64() && has_words(tree) => {
            let mut words = Vec::new();
            let apply = |tree: &Dynamic, keys: Vec<u64>| {
                let Some(tree) = tree.as_u64() else {
                    return (0, Err(Error::invalid("the tree has other types than it had")));
                };
                let looked = tree.get_many(&keys, &mut words);
                words.drain(..).for_each(|word| note(word.map(Datum::U64)));
                (keys.len(), looked)
            };
            in_turn(py, tree, |from| Ok(keys.words(py, from..from + TOGETHER).collect()), apply)?;
        }
        keys => {
            let mut data = Vec::new();
            let apply = |tree: &Dynamic, keys: Vec<Datum<'_>>| {
                let looked = tree.get_many(&lent(&keys), &mut data);
                data.drain(..).for_each(&mut note);
                (keys.len(), looked)
            };
            in_turn(py, tree, |from| keys.some(py, tree, Role::Key, from), apply)?;
        }
    }
    Ok(found)
}

/// Returns the values of many keys: as an array for an array of keys if they are numbers, otherwise as a list.
pub fn get<'py>(
    tree: &Bound<'py, Tree>,
    keys: &Bound<'py, PyAny>,
    default: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, this) = (keys.py(), tree.get());
    if is_arrow(keys)? {
        return arrays(py)?.call_method1(intern!(py, "get_arrow"), (tree, keys, default));
    }
    let mut source = Source::new(keys)?;
    if let (Source::Column(_), false, Some(format)) = (&source, this.has_codec(), format(&this.slot.values)) {
        let mut values = Grown::new(&this.slot.values);
        let found = lookup(py, this, &mut source, &mut values)?;
        let found = (values.python(py)?, format, Grown::Bool(found).python(py)?, keys, default);
        return arrays(py)?.call_method1(intern!(py, "found"), found);
    }
    let mut values = Grown::Data(Vec::new());
    let found = lookup(py, this, &mut source, &mut values)?;
    let Grown::Data(values) = values else { return Err(fault("values of another kind")) };
    let default = default.unwrap_or_else(|| py.None().into_bound(py));
    let shown = values
        .iter()
        .zip(found)
        .map(|(value, found)| if found == 1 { this.shown(py, value) } else { Ok(default.clone()) });
    Ok(PyList::new(py, shown.collect::<PyResult<Vec<_>>>()?)?.into_any())
}

/// Returns the values of many keys, in the form of columns, and whether each exists.
pub fn columns<'py>(
    tree: &Tree,
    keys: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let (py, mut values) = (keys.py(), Grown::new(&tree.slot.values));
    let found = lookup(py, tree, &mut Source::new(keys)?, &mut values)?;
    Ok((values.python(py)?, Grown::Bool(found).python(py)?))
}

/// Returns whether each of many keys exists: as an array for an array of keys, otherwise as a list.
pub fn contains<'py>(tree: &Tree, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let (py, mut source, mut found) = (keys.py(), Source::new(keys)?, Vec::new());
    let mut some_found = Vec::new();
    let apply = |tree: &Dynamic, keys: Vec<Datum<'_>>| {
        let looked = tree.contains_many(&lent(&keys), &mut some_found);
        found.extend(some_found.drain(..).map(u8::from));
        (keys.len(), looked)
    };
    in_turn(py, tree, |from| source.some(py, tree, Role::Key, from), apply)?;
    if matches!(source, Source::Column(_)) {
        let found = Grown::Bool(found).python(py)?;
        return arrays(py)?.call_method1(intern!(py, "numbers"), (found, "?"));
    }
    Ok(PyList::new(py, found.into_iter().map(|found| found == 1))?.into_any())
}

/// Removes many keys; returns how many of them existed.
pub fn remove(tree: &Tree, keys: &Bound<'_, PyAny>) -> PyResult<usize> {
    let (py, mut source, mut removed) = (keys.py(), Source::new(keys)?, 0);
    let mut old = Vec::new();
    let apply = |tree: &Dynamic, keys: Vec<Datum<'_>>| {
        let done = tree.remove_many(&lent(&keys), &mut old);
        removed += old.drain(..).flatten().count();
        told(keys.len(), done)
    };
    in_turn(py, tree, |from| source.some(py, tree, Role::Key, from), apply)?;
    Ok(removed)
}

fn arrays(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(intern!(py, "bristlecone._arrays"))
}

/// Returns whether an object is one of pyarrow's.
fn is_arrow(it: &Bound<'_, PyAny>) -> PyResult<bool> {
    let module = it.get_type().module()?;
    Ok(module.to_str().is_ok_and(|name| name == "pyarrow" || name.starts_with("pyarrow.")))
}

/// Checks that an object is not a single text, whose characters would be taken for keys.
fn expect_several(keys: &Bound<'_, PyAny>) -> PyResult<()> {
    if keys.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err("several keys are expected, not one str"));
    }
    Ok(())
}
