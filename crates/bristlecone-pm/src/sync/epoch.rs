//! Epoch-based reclamation: an object removed from a structure is freed once no thread that may have seen it is
//! pinned.
//!
//! The implementation is crossbeam's. Where one system thread runs several simulated threads, each of these has its
//! own participant, set up with `simulate`.

use std::cell::{Cell, RefCell};

pub use crossbeam_epoch::Guard;
use crossbeam_epoch::{Collector, LocalHandle};
use crossbeam_utils::CachePadded;

use crate::sync::HAS_TURNS;
use crate::sync::wait::{Access, Use, charge, cross};
use crate::thread_index;

/// Maximum number of epochs that [`settle`] ends.
const EPOCHS_ENDED: usize = 256;

/// Number of pins of a thread after which crossbeam attempts to end the epoch.
const PINS_BETWEEN_COLLECTIONS: u64 = 128;

/// When simulated threads free objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frees {
    /// At each pin, as early as possible, so that short runs cover it.
    Early,
    /// As real threads do. The accesses of a pin are passed to the cost model.
    Usual,
}

/// The participants of simulated threads.
struct Participants {
    frees: Frees,
    /// Stands for the line of the global epoch.
    global: Box<CachePadded<u8>>,
    /// By their numbers.
    each: Vec<Participant>,
}

struct Participant {
    handle: LocalHandle,
    /// The number of pins. Its line stands for that of the participant.
    pins: Box<CachePadded<Cell<u64>>>,
}

thread_local! {
    static PARTICIPANTS: RefCell<Option<Participants>> = const { RefCell::new(None) };
}

/// Pins the calling thread: objects reachable now are not freed before the guard is dropped.
#[inline(always)]
pub fn pin() -> Guard {
    if HAS_TURNS && let Some(guard) = pin_simulated() {
        return guard;
    }
    crossbeam_epoch::pin()
}

/// Ends epochs until `is_over` returns true, but a limited number of times: after that, a pinned thread, or one
/// that deferred a free, must be blocking progress. Returns the last result of `is_over`.
pub fn settle(mut is_over: impl FnMut() -> bool) -> bool {
    for _ in 0..EPOCHS_ENDED {
        if is_over() {
            return true;
        }
        pin().flush();
    }
    is_over()
}

/// Makes the calling thread run `threads` simulated threads, each with its own epochs, in a build with the feature
/// `turns`. 0 ends this, and frees what waits for their epochs.
pub fn simulate(threads: usize, frees: Frees) {
    let collector = Collector::new();
    let participant = |_| Participant { handle: collector.register(), pins: Box::default() };
    let each = (0..threads).map(participant).collect();
    let participants = Participants { frees, global: Box::default(), each };
    drop(PARTICIPANTS.replace((threads > 0).then_some(participants)));
}

fn pin_simulated() -> Option<Guard> {
    let frees = PARTICIPANTS.try_with(|all| all.borrow().as_ref().map(|all| all.frees)).ok()??;
    if frees == Frees::Usual {
        charge_pin();
    }
    let guard =
        PARTICIPANTS.try_with(|all| Some(all.borrow().as_ref()?.each.get(thread_index())?.handle.pin()));
    let guard = guard.ok()??;
    if frees == Frees::Early {
        cross();
        guard.flush();
    }
    Some(guard)
}

/// Passes the accesses of a pin to the cost model: a locked instruction on the participant's own line and a load of the
/// global epoch; when it may end an epoch, also a load of each participant.
fn charge_pin() {
    let at = |number: usize| {
        PARTICIPANTS.with_borrow(|all| {
            let all = all.as_ref()?;
            let pins = &all.each.get(number)?.pins;
            Some((Access::of(&**all.global, Use::Load), Access::of(&***pins, Use::Locked), pins.get()))
        })
    };
    let own = thread_index();
    let Some((global, line, pins)) = at(own) else { return };
    charge(global);
    charge(line);
    PARTICIPANTS.with_borrow(|all| {
        let _ = all.as_ref().and_then(|all| all.each.get(own)).map(|own| own.pins.set(pins + 1));
    });
    if (pins + 1).is_multiple_of(PINS_BETWEEN_COLLECTIONS) {
        for (_, line, _) in (0..).map_while(at) {
            charge(Access { by: Use::Load, ..line });
        }
        charge(Access { by: Use::Store, ..global });
    }
}
