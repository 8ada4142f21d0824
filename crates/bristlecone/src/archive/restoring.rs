//! Creating a pool as it was at an LSN or time of an archive.
//!
//! 1. A file without a name gets the items of the last checkpoint before, and the entries behind it.
//! 2. It gets a journal of its own: a checkpoint of its items. *A crash from here on leaves a journal without a pool, which
//!    the next try replaces.*
//! 3. It gets its name.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bristlecone_pm::{At, CreateOptions, Domain, Error, Folder, Native, PoolFile, Result, Storage};

use super::catalog::{Base, Catalog};
use super::sums::expect_sum;
use crate::journal::clock;
use crate::journal::manifest;
use crate::journal::manifest::{ADOPTING, Checkpoint, Manifest, checkpoint_name, segment_name};
use crate::journal::mutation::{Mutation, is_mutated};
use crate::journal::opening::{Begin, adopt};
use crate::journal::restore::{Rebuilt, with_room};
use crate::{Pool, PoolOptions};

/// The moment whose state is restored: see [`PoolOptions::restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreTo {
    /// The last one in the archive.
    End,
    /// Before the entry with this LSN: with all entries that end there or before.
    Lsn(u64),
    /// With all entries that were written to the journal at this time or before. Times have milliseconds.
    Time(SystemTime),
}

/// What was restored: see [`PoolOptions::restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// LSN in the archive behind the last entry that was applied.
    pub lsn: u64,
    /// When the last block of entries was written that has one.
    pub time: Option<SystemTime>,
}

impl PoolOptions {
    /// Creates a pool at `path` with the state that the pool of an archive had at a moment, exact to a commit. It is a new
    /// pool, with an identity and a journal of its own, and the sizes of the archived one unless options say otherwise. The
    /// archive is only read, and may be written meanwhile. The pool gets its name when it is complete.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`]; [`Error::Invalid`] for a moment before the first checkpoint or behind the end of the archive, and
    /// for a folder that has no archive; [`Error::Corrupted`] for missing, truncated or damaged files; [`Error::Newer`];
    /// [`Error::MediumFull`], and errors of the system. There is no pool then.
    pub fn restore(&self, path: impl AsRef<Path>, from: impl AsRef<Path>, to: RestoreTo) -> Result<Restored> {
        let archive: Arc<dyn Storage> = Arc::new(Folder::open(from.as_ref())?);
        self.restore_from(path.as_ref(), &archive, to)
    }

    pub(crate) fn restore_from(
        &self,
        path: &Path,
        archive: &Arc<dyn Storage>,
        to: RestoreTo,
    ) -> Result<Restored> {
        if path.symlink_metadata().is_ok() {
            return Err(Error::Exists { path: path.to_owned() });
        }
        for _ in 0..8 {
            let catalog = read_catalog(&**archive)?;
            match self.restore_as(path, archive, &catalog, to) {
                // An archiver has merged or removed files meanwhile.
                Err(Error::Corrupted { .. }) if read_catalog(&**archive)? != catalog => {}
                done => return done,
            }
        }
        Err(Error::invalid(format!(
            "the archive in {} changes too fast: stop its archiver",
            archive.describe()
        )))
    }

    fn restore_as(
        &self,
        path: &Path,
        archive: &Arc<dyn Storage>,
        catalog: &Catalog,
        to: RestoreTo,
    ) -> Result<Restored> {
        let manifest = chosen(&**archive, catalog, to)?;
        if !is_mutated(Mutation::RestoreUnchecked) {
            expect_sums(&**archive, catalog, &manifest)?;
        }
        let at = if self.leave_sigbus { At::unhandled(path) } else { At::from(path) };
        let fill = |max_bytes: u64| {
            let options = CreateOptions {
                max_bytes,
                // Until it is complete, nothing must survive.
                domain: Some(Domain::Process),
                chunk_bytes: Some(self.chunk_bytes.unwrap_or(catalog.geometry.chunk_bytes)),
            };
            let unnamed = PoolFile::<Native>::create_unnamed(at, &options, Native::new)?;
            let pool = Pool::over(Arc::clone(unnamed.pool()), self.threads())?;
            let mut time = None;
            let mut is_wanted = |block_time: u64, end: u64| {
                let wanted = match to {
                    RestoreTo::End => end <= catalog.end,
                    RestoreTo::Lsn(lsn) => end <= lsn,
                    RestoreTo::Time(limit) => clock::at(block_time) <= limit,
                };
                time = if wanted { Some(clock::at(block_time)) } else { time };
                wanted
            };
            let lsn = Rebuilt::new(unnamed.pool(), &pool, archive, self.threads())
                .fill_from(&manifest, &mut |block, entry| {
                    is_wanted(block.time, entry.lsn + entry.head.bytes())
                })?;
            Ok((unnamed, pool, Restored { lsn, time }))
        };
        let (unnamed, pool, restored) = match self.max_bytes {
            Some(asked) => fill(asked)?,
            None => with_room(catalog.geometry, |geometry| fill(geometry.max_bytes()))?,
        };
        self.clear_unfinished(path)?;
        if is_mutated(Mutation::NamedBeforeJournal) {
            unnamed.publish()?;
            return adopt(pool, &self.journal, path, Begin::default()).map(|()| restored);
        }
        adopt(pool, &self.journal, path, Begin::default())?;
        unnamed.publish()?;
        Ok(restored)
    }

