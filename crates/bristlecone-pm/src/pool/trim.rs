//! Giving space back to the file system: holes in the place of chunks that no tree owns, and an earlier end of the file.
//!
//! 1. Free chunks are taken, so that no tree gets one meanwhile.
//! 2. Their bytes are given back, and the file is synced. *A crash before: they are free, and hold anything, zeros too.*
//! 3. Their descriptors say that they were never used, which is to say that they are zeros. No flush: a crash may take
//!    this back, and leaves them free.
//! 4. Where the last chunks of the file have no owner, the file ends before them. *A crash before or behind: opening
//!    ignores what descriptors say of chunks behind the end, if these have no owner.*

use super::PoolFile;
use super::layout::Descriptor;
use crate::{Medium, Result};

/// Freed bytes that a pool keeps for its next trees when it is closed.
const KEPT_BYTES: u64 = 64 << 20;

impl<M: Medium> PoolFile<M> {
    /// Gives the bytes of chunks without owner back to the file system; returns how many it took. If no thread uses any
    /// chunk, which the caller knows, the file ends behind the last one with an owner.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](crate::Error::ReadOnly), [`Forked`](crate::Error::Forked), and what the system refuses: some bytes may have
    /// been given back then.
    pub fn trim(&self, is_unused: bool) -> Result<u64> {
        self.writable()?;
        let before = self.region.backed_bytes();
        let taken = self.with_chunks(|chunks| std::mem::take(&mut chunks.free));
        self.give_back(&taken)?;
        if is_unused {
            self.cut_off(|_| true)?;
        }
        Ok(before.saturating_sub(self.region.backed_bytes()))
    }

    /// Gives back what was freed and is more than the next trees will soon need. Where that fails, the pool is as it was.
    pub(super) fn trim_at_close(&self) {
        if self.region.as_file().is_none() || self.is_read_only() {
            return;
        }
        let kept = (KEPT_BYTES / self.geometry.chunk_bytes) as usize;
        let is_used =
            |&id: &u32| Descriptor::decode(self.descriptor(id).load(self.medium())) == Some(Descriptor::Free);
        let taken = self.with_chunks(|chunks| {
            // What was provided ahead of time, and never used, stays. The chunks that were freed last are used next.
            let (used, fresh): (Vec<u32>, Vec<u32>) = chunks.free.iter().partition(|id| is_used(id));
            let (taken, stays) = used.split_at(used.len().saturating_sub(kept));
            chunks.free = [&fresh, stays].concat();
            taken.to_vec()
        });
        if self.give_back(&taken).is_ok() && !taken.is_empty() {
            // What is not cut off is a hole.
            let _ = self.cut_off(|id| taken.contains(&id));
        }
    }

    /// Steps 2 and 3, for chunks that were taken.
    fn give_back(&self, taken: &[u32]) -> Result<()> {
        let chunk_bytes = self.geometry.chunk_bytes;
        let mut sorted = taken.to_vec();
        sorted.sort_unstable();
        let mut given = Vec::new();
        let mut punched = Ok(true);
        for run in sorted.chunk_by(|id, next| id + 1 == *next) {
            punched = self.region.punch(self.chunk_offset(run[0]), run.len() as u64 * chunk_bytes);
            if !matches!(punched, Ok(true)) {
                break;
            }
            given.extend_from_slice(run);
        }
        let synced = if given.is_empty() { Ok(()) } else { self.region.sync() };
        if synced.is_ok() {
            for &id in &given {
                self.descriptor(id).store_derived(self.medium(), Descriptor::Fresh.encode());
            }
        }
        self.with_chunks(|chunks| {
            let rest = taken.iter().filter(|id| given.binary_search(id).is_err());
            // They were freed before what is free by now.
            let free = std::mem::take(&mut chunks.free);
            chunks.free = rest.copied().chain(free).collect();
            chunks.bare.extend(given.iter().rev());
        });
        synced.and(punched).map(drop)
    }

    /// Step 4, for those chunks at the end that were given back and `may` go.
    fn cut_off(&self, may: impl Fn(u32) -> bool) -> Result<()> {
        self.with_chunks(|chunks| {
            chunks.bare.sort_unstable_by(|a, b| b.cmp(a));
            let bare = (0..).zip(&chunks.bare);
            let tail = bare.take_while(|&(at, &id)| id + 1 + at == chunks.begun && may(id)).count();
            let end = chunks.begun - tail as u32;
            if tail > 0 {
                self.region.shrink(self.chunk_offset(end))?;
                chunks.begun = end;
                chunks.bare.drain(..tail);
            }
            Ok(())
        })
    }
}
