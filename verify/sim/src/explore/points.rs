//! The events of a trace at which a crash is distinguishable.
//!
//! It suffices to crash just before each fence and each successful locked instruction, and at each
//! acknowledgement. A crash at another event leaves a subset of their images, while the promises
//! made to callers are the same. If caches survive, every store is such an event.

use crate::model::cache::Cache;
use crate::model::mode::Mode;
use crate::model::trace::{Event, Mark};

/// The states allowed after a crash: `states[from..=to]` of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Allowed {
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Allowed {
    /// Allows only this state.
    pub(crate) fn only(state: usize) -> Self {
        Self { from: state, to: state }
    }
}

/// Feeds a trace from event `first` on to the cache and stops at each such event, with the number
/// of the next event and the allowed states.
pub(crate) fn walk(
    mode: Mode,
    cache: &mut Cache,
    first: usize,
    trace: &[Event],
    mut allowed: Allowed,
    visit: &mut impl FnMut(&Cache, usize, Allowed) -> Result<(), String>,
) -> Result<(), String> {
    let mut visited = None;
    for (at, event) in trace.iter().enumerate().skip(first) {
        let crash = match event {
            Event::Mark(Mark::Begin(op)) => {
                allowed = Allowed { from: *op, to: op + 1 };
                false
            }
            Event::Mark(Mark::End(op)) => {
                allowed = Allowed::only(op + 1);
                true
            }
            Event::Mark(Mark::Opened) | Event::Fence { .. } | Event::Locked { .. } => true,
            Event::Store { .. } | Event::Extended { .. } => mode == Mode::Eadr,
            Event::Flush { .. } | Event::Order { .. } => false,
        };
        let moment = Some((cache.stores(), allowed));
        // Promises alone only reduce the set of images: without a store there is no new image.
        if crash && moment != visited {
            visit(cache, at, allowed)?;
            visited = moment;
        }
        cache.feed(event);
    }
    Ok(())
}
