//! The superblock: written in turn to two copies, so that a torn update leaves the other one.

use super::layout::{
    Geometry, INCOMPAT_KNOWN, INCOMPAT_LOG_CHECKS, MAGIC, RO_COMPAT_KNOWN, SUPERBLOCK_STRIDE,
    SUPERBLOCK_WORDS, Superblock, VERSION,
};
use super::{Access, Finding};
use crate::word::{le_bytes, load_words};
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

/// The words of one copy.
type Copy = [u64; SUPERBLOCK_WORDS];

impl Contents {
    fn words(&self) -> Copy {
        let state = domain_code(self.domain) | if self.clean { CLEAN } else { 0 };
        let Geometry { chunk_bytes, chunks_max, trees_max } = self.geometry;
        let mut words = [
            MAGIC,
            VERSION,
            0,
            INCOMPAT_LOG_CHECKS,
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

    /// Reads whichever copy is valid and newer, and says what is wrong with the other one.
    pub fn read<M: Medium>(region: &Region, medium: &M, access: Access) -> Result<(Self, Option<Finding>)> {
        let copies = [0, 1].map(|turn| load_words(medium, copy(region, turn)));
        Self::of(copies, access)
    }

    /// Compares the superblock of an open pool with what it was last written as.
    pub fn verify<M: Medium>(&self, region: &Region, medium: &M, access: Access) -> Result<()> {
        let (found, _) = Self::read(region, medium, access)?;
        if found == *self {
            Ok(())
        } else {
            Err(Error::corrupted("it is not what was written", "superblock"))
        }
    }

    /// Returns what two copies say together, and what is wrong with one of them unless a crash
    /// while it was written explains it.
    pub fn of(copies: [Copy; 2], access: Access) -> Result<(Self, Option<Finding>)> {
        let (valid, other, error) = match copies.map(|words| parse(words, access)) {
            [Ok(a), Ok(b)] => {
                let (newer, older) = if a.sequence > b.sequence { (a, 1) } else { (b, 0) };
                let differs = (a.uuid, a.geometry) != (b.uuid, b.geometry);
                let what = "it is of another pool than the newer copy";
                return Ok((newer, differs.then(|| finding(older, what))));
            }
            // The last superblock of a newer version is its word on what this one may do.
            [Err(newer @ Error::Newer { .. }), _] | [_, Err(newer @ Error::Newer { .. })] => {
                return Err(newer);
            }
            [Ok(valid), Err(error)] => (valid, 1, error),
            [Err(error), Ok(valid)] => (valid, 0, error),
            [Err(error), Err(_)] => return Err(error),
        };
        let damage = match error {
            _ if explains(&copies[1 - other], &copies[other]) => None,
            Error::Corrupted { what, .. } => Some(finding(other, &what)),
            error => Some(finding(other, &error.to_string())),
        };
        Ok((valid, damage))
    }
}

/// Returns whether `other` is what a crash leaves of the copy that was written before or after `valid`: up
/// to the sequence no word ever changes, but when a later version first writes to a pool. Behind the first
/// copy of a new pool the second is written over zeros.
fn explains(valid: &Copy, other: &Copy) -> bool {
    const SEQUENCE: usize = 10;
    let near = [valid[SEQUENCE].wrapping_sub(1), valid[SEQUENCE].wrapping_add(1)];
    let is_update = valid[..SEQUENCE] == other[..SEQUENCE] && near.contains(&other[SEQUENCE]);
    let mut second = *valid;
    second[SEQUENCE] = 1;
    second[SUPERBLOCK_WORDS - 1] = checksum(&second);
    let is_creation = || other.iter().zip(second).all(|(&word, new)| word == 0 || word == new);
    is_update || valid[SEQUENCE] == 0 && is_creation()
}

fn finding(copy: usize, what: &str) -> Finding {
    Finding::new(format!("superblock, copy {copy}"), format!("{what}: the other copy is used in its place"))
}

fn copy(region: &Region, turn: u64) -> &[Word; SUPERBLOCK_WORDS] {
    assert!(region.len() >= turn * SUPERBLOCK_STRIDE + size_of::<Superblock>() as u64);
    let start = region.base().wrapping_add((turn * SUPERBLOCK_STRIDE) as usize);
    // SAFETY: within the region (asserted), aligned to a page, and words allow any bytes.
    unsafe { &*start.cast() }
}

fn parse(words: Copy, access: Access) -> Result<Contents> {
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

fn checksum(words: &Copy) -> u64 {
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

#[cfg(test)]
mod tests;
