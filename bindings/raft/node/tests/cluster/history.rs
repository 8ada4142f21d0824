//! What clients did and saw, and whether some order explains it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use bristlecone_sim::{Access, Seen, Step, explains};

/// Calls and returns of all clients, in one order.
#[derive(Debug, Default)]
pub struct History {
    now: AtomicU64,
    steps: Mutex<Vec<(u64, Step)>>,
}

impl History {
    /// Notes a call; returns its position.
    pub fn call(&self) -> u64 {
        self.now.fetch_add(1, SeqCst)
    }

    /// Notes the result of an operation on a key; `None` if it may take effect, or not.
    pub fn note(&self, key: u64, access: Access, called: u64, seen: Option<Seen>) {
        self.note_all(called, [(key, access, seen)]);
    }

    /// Notes the results of one operation on several keys.
    pub fn note_all(&self, called: u64, seen: impl IntoIterator<Item = (u64, Access, Option<Seen>)>) {
        let now = self.now.fetch_add(1, SeqCst);
        let mut steps = self.steps.lock().unwrap();
        for (key, access, seen) in seen {
            let returned = if seen.is_some() { now } else { u64::MAX };
            steps.push((key, Step { access, seen, called, returned }));
        }
    }

    /// Returns the number of operations that returned, and of those that may have taken effect.
    pub fn counts(&self) -> (usize, usize) {
        let steps = self.steps.lock().unwrap();
        let done = steps.iter().filter(|(_, step)| step.seen.is_some()).count();
        (done, steps.len() - done)
    }

    /// Fails unless the history of each key is linearizable and ends with its last value.
    pub fn verify(&self, last: &BTreeMap<u64, u64>) {
        let steps = self.steps.lock().unwrap();
        let keys: BTreeSet<u64> = steps.iter().map(|(key, _)| *key).collect();
        for key in keys {
            let own: Vec<_> = steps.iter().filter(|(of, _)| *of == key).map(|(_, step)| *step).collect();
            let last = last.get(&key).copied();
            assert!(
                explains(&own, None, last),
                "no order explains key {key}, which ends as {last:?}: {own:#?}"
            );
        }
    }
}
