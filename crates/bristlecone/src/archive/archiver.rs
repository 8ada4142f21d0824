//! Copying a journal to an archive.
//!
//! One round:
//! 1. The archive must continue the timeline of the pool.
//! 2. A piece with the durable entries that it lacks is written to a file, synced, read again and compared, and then gets
//!    its name. Bodies of long entries have files of their own, likewise. *A crash: the files are written again.*
//! 3. The catalog names it. *It counts.*
//! 4. The cursor moves on. *A crash before: the next archiver compares what the archive has beyond it, and moves it.*
//!
//! The last pieces are merged, so that there are few. A file is removed once a catalog does not name it, and if the
//! timeline is still the archive's: a writer that takes over reads the catalog after it has claimed its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bristlecone_pm::{Error, Folder, Result, Storage, StoredFile};

use super::begin::{At, begin, resume};
use super::catalog::{Base, Catalog, Piece};
use super::pieces::{Copying, NEW, Packed, copy_entries, past_of_piece, put_file, verify_checkpoint};
use super::{ArchiveStatus, Keep, NAP};
use crate::Pool;
use crate::journal::changes::Stopper;
use crate::journal::clock::now;
use crate::journal::cursor::Cursor;
use crate::journal::entry;
use crate::journal::inspect::JournalFiles;
use crate::journal::manifest::read_manifest;
use crate::journal::manifest::{Checkpoint, checkpoint_name, segment_name};
use crate::journal::mutation::{Mutation, is_mutated};
use crate::journal::restore::replay_from;
use crate::journal::segment::BLOCK_BYTES;
use crate::journal::tail::{Durable, Tail};
use crate::journal::trees::Past;

/// Bytes of entries behind which a piece ends.
const PIECE_BYTES: usize = 4 << 20;
/// Number of pieces of a level that are merged.
const TOGETHER: usize = 8;
/// Bytes of entries of which no merged piece has more.
const MERGED_BYTES: u64 = 16 << 20;
/// Time after which an archive without new entries says that it has all.
const AS_OF_EVERY: Duration = Duration::from_secs(1);

/// Copies the journal of a pool to an archive: see [`Pool::archive`].
pub struct Archiver {
    from: JournalFiles,
    to: Arc<dyn Storage>,
    path: PathBuf,
    /// Locked, so that no other archiver of this machine writes to it.
    _lock: Arc<dyn StoredFile>,
    catalog: Catalog,
    cursor: Cursor,
    tail: Tail,
    durable: Durable,
    seen: u64,
    /// What is before the end of the archive.
    past: Past,
    /// The part of a block behind the end of the archive, and its time.
    rest: Option<(u64, Vec<u8>)>,
    /// Set while entries were taken and are not in the archive: after an error they are taken again.
    is_lost: bool,
    copying: Option<Copying>,
    written: Instant,
    stop: Arc<AtomicBool>,
}

impl std::fmt::Debug for Archiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archiver")
            .field("to", &self.path)
            .field("end", &self.catalog.end)
            .finish_non_exhaustive()
    }
}

impl Archiver {
    /// Begins, or continues, an archive in a folder, which is created if its parent exists.
    pub(super) fn open(from: JournalFiles, path: &Path) -> Result<Self> {
        let to: Arc<dyn Storage> = Arc::new(Folder::create(path)?);
        Self::on(from, to, path.to_owned())
    }

    pub(crate) fn on(from: JournalFiles, to: Arc<dyn Storage>, path: PathBuf) -> Result<Self> {
        let lock = match to.open("lock")? {
            Some(lock) => lock,
            None => to.create("lock", 0)?,
        };
        lock.lock()?;
        let catalog = match Catalog::read(&*to)? {
            // A killed archiver may have named it, and not durably: the journal must keep its entries until then.
            Some(catalog) if is_mutated(Mutation::CatalogNameUnsynced) => catalog,
            Some(catalog) => to.sync().map(|()| catalog)?,
            None => begin(&from, &*to)?,
        };
        let manifest = read_manifest(&*from.storage)?;
        if catalog.uuid != manifest.uuid {
            return Err(Error::invalid(format!("{} has the archive of another pool", to.describe())));
        }
        if catalog.timeline != manifest.timeline {
            if manifest.timeline.number > catalog.timeline.number {
                let what = "the pool took over from another archive: begin a new one in another folder";
                return Err(Error::invalid(format!("{}: {what}", to.describe())));
            }
            let timeline = catalog.timeline.number;
            return Err(Error::Fenced { place: to.describe(), timeline });
        }
        let cursor = resume(&from, &*to, &catalog)?;
        let At { tail, past, rest } = At::end_of(&from.storage, &catalog)?;
        let mut durable = Durable::new(Arc::clone(&from.storage), manifest.pool, from.sizes.0);
        if durable.lsn()? < catalog.end {
            let what = format!(
                "the pool ends before LSN {}, which the archive has: it is an older copy",
                catalog.end
            );
            return Err(Error::invalid(what));
        }
        let seen = durable.changes();
        Ok(Self {
            from,
            to,
            path,
            _lock: lock,
            catalog,
            cursor,
            tail,
            durable,
            seen,
            past,
            rest,
            is_lost: false,
            copying: None,
            written: Instant::now(),
            stop: Arc::default(),
        })
    }

