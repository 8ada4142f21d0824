//! Groups of words: writes share two fences. Step numbers are those of the protocol in `mod.rs`.

use bristlecone_pm::{Copies, Flushed, Medium, Result};
use smallvec::SmallVec;

use super::Core;
use super::buffer::Locked;
use super::flush::Room;
use super::layout::LeafWord;
use crate::index::parts::buffered::{Item, Writer};
use crate::index::parts::codec::{GROUP, KeyCodec, Storage};
use crate::index::parts::optimistic_lock::{LockState, Version};
use crate::index::parts::volatile_index::Step as Next;
use crate::index::{Tell, WriteMode};

/// The leaf of each key, if one probe finds it.
type Places = [Option<(u32, Version)>; GROUP];

/// Completed writes with pending flushes: their results, and the locked leaves, with the next word if they are flushed.
struct Unsettled<'t, V: Storage, M: Medium> {
    log: Option<Copies<'t, M>>,
    lines: Flushed,
    leaves: SmallVec<[(Locked<'t>, Option<Option<LeafWord>>); GROUP]>,
    old: SmallVec<[Option<V::Owned>; GROUP]>,
}

impl<K: KeyCodec, M: Medium> Core<K, M> {
    /// Writes items in their order: each immediately in its locked leaf if the fast path applies. Otherwise it is written
    /// alone, after all earlier ones are durable. No thread waits for a leaf while it holds others.
    pub(super) fn put_many<V: Storage>(
        &self,
        items: &[(K::Ref<'_>, V::Ref<'_>)],
        tell: &mut Tell<'_, V>,
    ) -> Result<()> {
        let is_grouped =
            K::INLINE && V::INLINE && self.buffers.batch() > 0 && !self.is_naive() && !self.logs_all();
        let places = if is_grouped { self.approach(items) } else { [None; GROUP] };
        let (lines, leaves, old) = (Flushed::none(), SmallVec::new(), SmallVec::new());
        let mut unsettled = Unsettled { log: None, lines, leaves, old };
        for ((key, value), place) in items.iter().zip(places) {
            match place.and_then(|place| self.put_fast::<V>(place, *key, *value, &mut unsettled)) {
                Some(old) => unsettled.old.push(old),
                None => {
                    self.settle(&mut unsettled, tell)?;
                    tell(self.put::<V>(*key, *value, WriteMode::Upsert)?);
                }
            }
        }
        self.settle(&mut unsettled, tell)
    }

    /// Finds the leaves of keys, and prefetches them and their buffers.
    fn approach<V>(&self, items: &[(K::Ref<'_>, V)]) -> Places {
        let guard = K::pin();
        let keys: SmallVec<[_; GROUP]> = items.iter().map(|(key, _)| K::shorten(*key)).collect();
        let cursors = self.inner.seek_many(&keys, &guard, |_, leaf| {
            self.buffers.get(leaf).prefetch();
            self.prefetch_leaf(self.buffers.leaf_of(leaf));
        });
        let version_of = |leaf: u32| match self.buffers.get(leaf).lock.try_read() {
            LockState::Free(version) => Some(version),
            LockState::Locked | LockState::Obsolete => None,
        };
        cursors.map(|cursor| match self.inner.look(cursor?, version_of) {
            Next::Leaf(id, version, _) => Some((id, version)),
            Next::End | Next::Lost => None,
        })
    }

    /// Many 1 without the fence: writes an item of words if its leaf is unchanged and has space; returns the previous
    /// value. Returns `None` if this does not apply; nothing has been modified.
    #[inline(always)]
    fn put_fast<'t, V: Storage>(
        &'t self,
        (id, version): (u32, Version),
        key: K::Ref<'_>,
        value: V::Ref<'_>,
        unsettled: &mut Unsettled<'t, V, M>,
    ) -> Option<Option<V::Owned>> {
        let guard = K::pin();
        let leaf = self.buffers.get(id).lock_at(version)?;
        let found = self.standing(&leaf, key, &guard);
        let state = leaf.state();
        let is_buffered = found.item.is_some() || state.pending < self.buffers.batch();
        // Otherwise the leaf may overflow, which needs a promise of space.
        let is_steady = found.value.is_some() && is_buffered;
        if !is_steady && !self.room_is_plenty() {
            return None;
        }
        let key_word =
            found.key.map_or_else(|| self.keys.write(key, "cclbtree write.1").map(|(word, _)| word), Ok);
        let (value, _) = self.values.of::<V>().write(value, "cclbtree write.1").ok()?;
        let item = Item { key: key_word.ok()?, value, removed: false };
        let overflowed = !is_steady && self.overflows(&leaf);
        let mut flushed = None;
        if is_buffered {
            let log = unsettled.log.get_or_insert_with(|| self.log.group());
            if !log.has_room() {
                return None;
            }
            let epoch = log.append(&item.entry(leaf.sequence()));
            self.put_in_buffer(&leaf, &found, item, epoch, &guard);
        } else {
            let mut items = self.pending_items(&leaf, None, &guard);
            items.push(self.pending(self.leaf(state.leaf), item, &guard));
            if self.room_for(state.leaf, &items) != Some(Room::Now) {
                return None;
            }
            let (word, lines) = self.store_items(state.leaf, &items);
            // Stores in the header's line persist in their order.
            let lines = self.flush_lines(state.leaf, lines & !1, "cclbtree flush.2");
            unsettled.lines = std::mem::replace(&mut unsettled.lines, Flushed::none()).and(lines);
            self.mark_flushed(&leaf, None);
            flushed = Some(word);
        }
        self.count_overflow(overflowed, !is_steady && self.overflows(&leaf));
        self.len.add(i64::from(found.value.is_none()));
        unsettled.leaves.push((leaf, flushed));
        Some(found.value.map(|value| V::owned(self.values.of::<V>().read(value, &V::pin()))))
    }

    /// Many 1 and 2: makes pending writes durable, unlocks their leaves, and acknowledges them.
    fn settle<V: Storage>(&self, unsettled: &mut Unsettled<'_, V, M>, tell: &mut Tell<'_, V>) -> Result<()> {
        // Also if nothing is to be flushed: a write alone takes the log.
        let log = unsettled.log.take();
        if unsettled.leaves.is_empty() {
            return Ok(());
        }
        let lines = std::mem::replace(&mut unsettled.lines, Flushed::none());
        let flushes = unsettled.leaves.iter().filter_map(|(leaf, flushed)| Some((leaf, (*flushed)?)));
        let commit = |(leaf, word): (&Locked<'_>, _)| {
            self.commit_line(self.leaf(leaf.state().leaf), word, Some(leaf.sequence()))
        };
        let log = log.unwrap_or_else(|| self.log.group());
        log.settle(lines, |_| flushes.map(commit).reduce(Flushed::and));
        unsettled.leaves.clear();
        self.after_write()?;
        unsettled.old.drain(..).for_each(&mut *tell);
        Ok(())
    }
}
