//! The superblock: written alternately to two copies, so that a torn update leaves the other one intact.

use super::geometry::Geometry;
use super::layout::{
    INCOMPAT_CHANGING, INCOMPAT_COMMITS, INCOMPAT_INTENT, INCOMPAT_JOURNAL, INCOMPAT_KNOWN,
    INCOMPAT_LOG_CHECKS, INCOMPAT_PAGES, MAGIC, RO_COMPAT_KNOWN, SUPERBLOCK_STRIDE, Superblock, VERSION,
};
use super::{Access, Issue};
use crate::segment::NUMBER_BITS;
use crate::{Domain, Durable, Error, Flushed, Medium, Persist, Region, Result, Word};

/// Contents of the superblock of a pool of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub uuid: [u64; 2],
    pub geometry: Geometry,
    pub sequence: u64,
    pub domain: Domain,
    pub clean: bool,
    /// The number of the segment that a clean close saved, or of the opening in use; 0: none.
    pub seal: u64,
    /// Whether a change of the directory is in progress.
    pub intent: bool,
    /// Whether the pool has a commit log.
    pub commits: bool,
    /// The directory may have pages.
    pub pages: bool,
}

/// Bits of the state.
const DOMAIN: u64 = 0xff;
const CLEAN: u64 = 1 << 8;
const SEAL_SHIFT: u32 = 9;
const _: () = assert!(SEAL_SHIFT + NUMBER_BITS == u64::BITS);
/// Not a valid checksum, which has 32 bits: words before the sequence are being changed.
const CHANGING: u64 = u64::MAX;

impl Contents {
    fn to_superblock(self) -> Superblock<u64> {
        let Geometry { chunk_bytes, chunks_max, trees_max } = self.geometry;
        let superblock = Superblock {
            magic: MAGIC,
            version: VERSION,
            compat: 0,
            incompat: INCOMPAT_LOG_CHECKS
                | if self.intent { INCOMPAT_INTENT } else { 0 }
                | if self.commits { INCOMPAT_COMMITS } else { 0 }
                | if self.pages { INCOMPAT_PAGES } else { 0 }
                | if self.domain == Domain::Journal { INCOMPAT_JOURNAL } else { 0 },
            ro_compat: 0,
            uuid: self.uuid,
            chunk_bytes,
            chunks_max,
            trees_max,
            sequence: self.sequence,
            state: domain_code(self.domain) | if self.clean { CLEAN } else { 0 } | self.seal << SEAL_SHIFT,
            checksum: 0,
        };
        superblock.sealed()
    }

    /// Writes the older copy, over zeros or over words that are the same up to the sequence. Durable when this
    /// returns.
    pub fn write<M: Medium>(&self, region: &Region, medium: &M) {
        self.write_after(region, medium, Flushed::none());
    }

    /// Writes the copy like [`write`](Self::write); earlier flushes become durable with it.
    fn write_after<M: Medium>(&self, region: &Region, medium: &M, before: Flushed) {
        let cells = copy(region, self.sequence % 2);
        let mut words = self.to_superblock().words().into_iter();
        cells.each(|cell| cell.store(medium, words.next().unwrap_or_default()));
        let Durable { .. } =
            medium.fence(before.and(medium.flush(cells, "pool superblock")), "pool superblock");
    }

