//! Parts of a tree, and iterating over them.

use std::sync::{Mutex, PoisonError};

use bristlecone::dynamic::{Bounds, Datum, Item, Kind, Tree as Dynamic};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyAny, PyTuple};

use crate::buffer::Grown;
use crate::convert::{entry, python};
use crate::handle::{Between, Tree};
use crate::kind::{format, is_text};
use crate::moment::Moment;
use crate::slot::Slot;

/// Number of items that an iterator reads at a time: initially, and at most.
const READ: std::ops::RangeInclusive<usize> = 16..=512;

/// Number of items read into arrays between two checks for signals and for closing of the tree.
const READ_TOGETHER: usize = 16 << 10;

/// The visible part of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Keys,
    Values,
    Items,
}

/// The items of a tree within bounds, or their keys, or values, as of the time of the iteration.
#[pyclass(frozen, module = "bristlecone")]
#[derive(Debug)]
pub struct View {
    pub(crate) tree: Py<Tree>,
    pub(crate) bounds: Bounds,
    pub(crate) what: What,
    pub(crate) reverse: bool,
    pub(crate) whole: bool,
}

impl View {
    pub fn begin(&self, py: Python<'_>, backward: bool) -> Items {
        let rest = Rest::Tree(self.bounds.clone());
        Items::new(self.tree.clone_ref(py), rest, self.what, self.reverse != backward)
    }
}

#[pymethods]
impl View {
    fn __iter__(&self, py: Python<'_>) -> Items {
        self.begin(py, false)
    }

    fn __reversed__(&self, py: Python<'_>) -> Items {
        self.begin(py, true)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let slot = &self.tree.get().slot;
        if self.whole {
            return slot.read(py, |tree| tree.len().map(|items| items as usize));
        }
        slot.work(py, |tree| tree.count_within(&self.bounds)).map(|count| count as usize)
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.tree
            .get()
            .slot
            .read(py, |tree| Ok(tree.range_within(&self.bounds).next().transpose()?.is_some()))
    }

    fn __contains__(&self, py: Python<'_>, it: &Bound<'_, PyAny>) -> PyResult<bool> {
        if self.whole && self.what == What::Keys {
            return self.tree.get().__contains__(it);
        }
        if self.whole && self.what == What::Items {
            let Ok((key, value)) = it.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
                return Ok(false);
            };
            return self.tree.get().find(&key)?.map_or(Ok(false), |found| found.eq(&value));
        }
        let items = self.begin(py, false);
        while let Some(item) = items.__next__(py)? {
            if item.eq(it)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.tree)
    }

    /// Returns NumPy arrays: of the keys and of the values, or of one of them.
    fn to_numpy<'py>(slf: Py<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import(intern!(py, "bristlecone._arrays"))?.call_method1(intern!(py, "to_numpy"), (slf,))
    }

    /// Returns a reader of Arrow record batches, which are read on demand.
    #[pyo3(signature = (batch_size=65_536))]
    fn to_arrow<'py>(slf: Py<Self>, py: Python<'py>, batch_size: usize) -> PyResult<Bound<'py, PyAny>> {
        py.import(intern!(py, "bristlecone._arrays"))?
            .call_method1(intern!(py, "to_arrow"), (slf, batch_size.max(1)))
    }

    /// Returns a pandas data frame.
    fn to_pandas<'py>(slf: Py<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import(intern!(py, "bristlecone._arrays"))?.call_method1(intern!(py, "to_pandas"), (slf,))
    }

    /// Returns a stream of Arrow's C data interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        slf: Py<Self>,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::to_arrow(slf, py, 65_536)?.call_method1(intern!(py, "__arrow_c_stream__"), (requested_schema,))
    }

    /// Returns the visible columns, in order, by name: their kinds in the notation of `_arrays`.
    fn _columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let slot = &self.tree.get().slot;
        let (key, value) = (("key", described(py, &slot.keys)?), ("value", described(py, &slot.values)?));
        let shown = match self.what {
            What::Keys => vec![key],
            What::Values => vec![value],
            What::Items => vec![key, value],
        };
        Ok(shown.into_pyobject(py)?.into_any())
    }

    /// Returns the number of the next items, their columns, and the view of the rest, if there may be more.
    fn _read<'py>(
        &self,
        py: Python<'py>,
        most: usize,
    ) -> PyResult<(usize, Vec<Bound<'py, PyAny>>, Option<Self>)> {
        let slot = &self.tree.get().slot;
        let shows = |what, kind| (self.what == What::Items || self.what == what).then(|| Grown::new(kind));
        let mut columns =
            Columns { keys: shows(What::Keys, &slot.keys), values: shows(What::Values, &slot.values) };
        let (mut bounds, mut count) = (self.bounds.clone(), 0);
        let more = loop {
            let wanted = READ_TOGETHER.min(most - count);
            let some = slot.work(py, |tree| columns.read(tree, &mut bounds, self.reverse, wanted))?;
            count += some;
            if some < wanted || count == most {
                break some == wanted;
            }
            py.check_signals()?;
        };
        let columns = [columns.keys, columns.values].into_iter().flatten().map(|column| column.python(py));
        let (tree, what, reverse, whole) = (self.tree.clone_ref(py), self.what, self.reverse, false);
        let rest = more.then_some(Self { tree, bounds, what, reverse, whole });
        Ok((count, columns.collect::<PyResult<_>>()?, rest))
    }

    /// Decodes the values of a column by the tree's codec, if it has one.
    fn _decoded<'py>(&self, values: Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let tree = self.tree.get();
        if !tree.has_codec() {
            return Ok(None);
        }
        values.try_iter()?.map(|value| tree.decode(value?)).collect::<PyResult<_>>().map(Some)
    }

    fn __repr__(&self) -> String {
        let (name, reverse) = (self.tree.get().slot.name(), if self.reverse { ", reverse" } else { "" });
        let part = if self.whole { "all" } else { "part" };
        format!("<bristlecone.View of {name:?}: {part} {:?}{reverse}>", self.what)
    }
}

