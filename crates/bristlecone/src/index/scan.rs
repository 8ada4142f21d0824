//! Scans from leaf to leaf, for every design whose leaves are in the index. The unit of consistency is
//! the leaf; where writers lock no leaf (NBTree), it is the item.

use std::ops::Bound;

use bristlecone_pm::sync::wait::again;
use bristlecone_pm::{Error, Medium, Result};

use crate::index::Batch;
use crate::index::parts::codec::{Codec, KeyCodec, Storage};
use crate::index::parts::items::{Items, Values};
use crate::index::parts::optimistic_lock::Version;
use crate::index::parts::search::Level;
use crate::index::parts::volatile_index::{Cursor, Step, VolatileIndex};
use crate::index::parts::words::{Order, WORDS_MAX, Words};

/// Whether a leaf has items outside the bounds on either side.
#[derive(Clone, Copy, Default)]
pub struct Outside {
    /// Items before the bounds.
    pub below: bool,
    /// Items behind the bounds.
    pub above: bool,
}

/// A range of keys.
pub type Bounds<'a, 'b, K> = (Bound<<K as Codec>::Ref<'a>>, Bound<<K as Codec>::Ref<'b>>);

/// Access to the leaves of a design.
pub trait Leafwise<K: KeyCodec> {
    /// Number of leaves ahead whose volatile part a scan prefetches.
    const AHEAD: usize = 3;
    /// Number of leaves ahead whose persistent part a scan prefetches.
    const ITEMS_AHEAD: usize = 1;

