//! The value of a Redis key that is an ordered map: nothing but which map it is.

use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Maps of these are in the keyspace and nowhere else: see [`Map::placeholder`].
pub static PLACEHOLDERS: AtomicI64 = AtomicI64::new(0);

/// Maps that keys have, without placeholders.
static MAPS: AtomicI64 = AtomicI64::new(0);

const UNCOUNTED: i64 = -1;

/// Which map a key is, and what is known of it without asking the pool.
///
/// Commands use it on the server's main thread. The server may free it on another, and then it is in no key.
#[derive(Debug)]
pub struct Map {
    id: u64,
    /// Its space, or 0: it is in none yet. Relaxed everywhere: the server hands values from thread to thread.
    space: AtomicU64,
    len: AtomicI64,
}

impl Map {
    /// Returns the value for a map in a space, or in none.
    pub fn new(id: u64, space: Option<u64>) -> Self {
        Self { id, space: AtomicU64::new(space.unwrap_or(0)), len: AtomicI64::new(UNCOUNTED) }
    }

    /// Returns a value that stands for what a file says and the pool knows better. It is replaced, or removed,
    /// before the server serves.
    pub fn placeholder() -> Self {
        PLACEHOLDERS.fetch_add(1, Ordering::Relaxed);
        Self::new(0, None)
    }

    /// Returns whether it is a placeholder.
    pub fn is_placeholder(&self) -> bool {
        self.id == 0
    }

    /// Returns the map's id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the space that the map is in.
    pub fn space(&self) -> Option<u64> {
        Some(self.space.load(Ordering::Relaxed)).filter(|space| *space != 0)
    }

    /// Notes the space that the map is in.
    pub fn set_space(&self, space: u64) {
        self.space.store(space, Ordering::Relaxed);
    }

    /// Returns how many fields there are, if they were counted.
    pub fn len(&self) -> Option<u64> {
        u64::try_from(self.len.load(Ordering::Relaxed)).ok()
    }

    /// Notes how many fields there are.
    pub fn set_len(&self, len: u64) {
        self.len.store(len as i64, Ordering::Relaxed);
    }

    /// Notes that fields came and went, if they were counted.
    pub fn grow(&self, by: i64) {
        if let Some(len) = self.len() {
            self.set_len(len.saturating_add_signed(by));
        }
    }

    /// Returns how many maps keys have.
    pub fn in_keys() -> u64 {
        MAPS.load(Ordering::Relaxed).max(0) as u64
    }

    /// Returns it as what a key holds.
    pub fn into_raw(self) -> *mut c_void {
        MAPS.fetch_add(i64::from(!self.is_placeholder()), Ordering::Relaxed);
        Box::into_raw(Box::new(self)).cast()
    }

    /// Returns what a key holds.
    ///
    /// # Safety
    ///
    /// `value` came from [`into_raw`](Self::into_raw), and is not freed while the reference lives.
    pub unsafe fn borrow<'a>(value: *mut c_void) -> &'a Self {
        // SAFETY: as the caller promises.
        unsafe { &*value.cast() }
    }

    /// Takes back what a key held.
    ///
    /// # Safety
    ///
    /// `value` came from [`into_raw`](Self::into_raw), and nothing else uses it.
    pub unsafe fn take(value: *mut c_void) -> Box<Self> {
        // SAFETY: as the caller promises.
        let map: Box<Self> = unsafe { Box::from_raw(value.cast()) };
        let count = if map.is_placeholder() { &PLACEHOLDERS } else { &MAPS };
        count.fetch_sub(1, Ordering::Relaxed);
        map
    }
}
