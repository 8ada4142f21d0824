//! One inner node. It is searched without a lock, even while its entries move. Changes must keep this
//! invariant: a thread that reads an intermediate state, concurrently or after a crash, is never led
//! too far to the right.

use bristlecone_pm::sync::Ordering::{AcqRel, Acquire};
use bristlecone_pm::{Error, LINE_BYTES, Medium, Persist, Result};

use super::WoTree;
use super::layout::NO_KEY;
use super::nodes::Locked;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::optimistic_lock::{LockState, OptimisticLock};

/// The target of a search: the node whose range holds a key, or the one just before it.
pub(super) enum Aim<'k, K: KeyCodec> {
    At(K::Ref<'k>),
    Before(K::Ref<'k>),
    /// The last node.
    End,
}

impl<K: KeyCodec> Clone for Aim<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: KeyCodec> Copy for Aim<'_, K> {}

impl<K: KeyCodec> Aim<'_, K> {
    /// Returns whether the target is at or after the beginning `low` of a range.
    #[inline(always)]
    pub fn is_at_or_after(self, low: K::Ref<'_>) -> bool {
        match self {
            Self::At(key) => K::shorten(low) <= K::shorten(key),
            Self::Before(key) => K::shorten(low) < K::shorten(key),
            Self::End => true,
        }
    }
}

/// The next step of a search from an inner node.
pub(super) enum Step {
    /// Down to a child, with the word of its least key if this node knows it.
    Down(u64, Option<u64>),
    /// To the right sibling, which begins at this word.
    Right(u64, u64),
    /// The node has left the tree, or is leaving it.
    Lost,
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    pub(super) fn separator<'g>(&'g self, word: u64, guard: &'g K::Guard) -> K::Ref<'g> {
        self.separators.read(word, guard)
    }

    /// Returns the next step of a search from an inner node. Takes no lock, and waits only for a
    /// writer that removes the node from the tree.
    #[inline(always)]
    pub(super) fn step(
        &self,
        node: u64,
        level: u8,
        lock: &OptimisticLock,
        aim: Aim<'_, K>,
        guard: &K::Guard,
    ) -> Step {
        if let LockState::Free(version) = lock.try_read() {
            let step = self.step_at_rest(node, level, aim, guard);
            if lock.validate(version) {
                return step;
            }
        }
        self.step_in_motion(node, level, lock, aim, guard)
    }

    #[inline(always)]
    pub(super) fn step_at_rest(&self, node: u64, level: u8, aim: Aim<'_, K>, guard: &K::Guard) -> Step {
        if let Some(right) = self.step_right(node, level, aim, guard) {
            return right;
        }
        let at = self.place(node, self.shape.entries, aim, guard);
        let entry = self.nodes.entry(node, at);
        let low = (at > 0).then(|| entry.key.load(self.medium()));
        Step::Down(entry.word.load(self.medium()), low)
    }

    /// Returns the last of the first `count` entries that is at or before the target.
    #[inline(always)]
    fn place(&self, node: u64, count: usize, aim: Aim<'_, K>, guard: &K::Guard) -> usize {
        // Without branches on keys, half of which would be mispredicted.
        let (mut first, mut rest) = (0, count);
        while rest > 1 {
            let half = rest / 2;
            let entry = self.nodes.entry(node, first + half);
            let key = entry.key.load(self.medium());
            let there = entry.word.load(self.medium()) != 0;
            let below = if K::INLINE {
                there & aim.is_at_or_after(self.separator(key, guard))
            } else {
                there && aim.is_at_or_after(self.separator(key, guard))
            };
            first = std::hint::select_unpredictable(below, first + half, first);
            rest -= half;
        }
        first
    }

    pub(super) fn step_right(&self, node: u64, level: u8, aim: Aim<'_, K>, guard: &K::Guard) -> Option<Step> {
        let link = self.nodes.link(node, level);
        if link.next.load(self.medium()) == 0 {
            return None;
        }
        // A split stores `next` first and `high` second: read in reverse order they never lead past
        // the new node.
        let high = link.high.load(self.medium());
        let next = link.next.load(self.medium());
        aim.is_at_or_after(self.separator(high, guard)).then_some(Step::Right(next, high))
    }

    /// Same as above during concurrent changes. A moving entry occurs twice or not at all. The first
    /// case is harmless. In the second, the search is led to the left of it, and continues by
    /// siblings. The key of one entry must not be combined with the child of a later one: this is
    /// excluded by reading the key again, and by counting turns, for keys that reappear.
    #[cold]
    fn step_in_motion(
        &self,
        node: u64,
        level: u8,
        lock: &OptimisticLock,
        aim: Aim<'_, K>,
        guard: &K::Guard,
    ) -> Step {
        let medium = self.medium();
        let turns = self.nodes.turns(node);
        for round in 0.. {
            if lock.try_read() == LockState::Obsolete {
                return Step::Lost;
            }
            // Pairs with the increments in `turn`.
            let before = turns.load(Acquire);
            if before.is_multiple_of(2) {
                let mut step = self.step_right(node, level, aim, guard);
                if step.is_none() {
                    let (mut child, mut low) = (self.nodes.entry(node, 0).word.load(medium), None);
                    for at in 1..self.shape.entries {
                        let entry = self.nodes.entry(node, at);
                        let key = entry.key.load(medium);
                        let word = entry.word.load(medium);
                        if word == 0 {
                            break;
                        }
                        if entry.key.load(medium) != key {
                            // An intermediate state: the entries before it are valid in any case.
                            continue;
                        }
                        if !aim.is_at_or_after(self.separator(key, guard)) {
                            break;
                        }
                        (child, low) = (word, Some(key));
                    }
                    step = Some(Step::Down(child, low));
                }
                if turns.load(Acquire) == before
                    && let Some(step) = step
                {
                    return step;
                }
            }
            crate::index::parts::optimistic_lock::pause(round);
        }
        unreachable!("rounds do not end")
    }

