//! The explorer applied to the toy map: the correct version passes, and each bug is found and
//! explained.

use bristlecone_sim::{Budget, Case, Mode, Report, explore, mutate, replay};

use crate::toy_map::{Bug, ToyMap, scenario};

fn explored(bug: Bug, mode: Mode) -> Report {
    // One worker, so that the first issue is always the same.
    explore(&ToyMap(bug), &scenario(), mode, Budget { threads: 1, ..Budget::quick() })
}

#[test]
fn toy_map_without_bugs_survives_every_crash() {
    for mode in [Mode::Prefix, Mode::Subset, Mode::Eadr] {
        let report = explored(Bug::None, mode);
        println!("{report}");
        report.assert_clean();
        assert!(report.crash_points > 20 && report.opened > 40, "{report}");
    }
}

#[test]
fn toy_map_with_each_bug_fails_with_its_explanation() {
    let bugs = [
        (Bug::CommitBeforeData, "recovered to Some(({0: 0}"),
        (Bug::DataNotFlushed, "recovered to Some(({0: 0}|then a crash: "),
        (Bug::DataNotFenced, "recovered to Some(({0: 0}"),
        (Bug::WrongLineFlushed, "recovered to Some(({0: 0}|then a crash: "),
        (Bug::AcknowledgedBeforeDurable, "recovered to Some(({|then a crash: "),
        (Bug::ConstructorNotFlushed, "a map without slots"),
        (Bug::CounterDisagrees, "the counter disagrees with the bitmap"),
        (Bug::SlotLeaks, "a slot is lost"),
        (Bug::SlotUsedTwice, "continuation after recovery"),
        (Bug::DuplicateTolerated, "Remove(1)]: ({1: "),
        (Bug::LockSurvives, "locked for ever"),
        (Bug::LogOutlivesItsUse, "recovered to Some(({|then a crash: "),
        (Bug::RecoveryRepeats, "recovered to Some"),
        (Bug::RecoveryUnfenced, "recovered to Some"),
    ];
    for (bug, explanation) in bugs {
        for mode in [Mode::Prefix, Mode::Subset] {
            let report = explored(bug, mode);
            println!("{bug:?}: {report}");
            let failure =
                report.failures.first().unwrap_or_else(|| panic!("{bug:?} went unnoticed ({mode})"));
            // The explorer chooses which image fails first.
            let explained = explanation.split('|').any(|one| failure.what.contains(one));
            assert!(explained, "{bug:?} ({mode}): {failure}");
            assert!(!failure.crashes.is_empty(), "{bug:?} ({mode}): {failure}");
        }
    }
}

#[test]
fn replay_case_of_a_failure_leads_to_the_same_failure() {
    for (bug, crashes) in [(Bug::CommitBeforeData, 1), (Bug::RecoveryUnfenced, 2), (Bug::LockSurvives, 1)] {
        let report = explored(bug, Mode::Subset);
        let failure = &report.failures[0];
        let case = Case::of(failure, "toy-map", 0, Budget::quick().continuation_crashes);
        assert_eq!(case.crashes.len(), crashes, "{case}");
        let case: Case = case.to_string().parse().unwrap();
        let again = replay(&ToyMap(bug), &scenario(), &case).unwrap();
        assert_eq!(again.failures[0].to_string(), failure.to_string());
        assert_eq!(again.opened, 1, "nothing but the case");
        match replay(&ToyMap(Bug::None), &scenario(), &case) {
            Ok(right) => right.assert_clean(),
            Err(what) => assert!(what.contains("does not fit"), "{what}"),
        }
    }
}

#[test]
fn toy_map_with_assumed_line_order_fails_in_subset_mode_only() {
    assert!(explored(Bug::LineOrderAssumed, Mode::Prefix).failures.is_empty());
    assert!(!explored(Bug::LineOrderAssumed, Mode::Subset).failures.is_empty());
}

#[test]
fn toy_map_in_eadr_mode_fails_with_bugs_that_no_flush_mends_only() {
    for bug in [Bug::CommitBeforeData, Bug::CounterDisagrees, Bug::RecoveryRepeats] {
        assert!(!explored(bug, Mode::Eadr).failures.is_empty(), "{bug:?}");
    }
    for bug in [Bug::DataNotFlushed, Bug::DataNotFenced, Bug::AcknowledgedBeforeDurable] {
        explored(bug, Mode::Eadr).assert_clean();
    }
}

#[test]
fn toy_map_every_mutation_is_noticed() {
    let scenarios = [(scenario(), Mode::Subset)];
    let table = mutate(&ToyMap(Bug::None), &scenarios, Budget::quick(), "");
    println!("{table}");
    assert!(table.survivors().is_empty(), "{table}");
}
