//! The medium: every access of a structure to persistent bytes passes through this trait.
//!
//! A structure is generic over [`Medium`]. [`Native`](crate::Native) compiles to plain loads, stores and flush
//! instructions; a simulator records every access and builds the images that a crash could leave.
//!
//! # The witness of durability
//!
//! Data becomes durable in two steps, *flush* and *fence*. Only then may the word that makes it reachable be stored.
//! The types enforce this order:
//!
//! ```text
//! flush(range) -> Flushed      write-back has begun
//! fence(Flushed) -> Durable    write-back has finished
//! word.publish(value, &Durable)
//! ```
//!
//! When data and publishing word share one 64-byte line, the hardware persists the line's stores
//! in program order and no fence is needed between them: [`Persist::ordered_within_line`] returns
//! the weaker witness [`Ordered`].

mod arch;
pub(crate) mod copy;
mod domain;
mod native;
mod prefetch;

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::domain::Domain;
pub(crate) use self::domain::{is_memory, is_tmpfs};
pub use self::native::Native;
pub use self::prefetch::{prefetch, prefetch_to_write};

/// Bytes of a CPU cache line, the unit of flushing.
pub const LINE_BYTES: usize = 64;

/// Bytes of the smallest page: the unit of mapping and of writing back to a file.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The name of one flush, fence or publish site: the design and the step of its protocol, `"sstree insert.2"`. It has
/// no run-time cost; the simulator reports and mutates by it.
pub type Step = &'static str;

/// A kind of persistent memory: how it is read, written, flushed and fenced.
///
/// A medium is the memory of a pool, a simulator or a device model. The trait is implemented in this workspace only,
/// and may gain methods at any time. Programs that keep data in a pool need not implement it.
///
/// Structures call the methods of [`Persist`], [`Word`](crate::Word) and [`Group`](crate::Group) instead of these.
/// Methods that matter to a crash track their caller in the source, so that a simulator can distinguish two uses of one
/// step.
pub trait Medium: Send + Sync + 'static {
    /// Loads a word.
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64;

    /// Stores a word.
    #[track_caller]
    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering);

    /// Stores a word that no recovery relies on: see [`Word::store_derived`](crate::Word::store_derived).
    #[track_caller]
    fn store_derived(&self, cell: &AtomicU64, value: u64) {
        self.store(cell, value, Ordering::Relaxed);
    }

    /// Stores adjacent words, each like [`store`](Self::store), in any order.
    ///
    /// # Panics
    ///
    /// If `values` has another length.
    #[track_caller]
    fn store_words(&self, cells: &[AtomicU64], values: &[u64]) {
        assert!(cells.len() == values.len(), "a copy of another length");
        for (cell, value) in cells.iter().zip(values) {
            self.store(cell, *value, Ordering::Relaxed);
        }
    }

    /// Stores a word that makes other data reachable: a store with release order, named for the simulator.
    #[track_caller]
    fn publish(&self, cell: &AtomicU64, value: u64, step: Step) {
        let _ = step;
        self.store(cell, value, Ordering::Release);
    }

    /// Replaces `current` by `new` and returns the replaced value. Success orders like `AcqRel`.
    ///
    /// # Errors
    ///
    /// The value found, if it differs; nothing was stored.
    #[track_caller]
    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64>;

    /// Starts writing back every line that `[start, start + bytes)` touches.
    #[track_caller]
    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step);

    /// Waits until the lines that this thread flushed have reached the persistence domain.
    #[track_caller]
    fn drain(&self, step: Step);

    /// Records that the file was extended up to the end of `last`, which is still empty. This thread's next
    /// [`drain`](Self::drain) makes that length durable.
    #[track_caller]
    #[inline(always)]
    fn extended(&self, last: &AtomicU64) {
        let _ = last;
    }

    /// Returns whether there are bytes for another chunk. Only a simulator may run out.
    #[inline(always)]
    fn has_room(&self) -> bool {
        true
    }

    /// Orders this thread's stores to one line where the hardware does not.
    #[track_caller]
    fn order_line(&self);

    /// Announces that bytes are about to be read as a slice, bypassing the medium. Used by simulators only.
    #[inline(always)]
    fn about_to_read(&self, start: *const u8, bytes: usize) {
        let _ = (start, bytes);
    }

    /// Sets the source location of the next access where the call itself loses it. Used by simulators only.
    #[inline(always)]
    fn called_from(&self, caller: &'static Location<'static>) {
        let _ = caller;
    }

    /// Prefetches a line. Only a hint without observable effect; an address outside the pool is harmless.
    #[inline(always)]
    fn prefetch(&self, address: *const u8) {
        crate::prefetch(address);
    }

    /// Marks a point between two steps of a lock-free algorithm. Used by tests only: they stop a thread here and expect
    /// all others to make progress.
    #[inline(always)]
    fn reached(&self, step: Step) {
        let _ = step;
    }

    /// Returns the number of flushed lines and of fences, if the medium counts them.
    fn counts(&self) -> Option<[u64; 2]> {
        None
    }

    /// Returns whether the system ever failed to make data durable (a failed `msync`). Nothing written since may be
    /// acknowledged.
    fn failed(&self) -> bool {
        false
    }
    /// Makes [`failed`](Self::failed) return true from now on, if the medium stores this: a change was applied in part,
    /// and only the next open can repair it.
    fn fail(&self) {}
}