/// The visible columns of a view, being read.
struct Columns {
    keys: Option<Grown>,
    values: Option<Grown>,
}

impl Columns {
    /// Reads up to `wanted` items; returns how many. If there may be more, `bounds` becomes the rest.
    fn read(
        &mut self,
        tree: &Dynamic,
        bounds: &mut Bounds,
        backward: bool,
        wanted: usize,
    ) -> bristlecone::Result<usize> {
        let (some, last) = match tree.words_within(bounds)? {
            Some(items) if backward => self.take_words(items.rev().take(wanted))?,
            Some(items) => self.take_words(items.take(wanted))?,
            None => {
                let items = tree.range_within(bounds);
                if backward { self.take(items.rev(), wanted)? } else { self.take(items, wanted)? }
            }
        };
        if let Some(last) = last.filter(|_| some == wanted) {
            tree.narrow(bounds, &last, backward)?;
        }
        Ok(some)
    }

    /// Appends items of words; returns how many, and the last key.
    fn take_words(
        &mut self,
        mut items: impl Iterator<Item = bristlecone::Result<(u64, u64)>>,
    ) -> bristlecone::Result<(usize, Option<Datum<'static>>)> {
        let words = |column: &mut Option<Grown>| match column {
            Some(Grown::U64(words)) => Some(std::mem::take(words)),
            _ => None,
        };
        let (mut keys, mut values) = (words(&mut self.keys), words(&mut self.values));
        let (mut some, mut last) = (0, None);
        let taken = items.try_for_each(|item| {
            let (key, value) = item?;
            (some, last) = (some + 1, Some(key));
            if let Some(keys) = &mut keys {
                keys.push(key);
            }
            if let Some(values) = &mut values {
                values.push(value);
            }
            Ok(())
        });
        (self.keys, self.values) = (keys.map(Grown::U64), values.map(Grown::U64));
        taken.map(|()| (some, last.map(Datum::U64)))
    }

    /// Appends up to `wanted` items; returns how many, and the last key if there may be more.
    fn take(
        &mut self,
        items: impl Iterator<Item = bristlecone::Result<Item>>,
        wanted: usize,
    ) -> bristlecone::Result<(usize, Option<Datum<'static>>)> {
        let (mut some, mut last) = (0, None);
        for item in items.take(wanted) {
            let (key, value) = item?;
            some += 1;
            if let Some(values) = &mut self.values {
                values.push(Some(value));
            }
            match &mut self.keys {
                Some(keys) => {
                    last = (some == wanted).then(|| key.clone());
                    keys.push(Some(key));
                }
                None => last = Some(key),
            }
        }
        Ok((some, last))
    }
}

