//! The layout of a pool file. `docs/format.md` draws it.
//!
//! ```text
//! 0        superblock, copy 0      4096     superblock, copy 1
//! 2048     intent
//! 8192     tree directory          trees_max entries of 256 B
//!          chunk descriptors       chunks_max words
//! header   chunks                  chunk_bytes each; the header is padded to a chunk
//! ```

use std::fmt;
use std::mem::offset_of;
use std::num::NonZeroU8;

use crate::word::le_bytes;
use crate::{Persistent, Word};

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"BRISTLEC");
pub(crate) const VERSION: u64 = 1;
/// Logs whose entries have checks: set in every pool that was opened for writing since they exist.
pub(crate) const INCOMPAT_LOG_CHECKS: u64 = 1;
/// A change of the directory is in progress, and the [`Intent`] describes it. Set only during the change.
pub(crate) const INCOMPAT_INTENT: u64 = 1 << 1;
/// The pool has a commit log, and chunks of owner [`COMMITS_OWNER`]: set from the first batch until the pool is closed,
/// or opened after a crash.
pub(crate) const INCOMPAT_COMMITS: u64 = 1 << 2;
/// The directory has pages, chunks of the owners from [`page_owner`] on: set from the first tree for which the header has
/// no entry.
pub(crate) const INCOMPAT_PAGES: u64 = 1 << 3;
/// The pool has a journal, without which its file may be worthless: set from its creation on, with the domain.
pub(crate) const INCOMPAT_JOURNAL: u64 = 1 << 4;
/// Incompatible features that are set or cleared after creation.
pub(crate) const INCOMPAT_CHANGING: u64 = INCOMPAT_INTENT | INCOMPAT_COMMITS | INCOMPAT_PAGES;
/// Incompatible features that this version knows.
pub(crate) const INCOMPAT_KNOWN: u64 = INCOMPAT_LOG_CHECKS | INCOMPAT_JOURNAL | INCOMPAT_CHANGING;
/// Features without which the pool may be read but not written that this version knows.
pub(crate) const RO_COMPAT_KNOWN: u64 = 0;

pub(crate) const SUPERBLOCK_STRIDE: u64 = 4096;
pub(crate) const INTENT_OFFSET: u64 = 2048;
pub(crate) const DIRECTORY_OFFSET: u64 = 2 * SUPERBLOCK_STRIDE;
pub(crate) const NAME_BYTES_MAX: usize = 64;
pub(crate) const KIND_BYTES_MAX: usize = 48;
pub(crate) const PARAMS: usize = 8;

/// One copy of the superblock: of [`Word`]s on the medium, of numbers once they are loaded. Of two valid copies the one
/// with the higher sequence counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Superblock<W> {
    /// [`MAGIC`]: any other file is refused before its contents are trusted.
    pub magic: W,
    /// [`VERSION`]: a version that changes the meaning of bytes has another number, which earlier ones refuse.
    pub version: W,
    /// Features that every version may ignore. None exist.
    pub compat: W,
    /// Features without which a pool cannot even be read: [`INCOMPAT_KNOWN`].
    pub incompat: W,
    /// Features without which a pool can be read, but not written: [`RO_COMPAT_KNOWN`].
    pub ro_compat: W,
    /// The pool's identity, chosen at creation. It detects a copy of another pool's superblock.
    pub uuid: [W; 2],
    /// Bytes of a chunk, on which every offset depends.
    pub chunk_bytes: W,
    /// Maximum number of chunks. As many descriptors precede the first one.
    pub chunks_max: W,
    /// Entries of the directory: the descriptors begin behind them.
    pub trees_max: W,
    /// Number of writes: the newer copy has the higher one, and its lowest bit is the number of the copy.
    pub sequence: W,
    /// Bits 0-7: the domain last used, which a reader adopts; bit 8: closed cleanly.
    pub state: W,
    /// CRC-32C of all words before it: a copy torn by a crash does not count.
    pub checksum: W,
}

impl<W> Superblock<W> {
    /// Calls `f` with every word in the order of the medium, and returns the results.
    pub fn each<V>(&self, mut f: impl FnMut(&W) -> V) -> Superblock<V> {
        // Fields are evaluated in the order in which they are written.
        Superblock {
            magic: f(&self.magic),
            version: f(&self.version),
            compat: f(&self.compat),
            incompat: f(&self.incompat),
            ro_compat: f(&self.ro_compat),
            uuid: [f(&self.uuid[0]), f(&self.uuid[1])],
            chunk_bytes: f(&self.chunk_bytes),
            chunks_max: f(&self.chunks_max),
            trees_max: f(&self.trees_max),
            sequence: f(&self.sequence),
            state: f(&self.state),
            checksum: f(&self.checksum),
        }
    }
}

