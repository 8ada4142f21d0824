//! Published designs that the trees of Bristlecone are compared with. The library does not contain them, and they
//! implement only what a comparison needs. They support 8-byte keys and values, as in their papers' experiments, and do
//! not merge nodes.
//!
//! Each is tested with the same traits, medium and crash explorer as the designs of the library, and was corrected to
//! survive all crashes found there.

mod betree;
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
mod pactree;
mod shadow;
mod store;
mod utree;
mod wbtree;

use bristlecone_pm::{Part, SlotKind};
pub use designs::{AnyDesign, Baseline};

/// Undetectable mutations of flushes, fences and publishes, as printed by the explorer without their location: their
/// number, and the reason.
pub const UNNOTICED: &[(&str, usize, &str)] = &[
    ("lose publish \"wbtree repair.2\"", 1, "no flush follows it: the next recovery does the same once more"),
    ("swap publish \"lbtree unlink.1\"", 1, "recovery takes out each empty leaf by itself"),
    ("swap publish \"fptree unlink.1\"", 1, "recovery takes out each empty leaf by itself"),
    ("swap publish \"dptree unlink.1\"", 1, "recovery takes out each empty leaf by itself"),
    ("swap publish \"betree unlink.1\"", 1, "recovery takes out each empty leaf by itself"),
    ("swap publish \"fptree replay.1\"", 1, "recovery goes through each micro-log by itself"),
    (
        "swap publish \"pactree split.2 bitmap\"",
        1,
        "recovery sets the bitmap and the key before it in any case",
    ),
    (
        "swap publish \"pactree repair.1\"",
        1,
        "the next recovery sets the bitmap and the key before it in any case",
    ),
    (
        "remove fence \"fptree split.1\"",
        1,
        "the fence of split.2 waits for the micro-log, too: as published, where an allocator writes in between",
    ),
];

/// Returns the purpose of slots of a kind, in trees of the baselines and of the library; `None` if no design has such
/// slots.
pub fn part_of(kind: SlotKind) -> Option<Part> {
    match kind {
        // FlatStore's log stores its items.
        store::NODES | utree::ITEMS | flatstore::SEGMENTS => Some(Part::Leaf),
        log::LOGS => Some(Part::Log),
        other => bristlecone::lab::part_of(other),
    }
}
