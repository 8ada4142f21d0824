//! Groups of keys: their memory accesses overlap, and writes share a fence. Step numbers are those of the
//! protocol in `mod.rs`.

use bristlecone_pm::{Durable, Flushed, Medium, Persist, Result, Step};
use smallvec::SmallVec;

use super::NbTree;
use super::join::CompletionMode;
use super::leaf::Leaf;
use super::lookup::{Pins, Probe, Target};
use super::meta::Tag;
use super::pending::DirtyToken;
use super::read::LockState;
use super::value::Outcome;
use super::write::Done;
use crate::index::parts::codec::{GROUP, KeyCodec, Storage};
use crate::index::parts::optimistic_lock::Version;
use crate::index::parts::slot::Slot;
use crate::index::parts::volatile_index::Step as Next;
use crate::index::{Read, Tell, Write, WriteMode};

/// The leaf of a key, as one probe found it.
#[derive(Clone, Copy)]
struct Near {
    leaf: u32,
    version: Version,
    /// The leaf's bitmap.
    seen: u64,
    /// The slots in the bitmap with the key's fingerprint.
    hits: u64,
}

/// The leaf of each key, if one probe finds it.
type Places = [Option<Near>; GROUP];

/// A line with a pending flush.
struct Line<'t> {
    leaf: &'t Leaf,
    cell: &'t Slot,
    token: DirtyToken,
    step: Step,
}

/// Completed writes with pending flushes.
#[derive(Default)]
struct Unsettled<'t> {
    lines: SmallVec<[Line<'t>; GROUP]>,
    outcomes: SmallVec<[Outcome; GROUP]>,
}

impl<'t> CompletionMode<'t> for Unsettled<'t> {
    #[inline(always)]
    fn complete(&mut self, leaf: &'t Leaf, cell: &'t Slot, token: Option<DirtyToken>, step: Step) {
        self.lines.extend(token.map(|token| Line { leaf, cell, token, step }));
    }
}

