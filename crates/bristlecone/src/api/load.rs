//! Creating a tree with initial items.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bristlecone_pm::{Error, Result, TreeId};

use super::{key, value};
use crate::api::tree_options::are_words;
use crate::index::Index;
use crate::index::any::AnyIndex;
use crate::index::parts::codec::Codec;
use crate::journal::{Directory, Items, push_change};
use crate::{Key, Tree, TreeOptions, Value};

/// Number of items passed to the tree in one call.
const CHUNK: usize = 1024;
/// Maximum bytes of these items; the last item may exceed it.
const CHUNK_BYTES: usize = 1 << 20;

/// Receives the items of a tree that is being created, in ascending key order: see [`TreeOptions::create_with`].
pub struct Loader<'t, K: Key, V: Value> {
    tree: &'t dyn Index<K::Codec, V::Codec>,
    schema: (K::Schema, V::Schema),
    keys: <K::Codec as Codec>::Pack,
    values: <V::Codec as Codec>::Pack,
    /// Number of items that wait for their leaf.
    count: usize,
    bytes: usize,
    /// The last key that was written to a leaf.
    last: Option<<K::Codec as Codec>::Owned>,
    /// Set if items could not be written: the tree is incomplete then.
    failed: bool,
    /// Receives the items for the pool's journal.
    recorded: Option<Items<'t>>,
}

thread_local! {
    /// Whether this thread is filling a tree, and thus holds the lock on the pool's trees.
    static FILLS: Cell<bool> = const { Cell::new(false) };
}

/// Panics on a thread that is filling a tree, because it would deadlock with itself.
pub(crate) fn assert_fills_none() {
    assert!(
        !FILLS.get(),
        "a tree is being created with items in it: its pool's trees are not to be had meanwhile"
    );
}

impl<K: Key, V: Value> std::fmt::Debug for Loader<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").finish_non_exhaustive()
    }
}

impl<'t, K: Key, V: Value> Loader<'t, K, V> {
    fn new(
        tree: &'t dyn Index<K::Codec, V::Codec>,
        schema: (K::Schema, V::Schema),
        recorded: Option<Items<'t>>,
    ) -> Self {
        let (keys, values) = (Default::default(), Default::default());
        Self { tree, schema, keys, values, count: 0, bytes: 0, last: None, failed: false, recorded }
    }

    /// Appends an item. Keys must be in ascending order.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the key is not greater than the previous one; nothing has changed then. [`Error::TooLong`]
    /// for a key or value that exceeds the limits; [`Error::PoolFull`] and [`Error::MediumFull`] for lack of space.
    pub fn push(&mut self, key: K::Ref<'_>, value: V::Ref<'_>) -> Result<()> {
        if self.failed {
            return Err(gone());
        }
        let (keys, values) = self.schema.clone();
        V::with(&values, value, |value| {
            value::check_len(V::Codec::bytes(value))?;
            K::with(&keys, key, |key| {
                key::check_len(K::Codec::bytes(key))?;
                if self.last().is_some_and(|last| last >= K::Codec::shorten(key)) {
                    return Err(Error::invalid("items are loaded in ascending order of their keys"));
                }
                K::Codec::pack(&mut self.keys, key);
                self.bytes += K::Codec::bytes(key);
                Ok(())
            })?;
            V::Codec::pack(&mut self.values, value);
            self.bytes += V::Codec::bytes(value);
            self.count += 1;
            if self.count == CHUNK || self.bytes >= CHUNK_BYTES { self.write(false) } else { Ok(()) }
        })
    }

    /// Returns the last key.
    #[inline(always)]
    fn last(&self) -> Option<<K::Codec as Codec>::Ref<'_>> {
        match self.count {
            0 => self.last.as_ref().map(K::Codec::borrow),
            count => Some(K::Codec::packed(&self.keys, count - 1)),
        }
    }

    /// Writes the waiting items, and keeps those that do not fill a leaf unless `last` is set.
    fn write(&mut self, last: bool) -> Result<()> {
        let item = |at| (K::Codec::packed(&self.keys, at), V::Codec::packed(&self.values, at));
        let items: Vec<_> = (0..self.count).map(item).collect();
        self.failed = true;
        let done = self.tree.append(&items, last)?;
        if let Some(recorded) = &mut self.recorded {
            recorded.push(|body| {
                for (key, value) in &items[..done] {
                    push_change(body, TreeId(0), K::Codec::item(*key), Some(V::Codec::item(*value)));
                }
            })?;
        }
        self.failed = false;
        self.last = items.last().map(|(key, _)| K::Codec::owned(*key)).or(self.last.take());
        let (mut keys, mut values) = Default::default();
        let mut bytes = 0;
        for (key, value) in &items[done..] {
            K::Codec::pack(&mut keys, *key);
            V::Codec::pack(&mut values, *value);
            bytes += K::Codec::bytes(*key) + V::Codec::bytes(*value);
        }
        let count = items.len() - done;
        drop(items);
        (self.keys, self.values, self.count, self.bytes) = (keys, values, count, bytes);
        Ok(())
    }
}

