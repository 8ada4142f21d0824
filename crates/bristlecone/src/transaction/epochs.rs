//! What snapshots need of the past: in each epoch, the values that keys had when it began.
//!
//! A snapshot begins an epoch. A writer puts the value that its key has into the map of the current epoch before it changes
//! the tree, unless one is there already. What a key had when a snapshot was taken is the first entry in the
//! maps from the snapshot's epoch on, or, if there is none, what the tree has.

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
use super::gate::{Entered, Gate};
use super::stripes::{Locked, Stripes};
use crate::index::Index;
use crate::index::parts::codec::{Codec, KeyCodec};
use crate::index::parts::sync::LINES;

/// Bytes of entries without a snapshot that are left until the next epoch begins.
const LEFT_BYTES: usize = 64 << 10;

/// A snapshot's hold on its epoch, which a bound may end.
#[derive(Debug)]
pub(crate) struct Hold {
    epoch: RwLock<Option<Arc<Epoch>>>,
    bytes_max: usize,
}

impl Hold {
    /// Returns the epoch; `None`: more was saved since than the hold allows.
    pub fn epoch(&self) -> Option<Arc<Epoch>> {
        wait::read(&self.epoch).clone()
    }
}

/// Which epochs are held.
#[derive(Debug, Default)]
struct Chain {
    /// By number, the epochs that snapshots have, and how many.
    held: BTreeMap<u64, (Arc<Epoch>, usize)>,
    /// Holds with a bound.
    bounded: Vec<Weak<Hold>>,
}