impl Superblock<u64> {
    /// Returns the superblock of these words, in the order of the medium.
    pub fn from_words(words: [u64; SUPERBLOCK_WORDS]) -> Self {
        let mut words = words.into_iter();
        Self::default().each(|_| words.next().unwrap_or_default())
    }

    /// Returns the words in the order of the medium.
    pub fn words(&self) -> [u64; SUPERBLOCK_WORDS] {
        let (mut words, mut at) = ([0; SUPERBLOCK_WORDS], 0);
        self.each(|word| {
            words[at] = *word;
            at += 1;
        });
        words
    }

    /// Returns the checksum of the other words.
    pub fn expected_checksum(&self) -> u64 {
        let bytes: [u8; offset_of!(Superblock<Word>, checksum)] = le_bytes(&self.words());
        crc32c::crc32c(&bytes).into()
    }

    /// Returns the superblock with a valid checksum.
    pub fn sealed(self) -> Self {
        Self { checksum: self.expected_checksum(), ..self }
    }
}

/// A change of the directory that a single word cannot commit. It counts while [`INCOMPAT_INTENT`] is set.
#[repr(C)]
pub(crate) struct Intent {
    /// Bits 0-31: the directory entry that is changed; bits 32-63: the entry that replaces it, or all ones for a
    /// rename.
    pub entries: Word,
    /// The entry's new design word, lengths and name; zero if another entry replaces it.
    pub design: Word,
    pub lengths: Word,
    pub name: [Word; NAME_BYTES_MAX / 8],
    /// CRC-32C of all words before it.
    pub checksum: Word,
}

/// The owner in the descriptors of the commit log's chunks; not an index of the directory.
pub(crate) const COMMITS_OWNER: u32 = 0xff_ffff;

/// Minimum size of a chunk.
pub(crate) const CHUNK_BYTES_LEAST: u64 = 4096;

/// Maximum number of trees of a pool, in the header and in the pages of its directory.
pub(crate) const TREES_LIMIT: u64 = 1 << 16;

/// Returns the owner, in its descriptor, of the chunk that is page `page` of the directory. Owners that are trees are
/// less than [`TREES_LIMIT`].
pub(crate) fn page_owner(page: usize) -> u32 {
    COMMITS_OWNER - 1 - page as u32
}

/// Returns the directory page that a chunk with this owner is.
pub(crate) fn page_of_owner(owner: u32) -> Option<usize> {
    let page = (COMMITS_OWNER - 1).checked_sub(owner)? as usize;
    (page < PAGES_LIMIT).then_some(page)
}

/// Maximum number of directory pages, in a pool with the smallest chunks.
pub(crate) const PAGES_LIMIT: usize = (TREES_LIMIT * ENTRY_BYTES / CHUNK_BYTES_LEAST) as usize;

/// Header of a part of a commit record, in a slot of [`SlotKind::COMMITS`]; its bytes follow. An incomplete record does
/// not count: each part has a checksum and the number of parts.
#[repr(C)]
pub(crate) struct PartHeader {
    /// Number of the record, from 1 on; zero: no record, or it is done.
    pub sequence: Word,
    /// Bits 0-31: index of the part; bits 32-63: number of parts.
    pub part: Word,
    /// Bytes that follow.
    pub bytes: Word,
    /// CRC-32C of the words before it and of the bytes.
    pub checksum: Word,
}

/// One named tree.
#[repr(C)]
pub(crate) struct Entry {
    /// The commit word: [`ENTRY_FREE`], [`ENTRY_LIVE`] or [`ENTRY_DROPPING`].
    pub state: Word,
    /// Bits 0-31: design; bits 32-63: CRC-32C of the design and of the words up to `root`.
    pub design: Word,
    pub params: [Word; PARAMS],
    /// Lengths of name (bits 0-7), key kind (8-15) and value kind (16-23); [`INITIALIZED`].
    pub lengths: Word,
    pub name: [Word; NAME_BYTES_MAX / 8],
    pub key_kind: [Word; KIND_BYTES_MAX / 8],
    pub value_kind: [Word; KIND_BYTES_MAX / 8],
    /// The design's own anchor; zero if it needs none.
    pub root: Word,
}

pub(crate) const ENTRY_FREE: u64 = 0;
pub(crate) const ENTRY_LIVE: u64 = 1;
/// Being dropped, or not yet created: opening the pool frees its chunks and the entry.
pub(crate) const ENTRY_DROPPING: u64 = 2;
/// Bit of an entry's lengths: the tree had its first leaf before it became live.
pub(crate) const INITIALIZED: u64 = 1 << 24;

