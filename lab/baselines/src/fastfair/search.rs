//! Search: inner nodes without locks, leaves under versions.

use std::sync::atomic::Ordering::Acquire;

use bristlecone::parts::optimistic_lock::{OptimisticLock, Version};
use bristlecone::{Medium, Result};

use super::{FastFair, LEFTMOST, LEVELS_MAX, LOW, NEXT};
use crate::index::Aim;
use crate::store::damaged;

/// A leaf found by a descent.
pub(super) struct Found<'t> {
    pub leaf: u64,
    pub lock: &'t OptimisticLock,
    pub version: Version,
    /// The first index whose key is greater than the aim.
    pub place: usize,
}

impl<M: Medium> FastFair<M> {
    /// Returns the right sibling, if the aim lies there.
    #[inline(always)]
    pub(super) fn right_of(&self, node: u64, aim: Aim) -> Result<Option<u64>> {
        let next = self.store.load(node, NEXT);
        if next == 0 {
            return Ok(None);
        }
        self.store.lock(next)?;
        Ok(aim.is_at_or_after(self.store.load(next, LOW)).then_some(next))
    }

    /// Descends to the node of an aim on a level, without locks. Returns `None` if the root is
    /// below it.
    pub(super) fn descend_inner(&self, aim: Aim, level: u64) -> Result<Option<u64>> {
        // Pairs with the store when the root was split.
        let mut node = self.root.load(Acquire);
        self.store.lock(node)?;
        let mut at = self.level(node)?;
        if at < level {
            return Ok(None);
        }
        while at > level {
            let mut child = self.store.load(node, LEFTMOST);
            let mut at_end = true;
            for place in 0..self.capacity {
                // Before an entry has its word, its key may be arbitrary.
                if self.word(node, place) == 0 {
                    break;
                }
                // Entries shift to the right only, child before key: an intermediate state leads to
                // the left of the aim, from where siblings lead on.
                let (key, word) = (self.key(node, place), self.word(node, place));
                if word == 0 {
                    break;
                }
                if !aim.is_at_or_after(key) {
                    at_end = false;
                    break;
                }
                child = word;
            }
            // Only behind the last entry can the aim be in the sibling.
            if at_end && let Some(next) = self.right_of(node, aim)? {
                node = next;
                continue;
            }
            self.store.lock(child)?;
            at -= 1;
            if self.level(child)? != at {
                return Err(damaged("a node of another level", child));
            }
            node = child;
        }
        Ok(Some(node))
    }

    pub(super) fn level(&self, node: u64) -> Result<u64> {
        match self.store.load(node, 0) {
            level @ 1..=LEVELS_MAX => Ok(level - 1),
            _ => Err(damaged("a dangling node reference", node)),
        }
    }

    #[inline(always)]
    pub(super) fn descend(&self, aim: Aim) -> Result<Found<'_>> {
        let mut leaf = self.descend_inner(aim, 0)?.expect("every tree has leaves");
        loop {
            let lock = self.store.lock(leaf)?;
            let Some(version) = lock.read() else { return Err(damaged("an obsolete node", leaf)) };
            // A linear search, as published.
            let ends = |at: &usize| self.word(leaf, *at) == 0 || !aim.is_at_or_after(self.key(leaf, *at));
            let place = (0..self.capacity).find(ends).unwrap_or(self.capacity);
            let at_end = place == self.capacity || self.word(leaf, place) == 0;
            let right = if at_end { self.right_of(leaf, aim)? } else { None };
            match right {
                _ if !lock.validate(version) => {}
                Some(next) => leaf = next,
                None => return Ok(Found { leaf, lock, version, place }),
            }
        }
    }

    /// Returns the item of a key, or its insertion position, in the leaf that a descent found.
    #[inline(always)]
    pub(super) fn find(&self, leaf: u64, place: usize, key: u64) -> std::result::Result<(usize, u64), usize> {
        match place.checked_sub(1) {
            Some(at) if self.key(leaf, at) == key => Ok((at, self.word(leaf, at).wrapping_sub(1))),
            _ => Err(place),
        }
    }
}
