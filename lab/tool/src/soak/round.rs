//! Draws a round from a seed: a cell of the table, operations, and the ends of some lives of one
//! pool.

use std::fmt;
use std::time::Duration;

use bristlecone_matrix::{Cell, suites};
use bristlecone_pm::Geometry;
use bristlecone_random::{Generator, mix};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::board::{KEYS_MAX, Phase, State};

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub enum Kind {
    Insert,
    Upsert,
    InsertNew,
    Update,
    Remove,
    CompareAndSwap,
    /// A run of adjacent keys, each written and acknowledged.
    Bulk,
    Get,
    Scan,
    /// A scan in reverse.
    Backwards,
    /// Creates another tree, or drops it.
    OtherTree,
}

impl Kind {
    /// Kinds that create keys.
    const MAKE: [Self; 4] = [Self::Insert, Self::Upsert, Self::InsertNew, Self::Bulk];
}

/// Limits that make a round smaller than its seed draws it.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Number of threads of a worker [default: 1 to 8, drawn]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u64).range(1..=8))]
    pub threads: Option<u64>,
    /// Run only these kinds of operations [default: several, drawn]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub only: Vec<Kind>,
    /// Maximum number of keys [default: 8 to 2048, drawn]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=KEYS_MAX as u64 - 8))]
    pub keys: Option<u64>,
    /// Maximum number of operations of a thread in a life [default: 16 to 4096, drawn]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub operations: Option<u64>,
    /// Maximum number of lives of a pool [default: 3 to 10, drawn]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub lives: Option<u64>,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, only, keys, operations, lives } = self;
        let numbers = [("threads", threads), ("keys", keys), ("operations", operations), ("lives", lives)];
        for (name, value) in numbers {
            value.map_or(Ok(()), |value| write!(f, " --{name} {value}"))?;
        }
        let name = |kind: &Kind| kind.to_possible_value().map(|value| value.get_name().to_owned());
        let names: Vec<_> = only.iter().filter_map(name).collect();
        if names.is_empty() { Ok(()) } else { write!(f, " --only {}", names.join(",")) }
    }
}

/// Distribution of the keys of operations.
#[derive(Clone, Copy, Debug)]
pub enum Pattern {
    /// One of four in most cases, rarely another.
    Hot,
    /// Random walks of a few steps among adjacent keys.
    Dense,
    Ascending,
    Descending,
    Uniform,
}

/// The end of a life.
#[derive(Clone, Copy, Debug)]
pub enum End {
    /// By SIGKILL, this long after a phase began.
    After(Phase, Duration),
    /// By SIGKILL, after this many acknowledged operations.
    Acknowledged(u64),
    /// The worker closes the pool after all operations.
    Closed,
    /// The worker opens the pool read-only and compares.
    Look,
    /// The worker compares, and closes the pool.
    Last,
}

/// A round drawn from a seed.
#[derive(Debug)]
pub struct Round {
    pub seed: u64,
    pub cell: Cell,
    pub geometry: Geometry,
    /// Maximum size of the file in bytes, if less than the pool's.
    pub file_bytes_max: Option<u64>,
    pub threads: u64,
    pub keys: usize,
    pub pattern: Pattern,
    /// Kinds of operations that occur.
    pub kinds: Vec<Kind>,
    pub operations: u64,
    pub lives: Vec<End>,
    /// Number of the first key.
    first_number: u64,
}

/// Returns one of several independent generators of a seed: a limit on one does not affect the
/// others.
fn generator(seed: u64, of: &str) -> Generator {
    Generator::new(of.bytes().fold(mix(seed), |hash, byte| mix(hash ^ u64::from(byte))))
}

/// Draws a power of two.
fn power(generator: &mut Generator, fewest: u32, most: u32) -> u64 {
    1 << (u64::from(fewest) + generator.below(u64::from(most - fewest) + 1))
}

/// Chunks so small that a few items fill many of them, and a round takes no longer than its
/// processes.
const TIGHT_CHUNK: u64 = 64 << 10;

impl Round {
    /// Draws a round. The same seed gives the same round, except for concurrent events.
    pub fn of(seed: u64, limits: &Limits) -> Self {
        let cells = suites::SOAK.cells();
        let cell = cells[generator(seed, "cell").below(cells.len() as u64) as usize];
        let geometry = geometry(seed, &cell);
        let mut file = generator(seed, "file");
        let chunks = 1 + file.below(geometry.chunks_max);
        let file_bytes = geometry.header_bytes() + chunks * geometry.chunk_bytes;
        let file_bytes_max = (file.below(6) == 0).then_some(file_bytes);
        let threads = [1, 1, 2, 2, 3, 4, 6, 8][generator(seed, "threads").below(8) as usize];
        let threads = limits.threads.unwrap_or(threads);
        // Few rounds live long enough for logs to be emptied and records to be reused many times.
        let is_long = generator(seed, "long").below(8) == 0;
        let (of_keys, of_operations) = if is_long { ((9, 11), (12, 15)) } else { ((3, 11), (4, 12)) };
        let keys = power(&mut generator(seed, "keys"), of_keys.0, of_keys.1);
        let keys = limits.keys.unwrap_or(u64::MAX).min(keys);
        let operations = power(&mut generator(seed, "operations"), of_operations.0, of_operations.1);
        let operations = limits.operations.unwrap_or(u64::MAX).min(operations);
        let patterns =
            [Pattern::Hot, Pattern::Dense, Pattern::Ascending, Pattern::Descending, Pattern::Uniform];
        let pattern = patterns[generator(seed, "pattern").below(5) as usize];
        let kinds = if limits.only.is_empty() { kinds(seed) } else { limits.only.clone() };
        let lives = lives(seed, threads * operations, limits.lives.unwrap_or(u64::MAX));
        let first_number = generator(seed, "number").below(1 << 31);
        let keys = keys.next_multiple_of(threads) as usize;
        Self {
            seed,
            cell,
            geometry,
            file_bytes_max,
            threads,
            keys,
            pattern,
            kinds,
            operations,
            lives,
            first_number,
        }
    }

