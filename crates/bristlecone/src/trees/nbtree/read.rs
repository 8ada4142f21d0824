//! Reading a key's item. Nobody waits for anybody: a reader looks, and where a value may not be
//! durable yet it sees to that itself.

use bristlecone_pm::sync::epoch::Guard;
use bristlecone_pm::{LINE_BYTES, Medium, Persist, Word};

use super::NbTree;
use super::layout::{Shape, Stored};
use super::leaf::{FROZEN, Leaf};
use super::meta::Tag;
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::slot::Slot;
use crate::shared::version_lock::{Version, pause};
use crate::trees::Read;

/// What keeps leaves, blocks, keys and values alive while they are looked at.
pub(super) struct Pins<K: KeyCodec, V: Codec> {
    pub epoch: Guard,
    pub key: K::Guard,
    pub value: V::Guard,
}

impl<K: KeyCodec, V: Codec> Pins<K, V> {
    pub fn new() -> Self {
        Self::beside(K::pin())
    }

    /// The rest of them.
    pub fn beside(key: K::Guard) -> Self {
        Self { epoch: bristlecone_pm::sync::epoch::pin(), key, value: V::pin() }
    }
}

/// Where somebody who was not pinned saw a key.
pub(super) struct Sight {
    id: u32,
    version: Version,
    /// The slots that were looked at.
    pub seen: u64,
    pub slot: Option<usize>,
}

/// What a reader who is not pinned found out about a key.
enum Glance {
    /// A value word, or that there is no item.
    Found(u64),
    /// The leaf is being replaced, or the value is not to be had at a glance.
    Unclear,
    /// The descriptor became another leaf's.
    Stale,
}

impl<K: KeyCodec, V: Codec, M: Medium> Read<K, V> for NbTree<K, V, M> {
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> bool {
        let guards = (K::pin(), V::pin());
        let tag = Tag::of::<K>(key);
        if self.locking == super::LOCK_ALL {
            return self.read_carefully(key, tag, show);
        }
        loop {
            let (id, version) = self.inner.find(key, &guards.0, |leaf| self.version_ahead(leaf, tag));
            match self.glance(self.leaves.get(id), version, key, tag, &guards.0) {
                Glance::Found(word) => match Stored::decode(word) {
                    Stored::Empty => return false,
                    Stored::Plain(value) if V::INLINE => {
                        show(V::read(&self.values, value, &guards.1));
                        return true;
                    }
                    Stored::Record(record) if !V::INLINE => {
                        show(V::read(&self.values, record, &guards.1));
                        return true;
                    }
                    _ => return self.read_carefully(key, tag, show),
                },
                Glance::Unclear => return self.read_carefully(key, tag, show),
                Glance::Stale => {}
            }
        }
    }
}

impl<K: KeyCodec, V: Codec, M: Medium> NbTree<K, V, M> {
    /// Looks into a leaf that may go and come back as another one meanwhile, and then says so.
    #[inline(always)]
    fn glance(&self, leaf: &Leaf, version: Version, key: K::Ref<'_>, tag: Tag, guard: &K::Guard) -> Glance {
        let still = || leaf.incarnation.validate(version);
        let seen = self.bitmap(leaf);
        if seen & FROZEN != 0 {
            return Glance::Unclear;
        }
        let Some(found) = self.spot(leaf, seen, key, tag, guard, still) else { return Glance::Stale };
        let (mut value, mut unclear) = (super::layout::EMPTY, false);
        if let Some(slot) = found {
            value = self.slot(leaf, slot).value.load(self.medium());
            unclear = !self.visible_is_durable && leaf.is_flushing(self.shape, slot);
        }
        match still() {
            false => Glance::Stale,
            true if unclear => Glance::Unclear,
            true => Glance::Found(value),
        }
    }