    /// Returns the index over the leaves.
    fn inner(&self) -> &VolatileIndex<K>;
    /// Returns the result of [`Level::detect`].
    fn level(&self) -> Level;
    /// Returns the version of a leaf, once no thread writes it, or `None` if it is no longer in the tree.
    fn version(&self, leaf: u32) -> Option<Version>;
    /// Prefetches the volatile part of a leaf.
    fn prefetch_descriptor(&self, leaf: u32);
    /// Prefetches the persistent part of a leaf, which the volatile part locates.
    fn prefetch_items(&self, leaf: u32);
    /// Reads a leaf's items into the empty `words`. Returns `None` if the leaf has changed since
    /// `version`. While the version is the same, each position has the same key, or none.
    fn snapshot(&self, leaf: u32, version: Version, words: &mut Words) -> Option<()>;
    /// Prefetches the records of a leaf whose persistent part is already cached.
    fn prefetch_records(&self, leaf: u32);
    /// Prefetches the records of the items at some positions of a leaf whose persistent part is already cached. Accepts any
    /// positions.
    fn prefetch_some(&self, leaf: u32, positions: &[u8]);
    /// Prefetches the record of a key's word, if it has one.
    fn prefetch_key(&self, word: u64);
    /// Prefetches the record of a value's word, if it has one.
    fn prefetch_value(&self, word: u64);
    /// Returns the key of a validated word. Unless the caller is `lenient`, its record is compared with its checksum.
    fn key_at<'a>(&'a self, word: u64, guard: &'a K::Guard, lenient: bool) -> Result<K::Ref<'a>>;
    /// Returns the value of a validated word. Unless the caller is `lenient`, a record that differs from its checksum is
    /// noted in `damage`.
    fn value_at<'a, V: Storage>(
        &'a self,
        word: u64,
        guard: &'a V::Guard,
        lenient: bool,
        damage: &mut Option<Error>,
    ) -> V::Ref<'a>;

    /// Prefetches the leaves at these distances behind a cursor.
    #[inline(always)]
    fn look_ahead(&self, cursor: Cursor, places: std::ops::RangeInclusive<usize>, ask: impl Fn(u32)) {
        for place in places {
            if let Some(ahead) = self.inner().ahead(cursor, place) {
                ask(ahead);
            }
        }
    }

    /// See [`Scan::scan_forward`](crate::index::Scan::scan_forward).
    fn ascend<V: Storage>(&self, bounds: Bounds<'_, '_, K>, into: &mut Batch<K, V>) -> bool {
        let guard = K::pin();
        let version_of = |leaf| self.version(leaf);
        let mut round = 0;
        while !into.ended {
            again(&mut round);
            let step = into.cursor.take().map_or(Step::Lost, |at| self.inner().next(at, version_of));
            let descriptor = |leaf| self.prefetch_descriptor(leaf);
            // A continued scan has already prefetched all but the last leaf.
            let goes_on = matches!(step, Step::Leaf(..));
            let (leaf, version, cursor, first) = match step {
                Step::Leaf(leaf, version, cursor) => {
                    self.look_ahead(cursor, Self::AHEAD..=Self::AHEAD, descriptor);
                    (leaf, version, cursor, Self::ITEMS_AHEAD)
                }
                Step::End => return false,
                Step::Lost => {
                    let key = match bounds.0 {
                        Bound::Included(key) | Bound::Excluded(key) => Some(key),
                        Bound::Unbounded => None,
                    };
                    let near = |cursor| self.look_ahead(cursor, 1..=Self::AHEAD, descriptor);
                    let (leaf, version, cursor) = self.inner().seek(key, &guard, version_of, near);
                    self.prefetch_items(leaf);
                    (leaf, version, cursor, 1)
                }
            };
            self.look_ahead(cursor, first..=Self::ITEMS_AHEAD, |leaf| self.prefetch_items(leaf));
            let collected = self.collect::<true, V>(leaf, version, bounds, into);
            let Some(outside) = collected else { continue };
            if into.damage.is_some() {
                return false;
            }
            into.ended = outside.above;
            into.cursor = Some(cursor);
            if !(K::INLINE && V::INLINE) && goes_on && !into.ended {
                self.look_ahead(cursor, 1..=1, |leaf| self.prefetch_records(leaf));
            }
            if !into.entries.is_empty() {
                return true;
            }
        }
        false
    }

    /// See [`Scan::scan_backward`](crate::index::Scan::scan_backward).
    fn descend<V: Storage>(&self, bounds: Bounds<'_, '_, K>, into: &mut Batch<K, V>) -> bool {
        let guard = K::pin();
        let version_of = |leaf| self.version(leaf);
        let (from, to) = (shorten::<K>(bounds.0), shorten::<K>(bounds.1));
        // The leaf of an included bound may begin with it; every other leaf must begin before it.
        let mut inclusive = matches!(to, Bound::Included(_)) && into.fence.is_none();
        let mut round = 0;
        loop {
            again(&mut round);
            let fence = into.fence.take();
            if matches!(fence, Some(None)) {
                return false;
            }
            let (leaf, version, low) = match (&fence, to) {
                (Some(Some(fence)), _) => {
                    self.inner().find_before(Some(K::borrow(fence)), &guard, version_of)
                }
                (_, Bound::Included(key)) if inclusive => {
                    let (leaf, version) = self.inner().find(key, &guard, version_of);
                    // Search the leaf before the key with the key as an exclusive bound.
                    (leaf, version, Some(K::owned(key)))
                }
                (_, Bound::Included(key) | Bound::Excluded(key)) => {
                    self.inner().find_before(Some(key), &guard, version_of)
                }
                (_, Bound::Unbounded) => self.inner().find_before(None, &guard, version_of),
            };
            let bounds = if inclusive { (to, to) } else { (from, to) };
            self.prefetch_items(leaf);
            let Some(outside) = self.collect::<false, V>(leaf, version, bounds, into) else {
                into.fence = fence;
                continue;
            };
            if into.damage.is_some() {
                return false;
            }
            into.fence = Some(low.filter(|_| inclusive || !outside.below));
            inclusive = false;
            if !into.entries.is_empty() {
                return true;
            }
        }
    }

    /// Collects the requested items of a leaf, in `DESCENDING` or ascending order. Returns `None` if the
    /// leaf changed meanwhile.
    #[inline(always)]
    fn collect<const DESCENDING: bool, V: Storage>(
        &self,
        leaf: u32,
        version: Version,
        bounds: Bounds<'_, '_, K>,
        into: &mut Batch<K, V>,
    ) -> Option<Outside> {
        let guards = (K::pin(), V::pin());
        let mut words = Words::default();
        self.snapshot(leaf, version, &mut words)?;
        into.entries.clear();
        Some(self.append::<DESCENDING, V>(Some((leaf, version)), &words, bounds, into, &guards))
    }

    /// Returns the order of the items of a leaf, if one is given, and whether all of them were verified just now.
    ///
    /// # Errors
    ///
    /// Fails if a key that had to be read is damaged, unless the caller is `lenient`.
    #[inline(always)]
    fn order(
        &self,
        leaf: Option<(u32, Version)>,
        words: &Words,
        guard: &K::Guard,
        lenient: bool,
    ) -> Result<(Order, bool)> {
        let remembered = self.inner().orders().zip(leaf);
        if let Some((orders, (leaf, version))) = remembered
            && let Some(order) = orders.find(leaf, version, words.taken())
        {
            return Ok((order, false));
        }
        if !K::INLINE {
            words.iter().for_each(|(_, [key, _])| self.prefetch_key(key));
        }
        let order = words.order::<K>(self.level(), |word| self.key_at(word, guard, lenient))?;
        if let Some((orders, (leaf, version))) = remembered.filter(|_| !lenient) {
            orders.remember(leaf, version, words.taken(), &order);
        }
        Ok((order, true))
    }

    /// Appends the requested items of a leaf, in `DESCENDING` or ascending order.
    #[inline(always)]
    fn append<const DESCENDING: bool, V: Storage>(
        &self,
        leaf: Option<(u32, Version)>,
        words: &Words,
        bounds: Bounds<'_, '_, K>,
        into: &mut Batch<K, V>,
        guards: &(K::Guard, V::Guard),
    ) -> Outside {
        if into.damage.is_some() {
            return Outside::default();
        }
        let lenient = into.lenient;
        let value_at =
            |word, damage: &mut Option<Error>| self.value_at::<V>(word, &guards.1, lenient, damage);
        if K::INLINE && V::INLINE {
            return append_words::<K, V, DESCENDING>(self.level(), words, bounds, into, value_at);
        }
        words.iter().for_each(|(_, [key, value])| {
            self.prefetch_key(key);
            self.prefetch_value(value);
        });
        match self.order(leaf, words, &guards.0, lenient) {
            Ok((order, is_verified)) => {
                let key_at = |word| self.key_at(word, &guards.0, lenient || is_verified);
                append_ordered::<K, V, DESCENDING>(&order, words, bounds, into, (key_at, value_at))
            }
            Err(error) => {
                into.fail(error);
                Outside::default()
            }
        }
    }
}

