//! Changes of keys through the pool's write barrier and its journal.

use std::cell::Cell;

use bristlecone_pm::{Error, Result};
use smallvec::SmallVec;

use crate::index::Index;
use crate::index::parts::codec::{Codec, GROUP};
use crate::index::parts::encoded::Item;
use crate::journal::Done;
use crate::journal::entry::{Kind, push_change};
use crate::journal::{Journal, Pending};
use crate::transaction::Entered;
use crate::{Key, Tree, Value};

/// The borrowed form of a key.
type KeyRef<'a, K> = <<K as Key>::Codec as Codec>::Ref<'a>;
/// The borrowed form of a value.
type ValueRef<'a, V> = <<V as Value>::Codec as Codec>::Ref<'a>;

thread_local! {
    /// The body of the last entry of the journal, and memory for the next one.
    static BODY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl<K: Key, V: Value> Tree<K, V> {
    /// Changes a key through the pool's write barrier, which orders it with batches and transactions of other threads
    /// and saves old values for snapshots.
    ///
    /// For a pool with a journal, `new` is the value that the key gets, or `None` if it is removed, and `done` tells from
    /// the result whether it was changed, and whether it was present before.
    #[inline(always)]
    pub(crate) fn change<T>(
        &self,
        key: KeyRef<'_, K>,
        new: Option<ValueRef<'_, V>>,
        done: impl FnOnce(&T) -> Done,
        change: impl FnOnce(&dyn Index<K::Codec, V::Codec>) -> Result<T>,
    ) -> Result<T> {
        let epochs = &self.pool.0.epochs;
        let lock = |entered: &Entered<'_>| epochs.watch(entered, self.link.identity, self.undelayed(), key);
        let done = |changed: &Result<T>| changed.as_ref().map_or(Done::NONE, done);
        self.change_locked(lock, |journal| self.begin(journal, key, new), done, change)
    }

    /// Changes up to [`GROUP`] keys, one after the other: see [`change`](Self::change). `describe` appends the changes
    /// for the journal; `done` returns which of them were done.
    #[inline(always)]
    pub(crate) fn change_group<'k, T>(
        &self,
        keys: impl FnOnce() -> SmallVec<[KeyRef<'k, K>; GROUP]>,
        describe: impl FnOnce(&mut Vec<u8>),
        done: impl FnOnce(&Result<T>) -> Done,
        change: impl FnOnce(&dyn Index<K::Codec, V::Codec>) -> Result<T>,
    ) -> Result<T> {
        let epochs = &self.pool.0.epochs;
        let lock =
            |entered: &Entered<'_>| epochs.watch_all(entered, self.link.identity, self.undelayed(), &keys());
        self.change_locked(lock, |journal| begin_described(journal, describe), done, change)
    }

    /// Changes keys whose locks `lock` takes.
    #[inline(always)]
    fn change_locked<'e, T, L>(
        &'e self,
        lock: impl FnOnce(&Entered<'e>) -> L,
        begin: impl FnOnce(&Journal) -> Result<Pending<'_>>,
        done: impl FnOnce(&Result<T>) -> Done,
        change: impl FnOnce(&dyn Index<K::Codec, V::Codec>) -> Result<T>,
    ) -> Result<T> {
        let epochs = &self.pool.0.epochs;
        let entered = epochs.barrier.enter();
        if !entered.is_tracking() {
            return change(&*self.tree);
        }
        let (changed, lsn) = {
            let _locked = lock(&entered);
            self.change_recorded(begin, done, change)
        };
        drop(entered);
        epochs.shed_if_over();
        // Outside of the barrier: a snapshot does not wait for the disk.
        let acknowledged = match lsn {
            // The write changed nothing, and tells what is there.
            None => self.pool.settle_reads(),
            written => self.pool.acknowledge(written),
        };
        self.pool.0.journal.get().into_iter().for_each(|journal| journal.checkpoint_if_due(&self.pool));
        acknowledged.and(changed)
    }

    /// Changes keys whose locks the thread holds; returns the LSN up to which the journal must be durable for it.
    #[inline(always)]
    fn change_recorded<T>(
        &self,
        begin: impl FnOnce(&Journal) -> Result<Pending<'_>>,
        done: impl FnOnce(&Result<T>) -> Done,
        change: impl FnOnce(&dyn Index<K::Codec, V::Codec>) -> Result<T>,
    ) -> (Result<T>, Option<u64>) {
        let Some(journal) = self.pool.0.journal.get() else { return (change(&*self.tree), None) };
        if !self.link.is_known {
            let what = "a tree of an external design cannot be written in a pool with a journal";
            return (Err(Error::invalid(what)), None);
        }
        let pending = match begin(journal) {
            Ok(pending) => pending,
            Err(error) => return (Err(error), None),
        };
        let changed = change(&*self.tree);
        if matches!(changed, Err(Error::DurabilityLost)) {
            // The outcome is unknown: the entry stays an intent.
            return (changed, None);
        }
        let done = done(&changed);
        if done.has_looked() {
            let body = BODY.take();
            pending.mark(&body, done.existed());
            BODY.set(body);
        }
        let lsn = pending.complete(done.count());
        (changed, (done.count() > 0).then_some(lsn))
    }

    /// Writes the entry of a key's change.
    #[inline]
    fn begin<'j>(
        &self,
        journal: &'j Journal,
        key: KeyRef<'_, K>,
        new: Option<ValueRef<'_, V>>,
    ) -> Result<Pending<'j>> {
        let tree = self.link.id;
        match (K::Codec::item(key), new.map(V::Codec::item)) {
            // `BODY` is not its body, but the only change begins at its begin.
            (Item::Word(key), Some(Item::Word(value))) => journal.begin_words(tree, key, value),
            (key, value) => begin_described(journal, |body| push_change(body, tree, key, value)),
        }
    }
}

/// Writes an entry with the changes that `describe` appends; its body stays in `BODY`.
fn begin_described(journal: &Journal, describe: impl FnOnce(&mut Vec<u8>)) -> Result<Pending<'_>> {
    let mut body = BODY.take();
    body.clear();
    describe(&mut body);
    let begun = journal.begin(Kind::Each, &body);
    BODY.set(body);
    begun
}
