//! The catalog of an archive: which of its files count. A new one replaces it by a rename.
//!
//! ```text
//! 0    magic, version (4 B), CRC-32C of everything behind the checksum (4 B)
//! 16   the journal's identity and the archive's, 16 B each; the pool's chunk_bytes, chunks_max and trees_max
//! 72   number and identity (16 B) of the timeline; the LSN at which it began
//! 104  1 if it has all entries from the creation of the pool on, else 0
//! 112  number of the next file; LSN of the end; milliseconds since 1970 at which nothing behind it was durable
//! 136  number of pieces, of checkpoints and of entries' files
//! 160  pieces: file, first LSN, end, bytes, milliseconds of the block before and of the last one, CRC-32C, level, 64 B
//!      each; checkpoints: file, begin, end, bytes, milliseconds, CRC-32C, 48 B each; entries' files: file, LSN, bytes, 24 B
//! ```
//!
//! A catalog has the number of its timeline in its name: the one with the greatest number counts. A writer of an earlier
//! timeline may still replace its own, and changes nothing.

use bristlecone_pm::{Error, Geometry, Result, Storage};

use super::sums::expect_sum;
use crate::journal::manifest::{
    Checkpoint, Manifest, Segment, Timeline, aside_name, checkpoint_name, segment_name,
};
use crate::journal::mutation::{Mutation, is_mutated};

const PREFIX: &str = "archive-";
const NEW: &str = ".new";
const MAGIC: &[u8; 8] = b"BRISTARC";
const VERSION: u32 = 1;
const FIXED_WORDS: usize = 18;

/// A file of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub file: u64,
    pub first: u64,
    pub end: u64,
    pub bytes: u64,
    /// The time of the last block before it, in milliseconds since 1970.
    pub since: u64,
    /// The time of its last block.
    pub time: u64,
    pub checksum: u64,
    /// How often its entries were merged.
    pub level: u64,
}

/// A file with the items of all trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    pub checkpoint: Checkpoint,
    /// The time of the last block before its end.
    pub time: u64,
    pub checksum: u64,
}

/// The file of a long entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Long {
    pub file: u64,
    /// The LSN of the entry.
    pub lsn: u64,
    pub bytes: u64,
}

/// The contents of a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    pub uuid: u128,
    pub id: u128,
    pub geometry: Geometry,
    pub timeline: Timeline,
    /// LSN at which the timeline began.
    pub fork: u64,
    /// Whether it has all entries from the creation of the pool on, so that no checkpoint is needed.
    pub is_whole: bool,
    /// Number of the next file.
    pub next: u64,
    /// LSN behind the last entry.
    pub end: u64,
    /// When nothing behind the end was durable, in milliseconds since 1970.
    pub as_of: u64,
    pub pieces: Vec<Piece>,
    pub bases: Vec<Base>,
    pub longs: Vec<Long>,
}

/// The number of the first file of a timeline: no two timelines have files of one name.
pub fn first_file(timeline: u64) -> u64 {
    timeline << 40 | 1
}

/// Returns the name of the catalog of a timeline.
pub fn catalog_name(timeline: u64) -> String {
    format!("{PREFIX}{timeline:08}")
}

/// Returns the greatest timeline that has a catalog.
pub fn last_timeline(storage: &dyn Storage) -> Result<Option<u64>> {
    let names = storage.list()?;
    Ok(names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok()).max())
}

impl Catalog {
    fn encode(&self) -> Vec<u8> {
        let halves = |id: u128| [id as u64, (id >> 64) as u64];
        let Geometry { chunk_bytes, chunks_max, trees_max } = self.geometry;
        let mut words = [halves(self.uuid), halves(self.id)].concat();
        words.extend([chunk_bytes, chunks_max, trees_max, self.timeline.number]);
        words.extend(halves(self.timeline.id));
        words.extend([self.fork, u64::from(self.is_whole), self.next, self.end, self.as_of]);
        words.extend([self.pieces.len() as u64, self.bases.len() as u64, self.longs.len() as u64]);
        for Piece { file, first, end, bytes, since, time, checksum, level } in &self.pieces {
            words.extend([file, first, end, bytes, since, time, checksum, level]);
        }
        for Base { checkpoint: Checkpoint { file, begin, end, bytes }, time, checksum } in &self.bases {
            words.extend([file, begin, end, bytes, time, checksum]);
        }
        for Long { file, lsn, bytes } in &self.longs {
            words.extend([file, lsn, bytes]);
        }
        let body: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let checksum = crc32c::crc32c(&body).to_le_bytes();
        [&MAGIC[..], &VERSION.to_le_bytes(), &checksum, &body].concat()
    }

