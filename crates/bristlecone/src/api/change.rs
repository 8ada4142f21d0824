//! Changes of keys through the pool's write barrier and its journal.

use std::cell::Cell;

use bristlecone_pm::{Error, Result};
use smallvec::{SmallVec, smallvec};

use crate::index::Index;
use crate::index::parts::codec::{Codec, GROUP};
use crate::index::parts::encoded::Item;
use crate::journal::Done;
use crate::journal::entry::{Kind, push_change};
use crate::journal::{Journal, Pending};
use crate::{Key, Tree, Value};

/// The borrowed form of a key.
type KeyRef<'a, K> = <<K as Key>::Codec as Codec>::Ref<'a>;
/// The borrowed form of a value.
type ValueRef<'a, V> = <<V as Value>::Codec as Codec>::Ref<'a>;

thread_local! {
    /// Memory for the next entry of the journal.
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
        let done = |changed: &Result<T>| changed.as_ref().map_or(Done::NONE, done);
        self.change_keys(|| smallvec![key], |journal| self.begin(journal, key, new), done, change)
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
        self.change_keys(keys, |journal| begin_described(journal, describe), done, change)
    }

    #[inline(always)]
    fn change_keys<'k, T>(
        &self,
        keys: impl FnOnce() -> SmallVec<[KeyRef<'k, K>; GROUP]>,
        begin: impl FnOnce(&Journal) -> Result<Begun<'_>>,
        done: impl FnOnce(&Result<T>) -> Done,
        change: impl FnOnce(&dyn Index<K::Codec, V::Codec>) -> Result<T>,
    ) -> Result<T> {
        let epochs = &self.pool.0.epochs;
        let entered = epochs.barrier.enter();
        if !entered.is_tracking() {
            return change(&*self.tree);
        }
        let (changed, lsn) = {
            let _locked = epochs.watch(&entered, self.link.identity, self.undelayed(), &keys());
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
    fn change_recorded<T>(
        &self,
        begin: impl FnOnce(&Journal) -> Result<Begun<'_>>,
        done: impl FnOnce(&Result<T>) -> Done,
        change: impl FnOnce(&dyn Index<K::Codec, V::Codec>) -> Result<T>,
    ) -> (Result<T>, Option<u64>) {
        let Some(journal) = self.pool.0.journal.get() else { return (change(&*self.tree), None) };
        if !self.link.is_known {
            let what = "a tree of an external design cannot be written in a pool with a journal";
            return (Err(Error::invalid(what)), None);
        }
        let (pending, body) = match begin(journal) {
            Ok(begun) => begun,
            Err(error) => return (Err(error), None),
        };
        let changed = change(&*self.tree);
        if matches!(changed, Err(Error::DurabilityLost)) {
            // The outcome is unknown: the entry stays an intent.
            return (changed, None);
        }
        let done = done(&changed);
        pending.mark(&body, done.existed());
        if !body.is_empty() {
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
    ) -> Result<Begun<'j>> {
        let tree = self.link.id;
        match (K::Codec::item(key), new.map(V::Codec::item)) {
            (Item::Word(key), Some(Item::Word(value))) => {
                Ok((journal.begin_words(tree, key, value)?, Vec::new()))
            }
            (key, value) => begin_described(journal, |body| push_change(body, tree, key, value)),
        }
    }
}

/// An entry whose changes are about to be applied, and its body. That of a word is empty, which suffices to
/// [mark](Pending::mark) its only change.
type Begun<'j> = (Pending<'j>, Vec<u8>);

/// Writes an entry with the changes that `describe` appends.
fn begin_described(journal: &Journal, describe: impl FnOnce(&mut Vec<u8>)) -> Result<Begun<'_>> {
    let mut body = BODY.take();
    body.clear();
    describe(&mut body);
    Ok((journal.begin(Kind::Each, &body)?, body))
}
