//! The commit log: redo records of commits that change several trees.
//!
//! A record is written before the first tree changes, and is done when the last tree has changed. Each record has its
//! own slots, in any chunks of the log, one for each of its parts. Each committing thread has at most one record at a
//! time, so the log stays small, and no record ever moves.
//!
//! # Beginning
//! 1. Both copies of the superblock say that there is a log; then its chunks are allocated as they are needed.
//!    *Versions that do not know the log refuse the pool. A close frees the chunks and clears the bit; so does an open,
//!    once it has redone the records that are not done.*
//!
//! # Record
//! 1. The parts are stored, each with the record's number and a checksum; flush, fence. *Before the fence the record
//!    may be partly present, and does not count: a part or a checksum is missing. From here on it is committed.*
//! 2. The trees are changed, outside this module. *After a crash, open redoes the changes.*
//! 3. The numbers of all parts are cleared; flush, fence. *A crash between leaves a record without all of its parts,
//!    which does not count, or the whole one, which is redone: no other change came between. After the fence others may
//!    change what the record changed.*
//! 4. Open clears those of all records that it has redone, one record after the other in the order in which they were
//!    committed: flush, fence. *A record may say that an earlier one does not count, and must not be cleared before
//!    it.* Only then are the chunks freed.

use std::collections::BTreeMap;

use super::chunks::Chunk;
use super::layout::{COMMITS_OWNER, PART_HEADER_BYTES, PARTS_PER_CHUNK, PartHeader, SlotKind};
use super::{PoolFile, TreeId};
use crate::sync::wait;
use crate::{Alone, Durable, Error, Flushed, Medium, Persist, Result, Step, read_bytes, write_bytes};

/// Maximum number of parts of a record; more would not fit any pool.
const PARTS_MAX: usize = u32::MAX as usize;

/// The log while the pool is open.
#[derive(Debug, Default)]
pub(super) struct Commits {
    begun: bool,
    /// The number of the last record.
    sequence: u64,
    /// Slots without a record.
    free: Vec<u64>,
    /// Number of records that are not done.
    under_way: usize,
}

/// Space of a record. If dropped before it is done, the record stays for the next open.
#[derive(Debug)]
pub struct CommitSpace<'a, M: Medium> {
    pool: &'a PoolFile<M>,
    slots: Vec<u64>,
    sequence: u64,
    /// Whether a record may be stored, which open would redo.
    stored: bool,
}

impl<M: Medium> PoolFile<M> {
    fn commit_slot_bytes(&self) -> u64 {
        self.geometry.chunk_bytes / PARTS_PER_CHUNK
    }

    /// Returns whether slots of this size belong to the log.
    pub(super) fn is_of_commits(&self, slot_bytes: u32) -> bool {
        u64::from(slot_bytes) == self.commit_slot_bytes()
    }

    /// Returns whether the superblock says that there is a log.
    pub(super) fn has_commits(&self) -> bool {
        self.lock_contents().commits
    }

    /// Returns the number of chunks of the log.
    pub fn commit_chunks(&self) -> usize {
        self.chunks_of(TreeId(COMMITS_OWNER)).len()
    }

