//! Pool backups: a consistent copy of a whole pool, renamed into place when complete.

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use bristlecone_pm::{
    At, CreateOptions, Domain, Error, Native, PoolFile, Result, TreeEntry, TreeSpec, trace_span,
};
use smallvec::SmallVec;

use crate::api::options::default_bytes;
use crate::api::pool::LOOKS;
use crate::dynamic::{self, Kind};
use crate::index::parts::codec::{Any, GROUP};
use crate::index::parts::encoded::{Encoded, Item};
use crate::{Design, Key, Pool, Snapshot, Value};

/// Number of trees that a backup keeps open. Others are opened when they are counted, and again when they are copied.
const OPEN_MAX: usize = 128;
/// Number of items written between two progress reports.
const REPORTED_EVERY: usize = 256;

/// Options for copying a pool. See [`Pool::backup`].
#[derive(Default)]
pub struct BackupOptions<'a> {
    max_bytes: Option<u64>,
    chunk_bytes: Option<u64>,
    domain: Option<Domain>,
    design: Option<Design>,
    trees: HashMap<String, (Design, Vec<(String, u64)>)>,
    report: Option<Report<'a>>,
}

type Report<'a> = Box<dyn FnMut(BackupProgress<'_>) -> ControlFlow<()> + Send + 'a>;

impl fmt::Debug for BackupOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_bytes, chunk_bytes, domain, design, trees, report: _ } = self;
        let mut debug = f.debug_struct("BackupOptions");
        debug
            .field("max_bytes", max_bytes)
            .field("chunk_bytes", chunk_bytes)
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

    /// Sets the chunk size of the copy (default: that of the original). See
    /// [`PoolOptions::chunk_bytes`](crate::PoolOptions::chunk_bytes).
    pub fn chunk_bytes(mut self, bytes: u64) -> Self {
        self.chunk_bytes = Some(bytes);
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
        let params = design.parse(&given)?;
        let mut reshaped = spec.clone().with_params(params);
        reshaped.design = design.code();
        Ok(reshaped)
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
    /// # let copy = format!("/dev/shm/bristlecone-doc-backup-{}.copy", std::process::id());
    /// # let pool = Pool::temporary()?;
    /// let notes = pool.tree::<u64, &str>("notes")?;
    /// notes.insert(1, "oak")?;
    ///
    /// let options = BackupOptions::new().max_bytes(128 << 20).tree("notes", Design::NbTree, &[]);
    /// assert_eq!(pool.backup(&copy, options)?.trees, [("notes".to_owned(), 1)]);
    /// assert_eq!(Pool::options().open(&copy)?.tree::<u64, &str>("notes")?.get(1)?.as_deref(), Some("oak"));
    /// # std::fs::remove_file(&copy).unwrap();
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn backup(&self, path: impl AsRef<Path>, options: BackupOptions<'_>) -> Result<Backup> {
        trace_span("a pool is copied", path.as_ref(), || self.backup_native(path.as_ref(), options))
    }

    fn backup_native(&self, path: &Path, mut options: BackupOptions<'_>) -> Result<Backup> {
        self.0.file.here()?;
        if options.domain == Some(Domain::Journal) {
            return Err(Error::invalid("a copy cannot have a journal yet: choose another domain"));
        }
        if path.symlink_metadata().is_ok() {
            return Err(Error::Exists { path: path.to_owned() });
        }
        let _hold = Hold::all_of(self);
        let (source, entries) = self.at_one_time()?;
        let missing = options.trees.keys().find(|name| entries.iter().all(|entry| entry.spec.name != **name));
        if let Some(name) = missing {
            return Err(Error::NoSuchTree { name: name.clone() });
        }
        let specs = entries.iter().map(|entry| options.reshaped(&entry.spec)).collect::<Result<Vec<_>>>()?;
        let (mut open, mut items_all) = (Vec::new(), 0);
        for entry in &entries {
            let tree = self.open_entry(entry)?;
            items_all += tree.len()?;
            if open.len() < OPEN_MAX {
                open.push(tree);
            }
        }
        let info = self.info();
        let max_bytes = match options.chunk_bytes {
            // Smaller chunks have no room for the default maximum of a pool of large ones.
            Some(chunk_bytes) if chunk_bytes < info.chunk_bytes => {
                info.max_bytes.min(default_bytes(options.chunk_bytes).max(info.file_bytes))
            }
            _ => info.max_bytes,
        };
        let create = CreateOptions {
            max_bytes: options.max_bytes.unwrap_or(max_bytes),
            domain: options.domain,
            chunk_bytes: options.chunk_bytes.or(Some(info.chunk_bytes)),
        };
        // The file is synced as a whole, not page by page.
        let medium = |domain| Native::new(if domain == Domain::Msync { Domain::Process } else { domain });
        let at = if self.0.file.handles_faults() { At::from(path) } else { At::unhandled(path) };
        let unnamed = PoolFile::create_unnamed(at, &create, medium)?;
        let to = Pool::over(unnamed.pool().clone(), 1)?;
        let mut copied = Vec::with_capacity(entries.len());
        let mut before = 0;
        let mut open = open.into_iter();
        for (spec, entry) in specs.iter().zip(&entries) {
            let tree = open.next().map_or_else(|| self.open_entry(entry), Ok)?;
            let mut report =
                |items| options.report(BackupProgress { tree: &spec.name, items: before + items, items_all });
            let items = source.copy(&tree, &to, spec, &mut report)?;
            before += items;
            copied.push((spec.name.clone(), items));
        }
        to.close()?;
        let file_bytes = unnamed.pool().info().file_bytes;
        unnamed.publish()?;
        Ok(Backup { trees: copied, file_bytes })
    }

    /// Takes a snapshot of the pool; returns the trees that existed then. The caller holds all trees.
    fn at_one_time(&self) -> Result<(Source, Vec<TreeEntry>)> {
        for _ in 0..LOOKS {
            let entries = self.trees()?;
            let source = Source(self.snapshot()?);
            // Another thread may have created a tree before the snapshot.
            if self.trees()? == entries {
                return Ok((source, entries));
            }
        }
        Err(Error::invalid("concurrent tree creations or renames: try again"))
    }

    /// Opens a tree that cannot be dropped, but renamed.
    pub(crate) fn open_entry(&self, entry: &TreeEntry) -> Result<dynamic::Tree> {
        let mut name = entry.spec.name.clone();
        for _ in 0..LOOKS {
            match self.dynamic_tree(&name) {
                Ok(tree) if tree.link.id == entry.id => return Ok(tree),
                Ok(_) | Err(Error::NoSuchTree { .. }) => {}
                Err(error) => return Err(error),
            }
            let now = self.trees()?.into_iter().find(|tree| tree.id == entry.id);
            name = now.ok_or_else(|| Error::NoSuchTree { name: name.clone() })?.spec.name;
        }
        Err(Error::invalid(format!("tree {name:?} is being renamed concurrently: try again")))
    }
}

