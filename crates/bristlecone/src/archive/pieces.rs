//! Files of an archive: pieces of entries, and copies of checkpoints and of long bodies.

use std::sync::Arc;

use bristlecone_pm::{Error, Result, Storage, StoredFile};

use super::catalog::{Catalog, Long, Piece};
use super::sums::expect_sum;
use crate::journal::aside;
use crate::journal::checkpoint;
use crate::journal::entry::{self, Aside, Directory, Entry, Kind, broken};
use crate::journal::manifest::{Checkpoint, Segment, aside_name, checkpoint_name, segment_name};
use crate::journal::mutation::{Mutation, is_mutated};
use crate::journal::segment::{Block, header};
use crate::journal::trees::Past;

/// Bytes of a checkpoint that one step copies.
const STEP_BYTES: u64 = 16 << 20;
/// Behind the name of a file that is not complete.
pub const NEW: &str = ".new";

/// A piece of entries, which begins a segment of its own, as bytes.
pub struct Packed {
    pub bytes: Vec<u8>,
    segment: Segment,
    uuid: u128,
    pub end: u64,
    pub time: u64,
}

impl Packed {
    pub fn new(uuid: u128, file: u64, first: u64, past: &Past) -> Self {
        let segment = Segment { file, generation: file, first, end: None };
        Self { bytes: header(uuid, &segment, past), segment, uuid, end: first, time: past.time }
    }

    pub fn push(&mut self, time: u64, entries: &[u8]) {
        let Segment { generation, .. } = self.segment;
        let (offset, lsn, time) = (self.bytes.len() as u64, self.end, time.max(self.time));
        let block = Block { generation, offset, lsn, durable: lsn, time, entries: entries.len() };
        block.append(&mut self.bytes, self.uuid, entries);
        (self.end, self.time) = (lsn + entries.len() as u64, time);
    }

    pub fn piece(&self, since: u64, level: u64) -> Piece {
        Piece {
            file: self.segment.file,
            first: self.segment.first,
            end: self.end,
            bytes: self.bytes.len() as u64,
            since,
            time: self.time,
            checksum: u64::from(crc32c::crc32c(&self.bytes)),
            level,
        }
    }
}

/// Writes a file under another name, syncs it, compares it, and gives it its name.
pub fn put_file(to: &dyn Storage, name: &str, bytes: &[u8]) -> Result<()> {
    let new = if is_mutated(Mutation::WrittenUnderName) { name.to_owned() } else { format!("{name}{NEW}") };
    let file = to.create(&new, 0)?;
    file.write(0, bytes)?;
    finish(to, &*file, name, (bytes.len() as u64, crc32c::crc32c(bytes)))
}

/// Syncs a file that was written under another name, compares its length and checksum, and gives it its name.
fn finish(to: &dyn Storage, file: &dyn StoredFile, name: &str, (bytes, checksum): (u64, u32)) -> Result<()> {
    let new = format!("{name}{NEW}");
    if is_mutated(Mutation::NamedBeforeSynced) {
        to.rename(&new, name)?;
        return file.sync();
    }
    file.sync()?;
    if !is_mutated(Mutation::CopyUncompared) {
        expect_sum(to, file, name, bytes, checksum)?;
    }
    if is_mutated(Mutation::WrittenUnderName) { Ok(()) } else { to.rename(&new, name) }
}

/// A checkpoint that is being copied.
pub struct Copying {
    pub of: Checkpoint,
    pub from: Arc<dyn StoredFile>,
    pub to: Arc<dyn StoredFile>,
    pub file: u64,
    pub done: u64,
    pub checksum: u32,
}

impl Copying {
    pub fn step(&mut self) -> Result<()> {
        let end = self.of.bytes.min(self.done + STEP_BYTES);
        let write = |offset, bytes: &[u8]| self.to.write(offset, bytes);
        (self.done, self.checksum) = aside::pass(&*self.from, self.done..end, self.checksum, write)?;
        if self.done < end {
            return Err(Error::corrupted("a checkpoint that ends early", checkpoint_name(self.of.file)));
        }
        Ok(())
    }
}

