//! A tree as one of any codec: keys and values are converted at each call.

use std::ops::Bound;
use std::sync::{Arc, Mutex};

use bristlecone_pm::{Error, Issue, Result};
use smallvec::SmallVec;

use super::of_keys::Shared;
use super::ranges::Bounds;
use super::{Batch, Index, Inspect, Read, Scan, Swapped, Tell, TreeStats, Visit, Write, WriteMode};
use crate::index::parts::codec::{Any, Codec, GROUP};
use crate::index::parts::encoded::{Encoded, Item};

/// A tree of the codecs `K` and `V` as one of any codec.
struct OfAny<K: Codec, V: Codec> {
    tree: Shared<K, V>,
    beneath: Option<Shared<Any, Any>>,
    /// Memory for the items of a leaf, which a scan takes.
    spare: Mutex<Leaf<K, V>>,
}

type Leaf<K, V> = Vec<(<K as Codec>::Owned, <V as Codec>::Owned)>;

/// Returns a tree as one of any codec.
pub fn of_any<K: Codec, V: Codec>(tree: &Shared<K, V>) -> Shared<Any, Any> {
    if let Some(tree) = (tree as &dyn std::any::Any).downcast_ref() {
        return Arc::clone(tree);
    }
    let (beneath, spare) = (tree.beneath().map(of_any), Mutex::default());
    Arc::new(OfAny { tree: Arc::clone(tree), beneath, spare })
}

/// Returns a key or value in the tree's codec.
///
/// # Errors
///
/// [`Error::Corrupted`] if it is of another one: a defect, or damage in the commit log.
fn lent<'a, C: Codec>(item: Item<'a>) -> Result<C::Ref<'a>> {
    C::of_item(item).ok_or_else(unlike)
}

#[cold]
pub fn unlike() -> Error {
    Error::corrupted("a key or value with the wrong codec", "commit log")
}

fn lent_bound<'a, C: Codec>(bound: Bound<Item<'a>>) -> Result<Bound<C::Ref<'a>>> {
    Ok(match bound {
        Bound::Included(key) => Bound::Included(lent::<C>(key)?),
        Bound::Excluded(key) => Bound::Excluded(lent::<C>(key)?),
        Bound::Unbounded => Bound::Unbounded,
    })
}

fn swapped<V: Codec>(swapped: Swapped<V>) -> Swapped<Any> {
    swapped.map_err(|found| found.map(V::encode))
}

impl<K: Codec, V: Codec> OfAny<K, V> {
    /// Calls `use_them` with keys in the tree's codec.
    fn with_keys<R>(keys: &[Item<'_>], use_them: impl FnOnce(&[K::Ref<'_>]) -> Result<R>) -> Result<R> {
        let mut lent_keys = SmallVec::<[_; GROUP]>::new();
        for key in keys {
            lent_keys.push(lent::<K>(*key)?);
        }
        use_them(&lent_keys)
    }

    /// Calls `use_them` with items in the tree's codecs.
    fn with_items<R>(
        items: &[(Item<'_>, Item<'_>)],
        use_them: impl FnOnce(&[(K::Ref<'_>, V::Ref<'_>)]) -> Result<R>,
    ) -> Result<R> {
        let mut lent_items = SmallVec::<[_; GROUP]>::new();
        for (key, value) in items {
            lent_items.push((lent::<K>(*key)?, lent::<V>(*value)?));
        }
        use_them(&lent_items)
    }

    /// Reads a leaf with `scan`, and appends its items to `into`.
    fn scan(
        &self,
        (from, to): Bounds<'_, Any>,
        into: &mut Batch<Any, Any>,
        scan: impl FnOnce(&dyn Index<K, V>, Bounds<'_, K>, &mut Batch<K, V>) -> bool,
    ) -> bool {
        let bounds = match (lent_bound::<K>(from), lent_bound::<K>(to)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => return into.fail(error),
        };
        let spare =
            self.spare.try_lock().map_or_else(|_| Vec::new(), |mut spare| std::mem::take(&mut *spare));
        let mut batch = into.taken(spare);
        let more = scan(&*self.tree, bounds, &mut batch);
        let spare = into.give(batch);
        if let Ok(mut kept) = self.spare.try_lock() {
            *kept = spare;
        }
        more
    }
}

impl<K: Codec, V: Codec> Read<Any, Any> for OfAny<K, V> {
    fn get(&self, key: Item<'_>, show: &mut dyn FnMut(Item<'_>)) -> Result<bool> {
        self.tree.get(lent::<K>(key)?, &mut |value| show(V::item(value)))
    }

    fn get_many(&self, keys: &[Item<'_>], show: &mut dyn FnMut(usize, Item<'_>)) -> Result<()> {
        Self::with_keys(keys, |keys| self.tree.get_many(keys, &mut |at, value| show(at, V::item(value))))
    }

    fn beneath(&self) -> Option<&Shared<Any, Any>> {
        self.beneath.as_ref()
    }
}

impl<K: Codec, V: Codec> Write<Any, Any> for OfAny<K, V> {
    fn write(&self, key: Item<'_>, value: Item<'_>, mode: WriteMode) -> Result<Option<Encoded>> {
        Ok(self.tree.write(lent::<K>(key)?, lent::<V>(value)?, mode)?.map(V::encode))
    }

