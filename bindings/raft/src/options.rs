//! Options of a store.

use std::time::Duration;

use bristlecone::{Design, Domain, Durability, Error, Key, Pool, PoolOptions, Result, Tree, Value};

/// Options of a store: see [`open`](crate::open).
///
/// ```
/// use bristlecone::Design;
///
/// let options = bristlecone_raft::Options::new().design(Design::SsTree).max_bytes(8 << 30);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) design: Design,
    domain: Option<Domain>,
    max_bytes: Option<u64>,
    state_durability: Durability,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            design: Design::default(),
            domain: None,
            max_bytes: None,
            state_durability: Durability::Interval(Duration::from_millis(100)),
        }
    }
}

impl Options {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the design of the trees of a new store, and of those that a snapshot replaces (default: NBTree).
    pub fn design(mut self, design: Design) -> Self {
        self.design = design;
        self
    }

    /// Sets the persistence domain of a new store, overriding detection. An existing store must have it already.
    pub fn domain(mut self, domain: Domain) -> Self {
        self.domain = Some(domain);
        self
    }

    /// Sets the maximum size of each pool in bytes (default: 1 TiB). A store has two pools, and a third while it
    /// installs a snapshot.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Sets when [`apply`](openraft::storage::RaftStateMachine::apply) returns, in the domain [`Domain::Journal`]
    /// (default: an interval of 100 ms).
    ///
    /// No durability loses an entry: the log keeps each one until a snapshot on disk contains it. After a power failure
    /// the state machine may be behind, and openraft applies the missing entries again. With
    /// [`Durability::Commit`] it is never behind what it has returned, and each `apply` waits for a sync of its own.
    pub fn state_durability(mut self, durability: Durability) -> Self {
        self.state_durability = durability;
        self
    }

    /// Returns the options of the pool of the log.
    pub(crate) fn log_pool(&self) -> PoolOptions {
        let options = self.sized();
        match self.domain {
            Some(domain) => options.domain(domain),
            None => options,
        }
    }

    /// Returns the options of the pool of a state machine, which has the domain of the log.
    pub(crate) fn state_pool(&self, domain: Domain) -> PoolOptions {
        let options = self.sized().domain(domain);
        match domain {
            Domain::Journal => options.durability(self.state_durability),
            _ => options,
        }
    }

    /// Opens a tree, which keeps the design that it was created with, or creates it. `create`: trees of the pool may
    /// be missing, because it is new or its creation was interrupted.
    pub(crate) fn tree<K: Key, V: Value>(&self, pool: &Pool, name: &str, create: bool) -> Result<Tree<K, V>> {
        match pool.tree_options(name).open() {
            Err(Error::NoSuchTree { .. }) if create => pool.tree_options(name).design(self.design).create(),
            opened => opened,
        }
    }

    fn sized(&self) -> PoolOptions {
        let options = Pool::options();
        match self.max_bytes {
            Some(bytes) => options.max_bytes(bytes),
            None => options,
        }
    }
}
