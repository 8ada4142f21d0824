//! One leaf: its bitmap, its slot array, and atomic changes of both.

use std::cmp::Ordering::{Equal, Greater, Less};

use bristlecone_pm::{Durable, Flushed, Medium, Persist, Result, Witness};

use super::WoTree;
use super::layout::{SLOT_WORDS_MAX, STATE_SLOTS, State};
use super::log::{Lane, Record};
use super::nodes::Locked;
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::optimistic_lock::Stale;

/// Issue for a leaf whose slot array does not match its bitmap.
pub(super) const WRONG_ORDER: &str = "slot array differs from the bitmap";

/// The result of an optimistic read of a leaf.
pub(super) type Read<T> = std::result::Result<T, Stale>;

/// The slots of a leaf's items in the order of their keys, as on the medium: the count, the slots, zeros.
#[derive(Clone, Copy)]
pub(super) struct Order([u8; SLOT_WORDS_MAX * 8]);

impl Order {
    fn empty() -> Self {
        Self([0; SLOT_WORDS_MAX * 8])
    }

    fn len(&self) -> usize {
        self.0[0].into()
    }

    /// Returns the slot array of words on the medium, or `None` if it contains an invalid slot, or one twice.
    pub fn of_words(words: &[u64], slots: usize) -> Option<Self> {
        let mut order = Self::empty();
        for (bytes, word) in order.0.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let fits = order.len() <= slots && order.slots().iter().all(|&slot| usize::from(slot) < slots);
        (fits && order.bitmap().count_ones() as usize == order.len()).then_some(order)
    }

    pub fn first(len: usize) -> Self {
        let mut order = Self::empty();
        (0..len).for_each(|slot| order.insert(slot, slot));
        order
    }

    #[inline(always)]
    pub fn slots(&self) -> &[u8] {
        &self.0[1..=self.len()]
    }

    pub fn insert(&mut self, at: usize, slot: usize) {
        let len = self.len();
        debug_assert!(at <= len && slot < SLOT_WORDS_MAX * 8 - 1, "slot {slot} at {at} of {len}");
        self.0.copy_within(1 + at..=len, 2 + at);
        self.0[1 + at] = slot as u8;
        self.0[0] += 1;
    }

    pub fn remove(&mut self, at: usize) {
        let len = self.len();
        debug_assert!(at < len, "{at} of {len}");
        self.0.copy_within(2 + at..=len, 1 + at);
        self.0[len] = 0;
        self.0[0] -= 1;
    }

    pub fn truncate(&mut self, len: usize) {
        self.0[1 + len..].fill(0);
        self.0[0] = len as u8;
    }

    /// Returns the bits of the slots, ignoring invalid slot numbers.
    pub fn bitmap(&self) -> u128 {
        let bit = |slot: u8| 1_u128.checked_shl(slot.into()).unwrap_or_default();
        self.slots().iter().fold(0, |bits, &slot| bits | bit(slot))
    }

    /// Returns a word of the slot array.
    #[inline(always)]
    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|byte| self.0[at * 8 + byte]))
    }
}

/// The state of a leaf as it was read: the slots with items, and their order.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub bitmap: u128,
    pub order: Order,
}

impl View {
    pub fn empty() -> Self {
        Self { bitmap: 0, order: Order::empty() }
    }

    pub fn of(order: Order) -> Self {
        Self { bitmap: order.bitmap(), order }
    }

    /// Returns whether the slot array contains every slot with an item exactly once, and no other one.
    pub fn is_sound(&self) -> bool {
        self.has_all() && self.order.bitmap() == self.bitmap
    }

    /// Returns whether the slot array has as many slots as there are items.
    #[inline(always)]
    fn has_all(&self) -> bool {
        self.order.len() == self.bitmap.count_ones() as usize
    }

    /// Returns a slot without an item.
    pub fn first_free(&self, slots: usize) -> Option<usize> {
        let slot = self.bitmap.trailing_ones() as usize;
        (slot < slots).then_some(slot)
    }
}

/// The position of a key's item, or the position for it.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub place: usize,
    pub slot: usize,
    pub key: u64,
    pub value: u64,
}

impl<K: KeyCodec, M: Medium> WoTree<K, M> {
    /// Returns the slots with items, and whether the slot array is valid. Returns `None` if it is not a leaf.
    #[inline(always)]
    pub(super) fn bitmap(&self, leaf: u64) -> Option<(u128, bool)> {
        let State::Leaf { bitmap, valid } = self.nodes.state(leaf)? else { return None };
        let mut bitmap = u128::from(bitmap);
        if !self.shape.one_line() {
            bitmap |= u128::from(self.nodes.bitmap_word(leaf).load(self.medium())) << STATE_SLOTS;
        }
        Some((bitmap & ((1 << self.shape.slots) - 1), valid))
    }

