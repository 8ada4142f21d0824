//! No room: what the logs leave to leaves then, and what they give back.
//!
//! Leaves come first. The logs take no chunk of the last ones that there are, so that one which they have given
//! back is not theirs again with the next write; writes go to their leaves instead. What is in the tree can be
//! changed and removed even so: in its place in the leaf, or, if it is buffered, by an entry in the last chunk,
//! or behind the copies that a compaction pass makes in the reserve chunk. That fails where more is buffered for
//! leaves that are full than a chunk takes, until there is room again.
//!
//! A write that finds no room has made a whole compaction pass once before it says so, if the logs have anything to
//! give, and has had the records freed that no reader holds any more.

use bristlecone_pm::Medium;
use bristlecone_pm::sync::wait;

use super::LodgeTree;
use super::versions::Spot;
use crate::index::parts::buffered::RESERVED_CHUNKS;
use crate::index::parts::codec::{Codec, KeyCodec};

impl<K: KeyCodec, V: Codec, M: Medium> LodgeTree<K, V, M> {
    /// Returns whether there is a chunk for a log that no leaf needs; or for a change that takes no more room
    /// than there is in the buffer, whether there is one at all.
    pub(super) fn log_may_grow(&self, steady: bool) -> bool {
        let spared = if steady { 0 } else { RESERVED_CHUNKS };
        self.versions.log.chunks_free() > 0 || self.pool.chunks_available() > spared
    }

    /// Returns room for an entry behind the copies, where the logs and the pool have no other and the change of a
    /// key that is buffered must not need any.
    pub(super) fn reserve_among_copies(&self) -> Option<Spot<'_, M>> {
        let versions = &self.versions;
        if self.log_may_grow(true) {
            return None;
        }
        versions.log.reserve_among_copies(&versions.pass).map(|spot| Spot::of(versions, spot))
    }

    /// Returns whether the logs have given something back since they had given `gifts`: chunks, or keys that they
    /// name. Waits for a compaction pass that is under way.
    pub(super) fn reclaim_log(&self, gifts: u64) -> bool {
        let (versions, log) = (&self.versions, &self.versions.log);
        log.reclaim(gifts, || {
            let mut pass = wait::lock(&versions.pass);
            let nothing_yet = || log.gifts() == gifts;
            let state = || (log.chunks_in_use(), log.keys_aside(), self.len.sum());
            // The first pass may be the rest of one that is under way.
            for _ in 0..2 {
                if nothing_yet() && log.may_give() && pass.futile.is_past(state()) {
                    self.compact_all(&mut pass);
                    pass.futile.remember(nothing_yet().then(state));
                }
            }
        })
    }
}