/// A claim on all trees of a pool: none of them can be dropped or cleared.
struct Hold<'a>(&'a Pool);

impl<'a> Hold<'a> {
    fn all_of(pool: &'a Pool) -> Self {
        let _open = pool.lock_open();
        pool.0.holds.fetch_add(1, Relaxed);
        Self(pool)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.0.holds.fetch_sub(1, Relaxed);
    }
}

/// The source of the items: a snapshot of the pool.
struct Source(Snapshot);

impl Source {
    /// Copies a tree into a new one; returns its number of items.
    fn copy(
        &self,
        from: &dynamic::Tree,
        pool: &Pool,
        spec: &TreeSpec,
        report: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<u64> {
        let (_, to) = pool.0.file.create_index(spec, Kind::are_words(spec)?)?;
        let to = to.of_any();
        let from = from.clone().with_types::<Stored, Stored>((), ());
        let (mut items, mut from) = (0, self.0.tree(&from).range(..));
        loop {
            let some = from.by_ref().take(REPORTED_EVERY).collect::<Result<Vec<_>>>()?;
            for group in some.chunks(GROUP) {
                let group: SmallVec<[_; GROUP]> =
                    group.iter().map(|(key, value)| (key.item(), value.item())).collect();
                to.upsert_many(&group, &mut |_| {})?;
            }
            items += some.len() as u64;
            report(items)?;
            if some.len() < REPORTED_EVERY {
                return Ok(items);
            }
        }
    }
}

/// Keys, or values, as they are stored.
struct Stored;

impl Key for Stored {
    type Ref<'a> = Item<'a>;
    type Owned = Encoded;
    type Codec = Any;
    type Schema = ();

    fn kind() -> String {
        "stored".to_owned()
    }
    fn fixed() -> Result<()> {
        Ok(())
    }
    fn lend(key: &Encoded) -> Item<'_> {
        key.item()
    }
    fn with<R>((): &(), key: Item<'_>, use_it: impl FnOnce(Item<'_>) -> Result<R>) -> Result<R> {
        use_it(key)
    }
    fn decode((): &(), key: Encoded) -> Option<Encoded> {
        Some(key)
    }
}

impl Value for Stored {
    type Ref<'a> = Item<'a>;
    type Owned = Encoded;
    type Codec = Any;
    type Schema = ();

    fn kind() -> String {
        "stored".to_owned()
    }
    fn fixed() -> Result<()> {
        Ok(())
    }
    fn lend(value: &Encoded) -> Item<'_> {
        value.item()
    }
    fn with<R>((): &(), value: Item<'_>, use_it: impl FnOnce(Item<'_>) -> Result<R>) -> Result<R> {
        use_it(value)
    }
    fn view<R>((): &(), value: Item<'_>, show: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        Some(show(value))
    }
    fn decode((): &(), value: Item<'_>) -> Option<Encoded> {
        Some(value.to_owned())
    }
    fn take((): &(), value: Encoded) -> Option<Encoded> {
        Some(value)
    }
    fn in_entry<'a>((): &(), stored: &'a [u8]) -> Option<Item<'a>> {
        Some(Item::Bytes(stored))
    }
}
