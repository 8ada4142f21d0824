//! The writer of segments.

use std::sync::Arc;
use std::time::Instant;

use bristlecone_pm::{Result, Storage, StoredFile};

use super::clock;
use super::entry::{self, Head, Kind};
use super::manifest::{Manifest, Segment, segment_name};
use super::segment::{BLOCK_BYTES, BLOCK_HEADER_BYTES, Block, End, block_bytes, header};
use super::status::Figures;
use super::trees::Past;

/// Bytes of memory that are kept from one group to the next.
const KEPT_BYTES: usize = 1 << 20;
/// Number of files that are kept for the next segments.
const SPARE_MAX: usize = 4;

/// The segment that is being written, and the manifest that names it.
pub struct Log {
    storage: Arc<dyn Storage>,
    manifest: Manifest,
    segment_bytes: u64,
    file: Arc<dyn StoredFile>,
    generation: u64,
    /// Offset of the next block.
    offset: u64,
    /// LSN up to which entries are in segments.
    written: u64,
    /// LSN up to which they are durable.
    durable: u64,
    /// The trees behind the last entry that is in a segment, and its time.
    past: Past,
    buffer: Vec<u8>,
    /// Memory for the entries of the next group.
    entries: Vec<u8>,
    /// Where syncs and files are counted, once the pool is open.
    figures: Option<Figures>,
}

impl Log {
    /// Begins a segment at an LSN, and writes the manifest.
    ///
    /// # Errors
    ///
    /// [`Error::MediumFull`](bristlecone_pm::Error), and errors of the system.
    pub fn create(
        storage: Arc<dyn Storage>,
        manifest: Manifest,
        segment_bytes: u64,
        lsn: u64,
        past: Past,
    ) -> Result<Self> {
        let Begun { manifest, file, offset, .. } =
            begin_segment(&*storage, &manifest, segment_bytes, 0, (lsn, &past))?;
        Ok(Self::at(storage, manifest, segment_bytes, file, End { offset, lsn }, past))
    }

    /// Continues the last segment at its end, which is made durable if `sync` is set.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn resume(
        storage: Arc<dyn Storage>,
        manifest: Manifest,
        segment_bytes: u64,
        (file, end, past): (Arc<dyn StoredFile>, End, Past),
        sync: bool,
    ) -> Result<Self> {
        if sync {
            file.sync()?;
        }
        Ok(Self::at(storage, manifest, segment_bytes, file, end, past))
    }

    /// Continues a file, that of the last segment.
    fn at(
        storage: Arc<dyn Storage>,
        manifest: Manifest,
        segment_bytes: u64,
        file: Arc<dyn StoredFile>,
        End { offset, lsn }: End,
        past: Past,
    ) -> Self {
        Self {
            generation: manifest.segments.last().map_or(0, |segment| segment.generation),
            storage,
            manifest,
            segment_bytes,
            file,
            offset,
            written: lsn,
            durable: lsn,
            past,
            buffer: Vec::new(),
            entries: Vec::new(),
            figures: None,
        }
    }

    /// Returns whether the segments have more than `bytes` bytes, and more than twice as many as the last checkpoint.
    pub fn is_over(&self, bytes: u64) -> bool {
        let least = self.manifest.checkpoint.map_or(0, |checkpoint| 2 * checkpoint.bytes).max(bytes);
        self.manifest.segments_to_replay() * self.segment_bytes > least
    }

    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the pool's identity, and a number for a file.
    pub fn number(&mut self) -> (u128, u64) {
        (self.manifest.uuid, self.manifest.number())
    }

    /// Returns memory for the entries of a group, without its former ones.
    pub fn take_entries(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.entries)
    }

    /// Keeps the memory for the next group, unless it is large.
    pub fn keep_entries(&mut self, mut entries: Vec<u8>) {
        entries.clear();
        entries.shrink_to(KEPT_BYTES);
        self.buffer.shrink_to(KEPT_BYTES);
        self.entries = entries;
    }

    pub fn written(&self) -> u64 {
        self.written
    }

    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Writes complete entries behind the last ones. They are not durable yet.
    ///
    /// # Errors
    ///
    /// [`Error::MediumFull`](bristlecone_pm::Error), and errors of the system. Nothing may be written from then on.
    pub fn append(&mut self, mut entries: &[u8]) -> Result<()> {
        let time = clock::now();
        // The clock may have been set back.
        let time = time.max(self.past.time);
        let durable = self.durable;
        self.buffer.clear();
        while !entries.is_empty() {
            let (bytes, has_directory) = block_of(entries);
            let (some, rest) = entries.split_at(bytes);
            if self.offset + (self.buffer.len() + block_bytes(some.len())) as u64 > self.segment_bytes {
                self.flush()?;
                self.roll(some.len())?;
            }
            let offset = self.offset + self.buffer.len() as u64;
            let (generation, lsn, entries_bytes) = (self.generation, self.written, some.len());
            let block = Block { generation, offset, lsn, durable, time, entries: entries_bytes };
            block.append(&mut self.buffer, self.manifest.uuid, some);
            self.written += some.len() as u64;
            self.past.time = time;
            if has_directory {
                self.past.trees.follow_all(&*self.storage, some)?;
            }
            entries = rest;
        }
        self.flush()
    }

    /// Writes the blocks of the buffer.
    fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.file.write(self.offset, &self.buffer)?;
            self.offset += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    ///
    /// Errors of the system. Nothing may be written from then on: the kernel may have dropped what it could not write.
    pub fn sync(&mut self) -> Result<()> {
        if self.durable < self.written {
            let begun = Instant::now();
            self.file.sync()?;
            self.durable = self.written;
            if let Some(figures) = &self.figures {
                figures.note_sync(begun.elapsed(), self.durable);
            }
        }
        Ok(())
    }

    /// Ends the segment durably, and begins another one with room for a block of `entries` bytes.
    fn roll(&mut self, entries: usize) -> Result<()> {
        self.sync()?;
        let at = (self.written, &self.past);
        let begun =
            begin_segment(&*self.storage, &self.manifest, self.segment_bytes, block_bytes(entries), at)?;
        (self.manifest, self.file) = (begun.manifest, begun.file);
        (self.generation, self.offset) = (begun.generation, begun.offset);
        self.note_files();
        Ok(())
    }

    /// Changes the manifest, durably.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn change(&mut self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let mut manifest = self.manifest.clone();
        change(&mut manifest);
        manifest.write(&*self.storage)?;
        self.manifest = manifest;
        self.note_files();
        Ok(())
    }

    /// Counts syncs and files from now on.
    pub fn publish(&mut self, figures: Figures) {
        self.figures = Some(figures);
        self.note_files();
    }

    fn note_files(&self) {
        if let Some(figures) = &self.figures {
            figures.note_files(&self.manifest, self.segment_bytes);
        }
    }

    /// Keeps only the segments with entries from an LSN on, in a manifest.
    pub fn keep_from(manifest: &mut Manifest, lsn: u64) {
        manifest.kept = lsn;
        let (old, kept) =
            manifest.segments.drain(..).partition(|segment| segment.end.is_some_and(|end| end <= lsn));
        manifest.segments = kept;
        let old: Vec<Segment> = old;
        manifest.spare.extend(old.iter().map(|segment| segment.file));
        manifest.spare.truncate(SPARE_MAX);
    }
}

