//! Tickets: whether writes that did not wait are durable.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use bristlecone::Error;
use pyo3::prelude::*;

use crate::error::raise;
use crate::slot::Shared;

/// A promise that writes will be durable. In asynchronous code, `await` it.
#[pyclass(frozen, module = "bristlecone")]
#[derive(Debug)]
pub struct Ticket {
    ticket: bristlecone::Ticket,
}

/// Calls a function of Python, once, from the thread that syncs.
struct Call(Mutex<Option<Py<PyAny>>>);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        let function = self.0.lock().ok().and_then(|mut function| function.take());
        // An interpreter that ends runs no event loop.
        let _ = Python::try_attach(|py| {
            // The function only schedules a callback, and its loop may be closed.
            let _ = function.map(|function| function.call0(py));
        });
    }
}

#[pymethods]
impl Ticket {
    /// Returns whether the writes are durable, without waiting.
    #[getter]
    fn is_durable(&self, py: Python<'_>) -> PyResult<bool> {
        self.ticket.is_durable().map_err(|error| raise(py, error))
    }

    /// Waits until the writes are durable.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.ticket.wait()).map_err(|error| raise(py, error))
    }

    /// Returns whether the writes are durable. Otherwise `wake` is called once when that may have changed, from another
    /// thread.
    fn _poll(&self, py: Python<'_>, wake: Py<PyAny>) -> PyResult<bool> {
        let waker = Waker::from(Arc::new(Call(Mutex::new(Some(wake)))));
        let mut ticket = self.ticket.clone();
        // Without the interpreter: the thread that syncs may hold its lock while it waits for the interpreter.
        let polled = py.detach(|| std::pin::Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)));
        match polled {
            Poll::Pending => Ok(false),
            Poll::Ready(done) => done.map(|()| true).map_err(|error| raise(py, error)),
        }
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("bristlecone._tickets")?.getattr("wait")?.call1((slf,))?.call_method0("__await__")
    }
}

/// Calls a function whose writes do not wait; returns its result and their ticket.
pub fn with_ticket<'py>(
    shared: &Shared,
    function: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyAny>, Ticket)> {
    let py = function.py();
    // The function uses the pool itself, so that this must not hold it.
    let pool = shared.work(py, |pool| Ok(pool.clone()))?;
    let mut raised = None;
    let called = pool.with_ticket(|| {
        function.call0().map_err(|error| {
            raised = Some(error);
            Error::invalid("the function has raised an exception")
        })
    });
    match (called, raised) {
        (Ok((result, ticket)), _) => Ok((result, Ticket { ticket })),
        // Its writes are not known to be durable, which tells more.
        (Err(error @ Error::DurabilityLost), _) | (Err(error), None) => Err(raise(py, error)),
        (Err(_), Some(raised)) => Err(raised),
    }
}
