//! An external design, explored like the library's own.

use std::marker::PhantomData;

use bristlecone_explore::targets::{TreePool, Words, tree_scenarios};
use bristlecone_pm::Geometry;
use bristlecone_sim::{
    Budget, Mode, Prepared, Progress, Report, Schedules, Site, Subject, explore_rounds, explore_schedules,
    mutate_rounds, rounds,
};

#[path = "../../../../crates/bristlecone/tests/suite/external_design.rs"]
mod design;

use design::Toy;

/// A pool with space for a few arrays with the scenarios' number of items.
fn tree_pool() -> TreePool<Words, Toy> {
    let geometry = Geometry { chunk_bytes: 8192, chunks_max: 12, trees_max: 3 };
    TreePool { geometry, design: Toy, options: vec![("items", 160)], items: PhantomData }
}

#[test]
fn toy_survives_every_crash_and_needs_every_flush_of_a_write() {
    // Each write copies the array: the excluded scenarios begin with some hundred items.
    let scenarios = tree_scenarios().into_iter().filter(|scenario| scenario.setup.len() < 60).collect();
    let subject = Prepared { name: "toy".to_owned(), system: tree_pool(), scenarios };
    let rounds = rounds([&subject as &dyn Subject], &[Mode::Prefix, Mode::Subset]);
    let budget = Budget { threads: 2, ..Budget::of(16) };
    let reports = explore_rounds(&rounds, budget, &Progress::default(), &|_, _| {});
    let reports: Vec<_> = reports.into_iter().flatten().collect();
    let mut total = Report::default();
    reports.iter().for_each(|report| total.merge(report.clone()));
    println!("{total}");
    total.assert_clean();
    assert_eq!(reports.len(), rounds.len());
    assert!(total.images > 0, "{total}");

    let rounds: Vec<_> = rounds.into_iter().zip(reports).collect();
    let rounds: Vec<_> = rounds.into_iter().filter(|(round, _)| round.mode == Mode::Subset).collect();
    // A creation writes zeros to a chunk of zeros.
    let wanted = |site: &Site| site.to_string().contains("toy write");
    let budget = Budget { threads: 2, continuation_crashes: 1, ..Budget::of(16) };
    let table = mutate_rounds(&rounds, budget, &wanted, &Progress::default(), &|_| {});
    println!("{table}");
    assert!(table.survivors().is_empty() && table.killed() > 0, "{table}");
}

#[test]
fn threads_share_a_toy() {
    let wanted = Schedules { seed: 3, first: 0, count: 400, modes: Mode::ALL.to_vec(), threads: 2 };
    let report = explore_schedules(&tree_pool(), &wanted, &Progress::default());
    println!("{report}");
    report.assert_clean();
    assert_eq!(report.schedules, 400);
}
