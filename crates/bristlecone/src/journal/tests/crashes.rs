//! Crashes at every write and sync, kills at every step of an entry, and steps that are left out.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bristlecone_random::Generator as Random;

use super::scenario::{Op, State, every_kind, run, state};
use super::{Scratch, is_thorough, open, quiet};
use crate::journal::mutation::{Mutation, Point, kill_at, without};
use crate::journal::simulated::Disk;
use crate::{Design, Durability};

/// Number of events of a whole run.
fn events(ops: &[Op], design: Design, durability: Durability) -> usize {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let done = run(&scratch, &disk, ops, design, durability);
    assert_eq!(done.done, ops.len(), "the scenario itself fails");
    disk.events()
}

/// Lets the power fail before an event, and verifies some images of the disk.
fn fail_at(
    event: usize,
    (design, durability): (Design, Durability),
    skipped: Option<usize>,
    images: u64,
) -> Result<(), String> {
    for image in 0..images {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        disk.skip_sync(skipped);
        disk.turn_off_at(event);
        let done = run(&scratch, &disk, &every_kind(), design, durability);
        let mut random = Random::new(event as u64 * 64 + image);
        done.verify_failure(&scratch, &disk, design, &mut random)
            .map_err(|what| format!("{design}, event {event}, image {image}: {what}"))?;
    }
    Ok(())
}

#[test]
fn a_power_failure_before_every_event_leaves_what_was_acknowledged() {
    for &design in Design::ALL {
        let durability = Durability::Commit;
        let (step, images) = if is_thorough() { (1, 4) } else { (3, 2) };
        for event in (design as usize % step..=events(&every_kind(), design, durability)).step_by(step) {
            fail_at(event, (design, durability), None, images).unwrap();
        }
    }
}

#[test]
fn a_power_failure_leaves_a_state_that_existed_without_commits() {
    let setting = (Design::SsTree, Durability::Memory);
    for event in 0..=events(&every_kind(), setting.0, setting.1) {
        fail_at(event, setting, None, 4).unwrap();
    }
}

/// Lets the power fail after the opening that found a state: it is still there.
fn survives_a_power_failure(
    scratch: &Scratch,
    disk: &Disk,
    found: &State,
    seed: usize,
) -> Result<(), String> {
    scratch.scramble_unless_closed();
    let image = disk.after_failure(&mut Random::new(seed as u64));
    let again = open(scratch, &image, Durability::Commit).and_then(|pool| state(&pool));
    let mut again = again.map_err(|error| format!("after a power failure: {error}"))?;
    again.remove("after");
    let names: BTreeSet<_> = again.keys().chain(found.keys()).collect();
    let keys =
        |state: &State, name: &str| state.get(name).map(|tree| tree.keys().copied().collect::<Vec<_>>());
    match names.into_iter().find(|name| again.get(*name) != found.get(*name)) {
        None => Ok(()),
        Some(name) => {
            let (had, has) = (keys(found, name), keys(&again, name));
            Err(format!("tree {name} had keys {had:?}, and has {has:?} after a power failure"))
        }
    }
}

/// Kills the process before an event, or lets the event fail. The next process finds everything, and a power failure
/// after it, too.
fn stop_before(event: usize, fails: bool, design: Design, durability: Durability) -> Result<(), String> {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    if fails {
        disk.fail_at(event)
    } else {
        disk.turn_off_at(event)
    };
    let done = run(&scratch, &disk, &every_kind(), design, durability);
    let after = disk.after_kill();
    let found = done.verify(&scratch, &after, design, done.done);
    found
        .and_then(|found| survives_a_power_failure(&scratch, &after, &found, event))
        .map_err(|what| format!("{design}, event {event}: {what}"))
}

/// Stops all designs before events: without thoroughness, each of them before a third.
fn stop_before_events(fails: bool) {
    let step = if is_thorough() { 1 } else { 3 };
    for &design in Design::ALL {
        for durability in [Durability::Commit, Durability::Memory] {
            for event in (design as usize % step..=events(&every_kind(), design, durability)).step_by(step) {
                stop_before(event, fails, design, durability).unwrap();
            }
        }
    }
}

#[test]
fn a_kill_before_every_event_loses_nothing() {
    stop_before_events(false);
}

#[test]
fn a_failed_call_loses_nothing() {
    stop_before_events(true);
}

#[test]
fn steps_around_a_kill_that_are_left_out_are_noticed() {
    quiet();
    for (step, design, durability) in [
        (Mutation::FreedBeforeWritten, Design::WoTree, Durability::Memory),
        (Mutation::NamesUnsynced, Design::NbTree, Durability::Commit),
    ] {
        let events = events(&every_kind(), design, durability);
        let is_noticed =
            |event| !matches!(catch_unwind(|| stop_before(event, false, design, durability)), Ok(Ok(())));
        assert!(without(Some(step), || (0..=events).any(is_noticed)), "nothing notices {step:?}");
    }
}

