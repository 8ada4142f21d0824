//! Segments: files of blocks, each with the entries of one group commit or of a part of it.
//!
//! ```text
//! 0      magic, version (4 B), CRC-32C of the other bytes of this header (4 B); the pool's identity, 16 B;
//!        generation, LSN of the first entry
//! 48     milliseconds since 1970 of the last block before this segment; bytes of the directory, and their CRC-32C
//! 4096   directory: number and specification of each tree at the first LSN
//!        blocks, each at a multiple of 4096
//! ```
//!
//! Version 1 ends at byte 48 and has no directory.
//!
//! A block begins a page of its own, and its last page is padded with zeros: no write touches a page with acknowledged
//! entries.
//!
//! ```text
//! 0      magic; generation; offset of the block in the file
//! 24     LSN of its first entry; LSN up to which everything was durable when it was written
//! 40     bytes of entries (4 B), CRC-32C of the pool's identity, of the other bytes of this header and of the entries
//!        (4 B); milliseconds since 1970, at least those of the block before it; 8 B spare
//! 64     entries
//! ```

use bristlecone_pm::{Error, Result, StoredFile};

use super::manifest::Segment;
use super::mutation::{Mutation, is_mutated};
use super::trees::{Past, Trees};

/// The unit in which blocks are aligned.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a block before its entries.
pub const BLOCK_HEADER_BYTES: usize = 64;
/// Bytes of entries behind which a block ends, unless it has only one.
pub const BLOCK_BYTES: usize = 1 << 20;
const MAGIC: u64 = u64::from_le_bytes(*b"BRISTSEG");
const BLOCK_MAGIC: u64 = u64::from_le_bytes(*b"BRISTBLK");
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 72;
/// Bytes of the header of version 1.
const OLD_HEADER_BYTES: usize = 48;

/// Returns the first pages of a segment, which say what is before it.
pub fn header(uuid: u128, segment: &Segment, past: &Past) -> Vec<u8> {
    let trees = past.trees.encode();
    let words =
        [MAGIC, u64::from(VERSION), uuid as u64, (uuid >> 64) as u64, segment.generation, segment.first];
    let mut bytes = words.map(u64::to_le_bytes).concat();
    let checksum = u64::from(crc32c::crc32c(&trees));
    bytes.extend_from_slice([past.time, trees.len() as u64, checksum].map(u64::to_le_bytes).as_flattened());
    let checksum = crc32c::crc32c(&bytes);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    bytes.resize(PAGE_BYTES, 0);
    bytes.extend_from_slice(&trees);
    bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES), 0);
    bytes
}

/// Reads the header of a segment that begins with `bytes`. Returns the offset of the first block, and what is before the
/// segment, which version 1 does not say. `Err` is what is wrong: a newer version, or `None`.
pub fn read_header(
    bytes: &[u8],
    uuid: u128,
    segment: &Segment,
) -> std::result::Result<(usize, Option<Past>), Option<u32>> {
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
    let half = |at: usize| bytes.get(at..)?.first_chunk().map(|half| u32::from_le_bytes(*half));
    if word(0) != Some(MAGIC) {
        return Err(None);
    }
    let len = match half(8).ok_or(None)? {
        1 => OLD_HEADER_BYTES,
        VERSION => HEADER_BYTES,
        newer => return Err(Some(newer).filter(|version| *version > VERSION)),
    };
    let mut own = bytes.get(..len).ok_or(None)?.to_vec();
    own[12..16].fill(0);
    let expected = [uuid as u64, (uuid >> 64) as u64, segment.generation, segment.first].map(Some);
    if half(12) != Some(crc32c::crc32c(&own)) || [16, 24, 32, 40].map(word) != expected {
        return Err(None);
    }
    if len == OLD_HEADER_BYTES {
        return Ok((PAGE_BYTES, None));
    }
    let len = word(56).ok_or(None)? as usize;
    let trees = bytes.get(PAGE_BYTES..).and_then(|rest| rest.get(..len)).ok_or(None)?;
    if word(64) != Some(u64::from(crc32c::crc32c(trees))) {
        return Err(None);
    }
    let past = Past { trees: Trees::decode(trees).ok_or(None)?, time: word(48).ok_or(None)? };
    Ok(((PAGE_BYTES + len).next_multiple_of(PAGE_BYTES), Some(past)))
}

