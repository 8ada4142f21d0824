//! Searches through inner nodes of the baselines while these grow.

use std::marker::PhantomData;

use bristlecone_baselines::Baseline;
use bristlecone_explore::targets::{TreePool, Words};
use bristlecone_matrix::tell;
use bristlecone_pm::Geometry;
use bristlecone_sim::{Access, Mode, Operation, Plan, Progress, Schedules, explore_schedules};

use crate::effort::{schedules, share};
use crate::planned::Planned;

/// The last leaf of one inner node is about to split, so that its parent grows at its end, where no
/// thread has written before; others search to the left of that place.
fn growing_at_the_end(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    /// Distance between existing keys.
    const APART: u64 = 4;
    let there = 8 + draw(16) as u64;
    let before = (0..there).map(|at| (at * APART, Access::Insert(at))).collect();
    let beyond = (0..3).map(|at| Operation::On((there + at) * APART, Access::Insert(1000 + at))).collect();
    let mut looks = || {
        let mut look = || Operation::On((there - 1 - draw(8) as u64) * APART, Access::Get);
        vec![look(), look(), look(), look()]
    };
    Plan::new(before, vec![beyond, looks()])
}

#[test]
fn keys_are_found_while_inner_nodes_grow() {
    for design in share(Baseline::ALL, 4) {
        tell(&format!("keys are found while inner nodes of {} grow", design.name()));
        let tree_pool = TreePool::<Words> {
            geometry: Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 },
            design: (*design).into(),
            options: vec![("node_lines", 2)],
            items: PhantomData,
        };
        let planned = Planned { registers: tree_pool, plan: growing_at_the_end };
        let count = schedules(1500);
        let wanted = Schedules { seed: 3, first: 0, count, modes: Mode::ALL.to_vec(), threads: 2 };
        let report = explore_schedules(&planned, &wanted, &Progress::default());
        println!("{}: {report}", design.name());
        report.assert_clean();
        assert_eq!(report.schedules, count);
    }
}
