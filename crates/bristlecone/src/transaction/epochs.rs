//! The history that snapshots need: for each epoch, the values of keys at its beginning.
//!
//! A snapshot begins an epoch. Before a writer changes the tree, it saves the key's value in the map of the current
//! epoch, unless an entry exists. The value of a key in a snapshot is the first entry in the maps from the snapshot's
//! epoch on. If there is none, it is the value in the tree.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::SeqCst,
};
use std::sync::atomic::{Ordering::Relaxed, fence};
use std::sync::{Arc, Mutex, RwLock, Weak};

use bristlecone_pm::sync::{AsymmetricFence, wait};
use bristlecone_pm::{TreeId, own_thread_index};
use crossbeam_utils::CachePadded;

use super::epoch::{Damage, Epoch};
use super::stripes::{Locked, LockedOne, Stripes};
use super::write_barrier::{Entered, WriteBarrier};
use crate::index::Index;
use crate::index::parts::codec::Codec;
use crate::index::parts::sync::THREAD_SLOTS;

/// Bytes of entries that may remain without a snapshot until the next epoch begins.
const LEFT_BYTES: usize = 64 << 10;

/// A snapshot's reference to its epoch, which a size bound may end.
#[derive(Debug)]
pub(crate) struct Hold {
    epoch: RwLock<Option<Arc<Epoch>>>,
    bytes_max: usize,
}

impl Hold {
    /// Returns the epoch, or `None` if more was saved than the bound allows.
    pub fn epoch(&self) -> Option<Arc<Epoch>> {
        wait::read(&self.epoch).clone()
    }
}

/// The set of epochs in use.
#[derive(Debug, Default)]
struct Chain {
    /// Epochs in use by snapshots, by number, with reference counts.
    held: BTreeMap<u64, (Arc<Epoch>, usize)>,
    /// References with a size bound.
    bounded: Vec<Weak<Hold>>,
}

/// All epochs of a pool, its write barrier, and the locks of its keys.
#[derive(Debug)]
pub(crate) struct Epochs {
    pub barrier: WriteBarrier,
    pub stripes: Stripes,
    /// From [`Arc::into_raw`]. Replaced under the lock of `chain`; the old epoch is dropped when no writer uses it.
    current: AtomicPtr<Epoch>,
    /// Number of existing snapshots.
    live: AtomicUsize,
    chain: Mutex<Chain>,
    total: Arc<AtomicUsize>,
    /// Total saved bytes up to which no reference can exceed its bound.
    bytes_max: AtomicUsize,
    /// The identities of trees, and the epochs in which trees were cleared.
    trees: Mutex<HashMap<TreeId, (u64, u64)>>,
    identities: AtomicU64,
    /// Whether a thread is in a transaction, by thread.
    transactions: Box<[CachePadded<AtomicBool>]>,
    /// Threads in a transaction that have no place in that array.
    other_transactions: Mutex<Vec<usize>>,
}

impl Drop for Epochs {
    fn drop(&mut self) {
        // SAFETY: from `Arc::into_raw`, and no writer is left.
        drop(unsafe { Arc::from_raw(*self.current.get_mut()) });
    }
}

impl Epochs {
    pub fn new(fence: AsymmetricFence) -> Self {
        let total = Arc::default();
        let first = Epoch::new(1, false, &total);
        Self {
            barrier: WriteBarrier::new(fence),
            stripes: Stripes::new(),
            current: AtomicPtr::new(Arc::into_raw(first).cast_mut()),
            live: AtomicUsize::new(0),
            chain: Mutex::default(),
            total,
            bytes_max: AtomicUsize::new(usize::MAX),
            trees: Mutex::default(),
            identities: AtomicU64::new(1),
            transactions: (0..THREAD_SLOTS).map(|_| CachePadded::default()).collect(),
            other_transactions: Mutex::default(),
        }
    }

    /// Returns the approximate number of bytes saved for snapshots.
    pub fn bytes(&self) -> usize {
        self.total.load(Relaxed)
    }

    /// Returns a tree's identity, unique while the pool is open, and the epoch in which it was cleared, or 0.
    pub fn identity(&self, tree: TreeId) -> (u64, u64) {
        let fresh = || (self.identities.fetch_add(1, Relaxed), 0);
        *wait::lock(&self.trees).entry(tree).or_insert_with(fresh)
    }

    /// Forgets a dropped tree, because another one may reuse its directory entry.
    pub fn forget(&self, tree: TreeId) {
        wait::lock(&self.trees).remove(&tree);
    }