// SAFETY: repr(C), words only, sizes asserted below.
unsafe impl Persistent for Superblock<Word> {}
// SAFETY: as above.
unsafe impl Persistent for Entry {}
// SAFETY: as above.
unsafe impl Persistent for Intent {}
// SAFETY: as above.
unsafe impl Persistent for PartHeader {}

pub(crate) const ENTRY_BYTES: u64 = 256;
pub(crate) const SUPERBLOCK_WORDS: usize = 13;
pub(crate) const INTENT_WORDS: usize = 12;
pub(crate) const PART_HEADER_BYTES: u64 = 32;
/// Slots of a chunk of the commit log.
pub(crate) const PARTS_PER_CHUNK: u64 = 16;

const _: () = {
    assert!(size_of::<Superblock<Word>>() == SUPERBLOCK_WORDS * 8 && align_of::<Superblock<Word>>() == 8);
    assert!(size_of::<Superblock<Word>>() <= SUPERBLOCK_STRIDE as usize);
    assert!(offset_of!(Superblock<Word>, magic) == 0);
    assert!(offset_of!(Superblock<Word>, version) == 8);
    assert!(offset_of!(Superblock<Word>, compat) == 16);
    assert!(offset_of!(Superblock<Word>, incompat) == 24);
    assert!(offset_of!(Superblock<Word>, ro_compat) == 32);
    assert!(offset_of!(Superblock<Word>, uuid) == 40);
    assert!(offset_of!(Superblock<Word>, chunk_bytes) == 56);
    assert!(offset_of!(Superblock<Word>, chunks_max) == 64);
    assert!(offset_of!(Superblock<Word>, trees_max) == 72);
    assert!(offset_of!(Superblock<Word>, sequence) == 80);
    assert!(offset_of!(Superblock<Word>, state) == 88);
    assert!(offset_of!(Superblock<Word>, checksum) == 96);
    assert!(size_of::<Entry>() == ENTRY_BYTES as usize && align_of::<Entry>() == 8);
    assert!(offset_of!(Entry, state) == 0);
    assert!(offset_of!(Entry, design) == 8);
    assert!(offset_of!(Entry, params) == 16);
    assert!(offset_of!(Entry, lengths) == 80);
    assert!(offset_of!(Entry, name) == 88);
    assert!(offset_of!(Entry, key_kind) == 152);
    assert!(offset_of!(Entry, value_kind) == 200);
    assert!(offset_of!(Entry, root) == 248);
    assert!(size_of::<Intent>() == INTENT_WORDS * 8 && align_of::<Intent>() == 8);
    assert!(INTENT_OFFSET >= SUPERBLOCK_WORDS as u64 * 8);
    assert!(INTENT_OFFSET + INTENT_WORDS as u64 * 8 <= SUPERBLOCK_STRIDE);
    assert!(offset_of!(Intent, entries) == 0);
    assert!(offset_of!(Intent, design) == 8);
    assert!(offset_of!(Intent, lengths) == 16);
    assert!(offset_of!(Intent, name) == 24);
    assert!(offset_of!(Intent, checksum) == 88);
    assert!(size_of::<PartHeader>() == PART_HEADER_BYTES as usize && align_of::<PartHeader>() == 8);
    assert!(offset_of!(PartHeader, sequence) == 0);
    assert!(offset_of!(PartHeader, part) == 8);
    assert!(offset_of!(PartHeader, bytes) == 16);
    assert!(offset_of!(PartHeader, checksum) == 24);
};

/// The contents of a chunk's slots: a code in the descriptor of the chunk. A design defines the codes of its own slots,
/// beside their layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotKind(NonZeroU8);

impl SlotKind {
    /// Keys in [`Records`](crate::Records).
    pub const KEY_RECORD: Self = Self::new(2);
    /// Values in [`Records`](crate::Records).
    pub const VALUE_RECORD: Self = Self::new(3);
    /// Entries of a [`Log`](crate::Log).
    pub const LOG: Self = Self::new(9);
    /// Parts of the records of the commit log.
    pub const COMMITS: Self = Self::new(20);
    /// Entries of the tree directory.
    pub const DIRECTORY: Self = Self::new(21);

    /// Returns the kind with a code.
    ///
    /// # Panics
    ///
    /// If the code is zero, which is reserved.
    pub const fn new(code: u8) -> Self {
        match NonZeroU8::new(code) {
            Some(code) => Self(code),
            None => panic!("no kind of slots has code 0"),
        }
    }

    /// Returns the code.
    pub const fn code(self) -> u8 {
        self.0.get()
    }
}

