//! What the files of a journal say, without opening the pool.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bristlecone_pm::{Folder, Result, Storage};

use super::checkpoint::frames;
use super::entry::{self, Kind, broken};
use super::manifest::{Manifest, checkpoint_name, read_manifest, segment_name};
use super::opening::RING;
use super::restore::{end_of, replay};
use super::ring::{self, Ring};
use super::status::{Figures, of_files};
use super::{JournalStatus, Setup};

/// The files of a pool's journal: see [`PoolOptions::journal`](crate::PoolOptions::journal). Nothing is changed, and the
/// pool may be open.
pub struct JournalFiles {
    pub(super) folder: PathBuf,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) manifest: Manifest,
    /// Bytes of the ring and of a segment.
    pub(crate) sizes: (u64, u64),
}

impl std::fmt::Debug for JournalFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalFiles").field("folder", &self.storage.describe()).finish_non_exhaustive()
    }
}

/// A file of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalFile {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// LSN of its first entry; of a checkpoint, that of its begin.
    pub first: u64,
    /// LSN behind its last entry, `None` if it is being written; of a checkpoint, that of its end.
    pub end: Option<u64>,
}

/// What [`JournalFiles::verify`] has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalCounts {
    /// Bytes of the checkpoint's items.
    pub checkpoint_bytes: u64,
    /// Trees in the checkpoint.
    pub trees: u64,
    /// Entries behind the begin of the checkpoint that count.
    pub entries: u64,
    /// Changes of keys in them.
    pub changes: u64,
    /// Changes of the directory in them.
    pub directory: u64,
    /// LSN at which the journal ends.
    pub end: u64,
}

impl JournalFiles {
    /// Returns the folder of the journal of the pool at a path, unless its options name another one.
    pub fn folder_of(pool: impl AsRef<Path>) -> PathBuf {
        let mut name = pool.as_ref().as_os_str().to_owned();
        name.push(".journal");
        name.into()
    }

