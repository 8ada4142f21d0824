//! Positions of the arrays of a last-level inner node.
//!
//! ```text
//! lock | counts | splits | fingerprints, 1 B a slot | keys, 8 B | owners, 1 B | metas, 4 B | values, 8 B
//! fingerprints of strays, 4 B a leaf
//!
//! slot         0 .. index                       .. slots - buffered .. slots
//! key          low fence of the leaf                                key word
//! value        offset of the leaf, and more of its slots            value word
//! meta         the leaf's slots                                     log that the item is in; removed? in its leaf?
//! owner                                                             its leaf
//! ```

use bristlecone_pm::LINE_BYTES;
use bristlecone_pm::sync::{AtomicU32, AtomicU64};

use crate::index::parts::arena::Zeroed;
use crate::index::parts::fingerprint;
use crate::index::parts::optimistic_lock::OptimisticLock;
use crate::index::parts::search::{self, Level};

/// Maximum number of slots of a node.
pub const NODE_SLOTS_MAX: usize = 36;
/// Slots of a node of the default layout, and its bytes.
const DEFAULT_SLOTS: usize = 29;
pub const DEFAULT_BYTES: usize = Places::new(DEFAULT_SLOTS, Level::Portable).bytes;

/// Returns the number of leaves above which a node with this number of slots splits. It has at most one more.
pub const fn index_max(slots: usize) -> usize {
    let buffer = slots / 4;
    slots - if buffer < 2 { 2 } else { buffer }
}

/// The first words of a node. They change only under the lock. Readers validate, so relaxed accesses suffice.
#[repr(C)]
#[derive(Debug)]
pub struct Header {
    pub lock: OptimisticLock,
    /// Number of slots of each part: see [`Counts`](super::node::Counts).
    pub(super) counts: AtomicU64,
    /// See [`Splits`](super::node::Splits).
    pub(super) splits: AtomicU64,
}

// SAFETY: atomics only, for which zero is a value.
unsafe impl Zeroed for Header {}

const HEADER_BYTES: usize = 24;
const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// Positions of the arrays in a node, and the search method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    pub slots: usize,
    pub bytes: usize,
    pub level: Level,
    byte_words: usize,
    /// Number of fences that are compared together.
    fences: usize,
    tags: usize,
    owners: usize,
    metas: usize,
    keys: usize,
    values: usize,
    strays: usize,
}

impl Places {
    /// The default layout, if the processor compares lines of keys.
    #[cfg(target_arch = "x86_64")]
    pub const DEFAULT: Option<Self> = Some(Self::new(DEFAULT_SLOTS, Level::Avx512));
    #[cfg(not(target_arch = "x86_64"))]
    pub const DEFAULT: Option<Self> = None;

    pub const fn new(slots: usize, level: Level) -> Self {
        let byte_words = slots.next_multiple_of(8 * fingerprint::GROUP) / 8;
        let tags = HEADER_BYTES;
        // The arrays read by a search come first, and are prefetched first.
        let keys = tags + 8 * byte_words;
        let owners = keys + 8 * slots;
        let metas = owners + 8 * byte_words;
        let values = metas + (4 * slots).next_multiple_of(8);
        let strays = values + 8 * slots;
        let bytes = (strays + 4 * (index_max(slots) + 1)).next_multiple_of(LINE_BYTES);
        let fences = (index_max(slots) + 1).next_multiple_of(search::GROUP);
        Self { slots, bytes, level, byte_words, fences, tags, owners, metas, keys, values, strays }
    }
}

/// A node with its arrays.
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    pub id: u32,
    pub(super) node: &'a Header,
    pub(super) places: &'a Places,
}

impl std::ops::Deref for NodeRef<'_> {
    type Target = Header;

    fn deref(&self) -> &Header {
        self.node
    }
}

impl<'a> NodeRef<'a> {
    /// Returns the array of `count` atomics that begins `at` bytes into the node.
    ///
    /// # Safety
    ///
    /// The arena must keep that many bytes per node, `at` must be aligned for `T`, and `T` must be an atomic.
    #[inline(always)]
    unsafe fn array<T>(self, at: usize, count: usize) -> &'a [T] {
        // SAFETY: the caller's promise; any bytes are values of atomics.
        unsafe {
            let start = std::ptr::from_ref(self.node).cast::<u8>().add(at);
            std::slice::from_raw_parts(start.cast(), count)
        }
    }

    #[inline(always)]
    pub fn owners(self) -> &'a [AtomicU64] {
        // SAFETY: where `Places::new` put them; everything before them comes in words.
        unsafe { self.array(self.places.owners, self.places.byte_words) }
    }

    #[inline(always)]
    pub fn tags(self) -> &'a [AtomicU64] {
        // SAFETY: as above.
        unsafe { self.array(self.places.tags, self.places.byte_words) }
    }

    #[inline(always)]
    pub fn metas(self) -> &'a [AtomicU32] {
        // SAFETY: as above.
        unsafe { self.array(self.places.metas, self.places.slots) }
    }

    #[inline(always)]
    pub fn keys(self) -> &'a [AtomicU64] {
        // SAFETY: as above.
        unsafe { self.array(self.places.keys, self.places.slots) }
    }

    /// Returns the keys that include all fences.
    #[inline(always)]
    pub fn fences(self) -> &'a [AtomicU64] {
        // SAFETY: as above. They may be more than the keys, but others follow those.
        unsafe { self.array(self.places.keys, self.places.fences) }
    }

    #[inline(always)]
    pub fn values(self) -> &'a [AtomicU64] {
        // SAFETY: as above.
        unsafe { self.array(self.places.values, self.places.slots) }
    }

    /// Fingerprints of each leaf's strays.
    #[inline(always)]
    pub fn strays(self) -> &'a [AtomicU32] {
        // SAFETY: as above.
        unsafe { self.array(self.places.strays, index_max(self.places.slots) + 1) }
    }
}
