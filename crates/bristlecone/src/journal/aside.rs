//! Bodies of entries that are too long for the ring: files of their own, durable before the entry exists.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{Error, Result, Storage, StoredFile};

use super::entry::Aside;
use super::manifest::aside_name;

/// The files, with the LSN of the entry that names each; `None` while it does not exist.
#[derive(Debug, Default)]
pub struct Asides(Mutex<(u64, BTreeMap<u64, Option<u64>>)>);

impl Asides {
    /// Returns the files of a folder, whose entries lie before this process.
    pub fn of(storage: &dyn Storage) -> Result<Self> {
        let numbers =
            storage.list()?.into_iter().filter_map(|name| name.strip_prefix("entry-")?.parse::<u64>().ok());
        let files: BTreeMap<u64, Option<u64>> = numbers.map(|number| (number, Some(0))).collect();
        let next = files.last_key_value().map_or(1, |(last, _)| last + 1);
        Ok(Self(Mutex::new((next, files))))
    }

    /// Reserves a file.
    pub fn number(&self) -> u64 {
        let (next, files) = &mut *lock(&self.0);
        *next += 1;
        files.insert(*next - 1, None);
        *next - 1
    }

    /// Writes a body to a file of its own, durably.
    pub fn write(&self, storage: &dyn Storage, body: &[u8]) -> Result<Aside> {
        let file = self.number();
        let written = storage.create(&aside_name(file), 0).and_then(|to| {
            to.write(0, body)?;
            to.sync()?;
            storage.sync()
        });
        if let Err(error) = written {
            self.drop_file(storage, file);
            return Err(error);
        }
        Ok(Aside { file, bytes: body.len() as u64, checksum: crc32c::crc32c(body) })
    }

    /// Records which entry names a file.
    pub fn note(&self, file: u64, lsn: u64) {
        lock(&self.0).1.insert(file, Some(lsn));
    }

    /// Removes a file that no entry names. A failure leaves it to the next checkpoint.
    pub fn drop_file(&self, storage: &dyn Storage, file: u64) {
        if storage.remove(&aside_name(file)).is_ok() {
            lock(&self.0).1.remove(&file);
        } else {
            self.note(file, 0);
        }
    }

    /// Removes the files of entries before an LSN.
    pub fn drop_before(&self, storage: &dyn Storage, lsn: u64) {
        let files = lock(&self.0).1.clone();
        for file in files.into_iter().filter(|(_, of)| of.is_some_and(|of| of < lsn)).map(|(file, _)| file) {
            self.drop_file(storage, file);
        }
    }
}

/// Reads a body.
///
/// # Errors
///
/// [`Error::Corrupted`] for a missing or damaged file, and errors of the system.
pub fn read(storage: &dyn Storage, aside: &Aside) -> Result<Vec<u8>> {
    let name = aside_name(aside.file);
    let broken = |what: &str| Error::corrupted(what, format!("{name} in {}", storage.describe()));
    let file = storage.open(&name)?.ok_or_else(|| broken("a missing file"))?;
    let mut body = vec![0; aside.bytes as usize];
    let read = file.read(0, &mut body)?;
    if read < body.len() || crc32c::crc32c(&body) != aside.checksum {
        return Err(broken("a damaged file"));
    }
    Ok(body)
}

/// Opens the file of a body, and compares its checksum, without holding all of it in memory.
///
/// # Errors
///
/// Same as [`read`].
pub fn verify(storage: &dyn Storage, aside: &Aside) -> Result<Arc<dyn StoredFile>> {
    let name = aside_name(aside.file);
    let broken = |what: &str| Error::corrupted(what, format!("{name} in {}", storage.describe()));
    let file = storage.open(&name)?.ok_or_else(|| broken("a missing file"))?;
    let (read, checksum) = pass(&*file, 0..aside.bytes, 0, |_, _| Ok(()))?;
    let is_whole = (read, checksum) == (aside.bytes, aside.checksum);
    if is_whole { Ok(file) } else { Err(broken("a damaged file")) }
}

/// Calls `visit` with the bytes of a file in a range, piece by piece, each with its offset. Returns the offset at which the
/// range or the file ends, and the continued checksum.
///
/// # Errors
///
/// Errors of `visit`, and of the system.
pub fn pass(
    file: &dyn StoredFile,
    range: Range<u64>,
    mut checksum: u32,
    mut visit: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<(u64, u32)> {
    let mut piece = vec![0; (range.end - range.start).min(PIECE_BYTES as u64) as usize];
    let mut offset = range.start;
    while offset < range.end {
        let wanted = (range.end - offset).min(PIECE_BYTES as u64) as usize;
        let read = file.read(offset, &mut piece[..wanted])?;
        checksum = crc32c::crc32c_append(checksum, &piece[..read]);
        visit(offset, &piece[..read])?;
        offset += read as u64;
        if read < wanted {
            break;
        }
    }
    Ok((offset, checksum))
}

/// A body that is written piece by piece.
pub struct Items<'a> {
    journal: &'a super::Journal,
    number: u64,
    file: Arc<dyn StoredFile>,
    bytes: u64,
    checksum: u32,
    buffer: Vec<u8>,
}

/// Bytes of a piece.
const PIECE_BYTES: usize = 1 << 20;

impl super::Journal {
    /// Begins the file with the items of a new tree.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`], [`Error::MediumFull`], and errors of the system.
    pub fn begin_items(&self) -> Result<Items<'_>> {
        self.health()?;
        let number = self.asides.number();
        let file = self.storage.create(&aside_name(number), 0);
        let file = file.inspect_err(|_| self.asides.drop_file(&*self.storage, number))?;
        Ok(Items { journal: self, number, file, bytes: 0, checksum: 0, buffer: Vec::new() })
    }

    /// Records which entry names a file of items; `None` if there is none.
    pub fn note_items(&self, aside: &Aside, lsn: Option<u64>) {
        match lsn {
            Some(lsn) => self.asides.note(aside.file, lsn),
            None => self.asides.drop_file(&*self.storage, aside.file),
        }
    }
}

impl Items<'_> {
    /// Appends items.
    pub fn push(&mut self, append: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        append(&mut self.buffer);
        if self.buffer.len() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write(self.bytes, &self.buffer)?;
        self.checksum = crc32c::crc32c_append(self.checksum, &self.buffer);
        self.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes the file durable.
    pub fn finish(mut self) -> Result<Aside> {
        self.flush()?;
        self.file.sync()?;
        self.journal.storage.sync()?;
        let aside = Aside { file: self.number, bytes: self.bytes, checksum: self.checksum };
        // Not removed: it is complete.
        self.number = 0;
        Ok(aside)
    }
}

impl Drop for Items<'_> {
    fn drop(&mut self) {
        if self.number != 0 {
            self.journal.asides.drop_file(&*self.journal.storage, self.number);
        }
    }
}
