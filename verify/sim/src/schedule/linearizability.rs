//! The search for an order of operations on one key that explains their results.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::model::access::{Access, Seen};

/// An operation on one key.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// What it does.
    pub access: Access,
    /// Its result. `None`: it had not returned before the end, and may have had an effect, or none.
    pub seen: Option<Seen>,
    /// Position of its call in one global order.
    pub called: u64,
    /// Position of its return in that order; `u64::MAX` without one.
    pub returned: u64,
}

/// A set of steps, by position.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Set(Box<[u64]>);

impl Set {
    fn new(steps: usize) -> Self {
        Self(vec![0; steps.div_ceil(64)].into())
    }

    fn has(&self, step: usize) -> bool {
        self.0[step / 64] >> (step % 64) & 1 == 1
    }

    fn with(&self, step: usize) -> Self {
        let mut set = self.clone();
        set.0[step / 64] |= 1 << (step % 64);
        set
    }
}

/// Returns whether some order of the steps, each at a point between its call and its return, explains every result and
/// leads from the value `first` to the value `last`: whether the history of the key is linearizable.
///
/// The search is that of Wing and Gong: it takes any step that was called before all others left had returned, and
/// remembers which sets of steps it has tried with which value. Its time grows with the number of steps that overlap.
pub fn explains(steps: &[Step], first: Option<u64>, last: Option<u64>) -> bool {
    let mut steps: Vec<_> = steps.iter().filter(|step| matters(step, steps, last)).copied().collect();
    // The search takes the last candidate first: the earliest call, and steps without a return at the end.
    steps.sort_by_key(|step| (step.seen.is_some(), Reverse(step.called)));
    let mut seen = HashSet::new();
    let mut open = vec![(Set::new(steps.len()), first)];
    while let Some((done, held)) = open.pop() {
        if !seen.insert((done.clone(), held)) {
            continue;
        }
        let left = || (0..steps.len()).filter(|step| !done.has(*step));
        // Operations that did not return may have had no effect.
        if held == last && left().all(|step| steps[step].seen.is_none()) {
            return true;
        }
        let earliest_return = left().map(|step| steps[step].returned).min().unwrap_or(u64::MAX);
        for next in left().filter(|step| steps[*step].called <= earliest_return) {
            let (after, due) = match steps[next].seen {
                Some(Seen::Refused) => (held, Seen::Refused),
                _ => steps[next].access.on(held),
            };
            if steps[next].seen.is_none_or(|seen| seen == due) {
                open.push((done.with(next), after));
            }
        }
    }
    false
}

/// Returns whether a step can be part of an explanation that does not exist without it. A step that did not return, and
/// whose value no other one shows or expects, need not have had an effect. (An update that did not return could have
/// needed it: it acts on any value, and shows none.)
fn matters(step: &Step, steps: &[Step], last: Option<u64>) -> bool {
    let (None, Some(written)) = (step.seen, write_of(step.access)) else { return true };
    let shows = |other: &Step| {
        let is_open_update = other.seen.is_none() && matches!(other.access, Access::Update(_));
        is_open_update || other.seen == Some(Seen::Value(Some(written))) || expects(other.access, written)
    };
    last == Some(written) || steps.iter().any(shows)
}

fn write_of(access: Access) -> Option<u64> {
    match access {
        Access::Insert(value) | Access::Upsert(value) | Access::InsertNew(value) | Access::Swap(_, value) => {
            Some(value)
        }
        Access::Get | Access::Update(_) | Access::Remove | Access::RemoveIf(_) | Access::Discard => None,
    }
}

