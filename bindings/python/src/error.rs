//! The library's errors as Python exceptions: see `python/bristlecone/_errors.py`.

use std::io::ErrorKind;

use bristlecone::Error;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Returns an exception of a class in `_errors`, with the further arguments of its constructor.
fn exception(py: Python<'_>, class: &str, message: &str, more: &[(&str, Bound<'_, PyAny>)]) -> PyErr {
    let made = (|| {
        let classes = CLASSES.get_or_try_init(py, || {
            Ok::<_, PyErr>(py.import(intern!(py, "bristlecone._errors"))?.unbind())
        })?;
        let named = PyDict::new(py);
        for (name, it) in more {
            named.set_item(name, it)?;
        }
        classes.bind(py).getattr(class)?.call((message,), Some(&named))
    })();
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Returns the name of the class of an error.
fn class(error: &Error) -> &'static str {
    match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => "PermissionDeniedError",
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => "PoolNotFoundError",
        Error::Io { .. } if error.is_no_room() => "NoRoomError",
        Error::Io { .. } => "IoError",
        Error::NotFound { .. } => "PoolNotFoundError",
        Error::Exists { .. } => "PoolExistsError",
        Error::NotAPool { .. } => "NotAPoolError",
        Error::Newer { .. } => "NewerError",
        Error::Corrupted { .. } => "CorruptedError",
        Error::InUse { .. } | Error::PoolInUse { .. } => "InUseError",
        Error::Forked { .. } => "ForkedError",
        Error::PoolFull { .. } => "PoolFullError",
        Error::MediumFull { .. } => "NoRoomError",
        Error::MaximumFixed { .. } => "MaximumFixedError",
        Error::NoSuchTree { .. } => "NoSuchTreeError",
        Error::TreeExists { .. } => "TreeExistsError",
        Error::TreeInUse { .. } => "TreeInUseError",
        Error::Mismatch { .. } => "MismatchError",
        Error::Invalid { .. } => "InvalidError",
        Error::TooLong { .. } => "TooLongError",
        Error::Conflict => "ConflictError",
        Error::SnapshotTooOld => "SnapshotTooOldError",
        Error::DurabilityLost => "DurabilityLostError",
        Error::ReadOnly => "ReadOnlyError",
        Error::NoWriter { .. } => "NoWriterError",
        Error::Pruned { .. } => "PrunedError",
        Error::NoSuchCursor { .. } => "NoSuchCursorError",
        Error::CursorDropped { .. } => "CursorDroppedError",
        _ => "Error",
    }
}

/// Converts an error to an exception.
#[cold]
pub fn raise(py: Python<'_>, error: Error) -> PyErr {
    let message = match &error {
        // Messages with the names used in Python.
        Error::NotFound { path } => format!("no pool at {}: create it with create=True", path.display()),
        Error::TreeInUse { name } => format!("the tree {name:?} is in use: close() its handles first"),
        other => other.to_string(),
    };
    let mut more = Vec::new();
    match &error {
        Error::NotFound { path }
        | Error::Exists { path }
        | Error::NotAPool { path }
        | Error::NoWriter { path, .. } => {
            more.extend(path.into_pyobject(py).map(|path| ("filename", path.into_any())));
        }
        Error::Io { source, .. } => {
            more.extend(source.raw_os_error().into_pyobject(py).map(|number| ("errno", number.into_any())));
        }
        Error::InUse { pid } => {
            more.extend(pid.into_pyobject(py).map(|pid| ("pid", pid.into_any())));
        }
        Error::Pruned { oldest } => {
            more.extend(oldest.into_pyobject(py).map(|oldest| ("oldest_lsn", oldest.into_any())));
        }
        _ => {}
    }
    exception(py, class(&error), &message, &more)
}

/// Returns the exception for a closed object.
#[cold]
pub fn closed(py: Python<'_>) -> PyErr {
    exception(py, "ClosedError", "the pool or the tree is closed", &[])
}

/// Sets an exception's attribute `done`: the number of items completed before it.
#[cold]
pub fn after(py: Python<'_>, done: usize, error: PyErr) -> PyErr {
    let value = error.value(py);
    let noted = value.setattr(intern!(py, "done"), done).and_then(|()| {
        value.call_method1(intern!(py, "add_note"), (format!("{done} items were done before"),))
    });
    noted.map_or_else(|other| other, |_| error.clone_ref(py))
}

/// Returns the exception for an impossible state, which is a bug of this package.
#[cold]
pub fn fault(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("bristlecone: {what}"))
}
