//! The rows of the table of configurations.

use bristlecone::Domain;

use crate::codec::Codec;
use crate::room::{DOMAINS, ROOMS, Room};
use crate::shape::{Shape, shapes};

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Cell {
    /// The design and its options.
    pub shape: Shape,
    /// Kinds of keys and values.
    pub codec: Codec,
    /// The durability domain.
    pub domain: Domain,
    /// The sizes of the pool, and its other contents.
    pub room: Room,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}/{}", self.shape, self.codec, self.domain, self.room.name)
    }
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// Returns every cell.
pub fn all() -> impl Iterator<Item = Cell> {
    shapes().flat_map(|shape| {
        Codec::ALL.into_iter().flat_map(move |codec| {
            let with = move |domain| ROOMS.iter().map(move |&room| Cell { shape, codec, domain, room });
            DOMAINS.into_iter().flat_map(with)
        })
    })
}