/// Returns the bytes of a block with `entries` bytes of entries.
pub fn block_bytes(entries: usize) -> usize {
    (BLOCK_HEADER_BYTES + entries).next_multiple_of(PAGE_BYTES)
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub generation: u64,
    /// Offset in the file.
    pub offset: u64,
    /// LSN of the first entry.
    pub lsn: u64,
    /// Everything before this LSN was durable before the block was written.
    pub durable: u64,
    /// Milliseconds since 1970, by the clock of the machine; at least those of the block before it.
    pub time: u64,
    /// Bytes of entries.
    pub entries: usize,
}

impl Block {
    /// Appends the block with its entries.
    pub fn append(&self, into: &mut Vec<u8>, uuid: u128, entries: &[u8]) {
        debug_assert_eq!(self.entries, entries.len());
        let start = into.len();
        let mut header = self.header();
        let checksum = checksum(uuid, &header, entries);
        header[44..48].copy_from_slice(&checksum.to_le_bytes());
        into.extend_from_slice(&header);
        into.extend_from_slice(entries);
        into.resize(start + block_bytes(entries.len()), 0);
    }

    /// Returns the header without its checksum.
    fn header(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let words = [BLOCK_MAGIC, self.generation, self.offset, self.lsn, self.durable];
        let mut header = [0; BLOCK_HEADER_BYTES];
        header[..40].copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
        header[40..44].copy_from_slice(&(self.entries as u32).to_le_bytes());
        header[48..56].copy_from_slice(&self.time.to_le_bytes());
        header
    }

    /// Returns the block at an offset of a segment's bytes, and its entries, if there is a sound one.
    fn at(bytes: &[u8], offset: usize, uuid: u128, generation: u64) -> Option<(Self, &[u8])> {
        Self::read(bytes.get(offset..)?, offset as u64, uuid, generation)
    }

    /// Returns the number of bytes of the entries of a block that begins with `bytes`, whether it is sound or not.
    pub fn entries_of(bytes: &[u8]) -> Option<usize> {
        bytes.get(40..)?.first_chunk().map(|half| u32::from_le_bytes(*half) as usize)
    }

    /// Returns the block that `bytes` begin with, at an offset of the file, and its entries, if it is a sound one.
    pub fn read(bytes: &[u8], offset: u64, uuid: u128, generation: u64) -> Option<(Self, &[u8])> {
        let header: &[u8; BLOCK_HEADER_BYTES] = bytes.first_chunk()?;
        let word = |at: usize| header[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let half = |at: usize| header[at..].first_chunk().map_or(0, |half| u32::from_le_bytes(*half));
        let block = Self {
            generation: word(8),
            offset: word(16),
            lsn: word(24),
            durable: word(32),
            time: word(48),
            entries: half(40) as usize,
        };
        let is_own = block.generation == generation || is_mutated(Mutation::GenerationUnchecked);
        if word(0) != BLOCK_MAGIC || !is_own || block.offset != offset {
            return None;
        }
        let entries = bytes.get(BLOCK_HEADER_BYTES..)?.get(..block.entries)?;
        let is_sound = half(44) == checksum(uuid, &block.header(), entries);
        (is_sound || is_mutated(Mutation::BlockUnchecked)).then_some((block, entries))
    }
}

fn checksum(uuid: u128, header: &[u8; BLOCK_HEADER_BYTES], entries: &[u8]) -> u32 {
    let own = crc32c::crc32c_append(crc32c::crc32c(&uuid.to_le_bytes()), header);
    crc32c::crc32c_append(own, entries)
}

/// The bytes of a segment.
pub struct Read<'a> {
    file: &'a dyn StoredFile,
    segment: Segment,
    uuid: u128,
    name: String,
    bytes: Vec<u8>,
    /// Offset of the first block.
    start: usize,
    past: Option<Past>,
}