    /// Returns the number of entries of a locked inner node.
    pub(super) fn count(&self, node: u64) -> usize {
        let there = |at: &usize| self.nodes.entry(node, *at).word.load(self.medium()) != 0;
        (0..self.shape.entries).take_while(there).count()
    }

    /// Returns the position of a child in a locked inner node without duplicates.
    pub(super) fn place_of(&self, node: u64, child: u64) -> Option<usize> {
        (0..self.count(node)).find(|&at| self.nodes.entry(node, at).word.load(self.medium()) == child)
    }

    /// Adds an entry to a locked inner node that has space and no duplicates (enter 1 to 3).
    pub(super) fn enter(&self, node: u64, key: u64, child: u64, guard: &K::Guard) {
        let medium = self.medium();
        let count = self.count(node);
        let at = 1 + self.place(node, count, Aim::At(self.separator(key, guard)), guard);
        // Enter 1: from the right end; a line is durable before the next one loses its last entry.
        for from in (at..count).rev() {
            let (source, target) = (self.nodes.entry(node, from), self.nodes.entry(node, from + 1));
            let (moved, word) = (source.key.load(medium), source.word.load(medium));
            if from + 1 == count {
                target.key.store(medium, moved);
                let _ordered = medium.ordered_within_line();
                target.word.store(medium, word);
            } else {
                // Between the stores: the later key with the earlier child.
                target.word.store(medium, word);
                let _ordered = medium.ordered_within_line();
                target.key.store(medium, moved);
            }
            let _ordered = medium.ordered_within_line();
            if self.begins_line(node, from + 1) {
                medium.persist(target, "wotree enter.1");
            }
        }
        let entry = self.nodes.entry(node, at);
        if at < count {
            // Enter 2: a duplicate of its left neighbour, under a key that is being changed.
            let left = self.nodes.entry(node, at - 1).word.load(medium);
            entry.word.store(medium, left);
            let _ordered = medium.ordered_within_line();
        }
        entry.key.store(medium, key);
        let ordered = medium.ordered_within_line();
        // Enter 3.
        entry.word.publish(medium, child, &ordered, "wotree enter.3");
        medium.persist(entry, "wotree enter.3");
    }

    fn begins_line(&self, node: u64, at: usize) -> bool {
        self.shape.entry(node, at).is_multiple_of(LINE_BYTES as u64)
    }

    /// Removes duplicates from a locked inner node: entries with the child of their left neighbour,
    /// left by a crash or a removal (compact 1). Durable when this returns.
    pub(super) fn compact(&self, node: u64) {
        let medium = self.medium();
        let word = |at: usize| self.nodes.entry(node, at).word.load(medium);
        let mut count = self.count(node);
        let mut at = 1;
        while at < count {
            if word(at) != word(at - 1) {
                at += 1;
                continue;
            }
            self.turn(node);
            for to in at..count {
                let (target, last) = (self.nodes.entry(node, to), to + 1 == count);
                if last {
                    target.word.store(medium, 0);
                    let _ordered = medium.ordered_within_line();
                    target.key.store(medium, NO_KEY);
                } else {
                    let source = self.nodes.entry(node, to + 1);
                    // Between the stores: the later key with the earlier child.
                    target.key.store(medium, source.key.load(medium));
                    let _ordered = medium.ordered_within_line();
                    target.word.store(medium, source.word.load(medium));
                }
                let _ordered = medium.ordered_within_line();
                if last || self.begins_line(node, to + 1) {
                    medium.persist(target, "wotree compact.1");
                }
            }
            self.turn(node);
            count -= 1;
        }
    }

    /// Counts a turn before and after entries of the node move to the left, so that the number of
    /// turns is even in between.
    fn turn(&self, node: u64) {
        self.nodes.turns(node).fetch_add(2, AcqRel);
    }

    /// Changes links of locked nodes while no reader reads past their locks.
    pub(super) fn relink(&self, node: u64, change: impl FnOnce()) {
        let turns = self.nodes.turns(node);
        // No other thread relinks, but others may count turns: even stays even and odd stays odd.
        turns.fetch_add(1, AcqRel);
        change();
        turns.fetch_add(1, AcqRel);
    }

    #[cold]
    pub(super) fn damaged(&self, what: &str, node: u64) -> Error {
        Error::corrupted(what.to_owned(), format!("node {node:#x}"))
    }

    /// Locks an inner node of a level that covers a target, starting from a node to the left of it or
    /// from the root. Returns `None` if there is no such level yet.
    pub(super) fn lock_inner(
        &self,
        aim: Aim<'_, K>,
        level: u8,
        hint: Option<u64>,
        guard: &K::Guard,
    ) -> Result<Option<Locked<'_>>> {
        let mut hint = hint;
        loop {
            let mut node = match hint.take() {
                Some(node) => node,
                None => match self.descend_inner(aim, level, guard)? {
                    Some(node) => node,
                    None => return Ok(None),
                },
            };
            loop {
                let Some(locked) = self.locked(node)? else { break };
                match self.step_right(node, level, aim, guard) {
                    Some(Step::Right(next, _)) => node = next,
                    _ => return Ok(Some(locked)),
                }
            }
        }
    }
}
