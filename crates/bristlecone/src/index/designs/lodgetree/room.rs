//! Handling of a full pool: the space that logs leave to leaves, and the space that they free.
//!
//! Leaves have priority. The logs do not take the last available chunks, so that a chunk that they have freed is
//! not taken again by the next write; writes go to their leaves instead. Items in the tree can still be changed and
//! removed: in place in the leaf, or, if they are buffered, by an entry in the last chunk, or behind the copies
//! that a compaction pass makes in the reserve chunk. This fails if full leaves have more buffered items than a
//! chunk holds, until there is space again.
//!
//! A write without space fails only after it has run a whole compaction pass once, if the logs have anything to free.
//! It also frees all records that no reader holds any more.

use bristlecone_pm::Medium;
use bristlecone_pm::sync::wait;

use super::LodgeTree;
use super::versions::Spot;
use crate::index::parts::buffered::RESERVED_CHUNKS;
use crate::index::parts::codec::KeyCodec;

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Returns whether there is a chunk for a log that no leaf needs; for a change that needs no additional buffer
    /// space, whether there is any chunk.
    pub(super) fn log_may_grow(&self, steady: bool) -> bool {
        let spared = if steady { 0 } else { RESERVED_CHUNKS };
        self.versions.log.chunks_free() > 0 || self.pool.chunks_available() > spared
    }

    /// Reserves space for an entry behind the copies, if neither the logs nor the pool have any other, and the
    /// change of a buffered key must not need more.
    pub(super) fn reserve_among_copies(&self) -> Option<Spot<'_, M>> {
        let versions = &self.versions;
        if self.log_may_grow(true) {
            return None;
        }
        versions.log.reserve_among_copies(&versions.pass).map(|spot| Spot::of(versions, spot))
    }

    /// Returns whether the logs have freed something since their reclaim counter was `reclaims`: chunks, or keys that
    /// they refer to. Waits for a running compaction pass.
    pub(super) fn reclaim_log(&self, reclaims: u64) -> bool {
        let (versions, log) = (&self.versions, &self.versions.log);
        log.reclaim(reclaims, || {
            let mut pass = wait::lock(&versions.pass);
            let nothing_yet = || log.reclaims() == reclaims;
            let state = || (log.chunks_in_use(), log.keys_aside(), self.len.sum());
            // The first pass may be the rest of a running one.
            for _ in 0..2 {
                if nothing_yet() && log.may_give() && pass.futile.is_past(state()) {
                    self.compact_all(&mut pass);
                    pass.futile.remember(nothing_yet().then(state));
                }
            }
        })
    }
}
