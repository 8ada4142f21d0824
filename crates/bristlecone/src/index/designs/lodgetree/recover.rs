//! Recovery as in [`buffered`](crate::index::parts::buffered), with nodes over the leaves. It writes only derived
//! data: fingerprints, descriptors of unneeded chunks, the first leaf of a new tree; and it empties unneeded logs.
//! A crash during recovery is therefore safe.

use std::sync::Arc;

use bristlecone_pm::{
    Error, LogChunk, LogEntry, Manifest, ManifestReader, Medium, Memory, Persist, PoolFile, Result,
    TreeEntry, TreeId,
};

use super::buffer::Buffered;
use super::layout::{Header, Slots};
use super::node::{Entry, Nodes};
use super::places::index_max;
use super::versions::VersionLog;
use super::{LodgeTree, LodgeTreeOptions};
use crate::index::parts::buffered::{self, Replayed, Store, Survivor};
use crate::index::parts::codec::KeyCodec;
use crate::index::parts::counter::Counter;
use crate::index::parts::index_saver::IndexSaver;
use crate::index::parts::volatile_index::VolatileIndex;
use crate::index::{Described, Open, Salvage, SalvageSink};

/// Recovered information about a leaf of the chain.
struct Known {
    entry: Entry,
    /// An upper bound of the sequences of all merged and buffered items.
    newest: u64,
    buffered: Vec<Buffered>,
}

impl<K: KeyCodec, M: Medium> Open<K, M> for LodgeTree<K, M> {
    type Options = LodgeTreeOptions;

    fn open(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: LodgeTreeOptions,
        threads: usize,
    ) -> Result<Self> {
        let (versions, logged) = VersionLog::open(pool, entry.id, options.log_entries);
        let (slots, node_slots) = (options.leaf_slots as usize, options.node_slots as usize);
        let parts = Parts {
            store: Store::open(pool, entry, slots)?,
            versions,
            inner: VolatileIndex::new(options.inner_bytes as usize, 0, &Memory::private())?,
            nodes: Nodes::new(node_slots, &pool.memory())?,
        };
        let mut tree = Self::assemble(pool, &entry, options, parts);
        tree.recover(entry.id, logged, threads)?;
        tree.saver.opened();
        Ok(tree)
    }

    fn resume(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: LodgeTreeOptions,
        manifest: &mut ManifestReader<'_>,
    ) -> Option<Self> {
        let counters = (Counter::resume(manifest)?, Counter::resume(manifest)?);
        let parts = Parts {
            store: Store::resume(pool, entry, options.leaf_slots as usize, manifest)?,
            versions: VersionLog::resume(pool, entry.id, options.log_entries, manifest)?,
            inner: VolatileIndex::resume(options.inner_bytes as usize, manifest)?,
            nodes: Nodes::resume(options.node_slots as usize, manifest)?,
        };
        let mut tree = Self::assemble(pool, &entry, options, parts);
        (tree.unseen, tree.clock) = counters;
        tree.saver.opened();
        Some(tree)
    }

    fn share(&self, manifest: &mut Manifest) -> Option<()> {
        self.save(manifest)
    }
}

impl<K: KeyCodec, M: Medium> Salvage<K, M> for LodgeTree<K, M> {
    fn salvage(
        pool: &Arc<PoolFile<M>>,
        entry: Described<'_>,
        options: LodgeTreeOptions,
        sink: &mut SalvageSink<'_, K>,
    ) -> Result<()> {
        buffered::salvage::<Header, K, M>(pool, entry, (options.leaf_slots, options.log_entries), sink)
    }
}

/// The parts of a tree that opening recovers or resumes.
struct Parts<K: KeyCodec, M: Medium> {
    store: Store<Header, K, M>,
    versions: VersionLog<M>,
    inner: VolatileIndex<K>,
    nodes: Nodes,
}

impl<K: KeyCodec, M: Medium> Drop for LodgeTree<K, M> {
    fn drop(&mut self) {
        self.saver.leave(|manifest| self.save(manifest));
    }
}

impl<K: KeyCodec, M: Medium> LodgeTree<K, M> {
    /// Saves the state for the next open, or records it for followers.
    fn save(&self, manifest: &mut Manifest) -> Option<()> {
        self.unseen.save(manifest)?;
        self.clock.save(manifest)?;
        self.store.save(manifest)?;
        self.versions.save(manifest);
        self.inner.save(manifest)?;
        self.nodes.save(manifest)
    }

    fn assemble(
        pool: &Arc<PoolFile<M>>,
        entry: &TreeEntry,
        options: LodgeTreeOptions,
        Parts { store, versions, inner, nodes }: Parts<K, M>,
    ) -> Self {
        let (slots, node_slots) = (options.leaf_slots as usize, options.node_slots as usize);
        Self {
            store,
            saver: IndexSaver::new(pool, entry),
            options,
            versions,
            inner,
            nodes,
            node_slots,
            index_max: index_max(node_slots),
            split_items: slots.min(options.split_items as usize),
            flush_leaves: options.flush_leaves as usize,
            unseen: Counter::new(&pool.memory()),
            clock: Counter::new(&pool.memory()),
        }
    }

