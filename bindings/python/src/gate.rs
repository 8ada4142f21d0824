//! What is there until it is closed, by whatever thread.
//!
//! Two kinds of waiting must not meet: for a gate, and for the interpreter. So a thread that is attached to the
//! interpreter never waits for a gate, and a thread that has come through one neither waits for the interpreter nor
//! runs code of Python's, which may come to the same gate.

use std::sync::{PoisonError, RwLock, TryLockError};

use bristlecone::Error;
use pyo3::prelude::*;

use crate::error::{closed, raise};

/// Something that any number of threads use at a time, until one takes it away.
#[derive(Debug)]
pub struct Gate<T> {
    held: RwLock<Option<T>>,
    /// A child that is forked finds the lock as another thread of its parent had it, which is not there to give it
    /// back. Such a child uses nothing, but must not wait either.
    pid: u32,
}

impl<T: Send + Sync> Gate<T> {
    pub fn new(it: T) -> Self {
        Self { held: RwLock::new(Some(it)), pid: std::process::id() }
    }

    /// Verifies that this process is the one that made the gate.
    pub fn expect_here(&self, py: Python<'_>) -> PyResult<()> {
        if std::process::id() == self.pid {
            return Ok(());
        }
        Err(raise(py, Error::Forked { path: None, pid: self.pid }))
    }

    /// Calls `use_it` attached to the interpreter. It runs no code of Python's.
    #[inline]
    pub fn with<R>(&self, py: Python<'_>, use_it: impl FnOnce(&T) -> R) -> PyResult<R> {
        loop {
            match self.held.try_read() {
                Ok(held) => return held.as_ref().map(use_it).ok_or_else(|| closed(py)),
                Err(TryLockError::Poisoned(held)) => {
                    return held.into_inner().as_ref().map(use_it).ok_or_else(|| closed(py));
                }
                Err(TryLockError::WouldBlock) => {
                    self.expect_here(py)?;
                    py.detach(|| drop(self.held.read()));
                }
            }
        }
    }

    /// Calls `use_it` detached from the interpreter, whose other threads run meanwhile.
    pub fn with_detached<R: Send>(&self, py: Python<'_>, use_it: impl FnOnce(&T) -> R + Send) -> PyResult<R> {
        self.expect_here(py)?;
        let used = py.detach(|| {
            let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
            held.as_ref().map(use_it)
        });
        used.ok_or_else(|| closed(py))
    }

    /// Calls `change` with what is held, detached from the interpreter, and when no other thread uses it.
    pub fn change<R: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut Option<T>) -> R + Send,
    ) -> PyResult<R> {
        self.expect_here(py)?;
        Ok(py.detach(|| self.change_detached(change)))
    }

    /// Calls `change` as [`change`](Self::change) does, in a thread that is detached already.
    pub fn change_detached<R>(&self, change: impl FnOnce(&mut Option<T>) -> R) -> R {
        change(&mut self.held.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether nothing is held any more. In a child that was forked, never.
    pub fn is_closed(&self) -> bool {
        self.held.try_read().is_ok_and(|held| held.is_none())
    }
}