    /// Looks for a key before the thread is pinned: that takes a locked instruction, which waits for the
    /// flush of the operation before, and by then the lines of the key are on their way.
    #[inline(always)]
    pub(super) fn sight(&self, key: K::Ref<'_>, tag: Tag, guard: &K::Guard) -> Option<Sight> {
        let (id, version) = self.inner.find(key, guard, |leaf| {
            // Where a new key goes if there is no room at home.
            self.prefetch_line(leaf, Shape::beside(self.shape.home(tag.hash)));
            self.version_ahead(leaf, tag)
        });
        let leaf = self.leaves.get(id);
        let seen = self.bitmap(leaf);
        let slot = self.spot(leaf, seen, key, tag, guard, || leaf.incarnation.validate(version))?;
        Some(Sight { id, version, seen, slot })
    }

    /// The leaf of a sight if it is in charge of the key still, and stays what it is while the caller is
    /// pinned. What was seen in it holds.
    #[inline(always)]
    pub(super) fn confirm(&self, sight: &Sight, _pins: &Pins<K, V>) -> Option<(u32, &Leaf)> {
        let leaf = self.leaves.get(sight.id);
        // In this order: the succession may be another leaf's, to which the descriptor went.
        let in_charge = !leaf.succession().is_open() && leaf.incarnation.validate(sight.version);
        in_charge.then_some((sight.id, leaf))
    }