    /// Copies everything that is durable, and completes a new checkpoint of the pool if that is short; continues with a long
    /// one in the next call. Returns whether there was anything to do.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`] once another writer has taken over the archive; [`Error::CursorDropped`] and [`Error::Pruned`] if
    /// the archive was too slow; [`Error::Corrupted`] for damage in the journal, and for files that were not written as they
    /// were to be; [`Error::MediumFull`], and errors of the system. What the archive has remains.
    pub fn copy(&mut self) -> Result<bool> {
        let durable = self.durable.lsn()?;
        let as_of = now();
        if self.seen != self.durable.changes() {
            self.tail.reopen()?;
            self.seen = self.durable.changes();
        }
        if self.is_lost {
            self.begin_again()?;
        }
        let mut has_copied = false;
        while self.catalog.end < durable {
            self.is_lost = true;
            self.copy_piece(durable, as_of)?;
            self.is_lost = false;
            has_copied = true;
            if self.stop.load(Relaxed) {
                break;
            }
        }
        has_copied |= self.copy_checkpoint()?;
        if !has_copied && self.written.elapsed() > AS_OF_EVERY {
            self.catalog.expect_own(&*self.to)?;
            self.catalog.as_of = as_of;
            self.write()?;
        }
        Ok(has_copied)
    }