impl fmt::Display for SlotKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::KEY_RECORD => f.write_str("KeyRecord"),
            Self::VALUE_RECORD => f.write_str("ValueRecord"),
            Self::LOG => f.write_str("Log"),
            Self::COMMITS => f.write_str("Commits"),
            Self::DIRECTORY => f.write_str("Directory"),
            Self(code) => write!(f, "kind {code}"),
        }
    }
}

/// Purpose of a chunk's bytes, by which reports classify writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nodes of a tree.
    Leaf,
    /// A design's log.
    Log,
    /// Everything else: [`Records`](crate::Records), the pool's own structures.
    Other,
}

/// Maps a slot kind to its purpose: the table of the layer that knows the designs. Returns `None` if no design has such
/// slots.
pub type PartOf = fn(SlotKind) -> Option<Part>;

/// A chunk descriptor, one word: state (bits 0-7), kind (8-15), owner (16-39), slot bytes / 8
/// (40-63).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// Never used: still zero, as the file system provided it.
    Fresh,
    /// Used before: its bytes are arbitrary.
    Free,
    Owned {
        owner: u32,
        kind: SlotKind,
        slot_bytes: u32,
    },
}

impl Descriptor {
    pub fn encode(self) -> u64 {
        match self {
            Self::Fresh => 0,
            Self::Free => 1,
            Self::Owned { owner, kind, slot_bytes } => {
                2 | u64::from(kind.code()) << 8 | u64::from(owner) << 16 | u64::from(slot_bytes / 8) << 40
            }
        }
    }

    pub fn decode(word: u64) -> Option<Self> {
        match word & 0xff {
            0 if word == 0 => Some(Self::Fresh),
            1 if word == 1 => Some(Self::Free),
            2 => {
                let kind = SlotKind(NonZeroU8::new((word >> 8) as u8)?);
                let owner = (word >> 16 & 0xff_ffff) as u32;
                let slot_bytes = (word >> 40) as u32 * 8;
                (slot_bytes != 0).then_some(Self::Owned { owner, kind, slot_bytes })
            }
            _ => None,
        }
    }
}

/// Returns the slot kind in a chunk's descriptor; `None` if the chunk has no owner.
pub fn kind_of_descriptor(word: u64) -> Option<SlotKind> {
    match Descriptor::decode(word)? {
        Descriptor::Owned { kind, .. } => Some(kind),
        Descriptor::Fresh | Descriptor::Free => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Geometry;
    use super::*;

    #[test]
    fn descriptors_round_trip() {
        let owned = Descriptor::Owned { owner: 255, kind: SlotKind::KEY_RECORD, slot_bytes: 163_848 };
        for descriptor in [Descriptor::Fresh, Descriptor::Free, owned] {
            assert_eq!(Descriptor::decode(descriptor.encode()), Some(descriptor));
        }
        for bad in [3, 256, 1 | 1 << 40, 2, 2 | 1 << 40, 2 | 255 << 8] {
            assert_eq!(Descriptor::decode(bad), None, "{bad:#x}");
        }
    }

    #[test]
    fn the_format_is_golden() {
        let geometry = Geometry { chunk_bytes: 2 << 20, chunks_max: 4096, trees_max: 256 };
        assert_eq!(geometry.descriptors_offset(), 73_728);
        assert_eq!(geometry.header_bytes(), 2 << 20);
        assert_eq!(MAGIC.to_le_bytes(), *b"BRISTLEC");
        let owned = Descriptor::Owned { owner: 3, kind: SlotKind::new(1), slot_bytes: 256 };
        assert_eq!(owned.encode(), 0x0000_2000_0003_0102);
        let page = |page| {
            let (owner, slot_bytes) = (page_owner(page), ENTRY_BYTES as u32);
            Descriptor::Owned { owner, kind: SlotKind::DIRECTORY, slot_bytes }.encode()
        };
        assert_eq!([page(0), page(7)], [0x0000_20ff_fffe_1502, 0x0000_20ff_fff7_1502]);
        assert_eq!((geometry.page_entries(), geometry.pages_max()), (8192, 8));
        assert_eq!(INCOMPAT_PAGES, 8);
    }

    #[test]
    fn owners_of_pages_are_no_trees() {
        let small = Geometry { chunk_bytes: CHUNK_BYTES_LEAST, chunks_max: 64, trees_max: 1 };
        assert_eq!(small.pages_max(), PAGES_LIMIT);
        for page in [0, 1, PAGES_LIMIT - 1] {
            assert_eq!(page_of_owner(page_owner(page)), Some(page));
            assert!(u64::from(page_owner(page)) >= TREES_LIMIT);
        }
        for owner in [0, TREES_LIMIT as u32, page_owner(PAGES_LIMIT), COMMITS_OWNER] {
            assert_eq!(page_of_owner(owner), None, "{owner}");
        }
    }
}
