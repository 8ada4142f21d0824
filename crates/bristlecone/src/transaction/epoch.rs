//! An epoch: the values of keys at its beginning.

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

/// A key of any tree, with the tree's identity first.
type SavedKey = (u64, Encoded);

/// The saved value of a key; `None` if it was absent.
pub type Held = std::result::Result<Option<Encoded>, Damage>;

/// Marks a saved value whose record does not match its checksum.
#[derive(Clone, Copy, Debug)]
pub struct Damage;

impl From<Damage> for Error {
    fn from(_: Damage) -> Self {
        Error::corrupted("the previous value of a changed key is damaged", "snapshot")
    }
}

/// Approximate overhead of a saved entry in bytes.
const ENTRY_BYTES: usize = 128;

/// Number of bits of a [`Filter`].
const FILTER_BITS: usize = 1 << 19;

/// A filter that identifies most keys without a saved entry: one bit per hash value, set before the key is saved.
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

    /// Returns whether an entry may exist for a key. `hash` is called if there is any.
    #[inline]
    fn may_have(&self, tree: u64, hash: impl FnOnce() -> u64) -> bool {
        self.0.get().is_some_and(|words| {
            let (word, bit) = Self::place(tree, hash());
            words[word].load(Acquire) & bit != 0
        })
    }
}

/// An epoch: the time from one snapshot to the next.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub number: u64,
    /// Values at the beginning of the epoch, by key.
    saved: SkipMap<SavedKey, Held>,
    /// `None` for a short epoch, where creating the filter would cost more than it saves.
    filter: Option<Filter>,
    bytes: AtomicUsize,
    next: RwLock<Option<Arc<Epoch>>>,
    /// Whether a later epoch exists.
    is_followed: AtomicBool,
    /// Total bytes of all existing epochs.
    total: Arc<AtomicUsize>,
}

impl Drop for Epoch {
    fn drop(&mut self) {
        self.total.fetch_sub(*self.bytes.get_mut(), Relaxed);
    }
}

impl Epoch {
    /// Creates an epoch. If `is_long`, it gets a filter that quickly identifies unchanged keys.
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

    /// Saves the value of a key unless this epoch has an entry for it.
    pub fn save(&self, tree: u64, key: Encoded, value: impl FnOnce() -> Held) {
        let hash = hash(&key);
        let key = (tree, key);
        if !self.has_here(&key, hash) {
            self.put(key, hash, value());
        }
    }

    fn has_here(&self, key: &SavedKey, hash: u64) -> bool {
        self.may_have(key.0, || hash) && self.saved.contains_key(key)
    }

    /// Returns whether an entry may exist for a key.
    #[inline]
    fn may_have(&self, tree: u64, hash: impl FnOnce() -> u64) -> bool {
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

    /// Links another epoch behind this one, replacing the previous successor.
    pub fn link(&self, next: Option<Arc<Epoch>>) {
        let mut following = wait::write(&self.next);
        self.is_followed.store(next.is_some(), Release);
        *following = next;
    }

    /// Returns the next epoch.
    pub fn next(&self) -> Option<Arc<Epoch>> {
        wait::read(&self.next).clone()
    }

    /// Returns whether no entry was saved.
    pub fn is_empty(&self) -> bool {
        self.saved.is_empty()
    }

    /// Merges the entries of the next epoch into this one, and unlinks it.
    pub fn absorb(&self, next: &Epoch) {
        for entry in &next.saved {
            self.put(entry.key().clone(), hash(&entry.key().1), entry.value().clone());
        }
        self.link(next.next());
    }

    /// Calls `look` with this epoch and each later one, until it returns a result.
    fn find<R>(self: &Arc<Self>, mut look: impl FnMut(&Self) -> Option<R>) -> Option<R> {
        let mut epoch = Arc::clone(self);
        loop {
            // Held while the map is read: if a map is being merged into this one and unlinked, it is either merged
            // already or still linked.
            let next = wait::read(&epoch.next);
            if let Some(found) = look(&epoch) {
                return Some(found);
            }
            let later = next.clone()?;
            drop(next);
            epoch = later;
        }
    }

    /// Searches as [`find`](Self::find) does, for a thread that has read the tree before. The thread sees the
    /// epoch of each write that it has read: if it sees no next epoch, there is no relevant one.
    #[inline]
    fn find_read<R>(self: &Arc<Self>, mut look: impl FnMut(&Self) -> Option<R>) -> Option<R> {
        wait::cross();
        if self.is_followed.load(Acquire) { self.find(look) } else { look(self) }
    }

    /// Returns whether the key with this hash is known to be unchanged since the epoch began. The tree must be read
    /// before.
    #[inline(always)]
    pub fn is_unchanged(&self, tree: u64, hash: impl FnOnce() -> u64) -> bool {
        wait::cross();
        // As `find_read` does.
        !self.is_followed.load(Acquire) && !self.may_have(tree, hash)
    }

    /// Returns the value of a key with this hash at the beginning of the epoch, if it has changed since. The tree
    /// must be read before.
    pub fn value_of(self: &Arc<Self>, tree: u64, hash: u64, key: impl Fn() -> Encoded) -> Option<Held> {
        self.find_read(|epoch| {
            if !epoch.may_have(tree, || hash) {
                return None;
            }
            epoch.saved.get(&(tree, key())).map(|entry| entry.value().clone())
        })
    }

    /// Returns whether a key has changed, or may have changed, since the epoch began.
    pub fn has(self: &Arc<Self>, key: &SavedKey) -> bool {
        let hash = hash(&key.1);
        self.find(|epoch| epoch.has_here(key, hash).then_some(())).is_some()
    }

    /// Returns the values at the beginning of the epoch of the keys within bounds that have changed since. The
    /// tree must be read before.
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

    /// Returns whether a key of a tree within bounds, except those in `own`, has changed since the epoch began.
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

    /// Returns the bytes saved since the epoch began.
    pub fn bytes(self: &Arc<Self>) -> usize {
        let mut bytes = 0;
        self.find::<()>(|epoch| {
            bytes += epoch.bytes.load(Relaxed);
            None
        });
        bytes
    }
}