/// Compares a checkpoint with its checksums.
pub fn verify_checkpoint(of: &dyn Storage, uuid: u128, checkpoint: &Checkpoint, checksum: u32) -> Result<()> {
    let name = checkpoint_name(checkpoint.file);
    let missing = || Error::corrupted("a missing file", format!("{name} in {}", of.describe()));
    let file = of.open(&name)?.ok_or_else(missing)?;
    expect_sum(of, &*file, &name, checkpoint.bytes, checksum)?;
    checkpoint::frames(of, uuid, checkpoint, &mut |_, _| Ok(()))
}

/// Returns what is before a piece.
pub fn past_of_piece(of: &dyn Storage, catalog: &Catalog, piece: &Piece) -> Result<Past> {
    let name = segment_name(piece.file);
    let missing = || Error::corrupted("a missing file", format!("{name} in {}", of.describe()));
    let file = of.open(&name)?.ok_or_else(missing)?;
    let segment =
        Segment { file: piece.file, generation: piece.file, first: piece.first, end: Some(piece.end) };
    let read = crate::journal::segment::Read::new(&*file, segment, catalog.uuid, name)?;
    read.past().cloned().ok_or_else(broken)
}

/// Returns the bytes of an entry without the numbers of files, which differ in an archive.
pub fn comparable(entry: &Entry<'_>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let body = match numbered(entry)? {
        Some(at) => [&entry.body[..at], &entry.body[at + 8..]].concat(),
        None => entry.body.to_vec(),
    };
    entry::append(&mut bytes, entry::Head { body: body.len(), ..entry.head }, entry.lsn, &body);
    Ok(bytes)
}

/// Returns where the body of an entry has the number of a file, if it has one.
fn numbered(entry: &Entry<'_>) -> Result<Option<usize>> {
    if entry.head.counts == 0 {
        return Ok(None);
    }
    if entry.head.aside {
        return Ok(Some(0));
    }
    if entry.head.kind != Kind::Create {
        return Ok(None);
    }
    let (_, rest) = Directory::of(entry.head.kind, entry.body).ok_or_else(broken)?;
    Ok((!rest.is_empty()).then(|| entry.body.len() - rest.len()))
}

/// Returns the bytes of the entries of a block before an LSN.
pub fn entries_before(entries: &[u8], lsn: u64) -> Result<usize> {
    let mut rest = entries;
    while !rest.is_empty() {
        let before = rest.len();
        if entry::take(&mut rest).ok_or_else(broken)?.lsn >= lsn {
            return Ok(entries.len() - before);
        }
    }
    Ok(entries.len())
}

/// Returns the entries of a block for an archive, whose files get numbers of the archive, and are copied.
pub fn copy_entries(
    from: &dyn Storage,
    to: &dyn Storage,
    mut entries: &[u8],
    catalog: &mut Catalog,
) -> Result<Vec<u8>> {
    let mut own = Vec::with_capacity(entries.len());
    while !entries.is_empty() {
        let entry = entry::take(&mut entries).ok_or_else(broken)?;
        let Some(at) = numbered(&entry)? else {
            entry::append(&mut own, entry.head, entry.lsn, entry.body);
            continue;
        };
        let aside = Aside::decode(&entry.body[at..]).ok_or_else(broken)?;
        let file = catalog.number();
        copy_long(from, to, &aside, file)?;
        catalog.longs.push(Long { file, lsn: entry.lsn, bytes: aside.bytes });
        let body = [&entry.body[..at], &Aside { file, ..aside }.encode()].concat();
        entry::append(&mut own, entry.head, entry.lsn, &body);
    }
    Ok(own)
}

/// Copies the file of a long entry.
fn copy_long(from: &dyn Storage, to: &dyn Storage, aside: &Aside, file: u64) -> Result<()> {
    let source = aside::verify(from, aside)?;
    let name = aside_name(file);
    let target = to.create(&format!("{name}{NEW}"), 0)?;
    // The comparison below notices a file that became shorter.
    aside::pass(&*source, 0..aside.bytes, 0, |offset, bytes| target.write(offset, bytes))?;
    finish(to, &*target, &name, (aside.bytes, aside.checksum))
}
