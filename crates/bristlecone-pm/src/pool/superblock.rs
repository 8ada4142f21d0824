//! The superblock: written in turn to two copies, so that a torn update leaves the other one.

use super::Access;
use super::layout::{
    Geometry, INCOMPAT_KNOWN, MAGIC, RO_COMPAT_KNOWN, SUPERBLOCK_STRIDE, SUPERBLOCK_WORDS, Superblock,
    VERSION,
};
use crate::cell::{le_bytes, load_words};
use crate::{Domain, Durable, Error, Medium, Persist, Region, Result, Word};

/// The superblock's contents, in words up to the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub uuid: [u64; 2],
    pub geometry: Geometry,
    pub sequence: u64,
    pub domain: Domain,
    pub clean: bool,
}

const CLEAN: u64 = 1 << 8;

impl Contents {
    fn words(&self) -> [u64; SUPERBLOCK_WORDS] {
        let state = domain_code(self.domain) | if self.clean { CLEAN } else { 0 };
        let Geometry { chunk_bytes, chunks_max, trees_max } = self.geometry;
        let mut words = [
            MAGIC,
            VERSION,
            0,
            0,
            0,
            self.uuid[0],
            self.uuid[1],
            chunk_bytes,
            chunks_max,
            trees_max,
            self.sequence,
            state,
            0,
        ];
        words[SUPERBLOCK_WORDS - 1] = checksum(&words);
        words
    }

    /// Writes the copy whose turn it is. Durable when this returns.
    pub fn write<M: Medium>(&self, region: &Region, medium: &M) {
        let cells = copy(region, self.sequence % 2);
        for (cell, word) in cells.iter().zip(self.words()) {
            cell.store(medium, word);
        }
        let Durable { .. } = medium.persist(cells, "pool superblock");
    }

    /// Reads whichever copy is valid and newer.
    pub fn read<M: Medium>(region: &Region, medium: &M, access: Access) -> Result<Self> {
        let copies = [0, 1].map(|turn| load_words(medium, copy(region, turn)));
        Self::of(copies, access)
    }

    /// What two copies say together.
    pub fn of(copies: [[u64; SUPERBLOCK_WORDS]; 2], access: Access) -> Result<Self> {
        match copies.map(|words| parse(words, access)) {
            [Ok(a), Ok(b)] => Ok(if a.sequence > b.sequence { a } else { b }),
            // The last superblock of a newer version is its word on what this one may do.
            [Err(newer @ Error::Newer { .. }), _] | [_, Err(newer @ Error::Newer { .. })] => Err(newer),
            [Ok(valid), Err(_)] | [Err(_), Ok(valid)] => Ok(valid),
            [Err(error), Err(_)] => Err(error),
        }
    }
}

fn copy(region: &Region, turn: u64) -> &[Word; SUPERBLOCK_WORDS] {
    assert!(region.len() >= turn * SUPERBLOCK_STRIDE + size_of::<Superblock>() as u64);
    let start = region.base().wrapping_add((turn * SUPERBLOCK_STRIDE) as usize);
    // SAFETY: within the region (asserted), aligned to a page, and words allow any bytes.
    unsafe { &*start.cast() }
}

fn parse(words: [u64; SUPERBLOCK_WORDS], access: Access) -> Result<Contents> {
    let broken = |what: &str| Err(Error::corrupted(what, "superblock"));
    if words[0] != MAGIC {
        return broken("no magic number");
    }
    if words[SUPERBLOCK_WORDS - 1] != checksum(&words) {
        return broken("checksum differs");
    }
    if words[1] != VERSION {
        return Err(Error::Newer { needs: format!("format version {}", words[1]) });
    }
    let ro_compat_known = if access == Access::Read { u64::MAX } else { RO_COMPAT_KNOWN };
    let unknown = (words[3] & !INCOMPAT_KNOWN, words[4] & !ro_compat_known);
    if unknown != (0, 0) {
        return Err(Error::Newer { needs: format!("features {:#x}/{:#x}", unknown.0, unknown.1) });
    }
    let geometry = Geometry { chunk_bytes: words[7], chunks_max: words[8], trees_max: words[9] };
    let Some(domain) = domain_of(words[11] & 0xff) else { return broken("unknown domain") };
    if !geometry.is_valid() {
        return broken("sizes out of range");
    }
    let clean = words[11] & CLEAN != 0;
    Ok(Contents { uuid: [words[5], words[6]], geometry, sequence: words[10], domain, clean })
}

fn checksum(words: &[u64; SUPERBLOCK_WORDS]) -> u64 {
    crc32c::crc32c(&le_bytes::<SUPERBLOCK_WORDS, { (SUPERBLOCK_WORDS - 1) * 8 }>(words)).into()
}

fn domain_code(domain: Domain) -> u64 {
    match domain {
        Domain::Process => 0,
        Domain::Adr => 1,
        Domain::Eadr => 2,
        Domain::Msync => 3,
    }
}

fn domain_of(code: u64) -> Option<Domain> {
    [Domain::Process, Domain::Adr, Domain::Eadr, Domain::Msync].get(code as usize).copied()
}