/// Appends the requested items, in `DESCENDING` or ascending order. One function reads the words of keys, with their
/// checksums, and one reads the words of values and notes damage. After a mismatch, `into` has failed.
#[inline(always)]
pub fn append<'g, K: KeyCodec, V: Storage, const DESCENDING: bool>(
    level: Level,
    words: &Words,
    bounds: Bounds<'_, '_, K>,
    into: &mut Batch<K, V>,
    (key_of, value_of): (impl Fn(u64) -> Result<K::Ref<'g>>, impl Fn(u64, &mut Option<Error>) -> V::Ref<'g>),
) -> Outside {
    if into.damage.is_some() {
        return Outside::default();
    }
    if K::INLINE && V::INLINE {
        return append_words::<K, V, DESCENDING>(level, words, bounds, into, value_of);
    }
    match words.order::<K>(level, &key_of) {
        Ok(order) => append_ordered::<K, V, DESCENDING>(&order, words, bounds, into, (key_of, value_of)),
        Err(error) => {
            into.fail(error);
            Outside::default()
        }
    }
}

/// Appends the requested ones of ordered items. The keys of all requested items are read, and those that are compared
/// with the bounds.
#[inline(always)]
fn append_ordered<'g, K: KeyCodec, V: Storage, const DESCENDING: bool>(
    order: &Order,
    words: &Words,
    (from, to): Bounds<'_, '_, K>,
    into: &mut Batch<K, V>,
    (key_of, value_of): (impl Fn(u64) -> Result<K::Ref<'g>>, impl Fn(u64, &mut Option<Error>) -> V::Ref<'g>),
) -> Outside {
    let mut damage = None;
    let mut copy = || -> Result<Outside> {
        let key_at = |at| key_of(words.at(at)[0]);
        let all = 0..order.count();
        let start = order.count_while(all.clone(), |at| Ok(precedes::<K>(key_at(at)?, from)))?;
        let end = order.count_while(start..all.end, |at| Ok(!succeeds::<K>(key_at(at)?, to)))?;
        into.entries.reserve(end - start);
        let mut push = |at| -> Result<()> {
            let [key, value] = words.at(at);
            into.entries.push((K::owned(key_of(key)?), V::owned(value_of(value, &mut damage))));
            Ok(())
        };
        let mut wanted = order.range(start..end);
        if DESCENDING {
            wanted.rev().try_for_each(push)?
        } else {
            wanted.try_for_each(&mut push)?
        }
        Ok(Outside { below: start > 0, above: end < all.end })
    };
    let copied = copy();
    copied.and_then(|outside| damage.map_or(Ok(outside), Err)).unwrap_or_else(|error| {
        into.fail(error);
        Outside::default()
    })
}

