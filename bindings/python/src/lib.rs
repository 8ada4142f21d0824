//! The native part of the Python package `bristlecone`: trees whose kinds are known at run time, as Python mappings.

mod absent;
mod buffer;
mod changes;
mod codec;
mod convert;
mod error;
mod expiring;
mod gate;
mod handle;
mod kind;
mod many;
mod moment;
mod open;
mod pool;
mod slot;
mod ticket;
mod tree;
mod view;

/// The native part of the package. Threads share its classes without the GIL: mutable state has its own locks.
#[pyo3::pymodule(gil_used = false)]
mod _bristlecone {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::absent::Absent;
    #[pymodule_export]
    use crate::buffer::Buffer;
    #[pymodule_export]
    use crate::changes::{Changes, Commit, CommitChanges};
    #[pymodule_export]
    use crate::expiring::ExpiringTree;
    #[pymodule_export]
    use crate::handle::Tree;
    #[pymodule_export]
    use crate::moment::{Batch, Moment};
    #[pymodule_export]
    use crate::open::open;
    #[pymodule_export]
    use crate::pool::Pool;
    #[pymodule_export]
    use crate::slot::_close_all;
    #[pymodule_export]
    use crate::ticket::Ticket;
    #[pymodule_export]
    use crate::view::{Items, View};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("ABSENT", Py::new(module.py(), Absent)?)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
