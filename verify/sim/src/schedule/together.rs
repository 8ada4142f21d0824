//! Atomic operations on several keys: one order of all changes, transactions and snapshots must explain every
//! result and the state after a crash, and must agree with the real-time order of calls and returns.
//!
//! Lookups of single keys are left to the verification of each key: two of them have two different points in
//! time.

use std::collections::{BTreeMap, HashSet};

use super::history::{Answer, Entry, Operation};
use crate::model::access::{Access, Seen};

type Items = BTreeMap<u64, u64>;

/// A step of the order.
struct Step<'a> {
    each: &'a [(u64, Access)],
    /// `None`: it had not returned before the crash.
    answer: Option<&'a Answer>,
    called: u64,
    returned: u64,
}

impl Step<'_> {
    /// Applies the step; `None` if its result would differ.
    fn follow(&self, mut items: Items) -> Option<Items> {
        let seen: &[Seen] = match self.answer {
            Some(Answer::Together { items: Some(shown), .. }) if *shown != items => return None,
            Some(Answer::Together { seen, .. }) => seen,
            Some(Answer::One(seen)) => std::slice::from_ref(seen),
            _ => &[],
        };
        // Refused as a whole.
        if seen.contains(&Seen::Refused) {
            return Some(items);
        }
        for (at, (key, access)) in self.each.iter().enumerate() {
            let (after, due) = access.on(items.get(key).copied());
            if self.answer.is_some() && seen.get(at) != Some(&due) {
                return None;
            }
            match after {
                Some(value) => _ = items.insert(*key, value),
                None => _ = items.remove(key),
            }
        }
        Some(items)
    }
}

/// Verifies the state after a crash before event `at`, if a history has operations on several keys.
pub(super) fn verify(history: &[Entry], at: usize, before: &Items, found: &Items) -> Result<(), String> {
    if !history.iter().any(|entry| matches!(entry.operation, Operation::Together { .. })) {
        return Ok(());
    }
    let ones: Vec<_> = history.iter().map(|entry| one_of(&entry.operation)).collect();
    let begun = history.iter().zip(&ones).filter(|(entry, _)| entry.began < at || entry.ended <= at);
    let steps = begun.filter_map(|(entry, one)| {
        let each = match &entry.operation {
            Operation::Together { each, .. } => each,
            _ => one.as_slice(),
        };
        let is_step = !each.is_empty() || matches!(entry.operation, Operation::Together { .. });
        let ended = entry.ended <= at;
        let returned = if ended { entry.returned } else { u64::MAX };
        let answer = ended.then_some(&entry.answer);
        is_step.then_some(Step { each, answer, called: entry.called, returned })
    });
    let steps: Vec<_> = steps.collect();
    if explains(&steps, before, found) {
        return Ok(());
    }
    let described = history.iter().map(|entry| {
        let Entry { operation, answer, called, returned, .. } = entry;
        let over = if entry.ended <= at { "" } else { ", which did not return" };
        format!("{operation:?} from {called} to {returned} saw {answer:?}{over}")
    });
    let described: Vec<_> = described.collect();
    Err(format!("{before:?} became {found:?}, which no one order explains of: {}", described.join("; ")))
}

/// Returns the change of a single key, if an operation is one.
fn one_of(operation: &Operation) -> Vec<(u64, Access)> {
    match operation {
        Operation::On(key, access) if *access != Access::Get => vec![(*key, *access)],
        _ => Vec::new(),
    }
}