impl TreeOptions {
    /// Creates the tree with the items that `fill` supplies, in ascending key order. Creation is atomic: after an error
    /// of `fill` or any other, and after a crash before this returns, the tree does not exist and its space is free.
    ///
    /// SSTree and NBTree write full leaves and each cache line once, which takes a fraction of the time of individual
    /// inserts. The other designs insert items one by one. While `fill` runs, other threads block when they open,
    /// create or drop a tree of the pool. A snapshot taken before this returns, including one of a transaction, cannot
    /// show the tree and returns [`Error::SnapshotTooOld`].
    ///
    /// # Panics
    ///
    /// Panics if `fill` opens, creates, renames or drops a tree. Propagates a panic of `fill`; the tree does not exist
    /// then.
    ///
    /// # Errors
    ///
    /// Same as [`create`](Self::create); errors of `fill` and of [`Loader::push`].
    ///
    /// ```
    /// # let pool = bristlecone::Pool::temporary()?;
    /// let squares = pool.tree_options("squares").create_with::<u64, u64>(|loader| {
    ///     (0..10_000).try_for_each(|number| loader.push(number, number * number))
    /// })?;
    /// assert_eq!((squares.len()?, squares.get(12)?), (10_000, Some(144)));
    /// # Ok::<(), bristlecone::Error>(())
    /// ```
    pub fn create_with<K: Key, V: Value>(
        &self,
        fill: impl FnOnce(&mut Loader<'_, K, V>) -> Result<()>,
    ) -> Result<Tree<K, V>> {
        let schema = (K::fixed()?, V::fixed()?);
        let spec = &self.spec(K::kind(), V::kind())?;
        let (mut fill, mut panicked, recorded) = (Some(fill), None, Cell::new(None));
        let journal = self.pool().0.journal.get();
        let mut filled = |index: &AnyIndex| {
            let tree = index.typed::<K::Codec, V::Codec>()?;
            let items = journal.map(|journal| journal.begin_items()).transpose()?;
            let mut loader = Loader::new(&*tree, schema.clone(), items);
            FILLS.set(true);
            let outcome =
                catch_unwind(AssertUnwindSafe(|| fill.take().map_or(Ok(()), |fill| fill(&mut loader))));
            FILLS.set(false);
            match outcome {
                Ok(outcome) => outcome?,
                Err(panic) => {
                    panicked = Some(panic);
                    return Err(gone());
                }
            }
            if loader.failed {
                return Err(gone());
            }
            loader.write(true)?;
            if let Some(items) = loader.recorded.take() {
                let aside = items.finish()?;
                let change = Directory::Create(TreeId(0), spec.clone());
                recorded.set(Some((self.pool().begin_directory(change, Some(aside))?, aside)));
            }
            Ok(())
        };
        let created = self.pool().create_index(|| {
            let created = self.pool().0.file.create_filled(spec, are_words::<K, V>(), &mut filled);
            let mut lsn = None;
            if let (Some(journal), Some((recorded, aside))) = (journal, recorded.take()) {
                lsn = recorded.end(&created, |(entry, _)| Some(entry.id));
                // If the outcome is unknown, the entry remains, and with it the file that it names.
                if !matches!(created, Err(Error::DurabilityLost)) {
                    journal.note_items(&aside, lsn);
                }
            }
            let (entry, tree) = created?;
            // Existing snapshots have not recorded the absence of these items.
            self.pool().0.epochs.note_cleared(entry.id, entry.id);
            Ok((entry, tree, lsn))
        });
        // The tree was not created, and nothing of it remains.
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        self.pool().handle(&created?, schema)
    }
}

/// Returns the error for use after a failed write.
fn gone() -> Error {
    Error::invalid("the tree was not created: earlier items failed")
}
