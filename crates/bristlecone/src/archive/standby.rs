//! A copy of a pool that follows its archive.
//!
//! The file has the domain `journal` and no journal, so that nothing else opens it for writing. Beside it, a folder has the
//! [state](super::standby_state) of the replay.
//!
//! One poll:
//! 1. The state says up to which LSN entries may be applied.
//! 2. They are applied. Before and after each change of the directory the state says that all before is applied.
//! 3. The state says that they are.
//!
//! A marker in the folder has the identity of the copy. It is durable before the file has its name.
//!
//! A kill leaves the pages: the next process applies the entries once more that may have been, before it admits followers.
//! Entries name new values, so that this leads to the same items. A power failure leaves no pages to rely on: the next
//! process begins with the archive's last checkpoint.
//!
//! # Take over
//!
//! 1. The state has the identity of a new timeline.
//! 2. The archive gets a catalog of it. *From here on the archive refuses the old writer.*
//! 3. The rest of the archive is applied.
//! 4. The pool gets a journal that begins at the end of the archive, with a checkpoint, and is closed. *A crash before: the
//!    next attempt continues.*
//! 5. The state is removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bristlecone_pm::{At, Domain, Error, Folder, Glance, Native, OpenOptions, PoolFile, Result, Storage};

use super::catalog::{Catalog, first_file};
use super::restoring::read_catalog;
use super::standby_state::{STATE, StandbyStatus, State};
use super::{NAP, identity};
use crate::api::options::LAYOUT;
use crate::journal::changes::Stopper;
use crate::journal::entry::Kind;
use crate::journal::manifest::{Manifest, Timeline};
use crate::journal::mutation::{Mutation, is_mutated};
use crate::journal::opening::{Begin, adopt};
use crate::journal::restore::{Rebuilt, with_room};
use crate::journal::standby_folder;
use crate::{Pool, PoolOptions};

/// Number of attempts to read files that an archiver removes meanwhile.
const LOOKS: usize = 8;

/// A copy of a pool that applies the entries of an archive as they come: see [`Standby::open`].
pub struct Standby {
    path: PathBuf,
    options: PoolOptions,
    archive: Arc<dyn Storage>,
    folder: Arc<dyn Storage>,
    file: Arc<PoolFile<Native>>,
    pool: Pool,
    rebuilt: Rebuilt,
    state: State,
    stop: Arc<AtomicBool>,
}

impl std::fmt::Debug for Standby {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Standby")
            .field("path", &self.path)
            .field("lsn", &self.state.applied)
            .finish_non_exhaustive()
    }
}

impl Standby {
    /// Creates a copy of an archived pool at `path`, or continues one, with default options: see
    /// [`PoolOptions::standby`].
    ///
    /// # Errors
    ///
    /// Same as [`PoolOptions::standby`].
    pub fn open(path: impl AsRef<Path>, from: impl AsRef<Path>) -> Result<Self> {
        Pool::options().standby(path, from)
    }

    /// Begins with the state in a folder, which is created if there is an archive.
    pub(crate) fn on(
        options: &PoolOptions,
        path: &Path,
        archive: Arc<dyn Storage>,
        folder: impl FnOnce() -> Result<Arc<dyn Storage>>,
    ) -> Result<Self> {
        let catalog = read_catalog(&*archive)?;
        let folder = folder()?;
        let left = State::read(&*folder)?.filter(|state| state.uuid == catalog.uuid);
        let marker = format!("of-{:032x}", catalog.uuid);
        if path.exists() && folder.open(&marker)?.is_none() {
            return Err(Error::Exists { path: path.to_owned() });
        }
        expect_no_journal(options, path)?;
        let copy = identity_of_copy(&*folder, &marker, left.as_ref())?;
        let resumed = match &left {
            Some(state) if path.exists() => resume(options, path, &*folder, state)?,
            _ => None,
        };
        let ids = (copy, left.as_ref().map_or(0, |left| left.own));
        let mut standby = match (resumed, left) {
            (Some(file), Some(state)) => Self::over(options, path, archive, folder, file, state)?,
            _ => Self::rebuild(options, path, archive, folder, ids)?,
        };
        // Entries that may have been applied: without followers.
        standby.catch_up()?;
        standby.file.begin_following();
        Ok(standby)
    }