/// A medium that is chosen at run time, at the cost of a virtual call per access. Code that is generic over media is
/// then compiled once for several of them. A virtual call loses its caller's location, which is therefore set before
/// it.
impl Medium for Box<dyn Medium> {
    fn load(&self, cell: &AtomicU64, order: Ordering) -> u64 {
        (**self).load(cell, order)
    }
    fn store(&self, cell: &AtomicU64, value: u64, order: Ordering) {
        (**self).called_from(Location::caller());
        (**self).store(cell, value, order);
    }
    fn store_derived(&self, cell: &AtomicU64, value: u64) {
        (**self).called_from(Location::caller());
        (**self).store_derived(cell, value);
    }
    fn store_words(&self, cells: &[AtomicU64], values: &[u64]) {
        (**self).called_from(Location::caller());
        (**self).store_words(cells, values);
    }
    fn publish(&self, cell: &AtomicU64, value: u64, step: Step) {
        (**self).called_from(Location::caller());
        (**self).publish(cell, value, step);
    }
    fn compare_exchange(&self, cell: &AtomicU64, current: u64, new: u64) -> Result<u64, u64> {
        (**self).called_from(Location::caller());
        (**self).compare_exchange(cell, current, new)
    }
    fn flush_lines(&self, start: *const u8, bytes: usize, step: Step) {
        (**self).called_from(Location::caller());
        (**self).flush_lines(start, bytes, step);
    }
    fn drain(&self, step: Step) {
        (**self).called_from(Location::caller());
        (**self).drain(step);
    }
    fn extended(&self, last: &AtomicU64) {
        (**self).called_from(Location::caller());
        (**self).extended(last);
    }
    fn has_room(&self) -> bool {
        (**self).has_room()
    }
    fn order_line(&self) {
        (**self).called_from(Location::caller());
        (**self).order_line();
    }
    fn about_to_read(&self, start: *const u8, bytes: usize) {
        (**self).about_to_read(start, bytes);
    }
    fn prefetch(&self, address: *const u8) {
        (**self).prefetch(address);
    }
    fn reached(&self, step: Step) {
        (**self).reached(step);
    }
    fn counts(&self) -> Option<[u64; 2]> {
        (**self).counts()
    }
    fn failed(&self) -> bool {
        (**self).failed()
    }
    fn fail(&self) {
        (**self).fail();
    }
}

/// Flushed lines that were not yet fenced. [`Persist::fence`] consumes it, on the thread that flushed:
///
/// ```compile_fail
/// use bristlecone_pm::Flushed;
///
/// let flushed = Flushed::none();
/// std::thread::spawn(move || drop(flushed));
/// ```
#[must_use = "a flush promises nothing before its fence"]
#[derive(Debug)]
pub struct Flushed(PhantomData<*const ()>);

impl Flushed {
    /// Returns an empty witness, from which a loop over lines begins.
    pub fn none() -> Self {
        Self(PhantomData)
    }

    /// Combines two witnesses.
    pub fn and(self, _other: Flushed) -> Self {
        self
    }
}

/// Proof that a flush was fenced. It does not say of which bytes: see [`Persist`].
#[must_use]
#[derive(Debug)]
pub struct Durable(());

/// Proof that stores to one line are ordered.
#[must_use]
#[derive(Debug)]
pub struct Ordered(());

/// States that a publishing store makes nothing reachable: it removes something, or its word is the whole data.
#[derive(Debug)]
pub struct Alone;

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Durable {}
    impl Sealed for super::Ordered {}
    impl Sealed for super::Alone {}
}

/// The witness that a publishing store requires: [`Durable`], [`Ordered`] within one line, or [`Alone`].
pub trait Witness: sealed::Sealed {}
impl Witness for Durable {}
impl Witness for Ordered {}
impl Witness for Alone {}

/// Flushes, fences and witnesses of every [`Medium`].
///
/// What a witness proves and does not prove:
///
/// - [`Durable`] proves that this thread flushed *something* and fenced it afterwards. It does not prove of which
///   bytes: a flush of the wrong range, or one before the last store to it, compiles. The types exclude a publish
///   without any fence, and a fence before its flush.
/// - [`Flushed`] stays with the thread that flushed: a fence waits for the flushes of its own thread alone.
/// - [`Ordered`] proves that the stores before it were kept in order, not that they share the line of the word.
/// - [`Alone`] proves nothing: it marks the place where a reviewer must check the reason.
///
/// The simulator checks ranges. It records for every line what was flushed and fenced, and builds every image that a
/// crash could leave of the rest. It removes each flush, moves it to the next line, and removes each fence and each
/// order, one at a time. A scenario must detect each of these mutations.
pub trait Persist: Medium {
    /// Starts writing back the lines of `value`.
    #[inline(always)]
    #[track_caller]
    fn flush<T: ?Sized>(&self, value: &T, step: Step) -> Flushed {
        self.flush_lines(std::ptr::from_ref(value).cast(), size_of_val(value), step);
        Flushed(PhantomData)
    }

    /// Waits for the flushes of this thread.
    #[inline(always)]
    #[track_caller]
    fn fence(&self, flushed: Flushed, step: Step) -> Durable {
        let Flushed(PhantomData) = flushed;
        self.drain(step);
        Durable(())
    }

    /// Flushes and fences `value`, which is durable when this returns.
    #[inline(always)]
    #[track_caller]
    fn persist<T: ?Sized>(&self, value: &T, step: Step) {
        let Durable(()) = self.persist_proof(value, step);
    }

    /// Flushes and fences `value`, and returns the proof for the word that makes it reachable.
    #[inline(always)]
    #[track_caller]
    fn persist_proof<T: ?Sized>(&self, value: &T, step: Step) -> Durable {
        let flushed = self.flush(value, step);
        self.fence(flushed, step)
    }

    /// Orders earlier stores before later ones **to one and the same line**.
    #[inline(always)]
    #[track_caller]
    fn ordered_within_line(&self) -> Ordered {
        self.order_line();
        Ordered(())
    }
}

impl<M: Medium> Persist for M {}
