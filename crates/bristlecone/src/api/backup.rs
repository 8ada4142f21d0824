//! Copies of pools: whole ones, of one moment, under a name that they get last.

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

/// Items that are written together, between two reports of progress.
const REPORTED_EVERY: usize = 256;

/// How a pool is copied. See [`Pool::backup`].
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
    /// Returns options for a copy that is like its original.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the bytes that the copy may grow to (default: as many as the original), also fewer.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Sets the copy's persistence domain, instead of the one that its medium has.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Sets the design of all trees in the copy, with its default options where they have another one so far.
    pub fn design(mut self, design: Design) -> Self {
        self.design = Some(design);
        self
    }

    /// Sets the design of one tree in the copy, and parameters of it by name: those of the design's own that are not given are
    /// as in the original if it has this design, and defaults otherwise.
    pub fn tree(mut self, name: &str, design: Design, options: &[(&str, u64)]) -> Self {
        let options = options.iter().map(|(option, value)| ((*option).to_owned(), *value)).collect();
        self.trees.insert(name.to_owned(), (design, options));
        self
    }

    /// Calls `report` now and then while items are copied. If it breaks there is no copy, and the error is that of an
    /// interrupted call.
    pub fn on_progress(
        mut self,
        report: impl FnMut(BackupProgress<'_>) -> ControlFlow<()> + Send + 'a,
    ) -> Self {
        self.report = Some(Box::new(report));
        self
    }

    /// Returns what a tree is to be in the copy.
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

/// How far a copy has got.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BackupProgress<'a> {
    /// The tree that is copied.
    pub tree: &'a str,
    /// Items of all trees that are in the copy.
    pub items: u64,
    /// Items that all trees had when it began.
    pub items_all: u64,
}

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// The trees, by name, with the items of each.
    pub trees: Vec<(String, u64)>,
    /// Bytes of the new file.
    pub file_bytes: u64,
}

impl Pool {
    /// Copies the pool to a new file: all trees, as they are at one moment, densely.
    ///
    /// The copy is a pool of its own. [`BackupOptions`] may give it another maximum, and its trees other designs. It gets
    /// the name `path` when it is complete and on its medium: after an error or a crash there is nothing of that name.
    ///
    /// Readers and writers go on meanwhile; what writers change is kept in DRAM until it is copied, as for any
    /// [`snapshot`](Self::snapshot). Trees cannot be dropped or cleared. Records are compared with their checksums on the
    /// way: damage is an error, and no copy passes for a whole one.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if there is anything at `path`, this pool for one; [`Error::NoSuchTree`] for a tree that is to be
    /// changed and is not there; [`Error::PoolFull`] and [`Error::MediumFull`] if the copy has no room;
    /// [`Error::Corrupted`]; otherwise as [`PoolOptions::open`](crate::PoolOptions::open) for a new pool.
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
        // Synced as a whole, not page by page.
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

    /// Takes a moment of the pool, and opens all trees that it had then, so that none is dropped or cleared while there is
    /// what this returns.
    fn hold_all(&self) -> Result<(Source, Vec<(TreeEntry, dynamic::Tree)>)> {
        for _ in 0..LOOKS {
            let entries = self.trees()?;
            let held =
                entries.iter().map(|entry| self.dynamic_tree(&entry.spec.name)).collect::<Result<Vec<_>>>();
            let held = match held {
                Ok(held) => held,
                // Another thread dropped it, or gave it another name.
                Err(Error::NoSuchTree { .. }) => continue,
                Err(error) => return Err(error),
            };
            let source = Source(self.snapshot()?);
            // Or created one before that moment.
            if self.trees()? == entries {
                return Ok((source, entries.into_iter().zip(held).collect()));
            }
        }
        Err(Error::invalid("other threads create, drop or rename trees all the time: try again"))
    }
}

/// What items are read from: a moment of the pool.
struct Source(Snapshot);

impl Source {
    /// Copies a tree into a new one; returns how many items it has.
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
