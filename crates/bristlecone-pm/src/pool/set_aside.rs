//! Chunks that are reserved for threads that must not run out of space during an operation.
//!
//! They are *spare* chunks, which no tree owns and the medium has bytes for. A thread sets some of them aside, and
//! takes these once there are no others. The other spare chunks are available to all threads when there are no others.

use super::PoolFile;
use super::chunks::{FreeChunks, REFUSED, SET_ASIDE};
use crate::{Medium, Result, thread_index};

/// Chunks that are reserved for the calling thread until this is dropped: its operations meanwhile find space.
#[derive(Debug)]
pub struct SetAside<'a, M: Medium> {
    pool: &'a PoolFile<M>,
    thread: usize,
}

impl<M: Medium> Drop for SetAside<'_, M> {
    fn drop(&mut self) {
        self.pool.with_chunks(|chunks| {
            if let Some(at) = chunks.set_aside.iter().position(|(thread, _)| *thread == self.thread) {
                chunks.set_aside.swap_remove(at);
            }
        });
    }
}

impl FreeChunks {
    /// Returns how many of the spare chunks are not set aside.
    pub(super) fn idle(&self) -> usize {
        self.spare.len() - self.set_aside.iter().map(|(_, chunks)| chunks).sum::<usize>()
    }

    /// Frees the spare chunks that are not set aside.
    pub(super) fn free_spare(&mut self) {
        let kept = self.spare.len() - self.idle();
        self.free.extend(self.spare.drain(kept..));
    }

    /// Takes a spare chunk that is set aside for this thread, or for no thread.
    pub(super) fn take_spare(&mut self, thread: usize) -> Option<u32> {
        let own = self.set_aside.iter_mut().find(|(of, chunks)| *of == thread && *chunks > 0);
        if let Some((_, chunks)) = own {
            *chunks -= 1;
        } else if self.idle() == 0 {
            return None;
        }
        self.spare.pop()
    }
}

impl<M: Medium> PoolFile<M> {
    /// Sets chunks aside for the calling thread.
    ///
    /// # Errors
    ///
    /// [`PoolFull`](crate::Error::PoolFull), [`MediumFull`](crate::Error::MediumFull) and errors of the system; nothing
    /// is then set aside.
    pub fn set_aside(&self, chunks: usize) -> Result<SetAside<'_, M>> {
        let thread = thread_index();
        loop {
            let enough = self.with_chunks(|all| {
                let enough = all.idle() >= chunks;
                if enough {
                    all.set_aside.push((thread, chunks));
                }
                enough
            });
            if enough {
                return Ok(SetAside { pool: self, thread });
            }
            match self.take_unspared_chunk() {
                Ok(id) => self.with_chunks(|all| all.spare.push(id)),
                Err(error) => {
                    self.with_chunks(FreeChunks::free_spare);
                    return Err(error);
                }
            }
        }
    }

    /// Returns how many chunks are available to the calling thread, while some are set aside or the medium has no
    /// space.
    #[cold]
    pub(super) fn chunks_for_thread(&self, available: u64) -> u64 {
        let own = |chunks: &FreeChunks| {
            let of_thread = chunks.set_aside.iter().filter(|(thread, _)| *thread == thread_index());
            of_thread.map(|(_, chunks)| *chunks as u64).sum::<u64>()
        };
        let set_aside = if available & SET_ASIDE == 0 { 0 } else { own(&self.lock_chunks()) };
        set_aside + if available & REFUSED == 0 { available & !SET_ASIDE } else { self.chunks_backed() }
    }
}
