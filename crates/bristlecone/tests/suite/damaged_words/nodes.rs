//! The words of each design's nodes and logs.

use std::collections::BTreeSet;

use super::places::{Harm, Pages, Place, any, none, one};
use bristlecone::Design;

const NB_BLOCK: u64 = 4;

/// Brings a pool into a state after a crash, in which words are valid that are ignored otherwise.
pub fn prepare(pages: &mut Pages) {
    match pages.shape.design {
        Design::NbTree => seal(pages),
        Design::WoTree => log_a_rebuild(pages),
        _ => {}
    }
}

/// Lists the words of nodes and logs.
pub fn words(pages: &Pages, places: &mut Vec<Place>) {
    match pages.shape.design {
        Design::SsTree => sstree(pages, places),
        Design::NbTree => nbtree(pages, places),
        Design::CclBTree => cclbtree(pages, places),
        Design::LodgeTree => lodgetree(pages, places),
        Design::WoTree => wotree(pages, places),
        design => panic!("{design} has no kinds of words"),
    }
    logs(pages, places);
}

fn leaf(pages: &Pages, _: u64, _: u64) -> Harm {
    Harm::Items(match pages.shape.design {
        Design::SsTree => {
            let slots = (pages.option("subnode_bytes", 256) - 32) / 16;
            (slots * pages.option("max_subnodes", 3)) as usize
        }
        Design::NbTree => pages.option("block_bytes", 1024) as usize / 16,
        Design::CclBTree => pages.option("leaf_slots", 14) as usize,
        Design::LodgeTree => pages.option("leaf_slots", 27) as usize,
        _ => 118,
    })
}

fn sstree(pages: &Pages, places: &mut Vec<Place>) {
    const BITS: u64 = (1 << 56) - 1;
    let subnodes = pages.slots(1);
    let per_subnode = (subnodes.bytes - 32) / 16;
    let staged_here = pages.option("delegate_fingerprints", 0) == 0;
    let named: BTreeSet<u64> = subnodes.at.iter().map(|&at| pages.word(at)).collect();
    let mut place = |kind, at, harm| places.push(Place { kind, at, harm });
    for &head in &subnodes.at {
        let next = pages.word(head);
        if next == 0 {
            place("next of a free subnode", head, leaf);
            continue;
        }
        if named.contains(&(head as u64)) {
            place(if next == u64::MAX { "next of a tail" } else { "next within" }, head, leaf);
            place("bitmap of an overflow subnode", head + 8, none);
            continue;
        }
        place(if next == u64::MAX { "next of a single head" } else { "next of a head" }, head, leaf);
        let bitmap = pages.word(head + 8);
        place(if bitmap > BITS { "bitmap that stages" } else { "bitmap" }, head + 8, leaf);
        if bitmap > BITS && staged_here {
            // With another key there, the slot would seem to have lost it.
            place("staged key", head + 16, one);
            place("staged value", head + 24, none);
        }
        for slot in 0..per_subnode {
            let (key, taken) = (head + 32 + 16 * slot, bitmap >> slot & 1 != 0);
            item(&mut place, taken, key);
        }
    }
}

