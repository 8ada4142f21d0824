//! What can be explored by name: the pool, and every design in shapes so small that each change of
//! structure comes at once. A new design is one entry of [`SHAPES`].

use std::marker::PhantomData;

use bristlecone::Design;
use bristlecone_baselines::{Baseline, Contender};
use bristlecone_pm::Geometry;

use super::{Bags, Forest, Items, Texts, Words, pool_scenarios, tree_scenarios};
use crate::subject::{Prepared, Subject};

/// The name of the pool without trees.
pub const POOL: &str = "pool";

/// What keys and values of a shape are.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Words,
    Texts,
}

struct Shape {
    design: Contender,
    /// What follows the design's name in the subject's.
    name: &'static str,
    kind: Kind,
    options: &'static [(&'static str, u64)],
}

const fn shape(
    design: Design,
    name: &'static str,
    kind: Kind,
    options: &'static [(&'static str, u64)],
) -> Shape {
    Shape { design: Contender::Ours(design), name, kind, options }
}

const fn baseline(design: Baseline, name: &'static str, options: &'static [(&'static str, u64)]) -> Shape {
    Shape { design: Contender::Baseline(design), name, kind: Kind::Words, options }
}

const ONE: &[(&str, u64)] = &[("subnode_bytes", 128), ("max_subnodes", 1), ("inner_bytes", 256)];
const TWO: &[(&str, u64)] = &[("subnode_bytes", 128), ("max_subnodes", 2), ("inner_bytes", 256)];
const THREE: &[(&str, u64)] = &[("subnode_bytes", 128), ("max_subnodes", 3), ("inner_bytes", 256)];
const DELEGATED: &[(&str, u64)] =
    &[("subnode_bytes", 128), ("max_subnodes", 3), ("inner_bytes", 256), ("delegate_fingerprints", 1)];
const FOUR: &[(&str, u64)] = &[("subnode_bytes", 192), ("max_subnodes", 4), ("inner_bytes", 256)];

const SEVEN: &[(&str, u64)] = &[("block_bytes", 128), ("inner_bytes", 256)];
const FIFTEEN: &[(&str, u64)] = &[("block_bytes", 256), ("inner_bytes", 256)];
const SINGLE_LAYER: &[(&str, u64)] = &[("block_bytes", 256), ("layers", 1), ("inner_bytes", 256)];

const BUFFERED: &[(&str, u64)] = &[
    ("leaf_slots", 4),
    ("log_entries", 5),
    ("inner_bytes", 256),
    ("collector_threads", 0),
    ("log_percent", 20),
];
const BATCHED: &[(&str, u64)] = &[
    ("leaf_slots", 6),
    ("batch", 4),
    ("log_entries", 7),
    ("inner_bytes", 256),
    ("collector_threads", 0),
    ("log_percent", 20),
];

const TWO_LINES: &[(&str, u64)] = &[("node_lines", 2)];
const FOUR_LINES: &[(&str, u64)] = &[("node_lines", 4)];
const LONG: &[(&str, u64)] = &[("node_lines", 32)];
const LODGED: &[(&str, u64)] =
    &[("node_slots", 6), ("leaf_slots", 3), ("log_entries", 5), ("inner_bytes", 256), ("split_nodes", 3)];
const LODGED_WIDE: &[(&str, u64)] =
    &[("node_slots", 9), ("leaf_slots", 7), ("split_items", 6), ("log_entries", 7), ("inner_bytes", 256)];

/// Every design, the shape first that has the most kinds of structure changes.
const SHAPES: &[Shape] = &[
    shape(Design::SsTree, "words-3", Kind::Words, THREE),
    shape(Design::SsTree, "words-2", Kind::Words, TWO),
    shape(Design::SsTree, "words-1", Kind::Words, ONE),
    shape(Design::SsTree, "words-4", Kind::Words, FOUR),
    shape(Design::SsTree, "words-delegated", Kind::Words, DELEGATED),
    shape(Design::SsTree, "texts-3", Kind::Texts, THREE),
    shape(Design::NbTree, "words-7", Kind::Words, SEVEN),
    shape(Design::NbTree, "words-15", Kind::Words, FIFTEEN),
    shape(Design::NbTree, "words-single-layer", Kind::Words, SINGLE_LAYER),
    shape(Design::NbTree, "texts-7", Kind::Texts, SEVEN),
    shape(Design::CclBTree, "words-4", Kind::Words, BUFFERED),
    shape(Design::CclBTree, "words-6", Kind::Words, BATCHED),
    shape(Design::CclBTree, "texts-4", Kind::Texts, BUFFERED),
    shape(Design::WoTree, "words-2", Kind::Words, TWO_LINES),
    shape(Design::WoTree, "words-4", Kind::Words, FOUR_LINES),
    shape(Design::WoTree, "words-32", Kind::Words, LONG),
    shape(Design::WoTree, "texts-2", Kind::Texts, TWO_LINES),
    shape(Design::LodgeTree, "words-3", Kind::Words, LODGED),
    shape(Design::LodgeTree, "words-7", Kind::Words, LODGED_WIDE),
    shape(Design::LodgeTree, "texts-3", Kind::Texts, LODGED),
    baseline(Baseline::Native, "words-2", TWO_LINES),
    baseline(Baseline::Native, "words-4", FOUR_LINES),
    baseline(Baseline::WbTree, "words-2", TWO_LINES),
    baseline(Baseline::WbTree, "words-4", FOUR_LINES),
    baseline(Baseline::FastFair, "words-2", TWO_LINES),
    baseline(Baseline::FastFair, "words-4", FOUR_LINES),
];

impl Shape {
    fn forest<I: Items>(&self) -> Forest<I> {
        Forest {
            geometry: Geometry { chunk_bytes: 4096, chunks_max: 24, trees_max: 3 },
            design: self.design,
            options: self.options.to_vec(),
            items: PhantomData,
        }
    }

    fn prepare<I: Items>(&self) -> Box<dyn Subject> {
        let name = format!("{}-{}", self.design, self.name);
        Box::new(Prepared { name, system: self.forest::<I>(), scenarios: tree_scenarios() })
    }
}

/// The shapes of a design.
pub fn subjects_of(design: impl Into<Contender>) -> Vec<Box<dyn Subject>> {
    let design = design.into();
    let shapes = SHAPES.iter().filter(|shape| shape.design == design);
    let prepare = |shape: &Shape| match shape.kind {
        Kind::Words => shape.prepare::<Words>(),
        Kind::Texts => shape.prepare::<Texts>(),
    };
    shapes.map(prepare).collect()
}

/// The pool without trees.
pub fn pool_subject() -> Box<dyn Subject> {
    let system = Bags { geometry: Geometry { chunk_bytes: 4096, chunks_max: 10, trees_max: 4 } };
    Box::new(Prepared { name: POOL.to_owned(), system, scenarios: pool_scenarios() })
}

/// Everything that can be explored.
pub fn all_subjects() -> Vec<Box<dyn Subject>> {
    let trees = Contender::all().flat_map(subjects_of);
    std::iter::once(pool_subject()).chain(trees).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_has_a_shape() {
        for design in Contender::all() {
            assert!(!subjects_of(design).is_empty(), "{design} is not explored: it needs shapes");
        }
    }
}
