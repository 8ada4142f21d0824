//! The manifest: which files belong to a journal, and which of their bytes count. A new one replaces it by a rename.
//!
//! ```text
//! 0    magic, version, CRC-32C of everything behind the checksum
//! 16   the journal's identity, 16 B: that of the pool at whose creation it began; its chunk_bytes, chunks_max and trees_max
//! 56   number of the next file
//! 64   number of the superblock's change by which the last close marked the pool, or 0 (bits 0-62); bit 63: the
//!      superblock of the pool may still name another domain
//! 72   the checkpoint: its file, LSNs of its begin and end, bytes; all ones for none
//! 104  number of segments, number of spare files
//! 112  LSN from which on entries are kept; number and identity (16 B) of the timeline; identity of the pool, 16 B
//! 160  segments: file, generation, LSN of the first entry, end (all ones: open), 32 B each; then numbers of spare files
//! ```
//!
//! Version 1 has segments at byte 112.

use bristlecone_pm::{Error, Geometry, Result, Storage};

use super::mutation::{Mutation, is_mutated};

/// Name of the manifest.
pub const NAME: &str = "manifest";
const NEW: &str = "manifest.new";
const MAGIC: &[u8; 8] = b"BRISTJMF";
const VERSION: u32 = 2;
/// Words before the segments, behind the checksum, in versions 1 and 2.
const FIXED_WORDS: [usize; 2] = [12, 18];
const SEGMENT_WORDS: usize = 4;
const NONE: u64 = u64::MAX;
/// Set in the number of the last close while the pool may still have another domain.
pub const ADOPTING: u64 = 1 << 63;

/// A file of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of the file.
    pub file: u64,
    /// A number that no other use of the file has.
    pub generation: u64,
    /// LSN of the first entry.
    pub first: u64,
    /// LSN behind the last entry; `None` for the segment that is being written.
    pub end: Option<u64>,
}

/// A file with the items of all trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub file: u64,
    /// Entries from here on may be missing in it.
    pub begin: u64,
    /// Entries up to here must be replayed for a state that existed.
    pub end: u64,
    pub bytes: u64,
}

/// Whose entries a journal has: the copy of a pool that takes over as the writer begins a timeline of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// 0 for that of the pool's creation, and one more for each copy that took over.
    pub number: u64,
    /// A random number of that copy, or 0.
    pub id: u128,
}

/// The contents of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The identity of the journal, which its files have.
    pub uuid: u128,
    /// The identity of the pool: that of the journal, unless it is a copy that took over.
    pub pool: u128,
    pub geometry: Geometry,
    /// The number of the next file, and the next generation.
    pub next: u64,
    /// The change of the superblock that marks the pool as closed, from its last close on.
    pub closed: u64,
    pub checkpoint: Option<Checkpoint>,
    /// Entries from this LSN on are kept: for the checkpoint, and for cursors.
    pub kept: u64,
    pub timeline: Timeline,
    pub segments: Vec<Segment>,
    /// Files of former segments, for the next ones.
    pub spare: Vec<u64>,
}

/// Returns the name of the file of a segment.
pub fn segment_name(file: u64) -> String {
    format!("segment-{file:08}")
}

/// Returns the name of the file of a checkpoint.
pub fn checkpoint_name(file: u64) -> String {
    format!("checkpoint-{file:08}")
}

/// Returns the name of the file of an entry's body.
pub fn aside_name(file: u64) -> String {
    format!("entry-{file:08}")
}

impl Manifest {
    /// Records the change of the superblock that closes the pool.
    pub fn note_close(&mut self, sequence: u64) {
        self.closed = sequence | self.closed & ADOPTING;
    }

    /// Returns whether the pool is still being given this journal: it has not got all of its items.
    pub fn is_unfinished(&self) -> bool {
        self.closed == ADOPTING
    }

    /// Returns whether a change of the superblock was that of the last close.
    pub fn is_closed_by(&self, sequence: u64) -> bool {
        self.closed & !ADOPTING == sequence
    }

    /// Returns a number for a file, or a generation, that was not used before.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    fn encode(&self) -> Vec<u8> {
        let (words, mut bytes) = (self.words(), Vec::new());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let body: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    fn words(&self) -> Vec<u64> {
        let Geometry { chunk_bytes, chunks_max, trees_max } = self.geometry;
        let mut words = vec![self.uuid as u64, (self.uuid >> 64) as u64, chunk_bytes, chunks_max, trees_max];
        words.extend([self.next, self.closed]);
        words.extend(match self.checkpoint {
            Some(Checkpoint { file, begin, end, bytes }) => [file, begin, end, bytes],
            None => [NONE; 4],
        });
        words.push(self.segments.len() as u64 | (self.spare.len() as u64) << 32);
        let Timeline { number, id } = self.timeline;
        words.extend([self.kept, number, id as u64, (id >> 64) as u64]);
        words.extend([self.pool as u64, (self.pool >> 64) as u64]);
        for Segment { file, generation, first, end } in &self.segments {
            words.extend([*file, *generation, *first, end.unwrap_or(NONE)]);
        }
        words.extend(&self.spare);
        words
    }