/// Lists the words of a slot.
fn item(place: &mut impl FnMut(&'static str, usize, fn(&Pages, u64, u64) -> Harm), taken: bool, key: usize) {
    let (keys, values, harm): (_, _, fn(&Pages, u64, u64) -> Harm) = match taken {
        true => ("key", "value", one),
        false => ("key of an empty slot", "value of an empty slot", none),
    };
    place(keys, key, harm);
    place(values, key + 8, harm);
}

/// Offset of an NBTree's slots in a block.
fn nb_head(pages: &Pages) -> usize {
    if pages.option("layers", 2) == 1 { 96 } else { 16 }
}

fn is_leaf(pages: &Pages, at: usize) -> bool {
    pages.word(at) & 3 == 1
}

/// Replaces one block of an NBTree halfway, and makes another one look like the first leaf of a tree.
fn seal(pages: &mut Pages) {
    let (blocks, head) = (pages.slots(NB_BLOCK), nb_head(pages));
    let leaves: Vec<usize> = blocks.at.iter().copied().filter(|&at| is_leaf(pages, at)).collect();
    let is_blank = |&&at: &&usize| pages.bytes[at..at + blocks.bytes].iter().all(|byte| *byte == 0);
    let (&[first, .., old], Some(&draft)) = (&leaves[..], blocks.at.iter().find(is_blank)) else { return };
    pages.put(first, 1);
    let youngest = blocks.at.iter().map(|&at| pages.word(at + 8)).max().unwrap();
    pages.bytes.copy_within(old..old + blocks.bytes, draft);
    pages.put(draft, old as u64 | 1);
    pages.put(draft + 8, youngest + 1);
    for value in (head + 8..blocks.bytes).step_by(16) {
        if pages.word(old + value) != 0 {
            pages.put(old + value, (draft + value) as u64 | 1);
        }
    }
}

fn nbtree(pages: &Pages, places: &mut Vec<Place>) {
    let (blocks, head) = (pages.slots(NB_BLOCK), nb_head(pages));
    let sealed = |at: usize| (head + 8..blocks.bytes).step_by(16).any(|v| seal_in(pages, at + v).is_some());
    let old = blocks.at.iter().copied().find(|&at| is_leaf(pages, at) && sealed(at));
    let draft = blocks.at.iter().copied().find(|&at| old.is_some_and(|old| pages.word(at) == old as u64 | 1));
    let mut place = |kind, at, harm| places.push(Place { kind, at, harm });
    for &block in &blocks.at {
        let state = pages.word(block);
        let (is_old, is_draft) = (old == Some(block), draft == Some(block));
        let kinds = match state & 3 {
            0 => ("state of a free block", "birth of a free block"),
            2 => ("state of a replaced block", "birth of a replaced block"),
            _ if is_old => ("state of a block being replaced", "birth of a block being replaced"),
            _ if is_draft => ("state of a draft", "birth of a draft"),
            _ if state == 1 => ("state of a first leaf", "birth of a first leaf"),
            _ => ("state of a leaf", "birth of a leaf"),
        };
        place(kinds.0, block, leaf);
        place(kinds.1, block + 8, leaf);
        if state & 3 != 1 {
            continue;
        }
        (16..head).step_by(8).for_each(|at| place("metadata", block + at, none));
        for key in (block + head..block + blocks.bytes).step_by(16) {
            let value = pages.word(key + 8);
            // An empty slot that gets a value becomes an item.
            let (keys, values, harm): (_, _, fn(&Pages, u64, u64) -> Harm) = match value {
                0 => ("key of an empty slot", "value of an empty slot", none),
                _ if is_old => ("key of a sealed slot", "seal", one),
                _ if is_draft => ("key in a draft", "value in a draft", one),
                1..=0xffff_ffff_ffff => ("key of a record", "record of a value", one),
                _ => ("key", "value", one),
            };
            place(keys, key, harm);
            place(values, key + 8, one);
        }
    }
}

/// Returns the word of a copy that a value word refers to.
fn seal_in(pages: &Pages, at: usize) -> Option<u64> {
    let value = pages.word(at);
    (value < 1 << 48 && value & 1 == 1).then(|| value - 1)
}

/// Leaves of a chain in order, and slots of leaves that are not among them.
fn chain(pages: &Pages, kind: u64, next: impl Fn(usize) -> u64) -> (Vec<usize>, Vec<usize>, usize) {
    let slots = pages.slots(kind);
    let (mut chain, mut at) = (Vec::new(), pages.word(pages.root()) as usize);
    while at != 0 {
        chain.push(at);
        at = next(at) as usize;
    }
    let free = slots.at.into_iter().filter(|at| !chain.contains(at)).collect();
    (chain, free, slots.bytes)
}

fn cclbtree(pages: &Pages, places: &mut Vec<Place>) {
    let (leaves, free, bytes) = chain(pages, 8, |leaf| pages.word(leaf) >> 16);
    let slots = pages.option("leaf_slots", 14) as usize;
    let mut place = |kind, at, harm| places.push(Place { kind, at, harm });
    for (number, &at) in leaves.iter().enumerate() {
        // A link to a later leaf skips those between.
        place(
            "word of a leaf",
            at,
            |pages, old, new| {
                if old >> 16 == new >> 16 { leaf(pages, old, new) } else { Harm::Any }
            },
        );
        // Merged entries of its log are applied again, or unmerged ones are lost.
        place("stamp of a leaf", at + 8, any);
        (16..32).step_by(8).for_each(|word| place("fingerprints", at + word, none));
        let bitmap = pages.word(at) & 0x3fff;
        for slot in 0..slots {
            let (key, taken) = (at + 32 + 16 * slot, bitmap >> slot & 1 == 1);
            if slot == 0 && number > 0 {
                // A range that does not fit the leaf's neighbours.
                place("fence of a leaf", key, any);
                place(
                    if taken { "value" } else { "value of an empty slot" },
                    key + 8,
                    if taken { one } else { none },
                );
            } else {
                item(&mut place, taken, key);
            }
        }
    }
    for at in free {
        (at..at + bytes).step_by(8).for_each(|at| place("free leaf", at, none));
    }
}

fn lodgetree(pages: &Pages, places: &mut Vec<Place>) {
    let next = |leaf: usize| pages.word(leaf + 8 + 8 * (pages.word(leaf) >> 63) as usize);
    let (leaves, free, bytes) = chain(pages, 10, next);
    let slots = pages.option("leaf_slots", 27) as usize;
    let mut place = |kind, at, harm| places.push(Place { kind, at, harm });
    for (number, &at) in leaves.iter().enumerate() {
        place(
            "word of a leaf",
            at,
            |pages, old, new| {
                if old >> 63 == new >> 63 { leaf(pages, old, new) } else { Harm::Any }
            },
        );
        let selected = (pages.word(at) >> 63) as usize;
        place("next of a leaf", at + 8 + 8 * selected, any);
        place("other next of a leaf", at + 16 - 8 * selected, none);
        place("stamp of a leaf", at + 24, any);
        (32..64).step_by(8).for_each(|word| place("fingerprints", at + word, none));
        place(if number == 0 { "fence of the first leaf" } else { "fence of a leaf" }, at + 64, any);
        place("spare word", at + 72, none);
        let bitmap = pages.word(at) & 0x7ff_ffff;
        for slot in 0..slots {
            item(&mut place, bitmap >> slot & 1 == 1, at + 80 + 16 * slot);
        }
    }
    for at in free {
        (at..at + bytes).step_by(8).for_each(|at| place("free leaf", at, none));
    }
}

fn wotree(pages: &Pages, places: &mut Vec<Place>) {
    let nodes = pages.slots(16);
    let lines = nodes.bytes / 64;
    let (bitmap_words, array_words) = match lines {
        2 => (1, 1),
        4 => (1, 2),
        8 => (1, 4),
        16 => (1, 7),
        _ => (2, 15),
    };
    let link = (bitmap_words + array_words) * 8;
    let items = (link + 16_usize).next_multiple_of(16);
    let mut place = |kind, at, harm| places.push(Place { kind, at, harm });
    for &node in &nodes.at {
        let state = pages.word(node);
        match state >> 60 {
            1 => {
                place("state of a leaf", node, leaf);
                (8..8 * bitmap_words).step_by(8).for_each(|at| place("bitmap of a leaf", node + at, leaf));
                let array = node + 8 * bitmap_words..node + link;
                array.step_by(8).for_each(|at| place("slot array", at, none));
                place("next of a leaf", node + link, none);
                place("high of a leaf", node + link + 8, none);
                let slots = ((nodes.bytes - items) / 16).min(array_words * 8 - 1).min(118);
                for slot in 0..slots {
                    let taken = match slot {
                        0..55 => state >> slot & 1,
                        _ => pages.word(node + 8) >> (slot - 55) & 1,
                    };
                    item(&mut place, taken == 1, node + items + 16 * slot);
                }
            }
            2 => {
                place("state of an inner node", node, none);
                place("next of an inner node", node + 8, none);
                place("high of an inner node", node + 16, none);
                place("first key of an inner node", node + 32, none);
                for entry in (node + 32..node + nodes.bytes).step_by(16) {
                    if pages.word(entry + 8) == 0 {
                        place("key behind an inner node's last", entry, none);
                        place("end of an inner node", entry + 8, none);
                        break;
                    }
                    if entry > node + 32 {
                        place("key of an inner node", entry, none);
                    }
                    place("child", entry + 8, none);
                }
            }
            _ => (node..node + nodes.bytes).step_by(8).for_each(|at| place("free node", at, none)),
        }
    }
    let log = pages.slots(17).at[0];
    place("kind of the lane of frees", log, any);
    place("word of the lane of frees", log + 8, none);
    for lane in (log + 512..log + 4096).step_by(64) {
        let taken = pages.word(lane) != 0;
        place(if taken { "kind of a record" } else { "kind of a free lane" }, lane, any);
        place(
            if taken { "node of a record" } else { "word of a free lane" },
            lane + 8,
            if taken { any } else { none },
        );
        place("word of a free lane", lane + 16, none);
    }
}

/// Adds a log record that rewrites the slot array of a WO-tree's leaf.
fn log_a_rebuild(pages: &mut Pages) {
    let (log, nodes) = (pages.slots(17).at[0], pages.slots(16));
    let leaf = nodes.at.iter().copied().find(|&at| pages.word(at) >> 60 == 1).unwrap();
    pages.put(log + 512, 1);
    pages.put(log + 520, leaf as u64);
}

/// Lists the words of logs of entries.
fn logs(pages: &Pages, places: &mut Vec<Place>) {
    const ENTRY: usize = 24;
    let mut place = |kind, at, harm| places.push(Place { kind, at, harm });
    for (log, end) in pages.logs() {
        let generation = pages.word(log) & 0xff;
        place("generation", log, none);
        place("generation again", log + 8, none);
        place("spare word", log + 16, none);
        let stamps = (log + ENTRY..=end - ENTRY).step_by(ENTRY);
        let counts = |at: &usize| {
            let stamp = pages.word(*at);
            generation != 0 && stamp >> 1 & 0xff == generation && stamp != !0x1fe | generation << 1
        };
        let entries = stamps.clone().take_while(counts).count();
        for (number, stamp) in stamps.enumerate().take(entries + 3) {
            let kinds = match number.cmp(&entries) {
                std::cmp::Ordering::Less => ["stamp of an entry", "key of an entry", "value of an entry"],
                std::cmp::Ordering::Equal => ["behind a log's last entry"; 3],
                std::cmp::Ordering::Greater => ["farther behind a log's entries"; 3],
            };
            // A stamp other than that of the end may be that of an entry.
            let is_checked = |word| number < entries || number == entries && word == 0;
            let harm = |word| if is_checked(word) { |_: &Pages, _, _| Harm::Chance } else { none };
            (0..3).for_each(|word| place(kinds[word], stamp + 8 * word, harm(word)));
        }
    }
}
