//! Schedules of plans for particular steps.

use std::marker::PhantomData;

use crate::effort::{schedules, share};
use bristlecone::Design;
use bristlecone_baselines::AnyDesign;
use bristlecone_explore::targets::{Items, Texts, TreePool, Words};
use bristlecone_matrix::{Cell, Codec, suites};
use bristlecone_pm::Geometry;
pub use bristlecone_sim::Planned;
use bristlecone_sim::{Access, Mode, Operation, Plan, Progress, Schedules, explore_schedules};

/// Explores schedules of a plan. Fails with the issues, or if a step for which the plan is made is too rare while
/// other threads are active.
pub fn raced<I: Items>(
    registers: TreePool<I>,
    plan: fn(&mut dyn FnMut(usize) -> usize) -> Plan,
    (seed, count): (u64, u64),
    steps: &[(&str, u64)],
) {
    let wanted = Schedules { seed, first: 0, count, modes: Mode::ALL.to_vec(), threads: 2 };
    let report = explore_schedules(&Planned { registers, plan }, &wanted, &Progress::default());
    println!("{report}, raced: {:?}", report.raced);
    report.assert_clean();
    assert_eq!(report.schedules, count);
    for (step, one_in) in steps {
        let raced = report.raced.get(step).copied().unwrap_or_default();
        assert!(raced * one_in > count, "{step}: {raced} times while others were at work");
    }
}

/// Threads remove the few keys of a leaf or two if these have their first value, and write other values; most
/// operations are on one key.
fn conditional_removals(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    const KEYS: u64 = 5;
    let before = (0..KEYS).map(|key| (key, Access::Insert(key))).collect();
    let hot = draw(KEYS as usize) as u64;
    let mut written = 1000;
    let mut operation = |draw: &mut dyn FnMut(usize) -> usize| {
        let key = if draw(4) == 0 { draw(KEYS as usize) as u64 } else { hot };
        written += 1;
        Operation::On(
            key,
            match draw(8) {
                0..3 => Access::RemoveIf(key),
                3 => Access::RemoveIf(written),
                4 => Access::Swap(key, written),
                5 => Access::Insert(key),
                6 => Access::Remove,
                _ => Access::Get,
            },
        )
    };
    let threads = 2 + draw(2);
    let operations = |_| (0..2 + draw(2)).map(|_| operation(draw)).collect();
    Plan::new(before, (0..threads).map(operations).collect())
}

/// Threads read and write several keys at a time, of few leaves, which become full or empty meanwhile.
fn several_at_a_time(draw: &mut dyn FnMut(usize) -> usize) -> Plan {
    let keys = [6, 12, 24][draw(3)];
    let before =
        (0..keys as u64).filter(|_| draw(4) != 0).map(|key| (key * 2, Access::Insert(key * 2))).collect();
    let hot = draw(keys) as u64 * 2;
    let mut written = 1000;
    let mut operation = |draw: &mut dyn FnMut(usize) -> usize| {
        let kind = draw(8);
        let several = if kind == 7 { 20 } else { 2 + draw(3) };
        let each = (0..several).map(|_| {
            written += 1;
            let key = if draw(3) == 0 { hot + draw(2) as u64 } else { draw(2 * keys) as u64 };
            let access = match kind {
                0 | 1 => Access::Get,
                2 | 3 => Access::Remove,
                4 => Access::Insert(written),
                _ => Access::Upsert(written),
            };
            (key, access)
        });
        let each: Vec<_> = each.collect();
        if draw(3) == 0 { Operation::On(each[0].0, each[0].1) } else { Operation::Many(each) }
    };
    let threads = 2 + draw(2);
    let operations = |_| (0..1 + draw(3)).map(|_| operation(draw)).collect();
    Plan::new(before, (0..threads).map(operations).collect())
}

fn removed_by_one<I: Items>(codec: Codec, count: u64) {
    planned::<I>(conditional_removals, codec, count);
}

fn planned<I: Items>(plan: fn(&mut dyn FnMut(usize) -> usize) -> Plan, codec: Codec, count: u64) {
    for design in share(Design::ALL, 5) {
        let cells = suites::EXPLORER.cells();
        let cell = cells.iter().find(|cell| cell.configuration.design == *design && cell.codec == codec);
        let Cell { configuration: shape, pool_size: room, .. } =
            cell.expect("every design keeps these items");
        let geometry = Geometry { chunk_bytes: room.chunk_bytes, chunks_max: room.chunks_max, trees_max: 3 };
        let options = shape.options.to_vec();
        let registers =
            TreePool::<I> { geometry, design: AnyDesign::from(*design), options, items: PhantomData };
        let wanted = Schedules { seed: 5, first: 0, count, modes: Mode::ALL.to_vec(), threads: 2 };
        let planned = Planned { registers, plan };
        let report = explore_schedules(&planned, &wanted, &Progress::default());
        println!("{design}: {report}");
        report.assert_clean();
        assert_eq!(report.schedules, count);
    }
}

#[test]
fn words_are_removed_by_one_thread() {
    removed_by_one::<Words>(Codec::Words, 500);
}

#[test]
fn texts_are_removed_by_one_thread() {
    removed_by_one::<Texts>(Codec::Texts, 100);
}

#[test]
fn several_keys_at_a_time_are_operations_of_their_own() {
    planned::<Words>(several_at_a_time, Codec::Words, schedules(3000));
    planned::<Texts>(several_at_a_time, Codec::Texts, schedules(1000));
}