    /// Records that a tree replaced a cleared one. No earlier snapshot can show it.
    pub fn note_cleared(&self, old: TreeId, new: TreeId) {
        let mut chain = wait::lock(&self.chain);
        // A snapshot taken from here on includes the new tree.
        let before = match self.live.load(SeqCst) {
            0 => 0,
            _ => self.begin(&mut chain, false).number - 1,
        };
        let mut trees = wait::lock(&self.trees);
        trees.remove(&old);
        trees.insert(new, (self.identities.fetch_add(1, Relaxed), before));
    }

    /// Records that the calling thread begins or ends a transaction. Returns `false` if it is already in another one.
    pub fn note_transaction(&self, begins: bool) -> bool {
        let Some(thread) = own_thread_index() else { return true };
        if let Some(is_amid) = self.transactions.get(thread) {
            // No other thread accesses it.
            let was = is_amid.load(Relaxed);
            is_amid.store(begins, Relaxed);
            return was != begins;
        }
        let mut transactions = wait::lock(&self.other_transactions);
        let at = transactions.iter().position(|other| *other == thread);
        match at {
            Some(at) if !begins => _ = transactions.swap_remove(at),
            None if begins => transactions.push(thread),
            _ => return !begins,
        }
        true
    }

    /// Returns the current epoch for an active writer: it remains valid until the writer has finished.
    pub fn current<'a>(&'a self, _entered: &'a Entered<'_>) -> &'a Epoch {
        // SAFETY: from `Arc::into_raw`. The thread that replaces it waits for the writers that may have seen it before
        // it drops it, and a writer that enters later sees the new one.
        unsafe { &*self.current.load(Acquire) }
    }

    /// Calls `save` to save old values, and repeats until the epoch is unchanged after the call, if there are
    /// snapshots. The caller must hold the locks of all keys that it saves.
    pub fn announce(&self, entered: &Entered<'_>, mut save: impl FnMut(&Epoch)) {
        while self.live.load(SeqCst) > 0 {
            let epoch = self.current(entered);
            save(epoch);
            // Orders the saved entries before the check of the epoch: a transaction of a later epoch that missed an
            // entry must not appear in an earlier one. It also orders them before the transaction's next reads.
            fence(SeqCst);
            if self.current(entered).number == epoch.number {
                break;
            }
        }
    }

    /// Takes the lock of a key, and saves its value if there are snapshots.
    #[inline]
    pub fn watch<K: Codec, V: Codec>(
        &self,
        entered: &Entered<'_>,
        identity: u64,
        tree: &dyn Index<K, V>,
        key: K::Ref<'_>,
    ) -> LockedOne<'_> {
        self.barrier.note_single();
        let locked = self.stripes.lock(Stripes::of(identity, K::hash(key)));
        self.save_all(entered, identity, tree, &[key]);
        locked
    }

    /// Takes the locks of keys, and saves their values if there are snapshots.
    pub fn watch_all<K: Codec, V: Codec>(
        &self,
        entered: &Entered<'_>,
        identity: u64,
        tree: &dyn Index<K, V>,
        keys: &[K::Ref<'_>],
    ) -> Option<Locked<'_>> {
        self.barrier.note_single();
        let stripe = |key: &K::Ref<'_>| Stripes::of(identity, K::hash(*key));
        let locked = self.stripes.lock_all(keys.iter().map(stripe).collect());
        self.save_all(entered, identity, tree, keys);
        locked
    }

    /// Saves the values of keys whose locks the thread holds, if there are snapshots.
    #[inline]
    fn save_all<K: Codec, V: Codec>(
        &self,
        entered: &Entered<'_>,
        identity: u64,
        tree: &dyn Index<K, V>,
        keys: &[K::Ref<'_>],
    ) {
        if self.live.load(SeqCst) > 0 {
            self.save_now(entered, identity, tree, keys);
        }
    }

    #[cold]
    fn save_now<K: Codec, V: Codec>(
        &self,
        entered: &Entered<'_>,
        identity: u64,
        tree: &dyn Index<K, V>,
        keys: &[K::Ref<'_>],
    ) {
        self.announce(entered, |epoch| {
            for key in keys {
                epoch.save(identity, K::encode(K::owned(*key)), || {
                    tree.get_owned(*key).map(|held| held.map(V::encode)).map_err(|_| Damage)
                });
            }
        });
    }

    /// Returns whether a reference may exceed its bound.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.total.load(Relaxed) > self.bytes_max.load(Relaxed)
    }

    /// Ends references whose epochs exceed their bound. The caller must not be an active writer.
    #[inline]
    pub fn shed_if_over(&self) {
        if self.is_over() {
            self.shed();
        }
    }

    /// Begins an epoch. Writers of earlier epochs have finished when this returns.
    fn begin(&self, chain: &mut Chain, is_long: bool) -> Arc<Epoch> {
        let _watched = self.barrier.watch();
        // SAFETY: from `Arc::into_raw`, and replaced only with the lock of the chain.
        let old = unsafe { &*self.current.load(Acquire) };
        let epoch = Epoch::new(old.number + 1, is_long, &self.total);
        old.link(Some(Arc::clone(&epoch)));
        let old = self.current.swap(Arc::into_raw(Arc::clone(&epoch)).cast_mut(), AcqRel);
        self.barrier.wait_for_tracked_writers();
        // SAFETY: from `Arc::into_raw`, and no writer uses it any more.
        drop(unsafe { Arc::from_raw(old) });
        self.merge(chain);
        epoch
    }

    /// Takes a snapshot, until [`release`](Self::release), with a size bound, either long-lived (`is_long`) or for a
    /// transaction.
    pub fn hold(&self, bytes_max: usize, is_long: bool) -> Arc<Hold> {
        self.barrier.begin_use();
        let mut chain = wait::lock(&self.chain);
        // Must precede the epoch: a writer that sees the epoch then saves.
        self.live.fetch_add(1, SeqCst);
        let epoch = match self.unchanged(&chain) {
            Some(epoch) => epoch,
            None => self.begin(&mut chain, is_long),
        };
        chain.held.entry(epoch.number).or_insert_with(|| (Arc::clone(&epoch), 0)).1 += 1;
        let hold = Arc::new(Hold { epoch: RwLock::new(Some(epoch)), bytes_max });
        if bytes_max < usize::MAX {
            chain.bounded.push(Arc::downgrade(&hold));
            self.bytes_max.fetch_min(self.total.load(Relaxed).saturating_add(bytes_max), Relaxed);
        }
        hold
    }

    /// Returns the current epoch if it has a snapshot and nothing has changed since, so that both see the same state.
    fn unchanged(&self, chain: &Chain) -> Option<Arc<Epoch>> {
        let (number, (epoch, _)) = chain.held.last_key_value()?;
        // SAFETY: as in `begin`.
        let current = unsafe { &*self.current.load(Acquire) };
        // Makes the entries of finished writers visible: they finished before this snapshot was requested.
        fence(SeqCst);
        (*number == current.number && current.is_empty()).then(|| Arc::clone(epoch))
    }

    /// Releases a snapshot.
    pub fn release(&self, hold: &Hold) {
        self.release_epoch(hold);
        self.barrier.end_use();
    }

    fn release_epoch(&self, hold: &Hold) {
        let Some(epoch) = wait::write(&hold.epoch).take() else { return };
        let mut chain = wait::lock(&self.chain);
        self.let_go(&mut chain, &epoch);
        drop(epoch);
        // Entries saved for the last snapshot are no longer needed.
        if chain.held.is_empty() && self.total.load(Relaxed) > LEFT_BYTES {
            self.begin(&mut chain, false);
        }
    }

    fn let_go(&self, chain: &mut Chain, epoch: &Arc<Epoch>) {
        self.live.fetch_sub(1, SeqCst);
        if let Some((_, holds)) = chain.held.get_mut(&epoch.number) {
            *holds -= 1;
            if *holds == 0 {
                chain.held.remove(&epoch.number);
                self.merge(chain);
            }
        }
    }

    /// Merges the maps of epochs without snapshots into earlier ones that have some. Excludes the current epoch, in
    /// which writers save.
    fn merge(&self, chain: &Chain) {
        let Some((epoch, _)) = chain.held.values().next() else { return };
        // SAFETY: as in `begin`.
        let current = unsafe { &*self.current.load(Acquire) }.number;
        let mut epoch = Arc::clone(epoch);
        loop {
            let Some(next) = epoch.next().filter(|next| next.number != current) else { return };
            if chain.held.contains_key(&next.number) {
                epoch = next;
                continue;
            }
            epoch.absorb(&next);
        }
    }

    #[cold]
    fn shed(&self) {
        let mut chain = wait::lock(&self.chain);
        let (mut left, mut ended) = (None, false);
        for bounded in std::mem::take(&mut chain.bounded) {
            let Some(hold) = bounded.upgrade() else { continue };
            let Some(epoch) = hold.epoch() else { continue };
            let bytes = epoch.bytes();
            if bytes > hold.bytes_max {
                if wait::write(&hold.epoch).take().is_some() {
                    self.let_go(&mut chain, &epoch);
                    ended = true;
                }
            } else {
                left = left.into_iter().chain([hold.bytes_max - bytes]).min();
                chain.bounded.push(bounded);
            }
        }
        if ended {
            self.begin(&mut chain, false);
        }
        let bytes_max = left.map_or(usize::MAX, |left: usize| self.total.load(Relaxed).saturating_add(left));
        self.bytes_max.store(bytes_max, Relaxed);
    }
}