    pub(super) fn recover(&mut self, tree: TreeId, logged: Vec<LogChunk>, threads: usize) -> Result<()> {
        let Some(first) = self.pool.root(tree)? else { return self.create(tree, logged) };
        self.store.first = first;
        let mut survivors = self.survivors(threads, |leaf, bitmap, stamp| self.know(leaf, bitmap, stamp))?;
        // A leaf and its buffered items must fit into a node, and into two leaves.
        let most = self.slots.min(self.node_slots) - 1;
        let replayed = self.replay(&survivors, (&self.versions.log, &logged), most, threads)?;
        for of_leaf in replayed.chunk_by(|a, b| a.at == b.at) {
            self.buffer_again(&mut survivors[of_leaf[0].at].own, of_leaf);
        }
        self.versions.keep(logged);
        self.store.finish_recovery();
        let nodes = self.build_nodes(&survivors)?;
        let nodes = nodes.iter().map(|(fence, node)| (K::borrow(fence), *node));
        self.inner = VolatileIndex::build(self.options.inner_bytes as usize, nodes, &self.pool.memory())?;
        Ok(())
    }

    /// Create 1 and 2: the first leaf, then the directory word that refers to it.
    fn create(&mut self, tree: TreeId, logged: Vec<LogChunk>) -> Result<()> {
        let leaf = self.leaves.alloc()?;
        let (_, flushed) = self.write_leaf(leaf, 0, std::iter::empty(), 0, 0);
        let durable = self.medium().fence(flushed, "lodgetree create.1");
        self.store.lead_to_first(tree, leaf, &durable, "lodgetree create.2");
        let id = self.nodes.alloc(0)?;
        self.nodes.get(id).insert_entry(0, Entry { fence: 0, leaf, slots: Slots::default() });
        self.inner = VolatileIndex::new(self.options.inner_bytes as usize, id, &self.pool.memory())?;
        self.versions.keep(logged);
        Ok(())
    }

    /// Recover 2: returns a node's information about a leaf without buffered items.
    fn know(&self, leaf: u64, bitmap: u64, stamp: u64) -> Result<Known> {
        let header = self.leaf(leaf);
        let fence = header.fence.load(self.medium());
        if leaf == self.first && fence != 0 {
            let what = "the root leads to a leaf that is not the first";
            return Err(Error::corrupted(what, format!("leaf at {leaf:#x}")));
        }
        let entry = Entry { fence, leaf, slots: self.slots_of(header, bitmap as u32) };
        Ok(Known { entry, newest: stamp, buffered: Vec::new() })
    }

    /// Recover 3: buffers the entries of one leaf, given newest first.
    fn buffer_again(&self, leaf: &mut Known, entries: &[Replayed]) {
        let guard = K::pin();
        leaf.newest = entries[0].entry.sequence;
        // The oldest first, as originally.
        for Replayed { log, entry: LogEntry { key, value, removed, .. }, .. } in entries.iter().rev() {
            let (key, value, removed) = (*key, *value, *removed);
            let tag = K::fingerprint(self.keys.read(key, &guard));
            let in_leaf = self.slot_of(leaf.entry, key, tag, &guard).is_some();
            match (in_leaf, removed) {
                (true, true) => self.len.add(-1),
                (false, false) => self.len.add(1),
                _ => {}
            }
            let in_leaf = in_leaf.into();
            leaf.buffered.push(Buffered { key, value, log: *log, owner: 0, in_leaf, removed, tag });
            self.versions.need(*log);
        }
    }

    /// Recover 4: builds nodes over the leaves, each with space for its buffered items; returns them with their low
    /// fences.
    fn build_nodes(&self, survivors: &[Survivor<K, Known>]) -> Result<Vec<(K::Owned, u32)>> {
        let most = self.index_max * 3 / 4;
        let mut nodes: Vec<(K::Owned, u32)> = Vec::new();
        for Survivor { fence, own: leaf, .. } in survivors {
            let fits = |(_, id): &(K::Owned, u32)| {
                let node = self.nodes.get(*id);
                node.counts().index < most && node.room() > leaf.buffered.len()
            };
            if !nodes.last().is_some_and(fits) {
                nodes.push((fence.clone(), self.nodes.alloc(0)?));
            }
            let node = self.nodes.get(nodes[nodes.len() - 1].1);
            let owner = node.counts().index;
            node.insert_entry(owner, leaf.entry);
            leaf.buffered.iter().for_each(|item| node.push_buffered(Buffered { owner, ..*item }));
            node.lock.renew_above(leaf.newest);
        }
        Ok(nodes)
    }
}
