//! An object that any thread may close.
//!
//! Two kinds of waiting must not be combined: for a gate, and for the interpreter. So a thread that is attached to
//! the interpreter never waits for a gate. A thread that has passed one neither waits for the interpreter nor runs
//! Python code, which may reach the same gate.

use std::sync::{PoisonError, RwLock, TryLockError};

use bristlecone::Error;
use pyo3::prelude::*;

use crate::error::{closed, raise};

/// An object that any number of threads use at a time, until one removes it.
#[derive(Debug)]
pub struct Gate<T> {
    held: RwLock<Option<T>>,
    /// In a forked child, the lock may be held by a thread of the parent, which does not exist there and never
    /// releases it. Such a child must not use the object, and must not wait either.
    pid: u32,
}

impl<T: Send + Sync> Gate<T> {
    pub fn new(it: T) -> Self {
        Self { held: RwLock::new(Some(it)), pid: std::process::id() }
    }

    /// Checks that this process created the gate.
    pub fn expect_here(&self, py: Python<'_>) -> PyResult<()> {
        if std::process::id() == self.pid {
            return Ok(());
        }
        Err(raise(py, Error::Forked { path: None, pid: self.pid }))
    }

    /// Calls `use_it` attached to the interpreter. It must not run Python code.
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

    /// Calls `change` with the object, detached from the interpreter, when no other thread uses it.
    pub fn change<R: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut Option<T>) -> R + Send,
    ) -> PyResult<R> {
        self.expect_here(py)?;
        Ok(py.detach(|| self.change_detached(change)))
    }

    /// Calls `change` like [`change`](Self::change), in a thread that is already detached.
    pub fn change_detached<R>(&self, change: impl FnOnce(&mut Option<T>) -> R) -> R {
        change(&mut self.held.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether the object was removed. Always false in a forked child.
    pub fn is_closed(&self) -> bool {
        self.held.try_read().is_ok_and(|held| held.is_none())
    }
}