    /// Removes the manifest that a restore has left which did not finish.
    fn clear_unfinished(&self, path: &Path) -> Result<()> {
        let folder = self.journal.open(path, true)?;
        let _lock = self.journal.lock(path)?;
        let is_unfinished = Manifest::read(&*folder)?.is_some_and(|left| left.closed & ADOPTING != 0);
        if is_unfinished && !path.exists() {
            folder.remove(manifest::NAME)?;
        }
        Ok(())
    }
}

/// Reads the catalog of an archive, which must exist.
pub fn read_catalog(archive: &dyn Storage) -> Result<Catalog> {
    Catalog::read(archive)?.ok_or_else(|| Error::invalid(format!("{} has no archive", archive.describe())))
}

/// Returns the journal whose replay leads to a moment.
fn chosen(archive: &dyn Storage, catalog: &Catalog, to: RestoreTo) -> Result<Manifest> {
    let place = archive.describe();
    let is_before = |base: &&Base| match to {
        RestoreTo::End => true,
        RestoreTo::Lsn(lsn) => base.checkpoint.end <= lsn,
        RestoreTo::Time(time) => base.time <= clock::millis(time),
    };
    match to {
        RestoreTo::Lsn(lsn) if lsn > catalog.end => {
            return Err(Error::invalid(format!(
                "the archive in {place} ends at LSN {}, before {lsn}",
                catalog.end
            )));
        }
        RestoreTo::Time(time) if clock::millis(time) > catalog.as_of => {
            let as_of = shown(catalog.as_of);
            return Err(Error::invalid(format!(
                "the archive in {place} ends at {as_of}, before the time asked for"
            )));
        }
        _ => {}
    }
    let base = catalog.bases.iter().rfind(is_before).map(|base| base.checkpoint);
    if base.is_some() || catalog.is_whole {
        return Ok(catalog.manifest(base));
    }
    Err(Error::invalid(match catalog.bases.first() {
        None => format!("the archive in {place} has no checkpoint yet"),
        Some(Base { checkpoint: Checkpoint { end, .. }, time, .. }) => {
            format!(
                "the archive in {place} begins at LSN {end} and {}: earlier moments are not kept",
                shown(*time)
            )
        }
    }))
}

/// Returns a time for messages, in milliseconds since 1970.
fn shown(millis: u64) -> String {
    format!("{}.{:03} s since 1970", millis / 1000, millis % 1000)
}

/// Compares the files that a restore reads with the checksums of the catalog.
fn expect_sums(archive: &dyn Storage, catalog: &Catalog, manifest: &Manifest) -> Result<()> {
    let expect = |name: String, bytes: u64, checksum: u64| {
        let missing = || Error::corrupted("a missing file", format!("{name} in {}", archive.describe()));
        let file = archive.open(&name)?.ok_or_else(missing)?;
        expect_sum(archive, &*file, &name, bytes, checksum as u32)
    };
    if let Some(checkpoint) = manifest.checkpoint
        && let Some(base) = catalog.bases.iter().find(|base| base.checkpoint == checkpoint)
    {
        expect(checkpoint_name(checkpoint.file), checkpoint.bytes, base.checksum)?;
    }
    let begin = manifest.begin();
    let mut needed = catalog.pieces.iter().filter(|piece| piece.end > begin);
    needed.try_for_each(|piece| expect(segment_name(piece.file), piece.bytes, piece.checksum))
}