/// Returns the bytes of the entries that form the next block, and whether one of them changes the directory.
fn block_of(entries: &[u8]) -> (usize, bool) {
    let (mut len, mut has_directory) = (0, false);
    while let Some(word) = entries[len..].first_chunk() {
        let Some(head) = Head::decode(u64::from_le_bytes(*word)) else {
            return (entries.len(), has_directory);
        };
        let next = len + head.bytes() as usize;
        if len > 0 && next + BLOCK_HEADER_BYTES > BLOCK_BYTES {
            break;
        }
        has_directory |= !matches!(head.kind, Kind::Each | Kind::All);
        len = next;
    }
    (len, has_directory)
}

/// A segment that has begun.
struct Begun {
    manifest: Manifest,
    file: Arc<dyn StoredFile>,
    generation: u64,
    /// Offset of its first block.
    offset: u64,
}

/// Prepares the file of a segment that begins at an LSN, with room for a block of `block` bytes, and writes a manifest
/// that names it.
///
/// 1. A spare file gets a new header, or a new file is filled with zeros; it is synced, and its name. *After a crash the
///    file is spare, or none of the journal.*
/// 2. The manifest ends the segment before it, which is durable, and names this one.
fn begin_segment(
    storage: &dyn Storage,
    manifest: &Manifest,
    bytes: u64,
    block: usize,
    (lsn, past): (u64, &Past),
) -> Result<Begun> {
    let mut manifest = manifest.clone();
    let generation = manifest.number();
    let spare = manifest.spare.pop();
    let number = spare.unwrap_or_else(|| manifest.number());
    let segment = Segment { file: number, generation, first: lsn, end: None };
    let header = header(manifest.uuid, &segment, past);
    let bytes = bytes.max((header.len() + block) as u64);
    let mut found = None;
    if let Some(number) = spare
        && let Some(file) = storage.open(&segment_name(number))?
        && file.bytes()? == bytes
    {
        found = Some(file);
    }
    let is_new = found.is_none();
    let file = match found {
        Some(file) => file,
        None => storage.create(&segment_name(number), bytes)?,
    };
    file.write(0, &header)?;
    file.sync()?;
    if is_new {
        storage.sync()?;
    }
    manifest.segments.last_mut().into_iter().for_each(|last| last.end = Some(last.end.unwrap_or(lsn)));
    manifest.segments.push(segment);
    manifest.write(storage)?;
    Ok(Begun { manifest, file, generation, offset: header.len() as u64 })
}

/// Appends an entry to entries that are to be written behind `lsn`.
pub fn push_entry(entries: &mut Vec<u8>, lsn: u64, head: Head, body: &[u8]) {
    let own = lsn + entries.len() as u64;
    entry::append(entries, head, own, body);
}