    /// Reads the manifest of a folder.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`](crate::Error) for a damaged or missing manifest; [`Error::Newer`](crate::Error); errors of
    /// the system.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::on(folder.as_ref().to_owned(), Arc::new(Folder::open(folder.as_ref())?))
    }

    pub(super) fn on(folder: PathBuf, storage: Arc<dyn Storage>) -> Result<Self> {
        let manifest = read_manifest(&*storage)?;
        Ok(Self { folder, storage, manifest, sizes: Setup::default().sizes() })
    }

    /// Returns the state of the journal. While a process has the pool open for writing, and after it was killed, these are
    /// the figures that it published; nothing else is read then. Otherwise they are those of the files, without a
    /// durability and syncs.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`](crate::Error) for damage in the last segment; errors of the system.
    ///
    /// ```
    /// use bristlecone::{Domain, JournalFiles, Pool};
    /// # fn main() -> bristlecone::Result<()> {
    /// # let path = format!("/dev/shm/bristlecone-doc-files-{}.pool", std::process::id());
    ///
    /// let pool = Pool::options().domain(Domain::Journal).create(true).open(&path)?;
    /// pool.tree::<u64, u64>("t")?.insert(1, 2)?;
    /// let files = JournalFiles::open(format!("{path}.journal"))?; // in any process
    /// let durable = files.status()?.durable_lsn;
    /// assert_eq!(durable, pool.journal_status()?.unwrap().durable_lsn);
    /// pool.close()?;
    /// assert_eq!(files.status()?.durable_lsn, durable);
    /// # std::fs::remove_file(&path).unwrap();
    /// # std::fs::remove_dir_all(format!("{path}.journal")).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn status(&self) -> Result<JournalStatus> {
        self.with_files(self.status_of_entries()?)
    }

    /// Adds what only the files say.
    pub(super) fn with_files(&self, status: JournalStatus) -> Result<JournalStatus> {
        let oldest_lsn = read_manifest(&*self.storage)?.kept;
        Ok(JournalStatus { oldest_lsn, cursors: self.cursors()?, ..status })
    }

    fn status_of_entries(&self) -> Result<JournalStatus> {
        let (ring_bytes, segment_bytes) = self.sizes;
        let (ring, uuid) = (self.storage.shared(RING, ring::file_bytes(ring_bytes))?, self.manifest.pool);
        if let (Some(ring), Some(boot)) = (ring, self.storage.boot())
            && ring::is_of_pool(&*ring, uuid, boot)
        {
            let figures = Figures::new(Arc::clone(&ring));
            if figures.durability().is_some() {
                return Ok(figures.status(self.folder.clone(), Ring::left(ring).seen_end()));
            }
        }
        let manifest = read_manifest(&*self.storage)?;
        let end = end_of(&*self.storage, &manifest)?.lsn;
        Ok(of_files(self.folder.clone(), &manifest, segment_bytes, end))
    }

    /// Returns the identity of the pool.
    pub fn uuid(&self) -> String {
        format!("{:032x}", self.manifest.pool)
    }

    /// Returns the checkpoint, and then the segments in the order of their entries.
    ///
    /// # Errors
    ///
    /// Errors of the system. A missing file has no bytes.
    pub fn files(&self) -> Result<Vec<JournalFile>> {
        let bytes = |name: &str| self.storage.open(name)?.map_or(Ok(0), |file| file.bytes());
        let mut files = Vec::new();
        if let Some(checkpoint) = self.manifest.checkpoint {
            let name = checkpoint_name(checkpoint.file);
            files.push(JournalFile {
                bytes: bytes(&name)?,
                name,
                first: checkpoint.begin,
                end: Some(checkpoint.end),
            });
        }
        for segment in &self.manifest.segments {
            let name = segment_name(segment.file);
            files.push(JournalFile { bytes: bytes(&name)?, name, first: segment.first, end: segment.end });
        }
        Ok(files)
    }

    /// Reads everything that a restored pool would need, and compares all checksums.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`](crate::Error) for damage; [`Error::Newer`](crate::Error); errors of the system. A checkpoint
    /// that is made meanwhile may remove files before they are read: try again.
    pub fn verify(&self) -> Result<JournalCounts> {
        let mut counts = JournalCounts::default();
        if let Some(checkpoint) = self.manifest.checkpoint {
            counts.checkpoint_bytes = checkpoint.bytes;
            frames(&*self.storage, self.manifest.uuid, &checkpoint, &mut |kind, _| {
                counts.trees += u64::from(kind == super::checkpoint::TREE);
                Ok(())
            })?;
        }
        let end = replay(&*self.storage, &self.manifest, &mut |entry| {
            if entry.head.counts == 0 {
                return Ok(());
            }
            counts.entries += 1;
            let long;
            let body = match entry.head.aside {
                true => {
                    long = super::aside::read(
                        &*self.storage,
                        &entry::Aside::decode(entry.body).ok_or_else(broken)?,
                    )?;
                    &long
                }
                false => entry.body,
            };
            match entry.head.kind {
                Kind::Each => counts.changes += u64::from(entry.head.counts),
                Kind::All => counts.changes += entry::changes(body)?.len() as u64,
                kind => {
                    counts.directory += 1;
                    let (_, rest) = entry::Directory::of(kind, body).ok_or_else(broken)?;
                    if !rest.is_empty() {
                        super::aside::read(&*self.storage, &entry::Aside::decode(rest).ok_or_else(broken)?)?;
                    }
                }
            }
            Ok(())
        })?;
        counts.end = end.lsn;
        let needed = self.manifest.checkpoint.map_or(0, |checkpoint| checkpoint.end);
        if end.lsn < needed {
            let what =
                format!("it ends at LSN {}, before the end of its checkpoint at LSN {needed}", end.lsn);
            return Err(bristlecone_pm::Error::corrupted(
                what,
                format!("the journal in {}", self.storage.describe()),
            ));
        }
        Ok(counts)
    }
}
