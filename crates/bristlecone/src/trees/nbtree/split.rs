//! A leaf without room is replaced by one or two leaves with what it holds, while everybody goes
//! on working with it: copy, sync, link. Any number of threads may replace the same leaf; each
//! makes its own draft of the new leaves, and one draft is taken.

use bristlecone_pm::sync::Ordering::Relaxed;
use bristlecone_pm::{Alone, Durable, Flushed, Medium, Persist, Result, Step};

use super::NbTree;
use super::layout::{EMPTY, Header, SEALED_EMPTY, SLOTS_MAX, Shape, State, Stored};
use super::leaf::{Leaf, Succession};
use super::meta::{Tag, Tags};
use super::read::Pins;
use crate::shared::arena::Room;
use crate::shared::codec::{Codec, KeyCodec};
use crate::shared::slot::{SLOT_BYTES, bits};

/// How often a thread redrafts the value of a slot before it asks those who change it to replace the
/// leaf as well. From then on each of them changes it at most once more.
const STILL_ROUNDS: u32 = 4;

/// One new leaf in the making, which nobody else writes to.
#[derive(Clone, Copy)]
struct Half {
    block: u64,
    tags: Tags,
    /// Slots that keys were given; those that lost their item meanwhile stay empty.
    taken: u64,
    /// Slots with items.
    items: u64,
}

/// What one thread would put in a leaf's place.
struct Draft<R> {
    halves: [Half; 2],
    /// Where the right half begins, if there is one.
    separator: Option<R>,
    /// The values that the items of the old leaf's slots went there with.
    values: [u64; SLOTS_MAX],
    /// The cells where those stand; zero where nothing of a slot was drafted.
    cells: [u64; SLOTS_MAX],
    flushed: Flushed,
}

impl Half {
    fn new(block: u64) -> Self {
        Self { block, tags: Tags::default(), taken: 0, items: 0 }
    }

    /// Gives a key a slot.
    #[inline(always)]
    fn place(&mut self, shape: Shape, tag: Tag) -> usize {
        let slot = shape.pick(!self.taken & shape.all(), tag.hash);
        self.taken |= 1 << slot;
        self.tags.set(slot, tag);
        slot
    }
}

impl<K: KeyCodec, V: Codec, M: Medium> NbTree<K, V, M> {
    /// Replaces a leaf. `Ok`: it is replaced or was freed, durably, by any thread. `key` is what the caller came
    /// for: if it lies above everything in a full leaf, the new right leaf begins empty.
    #[cold]
    pub(super) fn replace(&self, id: u32, key: K::Ref<'_>, pins: &Pins<K, V>) -> Result<()> {
        let leaf = self.leaves.get(id);
        self.prefetch_block(leaf.block());
        if !leaf.succession().is_decided() {
            // Room comes first: a full pool leaves the leaf as it is.
            let (blocks, _room) = self.blocks_for(leaf)?;
            for block in blocks.into_iter().filter(|block| *block != 0) {
                self.prefetch_block(block);
                self.leaves.prefetch(self.leaves.of(block));
            }
            let seen = self.freeze(leaf);
            self.medium().reached("nbtree copy.1");
            let mut draft = self.copy(leaf, seen, blocks, K::shorten(key), pins);
            self.sync(leaf, seen, &mut draft, pins);
            self.decide(leaf, &draft);
        }
        self.open(leaf);
        self.medium().reached("nbtree link.3");
        self.install(id, key, pins);
        Ok(())
    }

    /// One block where the items are few, two where they are many. The second is zero where a
    /// full pool has only one and one is enough. Comes with room for the second one in the index.
    fn blocks_for(&self, leaf: &Leaf) -> Result<([u64; 2], Option<Room<'_>>)> {
        let first = self.fresh_block()?;
        let (items, slots) = (self.items(leaf), self.shape.slots as i32);
        if items <= slots / 2 {
            return Ok(([first, 0], None));
        }
        match self.inner.reserve(1).and_then(|room| Ok((self.fresh_block()?, room))) {
            Ok((second, room)) => Ok(([first, second], Some(room))),
            Err(_) if items < slots => Ok(([first, 0], None)),
            Err(error) => {
                self.blocks.free(first);
                Err(error)
            }
        }
    }