/// All epochs of a pool, its gate, and the locks of its keys.
#[derive(Debug)]
pub(crate) struct Epochs {
    pub gate: Gate,
    pub stripes: Stripes,
    /// From [`Arc::into_raw`]. Replaced under the lock of `chain`; the old one goes once no writer uses it.
    current: AtomicPtr<Epoch>,
    /// Snapshots that there are.
    live: AtomicUsize,
    chain: Mutex<Chain>,
    total: Arc<AtomicUsize>,
    /// Bytes of everything saved up to which no hold can be over its bound.
    bytes_max: AtomicUsize,
    /// The trees' identities, and the epochs in which trees were cleared.
    trees: Mutex<HashMap<TreeId, (u64, u64)>>,
    identities: AtomicU64,
    /// By thread, whether it is amid a transaction.
    transactions: Box<[CachePadded<AtomicBool>]>,
    /// Threads amid a transaction for which there is no place in it.
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
            gate: Gate::new(fence),
            stripes: Stripes::new(),
            current: AtomicPtr::new(Arc::into_raw(first).cast_mut()),
            live: AtomicUsize::new(0),
            chain: Mutex::default(),
            total,
            bytes_max: AtomicUsize::new(usize::MAX),
            trees: Mutex::default(),
            identities: AtomicU64::new(1),
            transactions: (0..LINES).map(|_| CachePadded::default()).collect(),
            other_transactions: Mutex::default(),
        }
    }

    /// Returns the bytes of what is saved for snapshots, about.
    pub fn bytes(&self) -> usize {
        self.total.load(Relaxed)
    }

    /// Returns a tree's identity, which no other tree of this opening has, and the epoch in which it was cleared, or 0.
    pub fn identity(&self, tree: TreeId) -> (u64, u64) {
        let fresh = || (self.identities.fetch_add(1, Relaxed), 0);
        *wait::lock(&self.trees).entry(tree).or_insert_with(fresh)
    }

    /// Forgets a tree that was dropped: another one may get its place in the directory.
    pub fn forget(&self, tree: TreeId) {
        wait::lock(&self.trees).remove(&tree);
    }

    /// Notes that a tree took the place of a cleared one. No snapshot from before can show it.
    pub fn note_cleared(&self, old: TreeId, new: TreeId) {
        let mut chain = wait::lock(&self.chain);
        // A snapshot that is taken from here on is one with the new tree.
        let before = match self.live.load(SeqCst) {
            0 => 0,
            _ => self.begin(&mut chain, false).number - 1,
        };
        let mut trees = wait::lock(&self.trees);
        trees.remove(&old);
        trees.insert(new, (self.identities.fetch_add(1, Relaxed), before));
    }

    /// Notes that the calling thread begins a transaction, or ends it. `false`: it is amid another one.
    pub fn note_transaction(&self, begins: bool) -> bool {
        let Some(thread) = own_thread_index() else { return true };
        if let Some(is_amid) = self.transactions.get(thread) {
            // No other thread looks at it.
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

    /// Returns the current epoch, for a writer under way: it stays until the writer is through.
    pub fn current<'a>(&'a self, _entered: &'a Entered<'_>) -> &'a Epoch {
        // SAFETY: from `Arc::into_raw`. The thread that replaces it waits for the writers that may have seen it before
        // it drops it, and a writer that enters later sees the new one.
        unsafe { &*self.current.load(Acquire) }
    }

    /// Has `save` save what is about to be changed, in the epoch that is current when it has, if there are
    /// snapshots. The caller has the locks of all that it saves.
    pub fn announce(&self, entered: &Entered<'_>, mut save: impl FnMut(&Epoch)) {
        while self.live.load(SeqCst) > 0 {
            let epoch = self.current(entered);
            save(epoch);
            // What was saved, before the look at the epoch: a transaction of a later one that did not see it is
            // not seen in an earlier one. And before what a transaction looks at next.
            fence(SeqCst);
            if self.current(entered).number == epoch.number {
                break;
            }
        }
    }

    /// Takes the locks of keys, and saves what they have, if there are snapshots.
    #[cold]
    #[inline(never)]
    pub fn watch<K: KeyCodec, V: Codec>(
        &self,
        entered: &Entered<'_>,
        identity: u64,
        tree: &dyn Index<K, V>,
        keys: &[K::Ref<'_>],
    ) -> Option<Locked<'_>> {
        self.gate.note_single();
        let stripe = |key: &K::Ref<'_>| Stripes::of(identity, K::hash(*key));
        let locked = match keys {
            [key] => Some(self.stripes.lock(stripe(key))),
            keys => self.stripes.lock_all(keys.iter().map(stripe).collect()),
        };
        self.announce(entered, |epoch| {
            for key in keys {
                epoch.save(identity, K::encode(K::owned(*key)), || {
                    tree.get_checked(*key).map(|held| held.map(V::encode)).map_err(|_| Damage)
                });
            }
        });
        locked
    }

    /// Ends holds that keep more than they may. The caller is not under way.
    #[inline]
    pub fn shed_if_over(&self) {
        if self.total.load(Relaxed) > self.bytes_max.load(Relaxed) {
            self.shed();
        }
    }

    /// Begins an epoch. Writers of earlier ones are through when this returns.
    fn begin(&self, chain: &mut Chain, is_long: bool) -> Arc<Epoch> {
        let _watched = self.gate.watch();
        // SAFETY: from `Arc::into_raw`, and replaced only with the lock of the chain.
        let old = unsafe { &*self.current.load(Acquire) };
        let epoch = Epoch::new(old.number + 1, is_long, &self.total);
        old.link(Some(Arc::clone(&epoch)));
        let old = self.current.swap(Arc::into_raw(Arc::clone(&epoch)).cast_mut(), AcqRel);
        self.gate.wait_for_watchful_writers();
        // SAFETY: from `Arc::into_raw`, and no writer uses it any more.
        drop(unsafe { Arc::from_raw(old) });
        self.merge(chain);
        epoch
    }

    /// Takes a snapshot, until [`release`](Self::release), that may keep so many bytes, and `is_long` or a transaction's.
    pub fn hold(&self, bytes_max: usize, is_long: bool) -> Arc<Hold> {
        self.gate.begin_use();
        let mut chain = wait::lock(&self.chain);
        // Before the epoch: a writer that sees it saves.
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

    /// Returns the current epoch if it has a snapshot and nothing was changed since: another one sees the same.
    fn unchanged(&self, chain: &Chain) -> Option<Arc<Epoch>> {
        let (number, (epoch, _)) = chain.held.last_key_value()?;
        // SAFETY: as in `begin`.
        let current = unsafe { &*self.current.load(Acquire) };
        // What a writer saved before it was through is seen: it is through before this snapshot is asked for.
        fence(SeqCst);
        (*number == current.number && current.is_empty()).then(|| Arc::clone(epoch))
    }

    /// Gives a snapshot up.
    pub fn release(&self, hold: &Hold) {
        self.release_epoch(hold);
        self.gate.end_use();
    }

    fn release_epoch(&self, hold: &Hold) {
        let Some(epoch) = wait::write(&hold.epoch).take() else { return };
        let mut chain = wait::lock(&self.chain);
        self.let_go(&mut chain, &epoch);
        drop(epoch);
        // What was saved for the last one is of no use.
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

    /// Merges the maps of epochs without snapshots into earlier ones, which have some: but for the current one, in
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
