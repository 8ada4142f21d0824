//! A tree that recovery refuses, open for reading.
//!
//! Salvage copies its readable items to DRAM, and reads are served from there. Each issue puts a span of keys in
//! doubt: the keys of one leaf if only that leaf is damaged, and all keys if a log entry is damaged, because its key
//! is unknown. Reads fail within a span in doubt, for present and absent keys alike. Lenient scans return all copied
//! items. [`damage`](Inspect::damage) lists the issues.
//! Such a tree exists only in read-only pools.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Mutex;

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::{Error, Issue, Result};

use super::salvage::{Added, SaveTo, Span, expect_form, only};
use super::{Batch, Inspect, Read, Scan, Swapped, TreeStats, Write, WriteMode};
use crate::index::parts::codec::{Codec, KeyCodec, Storage};
use crate::index::parts::encoded::{Encoded, Item};

/// Number of items that a scan takes at a time.
const BATCH: usize = 64;

/// The items of a tree.
type Items<K> = BTreeMap<<K as Codec>::Owned, Encoded>;

/// The items saved of a tree.
pub struct Saved<K: KeyCodec>(Mutex<Items<K>>);

impl<K: KeyCodec> Default for Saved<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: KeyCodec> SaveTo<K> for Saved<K> {
    fn add(&self, key: K::Ref<'_>, value: Item<'_>) -> Result<Added> {
        Ok(match lock(&self.0).entry(K::owned(key)) {
            Entry::Occupied(old) if old.get().item() == value => Added::Same,
            Entry::Occupied(_) => Added::Other,
            Entry::Vacant(place) => {
                place.insert(value.to_owned());
                Added::New
            }
        })
    }

    fn set(&self, key: K::Ref<'_>, value: Option<Item<'_>>) -> Result<bool> {
        let (mut items, key) = (lock(&self.0), K::owned(key));
        let before = match value {
            Some(value) => items.insert(key, value.to_owned()),
            None => items.remove(&key),
        };
        Ok(before.is_some())
    }

    fn remove_range(&self, first: K::Ref<'_>, last: K::Ref<'_>) -> Result<u64> {
        let (mut items, range) = (lock(&self.0), K::owned(first)..=K::owned(last));
        let before = items.len();
        items.retain(|key, _| !range.contains(key));
        Ok((before - items.len()) as u64)
    }

    fn holds(&self, key: K::Ref<'_>, value: Item<'_>) -> bool {
        lock(&self.0).get(&K::owned(key)).is_some_and(|found| found.item() == value)
    }
}

/// A tree that recovery refuses. The module's head describes it.
pub struct DamagedTree<K: KeyCodec> {
    items: Items<K>,
    doubts: Vec<Span<K>>,
    issues: Vec<Issue>,
    pm_bytes: u64,
}

impl<K: KeyCodec> DamagedTree<K> {
    /// Serves the saved items of a tree that occupies `pm_bytes` of the pool. There is at least one issue, and at
    /// least one span in doubt.
    pub fn new(saved: Saved<K>, doubts: Vec<Span<K>>, issues: Vec<Issue>, pm_bytes: u64) -> Self {
        debug_assert!(!doubts.is_empty() && !issues.is_empty());
        let items = saved.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Self { items, doubts, issues, pm_bytes }
    }

    /// Returns the error of reads that damage may affect.
    #[cold]
    fn error(&self) -> Error {
        let Issue { what, location, .. } = &self.issues[0];
        Error::corrupted(format!("damage that may affect this key: {what}"), location.clone())
    }

    /// Fails for a key whose value may differ from the saved one.
    fn expect_known(&self, key: K::Ref<'_>) -> Result<()> {
        let key = only::<K>(key);
        let is_in_doubt = self.doubts.iter().any(|span| overlap::<K>(span, &key));
        if is_in_doubt { Err(self.error()) } else { Ok(()) }
    }