    /// Reads bitmap and slot array. `still` as in [`locate`](Self::locate).
    #[inline(always)]
    pub(super) fn view(&self, leaf: u64, guard: &K::Guard, still: impl Fn() -> bool) -> Read<View> {
        let (bitmap, valid) = self.bitmap(leaf).ok_or(Stale)?;
        if !valid {
            let order = self.rebuild(leaf, bitmap, guard, still)?;
            return Ok(View { bitmap, order });
        }
        let mut order = Order::empty();
        for (bytes, cell) in order.0.chunks_exact_mut(8).zip(self.nodes.slot_words(leaf)) {
            bytes.copy_from_slice(&cell.load(self.medium()).to_le_bytes());
        }
        order.0[0] = order.0[0].min(self.shape.slots as u8);
        Ok(View { bitmap, order })
    }

    /// Returns the words of the item of a key, searched directly in the slot array on the medium. `still` as
    /// in [`locate`](Self::locate).
    #[inline(always)]
    pub(super) fn look(
        &self,
        leaf: u64,
        key: K::Ref<'_>,
        guard: &K::Guard,
        still: impl Fn() -> bool,
    ) -> Read<Option<(u64, u64)>> {
        let medium = self.medium();
        let valid = matches!(self.nodes.state(leaf), Some(State::Leaf { valid: true, .. }));
        if !valid {
            let view = self.view(leaf, guard, &still)?;
            let found = self.locate(leaf, &view.order, key, guard, still)?;
            return Ok(found.ok().map(|found| (found.key, found.value)));
        }
        let order = self.nodes.slot_words(leaf);
        let byte = |at: usize| (order[at / 8].load(medium) >> (at % 8 * 8) & 0xff) as usize;
        let count = byte(0).min(self.shape.slots);
        let found = self.search(leaf, count, |place| byte(1 + place), key, guard, still)?;
        Ok(found.ok().map(|found| (found.key, found.value)))
    }

    /// Returns the order of the items from their keys: the slot array is derived from the bitmap, never the
    /// other way round.
    #[cold]
    fn rebuild(&self, leaf: u64, bitmap: u128, guard: &K::Guard, still: impl Fn() -> bool) -> Read<Order> {
        let words: Vec<(usize, u64)> = (0..self.shape.slots)
            .filter(|slot| bitmap >> slot & 1 != 0)
            .map(|slot| (slot, self.nodes.item(leaf, slot).key.load(self.medium())))
            .collect();
        if !still() {
            return Err(Stale);
        }
        let mut items: Vec<_> =
            words.into_iter().map(|(slot, word)| (self.keys.read(word, guard), slot)).collect();
        items.sort_unstable();
        let mut order = Order::empty();
        items.iter().enumerate().for_each(|(at, &(_, slot))| order.insert(at, slot));
        Ok(order)
    }

    /// Finds the item of `key` in a leaf: the inner `Err` is its position among the others. `still` returns
    /// whether the data read so far are valid: it is called before any out-of-line data are accessed.
    #[inline(always)]
    pub(super) fn locate(
        &self,
        leaf: u64,
        order: &Order,
        key: K::Ref<'_>,
        guard: &K::Guard,
        still: impl Fn() -> bool,
    ) -> Read<std::result::Result<Found, usize>> {
        let slots = order.slots();
        self.search(leaf, slots.len(), |place| slots[place].into(), key, guard, still)
    }

    /// [`locate`](Self::locate) among `count` items, where `slot` returns the slot of each.
    #[inline(always)]
    fn search(
        &self,
        leaf: u64,
        count: usize,
        slot: impl Fn(usize) -> usize,
        key: K::Ref<'_>,
        guard: &K::Guard,
        still: impl Fn() -> bool,
    ) -> Read<std::result::Result<Found, usize>> {
        let medium = self.medium();
        if count == 0 {
            return Ok(Err(0));
        }
        // Without branches on keys, half of which would be mispredicted.
        let (mut place, mut rest) = (0, count);
        while rest > 1 {
            let half = rest / 2;
            let word = self.nodes.item(leaf, slot(place + half)).key.load(medium);
            if !K::INLINE && !still() {
                return Err(Stale);
            }
            let below = self.keys.read(word, guard) <= K::shorten(key);
            place = std::hint::select_unpredictable(below, place + half, place);
            rest -= half;
        }
        let slot = slot(place);
        let item = self.nodes.item(leaf, slot);
        let word = item.key.load(medium);
        if !K::INLINE && !still() {
            return Err(Stale);
        }
        Ok(match self.keys.read(word, guard).cmp(&K::shorten(key)) {
            Equal => Ok(Found { place, slot, key: word, value: item.word.load(medium) }),
            Less => Err(place + 1),
            Greater => Err(place),
        })
    }

    /// Returns the view of a leaf that the caller has locked, or that no other thread knows. A slot array that
    /// does not fit the leaf is an error; whether it is [sound](View::is_sound) takes longer to verify.
    pub(super) fn own_view(&self, leaf: u64, guard: &K::Guard) -> Result<View> {
        let Ok(view) = self.view(leaf, guard, || true) else {
            return Err(self.damaged("a reference to no leaf", leaf));
        };
        if view.has_all() { Ok(view) } else { Err(self.damaged(WRONG_ORDER, leaf)) }
    }

