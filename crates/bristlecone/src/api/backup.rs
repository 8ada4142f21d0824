//! Pool backups: a consistent copy of a whole pool, renamed into place when complete.

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;

use bristlecone_pm::{At, CreateOptions, Domain, Error, Native, PoolFile, Result, TreeEntry, TreeSpec, told};

use crate::api::pool::LOOKS;
use crate::dynamic::{self, On};
use crate::index::parts::codec::Codec;
use crate::{Design, Key, Pool, Snapshot, Tree, Value};

/// Number of items written between two progress reports.
const REPORTED_EVERY: usize = 256;

/// Options for copying a pool. See [`Pool::backup`].
#[derive(Default)]
pub struct BackupOptions<'a> {
    max_bytes: Option<u64>,
    domain: Option<Domain>,
    design: Option<Design>,
    trees: HashMap<String, (Design, Vec<(String, u64)>)>,
    report: Option<Report<'a>>,
}

type Report<'a> = Box<dyn FnMut(BackupProgress<'_>) -> ControlFlow<()> + Send + 'a>;

impl fmt::Debug for BackupOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_bytes, domain, design, trees, report: _ } = self;
        let mut debug = f.debug_struct("BackupOptions");
        debug
            .field("max_bytes", max_bytes)
            .field("domain", domain)
            .field("design", design)
            .field("trees", trees);
        debug.finish_non_exhaustive()
    }
}

impl<'a> BackupOptions<'a> {
    /// Returns options for a copy with the original's settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum size of the copy in bytes (default: that of the original). It may be smaller.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Sets the copy's persistence domain, overriding detection.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Sets the design of all trees in the copy. Trees that had another design get the default options.
    pub fn design(mut self, design: Design) -> Self {
        self.design = Some(design);
        self
    }

    /// Sets the design of one tree in the copy, and parameters of it by name. Parameters that are not given keep their
    /// value if the original has this design, and otherwise get the default.
    pub fn tree(mut self, name: &str, design: Design, options: &[(&str, u64)]) -> Self {
        let options = options.iter().map(|(option, value)| ((*option).to_owned(), *value)).collect();
        self.trees.insert(name.to_owned(), (design, options));
        self
    }

    /// Calls `report` periodically while items are copied. If it breaks, no copy is created, and the call fails with
    /// the error for an interrupted call.
    pub fn on_progress(
        mut self,
        report: impl FnMut(BackupProgress<'_>) -> ControlFlow<()> + Send + 'a,
    ) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    /// Returns the specification of a tree in the copy.
    fn reshaped(&self, spec: &TreeSpec) -> Result<TreeSpec> {
        let own = Design::of(spec)?;
        let (design, mut given) = match self.trees.get(&spec.name) {
            Some((design, options)) => (*design, options.clone()),
            None => (self.design.unwrap_or(own), Vec::new()),
        };
        if design == own {
            let is_given = |name: &str| given.iter().any(|(given, _)| given == name);
            let kept: Vec<_> =
                Design::options_of(spec)?.into_iter().filter(|(name, _)| !is_given(name)).collect();
            given.extend(kept.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
        let TreeSpec { name, key_kind, value_kind, .. } = spec.clone();
        Ok(TreeSpec::new(&name, design.code(), key_kind, value_kind).with_params(design.parse(&given)?))
    }

    fn report(&mut self, progress: BackupProgress<'_>) -> Result<()> {
        match self.report.as_mut().map(|report| report(progress)) {
            Some(ControlFlow::Break(())) => {
                Err(Error::io("copying the pool", std::io::Error::from(ErrorKind::Interrupted)))
            }
            Some(ControlFlow::Continue(())) | None => Ok(()),
        }
    }
}

/// Progress of a copy.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BackupProgress<'a> {
    /// The tree being copied.
    pub tree: &'a str,
    /// Items of all trees copied so far.
    pub items: u64,
    /// Items of all trees at the start of the copy.
    pub items_all: u64,
}

/// Result of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The trees by name, with their numbers of items.
    pub trees: Vec<(String, u64)>,
    /// Size of the new file in bytes.
    pub file_bytes: u64,
}

impl Pool {
    /// Copies the pool to a new file: all trees at one point in time, densely packed.
    ///
    /// The copy is an independent pool. [`BackupOptions`] may give it another maximum, and its trees other designs.
    /// The copy is renamed to `path` when it is complete and on its medium: after an error or a crash no file has that
    /// name.
    ///
    /// Readers and writers continue during the copy. Old values of changed items are kept in DRAM until they are
    /// copied, as for any [`snapshot`](Self::snapshot). Trees cannot be dropped or cleared. Records are compared with
    /// their checksums: damage is an error, so a copy is never incomplete.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if anything exists at `path`, including this pool; [`Error::NoSuchTree`] if the options name
    /// a tree that does not exist; [`Error::PoolFull`] and [`Error::MediumFull`] if there is no space for the copy;
    /// [`Error::Corrupted`]; otherwise same as [`PoolOptions::open`](crate::PoolOptions::open) for a new pool.
    ///
    /// ```
    /// use bristlecone::{BackupOptions, Design, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-backup-{}.pool", std::process::id());
    /// # let copy = format!("/dev/shm/bristlecone-doc-backup-{}.copy", std::process::id());
    /// # let pool = Pool::options().max_bytes(64 << 20).create(true).open(&path)?;
    /// let notes = pool.tree::<u64, &str>("notes")?;
    /// notes.insert(1, "oak")?;
    ///
    /// let options = BackupOptions::new().max_bytes(128 << 20).tree("notes", Design::NbTree, &[]);
    /// assert_eq!(pool.backup(&copy, options)?.trees, [("notes".to_owned(), 1)]);
    /// assert_eq!(Pool::options().open(&copy)?.tree::<u64, &str>("notes")?.get(1).as_deref(), Some("oak"));
    /// # std::fs::remove_file(&path).unwrap();
    /// # std::fs::remove_file(&copy).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn backup(&self, path: impl AsRef<Path>, options: BackupOptions<'_>) -> Result<Backup> {
        told("a pool is copied", path.as_ref(), || self.backup_native(path.as_ref(), options))
    }