    /// Allocates space for a record of `bytes` bytes, which stays in place until the record is done.
    ///
    /// # Errors
    ///
    /// [`PoolFull`](Error::PoolFull) and [`MediumFull`](Error::MediumFull); [`DurabilityLost`](Error::DurabilityLost).
    pub fn commit_space(&self, bytes: usize) -> Result<CommitSpace<'_, M>> {
        let payload = (self.commit_slot_bytes() - PART_HEADER_BYTES) as usize;
        let parts = bytes.div_ceil(payload).max(1);
        if parts > PARTS_MAX {
            return Err(Error::PoolFull { max_bytes: self.max_bytes() });
        }
        let mut commits = wait::lock(&self.commits);
        self.begin_commits(&mut commits)?;
        while commits.free.len() < parts {
            let slot_bytes = self.commit_slot_bytes();
            let chunk = self.chunk_alloc(
                TreeId(COMMITS_OWNER),
                SlotKind::COMMITS,
                slot_bytes as u32,
                PARTS_PER_CHUNK,
            )?;
            commits.free.extend((0..PARTS_PER_CHUNK).rev().map(|slot| chunk.offset + slot * slot_bytes));
        }
        let kept = commits.free.len() - parts;
        let slots = commits.free.split_off(kept);
        commits.sequence += 1;
        Ok(CommitSpace { pool: self, slots, sequence: commits.sequence, stored: false })
    }

    /// Executes beginning 1.
    fn begin_commits(&self, commits: &mut Commits) -> Result<()> {
        if !commits.begun {
            // Both copies: if the medium damages the newer one, the older one must not deny the log.
            self.write_contents(|contents| contents.commits = true)?;
            self.write_contents(|_| {})?;
            // A number must never be reused, in this process or another. Otherwise a crash that keeps only the new
            // number would revive remains of the old record in the slot.
            commits.sequence = commits.sequence.max(self.lock_contents().sequence << 32);
            commits.begun = true;
        }
        Ok(())
    }

    /// Returns the slots of the log.
    fn commit_slots(&self) -> impl Iterator<Item = u64> {
        let slot_bytes = self.commit_slot_bytes();
        let slots =
            move |chunk: Chunk| (0..PARTS_PER_CHUNK).map(move |slot| chunk.offset + slot * slot_bytes);
        self.chunks_of(TreeId(COMMITS_OWNER)).into_iter().flat_map(slots)
    }

    /// Returns the committed records that are not done, with their numbers, in commit order.
    pub fn pending_commits(&self) -> Vec<(u64, Vec<u8>)> {
        let mut records = BTreeMap::<u64, BTreeMap<u32, (u32, Vec<u8>)>>::new();
        for slot in self.commit_slots() {
            if let Some((sequence, part, parts, bytes)) = self.read_part(slot) {
                records.entry(sequence).or_default().insert(part, (parts, bytes));
            }
        }
        let is_whole = |(_, parts): &(u64, BTreeMap<u32, (u32, Vec<u8>)>)| {
            let all = parts.values().all(|(of, _)| *of as usize == parts.len());
            all && parts.keys().copied().eq(0..parts.len() as u32)
        };
        let join =
            |parts: BTreeMap<u32, (u32, Vec<u8>)>| parts.into_values().flat_map(|(_, bytes)| bytes).collect();
        records.into_iter().filter(is_whole).map(|(sequence, parts)| (sequence, join(parts))).collect()
    }

    /// Returns the contents of a slot: the record's number, the index of the part, the number of parts, and the bytes.
    fn read_part(&self, slot: u64) -> Option<(u64, u32, u32, Vec<u8>)> {
        let (header, medium) = (self.at::<PartHeader>(slot), self.medium());
        let [sequence, part, bytes] =
            [&header.sequence, &header.part, &header.bytes].map(|word| word.load(medium));
        if sequence == 0 || bytes > self.commit_slot_bytes() - PART_HEADER_BYTES {
            return None;
        }
        let mut found = Vec::new();
        let cells = self.words(slot + PART_HEADER_BYTES, bytes.div_ceil(8) as usize);
        read_bytes(medium, cells, bytes as usize, &mut found);
        (header.checksum.load(medium) == checksum(sequence, part, &found)).then_some((
            sequence,
            part as u32,
            (part >> 32) as u32,
            found,
        ))
    }

    /// Erases all records, which must have been redone durably.
    ///
    /// # Errors
    ///
    /// [`DurabilityLost`](Error::DurabilityLost).
    pub fn end_commits(&self) -> Result<()> {
        if !self.has_commits() {
            return Ok(());
        }
        let mut records = BTreeMap::<u64, Vec<u64>>::new();
        for slot in self.commit_slots() {
            if let Some((sequence, ..)) = self.read_part(slot) {
                records.entry(sequence).or_default().push(slot);
            }
        }
        records.into_values().for_each(|slots| self.erase_record(&slots, "pool commit.4"));
        self.health()?;
        self.chunks_of(TreeId(COMMITS_OWNER)).iter().for_each(|chunk| self.chunk_free(chunk.id));
        self.write_contents(|contents| contents.commits = false)
    }

    /// Clears the numbers of a record's parts, durably.
    fn erase_record(&self, slots: &[u64], step: Step) {
        let medium = self.medium();
        let mut flushed = Flushed::none();
        for &slot in slots {
            let sequence = &self.at::<PartHeader>(slot).sequence;
            sequence.publish(medium, 0, &Alone, step);
            flushed = flushed.and(medium.flush(sequence, step));
        }
        let Durable { .. } = medium.fence(flushed, step);
    }

    /// Frees the chunks of the log, before the pool is closed. No record may be in progress.
    ///
    /// # Errors
    ///
    /// [`DurabilityLost`](Error::DurabilityLost) if a record was left behind, [`Invalid`](Error::Invalid) if records
    /// from before a crash are pending: the next open redoes them.
    pub(super) fn release_commits(&self) -> Result<()> {
        let mut commits = wait::lock(&self.commits);
        if commits.under_way > 0 {
            return Err(Error::DurabilityLost);
        }
        if !commits.begun && self.has_commits() {
            return Err(Error::invalid("a commit from before the crash is not yet applied: reopen the pool"));
        }
        if commits.begun {
            let sequence = commits.sequence;
            *commits = Commits { sequence, ..Commits::default() };
            self.chunks_of(TreeId(COMMITS_OWNER)).iter().for_each(|chunk| self.chunk_free(chunk.id));
        }
        Ok(())
    }
}

