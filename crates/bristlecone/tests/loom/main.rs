//! The version lock, NBTree's marks of pending flushes, the write barrier, and the counts of stripes, in every order of
//! their steps with at most two preemptions.
//!
//! Their source files are compiled here with loom's atomics. There is no test harness, because the files' unit tests
//! would then be part of this program.

mod counts;
mod entering;
mod marks;
mod versions;

mod index {
    pub mod parts {
        /// Replaces `index/parts/sync.rs`.
        pub mod sync {
            use std::cell::Cell;

            pub use loom::hint::spin_loop;
            pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
            pub use loom::sync::{Mutex, RwLock, RwLockReadGuard};

            pub use self::wait::pause;

            pub const THREAD_SLOTS: usize = 2;

            loom::thread_local!(static LINE: Cell<usize> = Cell::new(0));

            /// Assigns a slot to the calling thread.
            pub fn take_line(line: usize) {
                LINE.with(|own| own.set(line));
            }

            pub fn own_thread_index() -> Option<usize> {
                Some(LINE.with(Cell::get))
            }

            /// Models a processor on which the compiler fence has no effect.
            pub fn compiler_fence(order: Ordering) {
                fence(order);
            }

            pub fn cross() {}

            /// One side alone has no effect on the other, unless both are fences.
            #[derive(Debug)]
            pub enum AsymmetricFence {
                OfBoth,
                OfNone,
            }

            impl AsymmetricFence {
                pub fn light(&self) {
                    if let Self::OfBoth = self {
                        fence(Ordering::SeqCst);
                    }
                }

                pub fn heavy(&self) {
                    self.light();
                }
            }

            pub mod wait {
                use std::sync::PoisonError;

                use loom::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

                pub fn pause(_round: u32) {
                    loom::thread::yield_now();
                }

                pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
                    mutex.lock().unwrap_or_else(PoisonError::into_inner)
                }

                pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
                    lock.read().unwrap_or_else(PoisonError::into_inner)
                }

                pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
                    lock.write().unwrap_or_else(PoisonError::into_inner)
                }
            }
        }

        pub(crate) use crate::active_threads;
    }
}
use index::parts::sync;

#[allow(dead_code, missing_docs, unused_imports, reason = "the file serves the whole crate")]
#[path = "../../src/index/parts/optimistic_lock.rs"]
mod optimistic_lock;

#[allow(dead_code, missing_docs, unused_imports, reason = "the file serves the whole crate")]
#[path = "../../src/index/parts/active_threads.rs"]
mod active_threads;

#[allow(dead_code, reason = "the file serves the whole design")]
#[path = "../../src/index/designs/nbtree/pending.rs"]
mod pending;

#[allow(dead_code, unused_imports, reason = "the file serves the whole crate")]
#[path = "../../src/transaction/write_barrier.rs"]
mod write_barrier;

#[allow(dead_code, reason = "the file serves the whole crate")]
#[path = "../../src/transaction/stripe.rs"]
mod stripe;

fn expect_failure(model: fn()) {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = std::panic::catch_unwind(|| check(model));
    std::panic::set_hook(told);
    assert!(found.is_err(), "a barrier is not needed, or the model does not see why");
}

fn check(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

fn main() {
    let models: [(&str, fn()); 13] = [
        ("a_user_after_a_rest_waits_for_writers", entering::a_user_after_a_rest_waits_for_writers),
        ("what_is_shown_is_durable", marks::what_is_shown_is_durable),
        ("values_of_a_leaf_whose_writers_stopped_stay", marks::values_of_a_leaf_whose_writers_stopped_stay),
        ("readers_never_see_half_a_change", versions::readers_never_see_half_a_change),
        ("writers_exclude_each_other", versions::writers_exclude_each_other),
        ("an_upgrade_takes_what_was_read", versions::an_upgrade_takes_what_was_read),
        ("what_is_obsolete_sends_every_thread_away", versions::what_is_obsolete_sends_every_thread_away),
        ("what_a_reader_has_seen_stays", entering::what_a_reader_has_seen_stays),
        (
            "a_writer_that_is_not_tracking_is_waited_for",
            entering::a_writer_that_is_not_tracking_is_waited_for,
        ),
        (
            "a_snapshot_shows_one_value_whenever_it_is_asked",
            entering::a_snapshot_shows_one_value_whenever_it_is_asked,
        ),
        ("a_lookup_by_count_sees_no_half_of_a_change", counts::a_lookup_by_count_sees_no_half_of_a_change),
        ("transactions_that_cross_do_not_skew", counts::transactions_that_cross_do_not_skew),
        (
            "the_lock_of_a_tree_excludes_the_locks_of_its_keys",
            counts::the_lock_of_a_tree_excludes_the_locks_of_its_keys,
        ),
    ];
    for (name, model) in models {
        check(model);
        println!("model {name} ... ok");
    }
    let needed: [(&str, fn()); 6] = [
        ("without_fences_a_reader_is_missed", entering::without_fences_a_reader_is_missed),
        ("without_its_barrier_a_write_is_missed", entering::without_its_barrier_a_write_is_missed),
        ("without_its_look_a_writer_is_missed", marks::without_its_look_a_writer_is_missed),
        ("without_its_barrier_a_leaf_misses_a_writer", marks::without_its_barrier_a_leaf_misses_a_writer),
        ("without_a_second_look_transactions_skew", counts::without_a_second_look_transactions_skew),
        (
            "without_waiting_for_keys_the_lock_of_a_tree_excludes_nothing",
            counts::without_waiting_for_keys_the_lock_of_a_tree_excludes_nothing,
        ),
    ];
    for (name, fails) in needed {
        fails();
        println!("model {name} ... ok");
    }
}