    /// Returns the number from which a key is derived.
    pub fn number(&self, key: usize) -> u64 {
        // The first numbers are the ends of the range.
        if self.first_number.is_multiple_of(4) { key as u64 } else { self.first_number + key as u64 }
    }

    /// Returns the number from which a key's value is derived.
    pub fn value_number(key: usize, state: State) -> u64 {
        mix((key as u64) << 40 ^ state.version)
    }

    /// Returns whether operations may find no space.
    pub fn may_be_full(&self) -> bool {
        self.file_bytes_max.is_some() || self.geometry.max_bytes() < 64 << 20
    }

    /// Returns the generator of a thread in a life.
    pub fn generator(&self, life: usize, thread: u64) -> Generator {
        generator(self.seed, &format!("life {life}, thread {thread}"))
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cell, geometry, threads, keys, pattern, kinds, operations, .. } = self;
        let Geometry { chunk_bytes, chunks_max, .. } = geometry;
        write!(f, "{cell}, at most {chunks_max} chunks of {} KiB", chunk_bytes >> 10)?;
        if let Some(bytes) = self.file_bytes_max {
            write!(f, " in a file of {} KiB", bytes >> 10)?;
        }
        write!(f, "; {threads} threads, {keys} keys {pattern:?}, {operations} operations of {kinds:?}")
    }
}

/// Returns the cell's own geometry, or one that is soon full.
fn geometry(seed: u64, cell: &Cell) -> Geometry {
    let mut generator = generator(seed, "geometry");
    let (chunk_bytes, chunks_max) = (cell.pool_size.chunk_bytes, cell.pool_size.chunks_max);
    let tighter = chunk_bytes > TIGHT_CHUNK && generator.below(8) > 0;
    let (chunk_bytes, chunks_max) =
        if tighter { (TIGHT_CHUNK, 6 + generator.below(60)) } else { (chunk_bytes, chunks_max) };
    Geometry { chunk_bytes, chunks_max, trees_max: 8 }
}

/// Draws the kinds of operations; at least one creates keys.
fn kinds(seed: u64) -> Vec<Kind> {
    let mut generator = generator(seed, "kinds");
    let mut kinds: Vec<_> =
        Kind::value_variants().iter().copied().filter(|_| generator.below(2) == 0).collect();
    if !kinds.iter().any(|kind| Kind::MAKE.contains(kind)) {
        kinds.push(Kind::MAKE[generator.below(4) as usize]);
    }
    kinds
}

fn lives(seed: u64, operations: u64, most: u64) -> Vec<End> {
    let mut generator = generator(seed, "lives");
    let lives = (3 + generator.below(8)).min(most);
    let mut micros = |below: u64| {
        // Short times more often than long ones.
        let bound = 1 + generator.below(below);
        (generator.below(bound), generator.word())
    };
    let mut end = || {
        let (after, which) = micros(4000);
        let after = Duration::from_micros(after);
        match which % 20 {
            0..7 => End::Acknowledged(1 + (which >> 8) % operations),
            7..9 => End::Acknowledged(1 + (which >> 8) % operations.min(100)),
            9..13 => End::After(Phase::Working, after),
            13..16 => End::After(Phase::Begun, after / 4),
            16 => End::After(Phase::Opened, after / 8),
            17 => End::After(Phase::Comparing, after / 4),
            18 => End::Closed,
            _ => End::Look,
        }
    };
    (1..=lives).map(|_| end()).chain([End::Last]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn soak_round_of_one_seed_is_the_same_and_limits_leave_the_rest() {
        let drawn = |seed, limits: &Limits| format!("{:?}", Round::of(seed, limits));
        let all = Limits::default();
        let rounds: BTreeSet<_> = (0..64).map(|seed| drawn(seed, &all)).collect();
        assert_eq!(rounds.len(), 64);
        for seed in 0..64 {
            assert_eq!(drawn(seed, &all), drawn(seed, &all));
            let few = Limits { keys: Some(8), only: vec![Kind::Insert], ..Limits::default() };
            let (round, less) = (Round::of(seed, &all), Round::of(seed, &few));
            assert_eq!((round.cell.to_string(), round.threads), (less.cell.to_string(), less.threads));
            assert_eq!(format!("{:?}", round.lives), format!("{:?}", less.lives));
            assert!(less.keys <= 8 + 7 && less.kinds == [Kind::Insert]);
        }
    }

    #[test]
    fn soak_rounds_of_a_thousand_seeds_draw_every_kind() {
        let rounds: Vec<_> = (0..1000).map(|seed| Round::of(seed, &Limits::default())).collect();
        let texts = rounds.iter().map(|round| format!("{round:?}")).collect::<Vec<_>>().join("\n");
        for part in ["Hot", "Dense", "Ascending", "Descending", "Uniform", "Closed", "Look", "After(Begun"] {
            assert!(texts.contains(part), "{part}");
        }
        for kind in Kind::value_variants() {
            let with = rounds.iter().filter(|round| round.kinds.contains(kind)).count();
            assert!((300..700).contains(&with), "{kind:?} is in {with} rounds");
        }
        let cells: BTreeSet<_> = rounds.iter().map(|round| round.cell.to_string()).collect();
        assert!(cells.len() > 600, "{} cells", cells.len());
    }
}
