//! Recovery as in [`buffered`](crate::index::parts::buffered), with a buffer for each leaf. It writes only derived
//! data: fingerprints, descriptors of unneeded chunks, the first leaf of a new tree. A crash during recovery is
//! therefore safe.

use std::sync::Arc;

use bristlecone_pm::{LogChunk, Manifest, ManifestReader, Medium, Memory, PoolFile, Result, TreeId};

use super::buffer::Buffers;
use super::collect::{Collector, Thread};
use super::layout::Leaf;
use super::room::Promised;
use super::{CclBTree, CclBTreeOptions, Core};
use crate::index::parts::buffered::{self, Replayed, Store, TreeLog};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::index_saver::IndexSaver;
use crate::index::parts::search::Level;
use crate::index::parts::volatile_index::VolatileIndex;
use crate::index::{Described, Open, Salvage, SalvageSink};

impl<K: KeyCodec, M: Medium> Open<K, M> for CclBTree<K, M> {
    type Options = CclBTreeOptions;

    fn open(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: CclBTreeOptions,
        threads: usize,
    ) -> Result<Self> {
        let (log, logged) = TreeLog::open(pool, entry.id, options.log_entries);
        let mut core = Core {
            store: Store::open(pool, entry, options.leaf_slots as usize)?,
            saver: IndexSaver::new(pool, &entry),
            options,
            log,
            inner: VolatileIndex::new(options.inner_bytes as usize, 0, &Memory::private())?,
            buffers: Self::no_buffers(pool, options, &pool.memory())?,
            level: Level::detect(),
            collection: Collector::default(),
            promised: Promised::new(&pool.memory()),
        };
        core.recover(entry.id, logged, threads)?;
        core.saver.opened();
        Ok(Self { core: Arc::new(core), collector: Thread::default() })
    }

    fn resume(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: CclBTreeOptions,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let mut core = Core {
            store: Store::resume(pool, entry, options.leaf_slots as usize, manifest)?,
            saver: IndexSaver::new(pool, &entry),
            options,
            log: TreeLog::resume(pool, entry.id, options.log_entries, manifest)?,
            inner: VolatileIndex::resume(options.inner_bytes as usize, manifest)?,
            buffers: Buffers::resume(Self::no_buffers(pool, options, &Memory::private()).ok()?, manifest)?,
            level: Level::detect(),
            collection: Collector::default(),
            promised: Promised::resume(manifest)?,
        };
        core.saver.opened();
        Some(Self { core: Arc::new(core), collector: Thread::default() })
    }

    fn share(&self, manifest: &mut Manifest) -> Option<()> {
        self.save(manifest)
    }
}

impl<K: KeyCodec, M: Medium> Salvage<K, M> for CclBTree<K, M> {
    fn salvage(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: CclBTreeOptions,
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<()> {
        buffered::salvage::<Leaf, K, M>(pool, entry, (options.leaf_slots, options.log_entries), sink)
    }
}

impl<K: KeyCodec, M: Medium> CclBTree<K, M> {
    fn no_buffers(pool: &PoolFile<M>, options: CclBTreeOptions, memory: &Memory) -> Result<Buffers> {
        Buffers::new(options.batch as usize, pool.chunk_bytes(), pool.chunks_max(), memory)
    }
}

impl<K: KeyCodec, M: Medium> Drop for Core<K, M> {
    fn drop(&mut self) {
        self.saver.leave(|manifest| self.save(manifest));
    }
}

impl<K: KeyCodec, M: Medium> Core<K, M> {
    /// Saves the state for the next open, or records it for followers.
    fn save(&self, manifest: &mut Manifest) -> Option<()> {
        self.store.save(manifest)?;
        self.log.save(&self.of_collection(), manifest);
        self.inner.save(manifest)?;
        self.buffers.save(manifest)?;
        self.promised.save(manifest)
    }

    pub(super) fn recover(&mut self, tree: TreeId, logged: Vec<LogChunk>, threads: usize) -> Result<()> {
        let Some(first) = self.pool.root(tree)? else { return self.create(tree, logged) };
        self.store.first = first;
        let survivors = self.survivors(threads, |leaf, _, stamp| self.buffers.alloc(leaf, stamp))?;
        let replayed = self.replay(&survivors, (&self.log, &logged), self.buffers.batch(), threads)?;
        for of_leaf in replayed.chunk_by(|a, b| a.at == b.at) {
            self.pend_again(survivors[of_leaf[0].at].own, of_leaf);
        }
        self.log.seal(logged);
        self.store.finish_recovery();
        let fences = survivors.iter().map(|leaf| (K::borrow(&leaf.fence), leaf.own));
        self.inner = VolatileIndex::build(self.options.inner_bytes as usize, fences, &self.pool.memory())?;
        Ok(())
    }

    /// Create 1 and 2: the first leaf, then the directory word that refers to it.
    fn create(&mut self, tree: TreeId, logged: Vec<LogChunk>) -> Result<()> {
        let (first, durable) = self.write_first_leaf()?;
        self.store.lead_to_first(tree, first, &durable, "cclbtree create.2");
        let id = self.buffers.alloc(first, 0)?;
        self.inner = VolatileIndex::new(self.options.inner_bytes as usize, id, &self.pool.memory())?;
        self.log.seal(logged);
        Ok(())
    }

    /// Recover 3: buffers the entries of one leaf, newest first.
    fn pend_again(&self, id: u32, entries: &[Replayed]) {
        let buffer = self.buffers.get(id);
        let version = buffer.lock.read().expect("no other thread knows the leaf");
        let mut leaf = buffer.lock_at(version).expect("no other thread knows the leaf");
        leaf.raise(entries[0].entry.sequence);
        let mut state = leaf.state();
        let before = self.live_items(&leaf);
        for Replayed { entry, .. } in entries {
            leaf.set_slot(state.pending, entry.key, entry.value);
            state.set_removed(state.pending, entry.removed);
            state.pending += 1;
            state.used = state.pending;
        }
        leaf.set_state(state);
        self.len.add(self.live_items(&leaf) as i64 - before as i64);
        self.count_overflow(false, self.overflows(&leaf));
    }
}
