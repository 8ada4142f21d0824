//! Split: a leaf becomes two, and a node up to M. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Durable, Flushed, Medium, Persist, Result};
use smallvec::SmallVec;

use super::LodgeTree;
use super::buffer::Buffered;
use super::flush::{Logs, UnderWay};
use super::gather::Group;
use super::layout::{LeafWord, Slots, TAG_WORDS, line_of};
use super::node::{Counts, Entry, Locked, Splits};
use crate::index::options::experimental;
use crate::index::parts::buffered::{LeafLayout, Leftovers, Part, Pending};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::split::{Run, late_keys};

fn least<R: Ord + Copy>(parts: &[Part<R>]) -> Option<R> {
    parts.iter().map(|part| part.key).min()
}

fn greatest<R: Ord + Copy>(parts: &[Part<R>]) -> Option<R> {
    parts.iter().map(|part| part.key).max()
}

/// Returns the run that the last `added` items continue, if they do, and the number of items below them.
fn added_run<K: KeyCodec>(parts: &[Part<K::Ref<'_>>], added: usize) -> Option<(Run, usize)> {
    let (held, added) = parts.split_at(parts.len() - added);
    let new = (least(added)?, greatest(added)?);
    let below = held.iter().filter(|part| part.key < new.0).count();
    let before = held.iter().map(|part| part.key).filter(|key| *key < new.0).max();
    let behind = held.iter().map(|part| part.key).filter(|key| *key > new.1).min();
    let run = match (before, behind) {
        (_, None) if below == held.len() => Run::Ascending,
        (None, Some(_)) if held.iter().all(|part| part.key > new.1) => Run::Descending,
        (Some(before), Some(behind)) if held.iter().all(|part| part.key < new.0 || part.key > new.1) => {
            Run::of::<K>(before, new, behind)?
        }
        _ => return None,
    };
    Some((run, below))
}

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Splits a leaf without space for a group, and writes the group. Returns `Err` if there is no space for another
    /// leaf; nothing has changed then, and the records must still be fenced.
    pub(super) fn split_leaf(
        &self,
        node: &Locked<'_>,
        group: &Group<'_>,
        records: &mut Option<Flushed>,
        guard: &K::Guard,
    ) -> Result<UnderWay> {
        let medium = self.medium();
        let entry = node.entry(group.at);
        if node.room() == 0 && node.items_of(group.at).count() == 0 {
            // The node has no slot for the new leaf.
            return Err(self.pool.no_room());
        }
        self.prefetch_leaf(entry.leaf);
        let leaf = self.leaves.alloc()?;
        self.pool.events().note_split();
        // Usually prefetched by the previous split.
        self.prefetch_leaf(leaf);
        self.leaves.prefetch_next();
        let (added, dropped) = Pending::changes(group.items);
        let stay = u64::from(entry.slots.bitmap & !dropped);
        let mut parts = self.parts_with(entry.leaf, stay, group.items, guard);
        // A run ends its leaf: see `parts/split.rs`.
        let run = added_run::<K>(&parts, added);
        let fewest = parts.len().saturating_sub(self.slots).max(1);
        let most = (parts.len() - 1).min(self.slots);
        let late = || late_keys::<K>(parts.len(), |at| parts[at].key);
        let kept = match run {
            Some((Run::Ascending, below)) if below + added == parts.len() => {
                most.saturating_sub(late()).max(fewest)
            }
            Some((Run::Ascending, below)) => (below + added).max(fewest).min(most),
            Some((Run::Descending, 0)) => (fewest + late()).min(most),
            Some((Run::Descending, below)) => below.max(fewest).min(most),
            None => parts.len() / 2,
        };
        // Leaves are unordered: knowing the half of each item is sufficient.
        parts.select_nth_unstable_by_key(kept, Part::key);
        let (lower, upper) = parts.split_at(kept);

        let last = greatest(lower).expect("a lower half");
        let separator = match run {
            Some((Run::Descending, below)) if below == kept => K::low_separator(last, upper[0].key),
            _ => K::separator(last, upper[0].key),
        };
        let (fence, fence_flushed) = match self.keys.write(separator, "lodgetree split.1 fence") {
            Ok(written) => written,
            Err(error) => {
                self.leaves.free(leaf);
                return Err(error);
            }
        };
        let (mut logs, mut leftovers) = (Logs::default(), Leftovers::default());
        self.note_leftovers(entry.leaf, group.items, &mut leftovers);
        // Split 1: the new leaf, which links to the old one's successor.
        let next = self.leaf(entry.leaf).link(medium).next;
        let items = upper.iter().map(|part| part.item);
        let (slots, flushed) = self.write_leaf(leaf, fence, items, next, node.sequence());
        let flushed = flushed.and(fence_flushed).and(records.take().unwrap_or_else(Flushed::none));
        let durable = medium.fence(flushed, "lodgetree split.1");
        let right = Entry { fence, leaf, slots };
        let lines = self.shrink_leaf(node, group, (lower, upper), right, &durable, &mut logs);
        self.clock.add(1);
        Ok(UnderWay { lines, logs, leftovers })
    }

    /// Split 2 and 3: the old leaf drops the upper half and links the new leaf; then the new items of the lower half
    /// are merged into it.
    fn shrink_leaf<R>(
        &self,
        node: &Locked<'_>,
        group: &Group<'_>,
        (lower, upper): (&[Part<R>], &[Part<R>]),
        right: Entry,
        durable: &Durable,
        logs: &mut Logs,
    ) -> Flushed {
        let (medium, entry) = (self.medium(), node.entry(group.at));
        let header = self.leaf(entry.leaf);
        let word = LeafWord::unpack(header.word.load(medium));
        let moved = upper.iter().filter_map(|part| part.item.slot());
        let gone = moved.fold(Pending::changes(group.items).1, |bits, slot| bits | 1 << slot);
        let shrunk = LeafWord { bitmap: word.bitmap & !gone, ..word }.switched();
        header.siblings[shrunk.selector].store(medium, right.leaf);
        let _ordered = medium.ordered_within_line();
        header.word.publish(medium, shrunk.pack(), durable, "lodgetree split.2");
        let mut left = entry.slots.without(gone);
        if left.forgotten != 0 {
            left = self.slots_of(header, shrunk.bitmap);
        }
        node.set_entry(group.at, Entry { slots: left, ..entry });
        let mut meanwhile = || {
            self.forget_buffered(node, std::slice::from_ref(group), logs);
            node.insert_entry(group.at + 1, right);
        };
        let changed = lower.iter().filter(|part| part.changed).map(|part| part.item);
        let changed: SmallVec<[Pending; 16]> = changed.collect();
        if changed.is_empty() {
            // All items of the group moved, or are dropped.
            let ordered = medium.ordered_within_line();
            header.stamp.publish(medium, node.sequence(), &ordered, "lodgetree split.2 stamp");
            meanwhile();
            medium.flush(&header.word, "lodgetree split.2")
        } else {
            medium.persist(&header.word, "lodgetree split.2");
            // Split 3: merge the new items of the lower half into the old leaf, which has space now.
            let rest = Group { items: &changed, ..*group };
            self.write_items(node, std::slice::from_ref(&rest), meanwhile)
        }
    }

    /// Fills a fresh leaf; returns its slots, and the pending flushes.
    pub(super) fn write_leaf(
        &self,
        leaf: u64,
        fence: u64,
        items: impl Iterator<Item = Pending>,
        next: u64,
        stamp: u64,
    ) -> (Slots, Flushed) {
        let medium = self.medium();
        let header = self.leaf(leaf);
        // The header and the fence.
        let (mut slots, mut lines) = (Slots::default(), 0b11);
        let mut tags = [0; TAG_WORDS];
        for item in items {
            let slot = self.pick(!slots.bitmap & self.slots_mask(), item.tag, lines);
            let cell = self.slot(leaf, slot);
            cell.key.store(medium, item.key);
            cell.value.store(medium, item.value);
            tags[slot / 8] |= u64::from(item.tag) << (slot % 8 * 8);
            slots.take(slot, item.tag, self.slots);
            lines |= 1 << line_of(slot);
        }
        header.word.store(medium, LeafWord { bitmap: slots.bitmap, selector: 0 }.pack());
        header.siblings[0].store(medium, next);
        header.stamp.store(medium, stamp);
        header.fingerprints.store_derived(medium, tags);
        header.fence.store(medium, fence);
        (slots, self.flush_lines(leaf, lines, "lodgetree split.1"))
    }

    /// Splits a node whose index part has grown too large into several: the hotter, the more. Nothing on the medium
    /// changes. Returns `Err` if there is no memory for it; nothing has changed then.
    pub(super) fn split_node(&self, node: &Locked<'_>, guard: &K::Guard) -> Result<()> {
        let Counts { index, .. } = node.counts();
        let fence_at = |at: usize| self.keys.read(node.fence(at), guard);
        let now = self.clock.sum() as u32;
        let before = node.splits();
        let interval = now.wrapping_sub(before.last);
        let wanted = self.parts_wanted(before, interval);
        // Formula 1: the parent should not have to split, too.
        let parts = match self.inner.room_above(fence_at(index / 2), guard) {
            0 | 1 => 2,
            room => wanted.min(room),
        }
        .min(index);
        let _room = (self.nodes.reserve(parts)?, self.inner.reserve(parts)?);
        let splits = Splits { last: now, interval, parts };
        node.set_splits(splits);
        self.pool.events().note_split();
        // From right to left, so that at any time each key has one node: this one, which is locked, or one that is
        // complete.
        let mut end = index;
        for part in (1..parts).rev() {
            let start = index * part / parts;
            let id = self.nodes.alloc(node.sequence()).expect("nodes were reserved");
            let right = self.nodes.get(id);
            (start..end).for_each(|at| right.insert_entry(at - start, node.entry(at)));
            let gone = node.items().that(|item| node.owner(item) >= start);
            for item in gone.map(|item| node.buffered(item)) {
                right.push_buffered(Buffered { owner: item.owner - start, ..item });
            }
            right.set_splits(splits);
            let separator = fence_at(start);
            node.drop_buffered(gone);
            node.truncate(start);
            self.inner.insert(separator, id, guard);
            end = start;
        }
        Ok(())
    }

    /// Returns the number of nodes that a node is split into: more than the last time in a burst, fewer when the node
    /// has cooled.
    fn parts_wanted(&self, before: Splits, interval: u32) -> usize {
        let (last, since) = (u64::from(before.interval), u64::from(interval));
        let ratio = experimental(self.options.burst_ratio, 1);
        let parts = before.parts.max(2);
        let parts = if before.interval == 0 {
            // Never split before: nothing to compare with.
            parts
        } else if last > ratio * since {
            parts + 1
        } else if last * ratio < since {
            parts - 1
        } else {
            parts
        };
        parts.clamp(2, experimental(self.options.split_nodes, 4) as usize)
    }
}
