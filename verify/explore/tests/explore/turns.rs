//! The rounds drawn by a run without end.

use bristlecone_baselines::AnyDesign;
use bristlecone_explore::Turn;
use bristlecone_explore::targets::subjects_of;

#[test]
fn the_same_seed_draws_the_same_turn() {
    let names: Vec<_> = (0..64).map(|seed| Turn::of(seed, 1).to_string()).collect();
    assert!((0..64).all(|seed| Turn::of(seed, 1).to_string() == names[seed as usize]));
    let mut distinct = names.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 48, "{names:?}");
}

#[test]
fn every_design_has_a_shape() {
    for design in AnyDesign::all() {
        assert!(!subjects_of(design).is_empty(), "{design} is not explored: it needs tiny shapes");
    }
}
