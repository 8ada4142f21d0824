//! Reading the blocks of a journal in order, while a process writes them.
//!
//! Entries are read up to the LSN up to which they are durable. The writer publishes it in the ring. Without a writer it is
//! the end of the files: whatever a power failure left is durable, and a clean close made everything so.

use std::sync::Arc;

use bristlecone_pm::{Error, Result, SharedWords, Storage, StoredFile};

use super::manifest::read_manifest;
use super::manifest::{Manifest, Segment, segment_name};
use super::opening::RING;
use super::past::trees_at_checkpoint;
use super::restore::end_of;
use super::ring;
use super::segment::{BLOCK_HEADER_BYTES, Block, PAGE_BYTES, block_bytes, header_error, read_header};
use super::status::Figures;
use super::trees::Past;

/// Most bytes that one call reads, unless a block is longer.
const READ_BYTES: usize = 1 << 20;
/// Number of attempts to read files that a writer removes meanwhile.
const LOOKS: usize = 8;

/// The LSN up to which entries are durable.
pub struct Durable {
    storage: Arc<dyn Storage>,
    pool: u128,
    ring_bytes: u64,
    ring: Option<Arc<dyn SharedWords>>,
    /// The end of the files under a manifest, as long as no process writes.
    end: Option<(Manifest, u64)>,
    /// The opening that was seen last.
    opening: Option<u64>,
    /// Number of openings and closes that were noticed: files may count in another way since.
    changes: u64,
}

impl Durable {
    pub fn new(storage: Arc<dyn Storage>, pool: u128, ring_bytes: u64) -> Self {
        Self { storage, pool, ring_bytes, ring: None, end: None, opening: None, changes: 0 }
    }

    /// Returns what a writer has published, or one that was killed under this kernel.
    fn published(&mut self) -> Result<Option<(u64, u64)>> {
        if self.ring.is_none() {
            self.ring = self.storage.shared(RING, ring::file_bytes(self.ring_bytes))?;
        }
        let (Some(ring), Some(boot)) = (&self.ring, self.storage.boot()) else { return Ok(None) };
        let is_own = ring::is_of_pool(&**ring, self.pool, boot);
        Ok(is_own.then(|| Figures::new(Arc::clone(ring)).durable()).flatten())
    }

    /// Returns the number of openings and closes that were noticed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the LSN.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`], and errors of the system.
    pub fn lsn(&mut self) -> Result<u64> {
        loop {
            if let Some((lsn, opening)) = self.published()? {
                if self.opening != Some(opening) {
                    (self.end, self.opening) = (None, Some(opening));
                    self.changes += 1;
                }
                return Ok(lsn);
            }
            let manifest = read_manifest(&*self.storage)?;
            if let Some((known, lsn)) = &self.end
                && *known == manifest
            {
                return Ok(*lsn);
            }
            let end = end_of(&*self.storage, &manifest);
            // A process that began to write meanwhile may have written what is not durable, or removed files.
            if self.published()?.is_none() && read_manifest(&*self.storage)? == manifest {
                let lsn = end?.lsn;
                (self.end, self.opening) = (Some((manifest, lsn)), None);
                self.changes += 1;
                return Ok(lsn);
            }
        }
    }
}

/// Where a reader is in the segments.
struct Place {
    segment: Segment,
    name: String,
    file: Arc<dyn StoredFile>,
    /// Offset of the next block, and its LSN.
    offset: u64,
    lsn: u64,
    /// Bytes of the file from an offset on.
    buffer: Vec<u8>,
    begin: u64,
}

/// A reader of blocks.
pub struct Tail {
    storage: Arc<dyn Storage>,
    uuid: u128,
    place: Place,
}

