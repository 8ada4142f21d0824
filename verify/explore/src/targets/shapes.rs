//! Explorable subjects by name: the pool, the cells of the table that are small enough, and the
//! baselines.

use std::marker::PhantomData;

use bristlecone::Domain;
use bristlecone_baselines::{AnyDesign, Baseline};
use bristlecone_matrix::{Cell, Codec, POOL_SIZES, PoolSize, suites};
use bristlecone_pm::Geometry;
use bristlecone_sim::{Mode, Prepared, Subject};

use super::items::{Items, Labels, Notes, Texts, Words};
use super::pool::Bags;
use super::pool_scenarios::pool_scenarios;
use super::scenarios::tree_scenarios;
use super::tree_pool::TreePool;

/// The name of the pool without trees.
pub const POOL: &str = "pool";
const PAGED_POOL: &str = "pool-pages";

/// The default pool size: the first one with small chunks.
const USUAL: &str = "small-chunks";

/// Baselines support words only, and are not part of the table.
const BASELINES: &[(Baseline, u64)] = &[
    (Baseline::Native, 2),
    (Baseline::Native, 4),
    (Baseline::WbTree, 2),
    (Baseline::WbTree, 4),
    (Baseline::FastFair, 2),
    (Baseline::FastFair, 4),
    (Baseline::LbTree, 4),
    (Baseline::LbTree, 2),
    (Baseline::LbTree, 8),
    (Baseline::FpTree, 2),
    (Baseline::FpTree, 4),
    (Baseline::UTree, 2),
    (Baseline::FlatStore, 2),
    (Baseline::DpTree, 2),
    (Baseline::BeTree, 2),
    (Baseline::PacTree, 2),
    (Baseline::PacTree, 4),
];

fn prepared<I: Items>(name: String, tree_pool: TreePool<I>) -> Box<dyn Subject> {
    Box::new(Prepared { name, system: tree_pool, scenarios: tree_scenarios() })
}

fn geometry(pool_size: &PoolSize) -> Geometry {
    let PoolSize { chunk_bytes, chunks_max, beside, .. } = *pool_size;
    // Scenarios have up to three trees at the same time.
    Geometry { chunk_bytes, chunks_max, trees_max: 3 + beside }
}

/// Returns the subject of a cell, which runs the code of one domain: see [`mode_of`].
pub fn subject_of(cell: &Cell) -> Box<dyn Subject> {
    fn of<I: Items>(name: String, cell: &Cell) -> Box<dyn Subject> {
        let Cell { configuration: shape, pool_size, .. } = cell;
        let (design, options) = (AnyDesign::from(shape.design), shape.options.to_vec());
        prepared(name, TreePool::<I> { geometry: geometry(pool_size), design, options, items: PhantomData })
    }
    let Cell { configuration: shape, codec, pool_size, .. } = cell;
    let mut name = format!("{}-{codec}-{}", shape.design, shape.name);
    if pool_size.name != USUAL {
        name = format!("{name}-in-{}", pool_size.name);
    }
    match codec {
        Codec::Words => of::<Words>(name, cell),
        Codec::Notes => of::<Notes>(name, cell),
        Codec::Labels => of::<Labels>(name, cell),
        Codec::Texts => of::<Texts>(name, cell),
    }
}

/// Returns the crash model of a cell's domain.
pub fn mode_of(cell: &Cell) -> Mode {
    match cell.domain {
        Domain::Adr => Mode::Prefix,
        Domain::Msync => Mode::Subset,
        _ => Mode::Eadr,
    }
}

/// Returns the explored cells of a design, each once in any mode.
fn cells_of(design: AnyDesign) -> impl Iterator<Item = Cell> {
    let cells = suites::EXPLORER.cells().into_iter();
    cells.filter(move |cell| design == cell.configuration.design.into() && cell.domain == Domain::Adr)
}

/// Returns all explorable subjects of a design.
pub fn all_subjects_of(design: impl Into<AnyDesign>) -> Vec<Box<dyn Subject>> {
    let design = design.into();
    cells_of(design).map(|cell| subject_of(&cell)).chain(baselines(design)).collect()
}

/// Returns the shapes of a design: each with words, and the first one with every codec, in the
/// default pool size.
pub fn subjects_of(design: impl Into<AnyDesign>) -> Vec<Box<dyn Subject>> {
    let design = design.into();
    let usual: Vec<_> = cells_of(design).filter(|cell| cell.pool_size.name == USUAL).collect();
    let first = usual.first().map(|cell| cell.configuration);
    let chosen = usual.iter().filter(|cell| cell.codec == Codec::Words || Some(cell.configuration) == first);
    chosen.map(subject_of).chain(baselines(design)).collect()
}

fn baselines(design: AnyDesign) -> impl Iterator<Item = Box<dyn Subject>> {
    let of = BASELINES.iter().filter(move |(baseline, _)| design == (*baseline).into());
    let usual = POOL_SIZES.iter().find(|pool_size| pool_size.name == USUAL).expect("it is in the table");
    of.map(move |(baseline, lines)| {
        let (name, options) = (format!("{design}-words-{lines}"), vec![("node_lines", *lines)]);
        let design = (*baseline).into();
        prepared(name, TreePool::<Words> { geometry: geometry(usual), design, options, items: PhantomData })
    })
}

/// Returns the pool without trees.
pub fn pool_subject() -> Box<dyn Subject> {
    bags(POOL, Geometry { chunk_bytes: 4096, chunks_max: 10, trees_max: 4 })
}

/// Returns the pool without trees, with entries in pages of the directory but for the first one.
pub fn paged_pool_subject() -> Box<dyn Subject> {
    bags(PAGED_POOL, Geometry { chunk_bytes: 4096, chunks_max: 11, trees_max: 1 })
}

fn bags(name: &str, geometry: Geometry) -> Box<dyn Subject> {
    let system = Bags { geometry, chunks_possible: geometry.chunks_max + 2 };
    Box::new(Prepared { name: name.to_owned(), system, scenarios: pool_scenarios() })
}

/// Returns all explorable subjects.
pub fn all_subjects() -> Vec<Box<dyn Subject>> {
    let trees = AnyDesign::all().flat_map(all_subjects_of);
    [pool_subject(), paged_pool_subject()].into_iter().chain(trees).collect()
}