    /// Continues at the end of the catalog that counts, after an error.
    fn begin_again(&mut self) -> Result<()> {
        self.catalog.expect_own(&*self.to)?;
        self.catalog = Catalog::read_of(&*self.to, self.catalog.timeline.number)?;
        // It may have its name, and not durably: the journal must keep its entries until then.
        self.to.sync()?;
        let At { tail, past, rest } = At::end_of(&self.from.storage, &self.catalog)?;
        (self.tail, self.past, self.rest, self.copying, self.is_lost) = (tail, past, rest, None, false);
        if self.cursor.lsn() < self.catalog.end {
            self.cursor.advance(self.catalog.end)?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        self.written = Instant::now();
        self.catalog.write(&*self.to)
    }

    /// Copies the next durable entries.
    fn copy_piece(&mut self, durable: u64, as_of: u64) -> Result<()> {
        self.catalog.expect_own(&*self.to)?;
        let mut catalog = self.catalog.clone();
        let mut packed = Packed::new(catalog.uuid, catalog.number(), catalog.end, &self.past);
        let (since, mut past) = (self.past.time, self.past.clone());
        let (from, to) = (&*self.from.storage, &*self.to);
        let mut rest = self.rest.take();
        while packed.bytes.len() < PIECE_BYTES {
            let (time, entries) = match rest.take() {
                Some(rest) => rest,
                None => match self.tail.next(durable)? {
                    Some((block, entries)) => (block.time, entries.to_vec()),
                    None => break,
                },
            };
            packed.push(time, &copy_entries(from, to, &entries, &mut catalog)?);
            past.trees.follow_all(from, &entries)?;
        }
        if packed.end == catalog.end {
            return Err(Error::corrupted("durable entries that are not there", self.from.storage.describe()));
        }
        past.time = packed.time;
        let piece = packed.piece(since, 0);
        (catalog.end, catalog.as_of) = (piece.end, if piece.end >= durable { as_of } else { catalog.as_of });
        catalog.pieces.push(piece);
        if is_mutated(Mutation::CatalogBeforeFiles) {
            catalog.write(&*self.to)?;
        }
        put_file(&*self.to, &segment_name(piece.file), &packed.bytes)?;
        (self.catalog, self.past) = (catalog, past);
        if is_mutated(Mutation::CursorBeforeCatalog) {
            self.cursor.advance(piece.end)?;
        }
        self.write()?;
        self.cursor.advance(piece.end)?;
        self.merge()
    }

    /// Merges the last pieces of one level.
    fn merge(&mut self) -> Result<()> {
        loop {
            let pieces = &self.catalog.pieces;
            let Some(level) = pieces.last().map(|last| last.level) else { return Ok(()) };
            let count = pieces.iter().rev().take_while(|piece| piece.level == level).count();
            let from = pieces.len() - count.min(TOGETHER);
            let bytes = pieces[from..].last().map_or(0, |last| last.end) - pieces[from].first;
            if count < TOGETHER || bytes > MERGED_BYTES {
                return Ok(());
            }
            self.merge_from(from, level + 1)?;
        }
    }

    fn merge_from(&mut self, from: usize, level: u64) -> Result<()> {
        let mut catalog = self.catalog.clone();
        let old: Vec<Piece> = catalog.pieces.drain(from..).collect();
        let some = Catalog { pieces: old.clone(), ..catalog.clone() }.manifest(None);
        let past = past_of_piece(&*self.to, &catalog, &old[0])?;
        let mut packed = Packed::new(catalog.uuid, catalog.number(), old[0].first, &past);
        let (mut time, mut entries) = (0, Vec::new());
        replay_from(&*self.to, &some, old[0].first, &mut |block, entry| {
            if !entries.is_empty() && (time != block.time || entries.len() >= BLOCK_BYTES) {
                packed.push(time, &entries);
                entries.clear();
            }
            time = block.time;
            entry::append(&mut entries, entry.head, entry.lsn, entry.body);
            Ok(())
        })?;
        packed.push(time, &entries);
        let piece = packed.piece(old[0].since, level);
        put_file(&*self.to, &segment_name(piece.file), &packed.bytes)?;
        catalog.pieces.push(piece);
        let names = old.iter().map(|piece| segment_name(piece.file)).collect();
        self.replace(catalog, names)
    }

    /// Replaces the catalog, and removes files that it does not name any more.
    pub(super) fn replace(&mut self, catalog: Catalog, names: Vec<String>) -> Result<()> {
        self.catalog.expect_own(&*self.to)?;
        self.catalog = catalog;
        if is_mutated(Mutation::RemovedBeforeCatalog) {
            names.iter().try_for_each(|name| self.to.remove(name))?;
        }
        self.write()?;
        self.catalog.expect_own(&*self.to)?;
        names.iter().try_for_each(|name| self.to.remove(name))
    }

    /// Copies a part of a checkpoint that the archive does not have; returns whether there is one.
    fn copy_checkpoint(&mut self) -> Result<bool> {
        if self.copying.is_none() {
            let manifest = read_manifest(&*self.from.storage)?;
            let known = self.catalog.bases.last().map(|base| base.checkpoint.begin);
            let is_new =
                |of: &Checkpoint| known.is_none_or(|known| of.begin > known) && of.end <= self.catalog.end;
            let Some(of) = manifest.checkpoint.filter(is_new) else { return Ok(false) };
            let Some(from) = self.from.storage.open(&checkpoint_name(of.file))? else { return Ok(false) };
            let file = self.catalog.number();
            let to = self.to.create(&format!("{}{NEW}", checkpoint_name(file)), 0)?;
            self.copying = Some(Copying { of, from, to, file, done: 0, checksum: 0 });
        }
        let Some(copying) = &mut self.copying else { return Ok(false) };
        copying.step()?;
        if copying.done == copying.of.bytes
            && let Some(copied) = self.copying.take()
        {
            self.finish_checkpoint(copied)?;
        }
        Ok(true)
    }

    fn finish_checkpoint(&mut self, Copying { of, to, file, checksum, .. }: Copying) -> Result<()> {
        let (name, new) = (checkpoint_name(file), format!("{}{NEW}", checkpoint_name(file)));
        to.sync()?;
        self.catalog.expect_own(&*self.to)?;
        self.to.rename(&new, &name)?;
        let own = Checkpoint { file, ..of };
        if !is_mutated(Mutation::CheckpointUncompared) {
            verify_checkpoint(&*self.to, self.catalog.uuid, &own, checksum)?;
        }
        let last = self.catalog.pieces.iter().find(|piece| piece.end >= of.end);
        let time = last.map_or(self.past.time, |piece| piece.time);
        self.catalog.bases.push(Base { checkpoint: own, time, checksum: u64::from(checksum) });
        self.write()
    }

    /// Removes what is older than it must be kept: see [`Keep`].
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`], and errors of the system.
    pub fn prune(&mut self, keep: &Keep) -> Result<()> {
        let Some(catalog) = super::retention::pruned(&self.catalog, keep, now()) else { return Ok(()) };
        let kept = catalog.names();
        let names = self.catalog.names().into_iter().filter(|name| !kept.contains(name)).collect();
        self.replace(catalog, names)
    }

    /// Copies until [stopped](Self::stopper): what is durable in the journal is in the archive within `interval` and the
    /// time that the copy takes.
    ///
    /// # Errors
    ///
    /// Same as [`copy`](Self::copy).
    pub fn follow(&mut self, interval: Duration, keep: &Keep) -> Result<()> {
        while !self.stop.load(Relaxed) {
            let begun = Instant::now();
            let mut is_busy = self.copy()?;
            self.prune(keep)?;
            while begun.elapsed() < interval && !self.stop.load(Relaxed) {
                if is_busy && self.copying.is_some() {
                    is_busy = self.copy_checkpoint()?;
                    continue;
                }
                std::thread::sleep(interval.saturating_sub(begun.elapsed()).min(NAP));
            }
        }
        Ok(())
    }

    /// Returns a handle that ends [`follow`](Self::follow), from any thread.
    pub fn stopper(&self) -> Stopper {
        Stopper::new(&self.stop)
    }

    /// Returns what the archive has.
    pub fn status(&self) -> ArchiveStatus {
        ArchiveStatus::of(&self.catalog, self.path.clone())
    }
}

impl Pool {
    /// Begins, or continues, an archive of the pool's journal in a folder: any mounted one, which should be on another disk
    /// or machine. [`Archiver::copy`] copies what is durable, and [`Archiver::follow`] does so until it is stopped. A
    /// [cursor](Self::create_cursor) keeps what the archive lacks.
    ///
    /// From an archive, [`PoolOptions::restore`](crate::PoolOptions::restore) creates a pool as it was at any LSN or time, and
    /// [`Standby`](crate::Standby) a copy that follows. [`JournalFiles::archive`] does the same in any process.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`] while another archiver of this machine writes to the folder; [`Error::Fenced`] if a copy of the pool
    /// has taken over; [`Error::Invalid`] for a pool without a journal, for the archive of another pool, and for an archive or
    /// pool that is an older copy; [`Error::Pruned`] if the journal does not keep the entries that the archive lacks;
    /// [`Error::Corrupted`]; [`Error::Newer`]; errors of the system.
    ///
    /// ```
    /// use bristlecone::{Domain, Pool, RestoreTo};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-archive-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().domain(Domain::Journal).create(true).open(&path)?;
    /// let ages = pool.tree::<&str, u64>("ages")?;
    /// ages.insert("Pando", 14_000)?;
    /// pool.archive(format!("{path}.archive"))?.copy()?;
    ///
    /// let copy = format!("{path}.copy");
    /// Pool::options().restore(&copy, format!("{path}.archive"), RestoreTo::End)?;
    /// assert_eq!(Pool::open(&copy)?.tree::<&str, u64>("ages")?.get("Pando")?, Some(14_000));
    /// # drop(ages);
    /// # pool.close()?;
    /// # for file in [&path, &copy] {
    /// #     std::fs::remove_file(file).unwrap();
    /// #     std::fs::remove_dir_all(format!("{file}.journal")).unwrap();
    /// # }
    /// # std::fs::remove_dir_all(format!("{path}.archive")).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn archive(&self, folder: impl AsRef<Path>) -> Result<Archiver> {
        self.journal_files()?.archive(folder)
    }
}

impl JournalFiles {
    /// Begins, or continues, an archive of the journal, as [`Pool::archive`] does.
    ///
    /// # Errors
    ///
    /// Same as [`Pool::archive`].
    pub fn archive(self, folder: impl AsRef<Path>) -> Result<Archiver> {
        Archiver::open(self, folder.as_ref())
    }
}