fn expects(access: Access, value: u64) -> bool {
    matches!(access, Access::Swap(expected, _) | Access::RemoveIf(expected) if expected == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(access: Access, seen: Option<Seen>, called: u64, returned: u64) -> Step {
        Step { access, seen, called, returned }
    }

    const NOTHING: Option<Seen> = Some(Seen::Value(None));

    #[test]
    fn history_crash_keeps_what_returned_and_may_keep_what_did_not() {
        let done = [step(Access::Insert(1), NOTHING, 0, 1)];
        assert!(explains(&done, None, Some(1)) && !explains(&done, None, None));
        let pending = [step(Access::Insert(1), None, 0, u64::MAX)];
        assert!(explains(&pending, None, Some(1)) && explains(&pending, None, None));
        assert!(!explains(&pending, None, Some(2)));
    }

    #[test]
    fn history_crash_keeps_what_a_reader_saw() {
        let read = step(Access::Get, Some(Seen::Value(Some(1))), 1, 2);
        let steps = [step(Access::Insert(1), None, 0, u64::MAX), read];
        assert!(explains(&steps, None, Some(1)) && !explains(&steps, None, None));
    }

    #[test]
    fn history_operation_takes_effect_between_call_and_return() {
        let steps = [step(Access::Insert(1), NOTHING, 0, 1), step(Access::Get, NOTHING, 2, 3)];
        assert!(!explains(&steps, None, Some(1)));
        let steps = [step(Access::Insert(1), NOTHING, 0, 2), step(Access::Get, NOTHING, 1, 3)];
        assert!(explains(&steps, None, Some(1)));
    }

    #[test]
    fn history_refused_operation_changes_nothing() {
        let refused = [step(Access::Insert(1), Some(Seen::Refused), 0, 1)];
        assert!(explains(&refused, None, None) && !explains(&refused, None, Some(1)));
        assert!(explains(&refused, Some(2), Some(2)));
    }

    #[test]
    fn history_two_swaps_of_one_value_only_one_succeeds() {
        let swap = |new, seen, called| step(Access::Swap(0, new), Some(seen), called, 10);
        let one = [swap(1, Seen::Swapped, 0), swap(2, Seen::Value(Some(1)), 1)];
        assert!(explains(&one, Some(0), Some(1)) && !explains(&one, Some(0), Some(2)));
        let both = [swap(1, Seen::Swapped, 0), swap(2, Seen::Swapped, 1)];
        assert!(!explains(&both, Some(0), Some(1)) && !explains(&both, Some(0), Some(2)));
    }

    /// Returns a history of `length` operations, of which four overlap at any time.
    fn long(length: u64) -> Vec<Step> {
        let step_of = |n: u64| match n % 4 {
            3 => step(Access::Get, Some(Seen::Value(Some(n - 1))), n, n + 3),
            _ => step(Access::Upsert(n), Some(Seen::Done), n, n + 3),
        };
        (0..length).map(step_of).collect()
    }

    #[test]
    fn history_may_be_long() {
        assert!(explains(&long(4000), None, Some(3998)));
        let mut stale = long(4000);
        // A value that was overwritten long before the read was called.
        stale[3999].seen = Some(Seen::Value(Some(2)));
        assert!(!explains(&stale, None, Some(3998)));
    }

    #[test]
    fn history_writes_without_a_return_matter_only_if_their_value_is_shown() {
        let lost = |value, called| step(Access::Upsert(value), None, called, u64::MAX);
        let mut steps = long(400);
        // Without effect, or each between any two others: the search would not end if it tried all of them.
        steps.extend((0..100).map(|n| lost(10_000 + n, n)));
        assert!(explains(&steps, None, Some(398)));
        // One of them took effect at the end.
        assert!(explains(&steps, None, Some(10_042)));
        steps.push(step(Access::Get, Some(Seen::Value(Some(10_007))), 500, 501));
        assert!(explains(&steps, None, Some(10_007)));
        assert!(!explains(&steps, None, Some(20_000)));
    }

    #[test]
    fn history_update_without_a_return_may_need_a_write_without_one() {
        let steps = [
            step(Access::Upsert(1), None, 0, u64::MAX),
            step(Access::Update(2), None, 1, u64::MAX),
            step(Access::Get, Some(Seen::Value(Some(2))), 2, 3),
        ];
        assert!(explains(&steps, None, Some(2)));
    }
}