    fn over(
        options: &PoolOptions,
        path: &Path,
        archive: Arc<dyn Storage>,
        folder: Arc<dyn Storage>,
        file: Arc<PoolFile<Native>>,
        state: State,
    ) -> Result<Self> {
        file.keep_index(options.keep_index, LAYOUT);
        file.drop_unfinished_trees();
        let pool = Pool::over(Arc::clone(&file), options.threads())?;
        // Only a promotion closes it as a pool.
        let mut rebuilt = Rebuilt::new(&file, &pool, &archive, options.threads());
        rebuilt.open_trees()?;
        let mut standby = Self {
            path: path.to_owned(),
            options: options.clone(),
            archive,
            folder,
            file,
            pool,
            rebuilt,
            state,
            stop: Arc::default(),
        };
        standby.state.running = true;
        let glance = standby.file.glance()?;
        (standby.state.boot, standby.state.inode) = (standby.folder.boot().unwrap_or(0), glance.inode.1);
        standby.state.write(&*standby.folder)?;
        Ok(standby)
    }

    /// Fills a new file from the archive's last checkpoint, which then gets the name. `ids` are the identities of the copy,
    /// and of the timeline that it begins.
    fn rebuild(
        options: &PoolOptions,
        path: &Path,
        archive: Arc<dyn Storage>,
        folder: Arc<dyn Storage>,
        ids: (u128, u128),
    ) -> Result<Self> {
        for _ in 0..LOOKS {
            let catalog = read_catalog(&*archive)?;
            let base = catalog.bases.last().map(|base| base.checkpoint);
            if base.is_none() && !catalog.is_whole {
                let what = format!("the archive in {} has no checkpoint yet", archive.describe());
                return Err(Error::invalid(what));
            }
            let at = if options.leave_sigbus { At::unhandled(path) } else { At::from(path) };
            let uuid = if is_mutated(Mutation::CopyRenumbered) { identity() } else { ids.0 };
            let filled = with_room(catalog.geometry, |geometry| {
                let domain = Domain::Journal;
                let like = Glance { uuid, domain, was_clean: false, sequence: 0, geometry, inode: (0, 0) };
                let unnamed = PoolFile::<Native>::create_again(at, &like, Native::new)?;
                let pool = Pool::over(Arc::clone(unnamed.pool()), options.threads())?;
                let rebuilt = Rebuilt::new(unnamed.pool(), &pool, &archive, options.threads());
                let applied = rebuilt.fill_from(&catalog.manifest(base), &mut |_, _| true)?;
                Ok((unnamed, pool, applied))
            });
            let (unnamed, pool, applied) = match filled {
                // An archiver has removed files meanwhile.
                Err(Error::Corrupted { .. }) if read_catalog(&*archive)? != catalog => continue,
                filled => filled?,
            };
            let mut state = State {
                uuid: catalog.uuid,
                applied,
                applying: applied,
                timeline: catalog.timeline,
                own: ids.1,
                boot: folder.boot().unwrap_or(0),
                inode: unnamed.pool().glance()?.inode.1,
                archive_end: catalog.end,
                as_of: catalog.as_of,
                time: 0,
                running: true,
                pool: uuid,
            };
            pool.close()?;
            // A crash before the name: the state is that of a file that does not exist, and is not used.
            state.write(&*folder)?;
            unnamed.replace()?;
            let file = open_file(options, path)?;
            return Self::over(options, path, archive, folder, file, state);
        }
        Err(Error::invalid(format!("the archive in {} changes too fast", archive.describe())))
    }

    /// Applies what the archive has beyond the last poll; returns how far it has come.
    ///
    /// # Errors
    ///
    /// [`Error::Pruned`] if the archive does not keep the next entries any more; [`Error::Fenced`] if another copy has taken
    /// over before the entries that this one has applied; [`Error::Corrupted`]; [`Error::PoolFull`],
    /// [`Error::MediumFull`], and errors of the system. The next poll tries again.
    pub fn poll(&mut self) -> Result<StandbyStatus> {
        for _ in 0..LOOKS {
            let catalog = read_catalog(&*self.archive)?;
            self.expect_timeline(&catalog)?;
            match self.apply(&catalog) {
                // An archiver has merged pieces meanwhile.
                Err(Error::Corrupted { .. }) if read_catalog(&*self.archive)? != catalog => {}
                applied => return applied.map(|()| self.status()),
            }
        }
        Err(Error::invalid(format!("the archive in {} changes too fast", self.archive.describe())))
    }

