//! The value of a Redis key that is an ordered map: nothing but which map it is.
//!
//! A small map has all that it is in one entry of the pool ([`crate::store`]). Its value in the keyspace is a number in place of
//! an address: space and id, with the lowest bit set, and takes no memory of its own. A large map has a [`Large`].

use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Maps of these are in the keyspace and nowhere else: see [`Owned::Placeholder`].
pub static PLACEHOLDERS: AtomicI64 = AtomicI64::new(0);

/// Maps that keys have, without placeholders.
static MAPS: AtomicI64 = AtomicI64::new(0);

const UNCOUNTED: i64 = -1;
/// More than any number of fields.
const FORGOTTEN: i64 = 1 << 50;

/// Bits of a small map's id.
const ID_BITS: u32 = 48;
/// Spaces that small maps can be in. Space 0 has those that no key has yet.
pub const SPACES: u64 = 1 << 15;

/// Where a small map is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Small {
    space: u16,
    id: u64,
}

impl Small {
    /// Returns the place of a small map, if small maps can have such a space and id.
    pub fn new(space: u64, id: u64) -> Option<Self> {
        let fits = space < SPACES && id < 1 << ID_BITS;
        fits.then_some(Self { space: space as u16, id })
    }

    /// Returns the place that a key of the pool is.
    pub fn of_word(word: u64) -> Option<Self> {
        Self::new(word >> ID_BITS, word & ((1 << ID_BITS) - 1))
    }

    /// Returns its key in the pool. Keys of a space follow each other.
    pub fn word(self) -> u64 {
        u64::from(self.space) << ID_BITS | self.id
    }

    /// Returns the map's id.
    pub fn id(self) -> u64 {
        self.id
    }

    /// Returns the space that the map is in, or 0.
    pub fn space(self) -> u64 {
        u64::from(self.space)
    }
}

/// What is known of a large map without asking the pool.
///
/// Commands use it on the server's main thread. The server may free it on another, and then it is in no key.
#[derive(Debug)]
pub struct Large {
    id: u64,
    /// Its space, or 0: it is in none yet. Relaxed everywhere: the server hands values from thread to thread.
    space: AtomicU64,
    len: AtomicI64,
    /// How many fields have come since it was put into the keyspace, less those that have gone.
    more: AtomicI64,
    /// No field expires before, in milliseconds since 1970; [`u64::MAX`]: none expires; 0: that is unknown.
    earliest: AtomicU64,
}

/// A count that a thread has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    id: u64,
    more: i64,
}

/// How many fields threads have counted, and of what.
static COUNTED: Mutex<Vec<(Counting, u64)>> = Mutex::new(Vec::new());
/// Counts that are kept for the next command that asks.
const COUNTED_MAX: usize = 64;

impl Counting {
    /// Keeps how many fields there were when it began.
    pub fn end(self, len: u64) {
        let mut counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
        counted.retain(|(other, _)| other.id != self.id);
        if counted.len() == COUNTED_MAX {
            counted.remove(0);
        }
        counted.push((self, len));
    }
}

impl Large {
    /// Returns the value for a map in a space, or in none.
    pub fn new(id: u64, space: Option<u64>) -> Self {
        let (space, len) = (AtomicU64::new(space.unwrap_or(0)), AtomicI64::new(UNCOUNTED));
        Self { id, space, len, more: AtomicI64::new(0), earliest: AtomicU64::new(0) }
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

    /// Returns the time before which no field expires, if it is known; [`u64::MAX`]: none expires.
    pub fn earliest(&self) -> Option<u64> {
        Some(self.earliest.load(Ordering::Relaxed)).filter(|time| *time != 0)
    }

    /// Notes the time before which no field expires.
    pub fn set_earliest(&self, time: u64) {
        self.earliest.store(time, Ordering::Relaxed);
    }

    /// Notes that a field expires at a time.
    pub fn expires_at(&self, time: u64) {
        self.earliest.fetch_min(time, Ordering::Relaxed);
    }

    /// Begins a count of the fields as they are now.
    pub fn count(&self) -> Counting {
        Counting { id: self.id, more: self.more.load(Ordering::Relaxed) }
    }

    /// Takes the count of a thread, if one has ended.
    pub fn take_count(&self) {
        let mut counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = counted.iter().position(|(counting, _)| counting.id == self.id) else { return };
        let (counting, len) = counted.remove(at);
        let more = self.more.load(Ordering::Relaxed).wrapping_sub(counting.more);
        // After a removal without a count it is a count of something else.
        if more.unsigned_abs() < FORGOTTEN as u64 / 2 {
            self.set_len(len.saturating_add_signed(more));
        }
    }

    /// Notes that they are not counted any more.
    pub fn forget_len(&self) {
        self.len.store(UNCOUNTED, Ordering::Relaxed);
        self.more.fetch_add(FORGOTTEN, Ordering::Relaxed);
    }

    /// Notes that fields came and went.
    pub fn grow(&self, by: i64) {
        self.more.fetch_add(by, Ordering::Relaxed);
        if let Some(len) = self.len() {
            self.set_len(len.saturating_add_signed(by));
        }
    }
}

/// A map that a key holds.
#[derive(Clone, Copy, Debug)]
pub enum Map<'a> {
    /// It stands for what a file says and the pool knows better. It is replaced, or removed, before the server serves.
    Placeholder,
    /// All of it is one entry of the pool.
    Small(Small),
    /// Its fields are entries of their own.
    Large(&'a Large),
}

impl Map<'_> {
    /// Returns what a key holds.
    ///
    /// # Safety
    ///
    /// `value` came from [`Owned::into_raw`], and is not freed while the reference lives.
    pub unsafe fn borrow(value: *mut c_void) -> Self {
        match Owned::small_of(value) {
            Some(small) if small.id == 0 => Self::Placeholder,
            Some(small) => Self::Small(small),
            // SAFETY: an even number is an address, which `into_raw` made; otherwise as the caller promises.
            None => Self::Large(unsafe { &*value.cast() }),
        }
    }

