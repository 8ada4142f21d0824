//! Crashes of every design, in every small shape that there is.

use bristlecone::Design;
use bristlecone_sim::systems::subjects_of;
use bristlecone_sim::{Budget, Mode, Progress, Report, Round, Subject, explore_rounds, mutate, rounds};

/// Explores the rounds and fails with everything that was found.
fn survive<'a>(rounds: &[Round<'a>], budget: Budget) -> Vec<(Round<'a>, Report)> {
    let progress = Progress::default();
    let show = |round: &Round<'_>, report: &Report| println!("{}: {report}", round.subject.name());
    let reports = explore_rounds(rounds, budget, &progress, &show);
    let mut total = Report { scenario: "all".to_owned(), ..Report::default() };
    reports.iter().flatten().for_each(|report| total.merge(report.clone()));
    println!("{total}");
    total.assert_clean();
    assert_eq!(total.forgetful_points, 0);
    rounds.iter().copied().zip(reports.into_iter().flatten()).collect()
}

/// The shapes of a design with items in the tree itself, and those with items out of line.
fn words_and_texts(subjects: &[Box<dyn Subject>]) -> (Vec<&dyn Subject>, Vec<&dyn Subject>) {
    subjects.iter().map(Box::as_ref).partition(|subject| !subject.name().contains("texts"))
}

#[test]
fn every_design_survives_every_crash() {
    for design in Design::ALL {
        let subjects = subjects_of(*design);
        let (words, texts) = words_and_texts(&subjects);
        survive(&rounds(words, &Mode::ALL), Budget::quick());
        survive(&rounds(texts, &Mode::ALL), Budget { threads: 2, ..Budget::of(64) });
    }
}

#[test]
fn every_flush_and_fence_is_needed() {
    for design in Design::ALL {
        let subjects = subjects_of(*design);
        let (words, texts) = words_and_texts(&subjects);
        let mut rounds = rounds(words.into_iter().take(1).chain(texts.into_iter().take(1)), &[Mode::Subset]);
        // What is out of line is written by few sites, which these reach.
        let few = ["insert", "expand", "update", "move"];
        rounds.retain(|round| !round.subject.name().contains("texts") || few.contains(&round.scenario()));
        let budget = Budget { threads: 2, life_crashes: 1, ..Budget::of(64) };
        let rounds = survive(&rounds, budget);
        let table = mutate(&rounds, budget, design.name(), &Progress::default(), &|_| {});
        println!("{table}");
        assert!(table.survivors().is_empty(), "{table}");
    }
}
