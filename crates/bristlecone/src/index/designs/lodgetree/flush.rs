//! Flush: merges buffered items into a few leaves at a time. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Alone, Durable, Flushed, Medium, Persist, Result, Step};
use smallvec::SmallVec;

use super::LodgeTree;
use super::buffer::Items;
use super::gather::{Gathered, Group};
use super::layout::{LeafWord, Slots, home, line_of, roomiest, slot_offset, slots_of_line};
use super::node::{Entry, Locked};
use crate::index::parts::buffered::{Change, Found, Leftovers, Pending};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::slot::bits;

/// A flush of which only the last lines are not durable yet. Until they are, the logs still have its items.
#[must_use = "a flush ends with a fence"]
pub(super) struct UnderWay {
    pub lines: Flushed,
    pub logs: Logs,
    pub leftovers: Leftovers,
}

impl UnderWay {
    pub fn nothing() -> Self {
        Self { lines: Flushed::none(), logs: Logs::default(), leftovers: Leftovers::default() }
    }
}

/// The log of each item that left the buffer.
pub(super) type Logs = SmallVec<[u32; 8]>;

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Makes space in a node for an item of the leaf at `wanted`: the leaf-count based flush. The buffer is scanned
    /// from its oldest item until `flush_leaves` leaves are found. A leaf that would split ends the scan, or is
    /// flushed alone if it is the first. A leaf that would split for one item is postponed while there are others.
    /// Returns `Err` if there is no space for any buffered item.
    pub(super) fn flush_some(&self, node: &Locked<'_>, wanted: usize, guard: &K::Guard) -> Result<UnderWay> {
        let mut gathered = Gathered::default();
        if self.is_full_for(node, wanted) {
            // More would not fit into two leaves.
            self.gather(node, wanted, None, &mut gathered, guard);
            return self.flush_groups(node, &gathered.groups(), None, guard);
        }
        let mut refusal = None;
        for at in self.flush_order(node, None) {
            self.gather(node, at, None, &mut gathered, guard);
            if gathered.last().live_in(node.entry(at).slots) <= self.split_items {
                if gathered.leaves() == self.flush_leaves() {
                    break;
                }
                continue;
            }
            if gathered.leaves() == 1 {
                match self.flush_groups(node, &gathered.groups(), None, guard) {
                    Err(error) if error.is_no_room() => refusal = Some(error),
                    done => return done,
                }
            }
            gathered.pop();
            if gathered.leaves() > 0 {
                break;
            }
        }
        if gathered.leaves() == 0 {
            return Err(refusal.unwrap_or_else(|| self.pool.no_room()));
        }
        Ok(self.write_groups(node, &gathered.groups()))
    }

    /// Merges buffered items into leaves that have slots for them: none of them splits.
    pub(super) fn flush_what_fits(&self, node: &Locked<'_>) {
        let guard = &K::pin();
        for at in 0..node.counts().index {
            let mut gathered = Gathered::default();
            self.gather(node, at, None, &mut gathered, guard);
            let group = gathered.last();
            if group.logged && group.live_in(node.entry(at).slots) <= self.slots {
                let flush = self.write_groups(node, &[group]);
                self.end_flush(Some(flush));
            }
        }
    }

    /// Gathers the items that are flushed together with a change that finds the buffer full, and that is not logged
    /// then: those buffered for its own leaf, and the oldest items of others. Returns `false` if one of the leaves
    /// may have to split.
    pub(super) fn co_flush_group(
        &self,
        node: &Locked<'_>,
        own: usize,
        tag: u8,
        gathered: &mut Gathered,
        guard: &K::Guard,
    ) -> bool {
        if self.flush_leaves() == 1 || node.live_items(own) + 1 > self.split_items {
            return false;
        }
        let tags = std::iter::once(tag).chain(node.items_of(own).map(|item| node.tag(item)));
        self.prefetch_for(node, own, tags);
        let others = self.flush_order(node, Some(own));
        self.gather(node, own, None, gathered, guard);
        for at in others {
            self.gather(node, at, None, gathered, guard);
            if gathered.last().live_in(node.entry(at).slots) > self.split_items {
                gathered.pop();
                return gathered.leaves() > 1;
            }
            if gathered.leaves() == self.flush_leaves() {
                break;
            }
        }
        true
    }

    /// Returns the leaves with buffered items, except `but`, in flush order. Prefetches all of those that one flush
    /// covers.
    fn flush_order(&self, node: &Locked<'_>, but: Option<usize>) -> impl Iterator<Item = usize> {
        let mut order = self.oldest_leaves(node).filter(move |at| Some(*at) != but);
        let room = self.flush_leaves() - usize::from(but.is_some());
        let first: SmallVec<[usize; 8]> = order.by_ref().take(room).collect();
        first.iter().for_each(|at| self.prefetch_buffered(node, *at));
        first.into_iter().chain(order)
    }

    /// Returns the leaves with buffered items, by their oldest items. A split uses a slot of the node, so for one
    /// item it makes no space: such leaves come last.
    fn oldest_leaves(&self, node: &Locked<'_>) -> impl Iterator<Item = usize> {
        let (node, mut left) = (**node, node.items());
        let mut futile = left.without(left);
        std::iter::from_fn(move || {
            while let Some(item) = left.oldest() {
                let at = node.owner(item);
                let items = node.items_of(at);
                left = left.without(items);
                if items.count() > 1 || node.live_with(at, items) <= self.split_items {
                    return Some(at);
                }
                futile = futile.and(items);
            }
            futile.next().map(|item| node.owner(item))
        })
    }

    /// Prefetches the data that a flush of a leaf's buffered items reads.
    pub(super) fn prefetch_buffered(&self, node: &Locked<'_>, at: usize) {
        let items = node.items_of(at);
        if node.live_with(at, items) > self.split_items {
            // A split reads all of it.
            self.prefetch_leaf(node.leaf(at));
        } else {
            self.prefetch_for(node, at, items.map(|item| node.tag(item)));
        }
    }

    /// Prefetches the lines of a leaf where items with these fingerprints are, or will be written.
    fn prefetch_for(&self, node: &Locked<'_>, at: usize, tags: impl Iterator<Item = u8>) {
        let Entry { leaf, slots, .. } = node.entry(at);
        let prefetch = |slot| self.pool.prefetch(slot_offset(leaf, slot));
        self.pool.prefetch(leaf);
        let free = !slots.bitmap & self.slots_mask();
        for tag in tags {
            let home = home(tag, self.slots);
            prefetch(home.trailing_zeros() as usize);
            bits(slots.strays(tag)).for_each(prefetch);
            if free & home == 0 && free != 0 {
                prefetch(self.pick(free, tag, 0));
            }
        }
    }

    /// Writes a change and all items buffered for its leaf, without logging the change; and other groups.
    #[inline(always)]
    pub(super) fn flush_with(
        &self,
        node: &Locked<'_>,
        (found, tag): (&Found, u8),
        change: &mut Change,
        gathered: &mut Gathered,
        guard: &K::Guard,
    ) -> Result<()> {
        if gathered.leaves() == 0 {
            self.gather(node, found.at, found.item, gathered, guard);
        }
        let replaced = found.item.map(|item| node.buffered(item));
        let slot = match found.item {
            Some(item) => self.slot_of_buffered(node, item, guard),
            None => found.slot,
        };
        let superseded = replaced.and_then(|replaced| self.value_of_buffer(node, &replaced, guard));
        gathered.join_first(Pending::of(change.item, tag, slot), replaced.is_some());
        let flush = self.flush_groups(node, &gathered.groups(), Some(change), guard)?;
        self.end_flush(Some(flush));
        if let Some(value) = superseded {
            self.values.retire(value);
        }
        Ok(())
    }

    /// Writes one group, and splits its leaf if that would exceed the threshold; also writes the others, if there are
    /// any and none of them splits.
    fn flush_groups(
        &self,
        node: &Locked<'_>,
        groups: &[Group<'_>],
        change: Option<&mut Change>,
        guard: &K::Guard,
    ) -> Result<UnderWay> {
        let group = &groups[0];
        let live = group.live_in(node.entry(group.at).slots);
        let mut change = change;
        let mut records = change.as_deref_mut().and_then(Change::take_records);
        if live > self.split_items {
            match self.split_leaf(node, group, &mut records, guard) {
                // The threshold leaves some slots for the case that there is no other leaf.
                Err(error) if error.is_no_room() && live <= self.slots => {}
                Err(error) => {
                    // The caller must fence them if it finds another destination.
                    change.into_iter().for_each(|change| change.keep_records(records.take()));
                    return Err(error);
                }
                done => return done,
            }
        }
        if let Some(records) = records {
            // A value that replaces an old one is valid as soon as it is stored.
            let Durable { .. } = self.medium().fence(records, "lodgetree flush.2 records");
        }
        Ok(self.write_groups(node, groups))
    }

    /// Flush 1 to 4, except for the last fence: the leaves must have space for their groups, and share the fences.
    /// The items' records must be durable.
    pub(super) fn write_groups(&self, node: &Locked<'_>, groups: &[Group<'_>]) -> UnderWay {
        let (mut logs, mut leftovers) = (Logs::default(), Leftovers::default());
        for group in groups {
            self.note_leftovers(node.leaf(group.at), group.items, &mut leftovers);
        }
        let lines = self.write_items(node, groups, || self.forget_buffered(node, groups, &mut logs));
        UnderWay { lines, logs, leftovers }
    }

    /// Writes the items. Calls `meanwhile` for volatile work while they are being flushed, and before the first
    /// fence, because stores behind a fence wait for it. No thread sees its result before the node is unlocked.
    pub(super) fn write_items(
        &self,
        node: &Locked<'_>,
        groups: &[Group<'_>],
        meanwhile: impl FnOnce(),
    ) -> Flushed {
        let medium = self.medium();
        let mut flushed = Flushed::none();
        let mut words = SmallVec::<[(u64, Option<LeafWord>, bool); 2]>::new();
        for group in groups {
            let entry = node.entry(group.at);
            let (slots, under_way) = self.fill(entry, group, "lodgetree flush.2");
            flushed = flushed.and(under_way);
            let word = LeafWord::unpack(self.leaf(entry.leaf).word.load(medium));
            let changed = (word.bitmap != slots.bitmap).then_some(LeafWord { bitmap: slots.bitmap, ..word });
            words.push((entry.leaf, changed, group.logged));
            node.set_entry(group.at, Entry { slots, ..entry });
        }
        meanwhile();
        let durable = medium.fence(flushed, "lodgetree flush.2");
        let mut flushed = Flushed::none();
        for &(leaf, word, logged) in &words {
            let header = self.leaf(leaf);
            if let Some(word) = word {
                header.word.publish(medium, word.pack(), &durable, "lodgetree flush.3");
            } else if !logged {
                // Only a value in place.
                continue;
            }
            if logged {
                let ordered = medium.ordered_within_line();
                header.stamp.publish(medium, node.sequence(), &ordered, "lodgetree flush.4");
            }
            flushed = flushed.and(medium.flush(&header.word, "lodgetree flush.4"));
        }
        flushed
    }

    /// Completes a pending flush that no log entry follows.
    pub(super) fn end_flush(&self, flush: Option<UnderWay>) {
        let Some(UnderWay { lines, logs, leftovers }) = flush else { return };
        let Durable { .. } = self.medium().fence(lines, "lodgetree flush.4");
        self.finish_flush(&logs, leftovers);
    }

    /// Flush 1 and 2: writes the items of a group to slots; returns the taken slots.
    pub(super) fn fill(&self, entry: Entry, group: &Group<'_>, step: Step) -> (Slots, Flushed) {
        let medium = self.medium();
        let header = self.leaf(entry.leaf);
        let (added, dropped) = Pending::changes(group.items);
        let mut slots = entry.slots.without(dropped);
        if slots.forgotten != 0 && slots.bitmap != entry.slots.bitmap {
            // Removed items leave space to remember these.
            slots = self.slots_of(header, slots.bitmap);
        }
        let mut free = !entry.slots.bitmap & self.slots_mask();
        if added > free.count_ones() as usize {
            // Removals free slots. Each of them is in the log, or is not acknowledged.
            let word = LeafWord { bitmap: slots.bitmap, ..LeafWord::unpack(header.word.load(medium)) };
            header.word.publish(medium, word.pack(), &Alone, "lodgetree flush.1");
            medium.persist(&header.word, "lodgetree flush.1");
            free = !slots.bitmap & self.slots_mask();
        }
        let mut lines = 0_u32;
        for item in group.items.iter().filter(|item| !item.removed) {
            let slot = item.slot().unwrap_or_else(|| {
                let slot = self.pick(free, item.tag, lines);
                self.slot(entry.leaf, slot).key.store(medium, item.key);
                header.fingerprints.store_byte(medium, slot, item.tag);
                free &= !(1 << slot);
                slots.take(slot, item.tag, self.slots);
                slot
            });
            self.slot(entry.leaf, slot).value.store(medium, item.value);
            lines |= 1 << line_of(slot);
        }
        (slots, self.flush_lines(entry.leaf, lines, step))
    }

    /// Returns a free slot: in the item's home line if that has one, otherwise in the line with most free slots, of
    /// those that are written anyway or of all.
    #[inline(always)]
    pub(super) fn pick(&self, free: u32, tag: u8, lines: u32) -> usize {
        let at_home = free & home(tag, self.slots);
        if at_home != 0 {
            return at_home.trailing_zeros() as usize;
        }
        assert!(free != 0, "a leaf with room");
        let written = free & bits(lines).fold(0, |slots, line| slots | slots_of_line(line));
        let among = if written == 0 { free } else { written };
        (among & slots_of_line(roomiest(among))).trailing_zeros() as usize
    }

    /// Removes the buffered items of these leaves, after their merge. Logs need the entries until the merge is
    /// durable.
    pub(super) fn forget_buffered(&self, node: &Locked<'_>, groups: &[Group<'_>], logs: &mut Logs) {
        let of_group = |group: &Group<'_>| node.items_of(group.at);
        let gone = groups.iter().map(of_group).reduce(Items::and).expect("a group");
        logs.extend(gone.map(|item| node.log(item)));
        node.drop_buffered(gone);
    }

    /// Releases the leftovers of a durable flush.
    pub(super) fn finish_flush(&self, logs: &[u32], leftovers: Leftovers) {
        self.versions.release(logs);
        self.let_go(leftovers, |key| self.retire_key(key));
    }
}