    fn upsert(&self, key: Item<'_>, value: Item<'_>) -> Result<()> {
        self.tree.upsert(lent::<K>(key)?, lent::<V>(value)?)
    }

    fn has_fast_upserts(&self) -> bool {
        self.tree.has_fast_upserts()
    }

    fn remove(&self, key: Item<'_>) -> Result<Option<Encoded>> {
        Ok(self.tree.remove(lent::<K>(key)?)?.map(V::encode))
    }

    fn write_many(&self, items: &[(Item<'_>, Item<'_>)], tell: &mut Tell<'_, Any>) -> Result<()> {
        Self::with_items(items, |items| self.tree.write_many(items, &mut |old| tell(old.map(V::encode))))
    }

    fn upsert_many(&self, items: &[(Item<'_>, Item<'_>)], tell: &mut Tell<'_, Any>) -> Result<()> {
        Self::with_items(items, |items| self.tree.upsert_many(items, &mut |old| tell(old.map(V::encode))))
    }

    fn remove_many(&self, keys: &[Item<'_>], tell: &mut Tell<'_, Any>) -> Result<()> {
        Self::with_keys(keys, |keys| self.tree.remove_many(keys, &mut |old| tell(old.map(V::encode))))
    }

    fn append(&self, items: &[(Item<'_>, Item<'_>)], last: bool) -> Result<usize> {
        Self::with_items(items, |items| self.tree.append(items, last))
    }

    fn remove_if(&self, key: Item<'_>, expected: Item<'_>) -> Result<Swapped<Any>> {
        Ok(swapped::<V>(self.tree.remove_if(lent::<K>(key)?, lent::<V>(expected)?)?))
    }

    fn compare_and_swap(&self, key: Item<'_>, expected: Item<'_>, new: Item<'_>) -> Result<Swapped<Any>> {
        let (key, expected, new) = (lent::<K>(key)?, lent::<V>(expected)?, lent::<V>(new)?);
        Ok(swapped::<V>(self.tree.compare_and_swap(key, expected, new)?))
    }
}

impl<K: Codec, V: Codec> Scan<Any, Any> for OfAny<K, V> {
    fn scan_forward(&self, bounds: Bounds<'_, Any>, into: &mut Batch<Any, Any>) -> bool {
        self.scan(bounds, into, |tree, bounds, batch| tree.scan_forward(bounds, batch))
    }

    fn scan_backward(&self, bounds: Bounds<'_, Any>, into: &mut Batch<Any, Any>) -> bool {
        self.scan(bounds, into, |tree, bounds, batch| tree.scan_backward(bounds, batch))
    }

    fn visit(&self, (from, to): Bounds<'_, Any>, visit: &mut Visit<'_, Any, Any>) -> Result<()> {
        let bounds = (lent_bound::<K>(from)?, lent_bound::<K>(to)?);
        match visit {
            Visit::Items(see) => {
                let mut see = |key: K::Ref<'_>, value: V::Ref<'_>| see(K::item(key), V::item(value));
                self.tree.visit(bounds, &mut Visit::Items(&mut see))
            }
            Visit::Keys(see) => {
                self.tree.visit(bounds, &mut Visit::Keys(&mut |key: K::Ref<'_>| see(K::item(key))))
            }
        }
    }
}

impl<K: Codec, V: Codec> Inspect for OfAny<K, V> {
    fn len(&self) -> Result<u64> {
        self.tree.len()
    }

    fn len_known(&self) -> Option<u64> {
        self.tree.len_known()
    }

    fn stats(&self) -> Result<TreeStats> {
        self.tree.stats()
    }

    fn check(&self) -> Vec<Issue> {
        self.tree.check()
    }

    fn damage(&self) -> Vec<Issue> {
        self.tree.damage()
    }

    fn is_salvaged(&self) -> bool {
        self.tree.is_salvaged()
    }
}

impl Batch<Any, Any> {
    /// Takes the position of a scan, for a tree of other codecs.
    fn taken<K: Codec, V: Codec>(&mut self, entries: Leaf<K, V>) -> Batch<K, V> {
        let Self { cursor, ended, lenient, state, .. } = *self;
        // A fence is the tree's own.
        let fence = self.fence.take().map(|fence| fence.and_then(K::decode));
        let damage = self.damage.take();
        Batch { entries, cursor, ended, fence, lenient, damage, state }
    }

    /// Takes a leaf of that tree over; returns the leaf's memory.
    fn give<K: Codec, V: Codec>(&mut self, leaf: Batch<K, V>) -> Leaf<K, V> {
        let Batch { mut entries, cursor, ended, fence, lenient, damage, state } = leaf;
        self.entries.clear();
        self.entries.extend(entries.drain(..).map(|(key, value)| (K::encode(key), V::encode(value))));
        let fence = fence.map(|fence| fence.map(K::encode));
        (self.cursor, self.ended, self.fence) = (cursor, ended, fence);
        (self.lenient, self.damage, self.state) = (lenient, damage, state);
        entries
    }
}
