//! Selects the cells of a run.

use std::collections::HashMap;
use std::time::SystemTime;

use bristlecone_random::Generator;

use crate::cell::Cell;

/// Returns the seed of the day's cells: `BRISTLECONE_SEED`, or the number of the day.
///
/// # Panics
///
/// If the seed is not a number.
pub fn seed() -> u64 {
    match std::env::var("BRISTLECONE_SEED") {
        Ok(seed) => seed.parse().expect("BRISTLECONE_SEED is a number"),
        Err(_) => SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() / (24 * 60 * 60)),
    }
}

/// Returns what a cell covers: the values of its design's options, and the pairs of its design with its codec,
/// its domain and its pool size.
pub fn goals(cell: &Cell) -> Vec<String> {
    let design = cell.configuration.design;
    let mut goals: Vec<_> = cell
        .configuration
        .options
        .iter()
        .map(|(option, value)| format!("{design} with {option} = {value}"))
        .collect();
    if goals.is_empty() {
        goals.push(format!("{design} as by default"));
    }
    goals.push(format!("{design} of {}", cell.codec));
    goals.push(format!("{design} in {}", cell.domain));
    goals.push(format!("{design} in a pool_size that is {}", cell.pool_size.name));
    goals
}

/// Selects few of the cells that together cover everything that all of them cover.
pub fn covering(mut cells: Vec<Cell>, seed: u64) -> Vec<Cell> {
    shuffle(&mut cells, seed);
    let mut numbers = HashMap::new();
    let mut shown: Vec<Vec<usize>> = Vec::new();
    for cell in &cells {
        let mut number = |goal| {
            let next = numbers.len();
            *numbers.entry(goal).or_insert(next)
        };
        shown.push(goals(cell).into_iter().map(&mut number).collect());
    }
    let mut is_open = vec![true; numbers.len()];
    let mut chosen = Vec::new();
    while is_open.contains(&true) {
        let shows = |at: usize| shown[at].iter().filter(|goal| is_open[**goal]).count();
        // The first one of those that cover most: the order is drawn.
        let best = (0..cells.len()).rev().max_by_key(|at| shows(*at)).expect("cells show what is open");
        shown[best].iter().for_each(|goal| is_open[*goal] = false);
        chosen.push(cells[best]);
    }
    chosen
}

fn shuffle(cells: &mut [Cell], seed: u64) {
    let mut generator = Generator::new(seed);
    for end in (2..=cells.len()).rev() {
        cells.swap(end - 1, generator.index(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn covering_few_cells_reach_every_goal_and_change_with_the_seed() {
        let all: Vec<_> = crate::all().collect();
        let shown = |cells: &[Cell]| cells.iter().flat_map(goals).collect::<BTreeSet<_>>();
        let names = |cells: &[Cell]| cells.iter().map(Cell::to_string).collect::<BTreeSet<_>>();
        let mut drawn = BTreeSet::new();
        for seed in 0..20 {
            let few = covering(all.clone(), seed);
            assert_eq!(shown(&few), shown(&all));
            assert!(few.len() * 50 < all.len(), "{} of {} cells", few.len(), all.len());
            assert_eq!(names(&few), names(&covering(all.clone(), seed)));
            drawn.extend(names(&few));
        }
        assert!(drawn.len() > 300, "20 seeds drew {} cells", drawn.len());
    }
}
