//! Reading records, and comparing them with their checksums.

use super::classes::CLASSES;
use super::{HEADER_BYTES, Records, VALUE_BYTES_MAX, checksum};
use crate::sync::Ordering::Relaxed;
use crate::sync::epoch::Guard;
use crate::{Error, LINE_BYTES, Medium, Result, Word, read_bytes};

impl<M: Medium> Records<M> {
    /// Returns the bytes of a record that was reached while pinned. A reader whose validation failed must not call
    /// this. In a damaged pool the offset may be wrong; the result is then empty.
    #[inline]
    pub fn read<'g>(&'g self, offset: u64, _pinned: &'g Guard) -> &'g [u8] {
        let (cells, len, _) = self.stored(offset);
        self.bytes_of(cells, len)
    }

    /// Returns the bytes of a record as [`read`](Self::read) does, after comparing them with their checksum.
    ///
    /// # Errors
    ///
    /// Same as [`verify`](Self::verify).
    #[inline]
    pub fn read_verified<'g>(&'g self, offset: u64, pinned: &'g Guard) -> Result<&'g [u8]> {
        if let Some(bytes) = self.read_sound(offset, pinned) {
            return Ok(bytes);
        }
        // What has no bytes is looked at twice: an impossible length reads like zero.
        self.verify(offset).map(|()| self.read(offset, pinned))
    }

    /// As [`read_verified`](Self::read_verified), for where a call would cost too much. Returns `None` for a record
    /// without bytes, and for one that differs from its checksum.
    #[inline(always)]
    pub fn read_sound<'g>(&'g self, offset: u64, _pinned: &'g Guard) -> Option<&'g [u8]> {
        let (cells, len, sum) = self.stored(offset);
        let bytes = self.bytes_of(cells, len);
        (len > 0 && checksum(bytes) == sum).then_some(bytes)
    }

    /// Compares a record's bytes with its checksum. A mismatch is remembered: see
    /// [`is_damaged`](Self::is_damaged).
    ///
    /// # Errors
    ///
    /// [`Corrupted`](Error::Corrupted) if they differ, or no record can begin there.
    #[cold]
    pub fn verify(&self, offset: u64) -> Result<()> {
        self.compare(offset).inspect_err(|_| self.damaged.store(1, Relaxed))
    }

    fn compare(&self, offset: u64) -> Result<()> {
        self.class_at(offset)?;
        let medium = self.pool.medium();
        let header = self.header_at(offset);
        let len = header as u32 as usize;
        let mut bytes = Vec::new();
        read_bytes(medium, self.pool.words(offset + HEADER_BYTES as u64, len.div_ceil(8)), len, &mut bytes);
        if checksum(&bytes) == (header >> 32) as u32 {
            return Ok(());
        }
        Err(Error::corrupted("checksum of a record differs", format!("{} at {offset:#x}", self.spec.kind)))
    }

    /// Returns the words that hold the bytes of a record, their number of bytes, and the checksum in the header. An
    /// impossible record has no bytes.
    #[inline(always)]
    fn stored(&self, offset: u64) -> (&[Word], usize, u32) {
        let Some((header, behind)) = self.pool.words_from(offset).and_then(<[Word]>::split_first) else {
            return (&[], 0, 0);
        };
        let header = header.load(self.pool.medium());
        let len = header as u32 as usize;
        let fits = len <= VALUE_BYTES_MAX && len.div_ceil(8) <= behind.len();
        let len = if fits { len } else { 0 };
        (&behind[..len.div_ceil(8)], len, (header >> 32) as u32)
    }

    /// Returns the bytes in words. The caller is pinned while the result lives.
    #[inline(always)]
    pub(super) fn bytes_of<'a>(&self, cells: &'a [Word], len: usize) -> &'a [u8] {
        debug_assert!(len <= size_of_val(cells));
        if len > 0 {
            self.pool.medium().about_to_read(cells.as_ptr().cast(), len);
        }
        // SAFETY: the words lie in the mapping. A record is published after its last store and not written again before
        // its slot is freed, which the caller's guard prevents; so no thread changes these bytes while the slice lives.
        unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), len) }
    }

    /// Returns the length in a header, or zero if it is impossible.
    pub(super) fn len_at(&self, offset: u64) -> usize {
        self.stored(offset).1
    }

    fn header_at(&self, offset: u64) -> u64 {
        self.pool.words(offset, 1)[0].load(self.pool.medium())
    }

    /// Returns the class of the record at an offset. The header is trusted only if the record fits its chunk.
    pub(super) fn class_at(&self, offset: u64) -> Result<usize> {
        let broken = || self.no_record(offset);
        let (first, chunk_bytes) = (self.pool.chunk_offset(0), self.pool.chunk_bytes());
        let end = first + self.pool.chunks_begun() * chunk_bytes;
        if !offset.is_multiple_of(8) || !(first..end).contains(&offset) {
            return Err(broken());
        }
        let len = self.header_at(offset) as u32 as usize;
        // No record extends beyond its chunk, and so none beyond the pool.
        let within = (offset - first) % chunk_bytes + (HEADER_BYTES + len) as u64 <= chunk_bytes;
        if len > VALUE_BYTES_MAX || !within {
            return Err(broken());
        }
        // A follower has no heaps.
        let class = self.class_of(len);
        if self.heaps[class].get().is_none() && !self.pool.is_followed() { Err(broken()) } else { Ok(class) }
    }

    /// Returns the length of the record at an offset, if its header is plausible.
    fn plausible(&self, offset: u64) -> Option<usize> {
        let class = self.class_at(offset).ok()?;
        self.pool.holds(offset, u64::from(CLASSES[class])).then(|| self.len_at(offset))
    }

    /// Returns whether a record may be at an offset.
    pub fn is_plausible(&self, offset: u64) -> bool {
        self.plausible(offset).is_some()
    }

    /// Returns whether the record at an offset is empty or was never written.
    pub fn is_empty_at(&self, offset: u64) -> bool {
        self.len_at(offset) == 0
    }

    pub(super) fn owner_cell(&self, offset: u64, len: usize) -> &Word {
        self.pool.at(offset + (HEADER_BYTES + len.next_multiple_of(8)) as u64)
    }

    /// Returns the owner of the record at an offset of an unswept slot, or `None` if no record can begin there.
    pub fn owner_at(&self, offset: u64) -> Option<u64> {
        self.plausible(offset).map(|len| self.owner_cell(offset, len).load(self.pool.medium()))
    }

    /// Prefetches the record that may be at an offset: at most two lines.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        self.pool.prefetch(offset);
        if offset % LINE_BYTES as u64 + self.reach.load(Relaxed) > LINE_BYTES as u64 {
            self.pool.prefetch(offset.wrapping_add(LINE_BYTES as u64));
        }
    }
}
