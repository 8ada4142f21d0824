//! A tree whose reads wait until everything that they may show is durable.

use std::ops::Bound;
use std::sync::Arc;

use bristlecone_pm::{Issue, Result};

use super::Journal;
use crate::Pool;
use crate::index::parts::codec::Codec;
use crate::index::{Batch, Index, Inspect, Read, Scan, Swapped, Tell, TreeStats, Write, WriteMode};

impl Pool {
    /// Returns a tree as handles of this pool read it.
    pub(crate) fn as_read<K: Codec, V: Codec>(&self, tree: Arc<dyn Index<K, V>>) -> Arc<dyn Index<K, V>> {
        match self.0.journal.get().filter(|journal| journal.durable_reads) {
            Some(journal) => Arc::new(DurableReads { tree, journal: Arc::clone(journal) }),
            None => tree,
        }
    }

    /// Waits until everything that this thread may have read is durable, if the pool's reads must be.
    ///
    /// # Errors
    ///
    /// [`Error::DurabilityLost`](crate::Error).
    #[inline]
    pub(crate) fn settle_reads(&self) -> Result<()> {
        match self.0.journal.get() {
            Some(journal) if journal.durable_reads => journal.sync(),
            _ => Ok(()),
        }
    }
}

/// Writes pass it unchanged: the acknowledgement of a write includes what its thread has read. Their locks are held, so
/// they must not wait.
struct DurableReads<K: Codec, V: Codec> {
    tree: Arc<dyn Index<K, V>>,
    journal: Arc<Journal>,
}

impl<K: Codec, V: Codec> Read<K, V> for DurableReads<K, V> {
    fn get(&self, key: K::Ref<'_>, show: &mut dyn FnMut(V::Ref<'_>)) -> Result<bool> {
        let mut waited = None;
        let found = self.tree.get(key, &mut |value| {
            if waited.insert(self.journal.sync()).is_ok() {
                show(value);
            }
        })?;
        // An absent key may be a removed one.
        waited.unwrap_or_else(|| self.journal.sync()).map(|()| found)
    }

    fn get_many(&self, keys: &[K::Ref<'_>], show: &mut dyn FnMut(usize, V::Ref<'_>)) -> Result<()> {
        let mut waited = Ok(());
        self.tree.get_many(keys, &mut |at, value| {
            if waited.is_ok() {
                waited = self.journal.sync();
            }
            if waited.is_ok() {
                show(at, value);
            }
        })?;
        waited.and_then(|()| self.journal.sync())
    }

    fn beneath(&self) -> Option<&Arc<dyn Index<K, V>>> {
        Some(&self.tree)
    }
}

impl<K: Codec, V: Codec> DurableReads<K, V> {
    /// Waits before a scan shows the items of a leaf, or its end.
    fn settle(&self, has_more: bool, into: &mut Batch<K, V>) -> bool {
        match self.journal.sync() {
            Ok(()) => has_more,
            Err(error) => into.fail(error),
        }
    }
}

impl<K: Codec, V: Codec> Scan<K, V> for DurableReads<K, V> {
    fn scan_forward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        let has_more = self.tree.scan_forward(bounds, into);
        self.settle(has_more, into)
    }

    fn scan_backward(&self, bounds: (Bound<K::Ref<'_>>, Bound<K::Ref<'_>>), into: &mut Batch<K, V>) -> bool {
        let has_more = self.tree.scan_backward(bounds, into);
        self.settle(has_more, into)
    }
}

impl<K: Codec, V: Codec> Write<K, V> for DurableReads<K, V> {
    fn write(&self, key: K::Ref<'_>, value: V::Ref<'_>, mode: WriteMode) -> Result<Option<V::Owned>> {
        self.tree.write(key, value, mode)
    }

    fn upsert(&self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        self.tree.upsert(key, value)
    }

    fn remove(&self, key: K::Ref<'_>) -> Result<Option<V::Owned>> {
        self.tree.remove(key)
    }

    fn write_many(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], tell: &mut Tell<'_, V>) -> Result<()> {
        self.tree.write_many(items, tell)
    }

    fn upsert_many(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], tell: &mut Tell<'_, V>) -> Result<()> {
        self.tree.upsert_many(items, tell)
    }

    fn remove_many(&self, keys: &[K::Ref<'_>], tell: &mut Tell<'_, V>) -> Result<()> {
        self.tree.remove_many(keys, tell)
    }

    fn append(&self, items: &[(K::Ref<'_>, V::Ref<'_>)], last: bool) -> Result<usize> {
        self.tree.append(items, last)
    }

    fn remove_if(&self, key: K::Ref<'_>, expected: V::Ref<'_>) -> Result<Swapped<V>> {
        self.tree.remove_if(key, expected)
    }

    fn compare_and_swap(&self, key: K::Ref<'_>, expected: V::Ref<'_>, new: V::Ref<'_>) -> Result<Swapped<V>> {
        self.tree.compare_and_swap(key, expected, new)
    }
}

impl<K: Codec, V: Codec> Inspect for DurableReads<K, V> {
    fn len(&self) -> Result<u64> {
        let len = self.tree.len()?;
        self.journal.sync().map(|()| len)
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
