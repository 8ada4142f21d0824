//! An epoch: what keys had when it began.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, OnceLock, RwLock};

use bristlecone_pm::Error;
use bristlecone_pm::sync::wait;
use crossbeam_skiplist::SkipMap;

use super::any_tree::{hash, place};
use crate::index::parts::encoded::Encoded;

/// A key of any tree: the tree's identity comes first.
type SavedKey = (u64, Encoded);

/// What a key had; `None`: it was absent.
pub type Held = std::result::Result<Option<Encoded>, Damage>;

/// That a key had a value of which the record does not match its checksum.
#[derive(Clone, Copy, Debug)]
pub struct Damage;

impl From<Damage> for Error {
    fn from(_: Damage) -> Self {
        Error::corrupted("what a changed key had before was damaged", "snapshot")
    }
}

/// What a saved entry takes beside its bytes, about.
const ENTRY_BYTES: usize = 128;

/// Bits of a [`Filter`].
const FILTER_BITS: usize = 1 << 19;

/// Tells of most keys that nothing was saved of them: a bit for each value of a hash, set before the key is saved.
#[derive(Debug, Default)]
struct Filter(OnceLock<Box<[AtomicU64]>>);

impl Filter {
    fn place(tree: u64, hash: u64) -> (usize, u64) {
        let bit = place(tree, hash, FILTER_BITS.trailing_zeros());
        (bit / 64, 1 << (bit % 64))
    }

    fn set(&self, tree: u64, hash: u64) {
        let (word, bit) = Self::place(tree, hash);
        let words = self.0.get_or_init(|| (0..FILTER_BITS / 64).map(|_| AtomicU64::new(0)).collect());
        words[word].fetch_or(bit, Release);
    }

    /// Returns whether something may be saved of a key.
    #[inline]
    fn may_have(&self, tree: u64, hash: u64) -> bool {
        let (word, bit) = Self::place(tree, hash);
        self.0.get().is_some_and(|words| words[word].load(Acquire) & bit != 0)
    }
}

/// An epoch: the time from one snapshot to the next.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub number: u64,
    /// By key, what it had when the epoch began.
    saved: SkipMap<SavedKey, Held>,
    /// `None` where an epoch is short, and making one would cost more than it spares.
    filter: Option<Filter>,
    bytes: AtomicUsize,
    next: RwLock<Option<Arc<Epoch>>>,
    /// Whether an epoch follows.
    is_followed: AtomicBool,
    /// Bytes of all epochs that there are.
    total: Arc<AtomicUsize>,
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.total.fetch_sub(*self.bytes.get_mut(), Relaxed);
    }
}

impl Epoch {
    /// Makes an epoch; one that `is_long` is to tell fast of keys that were not changed.
    pub fn new(number: u64, is_long: bool, total: &Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self {
            number,
            saved: SkipMap::new(),
            filter: is_long.then(Filter::default),
            bytes: AtomicUsize::new(0),
            next: RwLock::new(None),
            is_followed: AtomicBool::new(false),
            total: Arc::clone(total),
        })
    }

    /// Saves what a key has, unless that was saved in this epoch.
    pub fn save(&self, tree: u64, key: Encoded, value: impl FnOnce() -> Held) {
        let hash = hash(&key);
        let key = (tree, key);
        if !self.has_here(&key, hash) {
            self.put(key, hash, value());
        }
    }

    fn has_here(&self, key: &SavedKey, hash: u64) -> bool {
        self.may_have(key.0, hash) && self.saved.contains_key(key)
    }

    /// Returns whether something may be saved of a key.
    #[inline]
    fn may_have(&self, tree: u64, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_have(tree, hash))
    }

    fn put(&self, key: SavedKey, hash: u64, value: Held) {
        if let Some(filter) = &self.filter {
            filter.set(key.0, hash);
        }
        let bytes =
            ENTRY_BYTES + key.1.heap_bytes() + value.iter().flatten().map(Encoded::heap_bytes).sum::<usize>();
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
        let mut following = wait::write(&self.next);
        self.is_followed.store(next.is_some(), Release);
        *following = next;
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
            self.put(entry.key().clone(), hash(&entry.key().1), entry.value().clone());
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

    /// Looks as [`find`](Self::find) does, for a thread that has read the tree before. What it read was written in an epoch that
    /// it sees: if none seems to follow this one, none does that matters.
    #[inline]
    fn find_read<R>(self: &Arc<Self>, mut look: impl FnMut(&Self) -> Option<R>) -> Option<R> {
        wait::cross();
        if self.is_followed.load(Acquire) { self.find(look) } else { look(self) }
    }

    /// Returns what a key of a tree, with its hash, had when the epoch began, if it was changed since. The tree was read before.
    #[inline]
    pub fn value_of(self: &Arc<Self>, tree: u64, hash: u64, key: impl Fn() -> Encoded) -> Option<Held> {
        self.find_read(|epoch| {
            if !epoch.may_have(tree, hash) {
                return None;
            }
            epoch.saved.get(&(tree, key())).map(|entry| entry.value().clone())
        })
    }

    /// Returns whether a key was changed since the epoch began, or may have been.
    pub fn has(self: &Arc<Self>, key: &SavedKey) -> bool {
        let hash = hash(&key.1);
        self.find(|epoch| epoch.has_here(key, hash).then_some(())).is_some()
    }

    /// Returns what the keys of a tree within bounds had when the epoch began, of those that were changed since. The tree was
    /// read before.
    pub fn values_within(
        self: &Arc<Self>,
        tree: u64,
        bounds: (Bound<&Encoded>, Bound<&Encoded>),
    ) -> BTreeMap<Encoded, Held> {
        let mut found = BTreeMap::new();
        self.find_read::<()>(|epoch| {
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
    ) -> impl Iterator<Item = crossbeam_skiplist::map::Entry<'_, SavedKey, Held>> {
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
