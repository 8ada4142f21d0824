//! A pool whose writer is another process: it exposes the writer's state, and rejects every change.

use std::sync::Arc;

use bristlecone_pm::{Chunk, Error, Events, Issue, Opener, PoolInfo, Result, TreeEntry, TreeId, TreeSpec};

use super::{Followed, Source};
use crate::index::any::{AnyIndex, AnyPool, CommitOutcome, Trial};
use crate::index::of_keys::OfKeys;

/// A followed pool: it is read-only in this process.
pub struct FollowedPool {
    source: Arc<Source>,
    /// Events of this process; always empty.
    events: Events,
}

impl FollowedPool {
    pub fn new(source: Arc<Source>) -> Self {
        Self { source, events: Events::default() }
    }

    /// Returns the error for a write.
    fn refuse<T>(&self) -> Result<T> {
        self.source.here().and(Err(Error::ReadOnly))
    }
}

impl AnyPool for FollowedPool {
    fn opener(&self) -> Opener {
        self.source.opener()
    }
    fn here(&self) -> Result<()> {
        self.source.here()
    }
    fn is_read_only(&self) -> bool {
        true
    }
    fn is_followed(&self) -> bool {
        true
    }
    fn writable(&self) -> Result<()> {
        self.refuse()
    }
    fn trees(&self) -> Result<Vec<TreeEntry>> {
        self.source.current()?.trees()
    }
    fn find_tree(&self, name: &str) -> Result<Option<TreeEntry>> {
        self.source.current()?.find_tree(name)
    }
    fn drop_tree(&self, _: TreeId) -> Result<()> {
        self.refuse()
    }
    fn chunks_of(&self, id: TreeId) -> Vec<Chunk> {
        self.source.pool().chunks_now_of(id)
    }
    fn chunk_bytes(&self) -> u64 {
        self.source.pool().chunk_bytes()
    }
    fn rename_tree(&self, _: &str, _: &str) -> Result<()> {
        self.refuse()
    }
    fn info(&self) -> PoolInfo {
        self.source.pool().info()
    }
    fn huge_bytes(&self) -> u64 {
        self.source.pool().huge_bytes()
    }
    fn check(&self) -> Vec<Issue> {
        self.source.pool().check()
    }
    fn handles_faults(&self) -> bool {
        self.source.pool().handles_faults()
    }
    fn events(&self) -> &Events {
        &self.events
    }
    fn medium_counts(&self) -> Option<[u64; 2]> {
        None
    }
    fn prefault(&self, _: u64) -> Result<()> {
        self.refuse()
    }
    fn trim(&self, _: bool) -> Result<u64> {
        self.refuse()
    }
    fn close(&self) -> Result<()> {
        self.here()
    }
    fn abandon(&self) {
        self.source.abandon();
    }
    fn expect_whole(&self, _: &TreeEntry) -> Result<()> {
        Ok(())
    }
    fn open_index(&self, entry: &TreeEntry, inline: (bool, bool), _: usize) -> Result<AnyIndex> {
        let source = &self.source;
        Ok(match inline {
            (true, true) => AnyIndex::Words(OfKeys::Words(Arc::new(Followed::open(source, entry)?))),
            (true, false) => AnyIndex::Words(OfKeys::Records(Arc::new(Followed::open(source, entry)?))),
            (false, true) => AnyIndex::Records(OfKeys::Words(Arc::new(Followed::open(source, entry)?))),
            (false, false) => AnyIndex::Records(OfKeys::Records(Arc::new(Followed::open(source, entry)?))),
        })
    }
    fn create_filled(
        &self,
        _: &TreeSpec,
        _: (bool, bool),
        _: &mut dyn FnMut(&AnyIndex) -> Result<()>,
    ) -> Result<(TreeEntry, AnyIndex)> {
        self.refuse()
    }
    fn clear_index(&self, _: &TreeEntry, _: (bool, bool)) -> Result<TreeEntry> {
        self.refuse()
    }
    fn commit(&self, _: &[u8], _: usize, _: &mut dyn FnMut() -> CommitOutcome) -> Result<()> {
        self.refuse()
    }
    fn attempt(&self, _: Trial<'_>) -> Result<()> {
        self.refuse()
    }
    fn pending_commits(&self) -> Vec<(u64, Vec<u8>)> {
        Vec::new()
    }
    fn end_commits(&self) -> Result<()> {
        Ok(())
    }
}
