//! Damaged leaves and inner nodes lose little more than the damaged parts.

use super::{ALL, CHUNKS, healthy, key, places, salvage};
use crate::common::Noise;
use bristlecone::Design;
use bristlecone_matrix::by_level;

/// Returns the subnodes of the tree of words: offsets of their `next`.
fn subnodes(bytes: &[u8]) -> Vec<usize> {
    let chunk = places(bytes, key(77))[0] / CHUNKS * CHUNKS;
    let all = (chunk..chunk + CHUNKS).step_by(256);
    all.filter(|&at| bytes[at..at + 8] != [0; 8]).collect()
}

#[test]
fn a_broken_leaf_costs_little_more_than_itself() {
    let whole = healthy(Design::SsTree);
    let subnodes = subnodes(&whole);
    let mut noise = Noise(43);
    let mut sum = [0; 3];
    let rounds = by_level(12, 60, 60_u64);
    for round in 0..rounds {
        let mut bytes = whole.clone();
        let at = subnodes[noise.below(subnodes.len() as u64) as usize];
        match round % 6 {
            0 => bytes[at] ^= 1 << noise.below(8),
            1 => bytes[at..at + 8].copy_from_slice(&noise.next().to_le_bytes()),
            2 => bytes[at + 8 + noise.below(8) as usize] ^= 1 << noise.below(8),
            3 => bytes[at..at + 64].fill(0xff),
            4 => bytes[at..at + 256].fill_with(|| noise.next() as u8),
            _ => {
                // Its chain leads to another leaf's subnode.
                let other = subnodes[noise.below(subnodes.len() as u64) as usize] as u64;
                bytes[at..at + 8].copy_from_slice(&other.to_le_bytes());
            }
        }
        let (salvage, saved) = salvage(&bytes);
        let lost = ALL.words - saved.words;
        // A cleared bit of a bitmap looks like a removal, one damaged word like a word.
        let told = !salvage.is_whole() || lost <= u64::from([2, 3].contains(&(round % 6)));
        assert!(saved.texts == ALL.texts && lost <= 42 && told, "round {round}: {saved:?} {salvage:?}");
        // Words have no checksum: noise may be taken for an item.
        let noise = [3, 4].contains(&(round % 6));
        assert!(saved.back <= 14 && saved.strange <= if noise { 14 } else { 1 }, "round {round}: {saved:?}");
        sum = [sum[0] + lost, sum[1] + saved.back, sum[2] + saved.strange];
    }
    println!("{rounds} broken leaves: {} items lost, {} came back, {} are made up", sum[0], sum[1], sum[2]);
}

/// Returns the leaves of an NBTree of words: offsets of their blocks.
fn blocks(bytes: &[u8]) -> Vec<usize> {
    let chunk = places(bytes, key(77))[0] / CHUNKS * CHUNKS;
    (chunk..chunk + CHUNKS).step_by(1024).filter(|&at| bytes[at] & 3 == 1).collect()
}

/// A damaged header loses nothing, because no other leaf has the keys.
#[test]
fn a_broken_block_costs_what_is_broken_of_it() {
    let whole = healthy(Design::NbTree);
    let blocks = blocks(&whole);
    let mut noise = Noise(53);
    let mut sum = [0; 3];
    let rounds = by_level(16, 80, 80_u64);
    for round in 0..rounds {
        let mut bytes = whole.clone();
        let at = blocks[noise.below(blocks.len() as u64) as usize];
        let other = blocks[noise.below(blocks.len() as u64) as usize] as u64;
        let put = |bytes: &mut Vec<u8>, at: usize, word: u64| {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        };
        match round % 8 {
            // One bit of the state, of the stamp, of an item.
            0 => bytes[at + noise.below(8) as usize] ^= 1 << noise.below(8),
            1 => bytes[at + 8 + noise.below(8) as usize] ^= 1 << noise.below(8),
            2 => bytes[at + 16 + noise.below(1008) as usize] ^= 1 << noise.below(8),
            // An invalid state, another leaf as origin, a stamp that was never used.
            3 => put(&mut bytes, at, noise.next() | 3),
            4 => put(&mut bytes, at, other | 1),
            5 => put(&mut bytes, at + 8, noise.next()),
            // A line of zeros, and a block of noise.
            6 => bytes[at..at + 64].fill(0),
            _ => bytes[at..at + 1024].fill_with(|| noise.next() as u8),
        }
        let (salvage, saved) = salvage(&bytes);
        let lost = ALL.words - saved.words;
        let allowed = [0, 0, 1, 0, 0, 0, 3, 63][round as usize % 8];
        assert!(saved.texts == ALL.texts && lost <= allowed, "round {round}: {saved:?} {salvage:?}");
        // Noise may be taken for items, and an item of a disconnected leaf may have been removed.
        let made_up = if round % 8 == 7 { 63 } else { 1 };
        assert!(saved.back == 0 && saved.strange <= made_up, "round {round}: {saved:?} {salvage:?}");
        sum = [sum[0] + lost, sum[1] + saved.back, sum[2] + saved.strange];
    }
    println!("{rounds} broken blocks: {} items lost, {} came back, {} are made up", sum[0], sum[1], sum[2]);
}