    /// The same, pinned: nothing goes away, forwarding leaves are followed, sealed and boxed
    /// values looked up, and flushes under way are helped.
    #[cold]
    fn read_carefully(&self, key: K::Ref<'_>, tag: Tag, show: &mut dyn FnMut(V::Ref<'_>)) -> bool {
        let pins = Pins::<K, V>::new();
        loop {
            let (_, leaf) = self.reach(key, tag, &pins);
            let lock = (self.locking == super::LOCK_ALL).then(|| leaf.lock());
            let seen = self.bitmap(leaf);
            let slot = self.locate(leaf, seen, key, tag, &pins);
            let word = slot.map(|slot| {
                let word = self.slot(leaf, slot).value.load(self.medium());
                self.settle(leaf, slot);
                self.reveal(word)
            });
            self.medium().reached("nbtree read.1");
            if leaf.succession().is_open() {
                // The cell that a seal named may be one of the new leaf by now, and have changed.
                continue;
            }
            // Pinned, the value stays; and what it is shown to may write to this very leaf.
            drop(lock);
            return word.and_then(|word| self.with_value(word, &pins, show)).is_some();
        }
    }

    /// The version of a leaf in which a key is looked for. Its item most likely stands in its home
    /// line, which is asked for while the descriptor is on its way.
    #[inline(always)]
    fn version_ahead(&self, leaf: u32, tag: Tag) -> Option<Version> {
        self.prefetch_line(leaf, self.shape.home(tag.hash));
        self.version_of(leaf)
    }

    #[inline(always)]
    fn prefetch_line(&self, leaf: u32, line: usize) {
        self.pool.prefetch(self.leaves.block(leaf) + (line * LINE_BYTES) as u64);
    }

    /// The leaf in charge of `key`, past those that were replaced and are still in the index.
    pub(super) fn reach(&self, key: K::Ref<'_>, tag: Tag, pins: &Pins<K, V>) -> (u32, &Leaf) {
        for round in 0_u32.. {
            let (mut id, _) = self.inner.find(key, &pins.key, |leaf| self.version_ahead(leaf, tag));
            let mut leaf = self.leaves.get(id);
            if !leaf.succession().is_open() {
                return (id, leaf);
            }
            self.install(id, key, pins);
            while leaf.succession().is_open() && !leaf.succession().is_removed() {
                id = self.heir(leaf, key, pins);
                leaf = self.leaves.get(id);
            }
            if !leaf.succession().is_open() {
                return (id, leaf);
            }
            // Removed, and out of the index by now, or an heir of a leaf that waits for its own turn there.
            pause(round);
        }
        unreachable!("rounds are not counted out")
    }

    /// Finds the slot of `key` among the slots `seen`.
    #[inline(always)]
    pub(super) fn locate(
        &self,
        leaf: &Leaf,
        seen: u64,
        key: K::Ref<'_>,
        tag: Tag,
        pins: &Pins<K, V>,
    ) -> Option<usize> {
        self.spot(leaf, seen, key, tag, &pins.key, || true).flatten()
    }

    /// The same for whoever may be looking at another leaf by now: `None` if it is not `still` the same.
    #[inline(always)]
    fn spot(
        &self,
        leaf: &Leaf,
        seen: u64,
        key: K::Ref<'_>,
        tag: Tag,
        guard: &K::Guard,
        still: impl Fn() -> bool,
    ) -> Option<Option<usize>> {
        let mut hits = self.probe(leaf, tag) & seen & self.shape.all();
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            let word = self.slot(leaf, slot).key.load(self.medium());
            if !K::INLINE && !still() {
                return None;
            }
            if K::read(&self.keys, word, guard) == K::shorten(key) {
                return Some(Some(slot));
            }
            hits &= hits - 1;
        }
        Some(None)
    }

    /// What was just read in a slot is durable when this returns: a reader must not show what a
    /// crash can take back. Whoever wrote it may be far from its flush, so nobody waits for it.
    pub(super) fn settle(&self, leaf: &Leaf, slot: usize) {
        if !self.visible_is_durable && leaf.is_flushing(self.shape, slot) {
            self.medium().persist(self.slot(leaf, slot), "nbtree read.2");
        }
    }

    /// The same for everything read in the leaf.
    pub(super) fn settle_all(&self, leaf: &Leaf) {
        if !self.visible_is_durable && leaf.pending.is_flushing_anywhere() {
            self.medium().persist(self.words_of(leaf.block()), "nbtree read.2");
        }
    }

    /// A value word without its seal: what was sealed, as long as the leaf's heirs do not count.
    #[inline(always)]
    pub(super) fn reveal(&self, word: u64) -> u64 {
        match Stored::decode(word) {
            Stored::Sealed(0) => super::layout::EMPTY,
            Stored::Sealed(cell) => self.pool.at::<Word>(cell).load(self.medium()),
            _ => word,
        }
    }

    /// Shows what a word that is not sealed stands for.
    pub(super) fn with_value<R>(
        &self,
        word: u64,
        pins: &Pins<K, V>,
        show: impl FnOnce(V::Ref<'_>) -> R,
    ) -> Option<R> {
        let word = match Stored::decode(word) {
            Stored::Empty | Stored::Sealed(_) => return None,
            Stored::Plain(value) => value,
            Stored::Record(record) if V::INLINE => self.boxed(record),
            Stored::Record(record) => record,
        };
        Some(show(V::read(&self.values, word, &pins.value)))
    }

    /// A value of a word that stands in a record.
    pub(super) fn boxed(&self, record: u64) -> u64 {
        let guard = bristlecone_pm::sync::epoch::pin();
        let bytes = self.values.read(record, &guard);
        bytes.try_into().map_or(0, u64::from_le_bytes)
    }

    #[inline(always)]
    pub(super) fn slot(&self, leaf: &Leaf, slot: usize) -> &Slot {
        self.pool.at(self.shape.slot(leaf.block(), slot))
    }

    /// All of a block.
    pub(super) fn words_of(&self, block: u64) -> &[Word] {
        self.pool.words(block, self.shape.block_bytes / 8)
    }

    /// All slots of a block.
    #[inline(always)]
    pub(super) fn slots_of(&self, block: u64) -> &[Slot] {
        self.pool.slice(self.shape.first(block), self.shape.slots)
    }

    /// Asks for the lines of a block that is read or written soon.
    pub(super) fn prefetch_block(&self, block: u64) {
        self.pool.prefetch_lines(block, self.shape.block_bytes);
    }
}
