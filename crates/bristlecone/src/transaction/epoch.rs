//! An epoch: what keys had when it began.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

use bristlecone_pm::sync::wait;
use crossbeam_skiplist::SkipMap;

use crate::index::parts::encoded::Encoded;

/// A key of any tree: the tree's identity comes first.
type SavedKey = (u64, Encoded);

/// What a saved entry takes beside its bytes, about.
const ENTRY_BYTES: usize = 128;
/// An epoch: the time from one snapshot to the next.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub number: u64,
    /// By key, what it had when the epoch began; `None`: it was absent.
    saved: SkipMap<SavedKey, Option<Encoded>>,
    bytes: AtomicUsize,
    next: RwLock<Option<Arc<Epoch>>>,
    /// Bytes of all epochs that there are.
    total: Arc<AtomicUsize>,
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.total.fetch_sub(*self.bytes.get_mut(), Relaxed);
    }
}

impl Epoch {
    pub fn new(number: u64, total: &Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self {
            number,
            saved: SkipMap::new(),
            bytes: AtomicUsize::new(0),
            next: RwLock::new(None),
            total: Arc::clone(total),
        })
    }

    /// Saves what a key has, unless that was saved in this epoch.
    pub fn save(&self, tree: u64, key: Encoded, value: impl FnOnce() -> Option<Encoded>) {
        let key = (tree, key);
        if !self.saved.contains_key(&key) {
            self.put(key, value());
        }
    }

    fn put(&self, key: SavedKey, value: Option<Encoded>) {
        let bytes = ENTRY_BYTES + key.1.heap_bytes() + value.as_ref().map_or(0, Encoded::heap_bytes);
        let mut is_new = false;
        self.saved.get_or_insert_with(key, || {
            is_new = true;
            value
        });
        if is_new {
            self.bytes.fetch_add(bytes, Relaxed);
            self.total.fetch_add(bytes, Relaxed);
        }
    }

    /// Has another epoch follow this one, in the place of those that did.
    pub fn link(&self, next: Option<Arc<Epoch>>) {
        *wait::write(&self.next) = next;
    }

    /// Returns the epoch that follows.
    pub fn next(&self) -> Option<Arc<Epoch>> {
        wait::read(&self.next).clone()
    }

    /// Returns whether nothing was saved.
    pub fn is_empty(&self) -> bool {
        self.saved.is_empty()
    }

    /// Takes over what the epoch that follows has saved, and leaves it out.
    pub fn absorb(&self, next: &Epoch) {
        for entry in &next.saved {
            self.put(entry.key().clone(), entry.value().clone());
        }
        self.link(next.next());
    }

    /// Calls `look` with this epoch and each later one, until it finds something.
    fn find<R>(self: &Arc<Self>, mut look: impl FnMut(&Self) -> Option<R>) -> Option<R> {
        let mut epoch = Arc::clone(self);
        loop {
            // Held while the map is looked at: a map that is about to be merged into this one, and left out, is
            // merged already, or still linked.
            let next = wait::read(&epoch.next);
            if let Some(found) = look(&epoch) {
                return Some(found);
            }
            let later = next.clone()?;
            drop(next);
            epoch = later;
        }
    }

    /// Returns what a key of a tree had when the epoch began, if it was changed since.
    pub fn value_of(self: &Arc<Self>, key: &SavedKey) -> Option<Option<Encoded>> {
        self.find(|epoch| epoch.saved.get(key).map(|entry| entry.value().clone()))
    }

    /// Returns whether a key was changed since the epoch began, or may have been.
    pub fn has(self: &Arc<Self>, key: &SavedKey) -> bool {
        self.find(|epoch| epoch.saved.contains_key(key).then_some(())).is_some()
    }

    /// Returns what the keys of a tree within bounds had when the epoch began, of those that were changed since.
    pub fn values_within(
        self: &Arc<Self>,
        tree: u64,
        bounds: (Bound<&Encoded>, Bound<&Encoded>),
    ) -> BTreeMap<Encoded, Option<Encoded>> {
        let mut found = BTreeMap::new();
        self.find::<()>(|epoch| {
            for entry in epoch.entries(tree, bounds) {
                found.entry(entry.key().1.clone()).or_insert_with(|| entry.value().clone());
            }
            None
        });
        found
    }

    /// Returns whether a key of a tree within bounds was changed since the epoch began, other than those that
    /// `own` names.
    pub fn has_within(
        self: &Arc<Self>,
        tree: u64,
        bounds: (Bound<&Encoded>, Bound<&Encoded>),
        own: impl Fn(&Encoded) -> bool,
    ) -> bool {
        let is_other =
            |epoch: &Self| epoch.entries(tree, bounds).any(|entry| !own(&entry.key().1)).then_some(());
        self.find(is_other).is_some()
    }

    fn entries(
        &self,
        tree: u64,
        (from, to): (Bound<&Encoded>, Bound<&Encoded>),
    ) -> impl Iterator<Item = crossbeam_skiplist::map::Entry<'_, SavedKey, Option<Encoded>>> {
        let keyed = |bound: Bound<&Encoded>| bound.map(|key| (tree, key.clone()));
        let from = match keyed(from) {
            Bound::Unbounded => Bound::Included((tree, Encoded::LEAST)),
            bound => bound,
        };
        let to = match keyed(to) {
            Bound::Unbounded => Bound::Excluded((tree + 1, Encoded::LEAST)),
            bound => bound,
        };
        (!self.saved.is_empty()).then(|| self.saved.range((from, to))).into_iter().flatten()
    }

    /// Returns the bytes of what was saved since the epoch began.
    pub fn bytes(self: &Arc<Self>) -> usize {
        let mut bytes = 0;
        self.find::<()>(|epoch| {
            bytes += epoch.bytes.load(Relaxed);
            None
        });
        bytes
    }
}
