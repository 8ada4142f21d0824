//! Durable linearizability: there must be an order of all operations, each at a point between its
//! call and its return, that explains every result and the state after a crash.
//!
//! Keys are independent of each other, so each is verified separately.

use std::collections::{BTreeMap, BTreeSet};

use super::linearizability::{Step, explains};
use crate::model::access::{Access, Seen};

/// A way of reading all items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// An iterator, from the first one on.
    Forward,
    /// An iterator, from the last one back.
    Backward,
    /// A closure that is called for each of them.
    Visit,
}

impl Way {
    /// Draws one of them: every other one is forward.
    pub fn draw(draw: &mut dyn FnMut(usize) -> usize) -> Self {
        [Self::Forward, Self::Forward, Self::Backward, Self::Visit][draw(4)]
    }
}

/// An operation of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// An operation on one key.
    On(u64, Access),
    /// One multi-key call: each of its operations is atomic, but the call is not.
    Many(Vec<(u64, Access)>),
    /// A scan of all items.
    Scan(Way),
    /// A scan of all items, if `scans`, and then operations on keys: atomic as a whole.
    Together {
        /// Whether it begins with a scan of all items.
        scans: bool,
        /// Operations after that, in order.
        each: Vec<(u64, Access)>,
    },
}

impl Operation {
    /// Returns its keys.
    pub fn keys(&self) -> Vec<u64> {
        match self {
            Self::On(key, _) => vec![*key],
            Self::Many(each) | Self::Together { each, .. } => each.iter().map(|(key, _)| *key).collect(),
            Self::Scan(_) => Vec::new(),
        }
    }
}

/// The result of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Of an operation on one key.
    One(Seen),
    /// Of a multi-key call.
    Many(Vec<Seen>),
    /// Of a scan.
    All(BTreeMap<u64, u64>),
    /// Of an atomic group.
    Together {
        /// Of the scan, if there was one.
        items: Option<BTreeMap<u64, u64>>,
        /// Of the operations.
        seen: Vec<Seen>,
    },
}

/// An operation with its interval of time.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) thread: usize,
    pub(super) operation: Operation,
    pub(super) answer: Answer,
    /// Positions of calls and returns in one global order.
    pub(super) called: u64,
    pub(super) returned: u64,
    /// Number of events of the trace at the call and at the return.
    pub(super) began: usize,
    pub(super) ended: usize,
}

/// Verifies the state of each key after a crash before event `at`. `before` is the initial state.
pub(super) fn verify(
    history: &[Entry],
    at: usize,
    before: &BTreeMap<u64, u64>,
    found: &BTreeMap<u64, u64>,
) -> Result<(), String> {
    let of_history = history.iter().flat_map(|entry| entry.operation.keys());
    let keys: BTreeSet<u64> = of_history.chain(before.keys().copied()).chain(found.keys().copied()).collect();
    for key in keys {
        let steps = steps_of(history, at, key);
        let (first, last) = (before.get(&key).copied(), found.get(&key).copied());
        if !explains(&steps, first, last) {
            let described: Vec<_> = steps.iter().map(describe).collect();
            return Err(format!(
                "key {key} held {first:?} at first and {last:?} after the crash, which no order explains of: {}",
                described.join("; ")
            ));
        }
    }
    Ok(())
}

fn describe(step: &Step) -> String {
    let Step { access, seen, called, returned } = step;
    match seen {
        Some(seen) => format!("{access:?} from {called} to {returned} saw {seen:?}"),
        None => format!("{access:?} from {called} on did not return"),
    }
}

fn steps_of(history: &[Entry], at: usize, key: u64) -> Vec<Step> {
    let begun = history.iter().filter(|entry| entry.began < at || entry.ended <= at);
    let steps = |entry: &Entry| {
        let parts = match (&entry.operation, &entry.answer) {
            (Operation::On(of, access), Answer::One(seen)) if *of == key => vec![(*access, *seen)],
            (Operation::Many(each), Answer::Many(seen)) => {
                let each = each.iter().zip(seen).filter(|((of, _), _)| *of == key);
                each.map(|((_, access), seen)| (*access, *seen)).collect()
            }
            (Operation::Together { each, .. }, Answer::Together { items, seen }) => {
                let each = each.iter().zip(seen).filter(|((of, _), _)| *of == key);
                let each = each.map(|((_, access), seen)| (*access, *seen));
                let shown = items.iter().map(|items| (Access::Get, Seen::Value(items.get(&key).copied())));
                shown.chain(each).collect()
            }
            (Operation::Scan(_), Answer::All(items)) => {
                vec![(Access::Get, Seen::Value(items.get(&key).copied()))]
            }
            _ => Vec::new(),
        };
        let ended = entry.ended <= at;
        let returned = if ended { entry.returned } else { u64::MAX };
        let (called, step) = (entry.called, move |(access, seen)| (access, ended.then_some(seen)));
        parts.into_iter().map(step).map(move |(access, seen)| Step { access, seen, called, returned })
    };
    begun.flat_map(steps).collect()
}