    fn decode(bytes: &[u8], place: &str) -> Result<Self> {
        let broken = |what: &str| Error::corrupted(what, format!("the catalog in {place}"));
        let (start, body) = bytes.split_at_checked(16).ok_or_else(|| broken("it is too short"))?;
        let half = |at: usize| start[at..].first_chunk().map_or(0, |half| u32::from_le_bytes(*half));
        if !start.starts_with(MAGIC) {
            return Err(broken("no magic number"));
        }
        if half(8) != VERSION {
            return Err(Error::Newer { needs: format!("archive version {}", half(8)) });
        }
        if half(12) != crc32c::crc32c(body) && !is_mutated(Mutation::CatalogUnchecked) {
            return Err(broken("checksum differs"));
        }
        let words: Vec<u64> = body.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (fixed, rest) = words.split_at_checked(FIXED_WORDS).ok_or_else(|| broken("it is too short"))?;
        let [pieces, bases, longs] = [fixed[15], fixed[16], fixed[17]].map(|count| count as usize);
        let parts = rest.split_at_checked(8 * pieces).and_then(|(pieces, rest)| {
            rest.split_at_checked(6 * bases).map(|(bases, rest)| (pieces, bases, rest))
        });
        let Some((pieces, bases, rest)) = parts.filter(|(_, _, rest)| rest.len() == 3 * longs) else {
            return Err(broken("another number of files"));
        };
        let id = |at: usize| u128::from(fixed[at + 1]) << 64 | u128::from(fixed[at]);
        let piece = |&[file, first, end, bytes, since, time, checksum, level]: &[u64; 8]| Piece {
            file,
            first,
            end,
            bytes,
            since,
            time,
            checksum,
            level,
        };
        let base = |&[file, begin, end, bytes, time, checksum]: &[u64; 6]| Base {
            checkpoint: Checkpoint { file, begin, end, bytes },
            time,
            checksum,
        };
        Ok(Self {
            uuid: id(0),
            id: id(2),
            geometry: Geometry { chunk_bytes: fixed[4], chunks_max: fixed[5], trees_max: fixed[6] },
            timeline: Timeline { number: fixed[7], id: id(8) },
            fork: fixed[10],
            is_whole: fixed[11] != 0,
            next: fixed[12],
            end: fixed[13],
            as_of: fixed[14],
            pieces: pieces.as_chunks().0.iter().map(piece).collect(),
            bases: bases.as_chunks().0.iter().map(base).collect(),
            longs: rest.as_chunks().0.iter().map(|&[file, lsn, bytes]| Long { file, lsn, bytes }).collect(),
        })
    }

    /// Reads the catalog that counts; returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`], [`Error::Newer`], and errors of the system.
    pub fn read(storage: &dyn Storage) -> Result<Option<Self>> {
        let Some(timeline) = last_timeline(storage)? else { return Ok(None) };
        Self::read_of(storage, timeline).map(Some)
    }

    /// Reads the catalog of a timeline.
    ///
    /// # Errors
    ///
    /// Same as [`read`](Self::read).
    pub fn read_of(storage: &dyn Storage, timeline: u64) -> Result<Self> {
        let name = catalog_name(timeline);
        let missing = || Error::corrupted("a missing file", format!("{name} in {}", storage.describe()));
        let file = storage.open(&name)?.ok_or_else(missing)?;
        let mut bytes = vec![0; file.bytes()? as usize];
        let read = file.read(0, &mut bytes)?;
        let catalog = Self::decode(&bytes[..read], &storage.describe())?;
        if catalog.timeline.number != timeline {
            return Err(Error::corrupted(
                "the catalog of another timeline",
                format!("{name} in {}", storage.describe()),
            ));
        }
        catalog.verify(&storage.describe())
    }