    fn decode(bytes: &[u8], place: &str) -> Result<Self> {
        let broken = |what: &str| Error::corrupted(what, format!("the manifest in {place}"));
        let (start, body) = bytes.split_at_checked(16).ok_or_else(|| broken("it is too short"))?;
        if !start.starts_with(MAGIC) {
            return Err(broken("no magic number"));
        }
        let half = |at: usize| start[at..].first_chunk().map_or(0, |half| u32::from_le_bytes(*half));
        let is_sound = half(12) == crc32c::crc32c(body) || is_mutated(Mutation::ManifestUnchecked);
        let Some(fixed_words) =
            (half(8) as usize).checked_sub(1).and_then(|version| FIXED_WORDS.get(version))
        else {
            return Err(Error::Newer { needs: format!("journal version {}", half(8)) });
        };
        if !is_sound {
            return Err(broken("checksum differs"));
        }
        let words: Vec<u64> = body.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let (fixed, rest) = words.split_at_checked(*fixed_words).ok_or_else(|| broken("it is too short"))?;
        let (segments, spare) = (fixed[11] as u32 as usize, (fixed[11] >> 32) as usize);
        let (segments, spare) = match rest.split_at_checked(segments * SEGMENT_WORDS) {
            Some((segments, rest)) if rest.len() == spare => (segments, rest),
            _ => return Err(broken("another number of files")),
        };
        let some = |word: u64| (word != NONE).then_some(word);
        let begin = some(fixed[7]).map_or(0, |_| fixed[8]);
        let uuid = u128::from(fixed[1]) << 64 | u128::from(fixed[0]);
        let (kept, timeline, pool) = match fixed {
            &[.., kept, number, id, high, pool, pool_high] if fixed.len() == FIXED_WORDS[1] => {
                let id = u128::from(high) << 64 | u128::from(id);
                (kept, Timeline { number, id }, u128::from(pool_high) << 64 | u128::from(pool))
            }
            _ => (begin, Timeline::default(), uuid),
        };
        Ok(Self {
            kept,
            timeline,
            uuid,
            pool,
            geometry: Geometry { chunk_bytes: fixed[2], chunks_max: fixed[3], trees_max: fixed[4] },
            next: fixed[5],
            closed: fixed[6],
            checkpoint: some(fixed[7]).map(|file| Checkpoint {
                file,
                begin: fixed[8],
                end: fixed[9],
                bytes: fixed[10],
            }),
            segments: segments
                .as_chunks::<SEGMENT_WORDS>()
                .0
                .iter()
                .map(|&[file, generation, first, end]| Segment { file, generation, first, end: some(end) })
                .collect(),
            spare: spare.to_vec(),
        })
    }

    /// Reads the manifest of a folder; returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`], [`Error::Newer`], and errors of the system.
    pub fn read(storage: &dyn Storage) -> Result<Option<Self>> {
        let Some(file) = storage.open(NAME)? else { return Ok(None) };
        let mut bytes = vec![0; file.bytes()? as usize];
        let read = file.read(0, &mut bytes)?;
        Self::decode(&bytes[..read], &storage.describe()).map(Some)
    }

    /// Replaces the manifest, durably.
    ///
    /// 1. A new file is written and synced. *After a crash it is removed, or replaced.*
    /// 2. It gets the name of the old one; the folder is synced. *After a crash one of both has the name, complete.*
    ///
    /// # Errors
    ///
    /// Errors of the system. Either manifest may count then.
    pub fn write(&self, storage: &dyn Storage) -> Result<()> {
        let bytes = self.encode();
        let file = storage.create(NEW, 0)?;
        file.write(0, &bytes)?;
        file.sync()?;
        storage.rename(NEW, NAME)?;
        storage.sync()
    }

    /// Returns whether a file of the folder belongs to the journal, or is none of it.
    pub fn has(&self, name: &str) -> bool {
        let numbered = |prefix: &str| name.strip_prefix(prefix).and_then(|number| number.parse::<u64>().ok());
        if let Some(file) = numbered("segment-") {
            return self.segments.iter().any(|segment| segment.file == file) || self.spare.contains(&file);
        }
        if let Some(file) = numbered("checkpoint-") {
            return self.checkpoint.is_some_and(|checkpoint| checkpoint.file == file);
        }
        name != NEW
    }

    /// Ends the journal at an LSN, with which a block begins.
    pub fn truncate(&mut self, lsn: u64) {
        let (kept, dropped): (Vec<_>, Vec<_>) =
            self.segments.drain(..).partition(|segment| segment.first < lsn);
        self.segments = kept;
        self.spare.extend(dropped.into_iter().map(|segment| segment.file));
        self.segments.last_mut().into_iter().for_each(|last| last.end = Some(lsn));
    }

    /// Returns the number of segments with entries that must be replayed.
    pub fn segments_to_replay(&self) -> u64 {
        let begin = self.begin();
        self.segments.iter().filter(|segment| segment.end.is_none_or(|end| end > begin)).count() as u64
    }

