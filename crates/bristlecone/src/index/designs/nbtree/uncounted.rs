//! The leaves whose number of items threads are about to change: a kill between the change and its count leaves them with
//! a wrong one. They are noted where the next process finds them.

use std::sync::atomic::compiler_fence;

use bristlecone_pm::sync::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use bristlecone_pm::{Manifest, ManifestReader, Memory, SharedCell, omits, own_thread_index};
use crossbeam_utils::CachePadded;

/// Number of threads with a word of their own.
const THREADS: usize = 64;

/// By thread: the block of the leaf that it changed last. The last word is 1 if a thread without a word of its own
/// changed any leaf.
type Blocks = [CachePadded<AtomicU64>; THREADS + 1];

/// The leaf that each thread changed last. The words are never cleared, because a settled leaf may be counted again.
/// `None`: the tree does not outlive a kill.
#[derive(Debug)]
pub struct Uncounted(Option<SharedCell<Blocks>>);

impl Uncounted {
    pub fn new(memory: &Memory) -> Self {
        Self(memory.outlives_a_kill().then(|| memory.cell()))
    }

    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        manifest.push_optional_cell(self.0.as_ref())
    }

    pub fn recover(manifest: &mut ManifestReader<'_>) -> Option<Self> {
        manifest.read_cell().map(|blocks| Self(Some(blocks)))
    }

    /// Notes that the calling thread is about to change the number of items of the leaf of a block.
    #[inline(always)]
    pub fn note(&self, block: u64) {
        let blocks = self.0.as_deref().filter(|_| !omits("nbtree uncounted"));
        let Some(blocks) = blocks else { return };
        let blocks: &Blocks = blocks;
        match own_thread_index().filter(|thread| *thread < THREADS) {
            Some(thread) => blocks[thread].store(block, Relaxed),
            None => blocks[THREADS].store(1, Relaxed),
        }
        // A kill interrupts a thread between two stores in program order.
        compiler_fence(SeqCst);
    }

    /// Returns the blocks of the noted leaves, and forgets them. Returns `None` if others may have been changed.
    pub fn take(&self) -> Option<Vec<u64>> {
        let blocks: &Blocks = self.0.as_deref()?;
        let (last, own) = blocks.split_last()?;
        let found = own.iter().map(|block| block.swap(0, Relaxed)).filter(|&block| block != 0).collect();
        (last.swap(0, Relaxed) == 0).then_some(found)
    }
}
