//! The rows of the table of configurations.

use bristlecone::Domain;

use crate::codec::Codec;
use crate::configuration::{Configuration, configurations};
use crate::pool_size::{DOMAINS, POOL_SIZES, PoolSize};

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Cell {
    /// The design and its options.
    pub configuration: Configuration,
    /// Kinds of keys and values.
    pub codec: Codec,
    /// The durability domain.
    pub domain: Domain,
    /// The sizes of the pool, and its other contents.
    pub pool_size: PoolSize,
}

impl Cell {
    /// Returns whether the pool has a journal: files beside it, from which a power failure restores it.
    pub fn has_journal(&self) -> bool {
        self.domain == Domain::Journal
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}/{}", self.configuration, self.codec, self.domain, self.pool_size.name)
    }
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Returns every cell.
pub fn all() -> impl Iterator<Item = Cell> {
    configurations().flat_map(|configuration| {
        Codec::ALL.into_iter().flat_map(move |codec| {
            let with = move |domain| {
                POOL_SIZES.iter().map(move |&pool_size| Cell { configuration, codec, domain, pool_size })
            };
            DOMAINS.into_iter().flat_map(with)
        })
    })
}