/// Kills at a point of the `after`th entry; returns whether the run got that far.
fn kill(point: Point, after: usize, design: Design, durability: Durability) -> Result<bool, String> {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    let ops = every_kind();
    kill_at(Some((point, after)));
    let ended = catch_unwind(AssertUnwindSafe(|| run(&scratch, &disk, &ops, design, durability)));
    kill_at(None);
    if ended.is_ok() {
        return Ok(false);
    }
    let found = open(&scratch, &disk, durability).and_then(|pool| {
        let found = state(&pool);
        pool.simulate_crash();
        found
    });
    let found = found.map_err(|error| format!("{point:?} {after}: {error}"))?;
    let all = run(&Scratch::new(), &Disk::new(), &ops, design, durability).states;
    if !all.contains(&found) {
        return Err(format!("{point:?} {after}: no state: {found:?}"));
    }
    let survives = survives_a_power_failure(&scratch, &disk, &found, after);
    survives.map(|()| true).map_err(|what| format!("{point:?} {after}: {what}"))
}

#[test]
fn a_kill_at_every_step_of_an_entry_leaves_a_state_that_existed() {
    quiet();
    for (design, durability) in
        [(Design::SsTree, Durability::Memory), (Design::LodgeTree, Durability::Commit)]
    {
        for point in [Point::Reserved, Point::Intended, Point::Applied, Point::Complete] {
            for after in 0.. {
                if !kill(point, after, design, durability).unwrap() {
                    assert!(after > 15, "{point:?}: only {after} entries");
                    break;
                }
            }
        }
    }
}

/// Returns whether a power failure before one of these events notices that a step is left out.
fn is_noticed(skipped: Option<usize>, mut events: impl Iterator<Item = usize>, images: u64) -> bool {
    let setting = (Design::SsTree, Durability::Commit);
    events.any(|event| !matches!(catch_unwind(|| fail_at(event, setting, skipped, images)), Ok(Ok(()))))
}

#[test]
fn every_step_that_is_left_out_is_noticed() {
    quiet();
    let events = events(&every_kind(), Design::SsTree, Durability::Commit);
    // Damage of the disk shows the others: see `damage.rs` and `segment.rs`.
    for step in [Mutation::AcknowledgedBeforeSync, Mutation::BlockUnchecked] {
        let noticed = without(Some(step), || is_noticed(None, 0..=events, 6));
        assert!(noticed, "nothing notices {step:?}");
    }
}

/// Syncs that this scenario does not need: that of a close whose pool is opened again before anything fails. See
/// [`a_closed_pool_needs_its_manifest`].
const OF_CLOSE: &[(usize, &str)] = &[(34, "names")];

#[test]
fn a_closed_pool_needs_its_manifest() {
    let closed = |skips: bool| {
        let (scratch, disk) = (Scratch::new(), Disk::new());
        let pool = open(&scratch, &disk, Durability::Commit).unwrap();
        pool.tree::<u64, u64>("t").unwrap().upsert(1, 2).unwrap();
        // The close syncs the new manifest, and then its name.
        disk.skip_sync(skips.then_some(disk.syncs().len() + 1));
        pool.close().unwrap();
        (0..20).all(|seed| {
            let image = disk.after_failure(&mut Random::new(seed));
            let copy = Scratch::new();
            std::fs::copy(&scratch.0, &copy.0).unwrap();
            open(&copy, &image, Durability::Commit).is_ok_and(|pool| {
                pool.tree::<u64, u64>("t").is_ok_and(|tree| tree.get(1).is_ok_and(|held| held == Some(2)))
            })
        })
    };
    assert!(closed(false));
    assert!(!closed(true), "nothing notices the missing sync of a close");
}

#[test]
fn every_sync_that_is_left_out_is_noticed() {
    quiet();
    let (scratch, disk) = (Scratch::new(), Disk::new());
    run(&scratch, &disk, &every_kind(), Design::SsTree, Durability::Commit);
    let (syncs, last) = (disk.syncs(), disk.events());
    let near = |sync: usize| (sync + 1..(sync + 14).min(last)).chain([last]);
    let is_missed = |(number, (event, _)): &(usize, &(usize, String))| {
        // A name that is lost while a later one is kept is rare.
        let noticed = is_noticed(Some(*number), near(*event), 12);
        !noticed && !is_noticed(Some(*number), *event + 1..*event + 7, 120)
    };
    let step = if is_thorough() { 1 } else { 8 };
    let missed = syncs.iter().enumerate().step_by(step).filter(is_missed);
    let missed: Vec<_> = missed.map(|(number, (_, name))| (number, name.as_str())).collect();
    let missed: Vec<_> = missed.into_iter().filter(|sync| !OF_CLOSE.contains(sync)).collect();
    assert!(missed.is_empty(), "of {} syncs, nothing notices {missed:?}", syncs.len());
}
