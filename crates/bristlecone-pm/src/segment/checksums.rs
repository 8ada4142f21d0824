//! Checksums of the trees' extents: a CRC-32C for each block, computed by the close and compared by the open before
//! anything of the tree is used. All processors take part.
//!
//! The file is read rather than mapped: a read of a hole allocates no memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::EXTENT_BYTES;
use super::place::data_end;
use crate::failpoint;
use crate::sync::wait::lock;

/// Bytes that a checksum covers.
const BLOCK_BYTES: u64 = 1 << 20;
/// Bytes that a thread reads at a time: they stay in its cache.
const READ_BYTES: usize = 128 << 10;
/// Number of blocks that justify another thread.
const BLOCKS_EACH: usize = 4;

/// Returns for each extent its size, and the checksums of its blocks. Returns `None` if a part is unreadable, or an
/// extent has data behind a hole, which cannot happen in an extent that is filled from the front.
pub(super) fn of(file: &File, extents: &[u32]) -> Option<Vec<u64>> {
    failpoint::check("pread").ok()?;
    let mut words = Vec::new();
    // Offsets and sizes of blocks, and the places of their checksums.
    let mut blocks = Vec::new();
    for start in extents.iter().map(|&extent| u64::from(extent) * EXTENT_BYTES) {
        let bytes = data_end(file, start, EXTENT_BYTES)? - start;
        words.push(bytes);
        for at in (0..bytes).step_by(BLOCK_BYTES as usize) {
            blocks.push((start + at, (bytes - at).min(BLOCK_BYTES) as usize, words.len()));
            words.push(0);
        }
    }
    let (next, sums) = (AtomicUsize::new(0), Mutex::new((words, true)));
    let work = || {
        let mut buffer = vec![0; READ_BYTES];
        while let Some(&(start, bytes, word)) = blocks.get(next.fetch_add(1, Relaxed)) {
            let sum = of_block(file, start, bytes, &mut buffer);
            let (words, are_read) = &mut *lock(&sums);
            match sum {
                Some(sum) => words[word] = sum.into(),
                None => *are_read = false,
            }
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let others = processors.min(blocks.len() / BLOCKS_EACH).saturating_sub(1);
    std::thread::scope(|scope| {
        for _ in 0..others {
            // If the thread cannot be started, this thread does all the work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let (words, are_read) = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    are_read.then_some(words)
}

fn of_block(file: &File, start: u64, bytes: usize, buffer: &mut [u8]) -> Option<u32> {
    let mut sum = 0;
    for at in (0..bytes).step_by(buffer.len()) {
        let len = (bytes - at).min(buffer.len());
        let part = &mut buffer[..len];
        file.read_exact_at(part, start + at as u64).ok()?;
        sum = crc32c::crc32c_append(sum, part);
    }
    Some(sum)
}