    fn expect_timeline(&mut self, catalog: &Catalog) -> Result<()> {
        let place = self.archive.describe();
        if catalog.uuid != self.state.uuid {
            return Err(Error::invalid(format!("{place} has the archive of another pool")));
        }
        let timeline = catalog.timeline.number;
        let is_known = catalog.timeline == self.state.timeline;
        if is_known && catalog.end >= self.state.applied {
            return Ok(());
        }
        if is_known || timeline < self.state.timeline.number {
            let what =
                format!("it ends before LSN {}, which was applied: it is an older copy", self.state.applied);
            return Err(Error::invalid(format!("{place}: {what}")));
        }
        let is_ahead = self.state.applied.max(self.state.applying) > catalog.fork;
        if is_ahead && !is_mutated(Mutation::ForkIgnored) {
            return Err(Error::Fenced { place, timeline });
        }
        self.state.timeline = catalog.timeline;
        Ok(())
    }

    fn apply(&mut self, catalog: &Catalog) -> Result<()> {
        let (from, oldest) = (self.state.applied, catalog.first());
        if from < oldest {
            return Err(Error::Pruned { oldest });
        }
        let is_new = catalog.end > from;
        if is_new {
            if !is_mutated(Mutation::ApplyingUnnoted) {
                self.state.applying = self.state.applying.max(catalog.end);
            }
            self.state.archive_end = catalog.end;
            self.state.write(&*self.folder)?;
            let (state, folder) = (&mut self.state, &*self.folder);
            let mut noted = Ok(());
            let manifest = catalog.manifest(None);
            let mut from = from;
            while from < catalog.end {
                let mut is_alone = None;
                // Up to the next change of the directory, which is applied alone.
                from = self.rebuilt.replay_while(&manifest, from, &mut |_, entry| {
                    let is_directory = !matches!(entry.head.kind, Kind::Each | Kind::All);
                    let wanted = is_alone.is_none_or(|is_alone: bool| !is_alone && !is_directory);
                    is_alone = is_alone.or(Some(is_directory));
                    wanted
                })?;
                state.applied = from;
                noted = noted.and(state.write(folder));
            }
            noted?;
        }
        let was = (self.state.as_of, self.state.archive_end);
        (self.state.applying, self.state.as_of) = (self.state.applied, catalog.as_of);
        self.state.archive_end = catalog.end;
        if is_new || was != (self.state.as_of, self.state.archive_end) {
            self.state.write(&*self.folder)?;
        }
        Ok(())
    }

    /// Applies everything up to where a killed process may have come.
    fn catch_up(&mut self) -> Result<()> {
        let wanted = self.state.applying;
        self.poll()?;
        if self.state.applied < wanted {
            let what = format!(
                "the archive in {} ends before LSN {wanted}, which was applied",
                self.archive.describe()
            );
            return Err(Error::invalid(what));
        }
        Ok(())
    }

    /// Polls until [stopped](Self::stopper).
    ///
    /// # Errors
    ///
    /// Same as [`poll`](Self::poll).
    pub fn run(&mut self, interval: Duration) -> Result<()> {
        while !self.stop.load(Relaxed) {
            let begun = Instant::now();
            self.poll()?;
            while begun.elapsed() < interval && !self.stop.load(Relaxed) {
                std::thread::sleep(interval.saturating_sub(begun.elapsed()).min(NAP));
            }
        }
        Ok(())
    }

    /// Returns a handle that ends [`run`](Self::run), from any thread.
    pub fn stopper(&self) -> Stopper {
        Stopper::new(&self.stop)
    }

    /// Returns how far it has come.
    pub fn status(&self) -> StandbyStatus {
        self.state.status()
    }