    /// Writes the older copy, with arbitrary changes. Durable when this returns, unless the medium fails.
    ///
    /// When a word before the sequence changes, a crash must not make an intact copy look damaged:
    ///
    /// 1. The checksum says that the copy is being changed; flush, fence. The flushes in `before` are durable
    ///    from here on.
    /// 2. Everything but the checksum is stored; flush, fence.
    /// 3. The checksum is stored; flush, fence.
    ///
    /// If the medium fails in a step, the update stops there: this copy does not count, and the other one does.
    pub fn update<M: Medium>(&self, region: &Region, medium: &M, before: Flushed) {
        let (cells, new) = (copy(region, self.sequence % 2), self.to_superblock());
        let Superblock { sequence, state, checksum, .. } = new;
        let [old, other] = [self.sequence, self.sequence + 1]
            .map(|turn| copy(region, turn % 2).each(|cell| cell.load(medium)));
        let is_like = |copy| new == Superblock { sequence, state, checksum, ..copy };
        // A crash while the pool was created.
        let is_unwritten =
            || old.words().into_iter().zip(new.words()).all(|(old, new)| old == 0 || old == new);
        // A torn copy is compared with the other one.
        if is_like(other) && (is_like(old) || is_unwritten()) {
            return self.write_after(region, medium, before);
        }
        cells.checksum.store(medium, CHANGING);
        let flushed = before.and(medium.flush(&cells.checksum, "pool superblock.1"));
        let Durable { .. } = medium.fence(flushed, "pool superblock.1");
        if medium.failed() {
            return;
        }
        let mut words = Superblock { checksum: CHANGING, ..new }.words().into_iter();
        cells.each(|cell| cell.store(medium, words.next().unwrap_or_default()));
        medium.persist(cells, "pool superblock.2");
        if medium.failed() {
            return;
        }
        cells.checksum.store(medium, checksum);
        medium.persist(&cells.checksum, "pool superblock.3");
    }

    /// Reads the newer valid copy, and returns the damage to the other one.
    pub fn read<M: Medium>(region: &Region, medium: &M, access: Access) -> Result<(Self, Option<Issue>)> {
        let copies = [0, 1].map(|turn| copy(region, turn).each(|word| word.load(medium)));
        Self::of(copies, access)
    }

    /// Returns a number that differs once the superblock was written again.
    #[inline(always)]
    pub fn turn<M: Medium>(region: &Region, medium: &M) -> u64 {
        let sequences = [0, 1].map(|turn| copy(region, turn).sequence.load(medium));
        sequences[0].max(sequences[1])
    }

    /// Compares the superblock of an open pool with its last written contents.
    pub fn verify<M: Medium>(&self, region: &Region, medium: &M, access: Access) -> Result<()> {
        let (found, _) = Self::read(region, medium, access)?;
        if found == *self {
            Ok(())
        } else {
            Err(Error::corrupted("the stored bytes differ from the written ones", "superblock"))
        }
    }

    /// Combines two copies, and returns the damage to one of them unless a crash during its write explains it.
    pub fn of(copies: [Superblock<u64>; 2], access: Access) -> Result<(Self, Option<Issue>)> {
        let (valid, other, error) = match copies.map(|superblock| parse(&superblock, access)) {
            [Ok(a), Ok(b)] => {
                let (newer, older) = if a.sequence > b.sequence { (a, 1) } else { (b, 0) };
                let raised = a.geometry.with_chunks_max(b.geometry.chunks_max);
                let differs = (a.uuid, raised) != (b.uuid, Some(b.geometry));
                let what = "it is of another pool than the newer copy";
                return Ok((newer, differs.then(|| issue(older, what))));
            }
            // The last superblock of a newer version decides what this version may do.
            [Err(newer @ Error::Newer { .. }), _] | [_, Err(newer @ Error::Newer { .. })] => {
                return Err(newer);
            }
            [Ok(valid), Err(error)] => (valid, 1, error),
            [Err(error), Ok(valid)] => (valid, 0, error),
            [Err(error), Err(_)] => return Err(error),
        };
        let damage = match error {
            _ if explains(&copies[1 - other], &copies[other]) => None,
            Error::Corrupted { what, .. } => Some(issue(other, &what)),
            error => Some(issue(other, &error.to_string())),
        };
        Ok((valid, damage))
    }
}

