//! Layout of the nodes of a WO-tree on the medium.
//!
//! ```text
//! leaf                                      inner node
//!    0  state: kind | VALID | bitmap           0  state: kind | level
//!    8  (bitmap of slots 55 and on,            8  next
//!        only in nodes of 32 lines)           16  high
//!    8  slot array: count, then the slots     24  -
//!       of the items in key order, a byte     32  entries: key word, child; the key of
//!       each                                      entry 0 is never read
//!       next, high
//!       items: key word, value word
//! ```
//!
//! In nodes of up to 16 lines, a leaf's state and slot array lie in one line. `next` is the right
//! sibling, 0 at the right end; `high` is the least key above this node, and is ignored at the
//! right end.

use crate::index::options::experimental;
use bristlecone_pm::{LINE_BYTES, Persistent, SlotKind, Word};

/// The slots of nodes.
pub const NODES: SlotKind = SlotKind::new(16);
/// The slots of the log.
pub const LOGS: SlotKind = SlotKind::new(17);
/// The slots of out-of-line separators.
pub const SEPARATORS: SlotKind = SlotKind::new(18);

/// Size of an item and of an entry in bytes.
pub const PAIR_BYTES: usize = 16;
/// Number of bits of a state word that are a bitmap.
pub const STATE_SLOTS: usize = 55;
/// Maximum number of slots of a leaf.
pub const SLOTS_MAX: usize = 118;
/// Maximum number of words of a slot array.
pub const SLOT_WORDS_MAX: usize = 15;
/// Offset of an inner node's entries.
const ENTRIES_OFFSET: u64 = 32;
/// The key word of a missing entry.
pub const NO_KEY: u64 = u64::MAX;

/// A key word with a value word, or with a child.
#[repr(C)]
pub struct Pair {
    pub key: Word,
    pub word: Word,
}

/// The words behind a leaf's slot array, and behind the state of an inner node.
#[repr(C)]
pub struct Link {
    pub next: Word,
    pub high: Word,
}

// SAFETY: repr(C), words only, no padding (sizes asserted below).
unsafe impl Persistent for Pair {}
// SAFETY: as above.
unsafe impl Persistent for Link {}

const _: () = {
    assert!(size_of::<Pair>() == PAIR_BYTES && size_of::<Link>() == PAIR_BYTES);
    assert!(std::mem::offset_of!(Pair, word) == 8 && std::mem::offset_of!(Link, high) == 8);
    // Neither an item nor an entry straddles two lines.
    assert!(LINE_BYTES.is_multiple_of(PAIR_BYTES) && (ENTRIES_OFFSET as usize).is_multiple_of(PAIR_BYTES));
    assert!(SLOTS_MAX <= STATE_SLOTS + 64 && SLOTS_MAX < SLOT_WORDS_MAX * 8);
};

const KIND_SHIFT: u32 = 60;
const LEAF: u64 = 1;
const INNER: u64 = 2;
/// The slot array of a leaf matches its bitmap.
const VALID: u64 = 1 << 59;
/// The highest level of an inner node. Each level has a lane of the log; even the smallest nodes do
/// not reach it.
pub const LEVEL_MAX: u64 = 22;

/// The decoded first word of a node. It is zero in a slot that is not a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Free,
    /// The slots with items (the lowest 55 of them), and whether the slot array is valid.
    Leaf {
        bitmap: u64,
        valid: bool,
    },
    /// The distance from the leaves: 1 or more.
    Inner {
        level: u8,
    },
}

impl State {
    pub fn encode(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Leaf { bitmap, valid } => {
                LEAF << KIND_SHIFT | if valid { VALID } else { 0 } | bitmap & ((1 << STATE_SLOTS) - 1)
            }
            Self::Inner { level } => INNER << KIND_SHIFT | u64::from(level),
        }
    }

    /// Returns the word of a leaf whose slot array is being written.
    pub fn invalid(leaf: u64) -> u64 {
        leaf & !VALID
    }

    /// Returns `None` if no node has such a state.
    pub fn decode(word: u64) -> Option<Self> {
        let rest = word & ((1 << KIND_SHIFT) - 1);
        match word >> KIND_SHIFT {
            0 if rest == 0 => Some(Self::Free),
            LEAF if rest & !VALID < 1 << STATE_SLOTS => {
                Some(Self::Leaf { bitmap: rest & !VALID, valid: rest & VALID != 0 })
            }
            INNER if (1..=LEVEL_MAX).contains(&rest) => Some(Self::Inner { level: rest as u8 }),
            _ => None,
        }
    }
}