    /// Returns how far the standby at a path has come, in any process; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn status_of(path: impl AsRef<Path>) -> Result<Option<StandbyStatus>> {
        let folder = standby_folder(path.as_ref());
        if !folder.is_dir() {
            return Ok(None);
        }
        Ok(State::read(&Folder::open(&folder)?)?.map(|state| state.status()))
    }

    /// Stops, such that [`PoolOptions::standby`] continues.
    ///
    /// # Errors
    ///
    /// Errors of the system. The next process then begins with the archive's last checkpoint, if the machine was started
    /// again.
    pub fn close(mut self) -> Result<()> {
        drop(self.rebuilt);
        // The pages first: the state says that they are durable.
        self.pool.0.file.sync()?;
        self.state.running = false;
        self.state.write(&*self.folder)?;
        self.folder.open(STATE)?.map_or(Ok(()), |state| state.sync())?;
        self.folder.sync()?;
        Ok(self.pool.close()?)
    }

    /// Leaves everything as a kill does.
    #[cfg(test)]
    pub(crate) fn simulate_kill(self) {
        drop(self.rebuilt);
        self.pool.simulate_crash();
    }

    /// Makes the copy the writer: claims the archive, applies the rest of it, and gives the pool a journal that continues at
    /// the archive's end. Returns the LSN at which its timeline begins. The pool is closed then, and opened like any other.
    ///
    /// From here on the archive refuses the old writer's archiver with [`Error::Fenced`]. The old writer itself is not
    /// stopped: what it has committed and not archived is not in the copy.
    ///
    /// # Errors
    ///
    /// Same as [`poll`](Self::poll); [`Error::Fenced`] if another copy was faster; [`Error::Invalid`] if the pool's journal
    /// cannot be created. A later attempt continues.
    pub fn promote(mut self) -> Result<u64> {
        let catalog = self.claim()?;
        self.state.timeline = catalog.timeline;
        self.apply(&catalog)?;
        let begin = Begin {
            uuid: Some(catalog.uuid),
            lsn: catalog.end,
            timeline: catalog.timeline,
            time: catalog.pieces.last().map_or(0, |last| last.time),
        };
        drop(self.rebuilt);
        drop(self.file);
        adopt(self.pool, &self.options.journal, &self.path, begin)?;
        for name in self.folder.list()? {
            self.folder.remove(&name)?;
        }
        // An empty folder says nothing.
        let _ = std::fs::remove_dir(standby_folder(&self.path));
        Ok(begin.lsn)
    }

    /// Gives the archive a catalog of a new timeline, which is this copy's.
    fn claim(&mut self) -> Result<Catalog> {
        let archive = Arc::clone(&self.archive);
        let old = read_catalog(&*archive)?;
        if self.state.own != 0 && old.timeline.id == self.state.own {
            // Claimed by an earlier attempt.
            return Ok(old);
        }
        self.expect_timeline(&old)?;
        self.state.own = identity();
        if !is_mutated(Mutation::OwnUnnoted) {
            self.state.write(&*self.folder)?;
        }
        let timeline = Timeline { number: old.timeline.number + 1, id: self.state.own };
        let of = |old: &Catalog| Catalog {
            timeline,
            fork: old.end,
            next: first_file(timeline.number),
            ..old.clone()
        };
        if !of(&old).claim(&*archive)? {
            return Err(Error::Fenced { place: archive.describe(), timeline: timeline.number });
        }
        // The old writer may have replaced its catalog meanwhile, and removed files that it does not name any more.
        let last = Catalog::read_of(&*archive, old.timeline.number)?;
        if last != old {
            of(&last).write(&*archive)?;
        }
        Ok(of(&last))
    }
}

/// Returns the identity of the copy, which a folder's marker has. A power failure leaves the marker, and perhaps no state:
/// whatever the copy is filled with again, and a journal that it was getting, have the same identity.
fn identity_of_copy(folder: &dyn Storage, marker: &str, left: Option<&State>) -> Result<u128> {
    let mut bytes = [0; 20];
    if let Some(file) = folder.open(marker)?
        && file.read(0, &mut bytes)? == bytes.len()
        && let Some((id, sum)) = bytes.split_first_chunk()
        && crc32c::crc32c(id).to_le_bytes() == sum
    {
        return Ok(u128::from_le_bytes(*id));
    }
    let id = left.map_or_else(identity, |left| left.pool);
    let bytes = id.to_le_bytes();
    let file = folder.create(marker, 0)?;
    file.write(0, &[&bytes[..], &crc32c::crc32c(&bytes).to_le_bytes()].concat())?;
    file.sync()?;
    folder.sync()?;
    Ok(id)
}

/// Returns an error if the copy has taken over already, and has a journal.
fn expect_no_journal(options: &PoolOptions, path: &Path) -> Result<()> {
    let Some(storage) = options.journal.existing(path)? else { return Ok(()) };
    if Manifest::read(&*storage)?.is_none_or(|left| left.is_unfinished()) {
        return Ok(());
    }
    let (path, folder) = (path.display(), storage.describe());
    Err(Error::invalid(format!(
        "{path} has a journal in {folder}: it is no standby, open it like any other pool"
    )))
}

