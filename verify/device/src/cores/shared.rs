//! The pool of simulated cores: where it is, and the purpose of each line.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bristlecone_pm::{Domain, LINE_BYTES, Part, Region};

use crate::parts::{Layout, Parts};

/// The medium of simulated cores. Clones are one medium. Accesses of threads that are not simulated are executed, but
/// neither counted nor timed.
#[derive(Clone)]
pub struct Shared(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub base: usize,
    pub length: usize,
    pub header_bytes: usize,
    pub domain: Domain,
    pub parts: Mutex<Parts>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("bytes", &self.0.length).finish_non_exhaustive()
    }
}

impl Shared {
    /// Returns the medium of a pool with this region and layout.
    pub fn new((region, layout): (&Region, Layout), domain: Domain) -> Self {
        Self(Arc::new(Inner {
            base: region.base().addr(),
            length: layout.geometry.max_bytes() as usize,
            header_bytes: layout.geometry.header_bytes() as usize,
            domain,
            parts: Mutex::new(Parts::new(layout)),
        }))
    }

    /// Inspects a store, which may be that of a chunk's descriptor.
    #[inline]
    pub(super) fn learn(&self, cell: &AtomicU64, value: u64) {
        let offset = std::ptr::from_ref(cell).addr().wrapping_sub(self.0.base);
        if offset < self.0.header_bytes {
            self.parts().learn(offset, value);
        }
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the purpose of an address of the pool, and its offset there; `None` if it is in DRAM.
    pub(super) fn place(&self, address: usize) -> Option<(Part, usize)> {
        let offset = address.wrapping_sub(self.0.base);
        (offset < self.0.length).then(|| (self.parts().of(offset / LINE_BYTES), offset))
    }
}
