//! Descents without pinning: of one key, and of several keys whose cache misses overlap.

use bristlecone_pm::Medium;
use smallvec::SmallVec;

use super::WoTree;
use super::inner::{Aim, Step};
use super::layout::State;
use super::read::{At, STEPS_FEW};
use crate::index::parts::codec::{GROUP, KeyCodec};
use crate::index::parts::optimistic_lock::{LockState, OptimisticLock};
use crate::index::parts::prefetch;

/// A node that a descent without pinning has reached, and its level.
#[derive(Clone, Copy)]
struct Reached<'t> {
    at: At<'t>,
    level: u8,
}

/// The next node of such a descent, and whether it is to the right.
#[derive(Clone, Copy)]
struct Next<'t> {
    node: u64,
    lock: &'t OptimisticLock,
    level: u8,
    is_right: bool,
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Descends to the leaf of a target without pinning: pinning takes a locked instruction, which waits for earlier
    /// flushes. A node may therefore leave the tree and be reused at any time. Its contents are valid if its version is
    /// unchanged after the version of the next node was read. Returns `None` if some version was not, or if an inner
    /// node is locked: this waits for writers of the leaf alone.
    #[inline(always)]
    pub(super) fn glide(&self, aim: Aim<'_, K>, guard: &K::Guard) -> Option<At<'_>> {
        let mut reached = self.glide_begin()?;
        for _ in 0..STEPS_FEW {
            match self.glide_on(&reached, aim, guard)? {
                Some(next) => reached = self.glide_to::<true>(&reached, next)?,
                None => return Some(reached.at),
            }
        }
        None
    }

    /// Descends to the leaves of several keys as [`glide`](Self::glide) does, but waits for no writer. The descents
    /// advance in turn, so that their cache misses overlap.
    #[inline(always)]
    pub(super) fn glide_many(&self, keys: &[K::Ref<'_>], guard: &K::Guard) -> [Option<At<'_>>; GROUP] {
        let mut leaves = [None; GROUP];
        let Some(root) = self.glide_begin() else { return leaves };
        let mut descents: SmallVec<[(usize, Reached<'_>, Option<Next<'_>>); GROUP]> =
            (0..keys.len()).map(|number| (number, root, None)).collect();
        for _ in 0..STEPS_FEW {
            descents.retain(|(number, reached, next)| {
                let found = self.glide_on(reached, Aim::At(K::shorten(keys[*number])), guard);
                if let Some(None) = found {
                    leaves[*number] = Some(reached.at);
                }
                *next = found.flatten();
                next.inspect(|next| prefetch(next.lock)).is_some()
            });
            if descents.is_empty() {
                break;
            }
            descents.retain(|(_, reached, next)| {
                next.and_then(|next| self.glide_to::<false>(reached, next))
                    .map(|next| *reached = next)
                    .is_some()
            });
        }
        leaves
    }

    /// Begins a descent without pinning at the root.
    #[inline(always)]
    fn glide_begin(&self) -> Option<Reached<'_>> {
        let node = self.root();
        let lock = self.nodes.lock(node).ok()?;
        let LockState::Free(version) = lock.try_read() else { return None };
        if self.root() != node {
            return None;
        }
        let level = match self.nodes.state(node)? {
            State::Leaf { .. } => 0,
            State::Inner { level } => level,
            State::Free => return None,
        };
        Some(Reached { at: At { leaf: node, lock, version, detour: false }, level })
    }

    /// Returns the next node of a descent, prefetched, or `Some(None)` if the leaf is reached.
    #[inline(always)]
    fn glide_on(&self, from: &Reached<'_>, aim: Aim<'_, K>, guard: &K::Guard) -> Option<Option<Next<'_>>> {
        let (at, level) = (from.at.leaf, from.level);
        let step = match level {
            0 => self.step_right(at, 0, aim, guard),
            _ => Some(self.step_at_rest(at, level, aim, guard)),
        };
        let (node, level, is_right) = match step {
            None => return Some(None),
            Some(Step::Down(node, _)) => (node, level - 1, false),
            Some(Step::Right(node, _)) => (node, level, true),
            Some(Step::Lost) => return None,
        };
        // What has no lock is no node: the word is damaged, or was read while it changed.
        let lock = self.nodes.lock(node).ok()?;
        // The nodes above these are few, and cached.
        if level <= 1 {
            self.fetch(node);
        }
        Some(Some(Next { node, lock, level, is_right }))
    }

    /// Moves a descent to its next node, unless the one that led there has changed. Waits for a writer of a leaf only if
    /// it `WAITS`.
    #[inline(always)]
    fn glide_to<'t, const WAITS: bool>(&self, from: &Reached<'_>, next: Next<'t>) -> Option<Reached<'t>> {
        let Next { node: leaf, lock, level, is_right } = next;
        let version = match lock.try_read() {
            LockState::Free(version) => version,
            _ if WAITS && level == 0 => lock.read()?,
            _ => return None,
        };
        let at = At { leaf, lock, version, detour: from.at.detour || is_right };
        from.at.lock.validate(from.at.version).then_some(Reached { at, level })
    }
}