impl Tail {
    /// Begins with the segment that has an LSN, or, if that one does not say what is before it, with the begin of the last
    /// checkpoint. Returns also what is before the first block, or before an LSN of it: entries before that one are to be
    /// skipped.
    ///
    /// # Errors
    ///
    /// [`Error::Pruned`]; [`Error::Corrupted`]; [`Error::Newer`]; errors of the system.
    pub fn begin(storage: &Arc<dyn Storage>, lsn: u64) -> Result<(Self, Option<u64>, Past)> {
        let mut looks = 1;
        loop {
            let manifest = read_manifest(&**storage)?;
            match Self::begin_in(storage, &manifest, lsn) {
                // A checkpoint removes files that an older manifest names.
                Err(error) if looks == LOOKS || read_manifest(&**storage)? == manifest => return Err(error),
                Err(_) => looks += 1,
                begun => return begun,
            }
        }
    }

    fn begin_in(
        storage: &Arc<dyn Storage>,
        manifest: &Manifest,
        lsn: u64,
    ) -> Result<(Self, Option<u64>, Past)> {
        let uuid = manifest.uuid;
        let oldest = manifest.kept;
        let open = |lsn: u64| {
            let has_it = |segment: &&Segment| segment.first <= lsn;
            let segment = manifest.segments.iter().rfind(has_it).ok_or(Error::Pruned { oldest })?;
            Place::open(&**storage, uuid, *segment)
        };
        let (place, past) = open(lsn)?;
        let (place, first, past) = match past {
            Some(past) => (place, None, past),
            None if lsn < manifest.begin() => return Err(Error::Pruned { oldest: manifest.begin() }),
            None => {
                let trees = trees_at_checkpoint(&**storage, manifest)?;
                (open(manifest.begin())?.0, Some(manifest.begin()), Past { trees, time: 0 })
            }
        };
        Ok((Self { storage: Arc::clone(storage), uuid, place }, first, past))
    }

    /// Reads the next block that begins before an LSN, up to which everything is durable; returns it with its entries.
    ///
    /// # Errors
    ///
    /// [`Error::Pruned`] if a checkpoint has removed it; [`Error::Corrupted`]; errors of the system.
    pub fn next(&mut self, durable: u64) -> Result<Option<(Block, &[u8])>> {
        while self.place.lsn < durable {
            let finished = self.place.segment.end.is_some_and(|end| self.place.lsn >= end);
            if !finished && self.place.look(self.uuid, durable)? {
                return Ok(self.place.take(self.uuid));
            }
            self.move_on(finished)?;
        }
        Ok(None)
    }

    /// Continues in the segment that has the next block by now, after another process has opened the pool.
    ///
    /// # Errors
    ///
    /// Same as [`next`](Self::next).
    pub fn reopen(&mut self) -> Result<()> {
        let lsn = self.place.lsn;
        let (mut tail, _, _) = Self::begin(&self.storage, lsn)?;
        tail.place.skip_to(self.uuid, lsn)?;
        self.place = tail.place;
        Ok(())
    }

    /// Continues with the segment that has the next block, which this one has not.
    fn move_on(&mut self, finished: bool) -> Result<()> {
        let lsn = self.place.lsn;
        for _ in 0..LOOKS {
            let manifest = read_manifest(&*self.storage)?;
            let Some(next) = manifest.segments.iter().rfind(|segment| segment.first <= lsn) else {
                return Err(Error::Pruned { oldest: manifest.kept });
            };
            if next.generation == self.place.segment.generation {
                self.place.segment.end = next.end;
                let is_sound =
                    !finished && next.end.is_none_or(|end| lsn < end) && self.place.again(self.uuid)?;
                if is_sound {
                    return Ok(());
                }
                // Its manifest may have been replaced meanwhile.
                if read_manifest(&*self.storage)? == manifest {
                    return Err(self.place.broken("a damaged block: acknowledged changes are lost"));
                }
                continue;
            }
            let opened = Place::open(&*self.storage, self.uuid, *next);
            if read_manifest(&*self.storage)? != manifest {
                continue;
            }
            self.place = opened?.0;
            if self.place.lsn == lsn {
                return Ok(());
            }
            if self.place.lsn > lsn {
                return Err(self.place.broken("entries before it are missing"));
            }
            return self.place.skip_to(self.uuid, lsn);
        }
        Err(Error::io(
            "reading a journal that changes too fast",
            std::io::Error::from(std::io::ErrorKind::TimedOut),
        ))
    }
}

