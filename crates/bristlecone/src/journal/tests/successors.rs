//! Processes that follow one whose journal ended: they are killed, too, or the power fails while they open the pool.

use bristlecone_pm::Storage;
use bristlecone_random::Generator as Random;

use super::scenario::{every_kind, run};
use super::{Scratch, is_thorough, open};
use crate::journal::simulated::Disk;
use crate::{Design, Durability, Error, Result};

/// How a successor ends while it opens the pool.
#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    PowerFailed,
}

/// Kills a process before an event. Its successor ends before the `after`th event of its opening; returns whether it got
/// that far. Nothing acknowledged is missing.
fn end_successor(
    event: usize,
    after: usize,
    end: End,
    (design, durability): (Design, Durability),
) -> std::result::Result<bool, String> {
    let (scratch, disk) = (Scratch::new(), Disk::new());
    disk.turn_off_at(event);
    let done = run(&scratch, &disk, &every_kind(), design, durability);
    let disk = disk.after_kill();
    disk.turn_off_at(disk.events() + after);
    let opened = open(&scratch, &disk, durability);
    let is_over = opened.is_ok();
    opened.into_iter().for_each(|pool| pool.simulate_crash());
    let mut random = Random::new((event * 64 + after) as u64);
    let found = match end {
        End::Killed => done.verify(&scratch, &disk.after_kill(), design, done.done).map(|_| ()),
        End::PowerFailed => done.verify_failure(&scratch, &disk, design, &mut random),
    };
    found.map_err(|what| format!("{design}, {durability:?}, event {event}, {end:?} {after}: {what}"))?;
    Ok(!is_over)
}

#[test]
fn a_successor_that_ends_while_it_opens_the_pool_loses_nothing() {
    let (step, designs) = if is_thorough() { (1, Design::ALL) } else { (9, &Design::ALL[..2]) };
    let mut ends = 0;
    for &design in designs {
        for durability in [Durability::Commit, Durability::Memory] {
            let (scratch, disk) = (Scratch::new(), Disk::new());
            run(&scratch, &disk, &every_kind(), design, durability);
            for event in (design as usize % step..=disk.events()).step_by(step) {
                for end in [End::Killed, End::PowerFailed] {
                    for after in 0.. {
                        if !end_successor(event, after, end, (design, durability)).unwrap() {
                            break;
                        }
                        ends += 1;
                    }
                }
            }
        }
    }
    assert!(ends > 200, "successors ended at {ends} events");
}

/// A tree that was created with its items, and visible before the sync of its entry failed, is complete after a kill,
/// and so after a power failure of its successor.
#[test]
fn a_load_that_lost_its_durability_keeps_its_items() {
    const ITEMS: u64 = 400;
    let (mut lost, mut all) = (0, 0);
    for &design in Design::ALL {
        for event in 0.. {
            let (scratch, disk) = (Scratch::new(), Disk::new());
            let pool = open(&scratch, &disk, Durability::Commit).unwrap();
            pool.tree_options("before").create::<u64, u64>().unwrap().upsert(1, 2).unwrap();
            disk.fail_at(disk.events() + event);
            let created = pool
                .tree_options("loaded")
                .design(design)
                .create_with::<u64, u64>(|loader| (0..ITEMS).try_for_each(|key| loader.push(key, key + 1)));
            let is_visible = pool.trees().unwrap().iter().any(|tree| tree.spec.name == "loaded");
            let names = disk.list().unwrap();
            let is_over = match &created {
                Ok(_) => true,
                Err(Error::DurabilityLost) => {
                    lost += 1;
                    let file = names.iter().any(|name| name.starts_with("entry-"));
                    assert!(file || !is_visible, "{design}, event {event}: {names:?}");
                    false
                }
                Err(Error::MediumFull { .. }) => {
                    assert!(!is_visible, "{design}, event {event}: a refused tree is visible");
                    false
                }
                Err(error) => panic!("{design}, event {event}: {error}"),
            };
            all += usize::from(!is_over);
            drop(created);
            pool.simulate_crash();
            let mut disk = disk.after_kill();
            for end in [End::Killed, End::PowerFailed] {
                let pool = open(&scratch, &disk, Durability::Commit).unwrap();
                let found = pool.tree_options("loaded").open::<u64, u64>();
                match found {
                    Ok(tree) => {
                        let items: Vec<_> = tree.range(..).collect::<Result<_>>().unwrap();
                        assert!(items.into_iter().eq((0..ITEMS).map(|key| (key, key + 1))));
                        assert!(tree.check().is_empty());
                    }
                    Err(Error::NoSuchTree { .. }) => {
                        assert!(!is_visible, "{design}, event {event}, {end:?}: the tree is lost");
                    }
                    Err(error) => panic!("{design}, event {event}, {end:?}: {error}"),
                }
                let before = pool.tree::<u64, u64>("before").unwrap();
                assert_eq!(before.get(1).unwrap(), Some(2), "{design}, event {event}, {end:?}");
                drop(before);
                pool.simulate_crash();
                disk = disk.after_failure(&mut Random::new(event as u64));
                scratch.scramble();
            }
            if is_over {
                break;
            }
        }
    }
    assert!(
        lost >= 2 * Design::ALL.len() && all > lost,
        "{lost} of {all} failed loads lost their durability"
    );
}