fn bytes_of(file: &dyn StoredFile) -> Result<Vec<u8>> {
    let mut bytes = vec![0; file.bytes()? as usize];
    let read = file.read(0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Where the sound blocks of a segment end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Offset of the next block.
    pub offset: u64,
    /// LSN of the next entry.
    pub lsn: u64,
}

impl<'a> Read<'a> {
    /// Reads a segment, and checks its header.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`], [`Error::Newer`], and errors of the system.
    pub fn new(file: &'a dyn StoredFile, segment: Segment, uuid: u128, name: String) -> Result<Self> {
        let bytes = bytes_of(file)?;
        let (start, past) =
            read_header(&bytes, uuid, &segment).map_err(|newer| header_error(newer, &name))?;
        Ok(Self { file, segment, uuid, name, bytes, start, past })
    }

    /// Returns what is before the segment; `None` if it has version 1.
    pub fn past(&self) -> Option<&Past> {
        self.past.as_ref()
    }

    fn broken(&self, what: &str, offset: usize) -> Error {
        Error::corrupted(what, format!("byte {offset:#x} of {}", self.name))
    }

    /// Calls `visit` with each block and its entries, in order; returns where they end.
    ///
    /// In the segment that was being written, the first block that is not sound is the end: a power failure tore it
    /// before it was acknowledged. A later block that proves otherwise makes it a hole.
    ///
    /// A process may write to the segment meanwhile. What looks like a hole is then a block that was written after its
    /// part of the file was read, and before a later one: it is read again.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`] for a hole, and for a finished segment that ends early; errors of `visit`.
    pub fn blocks(mut self, mut visit: impl FnMut(&Block, &[u8]) -> Result<()>) -> Result<End> {
        let (mut offset, mut lsn) = (self.start, self.segment.first);
        let mut reads = 0;
        loop {
            let from = lsn;
            while self.segment.end.is_none_or(|end| lsn < end) {
                let sound = Block::at(&self.bytes, offset, self.uuid, self.segment.generation);
                let Some((block, entries)) = sound.filter(|(block, _)| block.lsn == lsn) else { break };
                visit(&block, entries)?;
                offset += block_bytes(entries.len());
                lsn += entries.len() as u64;
            }
            let end = End { offset: offset as u64, lsn };
            match self.segment.end {
                Some(finished) if finished == lsn => return Ok(end),
                Some(_) => return Err(self.broken("a damaged block: acknowledged changes are lost", offset)),
                None if !self.is_hole(end) || is_mutated(Mutation::HoleIsEnd) => return Ok(end),
                // The later block was there when the file was read last, and so is this one now, unless it is damaged.
                None if reads == 0 || lsn > from => {
                    self.bytes = bytes_of(self.file)?;
                    reads += 1;
                }
                None => {
                    let what = "a damaged block before sound ones: acknowledged changes are lost";
                    return Err(self.broken(what, offset));
                }
            }
        }
    }

    /// Returns whether a later block shows that entries from the end on were durable.
    fn is_hole(&self, end: End) -> bool {
        let later = (end.offset as usize..self.bytes.len()).step_by(PAGE_BYTES);
        let sound = |offset| Block::at(&self.bytes, offset, self.uuid, self.segment.generation);
        later.filter_map(sound).any(|(block, _)| block.durable > end.lsn)
    }
}

/// Returns the error for a header that cannot be read, perhaps because of a newer version.
pub fn header_error(newer: Option<u32>, name: &str) -> Error {
    match newer {
        Some(version) => Error::Newer { needs: format!("journal version {version}") },
        None => Error::corrupted("a damaged header, or another journal's", format!("byte 0x0 of {name}")),
    }
}

#[cfg(test)]
mod tests {
    use bristlecone_pm::Storage;

    use super::*;
    use crate::journal::mutation::without;
    use crate::journal::simulated::Disk;

    const UUID: u128 = 0xabcd << 64 | 7;
    const SEGMENT: Segment = Segment { file: 1, generation: 3, first: 80, end: None };

    /// A segment of blocks with the given numbers of bytes, each of a group of its own, and the blocks' offsets.
    fn segment(blocks: &[usize]) -> (Vec<u8>, Vec<usize>, u64) {
        let (mut bytes, mut offsets, mut lsn) =
            (header(UUID, &SEGMENT, &Past::default()), Vec::new(), SEGMENT.first);
        for entries in blocks {
            let offset = bytes.len() as u64;
            offsets.push(bytes.len());
            let block = Block { generation: 3, offset, lsn, durable: lsn, time: 9, entries: *entries };
            block.append(&mut bytes, UUID, &vec![0xee; *entries]);
            lsn += *entries as u64;
        }
        bytes.resize(bytes.len() + 3 * PAGE_BYTES, 0);
        (bytes, offsets, lsn)
    }

    fn end(bytes: &[u8], segment: Segment) -> Result<u64> {
        let disk = Disk::new();
        let file = disk.create("s", 0).unwrap();
        file.write(0, bytes).unwrap();
        Read::new(&*file, segment, UUID, "s".to_owned())?.blocks(|_, _| Ok(())).map(|end| end.lsn)
    }

    #[test]
    fn a_torn_tail_is_the_end_and_a_hole_is_damage() {
        let (bytes, offsets, last) = segment(&[40, 5000, 4032, 48]);
        assert_eq!(end(&bytes, SEGMENT).unwrap(), last);
        for (at, &offset) in offsets.iter().enumerate() {
            for damaged in [offset, offset + 9, offset + 30, offset + 45, offset + 70] {
                let mut bytes = bytes.clone();
                bytes[damaged] ^= 0x10;
                let found = end(&bytes, SEGMENT);
                if at == 3 {
                    assert_eq!(found.unwrap(), last - 48);
                } else {
                    assert!(matches!(found, Err(Error::Corrupted { .. })), "byte {damaged}: {found:?}");
                    let found = without(Some(Mutation::HoleIsEnd), || end(&bytes, SEGMENT));
                    assert!(found.unwrap() < last, "the mutation has no effect");
                }
            }
        }
        // The same in a finished segment.
        let finished = Segment { end: Some(last), ..SEGMENT };
        assert_eq!(end(&bytes, finished).unwrap(), last);
        assert!(matches!(end(&bytes[..offsets[3]], finished), Err(Error::Corrupted { .. })));
        assert_eq!(end(&bytes[..offsets[3]], SEGMENT).unwrap(), last - 48);
    }

    /// A file whose bytes were read before a block was written, and those behind it after a later one.
    #[test]
    fn a_block_that_is_written_while_the_file_is_read_is_no_hole() {
        let (bytes, offsets, last) = segment(&[40, 40, 40]);
        let disk = Disk::new();
        let file = disk.create("s", 0).unwrap();
        file.write(0, &bytes).unwrap();
        let mut early = bytes.clone();
        early[offsets[1]..offsets[2]].fill(0);
        let read = Read {
            file: &*file,
            segment: SEGMENT,
            uuid: UUID,
            name: String::new(),
            bytes: early,
            start: PAGE_BYTES,
            past: None,
        };
        let mut seen = Vec::new();
        let end = read.blocks(|block, _| {
            seen.push(block.lsn);
            Ok(())
        });
        assert_eq!((end.unwrap().lsn, seen), (last, vec![80, 120, 160]));
    }

    #[test]
    fn a_block_of_the_same_group_proves_nothing() {
        let (mut bytes, offsets, _) = segment(&[40, 40, 40]);
        let block =
            Block { generation: 3, offset: offsets[2] as u64, lsn: 160, durable: 120, time: 9, entries: 40 };
        bytes.truncate(offsets[2]);
        block.append(&mut bytes, UUID, &[0xee; 40]);
        assert_eq!(end(&bytes, SEGMENT).unwrap(), 200);
        bytes[offsets[1] + 100] ^= 1;
        assert_eq!(end(&bytes, SEGMENT).unwrap(), 120);
    }

    #[test]
    fn blocks_of_an_earlier_use_or_of_another_journal_do_not_count() {
        let (bytes, ..) = segment(&[40, 40]);
        let recycled = Segment { generation: 4, ..SEGMENT };
        let mut reused = bytes.clone();
        reused[..PAGE_BYTES].copy_from_slice(&header(UUID, &recycled, &Past::default()));
        assert_eq!(end(&reused, recycled).unwrap(), SEGMENT.first);
        assert!(
            without(Some(Mutation::GenerationUnchecked), || end(&reused, recycled)).unwrap() > SEGMENT.first
        );
        let mut moved = bytes.clone();
        moved.copy_within(PAGE_BYTES..2 * PAGE_BYTES, 3 * PAGE_BYTES);
        assert_eq!(end(&moved, SEGMENT).unwrap(), 160);
        let mut foreign = header(UUID + 1, &SEGMENT, &Past::default());
        foreign.extend_from_slice(&bytes[PAGE_BYTES..]);
        assert!(end(&foreign, SEGMENT).is_err());
        foreign[..PAGE_BYTES].copy_from_slice(&header(UUID, &SEGMENT, &Past::default()));
        let disk = Disk::new();
        let file = disk.create("s", 0).unwrap();
        file.write(0, &foreign).unwrap();
        let other = Read {
            file: &*file,
            segment: SEGMENT,
            uuid: UUID + 1,
            name: String::new(),
            bytes: foreign,
            start: PAGE_BYTES,
            past: None,
        };
        assert_eq!(other.blocks(|_, _| Ok(())).unwrap().lsn, SEGMENT.first);
    }

    #[test]
    fn the_bytes_are_golden() {
        let (bytes, ..) = segment(&[40]);
        assert_eq!(&bytes[..8], b"BRISTSEG");
        assert_eq!(&bytes[PAGE_BYTES..PAGE_BYTES + 8], b"BRISTBLK");
        assert_eq!(crc32c::crc32c(&bytes), 2_944_531_988, "the bytes changed: a new version is needed");
    }
}