    /// Appends items within bounds to a batch. A scan ends before the first span in doubt, and then fails, unless it is
    /// lenient.
    fn serve<V: Storage>(
        &self,
        bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>),
        down: bool,
        into: &mut Batch<K, V>,
    ) -> bool {
        let bounds = (bounds.0.map(K::owned), bounds.1.map(K::owned));
        if into.damage.is_some() || end_before::<K>(&bounds.1, &bounds.0) {
            return false;
        }
        let in_doubt = |span: &&Span<K>| !into.lenient && overlap::<K>(span, &bounds);
        let doubts: Vec<_> = self.doubts.iter().filter(in_doubt).collect();
        let is_known = |item: &(&K::Owned, &Encoded)| {
            let key = Bound::Included(item.0.clone());
            // In the direction of the scan, the whole span must be behind the key.
            doubts.iter().all(
                |(from, to)| {
                    if down { end_before::<K>(to, &key) } else { end_before::<K>(&key, from) }
                },
            )
        };
        let copy =
            |(key, value): (&K::Owned, &Encoded)| (key.clone(), V::owned(expect_form::<V>(value.item())));
        let items = self.items.range(bounds.clone());
        into.entries = if down {
            items.rev().take_while(is_known).take(BATCH).map(copy).collect()
        } else {
            items.take_while(is_known).take(BATCH).map(copy).collect()
        };
        into.entries.reverse();
        match into.entries.is_empty() {
            false => true,
            true if doubts.is_empty() => false,
            true => into.fail(self.error()),
        }
    }

    fn refuse<T>(&self) -> Result<T> {
        Err(Error::ReadOnly)
    }
}

/// Returns whether all keys up to `end` are before `start`.
fn end_before<K: KeyCodec>(end: &Bound<K::Owned>, start: &Bound<K::Owned>) -> bool {
    match (end, start) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(end), Bound::Included(start)) => end < start,
        (Bound::Included(end) | Bound::Excluded(end), Bound::Included(start) | Bound::Excluded(start)) => {
            end <= start
        }
    }
}

fn overlap<K: KeyCodec>(one: &Span<K>, other: &Span<K>) -> bool {
    !end_before::<K>(&one.1, &other.0) && !end_before::<K>(&other.1, &one.0)
}

impl<K: KeyCodec, V: Storage> Read<K, V> for DamagedTree<K> {
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> Result<bool> {
        self.expect_known(key)?;
        Ok(self.items.get(&K::owned(key)).inspect(|value| show(expect_form::<V>(value.item()))).is_some())
    }
}

/// The pool is read-only, so no write arrives here.
impl<K: KeyCodec, V: Storage> Write<K, V> for DamagedTree<K> {
    fn write(&self, _: K::Ref<'_>, _: V::Ref<'_>, _: WriteMode) -> Result<Option<V::Owned>> {
        self.refuse()
    }

    fn remove(&self, _: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.refuse()
    }

    fn remove_if(&self, _: K::Ref<'_>, _: V::Ref<'_>) -> Result<Swapped<V>> {
        self.refuse()
    }

    fn compare_and_swap(&self, _: K::Ref<'_>, _: V::Ref<'_>, _: V::Ref<'_>) -> Result<Swapped<V>> {
        self.refuse()
    }
}

impl<K: KeyCodec, V: Storage> Scan<K, V> for DamagedTree<K> {
    fn scan_forward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        self.serve(bounds, false, into)
    }

    fn scan_backward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        self.serve(bounds, true, into)
    }
}

impl<K: KeyCodec> Inspect for DamagedTree<K> {
    fn len(&self) -> Result<u64> {
        Err(self.error())
    }

    /// Counts the saved items.
    fn stats(&self) -> Result<TreeStats> {
        let items = self.items.len() as u64;
        Ok(TreeStats { items, pm_bytes: self.pm_bytes, ..TreeStats::default() })
    }

    fn check(&self) -> Vec<Issue> {
        self.issues.clone()
    }

    fn damage(&self) -> Vec<Issue> {
        self.issues.clone()
    }

    fn is_salvaged(&self) -> bool {
        true
    }
}