/// Returns a kind in the notation of `_arrays`: its format in arrays, "text", "bytes", or its components.
fn described<'py>(py: Python<'py>, kind: &Kind) -> PyResult<Bound<'py, PyAny>> {
    Ok(match kind {
        _ if let Some(format) = format(kind) => format.into_pyobject(py)?.into_any(),
        _ if is_text(kind) => "text".into_pyobject(py)?.into_any(),
        Kind::Bytes | Kind::Postcard => "bytes".into_pyobject(py)?.into_any(),
        Kind::Array(len) => ("array", len).into_pyobject(py)?.into_any(),
        Kind::Expiring(inner) => {
            let both = entry(inner).map(|kind| described(py, &kind));
            ("tuple", PyTuple::new(py, both.into_iter().collect::<PyResult<Vec<_>>>()?)?)
                .into_pyobject(py)?
                .into_any()
        }
        Kind::Option(inner) => ("option", described(py, inner)?).into_pyobject(py)?.into_any(),
        Kind::Tuple(kinds) => {
            let kinds: Vec<_> = kinds.iter().map(|kind| described(py, kind)).collect::<PyResult<_>>()?;
            ("tuple", PyTuple::new(py, kinds)?).into_pyobject(py)?.into_any()
        }
        other => other.to_string().into_pyobject(py)?.into_any(),
    })
}

/// Returns up to `most` items from an end. An error behind some items is left to the next call.
pub fn some_of(
    mut items: impl DoubleEndedIterator<Item = bristlecone::Result<Item>>,
    backward: bool,
    most: usize,
) -> bristlecone::Result<Vec<Item>> {
    let mut read = Vec::new();
    while read.len() < most {
        match if backward { items.next_back() } else { items.next() } {
            Some(Ok(item)) => read.push(item),
            Some(Err(error)) if read.is_empty() => return Err(error),
            Some(Err(_)) | None => break,
        }
    }
    Ok(read)
}

/// The unread part of an iterator.
#[derive(Debug)]
pub enum Rest {
    Tree(Bounds),
    /// Of a tree whose values expire.
    Live(Bounds),
    Moment(Py<Moment>, Between),
}

impl Rest {
    /// Reads up to `most` items, and excludes them from the rest.
    fn read(
        &mut self,
        py: Python<'_>,
        slot: &Slot,
        backward: bool,
        most: usize,
    ) -> PyResult<Vec<(Datum<'static>, Datum<'static>)>> {
        match self {
            Self::Tree(bounds) => slot.read(py, |tree| {
                let read = some_of(tree.range_within(bounds), backward, most)?;
                if let Some((last, _)) = read.last() {
                    tree.narrow(bounds, last, backward)?;
                }
                Ok(read)
            }),
            Self::Live(bounds) => slot.live(py, false, |live| {
                let read = some_of(live.range_within(bounds), backward, most)?;
                if let Some((last, _)) = read.last() {
                    live.entries().narrow(bounds, last, backward)?;
                }
                Ok(read)
            }),
            Self::Moment(moment, within) => {
                let read = moment.get().some_items(py, slot, within, backward, most)?;
                if let Some((last, _)) = read.last() {
                    let end = if backward { &mut within.1 } else { &mut within.0 };
                    *end = std::ops::Bound::Excluded(last.clone());
                }
                Ok(read)
            }
        }
    }
}

/// The items that an iterator has read, and where it continues.
#[derive(Debug)]
struct Hand {
    rest: Rest,
    /// In reverse order.
    read: Vec<(Datum<'static>, Datum<'static>)>,
    /// Number of items to read next.
    next: usize,
    done: bool,
}

/// An iterator over items of a tree, which may change meanwhile. It reads some hundred items at a time, and holds
/// no resource of the tree in between.
#[pyclass(frozen, module = "bristlecone")]
#[derive(Debug)]
pub struct Items {
    tree: Py<Tree>,
    what: What,
    backward: bool,
    hand: Mutex<Hand>,
}

#[pymethods]
impl Items {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.tree)
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let tree = self.tree.get();
        let next = {
            let mut hand = self.hand.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
            if hand.read.is_empty() && !hand.done {
                self.read_on(py, &mut hand)?;
            }
            hand.read.pop()
        };
        let Some((key, value)) = next else { return Ok(None) };
        Ok(Some(match self.what {
            What::Keys => python(py, &key)?,
            What::Values => tree.shown(py, &value)?,
            What::Items => tree.pair(py, &key, &value)?.into_any(),
        }))
    }
}

impl Items {
    pub fn new(tree: Py<Tree>, rest: Rest, what: What, backward: bool) -> Self {
        let hand = Hand { rest, read: Vec::new(), next: *READ.start(), done: false };
        Self { tree, what, backward, hand: Mutex::new(hand) }
    }

    fn read_on(&self, py: Python<'_>, hand: &mut Hand) -> PyResult<()> {
        let Hand { rest, read, next, done } = hand;
        *read = rest.read(py, &self.tree.get().slot, self.backward, *next)?;
        *done = read.len() < *next;
        read.reverse();
        *next = (*next * 2).min(*READ.end());
        Ok(())
    }
}
