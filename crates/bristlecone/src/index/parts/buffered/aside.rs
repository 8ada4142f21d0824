//! Keys that left the tree, and whose records are kept because log entries still refer to them.

use std::sync::Mutex;

use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::sync::{AtomicUsize, Ordering::Relaxed};
use bristlecone_pm::thread_index;
use crossbeam_utils::CachePadded;

/// Number of lists: threads share one only beyond as many.
const LISTS: usize = 16;
/// A thread adds up the lists once in this many keys.
const ADDED_UP_EACH: usize = 16;

/// The keys, in lists by thread.
#[derive(Debug, Default)]
pub struct Aside([CachePadded<List>; LISTS]);

#[derive(Debug, Default)]
struct List {
    keys: Mutex<Vec<u64>>,
    /// Number of keys, including those that were taken. Wraps, because keys of other lists are subtracted from it.
    count: AtomicUsize,
}

impl Aside {
    fn own(&self) -> &List {
        &self.0[thread_index() % LISTS]
    }

    /// Adds a key. Returns the number of all keys from time to time.
    pub fn put(&self, key: u64) -> Option<usize> {
        let own = self.own();
        let count = own.count.fetch_add(1, Relaxed).wrapping_add(1);
        lock(&own.keys).push(key);
        count.is_multiple_of(ADDED_UP_EACH).then(|| self.count())
    }

    /// Takes the keys; they count until [`forget`](Self::forget).
    pub fn take(&self) -> Vec<u64> {
        self.0.iter().flat_map(|list| std::mem::take(&mut *lock(&list.keys))).collect()
    }

    /// Returns keys that were taken.
    pub fn put_back(&self, mut keys: Vec<u64>) {
        lock(&self.own().keys).append(&mut keys);
    }

    /// Forgets this many keys that were taken.
    pub fn forget(&self, keys: usize) {
        self.own().count.fetch_sub(keys, Relaxed);
    }

    /// Returns the number of keys, including those that were taken.
    pub fn count(&self) -> usize {
        let sum = self.0.iter().fold(0_usize, |sum, list| sum.wrapping_add(list.count.load(Relaxed)));
        // Lists are read one after the other: keys may be forgotten before they are seen.
        usize::try_from((sum as isize).max(0)).unwrap_or_default()
    }

    /// Returns the keys that were not taken.
    pub fn keys(&self) -> Vec<u64> {
        self.0.iter().flat_map(|list| lock(&list.keys).clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_threads_are_counted_until_they_are_forgotten() {
        let aside = Aside::default();
        let told: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..40_u64)
                .map(|thread| {
                    let aside = &aside;
                    scope.spawn(move || (0..32).filter_map(|key| aside.put(thread * 32 + key)).count())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!((told, aside.count(), aside.keys().len()), (80, 1280, 1280));
        let mut taken = aside.take();
        assert_eq!((aside.count(), aside.keys().len()), (1280, 0));
        aside.put_back(taken.split_off(1000));
        aside.forget(taken.len());
        assert_eq!((aside.count(), aside.keys().len()), (280, 280));
        taken.extend(aside.take());
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..1280));
    }
}
