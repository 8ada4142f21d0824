//! Opening pools and trees: arguments.

use std::path::PathBuf;
use std::time::Duration;

use bristlecone::dynamic::{Kind, Tree};
use bristlecone::{Design, Error, PoolOptions, TreeOptions};
use pyo3::prelude::*;

use crate::error::raise;
use crate::pool::Pool;
use crate::slot::Shared;

/// Opens the pool at `path`.
#[pyfunction]
#[pyo3(signature = (
    path, *, create=false, exclusive=false, max_bytes=None, read_only=false, follow=false, domain=None,
    durability=None, journal=None, cursor_limit=None, recovery_threads=None
))]
#[allow(clippy::too_many_arguments, reason = "they are named in Python")]
pub fn open(
    py: Python<'_>,
    path: PathBuf,
    create: bool,
    exclusive: bool,
    max_bytes: Option<Size>,
    read_only: bool,
    follow: bool,
    domain: Option<&str>,
    durability: Option<&str>,
    journal: Option<PathBuf>,
    cursor_limit: Option<Size>,
    recovery_threads: Option<usize>,
) -> PyResult<Pool> {
    let refused = |error| raise(py, error);
    let mut options = PoolOptions::default().create(create).create_new(exclusive).read_only(read_only);
    if let Some(Size(bytes)) = max_bytes {
        options = options.max_bytes(bytes);
    }
    if let Some(domain) = domain {
        options = options.domain(domain.parse().map_err(refused)?);
    }
    if let Some(durability) = durability {
        options = options.durability(durability.parse().map_err(refused)?);
    }
    if let Some(Size(bytes)) = cursor_limit {
        options = options.cursor_limit_bytes(bytes);
    }
    if let Some(threads) = recovery_threads {
        options = options.recovery_threads(threads);
    }
    let opened = py.detach(|| {
        let path = std::path::absolute(&path).map_err(|error| Error::io("looking for the pool", error))?;
        let folder = journal.map(std::path::absolute).transpose();
        let folder = folder.map_err(|error| Error::io("looking for the journal", error))?;
        let options = folder.into_iter().fold(options, PoolOptions::journal);
        let pool = if follow { options.follow(&path) } else { options.open(&path) }?;
        Ok((pool, path))
    });
    let (pool, path) = opened.map_err(refused)?;
    Ok(Pool::new(Shared::new(pool, path)))
}

/// Bytes, as a number or as text: `2 << 30`, `"2G"`.
pub struct Size(pub u64);

impl FromPyObject<'_, '_> for Size {
    type Error = PyErr;

    fn extract(it: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        match it.extract::<&str>() {
            Ok(text) => bristlecone::parse_size(text).map(Self).map_err(|error| raise(it.py(), error)),
            Err(_) => it.extract().map(Self),
        }
    }
}

/// An optional argument; a missing one differs from `None`.
pub enum Given {
    Not,
    It(Py<PyAny>),
}

impl FromPyObject<'_, '_> for Given {
    type Error = PyErr;

    fn extract(it: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        Ok(Self::It(it.to_owned().unbind()))
    }
}

/// Arguments for opening a tree.
pub struct Asked {
    pub name: String,
    pub kinds: Option<(Kind, Kind)>,
    pub design: Option<Design>,
    pub options: Vec<(String, u64)>,
    pub expire_after: Option<Duration>,
}

impl Asked {
    fn options(&self, pool: &bristlecone::Pool) -> TreeOptions {
        let options = pool.tree_options(&self.name);
        let options = self.design.into_iter().fold(options, TreeOptions::design);
        let options = self.expire_after.into_iter().fold(options, TreeOptions::expire_after);
        self.options.iter().fold(options, |options, (name, value)| options.option(name, *value))
    }

    /// Opens the tree, or creates it if its kinds are known.
    pub fn open(&self, pool: &bristlecone::Pool, read_only: bool) -> Result<Tree, Error> {
        let options = self.options(pool);
        let Some((keys, values)) = &self.kinds else { return options.open_dynamic() };
        match options.open_dynamic() {
            Err(Error::NoSuchTree { .. }) if !read_only => {}
            opened => return self.expect_kinds(opened?),
        }
        match options.create_dynamic(keys, values) {
            // Another thread created it first: its tree is opened.
            Err(Error::TreeExists { .. }) => self.expect_kinds(options.open_dynamic()?),
            created => created,
        }
    }

    fn expect_kinds(&self, tree: Tree) -> Result<Tree, Error> {
        let Some((keys, values)) = &self.kinds else { return Ok(tree) };
        let both = [("keys of type", tree.key_kind(), keys), ("values of type", tree.value_kind(), values)];
        if let Some((what, found, asked)) = both.into_iter().find(|(_, found, asked)| found != asked) {
            let (name, found, asked) = (tree.name().to_owned(), found.to_string(), asked.to_string());
            return Err(Error::Mismatch { name, what, found, asked });
        }
        Ok(tree)
    }
}