impl<K: KeyCodec, M: Medium> NbTree<K, M> {
    /// Looks up keys together, as far as their leaves are stable.
    pub(super) fn look_many<V: Storage>(
        &self,
        keys: &[K::Ref<'_>],
        show: &mut dyn FnMut(usize, V::Ref<'_>),
    ) -> Result<()> {
        let guards = (K::pin(), V::pin());
        let tags = tags_of::<K>(keys);
        let places = self.approach(keys, &tags, &guards.0, false);
        let mut glances = [LockState::Unclear; GROUP];
        for (at, (key, place)) in keys.iter().zip(places).enumerate() {
            let Some(Near { leaf, version, .. }) = place else { continue };
            glances[at] = self.glance(self.leaves.get(leaf), version, *key, tags[at], &guards.0);
            if !V::INLINE
                && let LockState::Found { value, .. } = glances[at]
                && let Some(Some(record)) = self.at_a_glance::<V>(value)
            {
                self.pool.prefetch(record);
            }
        }
        for (at, (key, glance)) in keys.iter().zip(glances).enumerate() {
            let (held, word) = match glance {
                LockState::Found { key, value } => (key, self.at_a_glance::<V>(value)),
                LockState::Unclear | LockState::Stale => (0, None),
            };
            match word {
                Some(None) if K::INLINE => {}
                Some(Some(value)) => {
                    self.keys.verify_held(held, &guards.0)?;
                    show(at, self.values.of::<V>().read_verified(value, &guards.1)?);
                }
                _ => _ = Read::<K, V>::get(self, *key, &mut |value| show(at, value))?,
            }
        }
        Ok(())
    }

    /// Many 1: finds the leaves of keys, and prefetches each key's slot and record, and the line of a new item if it
    /// `writes`.
    fn approach(&self, keys: &[K::Ref<'_>], tags: &[Tag; GROUP], guard: &K::Guard, writes: bool) -> Places {
        if self.locking() != 0 {
            return [None; GROUP];
        }
        let cursors = self.inner.seek_many(keys, guard, |at, leaf| {
            self.leaves.prefetch(leaf);
            self.prefetch_line(leaf, self.shape.home(tags[at].hash));
        });
        let mut places = [None; GROUP];
        let mut slots = [None; GROUP];
        for at in 0..keys.len() {
            let Some(cursor) = cursors[at] else { continue };
            let Next::Leaf(id, version, _) = self.inner.look(cursor, |leaf| self.version_of(leaf)) else {
                continue;
            };
            let leaf = self.leaves.get(id);
            // In this order: a slot in the bitmap has its fingerprint.
            let seen = self.bitmap(leaf);
            let hits = self.candidates(leaf, tags[at]) & seen & self.shape.all();
            places[at] = Some(Near { leaf: id, version, seen, hits });
            if hits != 0 {
                let slot = hits.trailing_zeros() as usize;
                self.prefetch_line(id, self.shape.line(slot));
                slots[at] = Some((leaf, slot));
            } else if writes {
                self.prefetch_place(id, seen, tags[at]);
            }
        }
        if !K::INLINE {
            for (leaf, slot) in slots.into_iter().flatten() {
                self.pool.prefetch(self.slot(leaf, slot).key.load(self.medium()));
            }
        }
        places
    }

    /// Writes items in their order.
    pub(super) fn put_many<'k, V: Storage>(
        &self,
        items: &[(K::Ref<'k>, V::Ref<'_>)],
        tell: &mut Tell<'_, V>,
    ) -> Result<()> {
        let keys: SmallVec<[K::Ref<'k>; GROUP]> = items.iter().map(|(key, _)| *key).collect();
        self.change_many::<V>(
            &keys,
            tell,
            |at, target, unsettled, pins| {
                let outcome =
                    self.put_fast::<V>(keys[at], target, items[at].1, WriteMode::Upsert, unsettled, pins)?;
                Some(Done { outcome, emptied: None })
            },
            |at| Write::<K, V>::write(self, keys[at], items[at].1, WriteMode::Upsert),
        )
    }

    /// Removes keys in their order.
    pub(super) fn delete_many<V: Storage>(&self, keys: &[K::Ref<'_>], tell: &mut Tell<'_, V>) -> Result<()> {
        self.change_many::<V>(
            keys,
            tell,
            |_, target, unsettled, pins| self.delete_fast::<V>(target, unsettled, pins),
            |at| Write::<K, V>::remove(self, keys[at]),
        )
    }

    /// Changes keys, each by `at_once` if the fast path applies. Otherwise uses `alone`, after all
    /// earlier changes are durable.
    fn change_many<'t, V: Storage>(
        &'t self,
        keys: &[K::Ref<'_>],
        tell: &mut Tell<'_, V>,
        at_once: impl Fn(usize, &mut Target, &mut Unsettled<'t>, &Pins<K>) -> Option<Done>,
        alone: impl Fn(usize) -> Result<Option<V::Owned>>,
    ) -> Result<()> {
        let tags = tags_of::<K>(keys);
        let places = self.approach(keys, &tags, &K::pin(), true);
        let mut unsettled = Unsettled::default();
        let mut pins = None;
        for (at, key) in keys.iter().enumerate() {
            let pinned = pins.get_or_insert_with(Pins::<K>::new);
            let target = &mut self.target(*key, tags[at], places[at], &pinned.key);
            let mut done = at_once(at, target, &mut unsettled, pinned);
            if done.is_none() && K::INLINE && V::INLINE {
                // Its leaf was replaced, perhaps for an earlier key, or got the key.
                target.probe = self.probe(*key, target.tag, &pinned.key);
                done = at_once(at, target, &mut unsettled, pinned);
            }
            match done {
                Some(Done { outcome, emptied }) => {
                    unsettled.outcomes.push(outcome);
                    if let Some(leaf) = emptied {
                        self.settle::<V>(&mut unsettled, pinned, tell)?;
                        self.free_if_empty(leaf, *key, pinned);
                    }
                }
                None => {
                    self.settle::<V>(&mut unsettled, pinned, tell)?;
                    pins = None;
                    tell(alone(at)?);
                }
            }
        }
        pins.map_or(Ok(()), |pins| self.settle::<V>(&mut unsettled, &pins, tell))
    }

    /// Searches a key in the leaf that `approach` found.
    #[inline(always)]
    fn target(&self, key: K::Ref<'_>, tag: Tag, place: Option<Near>, guard: &K::Guard) -> Target {
        let probe = place.and_then(|Near { leaf: id, version, seen, hits }| {
            let leaf = self.leaves.get(id);
            let still = || leaf.incarnation.validate(version);
            let slot = self.find_among(leaf, hits, key, guard, still).ok()?;
            Some(Probe { leaf: id, version, seen, slot })
        });
        Target { tag, probe }
    }

    /// Prefetches the destination of an insert: the line of the new key's slot, unless it is the home line,
    /// which was prefetched already, or all lines of a leaf that will be split.
    fn prefetch_place(&self, leaf: u32, seen: u64, tag: Tag) {
        let free = !seen & self.shape.all();
        if free == 0 {
            return self.prefetch_block(self.leaves.block(leaf));
        }
        let line = self.shape.line(self.shape.pick(free, tag.hash));
        if line != self.shape.home(tag.hash) {
            self.prefetch_line(leaf, line);
        }
    }

    /// Many 2: makes pending writes durable, and acknowledges them.
    fn settle<V: Storage>(
        &self,
        unsettled: &mut Unsettled<'_>,
        pins: &Pins<K>,
        tell: &mut Tell<'_, V>,
    ) -> Result<()> {
        let medium = self.medium();
        if !unsettled.lines.is_empty() {
            let lines = unsettled.lines.iter();
            let flushed =
                lines.fold(Flushed::none(), |flushed, line| flushed.and(medium.flush(line.cell, line.step)));
            let Durable { .. } = medium.fence(flushed, "nbtree many.2");
        }
        for Line { leaf, token, .. } in unsettled.lines.drain(..) {
            leaf.pending.leave(token);
        }
        for outcome in unsettled.outcomes.drain(..) {
            tell(self.conclude::<V>(None, Ok(outcome), pins)?);
        }
        Ok(())
    }
}

/// Returns the fingerprints of up to [`GROUP`] keys.
fn tags_of<K: KeyCodec>(keys: &[K::Ref<'_>]) -> [Tag; GROUP] {
    std::array::from_fn(|at| keys.get(at).map_or(Tag::NONE, |key| Tag::of::<K>(*key)))
}