    /// Returns whether it is a placeholder.
    pub fn is_placeholder(&self) -> bool {
        matches!(self, Self::Placeholder)
    }

    /// Returns the map's id; placeholders have 0.
    pub fn id(&self) -> u64 {
        match self {
            Self::Placeholder => 0,
            Self::Small(small) => small.id,
            Self::Large(large) => large.id,
        }
    }
}

/// Returns how many maps keys have.
pub fn in_keys() -> u64 {
    MAPS.load(Ordering::Relaxed).max(0) as u64
}

/// A value that no key has, or has no more.
#[derive(Debug)]
pub enum Owned {
    /// See [`Map::Placeholder`].
    Placeholder,
    /// See [`Map::Small`].
    Small(Small),
    /// See [`Map::Large`].
    Large(Box<Large>),
}

impl Owned {
    fn count(&self) -> &'static AtomicI64 {
        if matches!(self, Self::Placeholder) { &PLACEHOLDERS } else { &MAPS }
    }

    /// Returns it as what a key holds.
    pub fn into_raw(self) -> *mut c_void {
        self.count().fetch_add(1, Ordering::Relaxed);
        match self {
            Self::Placeholder => std::ptr::without_provenance_mut(1),
            Self::Small(small) => std::ptr::without_provenance_mut((small.word() << 1 | 1) as usize),
            Self::Large(large) => Box::into_raw(large).cast(),
        }
    }

    fn small_of(value: *mut c_void) -> Option<Small> {
        let word = value.addr() as u64;
        let small = Small { space: (word >> (ID_BITS + 1)) as u16, id: word >> 1 & ((1 << ID_BITS) - 1) };
        (word & 1 == 1).then_some(small)
    }

    /// Takes back what a key held.
    ///
    /// # Safety
    ///
    /// `value` came from [`into_raw`](Self::into_raw), and nothing else uses it.
    pub unsafe fn take(value: *mut c_void) -> Self {
        let owned = match Self::small_of(value) {
            Some(small) if small.id == 0 => Self::Placeholder,
            Some(small) => Self::Small(small),
            // SAFETY: as in `borrow`.
            None => Self::Large(unsafe { Box::from_raw(value.cast()) }),
        };
        owned.count().fetch_sub(1, Ordering::Relaxed);
        owned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_of_the_fields_as_they_were_when_it_began() {
        let large = Large::new(u64::MAX, None);
        let counting = large.count();
        large.grow(3);
        large.grow(-1);
        counting.end(10);
        large.take_count();
        assert_eq!(large.len(), Some(12));
        large.grow(1);
        assert_eq!(large.len(), Some(13));
        // It is unknown how many were removed.
        let counting = large.count();
        large.forget_len();
        counting.end(13);
        large.take_count();
        assert_eq!(large.len(), None);
        large.count().end(5);
        large.take_count();
        assert_eq!(large.len(), Some(5));
    }

    #[test]
    fn a_value_in_the_keyspace_tells_its_map() {
        for (space, id) in [(0, 1), (1, 1), (SPACES - 1, (1 << ID_BITS) - 1), (77, 1 << 40)] {
            let small = Small::new(space, id).unwrap();
            assert_eq!((small.space(), small.id(), Small::of_word(small.word())), (space, id, Some(small)));
            let raw = Owned::Small(small).into_raw();
            // SAFETY: made here, and used by nothing else.
            let (borrowed, owned) = unsafe { (Map::borrow(raw), Owned::take(raw)) };
            assert!(matches!(borrowed, Map::Small(found) if found == small));
            assert!(matches!(owned, Owned::Small(found) if found == small));
        }
        let raw = Owned::Large(Box::new(Large::new(5, Some(3)))).into_raw();
        // SAFETY: as above.
        let owned = unsafe { Owned::take(raw) };
        assert!(matches!(owned, Owned::Large(large) if large.id() == 5 && large.space() == Some(3)));
        let raw = Owned::Placeholder.into_raw();
        // SAFETY: as above.
        assert!(matches!(unsafe { Owned::take(raw) }, Owned::Placeholder));
        assert_eq!((Small::new(SPACES, 1), Small::new(1, 1 << ID_BITS)), (None, None));
    }
}