impl<M: Medium> CommitSpace<'_, M> {
    /// Returns the record's number, which is greater than all earlier numbers.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Stores the record, whose length must match the space: committed when this returns `Ok`.
    ///
    /// # Errors
    ///
    /// [`DurabilityLost`](Error::DurabilityLost).
    ///
    /// # Panics
    ///
    /// If the record is longer than the space.
    pub fn commit(&mut self, record: &[u8]) -> Result<()> {
        let medium = self.pool.medium();
        wait::lock(&self.pool.commits).under_way += 1;
        self.stored = true;
        let payload = (self.pool.commit_slot_bytes() - PART_HEADER_BYTES) as usize;
        assert!(record.len() <= payload * self.slots.len(), "a record beyond its space");
        let mut flushed = Flushed::none();
        for (at, &slot) in self.slots.iter().enumerate() {
            let begin = (at * payload).min(record.len());
            let bytes = &record[begin..record.len().min(begin + payload)];
            let header = self.pool.at::<PartHeader>(slot);
            let part = at as u64 | (self.slots.len() as u64) << 32;
            header.part.store(medium, part);
            header.bytes.store(medium, bytes.len() as u64);
            header.checksum.store(medium, checksum(self.sequence, part, bytes));
            write_bytes(medium, self.pool.words(slot + PART_HEADER_BYTES, bytes.len().div_ceil(8)), bytes);
            header.sequence.store(medium, self.sequence);
            let words = PART_HEADER_BYTES as usize / 8 + bytes.len().div_ceil(8);
            flushed = flushed.and(medium.flush(self.pool.words(slot, words), "pool commit.1"));
        }
        let Durable { .. } = medium.fence(flushed, "pool commit.1");
        self.pool.health()
    }

    /// Marks the record as done, durably. Its changes must have been applied by operations that are durable when they
    /// return.
    ///
    /// # Errors
    ///
    /// [`DurabilityLost`](Error::DurabilityLost).
    pub fn done(mut self) -> Result<()> {
        self.pool.erase_record(&self.slots, "pool commit.3");
        self.pool.health()?;
        wait::lock(&self.pool.commits).under_way -= 1;
        self.stored = false;
        Ok(())
    }
}

impl<M: Medium> Drop for CommitSpace<'_, M> {
    fn drop(&mut self) {
        if !self.stored {
            wait::lock(&self.pool.commits).free.append(&mut self.slots);
        }
    }
}

/// Covers the words of a header before it, and the bytes.
fn checksum(sequence: u64, part: u64, bytes: &[u8]) -> u64 {
    let words = [sequence, part, bytes.len() as u64].map(u64::to_le_bytes);
    crc32c::crc32c_append(crc32c::crc32c(words.as_flattened()), bytes).into()
}