fn explains(steps: &[Step<'_>], first: &Items, last: &Items) -> bool {
    assert!(steps.len() <= 32, "more operations than a word has bits");
    let mut seen = HashSet::new();
    let mut open = vec![(0_u32, first.clone())];
    while let Some((done, items)) = open.pop() {
        if !seen.insert((done, items.clone())) {
            continue;
        }
        let left = || (0..steps.len()).filter(|step| done >> step & 1 == 0);
        if items == *last && left().all(|step| steps[step].answer.is_none()) {
            return true;
        }
        let earliest_return = left().map(|step| steps[step].returned).min().unwrap_or(u64::MAX);
        for next in left().filter(|step| steps[*step].called <= earliest_return) {
            open.extend(steps[next].follow(items.clone()).map(|after| (done | 1 << next, after)));
        }
    }
    false
}

/// The classic anomalies, each as a history that must be rejected beside one that is allowed.
#[cfg(test)]
mod tests {
    use super::*;
    use Access::{Get, Insert, Upsert};

    const X: u64 = 1;
    const Y: u64 = 2;

    fn value(value: u64) -> Seen {
        Seen::Value(Some(value))
    }

    /// Returns an operation with its results and the times of its call and return; it covers the events in
    /// between.
    fn entry(each: &[(u64, Access)], seen: &[Seen], (called, returned): (u64, u64)) -> Entry {
        let operation = Operation::Together { scans: false, each: each.to_vec() };
        let answer = Answer::Together { items: None, seen: seen.to_vec() };
        let (began, ended) = (called as usize, returned as usize);
        Entry { thread: 0, operation, answer, called, returned, began, ended }
    }

    fn view(items: &[(u64, u64)], times: (u64, u64)) -> Entry {
        let operation = Operation::Together { scans: true, each: Vec::new() };
        let answer = Answer::Together { items: Some(items.iter().copied().collect()), seen: Vec::new() };
        Entry { operation, answer, ..entry(&[], &[], times) }
    }

    fn single(key: u64, access: Access, seen: Seen, times: (u64, u64)) -> Entry {
        let (operation, answer) = (Operation::On(key, access), Answer::One(seen));
        Entry { operation, answer, ..entry(&[], &[], times) }
    }

    fn passes_at(history: &[Entry], at: usize, found: [u64; 2]) -> bool {
        let (before, found) = ([(X, 0), (Y, 0)].into(), [(X, found[0]), (Y, found[1])].into());
        verify(history, at, &before, &found).is_ok()
    }

    fn passes(history: &[Entry], found: [u64; 2]) -> bool {
        passes_at(history, usize::MAX, found)
    }

    #[test]
    fn together_lost_updates_are_noticed() {
        let add = |seen, new, times| entry(&[(X, Get), (X, Upsert(new))], &[value(seen), Seen::Done], times);
        assert!(passes(&[add(0, 1, (0, 5)), add(1, 2, (1, 6))], [2, 0]));
        assert!(!passes(&[add(0, 1, (0, 5)), add(0, 1, (1, 6))], [1, 0]));
    }

    #[test]
    fn together_write_skew_is_noticed_of_keys_and_of_ranges() {
        let skew = |read, written, seen, times| {
            entry(&[(read, Get), (written, Upsert(7))], &[value(seen), Seen::Done], times)
        };
        assert!(passes(&[skew(X, Y, 0, (0, 5)), skew(Y, X, 7, (1, 6))], [7, 7]));
        assert!(!passes(&[skew(X, Y, 0, (0, 5)), skew(Y, X, 0, (1, 6))], [7, 7]));
        let scan = |items: &[(u64, u64)], written, times| {
            let (key, shown) = (written, items.iter().copied().collect());
            let operation = Operation::Together { scans: true, each: vec![(key, Upsert(7))] };
            let answer = Answer::Together { items: Some(shown), seen: vec![Seen::Done] };
            Entry { operation, answer, ..entry(&[], &[], times) }
        };
        assert!(passes(&[scan(&[(X, 0), (Y, 0)], X, (0, 5)), scan(&[(X, 7), (Y, 0)], Y, (1, 6))], [7, 7]));
        assert!(!passes(&[scan(&[(X, 0), (Y, 0)], X, (0, 5)), scan(&[(X, 0), (Y, 0)], Y, (1, 6))], [7, 7]));
    }

    #[test]
    fn together_read_skew_is_noticed() {
        let both = || entry(&[(X, Upsert(1)), (Y, Upsert(1))], &[Seen::Done; 2], (0, 5));
        let read = |x, y| entry(&[(X, Get), (Y, Get)], &[value(x), value(y)], (1, 6));
        assert!(passes(&[both(), read(0, 0)], [1, 1]) && passes(&[both(), read(1, 1)], [1, 1]));
        assert!(!passes(&[both(), read(1, 0)], [1, 1]) && !passes(&[both(), read(0, 1)], [1, 1]));
    }

    #[test]
    fn together_torn_batch_after_a_crash_is_noticed() {
        let both = [entry(&[(X, Upsert(1)), (Y, Upsert(1))], &[Seen::Done; 2], (0, 9))];
        assert!(passes_at(&both, 5, [1, 1]) && passes_at(&both, 5, [0, 0]));
        assert!(!passes_at(&both, 5, [1, 0]) && !passes_at(&both, 5, [0, 1]));
        assert!(!passes_at(&both, 9, [0, 0]), "it had returned");
    }

    #[test]
    fn together_snapshot_with_a_late_write_is_noticed() {
        let writes = || [single(X, Insert(1), value(0), (0, 3)), single(Y, Insert(1), value(0), (4, 8))];
        let with = |items: &[(u64, u64)], times| {
            let [first, second] = writes();
            passes(&[first, second, view(items, times)], [1, 1])
        };
        assert!(with(&[(X, 1), (Y, 0)], (1, 6)) && with(&[(X, 0), (Y, 0)], (1, 6)));
        assert!(!with(&[(X, 0), (Y, 1)], (1, 6)), "a write without an earlier one");
        assert!(!with(&[(X, 0), (Y, 0)], (9, 12)), "without what had returned");
        assert!(!with(&[(X, 1), (Y, 1)], (1, 3)), "with what was not called yet");
    }

    #[test]
    fn together_replay_over_a_newer_value_is_noticed() {
        let batch = entry(&[(X, Upsert(1)), (Y, Upsert(1))], &[Seen::Done; 2], (0, 3));
        let later = single(X, Insert(2), value(1), (4, 6));
        assert!(passes_at(&[batch.clone(), later.clone()], 7, [2, 1]));
        assert!(!passes_at(&[batch, later], 7, [1, 1]));
    }
}
