//! Crashes of the pool: creation, directory, chunks, closing, opening.

use bristlecone_explore::EXPLAINED;
use bristlecone_explore::targets::{paged_pool_subject, pool_subject};
use bristlecone_sim::{Budget, Mode, Progress, explore_rounds, mutate_rounds, rounds};

#[test]
fn the_pool_survives_every_crash() {
    let pools = [pool_subject(), paged_pool_subject()];
    let rounds = rounds(pools.iter().map(AsRef::as_ref), &Mode::ALL);
    let progress = Progress::default();
    for report in explore_rounds(&rounds, Budget::quick(), &progress, &|_, _| {}).iter().flatten() {
        println!("{report}");
        report.assert_clean();
        assert_eq!(report.points_beyond_memory, 0);
    }
}

#[test]
fn every_flush_and_fence_of_the_pool_is_needed() {
    let pools = [pool_subject(), paged_pool_subject()];
    let (rounds, progress) = (rounds(pools.iter().map(AsRef::as_ref), &[Mode::Subset]), Progress::default());
    let reports = explore_rounds(&rounds, Budget::quick(), &progress, &|_, report| report.assert_clean());
    let rounds: Vec<_> = rounds.into_iter().zip(reports.into_iter().flatten()).collect();
    let table =
        mutate_rounds(&rounds, Budget::quick(), &|_| true, &progress, &|_| {}).explained_by(EXPLAINED);
    println!("{table}");
    assert!(table.survivors().is_empty(), "{table}");
}