/// Appends the requested items of words, in `DESCENDING` or ascending order.
#[inline(always)]
fn append_words<'g, K: KeyCodec, V: Storage, const DESCENDING: bool>(
    level: Level,
    words: &Words,
    bounds: Bounds<'_, '_, K>,
    into: &mut Batch<K, V>,
    value_of: impl Fn(u64, &mut Option<Error>) -> V::Ref<'g>,
) -> Outside {
    // `place` may overwrite an entry, which leaks if it owns heap memory.
    const {
        assert!(
            !(K::INLINE && V::INLINE && std::mem::needs_drop::<(K::Owned, V::Owned)>()),
            "words own nothing"
        )
    };
    into.entries.reserve(WORDS_MAX);
    let before = into.entries.len();
    let spare = &mut into.entries.spare_capacity_mut()[..WORDS_MAX];
    let mut damage = None;
    words.place::<DESCENDING>(level, |place, at| {
        let [key, value] = words.at(at);
        spare[place].write((K::owned(K::of_word(key)), V::owned(value_of(value, &mut damage))));
    });
    if let Some(error) = damage {
        into.fail(error);
        return Outside::default();
    }
    // SAFETY: each place of an item was written.
    unsafe { into.entries.set_len(before + words.count()) };
    trim::<K, V, DESCENDING>(bounds, &mut into.entries, before)
}

/// Removes unrequested entries from `begin` on: they are at the ends, and most leaves have none.
#[inline(always)]
fn trim<K: KeyCodec, V: Storage, const DESCENDING: bool>(
    (from, to): Bounds<'_, '_, K>,
    entries: &mut Vec<(K::Owned, V::Owned)>,
    begin: usize,
) -> Outside {
    let below = |(key, _): &(K::Owned, V::Owned)| precedes::<K>(K::borrow(key), from);
    let above = |(key, _): &(K::Owned, V::Owned)| succeeds::<K>(K::borrow(key), to);
    let ends = if DESCENDING {
        trim_ends(entries, begin, above, below)
    } else {
        trim_ends(entries, begin, below, above)
    };
    let (below, above) = if DESCENDING { (ends.1, ends.0) } else { ends };
    Outside { below, above }
}

/// Removes unrequested entries at the front and at the back; returns whether there were any.
#[inline(always)]
fn trim_ends<T>(
    entries: &mut Vec<T>,
    begin: usize,
    front: impl Fn(&T) -> bool,
    back: impl Fn(&T) -> bool,
) -> (bool, bool) {
    let end = entries[begin..].iter().rposition(|entry| !back(entry)).map_or(begin, |last| begin + last + 1);
    let trimmed_back = end < entries.len();
    entries.truncate(end);
    let unwanted = entries[begin..].iter().take_while(|entry| front(entry)).count();
    entries.drain(begin..begin + unwanted);
    (unwanted > 0, trimmed_back)
}

/// Returns the value that a word represents. Unless the caller is `lenient`, a record that differs from its checksum is
/// noted in `damage`; the result is then the value of word 0, which is none.
#[inline(always)]
pub fn value_or_noted<'g, V: Storage, M: Medium>(
    values: &'g Values<M>,
    word: u64,
    guard: &'g V::Guard,
    lenient: bool,
    damage: &mut Option<Error>,
) -> V::Ref<'g> {
    if V::INLINE || lenient {
        return values.of::<V>().read(word, guard);
    }
    values.of::<V>().read_verified(word, guard).unwrap_or_else(|error| {
        damage.get_or_insert(error);
        values.of::<V>().read(0, guard)
    })
}

/// Returns the bound with a shorter lifetime.
pub fn shorten<'long: 'short, 'short, K: Codec>(bound: Bound<K::Ref<'long>>) -> Bound<K::Ref<'short>> {
    bound.map(K::shorten)
}

/// Returns whether a key is before all keys that a lower bound allows.
pub fn precedes<K: KeyCodec>(key: K::Ref<'_>, from: Bound<K::Ref<'_>>) -> bool {
    match from {
        Bound::Included(bound) => K::shorten(key) < K::shorten(bound),
        Bound::Excluded(bound) => K::shorten(key) <= K::shorten(bound),
        Bound::Unbounded => false,
    }
}

/// Returns whether a key is behind all keys that an upper bound allows.
pub fn succeeds<K: KeyCodec>(key: K::Ref<'_>, to: Bound<K::Ref<'_>>) -> bool {
    match to {
        Bound::Included(bound) => K::shorten(key) > K::shorten(bound),
        Bound::Excluded(bound) => K::shorten(key) >= K::shorten(bound),
        Bound::Unbounded => false,
    }
}

/// Replaces the leaf's value of a key by the buffered one.
#[inline(always)]
pub fn overlay<K: KeyCodec, M: Medium>(keys: &Items<K, M>, words: &mut Words, key: u64, value: Option<u64>) {
    let guard = K::pin();
    let same = |held: u64| {
        if K::INLINE { held == key } else { keys.read(held, &guard) == keys.read(key, &guard) }
    };
    let held = words.iter().find(|&(_, [held, _])| same(held));
    match (held, value) {
        (Some((at, [held, _])), Some(value)) => words.set_value(at, held, value),
        (Some((at, _)), None) => words.remove(at),
        (None, Some(value)) => words.push(key, value),
        (None, None) => {}
    }
}
