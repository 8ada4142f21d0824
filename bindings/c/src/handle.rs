//! Handles: numbers that look like pointers in C, and are looked up in a table.
//!
//! A handle consists of the index of a slot and the slot's generation, which increases when the handle is closed: a
//! closed handle, a null one, and any value that never was a handle are rejected. A slot's object is only removed when
//! no call is inside the handle (see [`crate::inside`]).

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use crate::inside::{self, Note};
use crate::object::{Handle, Object};
use crate::status::{BRISTLECONE_IN_USE, Failure, Outcome};

const INDEX_BITS: u32 = 20;
const SEGMENT: usize = 256;
const SEGMENTS: usize = (1 << INDEX_BITS) / SEGMENT;

/// How long a close waits for calls of other threads.
const PATIENCE: Duration = Duration::from_millis(200);

/// A slot's state: its generation, and one of these.
const FREE: u64 = 0;
const OPEN: u64 = 1;
/// A thread is storing or removing its object.
const HELD: u64 = 2;
const STATES: u64 = 4;

struct Slot {
    state: AtomicU64,
    object: UnsafeCell<Option<Object>>,
}

// SAFETY: access to the object depends on the state: one thread holds it exclusively, or all share it; objects are
// `Send` and `Sync`.
unsafe impl Sync for Slot {}

type Segment = [Slot; SEGMENT];

static TABLE: [AtomicPtr<Segment>; SEGMENTS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SEGMENTS];

/// Index of a slot that may be free.
static HINT: AtomicUsize = AtomicUsize::new(0);

/// Objects move between threads with their handles.
const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Object>();
};

/// The object of a handle that a call is inside: it stays valid while this lives.
pub struct Inside<H> {
    object: &'static Object,
    _note: Note,
    _handle: PhantomData<H>,
}

impl<H> Inside<H> {
    /// Returns the object, whose type may differ from the handle's.
    #[inline(always)]
    pub fn object(&self) -> &Object {
        self.object
    }
}

fn handle_of(index: usize, state: u64) -> u64 {
    (state / STATES) << INDEX_BITS | index as u64
}

#[inline(always)]
fn slot(index: usize) -> Option<&'static Slot> {
    // SAFETY: null, or created in `slot_or_new` and never freed.
    let segment = unsafe { TABLE[index / SEGMENT].load(Acquire).as_ref() }?;
    Some(&segment[index % SEGMENT])
}

/// Returns the slot of a possible handle, with the state in which it is open.
#[inline(always)]
fn find(handle: u64) -> Option<(&'static Slot, u64)> {
    let slot = slot(handle as usize & ((1 << INDEX_BITS) - 1))?;
    let generation = handle >> INDEX_BITS;
    (generation != 0).then(|| (slot, (generation * STATES) | OPEN))
}

/// Returns the object of a handle, for the duration of a call.
#[inline(always)]
pub fn enter<H>(handle: *const H) -> Outcome<Inside<H>> {
    let handle = handle.addr() as u64;
    let Some((slot, open)) = find(handle) else { return Err(no_handle(handle)) };
    let note = inside::enter(handle)?;
    // Pairs with the release in `put`: the object is complete.
    if slot.state.load(Acquire) != open {
        return Err(no_handle(handle));
    }
    // SAFETY: the handle was open after the note was stored: a thread that closes it sees the note, and leaves the
    // object.
    let object = unsafe { &*slot.object.get() };
    Ok(Inside {
        object: object.as_ref().ok_or_else(|| no_handle(handle))?,
        _note: note,
        _handle: PhantomData,
    })
}

#[cold]
fn no_handle(handle: u64) -> Failure {
    Failure::usage(if handle == 0 { "a null handle" } else { "a handle that was closed, or never was one" })
}

/// Returns a new handle to an object.
pub fn put<H>(object: Object) -> Outcome<*mut H> {
    inside::prepare();
    let hint = HINT.load(Relaxed);
    for step in 0..SEGMENT * SEGMENTS {
        let index = (hint + step) % (SEGMENT * SEGMENTS);
        let slot = slot_or_new(index);
        let state = slot.state.load(Relaxed);
        if state % STATES != FREE
            || slot.state.compare_exchange(state, state | HELD, AcqRel, Relaxed).is_err()
        {
            continue;
        }
        // SAFETY: held exclusively by this thread, which created it.
        unsafe { *slot.object.get() = Some(object) };
        let open = ((state / STATES + 1) * STATES) | OPEN;
        slot.state.store(open, Release);
        HINT.store(index + 1, Relaxed);
        return Ok(std::ptr::without_provenance_mut(handle_of(index, open) as usize));
    }
    Err(Failure::usage(format!("more than {} handles are open: close some", SEGMENT * SEGMENTS)))
}

fn slot_or_new(index: usize) -> &'static Slot {
    if let Some(slot) = slot(index) {
        return slot;
    }
    let empty = || Slot { state: AtomicU64::new(FREE), object: UnsafeCell::new(None) };
    let made: Box<Segment> = Box::new(std::array::from_fn(|_| empty()));
    let (place, made) = (&TABLE[index / SEGMENT], Box::into_raw(made));
    let segment = match place.compare_exchange(std::ptr::null_mut(), made, AcqRel, Acquire) {
        Ok(_) => made,
        Err(other) => {
            // SAFETY: it came from `Box::into_raw` just now.
            drop(unsafe { Box::from_raw(made) });
            other
        }
    };
    // SAFETY: in the table, and never freed.
    unsafe { &(*segment)[index % SEGMENT] }
}

/// Closes a handle, if `close` takes its object; otherwise the handle stays open. Returns the result of `close`.
///
/// Waits briefly for calls of other threads; if they do not end, the handle stays open. In a child of the process that
/// created the object, it is not touched.
pub fn close<H: Handle>(handle: *const H, close: impl FnOnce(&mut Option<Object>) -> Outcome) -> Outcome {
    let number = handle.addr() as u64;
    let inherited = match enter(handle)?.get() {
        Err(Failure::Core(bristlecone_rs::Error::Forked { .. })) => true,
        other => other.map(|_| false)?,
    };
    let Some((slot, open)) = find(number) else { return Err(no_handle(number)) };
    if inside::this_thread(number) {
        return Err(busy("this thread is in a call on the handle: close it after that"));
    }
    if slot.state.compare_exchange(open, open ^ OPEN ^ HELD, AcqRel, Relaxed).is_err() {
        return Err(no_handle(number));
    }
    if inherited {
        // SAFETY: held exclusively by this thread; threads that were inside at the fork do not exist in the child.
        if let Some(object) = unsafe { &*slot.object.get() } {
            object.abandon();
        }
        return Ok(());
    }
    let reopen = || slot.state.store(open, Release);
    if !becomes_empty(number) {
        reopen();
        return Err(busy("another thread is in a call on the handle: end that first"));
    }
    // SAFETY: held exclusively by this thread, and no call is inside.
    let object = unsafe { &mut *slot.object.get() };
    let closed = close(object);
    if object.is_some() {
        reopen();
    } else {
        slot.state.store(open ^ OPEN, Release);
        HINT.store(number as usize & ((1 << INDEX_BITS) - 1), Relaxed);
    }
    closed
}

#[cold]
fn busy(what: &str) -> Failure {
    Failure::Said(BRISTLECONE_IN_USE, what.to_owned())
}

/// Waits until no thread is inside a handle that was closed to new calls. Returns `false` if that takes too long.
fn becomes_empty(handle: u64) -> bool {
    if inside::order().is_err() {
        return false;
    }
    let begun = Instant::now();
    while inside::anyone(handle) {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