    fn backup_native(&self, path: &Path, mut options: BackupOptions<'_>) -> Result<Backup> {
        self.0.file.here()?;
        if path.symlink_metadata().is_ok() {
            return Err(Error::Exists { path: path.to_owned() });
        }
        let (source, trees) = self.hold_all()?;
        let missing =
            options.trees.keys().find(|name| trees.iter().all(|(entry, _)| entry.spec.name != **name));
        if let Some(name) = missing {
            return Err(Error::NoSuchTree { name: name.clone() });
        }
        let specs =
            trees.iter().map(|(entry, _)| options.reshaped(&entry.spec)).collect::<Result<Vec<_>>>()?;
        let create = CreateOptions {
            max_bytes: options.max_bytes.unwrap_or_else(|| self.info().max_bytes),
            domain: options.domain,
        };
        // The file is synced as a whole, not page by page.
        let medium = |domain| Native::new(if domain == Domain::Msync { Domain::Process } else { domain });
        let at = if self.0.file.handles_faults() { At::from(path) } else { At::unhandled(path) };
        let unnamed = PoolFile::create_unnamed(at, &create, medium)?;
        let to = Pool::over(unnamed.pool().clone(), 1)?;
        let items_all = trees.iter().map(|(_, tree)| tree.len()).sum();
        let mut copied = Vec::with_capacity(trees.len());
        let mut before = 0;
        for (spec, (_, tree)) in specs.iter().zip(&trees) {
            let mut report =
                |items| options.report(BackupProgress { tree: &spec.name, items: before + items, items_all });
            let items = match tree.on() {
                On::WordWord(tree) => source.copy(tree, &to, spec, &mut report),
                On::WordRecord(tree) => source.copy(tree, &to, spec, &mut report),
                On::RecordWord(tree) => source.copy(tree, &to, spec, &mut report),
                On::RecordRecord(tree) => source.copy(tree, &to, spec, &mut report),
            }?;
            before += items;
            copied.push((spec.name.clone(), items));
        }
        to.close()?;
        let file_bytes = unnamed.pool().info().file_bytes;
        unnamed.publish()?;
        Ok(Backup { trees: copied, file_bytes })
    }

    /// Takes a snapshot of the pool and opens all trees that existed then. None of them can be dropped or cleared
    /// while the result exists.
    fn hold_all(&self) -> Result<(Source, Vec<(TreeEntry, dynamic::Tree)>)> {
        for _ in 0..LOOKS {
            let entries = self.trees()?;
            let held =
                entries.iter().map(|entry| self.dynamic_tree(&entry.spec.name)).collect::<Result<Vec<_>>>();
            let held = match held {
                Ok(held) => held,
                // Another thread dropped or renamed the tree.
                Err(Error::NoSuchTree { .. }) => continue,
                Err(error) => return Err(error),
            };
            let source = Source(self.snapshot()?);
            // Another thread may have created a tree before the snapshot.
            if self.trees()? == entries {
                return Ok((source, entries.into_iter().zip(held).collect()));
            }
        }
        Err(Error::invalid("other threads create, drop or rename trees all the time: try again"))
    }
}

/// The source of the items: a snapshot of the pool.
struct Source(Snapshot);

impl Source {
    /// Copies a tree into a new one; returns its number of items.
    fn copy<K: Key, V: Value>(
        &self,
        from: &Tree<K, V>,
        pool: &Pool,
        spec: &TreeSpec,
        report: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        let to = pool.create_tree::<K, V>(|| {
            let (entry, tree) = pool.0.file.create_index(spec, (K::Codec::INLINE, V::Codec::INLINE))?;
            Ok((entry, tree.typed()?))
        })?;
        let (mut items, mut from) = (0, self.0.tree(from).try_range(..)?);
        loop {
            let some = from.by_ref().take(REPORTED_EVERY).collect::<Result<Vec<_>>>()?;
            let lent: Vec<_> = some.iter().map(|(key, value)| (K::lend(key), V::lend(value))).collect();
            to.upsert_many(&lent)?;
            items += some.len() as u64;
            report(items)?;
            if some.len() < REPORTED_EVERY {
                return Ok(items);
            }
        }
    }
}
