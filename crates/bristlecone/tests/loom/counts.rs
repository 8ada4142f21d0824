//! The counts of stripes, by which transactions read without a snapshot.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;

use crate::expect_failure;
use crate::stripe::{Count, Stripe};

/// Two keys of two stripes, each with a value of two words that must be equal.
struct Keys([(Stripe, [AtomicU64; 2]); 2]);

impl Keys {
    fn new() -> Arc<Self> {
        let key = || (Stripe::default(), [AtomicU64::new(1), AtomicU64::new(1)]);
        Arc::new(Self([key(), key()]))
    }

    /// A lookup validated by the stripe's count; returns `None` if the key was changed meanwhile.
    fn get(&self, key: usize) -> Option<(Count, u64)> {
        let (stripe, halves) = &self.0[key];
        let count = stripe.count();
        let [one, other] = halves.each_ref().map(|half| half.load(Relaxed));
        if !count.is_unchanged(&[stripe], false) {
            return None;
        }
        assert_eq!(one, other, "half a change was read");
        Some((count, one))
    }

    fn write(&self, key: usize, value: u64) {
        self.0[key].1.iter().for_each(|half| half.store(value, Relaxed));
    }

    /// Clears a key if the other one is not cleared. If `looks`, it checks the count of the latter once
    /// more with the lock.
    fn clear_unless_other(&self, key: usize, looks: bool) {
        let Some((count, 1)) = self.get(1 - key) else { return };
        self.0[key].0.take();
        if !looks || count.is_unchanged(&[&self.0[1 - key].0], false) {
            self.write(key, 0);
        }
        self.0[key].0.give_back();
    }
}

pub fn a_lookup_by_count_sees_no_half_of_a_change() {
    let keys = Keys::new();
    let writer = {
        let keys = Arc::clone(&keys);
        thread::spawn(move || {
            keys.0[0].0.take();
            keys.write(0, 2);
            keys.0[0].0.give_back();
        })
    };
    let first = keys.get(0);
    if let (Some((_, 2)), Some((_, second))) = (first, keys.get(0)) {
        assert_eq!(second, 2, "a change was taken back");
    }
    writer.join().expect("the writer does not panic");
}

fn cross_each_other(looks: bool) {
    let keys = Keys::new();
    let other = {
        let keys = Arc::clone(&keys);
        thread::spawn(move || keys.clear_unless_other(1, looks))
    };
    keys.clear_unless_other(0, looks);
    other.join().expect("the writer does not panic");
    let left = [0, 1].map(|key| keys.0[key].1[0].load(Relaxed));
    assert_ne!(left, [0, 0], "both have read what the other one changed");
}

pub fn transactions_that_cross_do_not_skew() {
    cross_each_other(true);
}

/// The second check is needed: without it the model finds both to pass.
pub fn without_a_second_look_transactions_skew() {
    expect_failure(|| cross_each_other(false));
}

/// One thread changes a key with its lock, another one with that of the tree. Without waiting for the keys' locks, if
/// not `waits`.
fn change_by_key_and_by_tree(waits: bool) {
    let locks = Arc::new((Stripe::default(), [Stripe::default()], UnsafeCell::new(0)));
    let by_key = {
        let locks = Arc::clone(&locks);
        thread::spawn(move || {
            let (tree, [key], value) = &*locks;
            key.take_beneath(tree);
            value.with_mut(|_| ());
            key.give_back();
        })
    };
    let (tree, keys, value) = &*locks;
    tree.take_above(if waits { keys } else { &[] });
    value.with_mut(|_| ());
    tree.give_back();
    by_key.join().expect("the writer does not panic");
}

pub fn the_lock_of_a_tree_excludes_the_locks_of_its_keys() {
    change_by_key_and_by_tree(true);
}

/// The holders of keys' locks must be awaited: without it the model finds both threads to change the value.
pub fn without_waiting_for_keys_the_lock_of_a_tree_excludes_nothing() {
    expect_failure(|| change_by_key_and_by_tree(false));
}