    /// Returns whether a segment has only entries before an LSN.
    pub fn has_before(&self, lsn: u64) -> bool {
        self.segments.iter().any(|segment| segment.end.is_some_and(|end| end <= lsn))
    }

    /// Returns the LSN from which on `most` segments are enough that are kept for cursors only.
    pub fn pinned_from(&self, most: u64) -> u64 {
        let begin = self.begin();
        let ends = self.segments.iter().filter_map(|segment| segment.end).filter(|end| *end <= begin);
        ends.rev().nth(usize::try_from(most).unwrap_or(usize::MAX)).unwrap_or(0)
    }

    /// Returns the number of segments that are kept only for entries from an LSN on, which a cursor needs.
    pub fn segments_pinned(&self, lsn: u64) -> u64 {
        let begin = self.begin();
        self.segments
            .iter()
            .filter(|segment| segment.end.is_some_and(|end| end > lsn && end <= begin))
            .count() as u64
    }

    /// Returns the LSN from which on entries must be replayed.
    pub fn begin(&self) -> u64 {
        self.checkpoint.map_or(0, |checkpoint| checkpoint.begin)
    }
}

/// Reads the manifest of a folder, which must have one.
///
/// # Errors
///
/// Same as [`Manifest::read`].
pub fn read_manifest(storage: &dyn Storage) -> Result<Manifest> {
    let place = || format!("the journal in {}", storage.describe());
    Manifest::read(storage)?.ok_or_else(|| Error::corrupted("the manifest is missing", place()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::mutation::without;
    use crate::journal::simulated::Disk;

    fn some() -> Manifest {
        Manifest {
            uuid: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
            pool: 0x21_2223_2425_2627_282a,
            geometry: Geometry { chunk_bytes: 4096, chunks_max: 77, trees_max: 256 },
            next: 9,
            closed: 4,
            checkpoint: Some(Checkpoint { file: 3, begin: 80, end: 160, bytes: 4096 }),
            kept: 48,
            timeline: Timeline { number: 2, id: 0x1112_1314_1516_1718_191a_1b1c_1d1e_1f20 },
            segments: vec![
                Segment { file: 1, generation: 2, first: 40, end: Some(200) },
                Segment { file: 4, generation: 5, first: 200, end: None },
            ],
            spare: vec![7],
        }
    }

    #[test]
    fn it_round_trips_and_is_golden() {
        let (manifest, disk) = (some(), Disk::new());
        assert_eq!(Manifest::read(&disk).unwrap(), None);
        manifest.write(&disk).unwrap();
        assert_eq!(Manifest::read(&disk).unwrap(), Some(manifest.clone()));
        let bytes = manifest.encode();
        assert_eq!(bytes.len(), 16 + 8 * (FIXED_WORDS[1] + 2 * SEGMENT_WORDS + 1));
        assert_eq!(&bytes[..12], b"BRISTJMF\x02\0\0\0");
        assert_eq!(crc32c::crc32c(&bytes), 3_374_722_510, "the bytes changed: a new version is needed");
        let none = Manifest { checkpoint: None, segments: vec![], spare: vec![], ..manifest };
        assert_eq!(Manifest::decode(&none.encode(), "").unwrap(), none);
    }

    impl Manifest {
        /// Returns the bytes of version 1.
        pub fn encode_old(&self) -> Vec<u8> {
            let mut words = self.words();
            words.drain(FIXED_WORDS[0]..FIXED_WORDS[1]);
            let body: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            let checksum = crc32c::crc32c(&body).to_le_bytes();
            [&MAGIC[..], &1_u32.to_le_bytes(), &checksum, &body].concat()
        }
    }

    #[test]
    fn version_1_is_read() {
        let bytes = some().encode_old();
        assert_eq!(crc32c::crc32c(&bytes), 257_938_155, "no version 1");
        let read = Manifest { kept: 80, timeline: Timeline::default(), pool: some().uuid, ..some() };
        assert_eq!(Manifest::decode(&bytes, "").unwrap(), read);
        let mut newer = bytes;
        newer[8] = 3;
        assert!(matches!(Manifest::decode(&newer, ""), Err(Error::Newer { .. })));
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = some().encode();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(Manifest::decode(&damaged, "").is_err(), "byte {at}");
            assert!(Manifest::decode(&bytes[..at], "").is_err(), "{at} bytes");
        }
        // The last byte is one of a file's number.
        let mut damaged = bytes;
        *damaged.last_mut().unwrap() ^= 4;
        let found = without(Some(Mutation::ManifestUnchecked), || Manifest::decode(&damaged, ""));
        assert_ne!(found.unwrap(), some());
    }

    #[test]
    fn files_are_known_by_their_names() {
        let manifest = some();
        let known =
            ["segment-00000001", "segment-00000007", "checkpoint-00000003", "manifest", "ring", "notes.txt"];
        known.iter().for_each(|name| assert!(manifest.has(name), "{name}"));
        ["segment-00000002", "checkpoint-00000001", "manifest.new"]
            .iter()
            .for_each(|name| assert!(!manifest.has(name), "{name}"));
    }
}
