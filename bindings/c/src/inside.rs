//! Records which handles each thread is in a call on, so that closing a handle does not free its object during a
//! call.
//!
//! A call stores its handle in its thread's slot and checks whether the handle is still open. Closing marks the
//! handle as closed, and then reads all slots. Each side needs a fence between its store and its load. Calls are
//! frequent, so the closing thread executes their fence for them (`membarrier`), if the kernel supports it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, compiler_fence, fence};

use bristlecone_pm::own_thread_index;

use crate::status::{Failure, Outcome};

/// Maximum nesting of a thread's calls within callbacks.
const DEPTH_MAX: usize = 8;

/// Handles that a thread is inside; zero for none.
#[repr(align(64))]
struct Line([AtomicU64; DEPTH_MAX]);

const GROUP: usize = 64;
const GROUPS: usize = 1024;

/// The slots of threads by their numbers, allocated on demand, and never freed.
static LINES: [AtomicPtr<[Line; GROUP]>; GROUPS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; GROUPS];

/// Slots for threads without a number: those that are ending, and those beyond 65,536. Allocated for a call.
static SPARE: [Line; GROUP] = [const { Line([const { AtomicU64::new(0) }; DEPTH_MAX]) }; GROUP];

/// How calls and closes are ordered: undecided, by the closing thread, or by both.
static ORDER: AtomicU8 = AtomicU8::new(0);
const BY_KERNEL: u8 = 1;
const BY_BOTH: u8 = 2;

/// Guard: while it lives, the thread is inside the handle.
pub struct Note(&'static AtomicU64);

impl Drop for Note {
    #[inline(always)]
    fn drop(&mut self) {
        // Pairs with the load in `anyone`: the call has finished using the handle.
        self.0.store(0, Release);
    }
}

/// Decides how calls and closes are ordered, before the first handle exists.
pub fn prepare() {
    if ORDER.load(Relaxed) == 0 {
        let order =
            if membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) { BY_KERNEL } else { BY_BOTH };
        ORDER.store(order, SeqCst);
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: it takes numbers, and only affects the visibility of other threads' stores in this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Records that the thread is about to use a handle. Later loads see all stores of a close that does not see the
/// record.
#[inline(always)]
pub fn enter(handle: u64) -> Outcome<Note> {
    let place = match own_thread_index().and_then(line) {
        // Only this thread writes to its slot.
        Some(line) => line.0.iter().find(|place| place.load(Relaxed) == 0),
        None => spare(handle),
    };
    let Some(place) = place else { return Err(too_deep()) };
    place.store(handle, Relaxed);
    if ORDER.load(Relaxed) == BY_KERNEL {
        compiler_fence(SeqCst)
    } else {
        fence(SeqCst)
    }
    Ok(Note(place))
}

#[cold]
fn too_deep() -> Failure {
    Failure::usage(format!("calls within callbacks of calls, more than {DEPTH_MAX} deep"))
}

#[inline(always)]
fn line(number: usize) -> Option<&'static Line> {
    let group = LINES.get(number / GROUP)?;
    let mut lines = group.load(Acquire);
    if lines.is_null() {
        lines = make(group);
    }
    // SAFETY: created below, and never freed.
    Some(unsafe { &(*lines)[number % GROUP] })
}

#[cold]
fn make(group: &AtomicPtr<[Line; GROUP]>) -> *mut [Line; GROUP] {
    let empty = || Line([const { AtomicU64::new(0) }; DEPTH_MAX]);
    let made = Box::into_raw(Box::new(std::array::from_fn(|_| empty())));
    match group.compare_exchange(std::ptr::null_mut(), made, AcqRel, Acquire) {
        Ok(_) => made,
        Err(other) => {
            // SAFETY: it came from `Box::into_raw` just now.
            drop(unsafe { Box::from_raw(made) });
            other
        }
    }
}

#[cold]
fn spare(handle: u64) -> Option<&'static AtomicU64> {
    let mut places = SPARE.iter().flat_map(|line| &line.0);
    places.find(|place| place.compare_exchange(0, handle, Relaxed, Relaxed).is_ok())
}

/// Orders all earlier stores with the calls of other threads: afterwards either [`anyone`] sees a call's record, or
/// the call sees the stores. `Err`: the kernel refused, and nothing is ordered.
pub fn order() -> Result<(), ()> {
    fence(SeqCst);
    if ORDER.load(Relaxed) == BY_BOTH || membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        return Ok(());
    }
    // A forked child may have to register itself.
    let registered = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    if registered && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) { Ok(()) } else { Err(()) }
}

/// Returns whether the calling thread is inside the handle.
pub fn this_thread(handle: u64) -> bool {
    let line = own_thread_index().and_then(line);
    line.is_some_and(|line| line.0.iter().any(|place| place.load(Relaxed) == handle))
}

/// Returns whether any thread is inside the handle.
pub fn anyone(handle: u64) -> bool {
    let of_group = |group: &AtomicPtr<[Line; GROUP]>| {
        // SAFETY: null, or created above and never freed.
        unsafe { group.load(Acquire).as_ref() }
    };
    let mut lines = LINES.iter().filter_map(of_group).flatten().chain(&SPARE);
    lines.any(|line| line.0.iter().any(|place| place.load(Acquire) == handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_inside_as_long_as_its_note_lives() {
        prepare();
        let handle = u64::MAX - 7;
        let notes: Vec<_> = (0..DEPTH_MAX).map(|_| enter(handle).unwrap()).collect();
        assert!(enter(handle).is_err());
        assert!(this_thread(handle) && anyone(handle));
        std::thread::spawn(move || assert!(!this_thread(handle) && anyone(handle))).join().unwrap();
        drop(notes);
        assert!(order().is_ok() && !this_thread(handle) && !anyone(handle));
    }

    #[test]
    fn threads_without_a_number_have_spare_lines() {
        let handle = u64::MAX - 8;
        let place = spare(handle).unwrap();
        assert!(anyone(handle));
        drop(Note(place));
        assert!(!anyone(handle));
    }
}
