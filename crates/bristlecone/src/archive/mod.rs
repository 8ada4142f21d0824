//! Archives: copies of a journal in a folder elsewhere, from which pools are restored, and which standbys follow.

mod archiver;
mod begin;
mod catalog;
mod pieces;
mod restoring;
mod retention;
mod standby;
mod standby_state;
mod sums;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

pub use self::archiver::Archiver;
use self::catalog::Catalog;
#[cfg(test)]
pub(crate) use self::restoring::read_catalog;
pub use self::restoring::{RestoreTo, Restored};
pub use self::retention::Keep;
pub use self::standby::Standby;
pub use self::standby_state::StandbyStatus;
#[cfg(test)]
pub(crate) use self::standby_state::State;
use crate::journal::clock;

/// Longest pause between two looks at a stop.
const NAP: Duration = Duration::from_millis(20);

/// What an archive has: see [`Archiver::status`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArchiveStatus {
    /// Its folder.
    pub folder: PathBuf,
    /// The pool's identity.
    pub uuid: String,
    /// Number of the timeline: how often a copy of the pool has taken over.
    pub timeline: u64,
    /// LSNs from which on states can be restored, and up to which. The first is `None` while the first checkpoint is being
    /// copied.
    pub lsns: (Option<u64>, u64),
    /// When the archive had everything that was durable.
    pub as_of: SystemTime,
    /// Number of files, and their bytes.
    pub files: (u64, u64),
}

impl ArchiveStatus {
    fn of(catalog: &Catalog, folder: PathBuf) -> Self {
        let first = match catalog.is_whole {
            true => Some(0),
            false => catalog.bases.first().map(|base| base.checkpoint.end),
        };
        Self {
            folder,
            uuid: format!("{:032x}", catalog.uuid),
            timeline: catalog.timeline.number,
            lsns: (first, catalog.end),
            as_of: clock::at(catalog.as_of),
            files: (catalog.names().len() as u64, catalog.bytes()),
        }
    }
}

/// Returns a random number that nothing else has.
fn identity() -> u128 {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        // Only a signal fails it: the call needs no memory, and waits for its source.
        if let Ok(some) = rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
        {
            filled += some;
        }
    }
    u128::from_le_bytes(bytes)
}