    /// Verifies that the pieces follow each other, and that the checkpoints have their entries.
    fn verify(self, place: &str) -> Result<Self> {
        let broken = |what: &str| Err(Error::corrupted(what, format!("the catalog in {place}")));
        let follow = self.pieces.windows(2).all(|pair| pair[0].end == pair[1].first);
        let is_end = self.pieces.last().is_none_or(|last| last.end == self.end);
        if !follow || !is_end || self.pieces.iter().any(|piece| piece.first >= piece.end) {
            return broken("pieces that do not follow each other");
        }
        let first = self.pieces.first().map_or(self.end, |first| first.first);
        let is_usable = |base: &Base| base.checkpoint.begin >= first && base.checkpoint.end <= self.end;
        if !self.bases.iter().all(is_usable) || !self.bases.is_sorted_by_key(|base| base.checkpoint.begin) {
            return broken("a checkpoint without its entries");
        }
        Ok(self)
    }

    /// Writes the catalog to a new file, syncs it, and compares it.
    fn write_new(&self, storage: &dyn Storage) -> Result<String> {
        let new = format!("{}{NEW}", catalog_name(self.timeline.number));
        let (file, bytes) = (storage.create(&new, 0)?, self.encode());
        file.write(0, &bytes)?;
        file.sync()?;
        if !is_mutated(Mutation::CatalogUncompared) {
            expect_sum(storage, &*file, &new, bytes.len() as u64, crc32c::crc32c(&bytes))?;
        }
        Ok(new)
    }

    /// Replaces the catalog of its timeline, durably. The files that it names must be durable.
    ///
    /// # Errors
    ///
    /// Errors of the system. Either catalog may count then.
    pub fn write(&self, storage: &dyn Storage) -> Result<()> {
        if is_mutated(Mutation::CatalogInPlace)
            && let Some(file) = storage.open(&catalog_name(self.timeline.number))?
        {
            file.write(0, &self.encode())?;
            return file.sync();
        }
        let new = self.write_new(storage)?;
        // The names of the files, before the catalog says that they count.
        storage.sync()?;
        storage.rename(&new, &catalog_name(self.timeline.number))?;
        storage.sync()
    }