/// Returns whether `other` can result from a crash during the write before or after `valid`. Words before the
/// sequence never change, unless the checksum says so. Then the bits of changing features and the maximum may
/// differ. In a new pool the second copy is written over zeros.
fn explains(valid: &Superblock<u64>, other: &Superblock<u64>) -> bool {
    let Superblock { sequence, state, checksum, .. } = *other;
    let near = [valid.sequence.wrapping_sub(1), valid.sequence.wrapping_add(1)];
    let mut expected = Superblock { sequence, state, checksum, ..*valid };
    if checksum == CHANGING {
        expected.incompat ^= (expected.incompat ^ other.incompat) & INCOMPAT_CHANGING;
        let raised = geometry_of(valid).with_chunks_max(other.chunks_max);
        expected.chunks_max = raised.map_or(valid.chunks_max, |raised| raised.chunks_max);
    }
    let is_update = expected == *other && near.contains(&sequence);
    let is_part_of = |whole: Superblock<u64>| {
        other.words().into_iter().zip(whole.words()).all(|(word, new)| word == 0 || word == new)
    };
    let is_creation = || is_part_of(Superblock { sequence: 1, ..*valid }.sealed());
    let is_change_behind_it =
        || checksum == CHANGING && is_part_of(Superblock { sequence: 1, state, checksum, ..expected });
    is_update || valid.sequence == 0 && (is_creation() || is_change_behind_it())
}

fn issue(copy: usize, what: &str) -> Issue {
    Issue::new(format!("superblock, copy {copy}"), format!("{what}: the other copy is used in its place"))
}

#[inline(always)]
fn copy(region: &Region, turn: u64) -> &Superblock<Word> {
    assert!(region.len() >= turn * SUPERBLOCK_STRIDE + size_of::<Superblock<Word>>() as u64);
    let start = region.base().wrapping_add((turn * SUPERBLOCK_STRIDE) as usize);
    // SAFETY: within the region (asserted), aligned to a page, and words allow any bytes.
    unsafe { &*start.cast() }
}

fn parse(superblock: &Superblock<u64>, access: Access) -> Result<Contents> {
    let broken = |what: &str| Err(Error::corrupted(what, "superblock"));
    let &Superblock { magic, version, incompat, ro_compat, uuid, sequence, state, checksum, .. } = superblock;
    if magic != MAGIC {
        return broken("no magic number");
    }
    if checksum != superblock.expected_checksum() {
        return broken("checksum differs");
    }
    if version != VERSION {
        return Err(Error::Newer { needs: format!("format version {version}") });
    }
    let ro_compat_known = if access == Access::Write { RO_COMPAT_KNOWN } else { u64::MAX };
    let unknown = (incompat & !INCOMPAT_KNOWN, ro_compat & !ro_compat_known);
    if unknown != (0, 0) {
        return Err(Error::Newer { needs: format!("features {:#x}/{:#x}", unknown.0, unknown.1) });
    }
    let geometry = geometry_of(superblock);
    let Some(domain) = domain_of(state & DOMAIN) else { return broken("unknown domain") };
    if !geometry.is_valid() {
        return broken("sizes out of range");
    }
    if (domain == Domain::Journal) != (incompat & INCOMPAT_JOURNAL != 0) {
        return broken("a journal without its domain, or the other way round");
    }
    let clean = state & CLEAN != 0;
    let seal = state >> SEAL_SHIFT;
    let (intent, commits) = (incompat & INCOMPAT_INTENT != 0, incompat & INCOMPAT_COMMITS != 0);
    let pages = incompat & INCOMPAT_PAGES != 0;
    Ok(Contents { uuid, geometry, sequence, domain, clean, seal, intent, commits, pages })
}

fn geometry_of(superblock: &Superblock<u64>) -> Geometry {
    let &Superblock { chunk_bytes, chunks_max, trees_max, .. } = superblock;
    Geometry { chunk_bytes, chunks_max, trees_max }
}

fn domain_code(domain: Domain) -> u64 {
    match domain {
        Domain::Process => 0,
        Domain::Adr => 1,
        Domain::Eadr => 2,
        Domain::Msync => 3,
        Domain::Journal => 4,
    }
}

fn domain_of(code: u64) -> Option<Domain> {
    let all = [Domain::Process, Domain::Adr, Domain::Eadr, Domain::Msync, Domain::Journal];
    all.get(code as usize).copied()
}

#[cfg(test)]
mod tests;
