//! Releasing space to the file system: holes for chunks without an owner, and a shorter file.
//!
//! 1. The bytes of some free chunks are released, while no thread can take a chunk; then those of some others. *A crash
//!    from here on: they are free, and hold arbitrary bytes, possibly zeros.*
//! 2. The file is synced: they are durably zero, unless a tree owns them meanwhile.
//! 3. The descriptors of those without an owner say that they were never used, that is, that they are zero. No flush: a
//!    crash may undo this, and leaves them free.
//! 4. If the last chunks of the file have no owner, the file is truncated before them. *A crash before or after: open
//!    ignores descriptors of chunks behind the end, if these have no owner.*

use super::PoolFile;
use super::chunks::FreeChunks;
use super::layout::Descriptor;
use crate::{Medium, Result};

/// Freed bytes that a pool keeps for its next trees when it is closed.
const KEPT_BYTES: u64 = 64 << 20;
/// Number of chunks that are released while other threads wait for one.
const TOGETHER: usize = 16;

impl<M: Medium> PoolFile<M> {
    /// Releases the bytes of chunks without an owner to the file system; returns how many. If no thread uses any chunk,
    /// which the caller must know, the file is truncated behind the last owned chunk. Only one thread may do this at a
    /// time.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](crate::Error::ReadOnly), [`Forked`](crate::Error::Forked), and errors of the system: some bytes may
    /// be released then.
    pub fn trim(&self, is_unused: bool) -> Result<u64> {
        self.writable()?;
        let before = self.region.backed_bytes();
        let free = self.with_chunks(|chunks| {
            chunks.free_spare();
            chunks.free.len()
        });
        self.give_back(free)?;
        if is_unused {
            self.cut_off(|_| true)?;
        }
        Ok(before.saturating_sub(self.region.backed_bytes()))
    }

    /// Releases freed chunks beyond those that the next trees will soon need. On failure they stay free.
    pub(super) fn trim_at_close(&self) {
        if self.region.as_file().is_none() || self.is_read_only() {
            return;
        }
        let kept = (KEPT_BYTES / self.geometry.chunk_bytes) as usize;
        let is_used =
            |&id: &u32| Descriptor::decode(self.descriptor(id).load(self.medium())) == Some(Descriptor::Free);
        let count = self.with_chunks(|chunks| {
            chunks.free_spare();
            // Space allocated in advance, and never used, stays. The chunks freed last are used next.
            let (used, fresh): (Vec<u32>, Vec<u32>) = chunks.free.iter().partition(|id| is_used(id));
            let (first, stays) = used.split_at(used.len().saturating_sub(kept));
            chunks.free = [first, &fresh, stays].concat();
            first.len()
        });
        if let Ok(given) = self.give_back(count) {
            // A chunk that is not truncated is a hole.
            let _ = self.cut_off(|id| given.binary_search(&id).is_ok());
        }
    }

    /// Steps 1 to 3, for the first `count` of the free chunks; returns the released ones, in order.
    fn give_back(&self, count: usize) -> Result<Vec<u32>> {
        let mut given = Vec::new();
        let mut punched = Ok(true);
        while given.len() < count && matches!(punched, Ok(true)) {
            punched = self.with_chunks(|chunks| self.punch_some(chunks, count - given.len(), &mut given));
        }
        if !given.is_empty() {
            self.region.sync()?;
            given.sort_unstable();
            self.with_chunks(|chunks| {
                for id in chunks.bare.iter().filter(|id| given.binary_search(id).is_ok()) {
                    self.descriptor(*id).store_derived(self.medium(), Descriptor::Fresh.encode());
                }
            });
        }
        punched.map(|_| given)
    }

    /// Executes step 1 for up to `most` free chunks; returns `false` if there are none, or the file system does not
    /// support it.
    fn punch_some(&self, chunks: &mut FreeChunks, most: usize, given: &mut Vec<u32>) -> Result<bool> {
        let mut some: Vec<u32> = chunks.free.drain(..most.min(TOGETHER).min(chunks.free.len())).collect();
        some.sort_unstable();
        let mut punched = Ok(!some.is_empty());
        let mut done = 0;
        for run in some.chunk_by(|id, next| id + 1 == *next) {
            punched =
                self.region.punch(self.chunk_offset(run[0]), run.len() as u64 * self.geometry.chunk_bytes);
            if !matches!(punched, Ok(true)) {
                break;
            }
            done += run.len();
        }
        given.extend(&some[..done]);
        chunks.bare.extend(some[..done].iter().rev());
        chunks.free.extend(&some[done..]);
        punched
    }

    /// Executes step 4 for those released chunks at the end for which `may` returns true.
    fn cut_off(&self, may: impl Fn(u32) -> bool) -> Result<()> {
        self.with_chunks(|chunks| {
            chunks.bare.sort_unstable_by(|a, b| b.cmp(a));
            let bare = (0..).zip(&chunks.bare);
            let tail = bare.take_while(|&(at, &id)| id + 1 + at == chunks.begun && may(id)).count();
            let end = chunks.begun - tail as u32;
            if tail > 0 && self.region.shrink(self.chunk_offset(end))? {
                chunks.begun = end;
                chunks.bare.drain(..tail);
            }
            Ok(())
        })
    }
}
