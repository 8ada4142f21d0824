//! Crashes at every event of batches, and at every event of their recovery.

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_explore::EXPLAINED;
use bristlecone_explore::targets::{BatchPool, Items, Notes, Texts, Words, batch_scenarios};
use bristlecone_matrix::{TestLevel, by_level, share, takes};
use bristlecone_pm::Geometry;
use bristlecone_sim::{
    Budget, Mode, Prepared, Progress, Report, Schedules, Site, Subject, explore_rounds, explore_schedules,
    mutate_rounds, mutate_schedules_among, rounds,
};

/// Chunks of the log have parts of 256 bytes: a record of ten changes has two.
pub(super) const GEOMETRY: Geometry = Geometry { chunk_bytes: 4096, chunks_max: 64, trees_max: 3 };

/// The smallest leaves, which split early.
fn options(design: Design) -> Vec<(&'static str, u64)> {
    match design {
        Design::SsTree => vec![("subnode_bytes", 128), ("max_subnodes", 2)],
        Design::NbTree => vec![("block_bytes", 128)],
        Design::CclBTree => {
            vec![("leaf_slots", 4), ("inner_bytes", 256), ("log_entries", 40), ("collector_threads", 0)]
        }
        Design::LodgeTree => {
            vec![
                ("node_slots", 6),
                ("leaf_slots", 3),
                ("inner_bytes", 256),
                ("log_entries", 40),
                ("split_nodes", 3),
            ]
        }
        Design::WoTree => vec![("node_lines", 2)],
        _ => Vec::new(),
    }
}

pub(super) fn subject<A: Items, B: Items>(a: Design, b: Design) -> Prepared<BatchPool<A, B>> {
    let designs = [a, b].map(|design| (design, options(design)));
    let system = BatchPool::<A, B> { geometry: GEOMETRY, designs, items: PhantomData };
    Prepared { name: format!("batches-{a}-{b}"), system, scenarios: batch_scenarios() }
}

pub(super) fn explore(subject: &dyn Subject, modes: &[Mode], budget: Budget) {
    // A quick run takes one round of six, different ones each day.
    let rounds = share(rounds([subject], modes), 6);
    let reports = explore_rounds(&rounds, Budget { threads: 2, ..budget }, &Progress::default(), &|_, _| {});
    let reports: Vec<Report> = reports.into_iter().flatten().collect();
    assert_eq!(reports.len(), rounds.len());
    for report in reports {
        println!("{report}");
        report.assert_clean();
        assert!(report.images > 0);
    }
}

#[test]
fn batches_over_sstree_and_nbtree_survive_every_crash() {
    explore(&subject::<Words, Texts>(Design::SsTree, Design::NbTree), &Mode::ALL, Budget::of(24));
}

#[test]
fn batches_over_cclbtree_and_wotree_survive_every_crash() {
    if !takes(TestLevel::Ci, "batches over cclbtree and wotree") {
        return;
    }
    explore(&subject::<Texts, Words>(Design::CclBTree, Design::WoTree), &[Mode::Subset], Budget::of(16));
}

#[test]
fn batches_over_lodgetree_and_sstree_survive_every_crash() {
    if !takes(TestLevel::Ci, "batches over lodgetree and sstree") {
        return;
    }
    explore(&subject::<Notes, Texts>(Design::LodgeTree, Design::SsTree), &[Mode::Subset], Budget::of(16));
}

/// Removals of ranges, in every design.
#[test]
fn ranges_are_removed_whole_or_not_at_all_by_every_crash() {
    fn ranges<A: Items, B: Items>(a: Design, b: Design) {
        let mut subject = subject::<A, B>(a, b);
        subject.scenarios.retain(|scenario| scenario.name.starts_with("ranges"));
        assert_eq!(subject.scenarios.len(), 2);
        explore(&subject, &Mode::ALL, Budget::of(16));
    }
    ranges::<Words, Texts>(Design::SsTree, Design::NbTree);
    ranges::<Texts, Words>(Design::CclBTree, Design::WoTree);
    ranges::<Words, Texts>(Design::CclBTree, Design::LodgeTree);
    ranges::<Notes, Words>(Design::LodgeTree, Design::NbTree);
    ranges::<Texts, Texts>(Design::WoTree, Design::SsTree);
}

/// A crash in the recovery from a crash.
#[test]
fn replay_survives_its_own_crashes() {
    if !takes(TestLevel::Ci, "crashes of replay, in depth") {
        return;
    }
    let mut subject = subject::<Words, Words>(Design::SsTree, Design::NbTree);
    subject.scenarios.retain(|scenario| ["batches", "parts", "ranges"].contains(&scenario.name));
    explore(&subject, &[Mode::Subset], Budget { depth: 2, nested: (8, 4), ..Budget::of(16) });
}

#[test]
fn every_store_flush_and_fence_of_the_commit_log_is_needed() {
    if !takes(TestLevel::Ci, "every store of the commit log is needed") {
        return;
    }
    let mut subject = subject::<Words, Words>(Design::SsTree, Design::SsTree);
    subject.scenarios.retain(|scenario| ["batches", "parts", "ranges"].contains(&scenario.name));
    let (rounds, progress) = (rounds([&subject as &dyn Subject], &[Mode::Subset]), Progress::default());
    let few = Budget { continuation_crashes: u32::MAX, depth: 1, threads: 2, ..Budget::of(1) };
    let reports = explore_rounds(&rounds, few, &progress, &|_, report| report.assert_clean());
    let budget = Budget { threads: 2, continuation_crashes: 1, depth: 1, ..Budget::of(16) };
    let rounds: Vec<_> = rounds.into_iter().zip(reports.into_iter().flatten()).collect();
    let wanted = |site: &Site| site.step.starts_with("pool commit") || site.at.file().ends_with("commits.rs");
    let mut table = mutate_rounds(&rounds, budget, &wanted, &progress, &|_| {}).explained_by(EXPLAINED);
    // A record must be done before others change what it changed.
    let wanted = Schedules { seed: 11, first: 0, count: 4000, modes: vec![Mode::Subset], threads: 2 };
    let among_threads =
        mutate_schedules_among(&subject.system, &wanted, &|site| table.has_left(site), &progress);
    table.merge(among_threads);
    println!("{table}");
    assert!(table.survivors().is_empty() && table.killed() > 5, "{table}");
}

/// Three threads of batches, transactions, snapshots and single writes: one order of all of them must explain every
/// result and the state after a crash.
#[test]
fn threads_change_two_trees_together() {
    let count = by_level(600, 6000, 60_000);
    let wanted = Schedules { seed: 11, first: 0, count, modes: Mode::ALL.to_vec(), threads: 2 };
    let pools = (
        subject::<Words, Texts>(Design::SsTree, Design::NbTree).system,
        subject::<Texts, Words>(Design::WoTree, Design::CclBTree).system,
    );
    let reports = [
        explore_schedules(&pools.0, &wanted, &Progress::default()),
        explore_schedules(&pools.1, &wanted, &Progress::default()),
    ];
    for report in reports {
        println!("{report}");
        report.assert_clean();
        assert_eq!(report.schedules, count);
    }
}