/// The sizes fixed when a tree was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub node_bytes: u64,
    /// Slots of a leaf.
    pub slots: usize,
    /// Words of a slot array.
    pub slot_words: usize,
    /// Entries of an inner node.
    pub entries: usize,
    link_offset: u64,
    items_offset: u64,
    /// Whether each write of a leaf has a log record, even where a line commits by itself.
    logged: bool,
}

impl Shape {
    /// Returns the shape of nodes of 2 (for tests), 4, 8, 16 or 32 lines.
    pub fn new(node_lines: u64, logged: bool) -> Self {
        let slot_words = match node_lines {
            2 => 1,
            4 => 2,
            8 => 4,
            16 => 7,
            32 => SLOT_WORDS_MAX,
            _ => panic!("no node has {node_lines} lines"),
        };
        let node_bytes = node_lines * LINE_BYTES as u64;
        let bitmap_words = if node_lines == 32 { 2 } else { 1 };
        let link_offset = (bitmap_words + slot_words as u64) * 8;
        let items_offset = (link_offset + size_of::<Link>() as u64).next_multiple_of(PAIR_BYTES as u64);
        let fit = ((node_bytes - items_offset) / PAIR_BYTES as u64) as usize;
        let slots = fit.min(slot_words * 8 - 1).min(if node_lines == 32 { SLOTS_MAX } else { STATE_SLOTS });
        let entries = ((node_bytes - ENTRIES_OFFSET) / PAIR_BYTES as u64) as usize;
        Self { node_bytes, slots, slot_words, entries, link_offset, items_offset, logged }
    }

    /// Returns whether a leaf's bitmap and slot array lie in one line.
    #[inline(always)]
    pub fn one_line(self) -> bool {
        self.slots <= STATE_SLOTS
    }

    /// Returns whether that line commits by itself, without a log record.
    #[inline(always)]
    pub fn commits_alone(self) -> bool {
        self.one_line() && experimental(self.logged.into(), 0) == 0
    }

    #[inline(always)]
    pub fn slots_offset(self) -> u64 {
        if self.one_line() { 8 } else { 16 }
    }

    #[inline(always)]
    pub fn leaf_link(self, leaf: u64) -> u64 {
        leaf + self.link_offset
    }

    #[inline(always)]
    pub fn item(self, leaf: u64, slot: usize) -> u64 {
        leaf + self.items_offset + (slot * PAIR_BYTES) as u64
    }

    #[inline(always)]
    pub fn inner_link(self, inner: u64) -> u64 {
        inner + 8
    }

    #[inline(always)]
    pub fn entry(self, inner: u64, at: usize) -> u64 {
        inner + ENTRIES_OFFSET + (at * PAIR_BYTES) as u64
    }

    /// Returns the bytes of a leaf that holds `items` items in its first slots.
    pub fn leaf_bytes(self, items: usize) -> u64 {
        self.items_offset + (items * PAIR_BYTES) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_golden() {
        for (lines, slots, entries, link, items) in [
            (2, 6, 6, 16, 32),
            (4, 13, 14, 24, 48),
            (8, 28, 30, 40, 64),
            (16, 55, 62, 64, 80),
            (32, 118, 126, 136, 160),
        ] {
            let shape = Shape::new(lines, false);
            assert_eq!((shape.slots, shape.entries), (slots, entries), "{lines} lines");
            assert_eq!((shape.link_offset, shape.items_offset), (link, items), "{lines} lines");
            assert!(shape.item(0, slots) <= shape.node_bytes && shape.entry(0, entries) <= shape.node_bytes);
            assert!(slots < shape.slot_words * 8 && slots <= SLOTS_MAX);
            // Link and slot array do not overlap; where no log is used they end within the line.
            assert!(shape.slots_offset() + shape.slot_words as u64 * 8 <= shape.link_offset);
            assert!(!shape.one_line() || shape.link_offset <= LINE_BYTES as u64);
            // `next` and `high` share a line.
            assert!(shape.link_offset % LINE_BYTES as u64 <= LINE_BYTES as u64 - 16);
        }
        assert_eq!(State::Leaf { bitmap: 5, valid: true }.encode(), 0x1800_0000_0000_0005);
        assert_eq!(State::Inner { level: 2 }.encode(), 0x2000_0000_0000_0002);
    }

    #[test]
    fn states_round_trip() {
        let full = State::Leaf { bitmap: (1 << STATE_SLOTS) - 1, valid: false };
        for state in [State::Free, full, State::Inner { level: LEVEL_MAX as u8 }] {
            assert_eq!(State::decode(state.encode()), Some(state));
        }
        for bad in [1, 3 << 60, 2 << 60, 2 << 60 | (LEVEL_MAX + 1), 1 << 60 | 1 << 56, u64::MAX] {
            assert_eq!(State::decode(bad), None, "{bad:#x}");
        }
    }
}