    /// Writes the first catalog of its timeline, durably; returns whether it is this one.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    pub fn claim(&self, storage: &dyn Storage) -> Result<bool> {
        let new = self.write_new(storage)?;
        let name = catalog_name(self.timeline.number);
        let claimed = match is_mutated(Mutation::ClaimReplaces) {
            true => storage.rename(&new, &name).map(|()| true)?,
            false => storage.rename_new(&new, &name)?,
        };
        if !claimed {
            storage.remove(&new)?;
        }
        storage.sync()?;
        Ok(claimed)
    }

    /// Returns an error if the archive continues another timeline.
    ///
    /// # Errors
    ///
    /// [`Error::Fenced`], and errors of the system.
    pub fn expect_own(&self, storage: &dyn Storage) -> Result<()> {
        match last_timeline(storage)? {
            Some(timeline) if timeline > self.timeline.number && !is_mutated(Mutation::FenceIgnored) => {
                Err(Error::Fenced { place: storage.describe(), timeline })
            }
            _ => Ok(()),
        }
    }

    /// Returns a number for a file.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Returns the first LSN, from which on there are entries.
    pub fn first(&self) -> u64 {
        self.pieces.first().map_or(self.end, |first| first.first)
    }

    /// Returns the bytes of all files.
    pub fn bytes(&self) -> u64 {
        let pieces = self.pieces.iter().map(|piece| piece.bytes);
        let bases = self.bases.iter().map(|base| base.checkpoint.bytes);
        pieces.chain(bases).chain(self.longs.iter().map(|long| long.bytes)).sum()
    }

    /// Returns the names of all files that it names.
    pub fn names(&self) -> Vec<String> {
        let pieces = self.pieces.iter().map(|piece| segment_name(piece.file));
        let bases = self.bases.iter().map(|base| checkpoint_name(base.checkpoint.file));
        pieces.chain(bases).chain(self.longs.iter().map(|long| aside_name(long.file))).collect()
    }

    /// Returns a manifest of a journal with the pieces, and a checkpoint.
    pub fn manifest(&self, checkpoint: Option<Checkpoint>) -> Manifest {
        let segment = |piece: &Piece| Segment {
            file: piece.file,
            generation: piece.file,
            first: piece.first,
            end: Some(piece.end),
        };
        Manifest {
            uuid: self.uuid,
            pool: self.uuid,
            geometry: self.geometry,
            next: self.next,
            closed: 0,
            checkpoint,
            kept: self.first(),
            timeline: self.timeline,
            segments: self.pieces.iter().map(segment).collect(),
            spare: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::simulated::Disk;

    fn some() -> Catalog {
        let piece = |file, first, end| Piece {
            file,
            first,
            end,
            bytes: 8192,
            since: 3,
            time: 4,
            checksum: 5,
            level: 1,
        };
        Catalog {
            uuid: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
            id: 7 << 64 | 9,
            geometry: Geometry { chunk_bytes: 4096, chunks_max: 77, trees_max: 256 },
            timeline: Timeline { number: 2, id: 1 << 70 },
            fork: 40,
            is_whole: false,
            next: 12,
            end: 200,
            as_of: 10,
            pieces: vec![piece(1, 40, 80), piece(3, 80, 200)],
            bases: vec![Base {
                checkpoint: Checkpoint { file: 2, begin: 48, end: 96, bytes: 500 },
                time: 6,
                checksum: 11,
            }],
            longs: vec![Long { file: 4, lsn: 88, bytes: 1 << 33 }],
        }
    }

    #[test]
    fn it_round_trips_and_is_golden() {
        let (catalog, disk) = (some(), Disk::new());
        assert_eq!(Catalog::read(&disk).unwrap(), None);
        assert!(catalog.claim(&disk).unwrap() && !catalog.claim(&disk).unwrap());
        catalog.write(&disk).unwrap();
        assert_eq!(Catalog::read(&disk).unwrap(), Some(catalog.clone()));
        let bytes = catalog.encode();
        assert_eq!((&bytes[..12], bytes.len()), (&b"BRISTARC\x01\0\0\0"[..], 16 + 8 * (18 + 16 + 6 + 3)));
        assert_eq!(crc32c::crc32c(&bytes), 282_651_090, "the bytes changed: a new version is needed");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(Catalog::decode(&damaged, "").is_err(), "byte {at}");
            assert!(Catalog::decode(&bytes[..at], "").is_err(), "{at} bytes");
        }
        // Another timeline counts from now on.
        catalog.expect_own(&disk).unwrap();
        let next = Catalog { timeline: Timeline { number: 3, id: 5 }, ..some() };
        assert!(next.claim(&disk).unwrap());
        catalog.write(&disk).unwrap();
        assert_eq!(Catalog::read(&disk).unwrap().unwrap().timeline.number, 3);
        assert!(matches!(catalog.expect_own(&disk), Err(Error::Fenced { timeline: 3, .. })));
    }

    #[test]
    fn pieces_that_do_not_follow_each_other_are_damage() {
        let wrong = [
            |catalog: &mut Catalog| catalog.pieces[1].first = 88,
            |catalog: &mut Catalog| _ = catalog.pieces.remove(1),
            |catalog: &mut Catalog| catalog.pieces.swap(0, 1),
            |catalog: &mut Catalog| catalog.bases[0].checkpoint.end = 208,
            |catalog: &mut Catalog| catalog.bases[0].checkpoint.begin = 32,
        ];
        some().verify("").unwrap();
        for change in wrong {
            let mut catalog = some();
            change(&mut catalog);
            assert!(matches!(catalog.verify(""), Err(Error::Corrupted { .. })));
        }
    }
}