/// Returns the nodes of a kind of a WO-tree of words: 1 for leaves, 2 for inner nodes.
fn nodes(bytes: &[u8], kind: u8) -> Vec<usize> {
    let chunk = places(bytes, key(77))[0] / CHUNKS * CHUNKS;
    (chunk..chunk + CHUNKS).step_by(1024).filter(|&at| bytes[at + 7] >> 4 == kind).collect()
}

/// Leaves are found regardless of the links to them.
#[test]
fn broken_inner_nodes_cost_nothing() {
    let whole = healthy(Design::WoTree);
    let (inner, leaves) = (nodes(&whole, 2), nodes(&whole, 1));
    assert!(inner.len() > 1 && leaves.len() > 50, "{} inner nodes, {} leaves", inner.len(), leaves.len());
    let mut noise = Noise(59);
    for (round, &node) in inner.iter().cycle().take(inner.len() * 6).enumerate() {
        let mut bytes = whole.clone();
        match round / inner.len() {
            0 => bytes[node..node + 1024].fill(0),
            1 => bytes[node..node + 1024].fill_with(|| noise.next() as u8),
            2 => bytes[node..node + 64].fill(0xff),
            3 => bytes[node + 40 + 16 * noise.below(20) as usize] ^= 1 << noise.below(8),
            4 => bytes[node + 8 + noise.below(16) as usize] ^= 0x10,
            // Also the link of every leaf to the next one.
            _ => leaves.iter().for_each(|&leaf| bytes[leaf + 64..leaf + 80].fill_with(|| noise.next() as u8)),
        }
        let (salvage, saved) = salvage(&bytes);
        assert_eq!((saved, salvage.items().1), (ALL, 0), "round {round}: {salvage:?}");
    }
}

#[test]
fn a_broken_leaf_of_a_wotree_costs_what_is_broken_of_it() {
    let whole = healthy(Design::WoTree);
    let leaves = nodes(&whole, 1);
    let mut noise = Noise(61);
    let mut sum = [0; 3];
    let rounds = by_level(14, 70, 70_u64);
    for round in 0..rounds {
        let mut bytes = whole.clone();
        let at = leaves[noise.below(leaves.len() as u64) as usize];
        match round % 7 {
            // One bit of the bitmap, of the slot array, of an item.
            0 => bytes[at + noise.below(6) as usize] ^= 1 << noise.below(8),
            1 => bytes[at + 8 + noise.below(8) as usize] ^= 1 << noise.below(8),
            2 => bytes[at + 80 + noise.below(880) as usize] ^= 1 << noise.below(8),
            // An invalid state, and that of an inner node.
            3 => bytes[at + 7] |= 0xf0,
            4 => bytes[at..at + 8].copy_from_slice(&(2_u64 << 60 | 40).to_le_bytes()),
            // A line of zeros, and a leaf of noise.
            5 => bytes[at..at + 64].fill(0),
            _ => bytes[at..at + 1024].fill_with(|| noise.next() as u8),
        }
        let (salvage, saved) = salvage(&bytes);
        let lost = ALL.words - saved.words;
        // A bit set for a slot that was never used represents an item of zeros.
        let allowed = [1, 0, 1, 0, 0, 1, 55][round as usize % 7];
        assert!(saved.texts == ALL.texts && lost <= allowed, "round {round}: {saved:?} {salvage:?}");
        assert!(!salvage.is_whole() || [2].contains(&(round % 7)), "round {round}: {salvage:?}");
        // A removed item stays in its slot; if the bitmap is lost it may reappear.
        let (back, strange) = [(1, 1), (0, 0), (0, 1), (0, 0), (0, 0), (55, 1), (0, 55)][round as usize % 7];
        assert!(saved.back <= back && saved.strange <= strange, "round {round}: {saved:?} {salvage:?}");
        sum = [sum[0] + lost, sum[1] + saved.back, sum[2] + saved.strange];
    }
    println!("{rounds} broken leaves: {} items lost, {} came back, {} are made up", sum[0], sum[1], sum[2]);
}
