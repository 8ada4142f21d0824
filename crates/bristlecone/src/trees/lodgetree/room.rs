//! No room: what the logs leave to leaves then, and what they give back.
//!
//! Leaves come first. The logs take no chunk of the last ones that there are, so that one which they have given
//! back is not theirs again with the next write; writes go to their leaves instead. What is in the tree can be
//! changed and removed even so: in its place in the leaf, or, if it is buffered, by an entry in the last chunk,
//! or behind the copies that a walk makes in the chunk spared for them. That fails where more is buffered for
//! leaves that are full than a chunk takes, until there is room again.
//!
//! A write that finds no room has walked over all nodes once before it says so, if the logs have anything to
//! give, and has had the records freed that no reader holds any more.

use bristlecone_pm::Medium;
use bristlecone_pm::sync::wait;
use bristlecone_pm::sync::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use super::LodgeTree;
use super::log::{Spot, VersionLog};
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::no_room;

/// How often a write that found no room tries again with what others, or once itself, got back from the
/// logs: still others may take it first.
const ATTEMPTS: usize = 16;
/// Chunks of the pool that the logs leave to others.
const SPARED_CHUNKS: u64 = 2;

/// What a write that found no room has done about it.
#[derive(Default)]
pub(super) struct Relief {
    attempts: usize,
    squeezed: bool,
    /// Records that readers had let go of are free.
    freed: bool,
}

/// What the logs gave, and may give.
#[derive(Debug, Default)]
pub(super) struct Gifts {
    /// How often they gave something back.
    given: AtomicU64,
    /// Among the copies stand other entries.
    mixed: AtomicBool,
}

/// Chunks of the logs, keys aside, and items when a walk for room gave nothing.
pub(super) type Futile = no_room::Futile<(usize, usize, u64)>;

impl Gifts {
    /// Changes whenever there may be room where there was none.
    pub fn given(&self) -> u64 {
        self.given.load(Acquire)
    }

    pub fn give(&self) {
        self.given.fetch_add(1, Release);
    }

    /// The copies are about to be made anew.
    pub fn unmix(&self) {
        self.mixed.store(false, Relaxed);
    }
}

impl<M: Medium> VersionLog<M> {
    /// Whether a walk over all nodes would find anything but copies.
    fn may_give(&self) -> bool {
        self.gifts.mixed.load(Relaxed) || self.keys_aside() > 0 || self.log.has_garbage()
    }
}

impl<K: KeyCodec, V: Codec, M: Medium> LodgeTree<K, V, M> {
    /// Whether there is a chunk for a log that nobody needs for a leaf; or for a change that takes no more room
    /// than there is in the buffer, whether there is one at all.
    pub(super) fn log_may_grow(&self, steady: bool) -> bool {
        let spared = if steady { 0 } else { SPARED_CHUNKS };
        self.versions.log.chunks_free() > 0 || self.pool.chunks_available() > spared
    }

    /// Room for an entry behind the copies, where the logs and the pool have no other and the change of a
    /// key that is buffered must not need any.
    pub(super) fn reserve_among_copies(&self) -> Option<Spot<'_, M>> {
        let versions = &self.versions;
        if self.log_may_grow(true) {
            return None;
        }
        // What stands before the entry is fenced, because nobody is making copies.
        let _walk = versions.walk.try_lock().ok()?;
        let spot = versions.log.reserve_copy(|_| false)?;
        versions.gifts.mixed.store(true, Relaxed);
        Some(Spot::of(versions, spot))
    }

    /// There was no room when the logs had given `gifts`: whether there may be some by now.
    #[cold]
    pub(super) fn gain_room(&self, relief: &mut Relief, gifts: u64) -> bool {
        relief.attempts += 1;
        if relief.attempts > ATTEMPTS {
            return false;
        }
        // Where nothing but the logs is short of room, nobody else asks the medium.
        if self.pool.retry_growth() || self.versions.gifts.given() != gifts {
            return true;
        }
        if !std::mem::replace(&mut relief.squeezed, true) && self.squeeze_log(gifts) {
            return true;
        }
        !std::mem::replace(&mut relief.freed, true) && self.epochs.free_retired([&self.keys, &self.values])
    }

    /// Whether the logs have given something back since they had given `gifts`: chunks, or keys that they
    /// name. Waits for a walk that is under way.
    fn squeeze_log(&self, gifts: u64) -> bool {
        let versions = &self.versions;
        let release = || {
            if versions.log.release_free() > 0 {
                versions.gifts.give();
            }
        };
        release();
        let mut walk = wait::lock(&versions.walk);
        let nothing_yet = || versions.gifts.given() == gifts;
        let state = || (versions.log.chunks_in_use(), versions.keys_aside(), self.len.sum());
        // The first walk may be the rest of one that is under way.
        for _ in 0..2 {
            if nothing_yet() && versions.may_give() && walk.futile.is_past(state()) {
                self.walk_all(&mut walk);
                walk.futile.remember(nothing_yet().then(state));
            }
        }
        release();
        !nothing_yet()
    }
}
