//! The tests of this program, in pools of every domain of the matrix.

use std::cell::Cell;

use bristlecone::{Domain, Pool, PoolOptions};
use bristlecone_matrix::{share, suites};

use crate::{bank, batches, ranges, snapshots, transactions};

thread_local! {
    /// The domain of the pools that this thread creates, if not the detected one.
    static DOMAIN: Cell<Option<Domain>> = const { Cell::new(None) };
}

/// Returns options for a pool of the domain in which the test runs.
pub fn options() -> PoolOptions {
    DOMAIN.get().map_or_else(Pool::options, |domain| Pool::options().domain(domain))
}

/// Names and functions of tests.
macro_rules! tests {
    ($($module:ident::$test:ident,)*) => {
        const TESTS: &[(&str, fn())] = &[$((concat!(stringify!($module), "::", stringify!($test)), $module::$test),)*];
    };
}

tests! {
    bank::the_total_is_the_same_in_every_snapshot_and_after_every_opening,
    bank::the_total_survives_kills,
    batches::a_batch_changes_trees_of_all_designs_and_codecs_together,
    batches::a_condition_that_does_not_hold_leaves_everything_as_it_is,
    batches::batches_large_and_small_are_what_a_map_becomes,
    batches::dynamic_trees_are_trees_in_a_batch,
    batches::what_cannot_be_is_refused_and_changes_nothing,
    batches::a_batch_larger_than_the_pool_changes_nothing,
    batches::after_a_change_left_in_part_nothing_is_acknowledged_before_the_next_opening_carries_it_out,
    ranges::a_range_is_removed_at_one_moment,
    ranges::snapshots_show_a_removed_range_and_those_beyond_their_bounds_are_given_up,
    ranges::a_transaction_that_read_a_removed_key_conflicts,
    ranges::a_range_left_in_part_is_removed_by_the_next_opening,
    ranges::a_range_is_there_or_gone_after_every_kill,
    ranges::damage_in_a_range_changes_nothing,
    ranges::a_full_pool_removes_a_range_whole_or_not_at_all,
    snapshots::snapshots_show_what_a_map_was,
    snapshots::bytes_are_kept_for_snapshots_only_and_go_with_them,
    snapshots::a_snapshot_beyond_its_bound_is_given_up_and_others_stay,
    snapshots::trees_that_came_later_are_empty_and_cleared_ones_are_too_old,
    snapshots::trees_that_came_later_with_items_are_too_old,
    snapshots::damage_passes_through_no_snapshot_transaction_or_copy,
    snapshots::keys_that_are_too_long_are_absent,
    snapshots::a_snapshot_may_keep_almost_everything,
    snapshots::a_snapshot_stays_what_it_is_while_threads_write,
    transactions::a_transaction_sees_what_it_wrote_and_others_only_the_end,
    transactions::an_error_a_panic_and_a_rollback_change_nothing,
    transactions::who_never_gets_through_is_told,
    transactions::no_update_is_lost,
    transactions::what_a_transaction_reads_is_of_one_moment,
    transactions::a_closure_that_drops_a_conflict_is_called_again,
    transactions::what_is_taken_back_no_transaction_has_read,
    transactions::what_is_read_does_not_skew,
    transactions::phantoms_are_conflicts,
    transactions::transactions_of_forked_pools_are_shared_between_threads,
}

#[test]
fn the_tests_of_this_program_are_listed() {
    let files = [
        include_str!("bank.rs"),
        include_str!("batches.rs"),
        include_str!("ranges.rs"),
        include_str!("snapshots.rs"),
        include_str!("transactions.rs"),
    ];
    let written: usize = files.iter().map(|file| file.matches("#[test]").count()).sum();
    assert_eq!(TESTS.len(), written, "a test is missing in the list");
}

#[test]
fn every_test_passes_in_every_domain() {
    for domain in suites::TRANSACTIONS.other_domains() {
        DOMAIN.set(Some(domain));
        assert_eq!(crate::Scratch::new().open().info().domain, domain);
        for (name, test) in share(TESTS, 12) {
            println!("{name} in {domain}");
            test();
        }
    }
}