impl Place {
    /// Opens a segment; returns also what is before it, unless it does not say.
    fn open(storage: &dyn Storage, uuid: u128, segment: Segment) -> Result<(Self, Option<Past>)> {
        let name = segment_name(segment.file);
        let in_folder = format!("{name} in {}", storage.describe());
        let file =
            storage.open(&name)?.ok_or_else(|| Error::corrupted("a missing file", in_folder.clone()))?;
        let mut bytes = vec![0; PAGE_BYTES];
        let read = file.read(0, &mut bytes)?;
        bytes.truncate(read);
        // The length of the directory, if there is one.
        let more =
            bytes.get(56..64).and_then(|word| word.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word));
        if more > 0 && more < file.bytes()? {
            bytes.resize(PAGE_BYTES + more as usize, 0);
            let read = file.read(0, &mut bytes)?;
            bytes.truncate(read);
        }
        let (start, past) =
            read_header(&bytes, uuid, &segment).map_err(|newer| header_error(newer, &in_folder))?;
        let (offset, lsn) = (start as u64, segment.first);
        Ok((Self { segment, name: in_folder, file, offset, lsn, buffer: Vec::new(), begin: offset }, past))
    }

    fn broken(&self, what: &str) -> Error {
        Error::corrupted(what, format!("byte {:#x} of {}", self.offset, self.name))
    }

    /// Returns the bytes from the next block on.
    fn ahead(&self) -> &[u8] {
        self.buffer.get((self.offset - self.begin) as usize..).unwrap_or_default()
    }

    fn sound(&self, uuid: u128) -> Option<(Block, &[u8])> {
        let block = Block::read(self.ahead(), self.offset, uuid, self.segment.generation);
        block.filter(|(block, _)| block.lsn == self.lsn)
    }

    /// Returns whether the next block is there, and sound; reads more of the file if it is not in memory.
    fn look(&mut self, uuid: u128, durable: u64) -> Result<bool> {
        if self.sound(uuid).is_some() {
            return Ok(true);
        }
        // Blocks take more than their entries.
        let wanted = (durable - self.lsn).saturating_mul(2).saturating_add(2 * PAGE_BYTES as u64);
        self.fill(wanted.min(READ_BYTES as u64) as usize)?;
        let entries = Block::entries_of(self.ahead()).unwrap_or(0);
        if self.sound(uuid).is_none() && BLOCK_HEADER_BYTES + entries > self.ahead().len() {
            let whole = block_bytes(entries) as u64;
            if self.offset + whole <= self.file.bytes()? {
                self.fill(whole as usize)?;
            }
        }
        Ok(self.sound(uuid).is_some())
    }

    /// Reads once more.
    fn again(&mut self, uuid: u128) -> Result<bool> {
        self.buffer.clear();
        self.look(uuid, u64::MAX)
    }

    fn fill(&mut self, bytes: usize) -> Result<()> {
        self.begin = self.offset;
        self.buffer.resize(bytes, 0);
        let read = self.file.read(self.begin, &mut self.buffer)?;
        self.buffer.truncate(read);
        Ok(())
    }

    /// Takes the next block, which is there.
    fn take(&mut self, uuid: u128) -> Option<(Block, &[u8])> {
        let (block, _) = self.sound(uuid)?;
        let at = (self.offset - self.begin) as usize + BLOCK_HEADER_BYTES;
        self.offset += block_bytes(block.entries) as u64;
        self.lsn += block.entries as u64;
        self.buffer.get(at..at + block.entries).map(|entries| (block, entries))
    }

    /// Skips the blocks before an LSN, with which one begins.
    fn skip_to(&mut self, uuid: u128, lsn: u64) -> Result<()> {
        while self.lsn < lsn {
            if !self.look(uuid, lsn)? || self.take(uuid).is_none() {
                return Err(self.broken("a damaged block: acknowledged changes are lost"));
            }
        }
        if self.lsn == lsn { Ok(()) } else { Err(self.broken("a block that begins at another LSN")) }
    }
}