    /// Copy: writes what the leaf holds into fresh blocks. Values may change meanwhile.
    fn copy<'k>(
        &'k self,
        leaf: &Leaf,
        seen: u64,
        blocks: [u64; 2],
        key: K::Ref<'k>,
        pins: &'k Pins<K, V>,
    ) -> Draft<K::Ref<'k>> {
        let medium = self.medium();
        let old = self.slots_of(leaf.block());
        let (mut keys, mut len) = ([key; SLOTS_MAX], 0);
        let mut values = [EMPTY; SLOTS_MAX];
        let mut items = 0_u64;
        for slot in bits(seen) {
            values[slot] = self.reveal(old[slot].value.load(medium));
            if values[slot] != EMPTY {
                items |= 1 << slot;
                keys[len] = K::read(&self.keys, old[slot].key.load(medium), &pins.key);
                len += 1;
            }
        }

        let mut halves = blocks.map(Half::new);
        let mut separator = None;
        if blocks[1] != 0 && len > 1 {
            let mut any_order = keys;
            separator = Some(Self::middle(&mut any_order[..len], key));
        } else if blocks[1] != 0 {
            self.blocks.free(blocks[1]);
            halves[1].block = 0;
        }
        // Without a right half, nothing goes there.
        let new = [0, usize::from(halves[1].block != 0)].map(|half| self.slots_of(halves[half].block));
        let firsts = halves.map(|half| self.shape.cell(half.block, 0));
        let mut cells = [0; SLOTS_MAX];
        let (mut rights, mut strays) = (0_u64, 0_u64);
        for (slot, &key) in bits(items).zip(&keys) {
            let right = separator.is_some_and(|separator| K::shorten(separator) <= K::shorten(key));
            rights |= u64::from(right) << slot;
            strays |= u64::from(self.shape.home(K::hash(key)) != self.shape.line(slot)) << slot;
            let (first, new) = if right { (firsts[1], new[1]) } else { (firsts[0], new[0]) };
            cells[slot] = first + (slot * SLOT_BYTES) as u64;
            let target = &new[slot];
            target.key.store(medium, old[slot].key.load(medium));
            target.value.store(medium, values[slot]);
        }
        // Who is at home stays in its slot. The others may find room there now.
        let tags = self.tags(leaf);
        for (half, going) in halves.iter_mut().zip([!rights, rights]) {
            half.taken = items & going & !strays;
            half.tags = tags.of_slots(half.taken);
        }
        for slot in bits(strays) {
            let half = (rights >> slot & 1) as usize;
            let word = old[slot].key.load(medium);
            let at = halves[half].place(self.shape, Tag::of::<K>(K::read(&self.keys, word, &pins.key)));
            cells[slot] = self.shape.cell(halves[half].block, at);
            new[half][at].key.store(medium, word);
            new[half][at].value.store(medium, values[slot]);
        }
        let birth = self.stamp();
        let mut flushed = Flushed::none();
        for half in halves.iter_mut().filter(|half| half.block != 0) {
            half.items = half.taken;
            flushed = flushed.and(self.begin(half, leaf.block(), birth));
        }
        Draft { halves, separator, values, cells, flushed }
    }

    /// Where the right half begins: at the median, or, if all keys lie below the `new` one, there.
    fn middle<'k>(keys: &mut [K::Ref<'k>], new: K::Ref<'k>) -> K::Ref<'k> {
        let ascending = keys.iter().max().is_some_and(|greatest| *greatest < new);
        let last = if ascending { keys.len() } else { keys.len().div_ceil(2) } - 1;
        let (_, left, above) = keys.select_nth_unstable(last);
        let first = above.iter().min().unwrap_or(&new);
        K::separator(*left, *first)
    }

    /// Writes what a draft's block has beside the items.
    fn begin(&self, half: &Half, origin: u64, birth: u64) -> Flushed {
        let medium = self.medium();
        self.clear_slots(half.block, !half.taken);
        let header: &Header = self.pool.at(half.block);
        header.birth.store(medium, birth);
        // An older state with the new stamp is still the older state; the new state with an older
        // stamp would not be the new one: relies on line order.
        let ordered = medium.ordered_within_line();
        let state = State::Live { origin }.encode();
        header.state.publish(medium, state, &ordered, "nbtree copy.2");
        medium.flush(self.words_of(half.block), "nbtree copy.2")
    }

    /// Empties some slots of a block.
    pub(super) fn clear_slots(&self, block: u64, slots: u64) {
        let cells = self.slots_of(block);
        for at in bits(slots & self.shape.all()) {
            cells[at].value.store(self.medium(), EMPTY);
        }
    }

    /// Sync: seals slot after slot of the old leaf, each by one compare-and-swap that fails if the
    /// value is not what the draft says, durably. A sealed slot never changes again.
    fn sync(&self, leaf: &Leaf, seen: u64, draft: &mut Draft<K::Ref<'_>>, pins: &Pins<K, V>) {
        let medium = self.medium();
        let flushed = std::mem::replace(&mut draft.flushed, Flushed::none());
        let mut durable = medium.fence(flushed, "nbtree copy.2");
        let mut late = false;
        let old = self.slots_of(leaf.block());
        for slot in bits(seen) {
            medium.reached("nbtree sync.1");
            let cell = &old[slot].value;
            for round in 0_u32.. {
                if round == STILL_ROUNDS {
                    leaf.still();
                }
                let word = cell.load(medium);
                let sealed = Stored::is_sealed(word);
                let value = self.reveal(word);
                if value != draft.values[slot] {
                    self.redraft(leaf, slot, value, draft, pins);
                    late = true;
                    if !sealed && value != EMPTY {
                        // What a seal names is durable before.
                        let flushed = std::mem::replace(&mut draft.flushed, Flushed::none());
                        durable = medium.fence(flushed, "nbtree sync.2");
                        late = false;
                    }
                }
                if sealed {
                    break;
                }
                let seal = if value == EMPTY {
                    SEALED_EMPTY
                } else {
                    // It is read together with its key: relies on line order.
                    self.hold_key(leaf, slot, value);
                    let _ordered = medium.ordered_within_line();
                    Stored::sealed(draft.cells[slot])
                };
                if cell.publish_if(medium, word, seal, &durable).is_ok() {
                    break;
                }
            }
        }
        if late {
            let flushed = std::mem::replace(&mut draft.flushed, Flushed::none());
            let Durable { .. } = medium.fence(flushed, "nbtree sync.2");
        }
    }

    /// Carries over what changed since the copy; on its way to the medium.
    fn redraft(
        &self,
        leaf: &Leaf,
        slot: usize,
        value: u64,
        draft: &mut Draft<K::Ref<'_>>,
        pins: &Pins<K, V>,
    ) {
        let medium = self.medium();
        if draft.cells[slot] == 0 {
            let word = self.slot(leaf, slot).key.load(medium);
            let key = K::read(&self.keys, word, &pins.key);
            let right = draft.separator.is_some_and(|separator| K::shorten(separator) <= K::shorten(key));
            let half = &mut draft.halves[usize::from(right)];
            // The old leaf has as many slots as each of the halves, so there is room.
            let at = half.place(self.shape, Tag::of::<K>(key));
            self.slots_of(half.block)[at].key.store(medium, word);
            draft.cells[slot] = self.shape.cell(half.block, at);
        }
        let cell = draft.cells[slot];
        let right = cell - cell % self.shape.block_bytes as u64 != draft.halves[0].block;
        let half = &mut draft.halves[usize::from(right)];
        let at = self.shape.slot_of(cell);
        half.items = half.items & !(1 << at) | u64::from(value != EMPTY) << at;
        draft.values[slot] = value;
        let target = &self.slots_of(half.block)[at];
        target.value.store(medium, value);
        let flushed = medium.flush(target, "nbtree sync.2");
        draft.flushed = std::mem::replace(&mut draft.flushed, Flushed::none()).and(flushed);
    }

    /// Link 1: the draft is taken, or another one was.
    fn decide(&self, leaf: &Leaf, draft: &Draft<K::Ref<'_>>) {
        let make = |half: &Half, low: Option<u64>| {
            let id = self.leaves.of(half.block);
            let new = self.leaves.get(id);
            self.set_meta(new, half.block, half.items, &half.tags);
            new.begin(half.block, low);
            id
        };
        let left = make(&draft.halves[0], None);
        let low = draft.separator.map(K::make_separator);
        let right = low.map(|low| make(&draft.halves[1], Some(low)));
        self.medium().reached("nbtree link.1");
        if leaf.decide(Succession::heirs(left, right)) {
            return;
        }
        // Seals of the old leaf may name cells of this draft: until what was decided is durable,
        // and nobody reads the old leaf, they stay.
        self.open(leaf);
        for id in [Some(left), right].into_iter().flatten() {
            self.discard(self.leaves.get(id).block());
            self.retire(id);
        }
    }

    /// Link 2, free 2: what was decided becomes durable, and then counts.
    pub(super) fn open(&self, leaf: &Leaf) {
        let succession = leaf.succession();
        if succession.is_open() {
            return;
        }
        if succession.is_removed() {
            // By no draft's stamp, so that none counts that another thread makes.
            self.mark_replaced(leaf, self.stamp(), "nbtree free.2");
            leaf.open();
            return;
        }
        self.medium().reached("nbtree link.2");
        let heir: &Header = self.pool.at(self.leaves.get(succession.left()).block());
        self.mark_replaced(leaf, heir.birth.load(self.medium()), "nbtree link.2");
        leaf.open();
    }

    /// The leaf's block is no leaf's any more, but for those born with a stamp, which are durable.
    fn mark_replaced(&self, leaf: &Leaf, by: u64, step: Step) {
        let medium = self.medium();
        let header: &Header = self.pool.at(leaf.block());
        header.state.publish(medium, State::Replaced { by }.encode(), &Alone, step);
        medium.persist(header, step);
    }

    /// A stamp that is greater than all before.
    pub(super) fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Relaxed)
    }

    /// A draft that was not taken says so, durably, before the old leaf's block is used again.
    fn discard(&self, block: u64) {
        let state = &self.pool.at::<Header>(block).state;
        // By nobody.
        state.store(self.medium(), State::Replaced { by: self.stamp() }.encode());
        self.medium().persist(state, "nbtree link.1 discard");
    }
}
