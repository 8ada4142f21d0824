//! Published designs that the trees of Bristlecone are measured against. For comparison only: the
//! library does not contain them, and they do no more than a comparison needs. They keep 8-byte keys
//! and values, as their papers' experiments do, and do not merge nodes.
//!
//! Each goes through the same traits, the same medium and the same explorer of crashes as the designs
//! of the library, and has been made to survive what is found there.

mod coupled;
mod designs;
mod dptree;
mod dram;
mod fastfair;
mod flatstore;
mod fptree;
mod hybrid;
mod index;
mod lbtree;
mod log;
mod native;
mod store;
mod utree;
mod wbtree;

use bristlecone_pm::{Part, SlotKind};
pub use designs::{AnyDesign, Baseline};

/// Returns what slots of a kind are for, in trees of the baselines and of the library; `None` if no design has such
/// slots.
pub fn part_of(kind: SlotKind) -> Option<Part> {
    match kind {
        store::NODES | utree::ITEMS => Some(Part::Leaf),
        log::LOGS | flatstore::SEGMENTS => Some(Part::Log),
        other => bristlecone::lab::part_of(other),
    }
}
