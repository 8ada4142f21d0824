//! Checkpoints of a pool's journal in the background, before a writer would have to make one.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bristlecone::Pool;

/// Bytes of entries behind which a checkpoint is made, at least. The library makes one in a writer at 64 MiB.
const LEAST_BYTES: u64 = 32 << 20;
/// A checkpoint is running.
const RUNNING: u64 = u64::MAX;

/// Starts the checkpoints of a pool.
#[derive(Debug)]
pub struct Checkpoints {
    /// Bytes since the last checkpoint behind which another one may be due.
    due: Arc<AtomicU64>,
}

impl Default for Checkpoints {
    fn default() -> Self {
        Self { due: Arc::new(AtomicU64::new(LEAST_BYTES)) }
    }
}

impl Checkpoints {
    /// Starts a checkpoint in a thread of the runtime, if it costs less than the entries since the last one.
    pub fn start_if_due(&self, pool: &Pool) {
        let (due, Ok(Some(status))) = (self.due.load(Relaxed), pool.journal_status()) else { return };
        let since = status.bytes_since_checkpoint;
        if since < due || self.due.compare_exchange(due, RUNNING, Relaxed, Relaxed).is_err() {
            return;
        }
        let info = pool.info();
        let used = info.chunks.saturating_sub(info.chunks_free) * info.chunk_bytes;
        if since < used / 2 {
            return self.due.store(used / 2, Relaxed);
        }
        let (due, pool) = (Arc::clone(&self.due), pool.clone());
        tokio::task::spawn_blocking(move || {
            // After an error a writer makes the checkpoint, and finds the error.
            let _ = pool.checkpoint();
            due.store(LEAST_BYTES, Relaxed);
        });
    }
}
