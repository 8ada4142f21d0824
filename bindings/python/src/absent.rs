//! The marker of an absent key.

use pyo3::PyTypeInfo;
use pyo3::prelude::*;

/// Marks an absent key in `Tree.compare_and_swap`.
#[pyclass(frozen, module = "bristlecone", name = "Absent")]
#[derive(Debug)]
pub struct Absent;

impl Absent {
    /// Returns whether an object is the marker of an absent key.
    pub fn is(it: &Bound<'_, PyAny>) -> bool {
        Self::is_type_of(it)
    }
}

#[pymethods]
impl Absent {
    fn __repr__(&self) -> &'static str {
        "bristlecone.ABSENT"
    }

    fn __bool__(&self) -> bool {
        false
    }

    fn __reduce__(&self) -> &'static str {
        "ABSENT"
    }
}