    /// Finds the item of `key` in a leaf that the caller has locked; returns an error if the slot array refers
    /// to a slot without an item.
    #[inline(always)]
    pub(super) fn own_place(
        &self,
        leaf: u64,
        view: &View,
        key: K::Ref<'_>,
        guard: &K::Guard,
    ) -> Result<std::result::Result<Found, usize>> {
        let found = self.locate(leaf, &view.order, key, guard, || true);
        let found = found.unwrap_or_else(|_| unreachable!("a locked leaf does not change"));
        let exists = |found: &Found| found.slot < self.shape.slots && view.bitmap >> found.slot & 1 != 0;
        if found.as_ref().is_ok_and(|found| !exists(found)) {
            return Err(self.damaged(WRONG_ORDER, leaf));
        }
        Ok(found)
    }

    /// Durably and atomically replaces the bitmap and the slot array of a locked leaf by those of `view`.
    /// `proof` witnesses that the items behind its new bits are durable.
    pub(super) fn commit(&self, leaf: &Locked<'_>, view: &View, proof: &impl Witness) {
        self.commit_alone(leaf.node, view, proof);
    }

    /// Same as [`commit`](Self::commit), while no other thread writes to the tree.
    pub(super) fn commit_alone(&self, leaf: u64, view: &View, proof: &impl Witness) {
        // The slots themselves are not asserted: those of a damaged leaf may be any.
        debug_assert!(
            view.has_all(),
            "the slot array of leaf {leaf:#x} is longer or shorter than its bitmap"
        );
        let medium = self.medium();
        if self.shape.commits_alone() {
            let flushed = self.commit_line(leaf, view, proof);
            let Durable { .. } = medium.fence(flushed, "wotree commit.2");
            return;
        }
        let state = self.nodes.state_word(leaf);
        let next = State::Leaf { bitmap: view.bitmap as u64, valid: true }.encode();
        // The log refers to the leaf: recovery rebuilds the slot array from either bitmap. At most one of the
        // two words of the bitmap changes, except in a split, which is logged.
        state.publish(medium, next, proof, "wotree commit.2 long");
        if !self.shape.one_line() {
            let second = self.nodes.bitmap_word(leaf);
            second.publish(medium, (view.bitmap >> STATE_SLOTS) as u64, proof, "wotree commit.2 second");
        }
        let changed = self.store_order(leaf, &view.order);
        let mut flushed = medium.flush(state, "wotree commit.2 long");
        if let Some((first, last)) = changed.filter(|(_, last)| *last >= SLOT_WORDS_BESIDE) {
            let beyond = &self.nodes.slot_words(leaf)[first.max(SLOT_WORDS_BESIDE)..=last];
            flushed = flushed.and(medium.flush(beyond, "wotree commit.2 slots"));
        }
        let Durable { .. } = medium.fence(flushed, "wotree commit.2 long");
    }

    /// Commit, except for the fence, of a leaf whose line commits by itself.
    #[inline(always)]
    pub(super) fn commit_line(&self, leaf: u64, view: &View, proof: &impl Witness) -> Flushed {
        let medium = self.medium();
        let state = self.nodes.state_word(leaf);
        let next = State::Leaf { bitmap: view.bitmap as u64, valid: true }.encode();
        // Commit 1: relies on line order, so that one flush serves all.
        state.store(medium, State::invalid(state.load(medium)));
        let _ordered = medium.ordered_within_line();
        let _ = self.store_order(leaf, &view.order);
        let _ordered = medium.ordered_within_line();
        state.publish(medium, next, proof, "wotree commit.2");
        medium.flush(state, "wotree commit.2")
    }

    /// Stores bitmap and slot array of a leaf that no other thread knows; no flush.
    pub(super) fn write_view(&self, leaf: u64, view: &View) {
        let medium = self.medium();
        for (at, cell) in self.nodes.slot_words(leaf).iter().enumerate() {
            cell.store(medium, view.order.word(at));
        }
        if !self.shape.one_line() {
            self.nodes.bitmap_word(leaf).store(medium, (view.bitmap >> STATE_SLOTS) as u64);
        }
        let state = State::Leaf { bitmap: view.bitmap as u64, valid: true };
        self.nodes.state_word(leaf).store(medium, state.encode());
    }

    /// Stores the changed words of the slot array; returns the first and the last of them.
    fn store_order(&self, leaf: u64, order: &Order) -> Option<(usize, usize)> {
        let medium = self.medium();
        let mut changed: Option<(usize, usize)> = None;
        for (at, cell) in self.nodes.slot_words(leaf).iter().enumerate() {
            let word = order.word(at);
            if cell.load(medium) != word {
                cell.store(medium, word);
                changed = Some((changed.map_or(at, |(first, _)| first), at));
            }
        }
        changed
    }

    /// Log 1 of a change of a leaf whose line does not commit by itself. The lane must be held until the
    /// change is durable.
    pub(super) fn note_rebuild(&self, leaf: u64) -> Option<Lane<'_, M>> {
        (!self.shape.commits_alone()).then(|| {
            let lane = self.log.own_lane();
            lane.write(&Record::Rebuild { leaf });
            lane
        })
    }
}

/// Number of words of the slot array that share the bitmap's line in leaves of 32 lines.
const SLOT_WORDS_BESIDE: usize = 6;