/// Opens the file of a standby for writing, in spite of its missing journal.
fn open_file(options: &PoolOptions, path: &Path) -> Result<Arc<PoolFile<Native>>> {
    let at = if options.leave_sigbus { At::unhandled(path) } else { At::from(path) };
    let open = OpenOptions { domain: None, max_bytes: options.max_bytes };
    PoolFile::<Native>::open_if(at, &open, Native::new, |_| Ok(()))
}

/// Opens the file that a state belongs to; returns `None` if its pages are worthless.
fn resume(
    options: &PoolOptions,
    path: &Path,
    folder: &dyn Storage,
    state: &State,
) -> Result<Option<Arc<PoolFile<Native>>>> {
    let is_whole = |found: &Glance| {
        let is_inode = found.inode.1 == state.inode || is_mutated(Mutation::InodeIgnored);
        let is_own = found.uuid == state.pool && is_inode && found.domain == Domain::Journal;
        let is_boot = folder.boot() == Some(state.boot) || is_mutated(Mutation::BootIgnored);
        is_own && (found.was_clean && !state.running || is_boot)
    };
    let mut whole = false;
    let at = if options.leave_sigbus { At::unhandled(path) } else { At::from(path) };
    let open = OpenOptions { domain: None, max_bytes: options.max_bytes };
    let opened = PoolFile::<Native>::open_if(at, &open, Native::new, |found| {
        if found.uuid != state.pool {
            return Err(Error::invalid(format!("{} is another pool than its standby", path.display())));
        }
        whole = is_whole(found);
        if whole { Ok(()) } else { Err(Error::Conflict) }
    });
    match opened {
        Err(Error::Conflict) if !whole => Ok(None),
        opened => opened.map(Some),
    }
}

impl PoolOptions {
    /// Creates a copy of an archived pool at `path`, or continues one that was created there. [`Standby::poll`] and
    /// [`Standby::run`] apply what reaches the archive. Meanwhile any process may read the copy with
    /// [`follow`](Self::follow); a reader may see a part of a batch. It is read through followers only, in this process
    /// too. [`Standby::promote`] makes it the writer.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if there is a pool that is no standby; [`Error::InUse`] while another process replays;
    /// [`Error::Invalid`] for a folder without an archive, with that of another pool, or with an older copy of it;
    /// [`Error::Pruned`] if the archive does not keep the next entries any more: remove the copy, and create it again;
    /// [`Error::Fenced`]; [`Error::Corrupted`]; [`Error::Newer`]; [`Error::MediumFull`], and errors of the system.
    ///
    /// ```
    /// use bristlecone::{Domain, Pool, Standby};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-standby-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().domain(Domain::Journal).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// let mut archiver = pool.archive(format!("{path}.archive"))?;
    /// ages.insert("Pando", 14_000)?;
    /// archiver.copy()?;
    ///
    /// let copy = format!("{path}.copy");
    /// let mut standby = Standby::open(&copy, format!("{path}.archive"))?;
    /// let follower = Pool::follow(&copy)?;
    /// assert_eq!(follower.tree::<&str, u64>("ages")?.get("Pando")?, Some(14_000));
    /// ages.insert("Pando", 16_000)?;
    /// archiver.copy()?;
    /// assert_eq!(standby.poll()?.lag_bytes(), 0);
    /// assert_eq!(follower.tree::<&str, u64>("ages")?.get("Pando")?, Some(16_000));
    /// drop(follower);
    /// standby.promote()?;
    /// assert_eq!(Pool::open(&copy)?.tree::<&str, u64>("ages")?.insert("Pando", 1)?, Some(16_000));
    /// assert!(matches!(archiver.copy(), Ok(false) | Err(bristlecone::Error::Fenced { .. })));
    /// # drop((ages, archiver));
    /// # pool.close()?;
    /// # for file in [&path, &copy] {
    /// #     std::fs::remove_file(file).unwrap();
    /// #     std::fs::remove_dir_all(format!("{file}.journal")).unwrap();
    /// # }
    /// # std::fs::remove_dir_all(format!("{path}.archive")).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn standby(&self, path: impl AsRef<Path>, from: impl AsRef<Path>) -> Result<Standby> {
        let archive = Arc::new(Folder::open(from.as_ref())?);
        let path = path.as_ref();
        Standby::on(self, path, archive, || Ok(Arc::new(Folder::create(&standby_folder(path))?)))
    }
}
